"""The process that touches the C library: `python -m iowatch.darshan.worker`.

One request a line on stdin, one answer a line on stdout, both JSON; see `isolate.Reader` for the other side.
Where the library crashes, only this process dies. What the library itself prints goes to stderr and is dropped.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from iowatch.errors import IowatchError


def _summary(request: dict[str, Any]) -> Any:
    from iowatch.darshan.summary import summarise

    return summarise(Path(request["path"]))


def _timeline(request: dict[str, Any]) -> Any:
    from iowatch.darshan.activity import activity

    return activity(Path(request["path"]))


def _report(request: dict[str, Any]) -> Any:
    from iowatch.darshan.html import write_report

    return write_report(Path(request["path"]), Path(request["output"]), request["name"])


_TASKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "summary": _summary,
    "timeline": _timeline,
    "report": _report,
}


# What PyDarshan says when it is imported without libdarshan-util.
_NO_LIBRARY = "Could not find libdarshan-util"
_LIBRARY_HINT = (
    "Its packages bring one for Python 3.11 and 3.12; for others install darshan-util, darshan-parser on PATH."
)


def _with_path(message: str, path: str) -> str:
    return message if path in message else f"{path}: {message}"


def _refusal(message: str, exit_code: int, hint: str | None = None) -> str:
    return json.dumps({"error": message, "hint": hint, "exit_code": exit_code})


def _answer(line: str) -> str:
    request = json.loads(line)
    path = request["path"]
    try:
        # A time that is no number is not JSON, and nothing to show: ValueError.
        return json.dumps({"answer": _TASKS[request["task"]](request)}, allow_nan=False)
    except IowatchError as error:
        return _refusal(_with_path(error.message, path), error.exit_code, error.hint)
    except OSError as error:
        return _refusal(f"{error.filename or path}: {error.strerror or error}", 3)
    except MemoryError:
        return _refusal(f"{path}: too large for the memory that is left", 2)
    except Exception as error:
        if _NO_LIBRARY in str(error):
            return _refusal(f"{path}: PyDarshan has no library to read logs with", 3, _LIBRARY_HINT)
        # Whatever a hostile log brings PyDarshan to: the other side says so and goes on with the next log.
        return _refusal(f"{path}: cannot be read ({type(error).__name__}: {error})", 2)


# Enough for the largest logs (some million records); a log made to unpack without end stops here.
_MEMORY_BYTES = 8 << 30


def _limit_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(_MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _own_stdout() -> TextIO:
    """Keep the pipe to ourselves: the library and PyDarshan print to stdout as they like."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


def main() -> None:
    """Answer until stdin ends."""
    out = _own_stdout()
    _limit_memory()
    for line in sys.stdin:
        print(_answer(line), file=out, flush=True)


if __name__ == "__main__":
    main()
