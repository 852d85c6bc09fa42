"""The record of one Darshan log (`Trace`), its worker process, and the removal of user names and paths.

The Darshan library aborts, crashes or hangs on some damaged logs, and some decompress to more than the memory. A
`DarshanReader` therefore starts a worker process (`serve`): one request per line on its stdin, one answer per line on
its stdout, both JSON. If a log ends the worker, the reader reports this and starts another worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import secrets
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from iowatch.core import InputError, IowatchError, MachineError, artefacts, files, settings
from iowatch.site import machine

TIMEOUT_S = 120.0
# Enough for the largest logs (some million records); limits a decompression bomb.
_MEMORY_BYTES = 8 << 30
_ERRORS: dict[int, type[IowatchError]] = {2: InputError, 3: MachineError}


class DarshanReader:
    """A worker, started at the first request and restarted after a log has ended it.

    Use as a context manager; one request at a time. Several readers may run in parallel.

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
            # -P: do not import a darshan.py in the working directory instead of PyDarshan.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from iowatch.darshan.trace import serve; serve({self._memory_bytes})"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _receive(self, process: subprocess.Popen[bytes], path: Path) -> bytes:
        """Return one line from the worker; b"" if the worker has ended."""
        assert process.stdout is not None
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(self._timeout_s):
                    self.close()
                    raise InputError(f"{path}: reading it took more than {self._timeout_s:g} s", reason="slow")
                piece = process.stdout.read1(1 << 20)  # type: ignore[attr-defined]
                if not piece:
                    return b""
                line += piece
        return bytes(line)

    def request(self, task: str, path: Path, **arguments: Any) -> Any:
        """Let the worker execute a task (`summary`, `row`, `timeline`, `report`, `workload`, `profile`) with a log.

        Raises:
            InputError: the log is unreadable, or reading it crashed or blocked the Darshan library.
            MachineError: a dependency of the task is missing, or its output cannot be written.
        """
        process = self._start()
        assert process.stdin is not None
        message = json.dumps({"task": task, "path": str(path), **arguments}) + "\n"
        try:
            process.stdin.write(message.encode())
            process.stdin.flush()
            line = self._receive(process, path)
        except BrokenPipeError:
            line = b""
        if not line:
            code = process.wait()
            self.close()
            cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            message = f"{path}: the Darshan library crashed while reading it ({cause})"
            raise InputError(message, hint="The log is damaged.", reason="crashed")
        answer = json.loads(line)
        if "error" in answer:
            kind = _ERRORS.get(answer["exit_code"], MachineError)
            raise kind(answer["error"], hint=answer["hint"], reason=answer["reason"])
        return answer["answer"]


# PyDarshan's message when it is imported without libdarshan-util.
_NO_LIBRARY = "Could not find libdarshan-util"


def _execute(task: str, path: Path, arguments: dict[str, Any]) -> Any:
    # Imported here: these import PyDarshan (and the last one matplotlib), which the calling process must not.
    if task == "report":
        from iowatch.darshan.html import write_escaped_report

        return write_escaped_report(path, Path(arguments["output"]), arguments["name"])
    if task == "row":
        from iowatch.darshan.rows import read_log_row

        return read_log_row(path, arguments["file_systems"])
    if task in ("workload", "profile"):
        from iowatch.darshan.workload import describe_log, profile_log

        return describe_log(path, **arguments) if task == "workload" else profile_log(path, **arguments)
    from iowatch.darshan.summary import read_activity, summarise_log

    return {"summary": summarise_log, "timeline": read_activity}[task](path)


def _handle_request(line: str) -> str:
    request = json.loads(line)
    path, reason = request.pop("path"), None
    try:
        answer = _execute(request.pop("task"), Path(path), request)
        # Times that are not finite are not valid JSON: ValueError.
        return json.dumps({"answer": answer}, allow_nan=False)
    except IowatchError as error:
        message = error.message if path in error.message else f"{path}: {error.message}"
        code, hint, reason = error.exit_code, error.hint, error.reason
    except OSError as error:
        message, code, hint = f"{error.filename or path}: {error.strerror or error}", 3, None
    except MemoryError:
        message, code, hint, reason = f"{path}: too large for the memory that is left", 2, None, "too_large"
    except Exception as error:
        # Any error that a hostile log causes in PyDarshan is reported, and the next log can be read.
        message, code, hint = f"{path}: cannot be read ({type(error).__name__}: {error})", 2, None
        if _NO_LIBRARY in str(error):
            message, code, hint = (
                f"{path}: PyDarshan has no library to read logs with",
                3,
                f"Add it with: {machine.darshan_library_command()}",
            )
    return json.dumps({"error": message, "hint": hint, "exit_code": code, "reason": reason})


def serve(memory_bytes: int = _MEMORY_BYTES) -> None:
    """Run the worker: answer requests on stdin until it is closed."""
    # Keep the original pipe for answers: the library and PyDarshan print to stdout.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    for line in sys.stdin:
        print(_handle_request(line), file=out, flush=True)


TraceStatus = Literal["ok", "partial", "unreadable"]


