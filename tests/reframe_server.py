"""ReFrame in a new process for every start, without its imports: a server imports once and forks.

Most of the time of a small run of ReFrame are the imports of ReFrame and of the checks.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.datasets import ROOT

_LIMIT_S = 120


def run_reframe(
    words: Sequence[str | Path], cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """`reframe WORDS…` as another process would run it; its output is in `stdout`.

    Args:
        environment: all of it.
    """
    output = cwd / "reframe.out"
    request = {"argv": ["reframe", *map(str, words)], "cwd": str(cwd), "env": dict(environment), "output": str(output)}
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    code = int(server.stdout.readline())
    return subprocess.CompletedProcess(request["argv"], code, output.read_text(encoding="utf-8"), "")


@cache
def _server() -> subprocess.Popen[str]:
    """Ends with its standard input."""
    words = [sys.executable, "-m", __name__]
    server = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def _serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _start(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _start(request: dict) -> None:
    """Does not return; what ReFrame registered for the end of its process is done."""
    signal.alarm(_LIMIT_S)
    stream = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(stream, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    sys.exit(cli.main())


if __name__ == "__main__":
    from reframe.frontend import cli

    import iowatch.checks.base  # noqa: F401 (imported before the fork)

    _serve()
