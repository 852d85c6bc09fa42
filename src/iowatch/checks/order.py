"""The order of a session to the checks: what one start of ReFrame executes, and under which conditions.

    session ── order.json, written before each start of ReFrame ──> checks

The variable `IOWATCH_ORDER` names the file. Without it, under plain ReFrame, the checks follow an order without any
wishes: the tags of ReFrame select the cases, and nothing is spooled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from iowatch.benchmarks.options import Options
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import InputError, RunKey, Scalar, plugins, write_atomically
from iowatch.site import FileSystemIdentity, storage

ORDER_VARIABLE = "IOWATCH_ORDER"
ORDER_FILE = "order.json"
# Plain ReFrame measures the overhead of Darshan on the case that this variable names (docs/darshan.md).
OVERHEAD_CASE_VARIABLE = "IOWATCH_OVERHEAD_CASE"
# Pairs of a start without and a start with Darshan that measure its overhead.
OVERHEAD_PAIRS = 5
RETEST = "retest"
# Side of the runs that are repeated after a maintenance.
REPEATED_SIDE = "repeated"
# Sides in names of runs: the first stack named of an A/B run is A, repeated runs have the letter R.
_TURN_LETTERS = {"left": "A", "right": "B", REPEATED_SIDE: "R"}
# Case parameters of turns, whose series are not monitored: that of A/B runs, that of runs which a session repeats after
# a maintenance, and those of experiments.
AB_RUN_PARAMETER, REPEATED_PARAMETER = "ab_run", "repeated"
UNMONITORED_PARAMETERS = plugins.Registry(
    plugins.UnmonitoredParameter,
    (plugins.UnmonitoredParameter(AB_RUN_PARAMETER), plugins.UnmonitoredParameter(REPEATED_PARAMETER)),
    file="",
)


@dataclass(frozen=True, slots=True)
class CheckTurn:
    """A turn that a start of ReFrame executes; a start without turns executes each run once.

    Attributes:
        pair: from 1; 0 is a warm-up.
        side: `left` or `right` of an A/B run, the level of an interference run, or `repeated` after a maintenance.
        stack: of this side.
        parameters: case parameters of its runs, which give them series of their own.
    """

    pair: int
    side: str
    stack: str
    parameters: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of its runs."""
        return {"pair": self.pair, "side": self.side}


@dataclass(frozen=True)
class ExtraWork:
    """Work of a job beyond the measurement: starts that measure Darshan's overhead, or that verify the data.

    Attributes:
        limit_s: seconds added to the time limit of the job.
        expected_s: seconds that it probably takes.
    """

    kind: Literal["overhead", "verification"]
    volume_bytes: int
    expected_s: float
    limit_s: float

    def __str__(self) -> str:
        what = "a verification of the data"
        if self.kind == "overhead":
            what = f"{2 * OVERHEAD_PAIRS} starts for the overhead of Darshan"
        return f"{what} ({self.limit_s:.0f} s)"


@dataclass(frozen=True)
class OrderedRun:
    """A run that ReFrame executes.

    Attributes:
        extra_work: work of its job besides the measurement.
        avoided_nodes: nodes that it must not use.
        required_nodes: nodes that it must use, as many as it needs; empty leaves the choice to the scheduler.
    """

    key: RunKey
    extra_work: tuple[ExtraWork, ...] = ()
    avoided_nodes: tuple[str, ...] = ()
    required_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OrderedFileSystem:
    """What the session determined about a file system.

    Attributes:
        name: None for the default one.
        directory: below which the runs write.
        identities: what the directory must be on, by partition, and at "" on the host of ReFrame.
    """

    name: str | None
    directory: Path
    identities: Mapping[str, FileSystemIdentity] = field(default_factory=dict)

    def identity_at(self, partition: str) -> FileSystemIdentity:
        """What the directory must be on, at a partition or "" for the host of ReFrame."""
        return self.identities.get(partition, FileSystemIdentity())


