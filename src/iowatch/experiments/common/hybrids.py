"""Hybrids of two stacks: one stack with some of the parts in which the other differs (docs/bisect.md)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import yaml

from iowatch.core import InputError, UsageError, write_atomically
from iowatch.core.yamlfile import read_mapping, read_model
from iowatch.experiments.common.builds import recorded_files, require_recorded_versions, with_package_paths
from iowatch.experiments.common.spack_environments import SpackEnvironment, content_digest, write_environment
from iowatch.experiments.common.spack_graph import (
    PackageChange,
    SpackGraph,
    describe_change,
    hybrid_environment,
    package_changes,
    read_graph,
)
from iowatch.site import load_system, machine
from iowatch.site.stack.install import spack_settings_file
from iowatch.site.stack.load import (
    MODULES_FILE,
    TIMEOUT_S,
    ModulesFile,
    describe_loaded_stack,
    load_module_stack,
    load_stack,
    manifest_directory,
)
from iowatch.site.stack.probe import SPACK_MPIS, mpi_settings
from iowatch.site.stack.records import Stack, load_module_commands, stack_directory

PartKind = Literal["module", "order", "package", "setting", "hint", "commit"]
_Values = dict[tuple[PartKind, str], str | None]
_HINTS_VARIABLE = "ROMIO_HINTS"
_HINT_LINE = re.compile(r"\s*(\S+)\s+(\S.*?)\s*")
_PREFIX = "bisect-"


@dataclass(frozen=True, slots=True)
class HybridPart:
    """One difference of two stacks that a hybrid can take over; None where that stack does not have it.

    Attributes:
        kind: a module, the order of modules, a package of Spack, an environment variable, an MPI-IO hint of the file
            that `ROMIO_HINTS` names, or a commit, with its subject as `bad`.
        name: of the module without its version, of the package, of the variable or of the hint.
    """

    kind: PartKind
    name: str
    good: str | None
    bad: str | None

    def __str__(self) -> str:
        if self.kind == "order":
            return "order of the modules"
        if self.kind == "commit":
            return f"commit {self.name} ({self.bad})"
        return f"{self.kind} {self.name}: {self.good or 'none'} → {self.bad or 'none'}"


@dataclass(frozen=True)
class HybridSource:
    """Two stacks, and their hybrids.

    Attributes:
        good, bad: names of the stacks.
        parts: their differences; hybrids are sets of positions in this tuple.
        ends: both stacks.
        make: describes GOOD with these parts of BAD, as it is loaded or built; broken, with the reason, if it cannot
            be used.
        resolve: the same without a build; None if nothing is built.
    """

    system: str
    good: str
    bad: str
    parts: tuple[HybridPart, ...]
    ends: tuple[Stack, Stack]
    make: Callable[[frozenset[int]], Stack]
    resolve: Callable[[frozenset[int]], Stack] | None = None
    _stacks: dict[frozenset[int], Stack] = field(default_factory=dict)
    _resolved: dict[frozenset[int], Stack] = field(default_factory=dict)

    def resolved(self, positions: frozenset[int]) -> Stack:
        """The hybrid before it is built: parts and features, as far as they are known without."""
        if self.resolve is None or positions in self._stacks or len(positions) in (0, len(self.parts)):
            return self.stack(positions)
        if positions not in self._resolved:
            self._resolved[positions] = self.resolve(positions)
        return self._resolved[positions]

    def stack(self, positions: frozenset[int]) -> Stack:
        """GOOD with these parts of BAD; a hybrid is in `var/stacks/<system>/bisect-<digest of its content>/`."""
        good, bad = self.ends
        if positions not in self._stacks:
            if not positions:
                self._stacks[positions] = good
            elif len(positions) == len(self.parts):
                self._stacks[positions] = bad
            else:
                self._stacks[positions] = self.make(positions)
        return self._stacks[positions]


def compare_for_hybrids(system: str, good: str, bad: str) -> HybridSource:
    """Return the differences of two stacks of a system.


    Raises:
        UsageError: unknown stack; a stack is not usable; the stacks do not differ, or not in what can be exchanged.
        InputError: a `modules.yaml` is damaged.
    """
    stacks: list[Stack] = []
    modules_files: list[ModulesFile] = []
    for name in (good, bad):
        stack = load_stack(name, system)
        if stack.status != "installed":
            raise UsageError(
                f"stack '{name}' of '{system}' cannot be run: {stack.note}",
                hint=f"`iowatch stack install {name} --system {system}`, or choose another one (`iowatch stack list`).",
            )
        stacks.append(stack)
        if stack.kind == "modules":
            modules_files.append(read_model(manifest_directory(system, name) / MODULES_FILE, ModulesFile))
    ends = (stacks[0], stacks[1])
    # Modules can be exchanged only if both stacks have them.
    if len(modules_files) == 2:
        return _hybrids_of_modules(system, ends, (modules_files[0], modules_files[1]))
    return _hybrids_of_packages(system, ends)


def recorded_hybrids(system: str, good: Stack, bad: Stack) -> HybridSource:
    """Return the differences of two stacks as runs recorded them, if both can still be used.


    Raises:
        UsageError: a stack is no longer what was recorded; they do not differ, or not in what can be exchanged.
    """
    if (good.kind, bad.kind) != ("modules", "modules"):
        return _hybrids_of_packages(system, (_recorded_end(system, good), _recorded_end(system, bad)))
    modules_files = (_recorded_modules(good), _recorded_modules(bad))
    # The modules are loaded now, and must still be what they were.
    stacks: list[Stack] = []
    for recorded, modules_file in zip((good, bad), modules_files, strict=True):
        content = _content(_values(modules_file))
        stack = describe_hybrid(system, content.settings, content.hints, modules_file.modules)
        require_recorded_versions(recorded, stack)
        stacks.append(stack)
    source = _hybrids_of_modules(system, (stacks[0], stacks[1]), modules_files)
    return replace(source, good=good.name, bad=bad.name)


def _recorded_end(system: str, recorded: Stack) -> Stack:
    stack = recorded_files(system, recorded)
    if stack.kind == "spack":
        stack = with_package_paths(stack)
    return stack


def _recorded_modules(recorded: Stack) -> ModulesFile:
    return ModulesFile(modules=[*recorded.modules], settings=_settings_beside_modules(recorded))


def _hybrids_of_modules(system: str, ends: tuple[Stack, Stack], files: tuple[ModulesFile, ModulesFile]) -> HybridSource:
    """Stacks of modules: their modules, the order of these, settings and hints are the parts."""
    good, bad = files
    parts = _differences(_values(good), _values(bad))
    if _common_order(good, bad) != _common_order(bad, good):
        parts = (*parts, HybridPart("order", "", "as in GOOD", "as in BAD"))

    def make(positions: frozenset[int]) -> Stack:
        bad_values = _values_at(parts, positions)
        values = {**_values(good), **bad_values}
        # The order of the modules is a part, too.
        first, second = good, bad
        if ("order", "") in bad_values:
            first, second = bad, good
        order = _merge_orders(_module_names(first.modules), _module_names(second.modules))
        modules: list[str] = []
        for name in order:
            module = values.get(("module", name))
            if module:
                modules.append(module)
        # A hybrid without any module would have neither MPI nor libraries.
        if not modules and good.modules and bad.modules:
            return Stack(f"{_PREFIX}none", system, "modules", "broken", (), note="it has no modules")
        content = _content(values)
        return describe_hybrid(system, content.settings, content.hints, modules)

    return _source(system, ends, parts, make)


def _hybrids_of_packages(system: str, ends: tuple[Stack, Stack]) -> HybridSource:
    """Stacks of Spack, or of equal packages with other settings.

    Raises:
        UsageError: a package that differs was not installed by Spack.
    """
    good, bad = ends
    changed_packages = _changed_packages(good, bad)
    _require_exchangeable(system, ends, changed_packages)
    # Packages are the first parts: their positions are those of `changes`.
    graphs = None
    changes: tuple[PackageChange, ...] = ()
    parts: list[HybridPart] = []
    if changed_packages:
        graphs = (read_graph(good), read_graph(bad))
        changes = package_changes(*graphs)
        for change in changes:
            good_words, bad_words = describe_change(change, *graphs)
            parts.append(HybridPart("package", change.name, good_words, bad_words))
    good_settings = _settings_and_hints(_settings_beside_mpi(good))
    bad_settings = _settings_and_hints(_settings_beside_mpi(bad))
    parts += _differences(good_settings, bad_settings)
    hybrids = _PackageHybrids(
        system=system,
        ends=ends,
        parts=tuple(parts),
        graphs=graphs,
        changes=changes,
        good_settings=good_settings,
        has_equal_settings=good_settings == bad_settings,
    )
    return _source(system, ends, hybrids.parts, hybrids.make, hybrids.resolve)


def _require_exchangeable(system: str, ends: tuple[Stack, Stack], changed_packages: Sequence[str]) -> None:
    """Require that Spack installed both stacks, or that they differ in settings only.

    Raises:
        UsageError: it is not so; names the packages that cannot be exchanged.
    """
    good, bad = ends
    stack_kinds = {good.kind, bad.kind}
    is_of_spack = stack_kinds == {"spack"}
    if "modules" not in stack_kinds and (is_of_spack or not changed_packages):
        return
    reason = "they are of different kinds"
    if changed_packages:
        reason = f"{', '.join(changed_packages)} cannot be exchanged alone"
    raise UsageError(
        f"'{good.name}' ({good.kind}) and '{bad.name}' ({bad.kind}) of '{system}' have no parts to exchange: {reason}",
        hint=f"`iowatch stack diff {good.name} {bad.name}` shows the differences, `iowatch run --ab {good.name} "
        f"{bad.name}` whether they matter.",
    )


@dataclass(frozen=True)
class _PackageHybrids:
    """Makes hybrids of two stacks that differ in packages of Spack and in settings.

    Attributes:
        graphs: the packages of both stacks; None if these are equal.
        changes: the first parts, as changes of packages.
        good_settings: settings and hints of GOOD, without those of its MPI.
        has_equal_settings: whether BAD has the same.
    """

    system: str
    ends: tuple[Stack, Stack]
    parts: tuple[HybridPart, ...]
    graphs: tuple[SpackGraph, SpackGraph] | None
    changes: tuple[PackageChange, ...]
    good_settings: _Values
    has_equal_settings: bool

    def make(self, positions: frozenset[int]) -> Stack:
        """GOOD with these parts of BAD, built."""
        return self._with_settings(self._with_packages(positions, is_built=True), positions)

    def resolve(self, positions: frozenset[int]) -> Stack:
        """GOOD with these parts of BAD, without a build."""
        return self._with_settings(self._with_packages(positions, is_built=False), positions)

    def _with_packages(self, positions: frozenset[int], *, is_built: bool) -> Stack:
        """A stack with the packages of these parts, whatever its settings."""
        good, bad = self.ends
        package_count = len(self.changes)
        exchanged = [self.changes[position] for position in sorted(positions) if position < package_count]
        if not exchanged:
            return good
        if len(exchanged) == package_count or self.graphs is None:
            return bad
        environment = _environment(self.system, good, self.graphs, exchanged)
        return environment.stack() if is_built else environment.resolved()

    def _with_settings(self, stack: Stack, positions: frozenset[int]) -> Stack:
        """The stack with the settings of GOOD, and with those of these parts."""
        if stack.status == "broken":
            return stack
        # A hybrid of packages has no settings yet; nothing is to be added if both stacks have the same.
        if stack.name.startswith(_PREFIX) and self.has_equal_settings:
            return stack
        content = _content({**self.good_settings, **_values_at(self.parts, positions)})
        text = repr((stack.name, sorted(content.settings.items()), content.hints))
        name = _PREFIX + hashlib.sha256(text.encode()).hexdigest()[:8]
        settings = _with_hints(stack_directory(self.system, name), content.settings, content.hints)
        return replace(stack, name=name, settings={**_mpi_settings(stack), **settings})


def _changed_packages(good: Stack, bad: Stack) -> list[str]:
    """Names of the packages that differ, also by absence; sorted."""
    changed = {package.name for package in good.parts if bad.part(package.name) != package}
    changed |= {package.name for package in bad.parts if good.part(package.name) != package}
    return sorted(changed)


def _environment(
    system: str, good: Stack, graphs: tuple[SpackGraph, SpackGraph], changes: Sequence[PackageChange]
) -> SpackEnvironment:
    """GOOD with these packages of BAD, for Spack to resolve and build."""
    includes = [str(spack_settings_file())]
    good_environment = stack_directory(system, good.name) / "env" / "spack.yaml"
    if good_environment.is_file():
        includes = [str(path) for path in read_mapping(good_environment)["spack"].get("include", [])]
    document = hybrid_environment(*graphs, changes, includes)
    digest = content_digest(document, map(Path, includes))
    return SpackEnvironment(system, f"{_PREFIX}{digest}", lambda target: write_environment(target, document))


def _mpi_settings(stack: Stack) -> dict[str, str]:
    """Settings that every stack with this MPI has."""
    mpi = next((name for name in SPACK_MPIS if stack.part(name)), "")
    return mpi_settings(mpi)


def _settings_beside_mpi(stack: Stack) -> dict[str, str]:
    """Settings without those that every stack with this MPI has."""
    settings_of_mpi = _mpi_settings(stack)
    return {name: value for name, value in stack.settings.items() if settings_of_mpi.get(name) != value}


def _settings_beside_modules(stack: Stack) -> dict[str, str] | None:
    """Recorded settings without those that the modules themselves make; None if there are no others."""
    # A shell that loads the modules prints its environment.
    script = "\n".join([*load_module_commands(stack.modules), "env -0"])
    completed = machine.run_program("bash", "-c", script, timeout_s=TIMEOUT_S)
    loaded: dict[str, str] = {}
    for line in completed.stdout.split("\0"):
        name, separator, value = line.partition("=")
        if separator:
            loaded[name] = value
    other_settings = {name: value for name, value in stack.settings.items() if loaded.get(name) != value}
    return other_settings or None


def _source(
    system: str,
    ends: tuple[Stack, Stack],
    parts: tuple[HybridPart, ...],
    make: Callable[[frozenset[int]], Stack],
    resolve: Callable[[frozenset[int]], Stack] | None = None,
) -> HybridSource:
    good, bad = (stack.name for stack in ends)
    if not parts:
        raise UsageError(
            f"the stacks '{good}' and '{bad}' of '{system}' do not differ: the same modules, packages and settings",
            hint="`iowatch stack list` shows the stacks of a system. Packages that are only built otherwise (another "
            "recipe or build tool) are no parts.",
        )
    return HybridSource(system, good, bad, parts, ends, make, resolve)


def _differences(good: _Values, bad: _Values) -> tuple[HybridPart, ...]:
    """A part for each value that differs, in the order of GOOD."""
    parts: list[HybridPart] = []
    for part_kind, name in dict.fromkeys([*good, *bad]):
        good_value = good.get((part_kind, name))
        bad_value = bad.get((part_kind, name))
        if good_value != bad_value:
            parts.append(HybridPart(part_kind, name, good_value, bad_value))
    return tuple(parts)


def _values_at(parts: Sequence[HybridPart], positions: frozenset[int]) -> _Values:
    """What BAD has for the parts at these positions."""
    return {(part.kind, part.name): part.bad for position, part in enumerate(parts) if position in positions}


@dataclass(frozen=True)
class _HybridContent:
    """What a hybrid has besides modules and packages: settings, and the text of the file of hints."""

    settings: dict[str, str]
    hints: str


def _content(values: _Values) -> _HybridContent:
    """Settings and hints among the values of a hybrid, without those that it does not have."""
    settings: dict[str, str] = {}
    hint_lines: list[str] = []
    for (part_kind, name), value in sorted(values.items()):
        if part_kind == "setting" and value:
            settings[name] = value
        elif part_kind == "hint" and value:
            hint_lines.append(f"{name} {value}\n")
    return _HybridContent(settings, "".join(hint_lines))


def _with_hints(directory: Path, settings: Mapping[str, str], hints: str) -> dict[str, str]:
    if not hints:
        return dict(settings)
    write_atomically(directory / "romio_hints", hints)
    return {**settings, _HINTS_VARIABLE: str(directory / "romio_hints")}


def describe_hybrid(
    system: str,
    settings: Mapping[str, str],
    hints: str,
    modules: Sequence[str],
    paths: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Stack:
    """Return a stack of modules that is in no folder of the system, described as it is loaded.

    Args:
        hints: text of the file for `ROMIO_HINTS`, or empty.
        paths: variables to which directories are prepended before anything of the modules.
    """
    # Its directory has a digest of its content, so that equal hybrids are one stack.
    listed_paths = {variable: list(directories) for variable, directories in paths.items()}
    text = yaml.safe_dump([[*modules], dict(settings), listed_paths, hints])
    directory = stack_directory(system, _PREFIX + hashlib.sha256(text.encode()).hexdigest()[:8])
    settings = _with_hints(directory, settings, hints)
    document: dict[str, object] = {"modules": [*modules]}
    if settings:
        document["settings"] = settings
    write_atomically(directory / MODULES_FILE, yaml.safe_dump(document, sort_keys=False))
    # Programs of the system are found behind those of the hybrid.
    programs = (*paths.get("PATH", ()), *load_system(system).programs)
    if not paths:
        return load_module_stack(system, directory / MODULES_FILE, programs)
    return describe_loaded_stack(system, directory.name, tuple(modules), settings, {**paths, "PATH": programs})


def _module_names(modules: Sequence[str]) -> dict[str, str]:
    """Modules by their name without the version; by all of it if a stack loads two of that name."""
    without_version = {module.rpartition("/")[0] or module: module for module in modules}
    if len(without_version) == len(modules):
        return without_version
    return {module: module for module in modules}


def _values(file: ModulesFile) -> _Values:
    """Modules, settings, and hints of the file that `ROMIO_HINTS` names, as far as it can be read."""
    modules: _Values = {("module", name): value for name, value in _module_names(file.modules).items()}
    return modules | _settings_and_hints(file.settings or {})


def _settings_and_hints(settings: Mapping[str, str]) -> _Values:
    values: _Values = {("setting", name): value for name, value in settings.items()}
    hints_file = settings.get(_HINTS_VARIABLE)
    if hints_file:
        # The content of the file stands for its path.
        del values["setting", _HINTS_VARIABLE]
        for name, value in _read_hints(hints_file).items():
            values["hint", name] = value
    return values


def _read_hints(path: str) -> Mapping[str, str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{_HINTS_VARIABLE}: cannot read {path}: {error}", hint="Correct modules.yaml.") from error
    matches = [_HINT_LINE.fullmatch(line) for line in lines]
    return {match[1]: match[2] for match in matches if match is not None}


def _common_order(file: ModulesFile, other: ModulesFile) -> list[str]:
    other_names = _module_names(other.modules)
    return [name for name in _module_names(file.modules) if name in other_names]


def _merge_orders(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Names of both in the order of the first; a name that only the second has is where the second has it."""
    first_names, second_names = list(first), list(second)
    matcher = SequenceMatcher(None, first_names, second_names, autojunk=False)
    merged: list[str] = []
    for _, first_start, first_end, second_start, second_end in matcher.get_opcodes():
        merged += first_names[first_start:first_end]
        merged += [name for name in second_names[second_start:second_end] if name not in first]
    return merged
