"""Parameter sets: `benchmarks/<tool>/suites/<suite>.yaml` to cases, each with a unique name.

A file `<suite>+<addition>.yaml` adds cases to a suite that another file describes; their names begin with the addition.

format: 1
summary: what it measures, and its run time
repeats: "[lawrence2017], Table 1"  # optional: the table or figure that it repeats
reference: optional                 # required | optional | none: what a missing reference means
may_differ: [cache]                 # optional: case parameters that may differ from what the options ask
systems: [mycluster]                # optional: no other systems have its cases
file_systems: all                   # optional: all, or a list of names; default: the system's default one
time_limit: 300                     # seconds per case
defaults: {op: both, repeat: 10}
matrix:                             # every list is an axis; an entry yields all combinations
  - {api: posix, file: per-process, ranks: [1, 4]}
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from iowatch.benchmarks.benchmark import Benchmark
from iowatch.benchmarks.registry import get_benchmark
from iowatch.core import InputError, Scalar, UsageError, settings, suggest_name
from iowatch.core.yamlfile import CheckedModel, YamlDocument, documentation_hint

ReferencePolicy = Literal["required", "optional", "none"]
# In place of names: every file system that the system measures.
ALL_FILE_SYSTEMS = "all"
_Axis = Scalar | Annotated[list[Scalar], Field(min_length=1)]


class _SuiteFile(CheckedModel):
    """The schema of a suite file: a number is not a text."""

    docs = "docs/benchmarks.md#format-of-a-suite"
    format: Literal[1]
    summary: str
    repeats: str | None = None
    reference: ReferencePolicy = "optional"
    time_limit: Annotated[int, Field(gt=0)] = 600
    trace: Literal["dxt"] | None = None
    may_differ: list[str] = Field(default_factory=list)
    systems: list[str] = Field(default_factory=list)
    file_systems: Literal["all"] | list[str] = Field(default_factory=list)
    defaults: dict[str, Scalar] = Field(default_factory=dict)
    matrix: Annotated[list[dict[str, _Axis]], Field(min_length=1)]


@dataclass(frozen=True)
class SuiteCase:
    """One case of a suite, independent of stack and system.

    Attributes:
        name: unique within suite and benchmark, composed of the options that vary.
        options: all options of the tool, including `ranks` and `nodes`.
        time_limit_s: ReFrame ends the job after this time.
        trace: `dxt` if Darshan is to record every access.
        may_differ: case parameters that may differ from what the options ask for (a cache that cannot be dropped).
        file_systems: those that the suite names, or `all`; empty for the default one of the system.
        systems: names of the systems that have the case; empty for all.
        file_system: the one of this case (`iowatch.site.on_file_systems`); None for the default one.
    """

    suite: str
    benchmark: str
    name: str
    options: Mapping[str, Scalar]
    reference: ReferencePolicy
    time_limit_s: int
    trace: str | None = None
    may_differ: tuple[str, ...] = ()
    file_systems: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    file_system: str | None = None

    @property
    def run_name(self) -> str:
        """The name of its runs in expected sets and in the history."""
        return f"{self.benchmark}:{self.name}"

    @property
    def tool(self) -> Benchmark:
        """The description of the benchmark."""
        return get_benchmark(self.benchmark)

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


def suite_names() -> list[str]:
    """Return the names of all suites of all benchmarks."""
    return sorted({suite_of_file(stem) for _, stem in settings.list_files("suite")})


def suite_of_file(stem: str) -> str:
    """Return the suite that a file describes or adds to: `nightly` of `nightly+solver`."""
    return stem.partition("+")[0]


def load_suite(suite: str) -> list[SuiteCase]:
    """Return all cases of a suite, of every benchmark that has it.

    Raises:
        UsageError: unknown suite.
        InputError: a suite file is invalid (with file and field).
    """
    if suite not in suite_names():  # a pattern such as `*` is not a name
        raise UsageError(f"no suite '{suite}'", hint=suggest_name(suite, suite_names()))
    return _read_suites(lambda _benchmark, name: name == suite)


def cases_of_benchmark(benchmark: str, suite: str | None = None) -> list[SuiteCase]:
    """Return the cases of a suite [default: of all] of one benchmark (ReFrame generates its tests from them).

    Files of other suites are not read: they take a second, and a fault in them is none of this suite.
    """
    return _read_suites(lambda owner, name: owner == benchmark and suite in (None, name))


def _read_suites(is_chosen: Callable[[str, str], bool]) -> list[SuiteCase]:
    files = settings.list_files("suite").items()
    return [
        case for (owner, stem), path in files if is_chosen(owner, suite_of_file(stem)) for case in read_suite_file(path)
    ]


def read_suite_file(path: Path) -> list[SuiteCase]:
    """Return the cases of one suite file.

    Raises:
        InputError: not YAML, against the schema, or an option that the benchmark does not have.
    """
    document = YamlDocument(path, _SuiteFile.docs)
    suite = document.validated(_SuiteFile)
    # benchmarks/<benchmark>/suites/<suite>.yaml of the product, suites/<benchmark>/<suite>.yaml of a site.
    chosen = get_benchmark((path.parents[1] if path.parent.name == "suites" else path.parent).name)
    combinations = [
        _check_options(partial(_where_option, document, number), chosen, options)
        for number, options in _combinations(suite)
    ]
    names = list(dict.fromkeys(name for options in combinations for name in options))
    varying = [name for name in names if len({options.get(name) for options in combinations}) > 1]
    addition = path.stem.partition("+")[2]
    cases = [
        SuiteCase(
            suite=suite_of_file(path.stem),
            benchmark=chosen.name,
            name=",".join([*([addition] if addition else []), *_varying_words(options, varying)]) or "single",
            options=options,
            reference=suite.reference,
            time_limit_s=suite.time_limit,
            trace=suite.trace,
            may_differ=tuple(suite.may_differ),
            systems=tuple(suite.systems),
            file_systems=(ALL_FILE_SYSTEMS,) if suite.file_systems == ALL_FILE_SYSTEMS else tuple(suite.file_systems),
        )
        for options in combinations
    ]
    shown = {name for case in cases for name in chosen.shows(case.options)}
    for number, name in enumerate(suite.may_differ):
        if name not in shown:
            fault = f"{document.where(['may_differ', number])}: field 'may_differ': no case asks for '{name}'."
            raise InputError(f"{fault} {suggest_name(name, sorted(shown))}", hint=document.hint)
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            fault = f"{document.where(['matrix'])}: field 'matrix': the case '{name}' is defined twice"
            raise InputError(f"{fault}; expected once", hint=document.hint)
    return cases


def _varying_words(options: Mapping[str, Scalar], varying: Iterable[str]) -> list[str]:
    return [f"{name}={options[name]}" for name in varying if name in options]


def with_options(case: SuiteCase, changed: Mapping[str, str]) -> SuiteCase:
    """Return a case with other values of options, as text; the result is another case of the same name.

    Raises:
        InputError: the benchmark has no such option, or the value is invalid.
    """
    values = {name: _scalar(text) for name, text in changed.items()}
    where = f"{case.suite}/{case.name}"
    return replace(case, options=_check_options(lambda _option: where, case.tool, {**case.options, **values}))


def _scalar(text: str) -> Scalar:
    """Return the number or boolean that a text of a suite file would be, else the text."""
    number = re.fullmatch(r"-?\d+", text)
    return int(text) if number else text == "true" if text in ("true", "false") else text


def _combinations(suite: _SuiteFile) -> Iterable[tuple[int, dict[str, Scalar]]]:
    """Yield the number of the matrix entry, from 0, and the options of each case."""
    for number, entry in enumerate(suite.matrix):
        axes = [[(name, v) for v in (value if isinstance(value, list) else [value])] for name, value in entry.items()]
        for chosen in itertools.product(*axes):
            yield number, {**suite.defaults, **dict(chosen)}


def _where_option(document: YamlDocument, entry: int, option: str | None) -> str:
    """Return the position of an option of a matrix entry, or that of the entry."""
    if option is None:
        return document.where(["matrix", entry])
    own = option in document.data["matrix"][entry]
    return document.where(["matrix", entry, option] if own else ["defaults", option], value=True)


def _check_options(
    where: Callable[[str | None], str], chosen: Benchmark, options: dict[str, Scalar]
) -> dict[str, Scalar]:
    """Return the options if the benchmark can be run with them.

    Args:
        where: position of an option by its name, or of all of them.
    """
    hint = documentation_hint(_SuiteFile.docs)
    for name in options:
        if name not in chosen.options:
            known = suggest_name(name, [*chosen.options])
            raise InputError(f"{where(name)}: {chosen.name} has no option '{name}'. {known}", hint=hint)
    error = _evaluation_error(chosen, options)
    if error is None:
        return options
    rest = {name: {n: v for n, v in options.items() if n != name} for name in options}
    wrong = next((name for name in options if _evaluation_error(chosen, rest[name]) is None), None)
    if wrong is None:
        words = ", ".join(f"{name}: {value}" for name, value in options.items())
        fault = f"{chosen.name} cannot be run with {{{words}}}"
    else:
        fault = f"option '{wrong}' of {chosen.name}: expected {chosen.options[wrong]} (found '{options[wrong]}')"
    # Errors of Python only say which function could not use the value.
    reason = f": {error.message}" if isinstance(error, InputError) else ""
    raise InputError(f"{where(wrong)}: {fault}{reason}", hint=hint) from error


def _evaluation_error(chosen: Benchmark, options: Mapping[str, Scalar]) -> Exception | None:
    """Evaluate everything that a session computes later, so that errors are reported before it starts."""
    try:
        for name in ("ranks", "nodes"):
            if int(options.get(name, 1)) < 1:
                raise InputError(f"{name} must be at least 1")
        for part in (chosen.program, chosen.requires, chosen.expects, chosen.configuration, chosen.case, chosen.shows):
            part(options)
        chosen.environment(options)
        for number in (chosen.file_bytes, chosen.volume_bytes, chosen.inodes, chosen.runs, chosen.samples):
            number(options)
        for command in (chosen.arguments, chosen.prepare, chosen.after, chosen.before):
            command(options, "scratch")
    except (InputError, LookupError, ValueError, TypeError, ArithmeticError) as error:
        return error
    return None
