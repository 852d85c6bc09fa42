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
  - {api: mpiio, nodes: [1, 2, all], ranks-per-node: 4}
commands: {}                        # optional: what options name (docs/commands.md), for benchmarks that have such

`ranks-per-node` is in the place of `ranks`: the case has as many on each of its nodes. `nodes: all` are those of each
partition of a system; until `iowatch.site.cases_of_system` resolves it, such a case has the fewest possible (one).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from iowatch.benchmarks.benchmark import Benchmark, ProgramInterface
from iowatch.benchmarks.options import (
    DEFINITION_NAME,
    NO_DEFINITIONS,
    OptionError,
    Options,
    SuiteDefinitions,
    option_faults,
)
from iowatch.benchmarks.registry import get_benchmark
from iowatch.core import InputError, Scalar, UsageError, settings, suggest_name
from iowatch.core.yamlfile import CheckedModel, YamlDocument, documentation_hint

ReferencePolicy = Literal["required", "optional", "none"]
# In place of names: every file system that the system measures.
ALL_FILE_SYSTEMS = "all"
# In place of a number of nodes: all nodes of a partition.
ALL_NODES = "all"
_RANKS_PER_NODE = "ranks-per-node"
# Name of the only case of a suite in ReFrame, where a name is required; runs of it have the name of the benchmark.
ONLY_CASE = "single"
_ONLY_CASE = re.compile(rf"{ONLY_CASE}(?:,|$)")


def run_name(benchmark: str, case: str) -> str:
    """Return the name of the runs of a case in expected sets and in the history: `ior:op=write`, or `mdtest` alone.

    Args:
        case: its name; `single` is that of the only case of a suite.
    """
    name = _ONLY_CASE.sub("", case, count=1) if _ONLY_CASE.match(case) else case
    return f"{benchmark}:{name}" if name else benchmark


def current_run_name(name: str) -> str:
    """Return the present name of a run of an older history, in which that of an only case was `mdtest:single`."""
    benchmark, _, rest = name.partition(":")
    case, hash_sign, turn = rest.partition("#")
    if not case:
        return name
    return f"{run_name(benchmark, case)}{hash_sign}{turn}"


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
    commands: dict[str, Any] = Field(default_factory=dict)
    defaults: dict[str, Scalar] = Field(default_factory=dict)
    matrix: Annotated[list[dict[str, _Axis]], Field(min_length=1)]


@dataclass(frozen=True)
class SuiteCase:
    """One case of a suite, independent of stack and system.

    Attributes:
        name: unique within suite and benchmark, composed of the options that vary.
        options: the options of the benchmark, including `ranks` and `nodes`.
        time_limit_s: ReFrame ends the job after this time.
        trace: `dxt` if Darshan is to record every access.
        may_differ: case parameters that may differ from what the options ask for (a cache that cannot be dropped).
        file_systems: those that the suite names, or `all`; empty for the default one of the system.
        systems: names of the systems that have the case; empty for all.
        file_system: the one of this case (`iowatch.site.cases_of_system`); None for the default one.
        ranks_per_node: as the suite sets it; None if it sets the number of ranks.
        is_on_all_nodes: whether it is to have all nodes of a partition, and their number is not known yet.
    """

    suite: str
    benchmark: str
    name: str
    options: Options
    reference: ReferencePolicy
    time_limit_s: int
    trace: str | None = None
    may_differ: tuple[str, ...] = ()
    file_systems: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    file_system: str | None = None
    ranks_per_node: int | None = None
    is_on_all_nodes: bool = False

    @property
    def run_name(self) -> str:
        """The name of its runs in expected sets and in the history."""
        return run_name(self.benchmark, self.name)

    @property
    def tool(self) -> Benchmark:
        """The description of the benchmark."""
        return get_benchmark(self.benchmark)

    @property
    def requires(self) -> tuple[str, ...]:
        """Features that the stack must have."""
        return self.tool.requires(self.options)

    @property
    def used_interfaces(self) -> tuple[ProgramInterface, ...]:
        """Interfaces of the program that it uses, and that some builds lack."""
        used_variants = self.tool.uses(self.options)
        return tuple(interface for interface in self.tool.interfaces if interface.variant in used_variants)

    @property
    def excludes(self) -> tuple[str, ...]:
        """Features that the stack must not have: that its build of the benchmark lacks an interface."""
        return tuple(self.tool.lacking_feature(interface.variant) for interface in self.used_interfaces)

    def lacking_features(self, features: Collection[str]) -> frozenset[str]:
        """Return the features that it requires and a stack with these features does not have."""
        return frozenset(self.requires) - frozenset(features)

    def lacking_interfaces(self, features: Collection[str]) -> tuple[str, ...]:
        """Return what the stack's build of the benchmark lacks: `HDF5 interface`.

        Args:
            features: of the stack.
        """
        lacking: list[str] = []
        for interface in self.used_interfaces:
            if self.tool.lacking_feature(interface.variant) in features:
                lacking.append(interface.title)
        return tuple(lacking)

    def unmet_requirements(self, features: Collection[str]) -> list[str]:
        """Return all that a stack with these features lacks for the case: features, and interfaces of its benchmark."""
        interfaces = [f"{self.benchmark} with its {title}" for title in self.lacking_interfaces(features)]
        return [*sorted(self.lacking_features(features)), *interfaces]

    @property
    def expects(self) -> tuple[tuple[str, str], ...]:
        """(operation, metric) pairs of a complete run."""
        return self.tool.expects(self.options)

    @property
    def ranks(self) -> int:
        """Number of MPI processes."""
        return _number_or_one(self.options, "ranks")

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return _number_or_one(self.options, "nodes")


