"""The interface between the checks (inside ReFrame) and the session: selection, spool, merging and validation.

    var/runs/<session>/session.json   the session and its expected set, written before it starts
    var/runs/<session>/cases/<case>/  stdout, stderr and other files of the run; case.json is renamed into place last:
                                      a case is complete or absent
    var/quarantine/<session>/<case>/  case/: a damaged case that cannot be stored; reason.txt

The checks write, the session reads; a case is removed once it is in the history. A damaged case is moved to the
quarantine, so that it never blocks others, and is reported until its directory there is removed.

`IOWATCH_SELECTION` names a JSON file, a list of `[partition, stack, "<benchmark>:<case>"]`, with the runs that ReFrame
executes; without it the tags select.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from iowatch.benchmarks.options import Options
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import (
    METRICS,
    InputError,
    Output,
    OutputStatus,
    Result,
    RunKey,
    Scalar,
    canonical_json,
    clean_text,
    missing_results,
    settings,
    write_atomically,
)

SPOOL_FORMAT = 1
RETEST = "retest"
_CASE = "case.json"
# A case with 10,000 repetitions has 1 MB.
_MAX_CASE_BYTES = 2**26
_REASON = "reason.txt"


@dataclass(frozen=True)
class SpooledCase:
    """One finished case as written by the check.

    Attributes:
        started_at: epoch seconds UTC.
        wall_s: wall time of the job.
        stack: content of stack.json.
        output: result of the parser, as from `Output.to_json`.
        files: kind (`stdout`, `stderr`, `record`, `darshan`) to file names in the directory of case.json.
    """

    name: str
    benchmark: str
    partition: str
    stack_name: str
    stack: Mapping[str, Any]
    started_at: int
    wall_s: float | None
    output: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, list[str]] = field(default_factory=dict)
    format: int = SPOOL_FORMAT

    @property
    def key(self) -> RunKey:
        """The run in its session."""
        return RunKey(self.partition, self.stack_name, self.name)


def write_json_atomically(path: Path, document: Any) -> None:
    """Write a JSON file atomically.

    Texts are cleaned (`clean_text`): a killed job's output may contain anything.

    Raises:
        MachineError: the file cannot be written.
    """
    write_atomically(path, json.dumps(clean_text(document), ensure_ascii=False, allow_nan=False, indent=1))


_TURN_VARIABLE, _RETEST_VARIABLE = "IOWATCH_TURNS", "IOWATCH_RETEST"


@dataclass(frozen=True, slots=True)
class CheckTurn:
    """A turn that a start of ReFrame executes; a start without turns executes each run once.

    Attributes:
        pair: from 1; 0 is a warm-up.
        side: `left` or `right` of an A/B run, or the level of an interference run.
        stack: of this side.
    """

    pair: int
    side: str
    stack: str

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of its runs."""
        return {"pair": self.pair, "side": self.side}


def turn_variables(turns: Sequence[CheckTurn]) -> dict[str, str]:
    """Return the variable from which the checks read the turns of a start, in their order."""
    return {_TURN_VARIABLE: json.dumps([astuple(turn) for turn in turns])}


def read_turns() -> tuple[CheckTurn, ...]:
    """Return the turns of this start of ReFrame; empty without."""
    return tuple(CheckTurn(*one) for one in json.loads(os.environ.get(_TURN_VARIABLE) or "[]"))


RETEST_VARIABLES = {_RETEST_VARIABLE: "1"}


def turn_facts(turn: CheckTurn | None) -> dict[str, Any]:
    """Return the facts of an execution of a case; empty for a normal one. A retest is in the same session."""
    return turn.facts if turn else {RETEST: True} if os.environ.get(_RETEST_VARIABLE) else {}


# Sides of an A/B run in names of runs: the first stack named is A.
_TURN_LETTERS = {"left": "A", "right": "B"}


def turn_run_name(name: str, facts: Mapping[str, Any]) -> str:
    """Return the run name of a case that runs more than once in a session: `ior:write#7A`, `#7L2`, `#retest`."""
    turn = (
        f"#{facts['pair']}{_TURN_LETTERS.get(facts['side']) or 'L' + facts['side']}"
        if "pair" in facts
        else f"#{RETEST}"
        if RETEST in facts
        else ""
    )
    return name + turn


# Case parameters of A/B and interference runs, whose series are not monitored.
INTERLEAVED_PARAMETERS = frozenset({"ab_run", "aggressors"})
# The aggressor of an interference run, as text; then the side of a turn is the number of aggressors.
AGGRESSOR_VARIABLE = "IOWATCH_AGGRESSOR"


