"""A check's cases come from `benchmarks/<tool>/suites/*.yaml`; each is a ReFrame test with its suite as tag."""

from __future__ import annotations

import math
import os
import shlex
from functools import cache
from pathlib import Path

import reframe as rfm
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_after, run_before, variable
from reframe.core.exceptions import ReframeFatalError
from reframe.core.runtime import runtime

from iowatch import handoff
from iowatch.benchmarks import suites
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import IowatchError, UsageError
from iowatch.site import SystemLimits, avoiding_options, exceeded_limits, storage, system

# Time limits added to that of a case while its system calls are traced.
_PROFILED = 9


@cache
def _cases(benchmark: str) -> dict[str, SuiteCase]:
    """Cases by `<suite>/<case>`; `IOWATCH_SUITE` and the selection reduce them: ReFrame generates no others."""
    found = suites.cases_of_benchmark(benchmark, os.environ.get("IOWATCH_SUITE"))
    chosen, name = handoff.read_selection(), _system_name()
    if name in system.system_names():
        everywhere = () if chosen is None else (suites.ALL_FILE_SYSTEMS,)
        found = system.on_file_systems(found, system.load_system(name), everywhere)
    if chosen is not None:
        names = {name for _, _, name in chosen}
        found = [case for case in found if case.run_name in names]
    return {f"{case.suite}/{case.name}": case for case in found}


@cache
def _tests(benchmark: str) -> dict[str, tuple[SuiteCase, handoff.CheckTurn | None]]:
    """Cases with their turns, those of a case one after the other, by `<suite>/<case>[#<turn>]`."""
    turns = handoff.read_turns() or (None,)
    return {
        entry + (handoff.turn_run_name("", turn.facts) if turn else ""): (case, turn)
        for entry, case in _cases(benchmark).items()
        for turn in turns
    }


def _system_name() -> str | None:
    """The system that ReFrame runs on; None if ReFrame does not run: a check is imported for one of its functions."""
    try:
        return str(runtime().system.name)
    except ReframeFatalError:
        return None


def entries(benchmark: str) -> list[str]:
    """Values of a check's parameter: `<suite>/<case>`, in an interleaved run with the turn.

    They are text, because ReFrame writes them into its reports. It executes the tests in this order.
    """
    return list(_tests(benchmark))