def _number_or_one(options: Options, name: str) -> int:
    """Return an option that a benchmark of one process does not declare."""
    return options.number(name) if options.declares(name) else 1


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
    names = suite_names()
    # A pattern such as `*` is not a name.
    if suite not in names:
        raise UsageError(f"no suite '{suite}'", hint=suggest_name(suite, names))
    return _read_suites(lambda _benchmark, name: name == suite)


def cases_of_benchmark(benchmark: str, suite: str | None = None) -> list[SuiteCase]:
    """Return the cases of a suite [default: of all] of one benchmark (ReFrame generates its tests from them).

    Files of other suites are not read: they take a second, and a fault in them is none of this suite.
    """
    return _read_suites(lambda owner, name: owner == benchmark and suite in (None, name))


def _read_suites(is_requested: Callable[[str, str], bool]) -> list[SuiteCase]:
    """Return the cases of all suite files whose benchmark and suite are requested."""
    cases: list[SuiteCase] = []
    for (benchmark, stem), path in settings.list_files("suite").items():
        if is_requested(benchmark, suite_of_file(stem)):
            cases += read_suite_file(path)
    return cases


def read_suite_file(path: Path) -> list[SuiteCase]:
    """Return the cases of one suite file.

    Raises:
        InputError: not YAML, against the schema, or options that the benchmark does not have or cannot use.
    """
    document = YamlDocument(path, _SuiteFile.docs)
    suite = document.validated(_SuiteFile)
    # benchmarks/<benchmark>/suites/<suite>.yaml of the product, suites/<benchmark>/<suite>.yaml of a site.
    folder = path.parents[1] if path.parent.name == "suites" else path.parent
    benchmark = get_benchmark(folder.name)
    definitions = _suite_definitions(document, suite, benchmark)
    combinations = list(_combinations(suite, benchmark))
    _check_ranks_per_node(document, combinations)
    _check_declared(document, benchmark, combinations)
    for combination in combinations:
        where = partial(_where_option, document, combination.entry)
        _check_usable_options(where, benchmark, benchmark.read_options(combination.options, definitions))
    # A case is named after the options that vary, and after the file that adds it.
    varying = _varying_names([combination.values for combination in combinations])
    addition = path.stem.partition("+")[2]
    file_systems = (ALL_FILE_SYSTEMS,) if suite.file_systems == ALL_FILE_SYSTEMS else tuple(suite.file_systems)
    cases: list[SuiteCase] = []
    for combination in combinations:
        words = [addition] if addition else []
        words += [f"{name}={combination.values[name]}" for name in varying if name in combination.values]
        cases.append(
            SuiteCase(
                suite=suite_of_file(path.stem),
                benchmark=benchmark.name,
                name=",".join(words) or ONLY_CASE,
                options=benchmark.read_options(combination.options, definitions),
                reference=suite.reference,
                time_limit_s=suite.time_limit,
                trace=suite.trace,
                may_differ=tuple(suite.may_differ),
                systems=tuple(suite.systems),
                file_systems=file_systems,
                ranks_per_node=combination.ranks_per_node,
                is_on_all_nodes=combination.is_on_all_nodes,
            )
        )
    _check_may_differ(document, suite, cases)
    _check_names(document, cases)
    return cases


