"""Plotly's script as its Python package brings it: nothing is fetched when a page is viewed."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from iowatch.errors import MachineError


@cache
def script() -> Path:
    """The script; the package itself is not imported, which would take longer than a build without news.

    Raises:
        MachineError: the package is not installed, or without its script.
    """
    spec = find_spec("plotly")
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js" if spec and spec.origin else None
    if path is None or not path.is_file():
        raise MachineError("Plotly's script is missing", hint="python -m pip install plotly")
    return path


@cache
def style_ids() -> tuple[str, ...]:
    """Ids of style elements that the script adds when it is loaded, unless an element of that id is there.

    Our Content-Security-Policy forbids such styles (they are for maps); placeholders keep it from trying.
    """
    text = script().read_text(encoding="utf-8")
    return tuple(dict.fromkeys(re.findall(r'getElementById\("([0-9a-f]{64})"\)', text)))
