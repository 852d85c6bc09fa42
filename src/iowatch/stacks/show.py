"""Stacks for people: plain tables, the answer first."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from iowatch.stacks.diff import StackDiff
from iowatch.stacks.model import Part, Stack
from iowatch.tables import table
from iowatch.units import counted

_MPIS = ("openmpi", "mpich", "intel-oneapi-mpi", "cray-mpich")
_HEADLINE = (*_MPIS, "hdf5", "netcdf-c", "parallel-netcdf", "ior", "h5bench")


def _headline(stack: Stack) -> str:
    if stack.status == "broken" and stack.note:
        return stack.note
    known = (stack.part(name) for name in _HEADLINE)
    return ", ".join(f"{part.name} {part.version}" for part in known if part)


def render_list(stacks: Iterable[Stack], console: Console) -> None:
    """Print one line a stack: its main parts, or why it is broken."""
    stacks = list(stacks)
    if not stacks:
        console.print("No stacks: a retired system, or one without MPI, modules.yaml and spack.yaml.")
        return
    rows = table("stack", "kind", "state", "parts")
    for stack in stacks:
        rows.add_row(stack.name, stack.kind, stack.status, _headline(stack))
    console.print(rows)


def _origin(part: Part) -> str:
    return f"/{part.hash[:7]}" if part.hash else "–"


def render_stack(stack: Stack, console: Console) -> None:
    """Print everything that is known of a stack."""
    console.print(f"{stack.name} on {stack.system}: {stack.kind}, {stack.status}", markup=False)
    if stack.note:
        console.print(f"  {stack.note}", markup=False, soft_wrap=True)
    if stack.modules:
        console.print(f"  modules: {' '.join(stack.modules)}", markup=False)
    console.print(f"  offers: {', '.join(stack.features) or 'nothing that checks ask for'}\n", markup=False)
    rows = table("part", "version", "hash", "compiler", "target", "prefix")
    for part in stack.parts:
        facts = (part.compiler or "–", part.target or "–", part.prefix or "–")
        rows.add_row(part.name, part.version, _origin(part), *facts)
    console.print(rows)


def _differing(versions: int, others: int) -> str:
    """`1 version and 2 other facts differ`, or that nothing does."""
    named = ((versions, "version"), (others, "other fact"))
    told = " and ".join(counted(number, word) for number, word in named if number)
    return (
        f"{told} differ{'s' if versions + others == 1 else ''}"
        if told
        else "no version and no other fact differs"
    )


def render_diff(result: StackDiff, console: Console) -> None:
    """Print what differs between two stacks."""
    versions = sum(row.field == "version" for row in result.differences)
    others = len(result.differences) - versions
    console.print(
        f"{result.left} against {result.right}: {_differing(versions, others)}; "
        f"{counted(len(result.rebuilt), 'part')} only built on other parts, {result.same} the same.",
        markup=False,
        soft_wrap=True,
    )
    if result.differences:
        rows = table("part", "field", result.left, result.right)
        for row in result.differences:
            rows.add_row(row.part, row.field, row.left or "absent", row.right or "absent")
        console.print()
        console.print(rows)
    if result.rebuilt:
        console.print(f"\nBuilt on other parts: {', '.join(result.rebuilt)}", markup=False)
