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

    def resolved(self, chosen: frozenset[int]) -> Stack:
        """The hybrid before it is built: parts and features, as far as they are known without."""
        if self.resolve is None or chosen in self._stacks or len(chosen) in (0, len(self.parts)):
            return self.stack(chosen)
        if chosen not in self._resolved:
            self._resolved[chosen] = self.resolve(chosen)
        return self._resolved[chosen]

    def stack(self, chosen: frozenset[int]) -> Stack:
        """GOOD with these parts of BAD; a hybrid is in `var/stacks/<system>/bisect-<digest of its content>/`."""
        if chosen not in self._stacks:
            ends = dict(zip((frozenset(), frozenset(range(len(self.parts)))), self.ends, strict=True))
            self._stacks[chosen] = ends[chosen] if chosen in ends else self.make(chosen)
        return self._stacks[chosen]


def compare_for_hybrids(system: str, good: str, bad: str) -> HybridSource:
    """Return the differences of two stacks of a system.

    Raises:
        UsageError: unknown stack; a stack is not usable; the stacks do not differ, or not in what can be exchanged.
        InputError: a `modules.yaml` is damaged.
    """
    stacks, files = [], []
    for name in (good, bad):
        known = load_stack(name, system)
        if known.status != "installed":
            raise UsageError(
                f"stack '{name}' of '{system}' cannot be run: {known.note}",
                hint=f"`iowatch stack install {name} --system {system}`, or choose another one (`iowatch stack list`).",
            )
        path = manifest_directory(system, name) / MODULES_FILE
        files += [read_model(path, ModulesFile)] if known.kind == "modules" else []
        stacks.append(known)
    if len(files) == 2:
        return _of_modules(system, (stacks[0], stacks[1]), (files[0], files[1]))
    return _of_parts(system, (stacks[0], stacks[1]))


def recorded_hybrids(system: str, good: Stack, bad: Stack) -> HybridSource:
    """Return the differences of two stacks as runs recorded them, if both can still be used.

    Raises:
        UsageError: a stack is no longer what was recorded; they do not differ, or not in what can be exchanged.
    """
    recorded = good, bad
    if {stack.kind for stack in recorded} != {"modules"}:
        recorded = recorded_files(system, good), recorded_files(system, bad)
        ends = [with_package_paths(stack) if stack.kind == "spack" else stack for stack in recorded]
        return _of_parts(system, (ends[0], ends[1]))
    files = tuple(ModulesFile(modules=[*stack.modules], settings=_own_settings(stack)) for stack in recorded)
    loaded = [describe_hybrid(system, *_document(_values(file), file.modules)) for file in files]
    for stack, found in zip(recorded, loaded, strict=True):
        require_recorded_versions(stack, found)
    return replace(_of_modules(system, (loaded[0], loaded[1]), (files[0], files[1])), good=good.name, bad=bad.name)


def _of_modules(system: str, ends: tuple[Stack, Stack], files: tuple[ModulesFile, ModulesFile]) -> HybridSource:
    good, bad = files
    parts = _differences(_values(good), _values(bad))
    if _common_order(good, bad) != _common_order(bad, good):
        parts = (*parts, HybridPart("order", "", "as in GOOD", "as in BAD"))

    def make(chosen: frozenset[int]) -> Stack:
        taken = _taken(parts, chosen)
        values = {**_values(good), **taken}
        first, second = (bad, good) if ("order", "") in taken else (good, bad)
        order = _merge_orders(*(_module_names(file.modules) for file in (first, second)))
        modules = [value for name in order if (value := values.get(("module", name)))]
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
    changed = {part.name for one, other in (ends, ends[::-1]) for part in one.parts if other.part(part.name) != part}
    kinds = {stack.kind for stack in ends}
    if (changed and kinds != {"spack"}) or "modules" in kinds:
        why = f"{', '.join(sorted(changed))} cannot be exchanged alone" if changed else "they are of different kinds"
        raise UsageError(
            f"'{good.name}' ({good.kind}) and '{bad.name}' ({bad.kind}) of '{system}' have no parts to exchange: {why}",
            hint=f"`iowatch stack diff {good.name} {bad.name}` shows the differences, `iowatch run --ab {good.name} "
            f"{bad.name}` whether they matter.",
        )
    graphs = (read_graph(good), read_graph(bad)) if changed else None
    changes = package_changes(*graphs) if graphs else ()
    packages = tuple(HybridPart("package", one.name, *describe_change(one, *graphs)) for one in changes if graphs)
    old, new = (_settings_and_hints(_chosen_settings(stack)) for stack in ends)
    parts = (*packages, *_differences(old, new))

    def make(chosen: frozenset[int], *, built: bool = True) -> Stack:
        taken = [changes[place] for place in sorted(chosen) if place < len(changes)]
        base = good if not taken else bad if len(taken) == len(changes) else None
        if base is None and graphs:
            environment = _environment(system, good, graphs, taken)
            base = environment.stack() if built else environment.resolved()
        assert base is not None
        if base.status == "broken":
            return base
        if base.name.startswith(_PREFIX) and old == new:
            return base
        values = {**old, **{(part.kind, part.name): part.bad for place, part in enumerate(parts) if place in chosen}}
        names, hints, _ = _document({key: value for key, value in values.items() if key[0] != "package"}, ())
        digest = hashlib.sha256(repr((base.name, sorted(names.items()), hints)).encode()).hexdigest()[:8]
        set_values = _with_hints(stack_directory(system, _PREFIX + digest), names, hints)
        return replace(base, name=_PREFIX + digest, settings={**_mpi_settings(base), **set_values})

    return _source(system, ends, parts, make, lambda chosen: make(chosen, built=False))


