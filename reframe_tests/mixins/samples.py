"""Every sample of a run: parsed once, proven complete, left in the spool for the history, told to ReFrame."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function

from iowatch import parsers, spool
from iowatch.model import Output, Result

_STARTED, _ENDED, _RC = "iowatch.started", "iowatch.ended", "iowatch.rc"


class SamplesMixin(rfm.RegressionMixin):
    """Reads what the run left; its status decides the sanity, its maxima are the performance values.

    The check defines `benchmark` and may define `result_files` (names in the stage directory that its parser
    prefers to the standard output, in order of preference).
    """

    result_files: tuple[str, ...] = ()

    @run_before("run")
    def note_times_and_exit_code(self) -> None:
        # Innermost around the launcher: the wall time is the benchmark's own. The exit code goes to a file:
        # schedulers differ in what they tell of it.
        self.prerun_cmds = [*self.prerun_cmds, f"date +%s.%N > {_STARTED}"]
        self.postrun_cmds = [f"echo $? > {_RC}; date +%s.%N > {_ENDED}", *self.postrun_cmds]

    @run_before("sanity")
    def read_output(self) -> None:
        self.output_record = self._parse()
        session = os.environ.get("IOWATCH_SESSION_DIR")
        if session:
            self._spool(Path(session))

    @sanity_function
    def is_complete(self) -> bool:
        """The output is whole, and every expected (operation, metric) is there."""
        output: Output = self.output_record
        got = {(result.operation, result.metric) for result in output.results}
        missing = [
            f"{operation} {metric}" for operation, metric in self.case.expects if (operation, metric) not in got
        ]
        return sn.all(
            [
                sn.assert_eq(output.status, "ok", msg=f"{output.status}: {output.reason}"),
                sn.assert_false(missing, msg=f"no result for {', '.join(missing)}"),
            ]
        )

    @run_before("performance")
    def tell_maxima(self) -> None:
        self.perf_variables = {
            _variable(result): sn.make_performance_function(sn.defer(max(result.samples)), result.unit)
            for result in self.output_record.results
        }

    def _parse(self) -> Output:
        stage = Path(self.stagedir)
        candidates = [stage / name for name in self.result_files] + [stage / str(self.stdout)]
        source = next((path for path in candidates if path.is_file() and path.stat().st_size), candidates[-1])
        return parsers.parse_file(
            self.benchmark, source, stderr=stage / str(self.stderr), rc=self._exit_code(), ranks=self.case.ranks
        )

    def _exit_code(self) -> int | None:
        seconds = _number(Path(self.stagedir) / _RC)
        return None if seconds is None else int(seconds)

    def _spool(self, session: Path) -> None:
        stage = Path(self.stagedir)
        started, ended = _number(stage / _STARTED), _number(stage / _ENDED)
        case = spool.SpooledCase(
            name=f"{self.benchmark}:{self.case.name}",
            benchmark=self.benchmark,
            partition=self.current_partition.name,
            stack_name=self.current_environ.name,
            stack=self.stack_document(),
            started_at=int(started or time.time()),
            wall_s=None if started is None or ended is None else ended - started,
            output=self.output_record.to_json(),
            facts={
                "command": shlex.join([self.executable, *self.executable_opts]),
                "reframe_test": self.unique_name,
                "exit_code": self._exit_code(),
                "nodes": list(self.job.nodelist or []),
            },
        )
        spool.put(session, case, self._files(stage))

    def _files(self, stage: Path) -> dict[str, list[Path]]:
        return {
            "stdout": [stage / str(self.stdout)],
            "stderr": [stage / str(self.stderr)],
            "record": [stage / name for name in self.result_files],
            "script": [Path(self.job.script_filename)] if Path(self.job.script_filename).is_absolute() else [],
            "darshan": sorted(stage.glob("darshan/*.darshan")),
        }


def _variable(result: Result) -> str:
    """ReFrame's name of a result; operations of h5bench have blanks."""
    return f"{result.operation}_{result.metric}".replace(" ", "_")


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
