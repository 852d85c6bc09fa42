"""How ranks divide an array in a collective access, from Darshan's records of HDF5 data sets and PnetCDF variables.

A record has the lengths of the most frequent accesses in each dimension, but neither where they begin nor the shape
of the array. Where each rank begins follows from the offsets of MPI-IO, from lengths that differ, or from other arrays;
else it stays open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from iowatch.darshan import log

MODULES = ("H5D", "PNETCDF_VAR")
# Darshan's: most frequent accesses, and dimensions, that a record has.
_ACCESSES, _DIMENSIONS = range(1, 5), range(1, 6)
# Counters of a record of which one at least is more than 0 if the ranks accessed it together.
_COLLECTIVE = ("H5D_USE_MPIIO_COLLECTIVE", "PNETCDF_VAR_COLL_READS", "PNETCDF_VAR_COLL_WRITES")
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
        """Whether each part is one piece of the file: whole in all dimensions behind the first in which it has more."""
        return all(
            count[d + 1 :] == self.shape[d + 1 :] or math.prod(count[: d + 1]) <= 1
            for count in self.counts
            for d in range(len(count) - 1)
        )

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape)

    def bytes_before(self, rank: int) -> int:
        """Bytes of the parts of lower ranks."""
        return sum(math.prod(count) for own, count in zip(self.ranks, self.counts, strict=True) if own < rank)


@dataclass(frozen=True)
class Pieces:
    """Where the bytes of each rank lie in one collective access that has several pieces of the file (a file view).

    Attributes:
        ranks: n ranks in ascending order.
        pieces: n times (start, size), in the order of the file and equally many of each rank.
    """

    ranks: tuple[int, ...]
    pieces: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def size(self) -> int:
        """Bytes from the beginning to the end of the last piece."""
        return max(start + size for own in self.pieces for start, size in own)

    def bytes_before(self, rank: int) -> int:
        """Bytes of the pieces of lower ranks."""
        return sum(
            size for own, pieces in zip(self.ranks, self.pieces, strict=True) if own < rank for _, size in pieces
        )


class _Origin(NamedTuple):
    """One way in which a division can come about: lengths of the parts of each dimension, and bytes of an element."""

    axes: tuple[Lengths, ...]
    element: int

    @property
    def grid(self) -> Lengths:
        """Parts per dimension."""
        return tuple(map(len, self.axes))

    @property
    def block(self) -> Lengths:
        """Lengths of the first part in elements."""
        return tuple(axis[0] for axis in self.axes)

    @property
    def sides(self) -> Lengths:
        """Lengths of the array in elements."""
        return tuple(map(sum, self.axes))

    @property
    def axes_in_bytes(self) -> tuple[Lengths, ...]:
        """Lengths of the parts, those of the last dimension in bytes."""
        return (*self.axes[:-1], tuple(n * self.element for n in self.axes[-1]))


@dataclass
class Arrays:
    """The arrays of a log.

    Attributes:
        grid: into how many parts the ranks divide the last dimensions of arrays, if the user says so.
        lengths: size of an access in bytes to its lengths in elements, and the bytes of an element.
        divided: (length, number of parts) of arrays with one dimension.
        undecided: sizes of the parts for which several divisions are possible.
        guessed: sizes of the parts of which only the sides of the array single out a division.
        unfit: sizes of the parts for which no division is possible.
        uses_grid: whether a division is that of `grid`.
    """

    grid: Sequence[int] = ()
    lengths: dict[int, set[tuple[Lengths, int]]] = field(default_factory=dict)
    divided: set[tuple[int, int]] = field(default_factory=set)
    undecided: set[int] = field(default_factory=set)
    guessed: set[int] = field(default_factory=set)
    unfit: set[int] = field(default_factory=set)
    uses_grid: bool = False
    _found: dict[tuple[Lengths, Lengths, Lengths | None], Division | None] = field(default_factory=dict)

    def find(self, ranks: Sequence[int], sizes: Sequence[int], offsets: Sequence[int] | None) -> Division | None:
        """Return the division of a collective access that covers one range of the file; None if it is not known.

        Args:
            ranks, sizes: n ranks, and the bytes that each moves.
            offsets: n offsets in the file; None if they are unknown.
        """
        moving = [at for at, size in enumerate(sizes) if size]
        if len(moving) < 2 or not any(sizes[at] in self.lengths for at in moving):
            return None
        first = min(offsets[at] for at in moving) if offsets else 0
        begins = tuple(offsets[at] - first for at in moving) if offsets else None
        access = tuple(ranks), tuple(sizes), begins
        if access not in self._found:
            self._found[access] = self._search(*access)
        return self._found[access]

    def _search(self, ranks: Lengths, sizes: Lengths, begins: Lengths | None) -> Division | None:
        """The division of an access whose parts that are not empty begin at these offsets in the array."""
        moving = [at for at, size in enumerate(sizes) if size]
        moved = np.array([sizes[at] for at in moving], np.int64)
        found: dict[tuple[Lengths, ...], list[_Origin]] = {}
        for axes, element in self._possible_axes(moved):
            origin = _Origin(axes, element)
            joined = _join(origin.axes_in_bytes)
            if begins is None or np.array_equal(_offsets(joined), begins):
                found.setdefault(joined, []).append(origin)
        chosen = self._decide(found, max(sizes))
        if chosen is None:
            return None
        # All dimensions, where they are known: those of the memory may be longer.
        first, *others = {origin.axes_in_bytes for origin in found[chosen]}
        return _spread(_divide(chosen if others or not _fits_mpi(first) else first), moving, ranks)

    def _possible_axes(self, moved: NDArray[np.int64]) -> Iterator[tuple[tuple[Lengths, ...], int]]:
        """The lengths of the parts of each dimension, and the bytes of an element, for each array that fits.

        The ranks follow each other along the last dimension first, as in MPI_Cart_create. A length depends on the place
        in its own dimension only: the block of the first rank and the bytes of the others say all.
        """
        for block, element in sorted(self.lengths.get(int(moved[0]), ())):
            for grid in _grids(len(moved), len(block)):
                table, axes, parts = moved.reshape(grid), list[Lengths](), np.array([element])
                for d, n in enumerate(block):
                    axis = table[(0,) * d + (slice(None),) + (0,) * (len(block) - d - 1)] * n // moved[0]
                    axes.append(tuple(axis.tolist()))
                    parts = np.multiply.outer(parts, axis).ravel()
                blocks = itertools.product(*map(set, axes))
                if np.array_equal(parts, moved) and all(
                    (one, element) in self.lengths.get(math.prod(one) * element, ()) for one in blocks
                ):
                    yield tuple(axes), element

    def _decide(self, found: Mapping[tuple[Lengths, ...], Sequence[_Origin]], size: int) -> tuple[Lengths, ...] | None:
        """The only division, or the first that the user, another array, or the sides of the array single out."""
        left, guess = [*found], False
        rules: list[Callable[[_Origin], bool]] = [self._is_wanted, self._is_divided, _has_equal_sides]
        for rule in rules:
            if len(left) > 1:
                left = [axes for axes in left if any(map(rule, found[axes]))] or left
                guess = rule is rules[-1]
        if len(left) > 1:
            self.undecided.add(size)
            return None
        if not left or (len(left[0]) > 1 and not _fits_mpi(left[0])):
            self.unfit.add(size)
            return None
        if guess:
            self.guessed.add(size)
        self.uses_grid |= any(map(self._is_wanted, found[left[0]]))
        return left[0]

    def _is_wanted(self, origin: _Origin) -> bool:
        return origin.grid == (*(1,) * (len(origin.grid) - len(self.grid)), *self.grid)

    def _is_divided(self, origin: _Origin) -> bool:
        parts = zip(origin.block, origin.grid, strict=True)
        # One element per rank says nothing about the dimensions of others in which each rank has one.
        return any(n > 1 and places > 1 and (n, places) in self.divided for n, places in parts)


def read_arrays(tables: Iterable[log.ModuleRecords], ranks: int, grid: Sequence[int] = ()) -> Arrays:
    """Return the arrays that so many ranks access collectively in a log.

    Args:
        tables: records of MODULES.
        grid: as in `Arrays`.
    """
    arrays = Arrays(grid)
    for table in tables:
        for row in table.integers:
            values = dict(zip(table.names[0], row.tolist(), strict=True))
            if not any(values.get(name, 0) > 0 for name in _COLLECTIVE):
                continue
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


def _grids(ranks: int, ndims: int) -> Iterator[Lengths]:
    """Into how many parts the dimensions can be divided among so many ranks."""
    if ndims == 1:
        yield (ranks,)
        return
    for n in range(1, ranks + 1):
        if ranks % n == 0:
            yield from ((n, *rest) for rest in _grids(ranks // n, ndims - 1))


def _mesh(axes: Sequence[Sequence[int] | NDArray[np.int64]]) -> NDArray[np.int64]:
    """One row for each combination of the numbers, the last one varies fastest."""
    columns = np.meshgrid(*(np.array(axis, np.int64) for axis in axes), indexing="ij")
    return np.stack(columns, axis=-1).reshape(-1, len(axes))


def _offsets(axes: Sequence[Lengths]) -> NDArray[np.int64]:
    """Where each part begins in the array, in bytes."""
    found = np.zeros(1, np.int64)
    for axis in axes:
        found = np.add.outer(found * sum(axis), np.cumsum(axis, dtype=np.int64) - axis).ravel()
    return found


def _join(axes: Sequence[Lengths]) -> tuple[Lengths, ...]:
    """The same parts in as few dimensions as possible: equal if they are the same bytes.

    A dimension that nobody divides is a part of the one before it, and so is one of which each part has one row.
    """
    out = [*axes]
    for d in range(len(out) - 1, 0, -1):
        before, last = out[d - 1 : d + 1]
        if len(last) == 1:
            out[d - 1 : d + 1] = [tuple(n * last[0] for n in before)]
        elif max(before) == 1:
            out[d - 1 : d + 1] = [last * len(before)]
    return tuple(out)


def _fits_mpi(axes: Sequence[Lengths]) -> bool:
    return max(map(sum, axes)) <= _MAX_LENGTH


def _divide(axes: Sequence[Lengths]) -> Division:
    """The parts side by side."""
    counts, starts = _mesh(axes), _mesh([np.cumsum(axis, dtype=np.int64) - axis for axis in axes])
    shape = tuple(map(sum, axes))
    return Division(
        tuple(range(len(counts))), shape, tuple(map(tuple, starts.tolist())), tuple(map(tuple, counts.tolist()))
    )


def _spread(parts: Division, moving: Sequence[int], ranks: Sequence[int]) -> Division:
    """The division among all ranks of the access: those that move nothing have an empty part."""
    nothing = (0,) * len(parts.shape)
    starts, counts = [nothing] * len(ranks), [nothing] * len(ranks)
    for at, start, count in zip(moving, parts.starts, parts.counts, strict=True):
        starts[at], counts[at] = start, count
    return Division(tuple(ranks), parts.shape, tuple(starts), tuple(counts))


def _has_equal_sides(origin: _Origin) -> bool:
    """Whether divided dimensions become as long as each other or as an undivided one, which their blocks are not."""
    divided = {side for side, parts in zip(origin.sides, origin.grid, strict=True) if parts > 1}
    return (
        len(divided) == 1
        and len({n for n, side in zip(origin.block, origin.sides, strict=True) if side in divided}) > 1
    )
