"""A directory of its own for every case, removed afterwards; the next run sweeps what killed ones left."""

from __future__ import annotations

import os
import shlex

import reframe as rfm
from reframe.core.builtins import run_after, run_before

from iowatch import scratch


class ScratchMixin(rfm.RegressionTestPlugin):
    """Creates the case's directory in the job, and removes it there: the ReFrame process may run elsewhere.

    `self.scratch_directory` is its path: below `IOWATCH_SCRATCH`, or the partition's extra `scratch`, or
    ReFrame's stage directory.
    """

    @run_after("setup")
    def choose_scratch(self) -> None:
        base = (
            os.environ.get("IOWATCH_SCRATCH") or self.current_partition.extras.get("scratch") or self.stagedir
        )
        self.scratch_directory = scratch.case_directory(base, self.unique_name, self.current_environ.name)

    @run_before("run")
    def use_scratch(self) -> None:
        quoted = shlex.quote(str(self.scratch_directory))
        # However the job's shell ends, short of a kill: what that leaves, the next run sweeps.
        removal = shlex.quote(f"rm -rf {quoted}")
        self.prerun_cmds = [
            f"trap {removal} EXIT",
            f"mkdir -p {quoted}",
            *self._striping(quoted),
            *self.prerun_cmds,
        ]

    def _striping(self, quoted: str) -> list[str]:
        """Lustre striping of the directory, where the case asks for it and `lfs` is there; told otherwise."""
        options = self.case.options
        wanted = {"-c": options.get("stripe-count"), "-S": options.get("stripe-size")}
        words = " ".join(
            f"{flag} {shlex.quote(str(value))}" for flag, value in wanted.items() if value is not None
        )
        if not words:
            return []
        # On another file system `lfs` fails or is absent: the case goes on and its output says so.
        return [f"lfs setstripe {words} {quoted} 2>/dev/null || echo 'iowatch: striping not applicable' >&2"]
