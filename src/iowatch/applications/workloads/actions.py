"""Steps and repeats as actions of a description (docs/workloads.md, "Description")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from iowatch.applications.workloads import patterns, rank_expressions
from iowatch.applications.workloads.divisions import Division, Pieces
from iowatch.applications.workloads.families import Family
from iowatch.applications.workloads.patterns import NUMBER, OFFSET, SIZE, STRIDE
from iowatch.applications.workloads.streams import TRANSFERS

# Shorter runs of accesses are an action each.
_SHORTEST_LIST = 3
# Names of the turns of repeats, the outermost first.
_INDICES = "ijklmnopqrstuvwx"


@dataclass(frozen=True)
class ActionWriter:
    """Writes nodes as actions.

    Attributes:
        families: the files of the description by name.
        ranks: number of ranks of the job.
    """

    families: Mapping[str, Family]
    ranks: int

    def write(self, nodes: Sequence[patterns.Node], indices: tuple[str, ...] = ()) -> list[Any]:
        """Return the actions; `indices` are those of the repeats around, the outermost first."""
        actions: list[Any] = []
        position = 0
        while position < len(nodes):
            node = nodes[position]
            if isinstance(node, patterns.Repeat):
                actions.append(self._repeat(node, indices))
                position += 1
                continue
            run = _run_of_accesses(nodes[position:])
            if len(run) >= _SHORTEST_LIST:
                actions.append(self._list(run))
                position += len(run)
            else:
                actions.append(self._step(node, indices))
                position += 1
        return actions

    def _list(self, run: Sequence[patterns.Step]) -> dict[str, Any]:
        """Several accesses of one key and file number as one action."""
        first = run[0]
        offsets_and_sizes = [[self._value(step, OFFSET, ()), self._value(step, SIZE, ())] for step in run]
        return {first.key.verb: first.key.file, "list": offsets_and_sizes, **self._common_members(first, ())}

    def _repeat(self, node: patterns.Repeat, indices: tuple[str, ...]) -> dict[str, Any]:
        counted_action = self._counted_action(node, indices)
        if counted_action is not None:
            return counted_action
        index = _INDICES[len(indices)]
        action: dict[str, Any] = {"repeat": node.count}
        # The stride of this repeat is that before those of the repeats around it.
        position = -1 - len(indices)
        if any(step.strides[position].any() for step in node.steps):
            action["index"] = index
        action["actions"] = self.write(node.body, (*indices, index))
        return action

    def _counted_action(self, node: patterns.Repeat, indices: tuple[str, ...]) -> dict[str, Any] | None:
        """One access with `count` and `stride`; None if the repeat is more than that."""
        step = node.body[0]
        if len(node.body) > 1 or not isinstance(step, patterns.Step) or not step.key.is_row:
            return None
        moves = step.strides[0] if indices else step.strides[-1]
        if moves[[NUMBER, SIZE]].any():
            return None
        action = self._step(replace(step, strides=step.strides[1:]), indices)
        members: dict[str, Any] = {"count": node.count}
        stride = _number(rank_expressions.describe_ranks(moves[OFFSET], step.ranks))
        if stride != action["size"]:
            members["stride"] = stride
        return _insert_behind_size(action, members)

    def _step(self, step: patterns.Step, indices: tuple[str, ...]) -> Any:
        key = step.key
        if key.verb == "barrier":
            return "barrier"
        if key.verb == "compute":
            return self._pause(step)
        action: dict[str, Any] = {key.verb: key.file}
        if key.mode:
            action["mode"] = key.mode
        if key.verb in TRANSFERS:
            action |= self._place(step, indices)
        action |= self._common_members(step, indices)
        if key.scatter is None:
            return action
        count, order = key.scatter
        stride = int(step.places[STRIDE][0])
        action["offset"] = f"{action['offset']} + i * {order} % {count} * {stride}"
        return {"repeat": count, "index": "i", "actions": [action]}

    def _pause(self, step: patterns.Step) -> dict[str, Any]:
        action: dict[str, Any] = {"compute": round(step.seconds / step.times, 6)}
        ranks = rank_expressions.select_ranks(step.ranks, range(self.ranks))
        if ranks is not None:
            action["ranks"] = ranks
        return action

    def _place(self, step: patterns.Step, indices: tuple[str, ...]) -> dict[str, Any]:
        """The members that say which bytes a transfer has."""
        offset = self._value(step, OFFSET, indices)
        division = step.key.division
        if isinstance(division, Division):
            return {"offset": offset, **_array_part(division, step.ranks), **_view_member(step.key)}
        if isinstance(division, Pieces):
            return {"list": _list_of_pieces(division, step.ranks, str(offset)), "view": True}
        return {"offset": offset, "size": self._value(step, SIZE, indices), **_view_member(step.key)}

    def _common_members(self, step: patterns.Step, indices: tuple[str, ...]) -> dict[str, Any]:
        """The members that actions of all verbs may have."""
        family = self.families[step.key.file]
        members: dict[str, Any] = {}
        if step.key.collective:
            members["collective"] = True
        if step.key.short:
            members["short"] = True
        if family.is_numbered:
            members["number"] = self._value(step, NUMBER, indices)
        ranks = rank_expressions.select_ranks(step.ranks, family.members)
        if ranks is not None:
            members["ranks"] = ranks
        return members

    def _value(self, step: patterns.Step, row: int, indices: tuple[str, ...]) -> int | str:
        """The expression of a row of `Step.places`: that of the first turn, and what each repeat around it adds."""
        terms = [rank_expressions.describe_ranks(step.places[row], step.ranks)]
        # The outermost repeat is the first index and the last stride.
        for index, stride in zip(indices, reversed(step.strides), strict=True):
            factor = rank_expressions.describe_ranks(stride[row], step.ranks)
            if not _is_number(factor):
                factor = f"({factor})"
            if factor != "0":
                terms.append(f"{index} * {factor}")
        terms = [term for term in terms if term != "0"]
        return _number(" + ".join(terms) or "0")


def _run_of_accesses(nodes: Sequence[patterns.Node]) -> list[patterns.Step]:
    """The first accesses of one key and file number, which can be one list."""
    first = nodes[0]
    if not isinstance(first, patterns.Step) or first.strides:
        return []
    run: list[patterns.Step] = []
    for node in nodes:
        if not isinstance(node, patterns.Step) or not node.key.is_row:
            break
        if (node.key, node.ranks) != (first.key, first.ranks):
            break
        if not np.array_equal(node.places[NUMBER], first.places[NUMBER]):
            break
        run.append(node)
    return run


def _view_member(key: patterns.Key) -> dict[str, Any]:
    return {"view": True} if key.viewed else {}


def _is_number(expression: str) -> bool:
    return expression.lstrip("-").isdigit()


def _number(expression: str) -> int | str:
    """The number that an expression is, if it is one."""
    if _is_number(expression):
        return int(expression)
    return expression


def _array_part(division: Division, ranks: Sequence[int]) -> dict[str, Any]:
    """The members of an action that say which part of an array each rank has."""
    rows = [division.ranks.index(rank) for rank in ranks]
    return {
        "shape": list(division.shape),
        "start": _describe_dimensions(division.starts, rows, ranks),
        "count": _describe_dimensions(division.counts, rows, ranks),
    }


def _describe_dimensions(
    lengths: Sequence[Sequence[int]], rows: Sequence[int], ranks: Sequence[int]
) -> list[int | str]:
    """One expression of the rank for each dimension; `rows` are those of the ranks in the lengths of a division."""
    lengths_of_dimensions = np.array(lengths, np.int64)[rows].T
    return [_number(rank_expressions.describe_ranks(values, ranks)) for values in lengths_of_dimensions]


def _list_of_pieces(pieces: Pieces, ranks: Sequence[int], offset: str) -> list[list[int | str]]:
    """Offset and size of each piece behind an offset: expressions of the rank."""
    rows = [pieces.ranks.index(rank) for rank in ranks]
    # (ranks, pieces, start and size) -> one start and size, each of all ranks, for each piece.
    pieces_of_ranks = np.moveaxis(np.array(pieces.pieces, np.int64)[rows], 0, -1)
    described = []
    for starts, sizes in pieces_of_ranks:
        start = _add_expressions(offset, rank_expressions.describe_ranks(starts, ranks))
        described.append([start, _number(rank_expressions.describe_ranks(sizes, ranks))])
    return described


def _add_expressions(left: str, right: str) -> int | str:
    """The sum of two expressions; numbers at the beginning are added."""
    left_number, *left_terms = left.split(" + ")
    right_number, *right_terms = right.split(" + ")
    if left_number.isdigit() and right_number.isdigit():
        total = int(left_number) + int(right_number)
        return _number(" + ".join([str(total), *left_terms, *right_terms]))
    terms = [expression for expression in (left, right) if expression != "0"]
    return _number(" + ".join(terms) or "0")


def _insert_behind_size(action: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    """The action with more members behind its size, where a reader expects them."""
    extended: dict[str, Any] = {}
    for name, value in action.items():
        extended[name] = value
        if name == "size":
            extended |= members
    return extended