def turn_parameters(facts: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the case parameters of an interleaved run: series of its own, which change detection leaves out."""
    if "pair" not in facts:
        return {}
    aggressor = os.environ.get(AGGRESSOR_VARIABLE)
    return {"aggressors": int(facts["side"]), "aggressor": aggressor} if aggressor else {"ab_run": True}


def case_directory_name(name: str, partition: str, stack: str) -> str:
    """Return a directory name for a case; it cannot lead out of the spool, whatever characters the case name has."""
    digest = hashlib.sha256(f"{name}\0{partition}\0{stack}".encode()).hexdigest()[:12]
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:60].strip("-")
    return f"{readable}-{digest}"


def spool_case(session: Path, case: SpooledCase, files: Mapping[str, list[Path]]) -> Path:
    """Write a finished case to the spool of a session; return its directory.

    Args:
        session: `var/runs/<session>`.
        files: kind to existing files, copied next to case.json; absent files are skipped.
    """
    place = session / "cases" / case_directory_name(case.name, case.partition, case.stack_name)
    place.mkdir(parents=True, exist_ok=True)
    kept: dict[str, list[str]] = {}
    for kind, sources in files.items():
        for source in sources:
            if source.is_file():
                name = clean_text(source.name)
                shutil.copyfile(source, place / name)
                kept.setdefault(kind, []).append(name)
    write_json_atomically(place / _CASE, {**asdict(case), "files": kept})
    return place


def finished_case_directories(session: Path) -> list[Path]:
    """Return the directories of complete cases, oldest first; whether they can be read is not checked."""
    found = [place for place in (session / "cases").glob("*") if _is_finished(place)]
    return sorted(found, key=lambda place: (place / _CASE).lstat().st_mtime_ns if _is_plain(place) else 0)


def _is_finished(place: Path) -> bool:
    return os.path.lexists(place / _CASE) or not _is_plain(place)


def _is_plain(place: Path) -> bool:
    """Whether this is a directory that this account can search, as the checks create it."""
    return _is_directory(place) and os.access(place, os.X_OK)


def _is_directory(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def remove_spooled_case(place: Path) -> None:
    """Remove a case that is in the history; an interrupted removal leaves no valid case."""
    (place / _CASE).unlink()
    shutil.rmtree(place, ignore_errors=True)


_Name = Annotated[str, Field(max_length=200)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class _Document(BaseModel):
    """The limits are those of the columns and views of the history: no spooled case may make a query fail."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _ResultDocument(_Document):
    operation: Annotated[str, Field(min_length=1, max_length=100)]
    metric: str
    unit: str
    samples: Annotated[list[float], Field(min_length=1)]
    case: dict[str, bool | int | float | str | None]

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        metric = METRICS.get(self.metric)
        if metric is None or metric.unit != self.unit:
            raise ValueError(f"no metric '{self.metric}' in '{self.unit}'")
        if not all(0 <= sample <= metric.ceiling for sample in self.samples):
            raise ValueError(f"a sample of {self.metric} is not between 0 and {metric.ceiling:g}")
        counts = (self.case.get(name, 0) for name in ("ranks", "nodes"))
        if not all(type(count) is int and 0 <= count < 2**31 for count in counts):
            raise ValueError("ranks or nodes is not a count")
        return self


class _OutputDocument(_Document):
    tool: Annotated[str, Field(min_length=1, max_length=100)]
    version: _Name | None
    status: OutputStatus
    reason: str | None
    results: list[_ResultDocument]
    facts: dict[str, Any]

    @model_validator(mode="after")
    def _check_results(self) -> Self:
        keys = Counter((one.operation, one.metric, canonical_json(one.case)) for one in self.results)
        repeated = next((key for key, number in keys.items() if number > 1), None)
        if repeated is not None:
            raise ValueError(f"{repeated[0]} {repeated[1]} occurs twice")
        return self


class _FactsDocument(_Document):
    """Facts that queries interpret; others may have any form."""

    model_config = ConfigDict(extra="allow", strict=True)

    pair: _Count | None = None
    side: _Name | None = None
    nodes: list[str] | None = None


class _CaseDocument(_Document):
    name: str
    benchmark: _Name
    partition: _Name
    stack_name: _Name
    stack: dict[str, Any]
    started_at: Annotated[int, Field(ge=0, lt=253_402_300_800)]  # until the year 9999, the last of Python
    wall_s: Annotated[float, Field(ge=-1e12, le=1e12)] | None
    output: _OutputDocument
    facts: _FactsDocument
    files: dict[Annotated[str, Field(max_length=50)], list[_Name]]
    format: int


def read_spooled_case(place: Path) -> SpooledCase:
    """Read a case from the spool, with all that the history needs of it; its texts are cleaned (`clean_text`).

    Raises:
        InputError: a file is missing, unreadable or damaged, or the case has another format.
    """
    path = place / _CASE
    try:
        if not _is_directory(place):
            raise InputError(f"{place} is not a directory")
        if _regular_size(path) > _MAX_CASE_BYTES:
            raise InputError(f"{path} is larger than {_MAX_CASE_BYTES} bytes")
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        if document.get("format") != SPOOL_FORMAT:
            raise InputError(f"{path}: format {document.get('format')}, expected {SPOOL_FORMAT}")
        document = clean_text(document)
        json.dumps(document, allow_nan=False)  # 1e999 is JSON, and infinite
        case = _CaseDocument.model_validate(document)
        for name in (name for names in case.files.values() for name in names):
            if "/" in name or name in ("", ".", ".."):
                raise InputError(f"{path}: '{name}' is not a file name")
            _regular_size(place / name)
        return SpooledCase(**document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: field '{where}': {first['msg']}") from error
    except (OSError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"{path} is not a spooled case: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _regular_size(path: Path) -> int:
    """Return the size of a regular, readable file.

    Raises:
        OSError: the file is missing or unreadable.
        InputError: not a regular file: a link may lead anywhere, and opening a pipe may never return.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path} is not a regular file")
    with path.open("rb"):
        return found.st_size


def spooled_output(case: SpooledCase) -> Output:
    """Return the parsed output of a spooled case that was read with `read_spooled_case`."""
    document = case.output
    results = tuple(Result(**{**result, "samples": tuple(result["samples"])}) for result in document["results"])
    return Output(**{**document, "results": results})


@dataclass(frozen=True, slots=True)
class QuarantinedCase:
    """A damaged case, or with the case `session` a damaged session, that was set aside in the directory `path`."""

    session: str
    path: Path
    reason: str

    @property
    def text(self) -> str:
        """One sentence for reports, with what to do."""
        kind = "session" if self.path.name.startswith("session") else "case"
        return (
            f"1 damaged {kind} is quarantined in {self.path}: {self.reason}; "
            "repair it and move it back, or remove that directory (docs/operations.md, Quarantine)"
        )


def quarantine(place: Path, session: str, reason: str) -> QuarantinedCase:
    """Move the directory of a damaged case (or of a damaged session) out of the spool.

    Raises:
        MachineError: the quarantine cannot be written.
    """
    base = settings.var_directory() / "quarantine" / session / ("session" if place.name == session else place.name)
    target = next(path for n in range(1, 10_000) if not os.path.lexists((path := _numbered(base, n)) / "case"))
    # First the reason: after a kill in between, the next session finds the case in the spool again.
    write_atomically(target / _REASON, clean_text(f"{reason}\n"))
    with suppress(OSError):  # a case that cannot be moved is found, and reported, again by the next session
        if _is_directory(place):
            place.chmod(0o700)  # moving a directory needs the right to write to it
        place.rename(target / "case")
    return QuarantinedCase(session, target, reason)


def _numbered(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.name}-{number}")


def quarantined_cases() -> list[QuarantinedCase]:
    """Return the damaged cases that nobody has decided about."""
    found = []
    for path in sorted((settings.var_directory() / "quarantine").glob("*/*")):
        try:
            reason = (path / _REASON).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            reason = f"its reason is not readable ({error.strerror})"
        found.append(QuarantinedCase(path.parent.name, path, " ".join(reason.split())))
    return found


SELECTION_VARIABLE = "IOWATCH_SELECTION"
# `off`: no run of the session has a Darshan trace.
DARSHAN_VARIABLE = "IOWATCH_DARSHAN"
# The runs of the session are profiled and have no results: `auto`, or the names of the profilers to choose from.
PROFILE_VARIABLE = "IOWATCH_PROFILE"

_EXTRA_WORK_VARIABLE = "IOWATCH_EXTRA_WORK"
_AVOIDED_VARIABLE = "IOWATCH_AVOIDED_NODES"
# Pairs of a start without and a start with Darshan that measure its overhead.
OVERHEAD_PAIRS = 5


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
class AggressorRequest:
    """What a check is to start instead of a measurement.

    Attributes:
        count: number of aggressors.
        directory: where their files are (`iowatch.site.aggressors`).
        time_limit_s: time limit of the job.
    """

    count: int
    directory: str
    time_limit_s: int

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the checks read."""
        return {_REQUEST_VARIABLE: json.dumps(asdict(self)), DARSHAN_VARIABLE: "off"}


_REQUEST_VARIABLE = "IOWATCH_AGGRESSORS"


def read_aggressor_request() -> AggressorRequest | None:
    """Return the request for aggressors; None in a measurement."""
    text = os.environ.get(_REQUEST_VARIABLE)
    return AggressorRequest(**json.loads(text)) if text else None


def verifying_options(case: SuiteCase) -> Options | None:
    """Return the options of one further repetition that compares its data; None if there is none, or no need."""
    if not case.options.declares("verify") or case.options.flag("verify"):
        return None
    if case.tool.file_bytes(case.options) == 0:
        return None
    return case.options.with_values({"verify": True, "repeat": 1})


def write_selection(
    place: Path,
    keys: Iterable[RunKey],
    extra_work: Mapping[RunKey, Sequence[ExtraWork]] = MappingProxyType({}),
    avoided_nodes: Mapping[RunKey, Sequence[str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Write the selected runs, their extra work and the nodes that they must not use to `place`.

    Returns:
        the variables that the checks read.
    """
    path, extra, avoided = (place / f"{name}.json" for name in ("selection", "extra_work", "avoided_nodes"))
    write_json_atomically(path, [list(key) for key in keys])
    write_json_atomically(extra, [[list(key), [asdict(one) for one in found]] for key, found in extra_work.items()])
    write_json_atomically(avoided, [[list(key), list(nodes)] for key, nodes in avoided_nodes.items()])
    return {SELECTION_VARIABLE: str(path), _EXTRA_WORK_VARIABLE: str(extra), _AVOIDED_VARIABLE: str(avoided)}


def read_avoided_nodes(key: RunKey) -> list[str]:
    """Return the nodes that a run must not use.

    Raises:
        InputError: the file is absent or damaged.
    """
    path = os.environ.get(_AVOIDED_VARIABLE)
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8")) if path else []
        return [str(node) for known, nodes in document if tuple(known) == key for node in nodes]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} does not describe nodes of runs: {error}") from error


def read_extra_work(key: RunKey) -> dict[str, ExtraWork]:
    """Return the extra work of a run by its kind.

    Raises:
        InputError: the file is absent or damaged.
    """
    path = os.environ.get(_EXTRA_WORK_VARIABLE)
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8")) if path else []
        found = [ExtraWork(**one) for known, work in document if tuple(known) == key for one in work]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} does not describe extra work of runs: {error}") from error
    return {one.kind: one for one in found}


def read_selection() -> frozenset[RunKey] | None:
    """Return the key of every selected run, or None if all runs are selected.

    Raises:
        InputError: the file is absent or damaged.
    """
    named = os.environ.get(SELECTION_VARIABLE)
    return _read_selection_file(named) if named else None


@cache
def _read_selection_file(path: str) -> frozenset[RunKey]:
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        return frozenset(RunKey(str(p), str(stack), str(name)) for p, stack, name in document)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a selection of runs: {error}") from error


def merge_outputs(outputs: Sequence[Output]) -> Output:
    """Merge outputs: samples in order; `ok` only if all outputs are, otherwise with the first reason.

    Raises:
        InputError: no outputs.
    """
    if not outputs:
        raise InputError("no output to read: the program was not started")
    merged: dict[tuple[str, str, str], Result] = {}
    for result in (result for output in outputs for result in output.results):
        key = (result.operation, result.metric, canonical_json(result.case))
        earlier = merged[key].samples if key in merged else ()
        merged[key] = replace(result, samples=earlier + result.samples)
    decisive = next((output for output in outputs if output.status != "ok"), outputs[0])
    return replace(decisive, results=tuple(merged.values()), facts=outputs[0].facts)


def missing_case_results(case: SuiteCase, output: Output) -> list[str]:
    """Return the missing expected results, for example `write bandwidth`."""
    received = {(result.operation, result.metric) for result in output.results}
    return [f"{operation} {metric}" for operation, metric in missing_results(case.expects, received)]


def validate_output(case: SuiteCase, output: Output, failures: Iterable[str] = ()) -> Output:
    """Return the output, marked failed with the reason if it has fewer or other results than requested.

    Args:
        failures: problems outside the program that make this the result of another case.
    """
    if output.status != "ok":
        return output
    reasons = [*failures]
    requested = case.tool.samples(case.options)
    counts: Counter[tuple[str, str]] = Counter()
    for result in output.results:
        counts[result.operation, result.metric] += len(result.samples)
    for operation, metric in case.expects:
        if (count := counts[operation, metric]) not in (0, requested):
            reasons.append(f"{operation} {metric}: {count} of {requested} repetitions")
    # Compare the parameters that the program prints with those of the suite.
    for name, expected in case.tool.shows(case.options).items():
        found = next((r.case.get(name) for r in output.results if r.case.get(name) != expected), expected)
        if found != expected and name not in case.may_differ:
            printed = f"{name} is {found} in the output" if found is not None else f"{name} is missing from the output"
            reasons.append(f"{printed}, the suite asks for {expected}")
    return replace(output, status="failed", reason="; ".join(reasons)) if reasons else output
