"""The ReFrame check of `iowatch system init`: one job that writes and removes a file in the scratch directory."""

import shlex
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function, variable


@rfm.simple_test
class PartitionTrial(rfm.RunOnlyRegressionTest):  # type: ignore[misc]
    """Its reason of a failure is in the job's standard error (`iowatch.site.trial`)."""

    scratch = variable(str)
    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["builtin"]  # noqa: RUF012
    executable = "hostname"
    time_limit = "1m"

    @run_before("run")  # type: ignore[untyped-decorator]
    def write_a_file(self) -> None:
        """Add the commands of the trial to the job."""
        # As a session: only the last directory of the path is created.
        directory = shlex.quote(self.scratch)
        probe = f"{directory}/iowatch-probe-$$"
        create = f"{{ [ -d {directory} ] || mkdir {directory}; }}"
        self.prerun_cmds = [f"{create} && echo iowatch > {probe} && rm {probe} && echo scratch: ok"]

    @sanity_function  # type: ignore[untyped-decorator]
    def wrote_it(self) -> Any:
        """Whether all of them succeeded."""
        return sn.assert_found(r"^scratch: ok$", self.stdout)