def _environment(
    system: str, good: Stack, graphs: tuple[SpackGraph, SpackGraph], taken: Sequence[PackageChange]
) -> SpackEnvironment:
    """GOOD with these packages of BAD, for Spack to resolve and build."""
    shared = stack_directory(system, good.name) / "env" / "spack.yaml"
    own = read_mapping(shared)["spack"].get("include", []) if shared.is_file() else [spack_settings_file()]
    document = hybrid_environment(*graphs, taken, [str(path) for path in own])
    digest = content_digest(document, [Path(path) for path in own])
    return SpackEnvironment(system, f"{_PREFIX}{digest}", lambda target: write_environment(target, document))


def _mpi_settings(stack: Stack) -> dict[str, str]:
    return mpi_settings(next((name for name in SPACK_MPIS if stack.part(name)), ""))


def _chosen_settings(stack: Stack) -> dict[str, str]:
    """Settings without those that every stack with this MPI has."""
    own = _mpi_settings(stack)
    return {name: value for name, value in stack.settings.items() if own.get(name) != value}


def _own_settings(stack: Stack) -> dict[str, str] | None:
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


def _taken(parts: Sequence[HybridPart], chosen: frozenset[int]) -> _Values:
    return {(part.kind, part.name): part.bad for place, part in enumerate(parts) if place in chosen}


def _document(values: _Values, modules: Sequence[str]) -> tuple[dict[str, str], str, Sequence[str]]:
    """Settings, text of the file of hints, and modules."""
    settings = {name: value for (kind, name), value in sorted(values.items()) if kind == "setting" and value}
    hints = "".join(f"{n} {value}\n" for (kind, n), value in sorted(values.items()) if kind == "hint" and value)
    return settings, hints, modules


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
    text = yaml.safe_dump([[*modules], dict(settings), {name: [*found] for name, found in paths.items()}, hints])
    directory = stack_directory(system, _PREFIX + hashlib.sha256(text.encode()).hexdigest()[:8])
    settings = _with_hints(directory, settings, hints)
    document = {"modules": [*modules], **({"settings": settings} if settings else {})}
    write_atomically(directory / MODULES_FILE, yaml.safe_dump(document, sort_keys=False))
    programs = (*paths.get("PATH", ()), *load_system(system).programs)
    if not paths:
        return load_module_stack(system, directory / MODULES_FILE, programs)
    return describe_loaded_stack(system, directory.name, tuple(modules), settings, {**paths, "PATH": programs})


def _module_names(modules: Sequence[str]) -> dict[str, str]:
    """Modules by their name without the version; by all of it if a stack loads two of that name."""
    short = {module.rpartition("/")[0] or module: module for module in modules}
    return short if len(short) == len(modules) else {module: module for module in modules}


def _values(file: ModulesFile) -> _Values:
    """Modules, settings, and hints of the file that `ROMIO_HINTS` names, as far as it can be read."""
    modules: _Values = {("module", name): value for name, value in _module_names(file.modules).items()}
    return modules | _settings_and_hints(file.settings or {})


def _settings_and_hints(settings: Mapping[str, str]) -> _Values:
    hints = _read_hints(settings.get(_HINTS_VARIABLE))
    found: _Values = {
        ("setting", name): value for name, value in settings.items() if hints is None or name != _HINTS_VARIABLE
    }
    return found | {("hint", name): value for name, value in (hints or {}).items()}


def _read_hints(path: str | None) -> Mapping[str, str] | None:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines() if path else []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{_HINTS_VARIABLE}: cannot read {path}: {error}", hint="Correct modules.yaml.") from error
    return {found[1]: found[2] for line in lines if (found := _HINT_LINE.fullmatch(line))} if path else None


def _common_order(file: ModulesFile, other: ModulesFile) -> list[str]:
    known = _module_names(other.modules)
    return [name for name in _module_names(file.modules) if name in known]


def _merge_orders(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Names of both in the order of the first; a name that only the second has is where the second has it."""
    one, other = [*first], [*second]
    merged: list[str] = []
    for _, start, end, start_other, end_other in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        merged += one[start:end] + [name for name in other[start_other:end_other] if name not in first]
    return merged
