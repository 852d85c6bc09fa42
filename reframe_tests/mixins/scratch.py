"""A separate scratch directory per case, removed afterwards; the next run removes those of killed runs."""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
from functools import cache
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import run_after, run_before

from iowatch.benchmarks.benchmark import striping_parameters
from iowatch.core import Scalar, UsageError, format_size
from iowatch.site import file_system_without_striping, storage

# In the stage directory: exists if the requested striping is in force; and the errors of `lfs`.
_STRIPED, _REFUSED = "iowatch.striped", "iowatch.striped.err"


@cache
def _sweep(base: Path) -> None:
    """Once per process: remove scratch of ended processes, and at exit the empty directory of this one."""
    storage.remove_ended_scratch(base)
    atexit.register(_remove_empty, storage.session_directory(base))


def _remove_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


_spent_bytes = 0


def _spend(volume_bytes: int, budget_bytes: int) -> None:
    """Count the bytes that this ReFrame process writes and reads, and check them against the budget."""
    global _spent_bytes
    if _spent_bytes + volume_bytes > budget_bytes:
        raise UsageError(
            f"this case writes and reads {format_size(volume_bytes)}, those before it "
            f"{format_size(_spent_bytes)}; the system's byte budget is {format_size(budget_bytes)} a session",
            hint="Choose fewer cases, or raise limits.total_bytes in its system.yaml.",
        )
    _spent_bytes += volume_bytes


class ScratchMixin(rfm.RegressionTestPlugin):
    """Creates and removes the directory of the case in the job, because ReFrame may run on another machine.

    `self.scratch_directory` is its path: below `IOWATCH_SCRATCH`, or the extra `scratch` of the partition, or
    the stage directory of ReFrame.
    """

    @run_after("setup")
    def choose_scratch(self) -> None:
        base = self.scratch_base()
        _sweep(base)
        self.scratch_directory = storage.case_directory(base, self.unique_name, self.current_environ.name)

    def scratch_base(self) -> Path:
        """Scratch directory that contains the directories of this and other sessions."""
        named = os.environ.get("IOWATCH_SCRATCH") or self.current_partition.extras.get("scratch")
        return Path(named or self.stagedir)

    @run_before("run")
    def check_space(self) -> None:
        """Check scratch space before the run: bytes, files, quota and the byte budget of the system."""
        tool, options, limits = self.case.tool, self.case.options, self.limits()
        reserve = (limits.free_bytes if limits else None) or 0
        storage.check_scratch_space(self.scratch_base(), tool.file_bytes(options) + reserve, tool.inodes(options))
        if limits and limits.total_bytes and "IOWATCH_SESSION" not in os.environ:  # `iowatch run` checks its plan
            _spend(tool.volume_bytes(options), limits.total_bytes)

    @run_before("run")
    def use_scratch(self) -> None:
        quoted = shlex.quote(str(self.scratch_directory))
        # At any end of the job's shell except a kill; the next run removes directories of killed jobs.
        removal = shlex.quote(f"rm -rf {quoted}")
        self.prerun_cmds = [f"trap {removal} EXIT", f"mkdir -p {quoted}", *self._striping(quoted), *self.prerun_cmds]

    def _striping(self, quoted: str) -> list[str]:
        """Commands that set the requested Lustre striping of the directory, and report if it is not applicable."""
        options = self.case.options
        wanted = {"-c": options.get("stripe-count"), "-S": options.get("stripe-size")}
        words = " ".join(f"{flag} {shlex.quote(str(value))}" for flag, value in wanted.items() if value is not None)
        if not words:
            return []
        # On another file system `lfs` fails or is absent: the case continues, and its result records this.
        return [
            f"if lfs setstripe {words} {quoted} 2> {_REFUSED}; then : > {_STRIPED}; "
            "else echo 'iowatch: striping not applicable' >&2; fi"
        ]

    def striping_that_failed(self) -> dict[str, Scalar]:
        """Case parameters of a requested striping that is not in force."""
        return {} if (Path(self.stagedir) / _STRIPED).is_file() else striping_parameters(self.case.options)

    def striping_facts(self) -> dict[str, str]:
        """Fact about a requested striping that is not applicable on this file system."""
        where = file_system_without_striping(self.scratch_base()) if self.striping_that_failed() else None
        return {"striping": f"not applicable on {where}"} if where else {}

    def striping_failure(self) -> str | None:
        """Reason if striping could not be set on Lustre, a failure because the result is of another case."""
        if not self.striping_that_failed() or file_system_without_striping(self.scratch_base()):
            return None
        errors = Path(self.stagedir) / _REFUSED
        words = errors.read_text(errors="replace").strip() if errors.is_file() else ""
        return f"the striping could not be set: {words or 'lfs setstripe failed'}"
