"""Reading logs in a process of its own, so that no log can crash, hang or fill the caller."""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from iowatch.errors import InputError, IowatchError, MachineError

TIMEOUT_S = 120.0
_ERRORS: dict[int, type[IowatchError]] = {2: InputError, 3: MachineError}


class Reader:
    """A worker that is started at the first request, and again after a log has killed it.

    Use as a context manager; one request at a time. Several readers may run in parallel.

    Args:
        timeout_s: how long one log may take.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # -P: a darshan.py in the working directory must not pass for PyDarshan.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "iowatch.darshan.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _receive(self, process: subprocess.Popen[bytes], path: Path) -> bytes:
        """One line from the worker; b"" when it died."""
        assert process.stdout is not None
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(self._timeout_s):
                    self.close()
                    raise InputError(f"{path}: reading it took more than {self._timeout_s:g} s")
                piece = process.stdout.read1(1 << 20)  # type: ignore[attr-defined]
                if not piece:
                    return b""
                line += piece
        return bytes(line)

    def ask(self, task: str, path: Path, **arguments: Any) -> Any:
        """Have the worker do a task (`summary`, `timeline`, `report`) with a log.

        Raises:
            InputError: the log cannot be read, or reading it crashed or hung the Darshan library.
            MachineError: what the task needs is missing, or its output cannot be written.
        """
        process = self._start()
        assert process.stdin is not None
        request = json.dumps({"task": task, "path": str(path), **arguments}) + "\n"
        try:
            process.stdin.write(request.encode())
            process.stdin.flush()
            line = self._receive(process, path)
        except BrokenPipeError:
            line = b""
        if not line:
            raise self._crash(process, path)
        answer = json.loads(line)
        if "error" in answer:
            raise _ERRORS.get(answer["exit_code"], MachineError)(answer["error"], hint=answer["hint"])
        return answer["answer"]

    def _crash(self, process: subprocess.Popen[bytes], path: Path) -> InputError:
        code = process.wait()
        self.close()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return InputError(
            f"{path}: the Darshan library crashed on it ({how})",
            hint="The log is damaged in a way it does not expect.",
        )