@dataclass(frozen=True)
class Trace:
    """The summary of one log.

    Attributes:
        status: `ok`; `partial` (parts are missing, see `reason`); `unreadable` (all of it).
        reason: None if `ok`.
        job: `ranks`, `exe`, `start`, `end` (UTC), `run_time_s`, `darshan_version`, `log_version`, `jobid`,
            `uid`, `metadata`.
        modules: module to Darshan's counter names to values, combined over records (docs/darshan.md, "Totals").
        derived: figures derived from them (docs/darshan.md, "Derived figures").
        files: one row per file, in descending order of time.
        missing: part of the log (module, `names`) to the cause.
    """

    status: TraceStatus
    reason: str | None
    job: Mapping[str, Any] = field(default_factory=dict)
    modules: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    derived: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Mapping[str, Any]] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def counter(self, name: str) -> float | None:
        """Return a counter of any module by Darshan's name; None if the log has not counted it (absent, or -1)."""
        value = next((counters[name] for counters in self.modules.values() if name in counters), None)
        return None if value == -1 else value

    def figure(self, name: str) -> Any:
        """Return a value by name: counter (upper case), derived figure, or field of the job; None if absent."""
        if name.isupper():
            return self.counter(name)
        return self.derived[name] if name in self.derived else self.job.get(name)

    def estimate(self, module: str, name: str) -> Any:
        """Return Darshan's own estimate for a module (`bandwidth_mib_per_s`, `imbalance`, …); None if absent."""
        return self.derived["performance"].get(module, {}).get(name)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `iowatch darshan LOG --json`."""
        return asdict(self)


def read_trace(path: Path, reader: DarshanReader | None = None) -> Trace:
    """Summarise one log.

    Args:
        path: the log.
        reader: a running reader to use; None starts one for this log (about 0.4 s).

    Raises:
        InputError: the log is unreadable.
    """
    with contextlib.nullcontext(reader) if reader else DarshanReader() as used:
        return Trace(**used.request("summary", path))


def describe_workload(
    path: Path, name: str, phases: int | None = None, reader: DarshanReader | None = None, grid: Sequence[int] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Return the description (docs/workloads.md) of the I/O in a log, and sentences about what it does not have.

    Args:
        name: of the workload.
        phases: how many; None for one per change of what is read and written.
        reader: as for `read_trace`.
        grid: into how many parts the ranks divide the last dimensions of arrays; empty: what the log says.

    Raises:
        InputError: the log is unreadable or incomplete, or has too few pauses for so many phases.
    """
    with contextlib.nullcontext(reader) if reader else DarshanReader() as used:
        answer = used.request("workload", path, name=name, phases=phases, grid=[*grid])
    return answer["description"], answer["losses"]


# Names that Darshan itself assigns.
_PUBLIC_NAMES = ("<STDIN>", "<STDOUT>", "<STDERR>", "heatmap:")
_KEPT_METADATA = ("lib_ver", "h")


def site_key() -> bytes:
    """Return the key for this site's hashes, created at first use in `var/privacy.key`, readable only by its owner."""
    path = settings.var_directory() / "privacy.key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = files.new_draft(path)
        draft.touch(mode=0o600)
        draft.write_bytes(secrets.token_bytes(32))
        # Linking fails if another process was first; then its key is used.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_bytes()


def anonymise_trace(trace: Trace, mode: str, key: bytes | None = None) -> Trace:
    """Return a trace without user names and paths.

    `drop` removes names; `hash` replaces them by a keyed hash (`file-3f2a…`), so that the same file has the same name
    in all traces of a site, and guesses cannot be verified without the key. Counters, file system types, the standard
    streams, times and numbers of ranks are kept.

    Args:
        trace: as read.
        mode: `keep`, `hash` or `drop`.
        key: key for the hashes, at most 64 bytes; by default that of the site.
    """
    if mode == "keep" or trace.status == "unreadable":
        return trace
    key = (key or site_key()) if mode == "hash" else None

    def substitute(kind: str, name: Any) -> str | None:
        if name is None or key is None:
            return None
        return f"{kind}-{hashlib.blake2b(str(name).encode(), key=key, digest_size=6).hexdigest()}"

    def path(name: str | None) -> str | None:
        return name if name and name.startswith(_PUBLIC_NAMES) else substitute("file", name)

    kept = {name: value for name, value in trace.job["metadata"].items() if name in _KEPT_METADATA}
    job = {**trace.job, "exe": substitute("exe", trace.job["exe"]), "uid": substitute("user", trace.job["uid"])}
    slowest = {name: {**one, "file": path(one["file"])} for name, one in trace.derived["slowest"].items()}
    derived = {**trace.derived, "slowest_file": path(trace.derived["slowest_file"]), "slowest": slowest}
    rows = [{**row, "path": path(row["path"]), "mount": substitute("mount", row["mount"])} for row in trace.files]
    return replace(trace, job={**job, "metadata": kept}, derived=derived, files=rows)


def privacy_mode() -> str:
    """Return the setting `darshan_privacy`: `keep` (the default), `hash` or `drop`.

    Raises:
        UsageError: any other value in the environment. InputError: in `site.yaml`.
    """
    return settings.site_settings().darshan_privacy


def keep_darshan_log(log: Path) -> tuple[str, int] | None:
    """Store a log in the artefact store; return SHA-256 and size, or None if the site hides names.

    A log cannot be anonymised: it also identifies each file by Darshan's own unkeyed hash of the path.
    """
    return artefacts.store_artefact(log) if privacy_mode() == "keep" else None


def read_first_kept_trace(digests: Iterable[str], reader: DarshanReader) -> Trace | None:
    """Return the trace of the first log of a run that is still stored; None if there is none or it is incomplete.

    A program that is started several times has several equivalent logs.

    Args:
        digests: SHA-256 of the logs of the run.
    """
    path = next((path for digest in digests if (path := artefacts.artefact_path(digest)).is_file()), None)
    with contextlib.suppress(InputError):
        if path is not None and (trace := read_trace(path, reader)).status == "ok":
            return trace
    return None