@dataclass(frozen=True)
class RunOrder:
    """All that a session tells the checks; the defaults are plain ReFrame's.

    Attributes:
        session: its UUID, in the name of scratch directories.
        spool: directory below which finished cases are spooled (`cases/`); None spools none.
        suite: ReFrame generates only its tests.
        runs: that ReFrame executes; None leaves the choice to ReFrame's options.
        turns: executions of each run, in their order.
        is_retest: whether the runs repeat those of the same session.
        scratch: directory of the default file system.
        file_systems: those that the session has locked; None if no session looked.
        is_traced: whether runs have a Darshan trace where the stack has darshan-runtime.
        extensions: settings of the check extensions that are switched on, by name (`iowatch.checks.extension`).
    """

    session: str | None = None
    spool: Path | None = None
    suite: str | None = None
    runs: tuple[OrderedRun, ...] | None = None
    turns: tuple[CheckTurn, ...] = ()
    is_retest: bool = False
    scratch: Path | None = None
    file_systems: tuple[OrderedFileSystem, ...] | None = None
    is_traced: bool = True
    extensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def find_run(self, key: RunKey) -> OrderedRun | None:
        """The ordered run of this key; None if it is not ordered, or nothing particular is."""
        for run in self.runs or ():
            if run.key == key:
                return run
        return None

    def file_system(self, name: str | None) -> OrderedFileSystem | None:
        """What the session determined about a file system; None if it did not."""
        for file_system in self.file_systems or ():
            if file_system.name == name:
                return file_system
        return None

    def case_directory(self, base: Path, test: str, environment: str) -> Path:
        """The scratch directory of a case below the directory of its file system."""
        return storage.case_directory(base, test, environment, self.session)

    def facts_of(self, turn: CheckTurn | None) -> dict[str, Any]:
        """The facts of an execution of a case; empty for a normal one. A retest is in the same session."""
        if turn is not None:
            return turn.facts
        if self.is_retest:
            return {RETEST: True}
        return {}


@cache
def _adapter() -> TypeAdapter[RunOrder]:
    """Made when it is needed: that takes a tenth of a second, and most commands start no check."""
    return TypeAdapter(RunOrder)


def ordered_runs(
    keys: Iterable[RunKey],
    extra_work: Mapping[RunKey, Sequence[ExtraWork]] | None = None,
    avoided_nodes: Mapping[RunKey, Sequence[str]] | None = None,
    *,
    required_nodes: Mapping[RunKey, Sequence[str]] | None = None,
) -> tuple[OrderedRun, ...]:
    """Return the runs of an order from their keys, their extra work and the nodes that they must not or must use."""
    work = extra_work or {}
    avoided = avoided_nodes or {}
    required = required_nodes or {}
    runs: list[OrderedRun] = []
    for key in keys:
        runs.append(
            OrderedRun(
                key,
                extra_work=tuple(work.get(key, ())),
                avoided_nodes=tuple(avoided.get(key, ())),
                required_nodes=tuple(required.get(key, ())),
            )
        )
    return tuple(runs)


def write_order(directory: Path, order: RunOrder) -> dict[str, str]:
    """Write an order to a directory, atomically.

    Returns:
        the variable from which the checks read it.

    Raises:
        MachineError: the file cannot be written.
    """
    path = directory.absolute() / ORDER_FILE
    document = _adapter().dump_python(order, mode="json")
    # A path may be invalid UTF-8, which JSON has as escapes only.
    write_atomically(path, json.dumps(document, ensure_ascii=True, indent=1) + "\n")
    return {ORDER_VARIABLE: str(path)}


def read_order(path: Path) -> RunOrder:
    """Read an order.

    Raises:
        InputError: the file is absent or damaged.
    """
    try:
        return _adapter().validate_python(json.loads(path.read_bytes()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path} is not an order of runs: field '{where}': {first['msg']}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not an order of runs: {error}") from error


def current_order() -> RunOrder:
    """Return the order of this start of ReFrame; of plain ReFrame one without any wishes.

    Raises:
        InputError: the file that the variable names is absent or damaged.
    """
    path = os.environ.get(ORDER_VARIABLE)
    return _read_order_once(path) if path else RunOrder()


@cache
def _read_order_once(path: str) -> RunOrder:
    """A start of ReFrame has one order, which each of its tests needs."""
    return read_order(Path(path))


def turn_run_name(name: str, facts: Mapping[str, Any]) -> str:
    """Return the run name of a case that runs more than once in a session: `ior:write#7A`, `#7L2`, `#7R`, `#retest`."""
    if "pair" in facts:
        letter = _TURN_LETTERS.get(facts["side"]) or f"L{facts['side']}"
        return f"{name}#{facts['pair']}{letter}"
    if RETEST in facts:
        return f"{name}#{RETEST}"
    return name


def verifying_options(case: SuiteCase) -> Options | None:
    """Return the options of one further repetition that compares its data; None if there is none, or no need."""
    if not case.options.declares("verify") or case.options.flag("verify"):
        return None
    if case.tool.file_bytes(case.options) == 0:
        return None
    return case.options.with_values({"verify": True, "repeat": 1})
