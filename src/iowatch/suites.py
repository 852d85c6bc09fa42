"""Parameter sets: `benchmarks/<tool>/suites/<suite>.yaml` to cases, each with a name of its own.

format: 1
summary: what it measures, and how long it takes
repeats: source 000, Table 1          # optional: the table or figure that it repeats
reference: optional                 # required | optional | none: what a missing reference means
time_limit: 300                     # seconds a case
defaults: {op: both, repeat: 10}
matrix:                             # every list is an axis; an entry gives all combinations
  - {api: posix, file: per-process, ranks: [1, 4]}
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from iowatch import paths
from iowatch.errors import InputError, UsageError, near_miss
from iowatch.model import Scalar
from iowatch.tools import Options, Tool, tool
from iowatch.yamlfile import Closed, read_document, validated

ReferencePolicy = Literal["required", "optional", "none"]
_Axis = Scalar | Annotated[list[Scalar], Field(min_length=1)]


class _SuiteFile(Closed):
    """The schema of a suite file: a number is no text."""

    model_config = ConfigDict(strict=True)

    format: Literal[1]
    summary: str
    repeats: str | None = None
    reference: ReferencePolicy = "optional"
    time_limit: Annotated[int, Field(gt=0)] = 600
    trace: Literal["dxt"] | None = None
    defaults: dict[str, Scalar] = Field(default_factory=dict)
    matrix: Annotated[list[dict[str, _Axis]], Field(min_length=1)]


@dataclass(frozen=True)
class SuiteCase:
    """One case of a suite: what to run, before any stack or system is chosen.

    Attributes:
        name: unique within suite and benchmark, made of the options that vary.
        options: all options of the tool; `ranks` and `nodes` among them.
        time_limit_s: after this time ReFrame ends the job.
        trace: `dxt` where Darshan shall keep every access.
    """

    suite: str
    benchmark: str
    name: str
    options: Mapping[str, Scalar]
    reference: ReferencePolicy
    time_limit_s: int
    trace: str | None = None

    @property
    def tool(self) -> Tool:
        """The benchmark's description."""
        return tool(self.benchmark)

    @property
    def requires(self) -> tuple[str, ...]:
        """Features that the stack must have."""
        return self.tool.requires(self.options)

    @property
    def expects(self) -> tuple[tuple[str, str], ...]:
        """(operation, metric) pairs of a complete run."""
        return self.tool.expects(self.options)

    @property
    def ranks(self) -> int:
        """Number of MPI processes."""
        return int(self.options.get("ranks", 1))

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.options.get("nodes", 1))


def names() -> list[str]:
    """Names of all suites, of whatever benchmark."""
    return sorted({path.stem for path in (paths.root() / "benchmarks").glob("*/suites/*.yaml")})


def load(suite: str) -> list[SuiteCase]:
    """All cases of a suite, of every benchmark that has it.

    Raises:
        UsageError: there is no such suite.
        InputError: a suite file is wrong (file and field named).
    """
    files = sorted((paths.root() / "benchmarks").glob("*/suites/*.yaml"))
    chosen = [path for path in files if path.stem == suite]
    if not chosen:
        raise UsageError(f"no suite '{suite}'", hint=near_miss(suite, names()))
    return [case for path in chosen for case in read(path)]


def of_benchmark(benchmark: str) -> list[SuiteCase]:
    """All cases of all suites of one benchmark (ReFrame generates its tests from them)."""
    folder = paths.root() / "benchmarks" / benchmark / "suites"
    return [case for path in sorted(folder.glob("*.yaml")) for case in read(path)]


def read(path: Path) -> list[SuiteCase]:
    """The cases of one suite file.

    Raises:
        InputError: not YAML, not of the schema, or an option that the benchmark does not have.
    """
    document = _document(path)
    chosen = tool(path.parent.parent.name)
    combinations = [_checked(path, chosen, options) for options in _combinations(document)]
    varying = _varying(combinations)
    cases = [
        SuiteCase(
            suite=path.stem,
            benchmark=chosen.name,
            name=_name(options, varying),
            options=options,
            reference=document.reference,
            time_limit_s=document.time_limit,
            trace=document.trace,
        )
        for options in combinations
    ]
    _refuse_doubles(path, cases)
    return cases


def _document(path: Path) -> _SuiteFile:
    return validated(path, read_document(path), _SuiteFile, "The form is described in docs/benchmarks.md.")


def _combinations(document: _SuiteFile) -> Iterable[dict[str, Scalar]]:
    for entry in document.matrix:
        axes = [
            [(name, v) for v in (value if isinstance(value, list) else [value])]
            for name, value in entry.items()
        ]
        for chosen in itertools.product(*axes):
            yield {**document.defaults, **dict(chosen)}


def _checked(path: Path, chosen: Tool, options: dict[str, Scalar]) -> dict[str, Scalar]:
    for name in options:
        if name not in chosen.options:
            raise InputError(
                f"{path}: {chosen.name} has no option '{name}'", hint=near_miss(name, [*chosen.options])
            )
    try:
        _work_out(chosen, options)
    except (InputError, LookupError, ValueError, TypeError, ArithmeticError) as error:
        told = f"unknown value {error}" if isinstance(error, KeyError) else str(error)
        words = ", ".join(f"{name}: {value}" for name, value in options.items())
        raise InputError(
            f"{path}: {chosen.name} cannot be run with {{{words}}}: {told}", hint="docs/benchmarks.md."
        ) from error
    return options


def _work_out(chosen: Tool, options: Options) -> None:
    """Ask once for all that is asked later, in the middle of a night."""
    for name in ("ranks", "nodes"):
        if int(options.get(name, 1)) < 1:
            raise ValueError(f"{name} must be at least 1")
    for needed in (
        chosen.program,
        chosen.requires,
        chosen.expects,
        chosen.configuration,
        chosen.case,
        chosen.shows,
    ):
        needed(options)
    for number in (chosen.file_bytes, chosen.volume_bytes, chosen.inodes, chosen.runs, chosen.samples):
        number(options)
    for command in (chosen.arguments, chosen.prepare, chosen.before):
        command(options, "scratch")


def _varying(combinations: list[dict[str, Scalar]]) -> list[str]:
    keys = list(dict.fromkeys(key for options in combinations for key in options))
    return [key for key in keys if len({options.get(key) for options in combinations}) > 1]


def _name(options: Mapping[str, Scalar], varying: list[str]) -> str:
    words = [f"{key}={options[key]}" for key in varying if key in options]
    return ",".join(words) or "single"


def _refuse_doubles(path: Path, cases: list[SuiteCase]) -> None:
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise InputError(
                f"{path}: the case '{case.name}' is there twice", hint="Remove one entry of the matrix."
            )
        seen.add(case.name)