def _suite_definitions(document: YamlDocument, suite: _SuiteFile, benchmark: Benchmark) -> SuiteDefinitions:
    """Return what a suite defines beside options.

    Raises:
        InputError: the benchmark has no use for it, or a definition is invalid.
    """
    if benchmark.definition_fields is None:
        if suite.commands:
            fault = f"{document.where(['commands'])}: field 'commands': a suite of {benchmark.name} defines none"
            raise InputError(f"{fault}; expected in a suite of the benchmark 'command'", hint=document.hint)
        return NO_DEFINITIONS
    entries: dict[str, Any] = {}
    faults: list[str] = []
    for name in suite.commands:
        if not DEFINITION_NAME.fullmatch(name):
            where = document.where(["commands", name])
            faults.append(f"{where}: field 'commands': '{name}' is no name; expected small letters, digits, - and _")
            continue
        try:
            entries[name] = document.validated(benchmark.definition_fields, ["commands", name])
        except InputError as error:
            faults.append(error.message)
    if faults:
        raise InputError("\n".join(faults), hint=documentation_hint(benchmark.definition_fields.docs))
    return SuiteDefinitions(entries, document.path.absolute().parent)


@dataclass(frozen=True)
class _Combination:
    """The values of one case as the suite sets them.

    Attributes:
        entry: number of its entry of the matrix, from 0.
        fewest_nodes: on which the benchmark can run.
    """

    entry: int
    values: dict[str, Scalar]
    fewest_nodes: int

    @property
    def is_on_all_nodes(self) -> bool:
        return self.values.get("nodes") == ALL_NODES

    @property
    def ranks_per_node(self) -> int | None:
        """The checked number; None if the suite sets the number of ranks."""
        value = self.values.get(_RANKS_PER_NODE)
        return None if value is None else int(value)

    @property
    def options(self) -> dict[str, Scalar]:
        """The options of the benchmark; on all nodes they are those on the fewest: no system is known here."""
        options = dict(self.values)
        if self.is_on_all_nodes:
            options["nodes"] = self.fewest_nodes
        ranks_per_node = options.pop(_RANKS_PER_NODE, None)
        nodes = options.get("nodes", 1)
        # A number of nodes that is none is reported with the other options.
        if isinstance(ranks_per_node, int) and isinstance(nodes, int):
            options["ranks"] = ranks_per_node * nodes
        return options


def _combinations(suite: _SuiteFile, benchmark: Benchmark) -> Iterable[_Combination]:
    """Yield the values of each case: those of an entry in all combinations, and the defaults."""
    nodes_option = benchmark.options.get("nodes")
    fewest_nodes = (nodes_option.minimum if nodes_option else None) or 1
    for number, entry in enumerate(suite.matrix):
        axes: list[list[Scalar]] = []
        for value in entry.values():
            axes.append(value if isinstance(value, list) else [value])
        for values in itertools.product(*axes):
            yield _Combination(number, {**suite.defaults, **dict(zip(entry, values, strict=True))}, fewest_nodes)


def _check_ranks_per_node(document: YamlDocument, combinations: Iterable[_Combination]) -> None:
    """Check the values of `ranks-per-node`, which no benchmark declares.

    Raises:
        InputError: it is no number of ranks, or the suite sets the number of ranks, too.
    """
    for combination in combinations:
        if _RANKS_PER_NODE not in combination.values:
            continue
        where = f"{_where_option(document, combination.entry, _RANKS_PER_NODE)}: '{_RANKS_PER_NODE}'"
        value = combination.values[_RANKS_PER_NODE]
        # In YAML, `true` is also the number 1.
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            fault = f"{where}: expected a whole number of at least 1 (found '{value}')"
            raise InputError(fault, hint=document.hint)
        if "ranks" in combination.values:
            raise InputError(f"{where} and 'ranks': expected one of them", hint=document.hint)


def _varying_names(combinations: Sequence[Mapping[str, Scalar]]) -> list[str]:
    """Return the options that differ between cases, in the order in which they occur first."""
    values_of: dict[str, set[Scalar | None]] = {}
    for options in combinations:
        for name in options:
            values_of.setdefault(name, set())
    for name, values in values_of.items():
        # A case without the option differs from one that sets it.
        values.update(options.get(name) for options in combinations)
    # All nodes are another number on each partition.
    if ALL_NODES in values_of.get("nodes", ()):
        values_of["nodes"].add(None)
    return [name for name, values in values_of.items() if len(values) > 1]


def _check_declared(document: YamlDocument, benchmark: Benchmark, combinations: Iterable[_Combination]) -> None:
    """Check all cases against the declaration of the benchmark's options.

    Raises:
        InputError: lists every wrong option once, with its position.
    """
    faults: dict[str, None] = {}
    for combination in combinations:
        for fault in option_faults(benchmark.name, benchmark.options, combination.options):
            faults[f"{_where_option(document, combination.entry, fault.option)}: {fault.message}"] = None
    if faults:
        raise InputError("\n".join(faults), hint=document.hint)


