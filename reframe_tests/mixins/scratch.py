"""A directory of its own for every case, removed afterwards; the next run sweeps what killed ones left."""

from __future__ import annotations

import os
import shlex

import reframe as rfm
from reframe.core.builtins import run_before

from iowatch import scratch


class ScratchMixin(rfm.RegressionMixin):
    """Creates the case's directory in the job, and removes it there: the ReFrame process may run elsewhere.

    `self.scratch_directory` is its path: below `IOWATCH_SCRATCH`, or the partition's extra `scratch`, or
    ReFrame's stage directory.
    """

    @run_before("run")
    def use_scratch(self) -> None:
        base = (
            os.environ.get("IOWATCH_SCRATCH") or self.current_partition.extras.get("scratch") or self.stagedir
        )
        self.scratch_directory = scratch.case_directory(base, self.unique_name, self.current_environ.name)
        quoted = shlex.quote(str(self.scratch_directory))
        self.prerun_cmds = [*self.prerun_cmds, f"mkdir -p {quoted}"]
        self.postrun_cmds = [*self.postrun_cmds, f"rm -rf {quoted}"]
