"""The spool: finished cases, which the checks write and the session reads, and the quarantine of damaged ones.

    var/runs/<session>/cases/<case>/  stdout, stderr and other files of the run; case.json is renamed into place last:
                                      a case is complete or absent
    var/quarantine/<session>/<case>/  case/: a damaged case that cannot be stored; reason.txt

The checks write, the session reads; a case is removed once it is in the history. A damaged case is moved to the
quarantine, so that it never blocks others, and is reported until its directory there is removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, TypeAdapter, ValidationError, model_validator

from iowatch.core import (
    METRICS,
    InputError,
    Output,
    OutputStatus,
    Result,
    RunKey,
    canonical_json,
    clean_text,
    settings,
    write_atomically,
)

SPOOL_FORMAT = 1
_CASE = "case.json"
# A case with 10,000 repetitions has 1 MB.
_MAX_CASE_BYTES = 2**26
_REASON = "reason.txt"


# The limits are those of the columns and views of the history: no spooled case may make a query fail.
_Name = Annotated[str, Field(max_length=200)]
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class _Document(BaseModel):
    """A part of a spooled case, as it is read."""

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
        implausible = [sample for sample in self.samples if not metric.is_plausible(sample)]
        if implausible:
            bounds = f"expected {metric.floor:g} to {metric.ceiling:g} {metric.unit}"
            raise ValueError(f"a sample of {self.operation} {self.metric} is {implausible[0]:g}; {bounds}")
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
        keys = set()
        for result in self.results:
            key = (result.operation, result.metric, canonical_json(result.case))
            if key in keys:
                raise ValueError(f"{result.operation} {result.metric} occurs twice")
            keys.add(key)
        return self


class _FactsDocument(_Document):
    """Facts that queries interpret; others may have any form."""

    model_config = ConfigDict(extra="allow", strict=True)

    pair: _Count | None = None
    side: _Name | None = None
    nodes: list[str] | None = None


def _checked_as(model: type[_Document]) -> GetPydanticSchema:
    """Annotation of a document in a field that must be valid for a model."""
    return GetPydanticSchema(lambda source, schema_of: schema_of(model))


@dataclass(frozen=True)
class SpooledCase:
    """One finished case as written by the check.

    The limits of its fields are checked when it is read, not when it is made: what a check cannot write would be lost.

    Attributes:
        started_at: epoch seconds UTC.
        wall_s: wall time of the job.
        stack: content of stack.json.
        output: result of the parser, as from `Output.to_json`.
        files: kind (`stdout`, `stderr`, `record`, `darshan`) to file names in the directory of case.json.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    name: str
    benchmark: _Name
    partition: _Name
    stack_name: _Name
    stack: Mapping[str, Any]
    started_at: Annotated[int, Field(ge=0, lt=4_102_444_800)]  # until 2100: findings compute with the days around it
    wall_s: Annotated[float, Field(ge=-1e12, le=1e12)] | None
    output: Annotated[Mapping[str, Any], _checked_as(_OutputDocument)]
    facts: Annotated[Mapping[str, Any], _checked_as(_FactsDocument)] = field(default_factory=dict)
    files: Mapping[Annotated[str, Field(max_length=50)], list[_Name]] = field(default_factory=dict)
    format: int = SPOOL_FORMAT

    @property
    def key(self) -> RunKey:
        """The run in its session."""
        return RunKey(self.partition, self.stack_name, self.name)


_CASE_VALIDATOR = TypeAdapter(SpooledCase)


def write_json_atomically(path: Path, document: Any) -> None:
    """Write a JSON file atomically.

    Texts are cleaned (`clean_text`): a killed job's output may contain anything.

    Raises:
        MachineError: the file cannot be written.
    """
    write_atomically(path, json.dumps(clean_text(document), ensure_ascii=False, allow_nan=False, indent=1))


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
    directory = session / "cases" / case_directory_name(case.name, case.partition, case.stack_name)
    directory.mkdir(parents=True, exist_ok=True)
    copied: dict[str, list[str]] = {}
    for kind, sources in files.items():
        for source in sources:
            if source.is_file():
                name = clean_text(source.name)
                shutil.copyfile(source, directory / name)
                copied.setdefault(kind, []).append(name)
    # Last: the session takes a directory with this file as a complete case.
    write_json_atomically(directory / _CASE, {**asdict(case), "files": copied})
    return directory


