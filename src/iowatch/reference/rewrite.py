"""The text of reference files with entries added or replaced: comments and order of what stays are kept."""

from __future__ import annotations

import dataclasses
import difflib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.emitter import RoundTripEmitter
from ruamel.yaml.error import YAMLError

from iowatch.errors import InputError
from iowatch.reference.bandwidth import INDEX, PROVENANCE, Entry

_HEADER = """\
References of {system}: docs/references.md says what stands here and how it is changed.
`iowatch reference propose --system {system} --write` keeps comments and order.
"""


class _Emitter(RoundTripEmitter):
    # A case's key may be longer than 128 characters; YAML allows 1024 on one line.
    MAX_SIMPLE_KEY_LENGTH = 1000


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.Emitter = _Emitter
    yaml.preserve_quotes = True
    yaml.representer.ignore_aliases = lambda _: True  # the same date twice is no anchor
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _number(value: float) -> int | float:
    """Six significant digits: more would say more than was measured; whole numbers without a point."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def as_written(entry: Entry) -> Entry:
    """The entry as it is read again after it was written (six significant digits)."""
    low, high = (None if bound is None else float(_number(bound)) for bound in (entry.low, entry.high))
    spread = entry.provenance.spread
    provenance = entry.provenance.model_copy(update={"spread": None if spread is None else _number(spread)})
    return dataclasses.replace(
        entry, value=float(_number(entry.value)), low=low, high=high, provenance=provenance, where=""
    )


def _reference(entry: Entry) -> CommentedSeq:
    low, high = (None if bound is None else _number(bound) for bound in (entry.low, entry.high))
    line = CommentedSeq([_number(entry.value), low, high, entry.unit])
    line.fa.set_flow_style()
    return line


def _provenance(entry: Entry) -> CommentedMap:
    plain = entry.provenance.model_dump(exclude_defaults=True)
    if plain.get("spread") is not None:
        plain["spread"] = _number(plain["spread"])
    line = CommentedMap(plain)
    line.fa.set_flow_style()
    return line


def _put(document: CommentedMap, path: Iterable[str], value: Any) -> None:
    *parents, last = path
    for key in parents:
        if not isinstance(document.get(key), CommentedMap):
            document[key] = CommentedMap()
        document = document[key]
    document[last] = value


def text_with(system: str, old: str, entries: Iterable[Entry]) -> str:
    """A file's text with some entries added or replaced.

    Args:
        old: the text as it is; empty for a new file.

    Raises:
        InputError: the text is not YAML.
    """
    try:
        document = _yaml().load(old)
    except YAMLError as error:
        raise InputError(f"references of {system}: not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        document = CommentedMap()
        document.yaml_set_start_comment(_HEADER.format(system=system))
    origins = document.pop(PROVENANCE, None) or CommentedMap()
    for entry in entries:
        if entry.check not in document:
            document[entry.check] = CommentedMap({"$index": _flow(INDEX)})
        _put(document, entry.key, _reference(entry))
        _put(origins, entry.key, _provenance(entry))
    document[PROVENANCE] = origins
    stream = io.StringIO()
    _yaml().dump(document, stream)
    return stream.getvalue()


def _flow(words: list[str]) -> CommentedSeq:
    line = CommentedSeq(words)
    line.fa.set_flow_style()
    return line


def difference(path: Path, old: str, new: str) -> str:
    """The unified diff of two texts of a file."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path.name}", f"b/{path.name}"
    )
    return "".join(lines)