class SuiteMixin(rfm.RegressionTestPlugin):
    """Sets the requirements of the case: stack features, ranks, nodes, time limit, tags, command line, input files.

    The check defines `benchmark` (str) and `entry = parameter(entries(benchmark))`. Needs Scratch- and ProgramMixin.
    """

    #: The program to run; by default the tool's own, from the stack's PATH. `-S program=/path` takes another.
    program = variable(str, value="")
    #: Options of the case with other values, outside of sessions: `-S case_options=repeat:5,local:64x64x64`.
    #: `-S num_tasks=8` and `-S num_tasks_per_node=4` change ranks and nodes, too.
    case_options = variable(typ.Dict[str, str], value={})
    _refused: Exception | None = None

    @run_after("init")
    def take_case(self) -> None:
        self.case, self.turn = _tests(self.benchmark)[self.entry]
        self.turn_facts = handoff.turn_facts(self.turn)
        try:
            self.case = suites.with_options(self.case, self._changed_options())
        except (IowatchError, ValueError) as error:  # ReFrame would leave out the test and end with success
            self._refused = error
        self.descr = f"{self.benchmark} {self.case.name}"
        self.tags = {self.case.suite, self.benchmark}
        self.valid_systems = ["*"]
        self.valid_prog_environs = [" ".join(f"+{feature}" for feature in self.case.requires)]
        self.time_limit = self.time_limit or f"{self.case.time_limit_s}s"
        self.num_tasks = self.case.ranks
        self.num_tasks_per_node = -(-self.case.ranks // self.case.nodes)
        self.program = self.program or self.case.tool.program(self.case.options)

    def _changed_options(self) -> dict[str, str]:
        """Values that the command line of ReFrame gives; its own defaults are one task, and no tasks per node."""
        changed: dict[str, str] = dict(self.case_options)
        ranks = changed.get("ranks", self.case.ranks)
        if self.num_tasks != 1:
            ranks = self.num_tasks
            changed["ranks"] = str(ranks)
        if self.num_tasks_per_node:
            changed["nodes"] = str(-(-int(ranks) // self.num_tasks_per_node))
        if changed and os.environ.get("IOWATCH_SESSION_DIR"):
            raise UsageError(
                f"variables of ReFrame change {', '.join(changed)} of a case; a session runs cases as its suite says",
                hint="Unset RFM_SETVARS, or write a suite: docs/benchmarks.md.",
            )
        is_profiled = handoff.PROFILE_VARIABLE in os.environ and "repeat" in self.case.tool.options
        return {**changed, "repeat": "1"} if is_profiled else changed

    @run_after("setup")
    def refuse_options(self) -> None:
        if self._refused:
            raise self._refused

    @run_after("setup")
    def skip_others(self) -> None:
        """A case may be chosen for one stack or partition and not for another; a turn has one stack."""
        key = (self.current_partition.name, self.stack_name(), self.case.run_name)
        chosen = handoff.read_selection()
        self.skip_if(chosen is not None and key not in chosen, "not chosen for this session")
        self.skip_if(self.turn is not None and self.turn.stack != self.stack_name(), "a turn of the other stack")

    @run_after("setup")
    def take_extra_work(self) -> None:
        """What the job also does after the measurement, with its own time: the reason of a timeout names it."""
        key = (self.current_partition.name, self.stack_name(), self.case.run_name)
        self.extra_work = handoff.read_extra_work(key)
        extra_s = sum(one.limit_s for one in self.extra_work.values())
        if os.environ.get("IOWATCH_OVERHEAD_CASE") == key[2]:  # of plain ReFrame
            extra_s += 2 * handoff.OVERHEAD_PAIRS * self.case.time_limit_s
        extra_s += _PROFILED * self.case.time_limit_s if handoff.PROFILE_VARIABLE in os.environ else 0
        if extra_s:
            self.time_limit = f"{self.case.time_limit_s + math.ceil(extra_s)}s"

    @run_after("setup")
    def avoid_nodes(self) -> None:
        """A retest runs on other nodes than the first run where the session found some."""
        key = (self.current_partition.name, self.stack_name(), self.case.run_name)
        self.avoided_nodes = handoff.read_avoided_nodes(key)
        self.job.options += avoiding_options(self.current_partition.scheduler.registered_name, self.avoided_nodes)

    @run_after("setup")
    def skip_impossible(self) -> None:
        """Skip cases beyond the system's limits, and duplicates: `iowatch run` leaves them out of its plan already."""
        if handoff.read_selection() is None:
            needed = exceeded_limits(self.case, self.limits())
            self.skip_if(bool(needed), f"needs {', '.join(needed)}")
            is_local = self.case.nodes > 1 and self._is_node_local()
            self.skip_if(is_local, f"{self.case.file_system} is local to each node")
            others = _cases(self.benchmark).values()
            all_cases = [case for case in others if case.file_system == self.case.file_system]
            double = storage.find_duplicate_cases(all_cases, Path(self.scratch_base())).get(self.case.run_name)
            self.skip_if(double is not None, double)

    def limits(self) -> SystemLimits | None:
        """What the system allows; None where ReFrame's configuration is of an unknown system."""
        name = self.current_system.name
        known = name in system.system_names()
        return system.load_system(name).limits_on(self.case.file_system) if known else None

    @run_after("setup")
    def limit_wait(self) -> None:
        """The partition's extra `queue_minutes`: longest wait, so that the session can end."""
        minutes = self.current_partition.extras.get("queue_minutes")
        self.max_pending_time = self.max_pending_time or (60 * minutes if minutes else None)

    @run_before("run")
    def compose_command(self) -> None:
        """Executable, arguments and input files; needs the scratch directory and the program's path.

        ReFrame puts executable and arguments into the job's script as they are: so they are quoted for the shell.
        """
        for name, content in self.case.tool.configuration(self.case.options).items():
            (Path(self.stagedir) / name).write_text(content, encoding="utf-8")
        tool = self.case.tool
        arguments = [*tool.arguments(self.case.options, str(self.scratch_directory)), *tool.run_id(self.run_id)]
        # After ProgramMixin's commands, because the variables of a case are no property of the stack.
        variables = tool.environment(self.case.options)
        self.prerun_cmds += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        self.executable = shlex.quote(self.program)
        self.executable_opts = [shlex.quote(word) for word in arguments]