def finished_case_directories(session: Path) -> list[Path]:
    """Return the directories of complete cases, oldest first; whether they can be read is not checked."""
    directories = [directory for directory in (session / "cases").glob("*") if _is_finished(directory)]
    return sorted(directories, key=_finish_time_ns)


def _finish_time_ns(directory: Path) -> int:
    """When the case was finished; damaged directories are first."""
    return (directory / _CASE).lstat().st_mtime_ns if _is_searchable(directory) else 0


def _is_finished(directory: Path) -> bool:
    return os.path.lexists(directory / _CASE) or not _is_searchable(directory)


def _is_searchable(directory: Path) -> bool:
    """Whether this is a directory that this account can search, as the checks create it."""
    return _is_directory(directory) and os.access(directory, os.X_OK)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def remove_spooled_case(directory: Path) -> None:
    """Remove a case that is in the history; an interrupted removal leaves no valid case."""
    (directory / _CASE).unlink()
    shutil.rmtree(directory, ignore_errors=True)


def read_spooled_case(directory: Path) -> SpooledCase:
    """Read a case from the spool, with all that the history needs of it; its texts are cleaned (`clean_text`).

    Raises:
        InputError: a file is missing, unreadable or damaged, or the case has another format.
    """
    path = directory / _CASE
    try:
        if not _is_directory(directory):
            raise InputError(f"{directory} is not a directory")
        if _regular_size(path) > _MAX_CASE_BYTES:
            raise InputError(f"{path} is larger than {_MAX_CASE_BYTES} bytes")
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        if document.get("format") != SPOOL_FORMAT:
            raise InputError(f"{path}: format {document.get('format')}, expected {SPOOL_FORMAT}")
        document = clean_text(document)
        # A case that was written has all fields, also those that have a default.
        absent = [case_field.name for case_field in fields(SpooledCase) if case_field.name not in document]
        if absent:
            raise InputError(f"{path}: field '{absent[0]}' is missing")
        # As text, which `json` refuses to write where a number is infinite (1e999).
        _CASE_VALIDATOR.validate_json(json.dumps(document, allow_nan=False))
        # The fields as they were written, not as the validator returns them.
        case = SpooledCase(**document)
        for names in case.files.values():
            for name in names:
                if "/" in name or name in ("", ".", ".."):
                    raise InputError(f"{path}: '{name}' is not a file name")
                _regular_size(directory / name)
        return case
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
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is not a regular file")
    with path.open("rb"):
        return status.st_size


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


def quarantine(directory: Path, session: str, reason: str) -> QuarantinedCase:
    """Move the directory of a damaged case (or of a damaged session) out of the spool.

    Raises:
        MachineError: the quarantine cannot be written.
    """
    name = "session" if directory.name == session else directory.name
    target = _unused_directory(settings.var_directory() / "quarantine" / session / name)
    # First the reason: after a kill in between, the next session finds the case in the spool again.
    write_atomically(target / _REASON, clean_text(f"{reason}\n"))
    with suppress(OSError):  # a case that cannot be moved is found, and reported, again by the next session
        if _is_directory(directory):
            directory.chmod(0o700)  # moving a directory needs the right to write to it
        directory.rename(target / "case")
    return QuarantinedCase(session, target, reason)


def _unused_directory(path: Path) -> Path:
    """The path, or with a number at its end, where no damaged case is yet."""
    unused, number = path, 1
    while os.path.lexists(unused / "case"):
        number += 1
        unused = path.with_name(f"{path.name}-{number}")
    return unused


def quarantined_cases() -> list[QuarantinedCase]:
    """Return the damaged cases that nobody has decided about."""
    cases = []
    for path in sorted((settings.var_directory() / "quarantine").glob("*/*")):
        try:
            reason = (path / _REASON).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            reason = f"its reason is not readable ({error.strerror})"
        cases.append(QuarantinedCase(path.parent.name, path, " ".join(reason.split())))
    return cases
