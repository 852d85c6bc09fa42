"""How ranks divide an array in a collective access, from Darshan's records of HDF5 data sets and PnetCDF variables.

A record has the lengths of the most frequent accesses in each dimension, but neither where they begin nor the shape
of the array. Where each rank begins follows from the offsets of MPI-IO, from lengths that differ, or from other arrays;
else it stays open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iowatch.darshan import log

MODULES = ("H5D", "PNETCDF_VAR")
# Darshan's: most frequent accesses, and dimensions, that a record has.
_ACCESSES, _DIMENSIONS = range(1, 5), range(1, 6)
# MPI has the dimensions of an array as int.
_MAX_LENGTH = (1 << 31) - 1

Lengths = tuple[int, ...]


@dataclass(frozen=True)
class Division:
    """The part of an array that each rank has in one collective access; the last dimension is in bytes.

    Attributes:
        ranks: n ranks in ascending order.
        shape: of the array, the slowest varying dimension first.
        starts, counts: n parts: where each begins, and its lengths.
    """

    ranks: tuple[int, ...]
    shape: Lengths
    starts: tuple[Lengths, ...]
    counts: tuple[Lengths, ...]

    @property
    def is_contiguous(self) -> bool:
        """Whether each part that is not empty is one piece of the file."""
        return all(len(pieces) < 2 for pieces, count in zip(self.pieces(), self.counts, strict=True) if all(count))

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape)

    def offsets(self) -> NDArray[np.int64]:
        """Return where each part begins in the array, in bytes."""
        return np.array(self.starts, np.int64) @ np.array(self._steps(), np.int64)

    def pieces(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return each part as nested (number, step in bytes): equal if parts with equal offsets are the same bytes."""
        return tuple(_nest(count, self._steps()) for count in self.counts)

    def _steps(self) -> list[int]:
        return [math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]