def _check_may_differ(document: YamlDocument, suite: _SuiteFile, cases: Sequence[SuiteCase]) -> None:
    """Check that the parameters that may differ are parameters of a case.

    Raises:
        InputError: one is not.
    """
    parameters: set[str] = set()
    for case in cases:
        parameters.update(case.tool.shows(case.options))
    for number, name in enumerate(suite.may_differ):
        if name not in parameters:
            fault = f"{document.where(['may_differ', number])}: field 'may_differ': no case asks for '{name}'."
            raise InputError(f"{fault} {suggest_name(name, sorted(parameters))}", hint=document.hint)


def _check_names(document: YamlDocument, cases: Iterable[SuiteCase]) -> None:
    """Check that each name is that of one case.

    Raises:
        InputError: it is not.
    """
    for name, count in Counter(case.name for case in cases).items():
        if count > 1:
            fault = f"{document.where(['matrix'])}: field 'matrix': the case '{name}' is defined twice"
            raise InputError(f"{fault}; expected once", hint=document.hint)


def with_options(case: SuiteCase, changed: Mapping[str, str]) -> SuiteCase:
    """Return a case with other values of options, as text; the result is another case of the same name.

    Raises:
        InputError: the benchmark has no such option, or the value is invalid.
    """
    values = {name: _scalar(text) for name, text in changed.items()}
    where = f"{case.suite}/{case.name}"
    try:
        options = case.options.with_values(values)
    except OptionError as error:
        raise InputError(f"{where}: {error.message}", hint=documentation_hint(_SuiteFile.docs)) from error
    _check_usable_options(lambda _option: where, case.tool, options)
    return replace(case, options=options)


def on_all_nodes(case: SuiteCase, nodes: int) -> SuiteCase:
    """Return a case on all nodes of a partition with their number, also in its name.

    Raises:
        InputError: the benchmark cannot be run with so many.
    """
    words = case.name.split(",")
    words[words.index(f"nodes={ALL_NODES}")] = f"nodes={nodes}"
    changed = {"nodes": str(nodes)}
    if case.ranks_per_node is not None:
        changed["ranks"] = str(nodes * case.ranks_per_node)
    return replace(with_options(case, changed), name=",".join(words), is_on_all_nodes=False)


def _scalar(text: str) -> Scalar:
    """Return the number or boolean that a text of a suite file would be, else the text."""
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    return text


def _where_option(document: YamlDocument, entry: int, option: str | None) -> str:
    """Return the position of an option of a matrix entry, or that of the entry."""
    if option is None:
        return document.where(["matrix", entry])
    if option in document.data["matrix"][entry]:
        return document.where(["matrix", entry, option], value=True)
    if option in document.data.get("defaults", {}):
        return document.where(["defaults", option], value=True)
    # An option that no suite sets: its default does not fit the others.
    return document.where(["matrix", entry])


def _check_usable_options(where: Callable[[str | None], str], benchmark: Benchmark, options: Options) -> None:
    """Evaluate everything that a session computes later, so that errors are reported before it starts.

    Args:
        where: position of an option by its name, or of all of them.

    Raises:
        InputError: the benchmark cannot be run with these options.
    """
    try:
        _evaluate(benchmark, options)
    except OptionError as error:
        message = f"{where(error.option)}: option '{error.option}' of {benchmark.name}: {error.message}"
        raise InputError(message, hint=documentation_hint(_SuiteFile.docs)) from error
    except (InputError, LookupError, ValueError, TypeError, ArithmeticError) as error:
        words = ", ".join(f"{name}: {value}" for name, value in options.items())
        # Errors of Python only say which function could not use the value.
        reason = f": {error.message}" if isinstance(error, InputError) else ""
        message = f"{where(None)}: {benchmark.name} cannot be run with {{{words}}}{reason}"
        raise InputError(message, hint=documentation_hint(_SuiteFile.docs)) from error


def _evaluate(benchmark: Benchmark, options: Options) -> None:
    """Call every function of the benchmark once."""
    for of_options in (
        benchmark.program,
        benchmark.requires,
        benchmark.expects,
        benchmark.configuration,
        benchmark.case,
        benchmark.shows,
        benchmark.environment,
        benchmark.file_bytes,
        benchmark.volume_bytes,
        benchmark.inodes,
        benchmark.runs,
        benchmark.samples,
    ):
        of_options(options)
    for command in (benchmark.arguments, benchmark.prepare, benchmark.after, benchmark.before, benchmark.wrapper):
        command(options, "scratch")
