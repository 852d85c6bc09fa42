"""What a check does about its references, so that a missing one is never a silent pass.

ReFrame skips a test whose `$ref` file is absent and exits 0, and has no reference where a class, case or metric
is absent or misspelt. The checks therefore ask here first, and fail with what is told.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from iowatch import paths
from iowatch.errors import near_miss
from iowatch.model import Scalar
from iowatch.reference.bandwidth import Entry, References, case_text, split
from iowatch.reference.words import strange

Policy = Literal["required", "optional", "none"]


@dataclass(frozen=True)
class Resolved:
    """What a check has to do.

    Attributes:
        key: the value of the check's attribute `reference_case`, which ReFrame looks up; None for no reference.
        entries: the references that hold, by performance variable.
        problems: why the check must fail; empty where all is well.
    """

    key: str | None
    entries: Mapping[str, Entry]
    problems: tuple[str, ...] = ()


def resolve(
    references: References,
    check: str,
    partition: str,
    stack: str,
    case: Mapping[str, Scalar],
    variables: Collection[str],
    policy: Policy,
    known_checks: Iterable[str] | None = None,
) -> Resolved:
    """The references of one test, after it ran and before its performance is judged.

    Args:
        references: of the system (`bandwidth.load`, which refuses a damaged file).
        check: the check's class name.
        partition: with `system:` in front.
        case: the case parameters that its results have in common.
        variables: its performance variables, `<operation>_<metric>`.
        policy: of its suite: must every variable have a reference, may it, or is there none to look for?
        known_checks: names of all check classes (`checks()`); another name in the file is a mistake.
    """
    problems = tuple(_unknown_checks(references, known_checks)) if known_checks is not None else ()
    problems += _misspelt(references, check, case, variables)
    if policy == "none":
        return Resolved(None, {}, problems)
    fitting = _fitting(references, check, partition, stack, case)
    key = max({e.case for e in fitting}, key=lambda text: (text.count(","), text), default=None)
    found = {e.variable: e for e in fitting if e.case == key}
    problems += _not_measured(found, check, variables)
    missing = _missing(references, check, stack, case, [v for v in variables if v not in found])
    return Resolved(key, found, problems + (missing if policy == "required" else ()))


def _fitting(
    references: References, check: str, partition: str, stack: str, case: Mapping[str, Scalar]
) -> list[Entry]:
    has = frozenset(case_text(case).split(","))
    place = (check, partition, stack)
    return [e for e in references.entries if (e.check, e.partition, e.stack) == place and e.parameters <= has]


def _unknown_checks(references: References, known_checks: Iterable[str]) -> Iterable[str]:
    known = sorted(known_checks)
    for name in references.checks:
        if name not in known:
            where = next(e.where for e in references.entries if e.check == name)
            yield f"{where}: no check is called '{name}'. {near_miss(name, known)}"


def _misspelt(
    references: References, check: str, case: Mapping[str, Scalar], variables: Collection[str]
) -> tuple[str, ...]:
    """Words in the check's entries that nothing has: ReFrame would find no reference, and say nothing."""
    own = [entry for entry in references.entries if entry.check == check]
    found = strange(own, case, {split(name)[0] for name in variables})
    return tuple(dict.fromkeys(f"{where}: {what}" for where, what in found))


def _not_measured(found: Mapping[str, Entry], check: str, variables: Collection[str]) -> tuple[str, ...]:
    """Entries that hold for the case, of an operation that ran, with a metric that nothing measured."""
    ran = {split(name)[0] for name in variables}
    return tuple(
        f"{entry.where}: {check} has no {name} for this case. {near_miss(name, sorted(variables))}"
        for name, entry in found.items()
        if name not in variables and entry.operation in ran
    )


def _missing(
    references: References, check: str, stack: str, case: Mapping[str, Scalar], variables: list[str]
) -> tuple[str, ...]:
    if not variables:
        return ()
    if not references.exists:
        return (f"the suite requires references, but there is no file {references.path}",)
    what = ", ".join(sorted(variables))
    return (f"{references.path}: no reference for {check} on {stack}, case {case_text(case)}: {what}",)


def checks(folder: Path | None = None) -> list[str]:
    """Names of all ReFrame checks: classes with a decorator in `reframe_tests/*.py` (read, not imported)."""
    found: list[str] = []
    for path in sorted((folder or paths.root() / "reframe_tests").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        found += [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.decorator_list]
    return found