def _nest(count: Lengths, steps: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for n, step in zip(count, steps, strict=True):
        if found and found[-1][1] == n * step:
            found[-1] = (found[-1][0] * n, step)
        elif n != 1:
            found.append((n, step))
    return tuple(found)


@dataclass
class Arrays:
    """The arrays of a log.

    Attributes:
        grid: into how many parts the ranks divide the last dimensions of arrays, if the user says so.
        lengths: size of an access in bytes to its lengths in elements, and the bytes of an element.
        divided: (length, number of parts) of arrays with one dimension.
        undecided: sizes of the parts for which several divisions are possible.
        guessed: sizes of the parts of which only the sides of the array single out a division.
    """

    grid: Sequence[int] = ()
    lengths: dict[int, set[tuple[Lengths, int]]] = field(default_factory=dict)
    divided: set[tuple[int, int]] = field(default_factory=set)
    undecided: set[int] = field(default_factory=set)
    guessed: set[int] = field(default_factory=set)

    def find(self, ranks: Sequence[int], sizes: Sequence[int], offsets: Sequence[int] | None) -> Division | None:
        """Return the division of a collective access that covers one range of the file; None if it is not known.

        Args:
            ranks, sizes: n ranks, and the bytes that each moves.
            offsets: n offsets in the file; None if they are unknown.
        """
        moving = [at for at, size in enumerate(sizes) if size]
        known = [self.lengths.get(sizes[at], set()) for at in moving]
        if len(moving) < 2 or any(len(one) != 1 for one in known):
            return None
        blocks, elements = zip(*(next(iter(one)) for one in known), strict=True)
        if len({len(block) for block in blocks}) > 1 or len(set(elements)) > 1:
            return None
        found: dict[Any, tuple[Division, list[Lengths]]] = {}
        for grid in _possible_grids(blocks):
            parts = _divide(blocks, grid, elements[0])
            if max(parts.shape) <= _MAX_LENGTH and (offsets is None or _begins_at(parts, [offsets[i] for i in moving])):
                layout = tuple(parts.offsets().tolist()), parts.pieces()
                same, grids = found.get(layout, (parts, []))
                found[layout] = min(same, parts, key=lambda one: len(one.shape)), [*grids, grid]
        chosen = self._decide([*found.values()], blocks[0], max(sizes))
        return _spread(chosen, moving, ranks) if chosen else None

    def _decide(self, found: Sequence[tuple[Division, list[Lengths]]], block: Lengths, size: int) -> Division | None:
        """The only division, or the first that the user, another array, or the sides of the array single out."""
        if len(found) < 2:
            return found[0][0] if found else None
        wanted = (*(1,) * (len(block) - len(self.grid)), *self.grid)
        rules: list[Callable[[Lengths], bool]] = [
            lambda grid: grid == wanted,
            lambda grid: any(part in self.divided for part in zip(block, grid, strict=True) if part[1] > 1),
            partial(_makes_equal_sides, block),
        ]
        for rule in rules:
            chosen = [division for division, grids in found if any(map(rule, grids))]
            if len(chosen) == 1:
                if rule is rules[-1]:
                    self.guessed.add(size)
                return chosen[0]
        self.undecided.add(size)
        return None


def read_arrays(tables: Iterable[log.ModuleRecords], ranks: int, grid: Sequence[int] = ()) -> Arrays:
    """Return the arrays of a log of so many ranks.

    Args:
        tables: records of MODULES.
        grid: as in `Arrays`.
    """
    arrays = Arrays(grid)
    for table in tables:
        for row in table.integers:
            values = dict(zip(table.names[0], row.tolist(), strict=True))
            points = values.get("H5D_DATASPACE_NPOINTS", values.get("PNETCDF_VAR_NPOINTS", 0))
            for size, lengths, element in _accesses(table.module, values):
                arrays.lengths.setdefault(size, set()).add((lengths, element))
                if len(lengths) == 1 and points == ranks * lengths[0]:
                    arrays.divided.add((lengths[0], ranks))
    return arrays


def _accesses(module: str, values: dict[str, int]) -> Iterator[tuple[int, Lengths, int]]:
    """Size in bytes, lengths and bytes of an element of the frequent accesses that are a block of an array in a row."""
    ndims = values.get("H5D_DATASPACE_NDIMS", values.get("PNETCDF_VAR_NDIMS", 0))
    element = values[f"{module}_DATATYPE_SIZE"]
    if not 0 < ndims <= len(_DIMENSIONS) or any(values.get(f"H5D_CHUNK_SIZE_D{d}", 0) for d in _DIMENSIONS):
        return
    for number in _ACCESSES:
        size = values[f"{module}_ACCESS{number}_ACCESS"]
        lengths, strides = (
            [values[f"{module}_ACCESS{number}_{what}_D{d}"] for d in _DIMENSIONS] for what in ("LENGTH", "STRIDE")
        )
        # Darshan 3.4 writes the slowest dimension of HDF5 last, that of PnetCDF first; the rest is 0.
        block = [n for n in (lengths[::-1] if module == "H5D" else lengths) if n > 0]
        if size > 0 and len(block) == ndims and math.prod(block) * element == size and max(strides) <= 1:
            yield size, tuple(block), element


def _possible_grids(blocks: Sequence[Lengths]) -> Iterator[Lengths]:
    """Into how many parts each dimension can be divided so that the blocks make an array."""
    ndims, uneven = len(blocks[0]), [d for d, column in enumerate(zip(*blocks, strict=True)) if len(set(column)) > 1]
    if len(uneven) == 1:
        yield tuple(len(blocks) if d == uneven[0] else 1 for d in range(ndims))
    elif not uneven:
        parts = [n for n in range(1, len(blocks) + 1) if len(blocks) % n == 0]
        yield from (g for g in itertools.product(parts, repeat=ndims) if math.prod(g) == len(blocks))


def _divide(blocks: Sequence[Lengths], grid: Lengths, element: int) -> Division:
    """The blocks side by side: the ranks follow each other along the last dimension first, as in MPI_Cart_create."""
    counts = np.array(blocks, np.int64)
    counts[:, -1] *= element
    places = np.stack(np.unravel_index(np.arange(len(blocks)), grid), axis=1)
    # Blocks differ only where one dimension has all the parts.
    starts = np.where(np.array(grid) == len(blocks), np.cumsum(counts, axis=0) - counts, places * counts)
    return _join_whole(starts, counts, (starts + counts).max(axis=0).tolist())


def _join_whole(starts: NDArray[np.int64], counts: NDArray[np.int64], shape: list[int]) -> Division:
    """The same in fewer dimensions: one that nobody divides is a part of the one before it."""
    for d in range(len(shape) - 1, 0, -1):
        if (counts[:, d] == shape[d]).all() or shape[d - 1] == 1:
            whole = shape.pop(d)
            starts[:, d - 1] = starts[:, d - 1] * whole + starts[:, d]
            counts[:, d - 1] = (counts[:, d - 1] - 1) * whole + counts[:, d]
            shape[d - 1] *= whole
            starts, counts = np.delete(starts, d, axis=1), np.delete(counts, d, axis=1)
    ranks = tuple(range(len(counts)))
    return Division(ranks, tuple(shape), tuple(map(tuple, starts.tolist())), tuple(map(tuple, counts.tolist())))


def _spread(parts: Division, moving: Sequence[int], ranks: Sequence[int]) -> Division:
    """The division among all ranks of the access: those that move nothing have an empty part."""
    nothing = (0,) * len(parts.shape)
    starts, counts = [nothing] * len(ranks), [nothing] * len(ranks)
    for at, start, count in zip(moving, parts.starts, parts.counts, strict=True):
        starts[at], counts[at] = start, count
    return Division(tuple(ranks), parts.shape, tuple(starts), tuple(counts))


def _begins_at(parts: Division, offsets: Sequence[int]) -> bool:
    return bool((parts.offsets() == np.array(offsets) - min(offsets)).all())


def _makes_equal_sides(block: Lengths, grid: Lengths) -> bool:
    """Whether divided dimensions become as long as each other or as an undivided one, which their blocks are not."""
    sides = [n * parts for n, parts in zip(block, grid, strict=True)]
    divided = {side for side, parts in zip(sides, grid, strict=True) if parts > 1}
    return len(divided) == 1 and len({n for n, side in zip(block, sides, strict=True) if side in divided}) > 1
