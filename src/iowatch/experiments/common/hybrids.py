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
    stacks, files = [], []
    for name in (good, bad):
        stack = load_stack(name, system)
        if stack.status != "installed":
            raise UsageError(
                f"stack '{name}' of '{system}' cannot be run: {stack.note}",
                hint=f"`iowatch stack install {name} --system {system}`, or choose another one (`iowatch stack list`).",
            )
        if stack.kind == "modules":
            files.append(read_model(manifest_directory(system, name) / MODULES_FILE, ModulesFile))
        stacks.append(stack)
    if len(files) == 2:
        return _of_modules(system, (stacks[0], stacks[1]), (files[0], files[1]))
    return _of_parts(system, (stacks[0], stacks[1]))


def recorded_hybrids(system: str, good: Stack, bad: Stack) -> HybridSource:
    """Return the differences of two stacks as runs recorded them, if both can still be used.


    Raises:
        UsageError: a stack is no longer what was recorded; they do not differ, or not in what can be exchanged.
    """
    if (good.kind, bad.kind) != ("modules", "modules"):
        return _of_parts(system, (_recorded_end(system, good), _recorded_end(system, bad)))
    good_file, bad_file = _recorded_modules(good), _recorded_modules(bad)
    loaded = []
    for recorded, file in ((good, good_file), (bad, bad_file)):
        stack = describe_hybrid(system, *_document(_values(file), file.modules))
        require_recorded_versions(recorded, stack)
        loaded.append(stack)
    source = _of_modules(system, (loaded[0], loaded[1]), (good_file, bad_file))
    return replace(source, good=good.name, bad=bad.name)


def _recorded_end(system: str, recorded: Stack) -> Stack:
    stack = recorded_files(system, recorded)
    if stack.kind == "spack":
        stack = with_package_paths(stack)
    return stack


def _recorded_modules(recorded: Stack) -> ModulesFile:
    return ModulesFile(modules=[*recorded.modules], settings=_settings_beside_modules(recorded))


def _of_modules(system: str, ends: tuple[Stack, Stack], files: tuple[ModulesFile, ModulesFile]) -> HybridSource:
    good, bad = files
    parts = _differences(_values(good), _values(bad))
    if _common_order(good, bad) != _common_order(bad, good):
        parts = (*parts, HybridPart("order", "", "as in GOOD", "as in BAD"))

    def make(positions: frozenset[int]) -> Stack:
        bad_values = _values_at(parts, positions)
        values = {**_values(good), **bad_values}
        # The order of the modules is a part, too.
        first, second = (bad, good) if ("order", "") in bad_values else (good, bad)
        order = _merge_orders(_module_names(first.modules), _module_names(second.modules))
        loaded = [values.get(("module", name)) for name in order]
        modules = [module for module in loaded if module]
        if not modules and good.modules and bad.modules:
            return Stack(f"{_PREFIX}none", system, "modules", "broken", (), note="it has no modules")
        return describe_hybrid(system, *_document(values, modules))

    return _source(system, ends, parts, make)


