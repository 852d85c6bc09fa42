"""A worker process that reads Darshan logs, because the Darshan library does not survive all of them.

The library aborts, crashes or hangs on some damaged logs, and some decompress to more than the memory. Therefore a
`DarshanReader` starts a worker process (`serve`) and lets it call functions: one call per line on its stdin, one answer
per line on its stdout, both JSON. If a log ends the worker, the reader reports this and starts another worker.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iowatch.core import InputError, IowatchError, MachineError
from iowatch.site import machine

TIMEOUT_S = 120.0
# Enough for the largest logs (some million records); limits a decompression bomb.
_MEMORY_BYTES = 8 << 30
# Errors of the worker that are raised in the calling process, by their exit code.
_ERRORS: dict[int, type[IowatchError]] = {2: InputError, 3: MachineError}
# PyDarshan's message when it is imported without libdarshan-util.
_NO_LIBRARY = "Could not find libdarshan-util"


class DarshanReader:
    """A worker, started at the first call and restarted after a log has ended it.

    Use as a context manager; one call at a time. Several readers may run in parallel.

    Args:
        timeout_s: maximum time per log.
        memory_bytes: maximum address space of the worker; a log that needs more is refused.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DarshanReader:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the worker."""
        process = self._process
        self._process = None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()

    def call(self, function: Callable[..., Any], log: Path, **arguments: Any) -> Any:
        """Call `function(log, **arguments)` in the worker and return its answer.

        Args:
            function: a function of a module, of any package. It is imported here, too; so its module must not load
                PyDarshan when it is imported (`iowatch.darshan.log` does so at the first use).
            log: the log.
            arguments: values that JSON has. The answer consists of such values, too: tuples become lists.

        Raises:
            InputError: the log is unreadable, or reading it crashed or blocked the Darshan library.
            MachineError: a dependency of the function is missing, or its output cannot be written.
        """
        message = json.dumps(
            {"module": function.__module__, "function": function.__qualname__, "log": str(log), "arguments": arguments}
        )
        line = self._exchange(message, log)
        if not line:
            raise self._crash_error(log)
        answer = json.loads(line)
        if "error" not in answer:
            return answer["answer"]
        failure = _WorkerFailure(**answer["error"])
        error_type = _ERRORS.get(failure.exit_code, MachineError)
        raise error_type(failure.message, hint=failure.hint, reason=failure.reason)

    def _exchange(self, message: str, log: Path) -> bytes:
        """Send one line to the worker and return its answer; b"" if the worker has ended."""
        process = self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{message}\n".encode())
            process.stdin.flush()
            return self._receive(process, log)
        except BrokenPipeError:
            return b""

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # -P: do not import a darshan.py in the working directory instead of PyDarshan.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from iowatch.darshan.worker import serve; serve({self._memory_bytes})"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _receive(self, process: subprocess.Popen[bytes], log: Path) -> bytes:
        """Return one line from the worker; b"" if the worker has ended."""
        assert process.stdout is not None
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(self._timeout_s):
                    self.close()
                    raise InputError(f"{log}: reading it took more than {self._timeout_s:g} s", reason="slow")
                received = process.stdout.read1(1 << 20)  # type: ignore[attr-defined]
                if not received:
                    return b""
                line += received
        return bytes(line)

    def _crash_error(self, log: Path) -> InputError:
        """Remove a worker that has ended, and return the error that says how."""
        assert self._process is not None
        code = self._process.wait()
        self.close()
        cause = f"exit code {code}"
        if code < 0:
            cause = signal.Signals(-code).name
        message = f"{log}: the Darshan library crashed while reading it ({cause})"
        return InputError(message, hint="The log is damaged.", reason="crashed")


@dataclass(frozen=True)
class _WorkerFailure:
    """Why a call failed: the fields of an `IowatchError`."""

    message: str
    exit_code: int
    hint: str | None = None
    reason: str | None = None


def serve(memory_bytes: int = _MEMORY_BYTES) -> None:
    """Run the worker: answer calls on stdin until it is closed."""
    # Keep the original pipe for answers: the library and PyDarshan print to stdout.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes
    if hard_limit != resource.RLIM_INFINITY:
        limit = min(memory_bytes, hard_limit)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard_limit))
    for line in sys.stdin:
        print(_answer_call(line), file=answers, flush=True)


def _answer_call(line: str) -> str:
    call = json.loads(line)
    log = call["log"]
    try:
        function = getattr(importlib.import_module(call["module"]), call["function"])
        answer = function(Path(log), **call["arguments"])
        # Times that are not finite are not valid JSON: ValueError.
        return json.dumps({"answer": answer}, allow_nan=False)
    except Exception as error:
        # Any error that a hostile log causes in PyDarshan is reported, and the next log can be read.
        return json.dumps({"error": asdict(_describe_failure(error, log))})


def _describe_failure(error: Exception, log: str) -> _WorkerFailure:
    if isinstance(error, IowatchError):
        message = error.message
        if log not in message:
            message = f"{log}: {message}"
        return _WorkerFailure(message, error.exit_code, error.hint, error.reason)
    if isinstance(error, OSError):
        return _WorkerFailure(f"{error.filename or log}: {error.strerror or error}", exit_code=3)
    if isinstance(error, MemoryError):
        return _WorkerFailure(f"{log}: too large for the memory that is left", exit_code=2, reason="too_large")
    if isinstance(error, ModuleNotFoundError) and error.name == "darshan":
        return _WorkerFailure(
            f"{log}: PyDarshan, whose library reads logs, is not installed",
            exit_code=3,
            hint=f"Add it with: {machine.darshan_library_command()}",
        )
    if _NO_LIBRARY in str(error):
        return _WorkerFailure(
            f"{log}: PyDarshan has no library to read logs with",
            exit_code=3,
            hint=f"Add it with: {machine.darshan_library_command()}",
        )
    return _WorkerFailure(f"{log}: cannot be read ({type(error).__name__}: {error})", exit_code=2)
