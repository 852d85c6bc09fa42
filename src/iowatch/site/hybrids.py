"""Hybrids of two stacks of modules: one stack with some of the parts in which the other differs (docs/bisect.md)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

import yaml

from iowatch.core import InputError, UsageError, write_atomically
from iowatch.core.yamlfile import read_model
from iowatch.site.stack import Stack, stack_directory
from iowatch.site.stacks import MODULES_FILE, ModulesFile, load_module_stack, load_stack, manifest_directory
from iowatch.site.system import load_system

PartKind = Literal["module", "order", "setting", "hint"]
_PartKey = tuple[PartKind, str]
_HINTS_VARIABLE = "ROMIO_HINTS"
_HINT_LINE = re.compile(r"\s*(\S+)\s+(\S.*?)\s*")
HYBRID_PREFIX = "bisect-"


@dataclass(frozen=True, slots=True)
class HybridPart:
    """One difference of two stacks that a hybrid can take over; None where that stack does not have it.

    Attributes:
        kind: a module, the order of modules, an environment variable, or an MPI-IO hint of the file that
            `ROMIO_HINTS` names.
        name: of the module without its version, of the variable or of the hint.
    """

    kind: PartKind
    name: str
    good: str | None
    bad: str | None

    def __str__(self) -> str:
        if self.kind == "order":
            return "order of the modules"
        return f"{self.kind} {self.name}: {self.good or 'none'} → {self.bad or 'none'}"


@dataclass(frozen=True)
class HybridSource:
    """Two stacks of modules, and their hybrids.

    Attributes:
        good, bad: names of the stacks.
        parts: their differences; hybrids are sets of positions in this tuple.
    """

    system: str
    good: str
    bad: str
    parts: tuple[HybridPart, ...]
    _good: ModulesFile
    _bad: ModulesFile
    _stacks: dict[frozenset[int], Stack] = field(default_factory=dict)

    def stack(self, chosen: frozenset[int]) -> Stack:
        """GOOD with these parts of BAD, described as it is loaded; broken, with the reason, if it cannot be used.

        The files of a hybrid are in `var/stacks/<system>/bisect-<digest of its content>/`.
        """
        if chosen not in self._stacks:
            ends = {frozenset(): self.good, frozenset(range(len(self.parts))): self.bad}
            self._stacks[chosen] = load_stack(ends[chosen], self.system) if chosen in ends else self._make(chosen)
        return self._stacks[chosen]

    def _make(self, chosen: frozenset[int]) -> Stack:
        taken: dict[_PartKey, str | None] = {
            (part.kind, part.name): part.bad for place, part in enumerate(self.parts) if place in chosen
        }
        values = {**_values(self._good), **taken}
        first, second = (self._bad, self._good) if ("order", "") in taken else (self._good, self._bad)
        order = _merge_orders(*(_module_names(file.modules) for file in (first, second)))
        modules = [value for name in order if (value := values.get(("module", name)))]
        settings = {name: value for (kind, name), value in sorted(values.items()) if kind == "setting" and value}
        hints = "".join(f"{n} {value}\n" for (kind, n), value in sorted(values.items()) if kind == "hint" and value)
        text = yaml.safe_dump({"modules": modules, **({"settings": settings} if settings else {})}, sort_keys=False)
        name = HYBRID_PREFIX + hashlib.sha256(f"{text}{hints}".encode()).hexdigest()[:8]
        empty = Stack(name, self.system, "modules", "broken", (), note="it has no modules")
        return self._describe(stack_directory(self.system, name), settings, modules, hints) if modules else empty

    def _describe(self, directory: Path, settings: dict[str, str], modules: Sequence[str], hints: str) -> Stack:
        if hints:
            write_atomically(directory / "romio_hints", hints)
            settings = {**settings, _HINTS_VARIABLE: str(directory / "romio_hints")}
        document = {"modules": [*modules], **({"settings": settings} if settings else {})}
        write_atomically(directory / MODULES_FILE, yaml.safe_dump(document, sort_keys=False))
        return load_module_stack(self.system, directory / MODULES_FILE, load_system(self.system).programs)


def compare_for_hybrids(system: str, good: str, bad: str) -> HybridSource:
    """Return the differences of two stacks of modules.

    Raises:
        UsageError: unknown stack; a stack is not of modules, or not usable; the stacks do not differ.
        InputError: a `modules.yaml` is damaged.
    """
    files = []
    for name in (good, bad):
        known = load_stack(name, system)
        path = manifest_directory(system, name) / MODULES_FILE
        if known.status != "installed":
            raise UsageError(f"stack '{name}' of '{system}' cannot be run: {known.note}")
        if known.kind != "modules" or not path.is_file():
            raise UsageError(
                f"stack '{name}' of '{system}' is not a stack of modules ({known.kind}): it has no parts to exchange",
                hint=f"`iowatch stack diff {good} {bad}` shows the differences, `iowatch run --ab {good} {bad}` "
                "whether they matter.",
            )
        files.append(read_model(path, ModulesFile))
    one, other = (_values(file) for file in files)
    parts = [
        HybridPart(*key, one.get(key), other.get(key))
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key)
    ]
    if _common_order(*files) != _common_order(*reversed(files)):
        parts.append(HybridPart("order", "", "as in GOOD", "as in BAD"))
    if not parts:
        raise UsageError(
            f"the stacks '{good}' and '{bad}' of '{system}' do not differ: the same modules and settings",
            hint="`iowatch stack list` shows the stacks of a system.",
        )
    return HybridSource(system, good, bad, tuple(parts), files[0], files[1])


def _module_names(modules: Sequence[str]) -> dict[str, str]:
    """Modules by their name without the version; by all of it if a stack loads two of that name."""
    short = {module.rpartition("/")[0] or module: module for module in modules}
    return short if len(short) == len(modules) else {module: module for module in modules}


def _values(file: ModulesFile) -> dict[_PartKey, str | None]:
    """Modules, settings, and hints of the file that `ROMIO_HINTS` names, as far as it can be read."""
    settings = dict(file.settings or {})
    hints = _read_hints(settings.get(_HINTS_VARIABLE))
    if hints is not None:
        del settings[_HINTS_VARIABLE]
    found: dict[_PartKey, str | None] = {("module", name): value for name, value in _module_names(file.modules).items()}
    found |= {("setting", name): value for name, value in settings.items()}
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