def _of_parts(system: str, ends: tuple[Stack, Stack]) -> HybridSource:
    """Stacks of Spack, or of equal packages with other settings.

    Raises:
        UsageError: a package that differs was not installed by Spack.
    """
    good, bad = ends
    changed = _changed_parts(good, bad)
    stack_kinds = {good.kind, bad.kind}
    if (changed and stack_kinds != {"spack"}) or "modules" in stack_kinds:
        reason = "they are of different kinds"
        if changed:
            reason = f"{', '.join(changed)} cannot be exchanged alone"
        raise UsageError(
            f"'{good.name}' ({good.kind}) and '{bad.name}' ({bad.kind}) of '{system}' have no parts to exchange: "
            f"{reason}",
            hint=f"`iowatch stack diff {good.name} {bad.name}` shows the differences, `iowatch run --ab {good.name} "
            f"{bad.name}` whether they matter.",
        )
    # Packages are the first parts: their positions are those of `changes`.
    graphs = None
    changes: tuple[PackageChange, ...] = ()
    parts: list[HybridPart] = []
    if changed:
        graphs = (read_graph(good), read_graph(bad))
        changes = package_changes(*graphs)
        parts += [HybridPart("package", change.name, *describe_change(change, *graphs)) for change in changes]
    good_settings = _settings_and_hints(_settings_beside_mpi(good))
    bad_settings = _settings_and_hints(_settings_beside_mpi(bad))
    parts += _differences(good_settings, bad_settings)

    def packages_of(positions: frozenset[int], *, is_built: bool) -> Stack:
        """A stack with the packages of these parts, whatever its settings."""
        exchanged = [changes[position] for position in sorted(positions) if position < len(changes)]
        if not exchanged:
            return good
        if len(exchanged) == len(changes) or graphs is None:
            return bad
        environment = _environment(system, good, graphs, exchanged)
        return environment.stack() if is_built else environment.resolved()

    def make(positions: frozenset[int], *, is_built: bool = True) -> Stack:
        base = packages_of(positions, is_built=is_built)
        if base.status == "broken":
            return base
        if base.name.startswith(_PREFIX) and good_settings == bad_settings:
            return base
        # Settings are added: those of GOOD, with the ones of these parts.
        values = {**good_settings, **_values_at(parts, positions)}
        settings, hints, _ = _document(values, ())
        digest = hashlib.sha256(repr((base.name, sorted(settings.items()), hints)).encode()).hexdigest()[:8]
        settings = _with_hints(stack_directory(system, _PREFIX + digest), settings, hints)
        return replace(base, name=_PREFIX + digest, settings={**_mpi_settings(base), **settings})

    return _source(system, ends, tuple(parts), make, lambda positions: make(positions, is_built=False))


def _changed_parts(good: Stack, bad: Stack) -> list[str]:
    """Names of the parts that differ, also by absence; sorted."""
    changed = {part.name for part in good.parts if bad.part(part.name) != part}
    changed |= {part.name for part in bad.parts if good.part(part.name) != part}
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
    return mpi_settings(next((name for name in SPACK_MPIS if stack.part(name)), ""))


def _settings_beside_mpi(stack: Stack) -> dict[str, str]:
    """Settings without those that every stack with this MPI has."""
    of_mpi = _mpi_settings(stack)
    return {name: value for name, value in stack.settings.items() if of_mpi.get(name) != value}


def _settings_beside_modules(stack: Stack) -> dict[str, str] | None:
    """Recorded settings without those that the modules themselves make."""
    script = "\n".join([*load_module_commands(stack.modules), "env -0"])
    done = machine.run_program("bash", "-c", script, timeout_s=TIMEOUT_S)
    loaded = dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    return {name: value for name, value in stack.settings.items() if loaded.get(name) != value} or None


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
    keys = dict.fromkeys([*good, *bad])
    return tuple(HybridPart(*key, good.get(key), bad.get(key)) for key in keys if good.get(key) != bad.get(key))


def _values_at(parts: Sequence[HybridPart], positions: frozenset[int]) -> _Values:
    """What BAD has for the parts at these positions."""
    return {(part.kind, part.name): part.bad for position, part in enumerate(parts) if position in positions}


def _document(values: _Values, modules: Sequence[str]) -> tuple[dict[str, str], str, Sequence[str]]:
    """Settings, text of the file of hints, and modules."""
    settings: dict[str, str] = {}
    hint_lines = []
    for (part_kind, name), value in sorted(values.items()):
        if part_kind == "setting" and value:
            settings[name] = value
        elif part_kind == "hint" and value:
            hint_lines.append(f"{name} {value}\n")
    return settings, "".join(hint_lines), modules


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
    listed_paths = {variable: list(directories) for variable, directories in paths.items()}
    text = yaml.safe_dump([[*modules], dict(settings), listed_paths, hints])
    directory = stack_directory(system, _PREFIX + hashlib.sha256(text.encode()).hexdigest()[:8])
    settings = _with_hints(directory, settings, hints)
    document: dict[str, object] = {"modules": [*modules]}
    if settings:
        document["settings"] = settings
    write_atomically(directory / MODULES_FILE, yaml.safe_dump(document, sort_keys=False))
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
