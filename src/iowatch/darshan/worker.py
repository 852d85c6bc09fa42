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

    return write_report(Path(request["path"]), Path(request["output"]))


_TASKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "summary": _summary,
    "timeline": _timeline,
    "report": _report,
}


def _with_path(message: str, path: str) -> str:
    return message if path in message else f"{path}: {message}"


def _answer(line: str) -> dict[str, Any]:
    request = json.loads(line)
    try:
        return {"answer": _TASKS[request["task"]](request)}
    except IowatchError as error:
        return {
            "error": _with_path(error.message, request["path"]),
            "hint": error.hint,
            "exit_code": error.exit_code,
        }
    except MemoryError:
        return {
            "error": f"{request['path']}: too large for the memory that is left",
            "hint": None,
            "exit_code": 2,
        }
    except Exception as error:
        # Whatever a hostile log brings PyDarshan to: the other side says so and goes on with the next log.
        text = f"{request['path']}: cannot be read ({type(error).__name__}: {error})"
        return {"error": text, "hint": None, "exit_code": 2}


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
        print(json.dumps(_answer(line), ensure_ascii=True), file=out, flush=True)


if __name__ == "__main__":
    main()
