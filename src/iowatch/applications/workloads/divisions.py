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
        for count in self.counts:
            for dimension in range(1, len(count)):
                is_whole_behind = count[dimension:] == self.shape[dimension:]
                is_one_row_before = math.prod(count[:dimension]) <= 1
                if not is_whole_behind and not is_one_row_before:
                    return False
        return True

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape)

    def bytes_before(self, rank: int) -> int:
        """Bytes of the parts of lower ranks."""
        total = 0
        for other_rank, count in zip(self.ranks, self.counts, strict=True):
            if other_rank < rank:
                total += math.prod(count)
        return total


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
        end = 0
        for pieces_of_rank in self.pieces:
            for start, size in pieces_of_rank:
                end = max(end, start + size)
        return end

    def bytes_before(self, rank: int) -> int:
        """Bytes of the pieces of lower ranks."""
        total = 0
        for other_rank, pieces_of_rank in zip(self.ranks, self.pieces, strict=True):
            if other_rank < rank:
                total += sum(size for _, size in pieces_of_rank)
        return total


@dataclass(frozen=True)
class _Origin:
    """One way in which a division can come about: lengths of the parts of each dimension, and bytes of an element."""

    axes: tuple[Lengths, ...]
    element_bytes: int

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
        return (*self.axes[:-1], tuple(length * self.element_bytes for length in self.axes[-1]))

    @property
    def has_equal_sides(self) -> bool:
        """Whether divided dimensions become as long as each other or as an undivided one, unlike their blocks."""
        divided_sides = {length for length, parts in zip(self.sides, self.grid, strict=True) if parts > 1}
        if len(divided_sides) != 1:
            return False
        (equal_side,) = divided_sides
        blocks = {length for length, side in zip(self.block, self.sides, strict=True) if side == equal_side}
        return len(blocks) > 1


@dataclass(frozen=True)
class _Access:
    """One collective access.

    Attributes:
        ranks: n ranks in ascending order.
        sizes: n, bytes that each moves.
        starts: where the parts that are not empty begin in the array in bytes; None if that is unknown.
    """

    ranks: Lengths
    sizes: Lengths
    starts: Lengths | None

    @property
    def moving(self) -> list[int]:
        """Positions of the ranks with a part that is not empty."""
        return [position for position, size in enumerate(self.sizes) if size]


@dataclass
class Arrays:
    """The arrays of a log.

    Attributes:
        grid: into how many parts the ranks divide the last dimensions of arrays, if the user says so.
        lengths: size of an access in bytes to its lengths in elements, with the bytes of an element.
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
    _divisions: dict[_Access, Division | None] = field(default_factory=dict)

    def find(self, ranks: Sequence[int], sizes: Sequence[int], offsets: Sequence[int] | None) -> Division | None:
        """Return the division of a collective access that covers one range of the file; None if it is not known.

        Args:
            ranks, sizes: n ranks, and the bytes that each moves.
            offsets: n offsets in the file; None if they are unknown.
        """
        # Only accesses of several ranks, of which at least one has the size of an access to an array.
        moving = [position for position, size in enumerate(sizes) if size]
        has_array_size = any(sizes[position] in self.lengths for position in moving)
        if len(moving) < 2 or not has_array_size:
            return None
        starts = None
        if offsets:
            moving_offsets = [offsets[position] for position in moving]
            first_offset = min(moving_offsets)
            starts = tuple(offset - first_offset for offset in moving_offsets)
        # The same access occurs in many turns; the search is made once.
        access = _Access(tuple(ranks), tuple(sizes), starts)
        if access not in self._divisions:
            self._divisions[access] = self._search(access)
        return self._divisions[access]

    def _search(self, access: _Access) -> Division | None:
        sizes_of_parts = np.array([access.sizes[position] for position in access.moving], np.int64)
        # Different arrays may be divided into the same bytes: these are one candidate.
        origins_of_division: dict[tuple[Lengths, ...], list[_Origin]] = {}
        for origin in self._possible_origins(sizes_of_parts):
            joined = _join_dimensions(origin.axes_in_bytes)
            if access.starts is None or np.array_equal(_part_offsets(joined), access.starts):
                origins_of_division.setdefault(joined, []).append(origin)
        axes = self._decide(origins_of_division, max(access.sizes))
        if axes is None:
            return None
        # All dimensions, where they are known: those of the memory may be longer.
        complete_axes = {origin.axes_in_bytes for origin in origins_of_division[axes]}
        if len(complete_axes) == 1:
            (only_axes,) = complete_axes
            if _fits_mpi(only_axes):
                axes = only_axes
        return _with_empty_parts(_divide(axes), access)

    def _possible_origins(self, sizes: NDArray[np.int64]) -> Iterator[_Origin]:
        """Yield each array, and its division, whose parts have these sizes.

        The ranks follow each other along the last dimension first, as in MPI_Cart_create. A length depends on the place
        in its own dimension only: the block of the first rank and the bytes of the others say all.
        """
        for block, element_bytes in sorted(self.lengths.get(int(sizes[0]), ())):
            for grid in _grids(len(sizes), len(block)):
                axes = _axes_of_grid(block, sizes.reshape(grid))
                origin = _Origin(axes, element_bytes)
                if np.array_equal(_part_sizes(origin), sizes) and self._are_blocks_known(origin):
                    yield origin

    def _are_blocks_known(self, origin: _Origin) -> bool:
        """Whether the log has accesses with the lengths of all blocks of a division."""
        different_lengths = [set(axis) for axis in origin.axes]
        for block in itertools.product(*different_lengths):
            size = math.prod(block) * origin.element_bytes
            if (block, origin.element_bytes) not in self.lengths.get(size, ()):
                return False
        return True

    def _decide(
        self, origins_of_division: Mapping[tuple[Lengths, ...], Sequence[_Origin]], size: int
    ) -> tuple[Lengths, ...] | None:
        """The only division, or the first that the user, another array, or the sides of the array single out.

        Args:
            origins_of_division: how each candidate can come about.
            size: of the largest part, for what is reported.
        """
        candidates = list(origins_of_division)
        is_guess = False
        # The most reliable rule first; each is used only as long as there are several candidates.
        rules: list[Callable[[_Origin], bool]] = [self._is_of_grid, self._is_divided, _has_equal_sides]
        for rule in rules:
            if len(candidates) > 1:
                fitting = [axes for axes in candidates if any(map(rule, origins_of_division[axes]))]
                candidates = fitting or candidates
                is_guess = rule is _has_equal_sides
        if len(candidates) > 1:
            self.undecided.add(size)
            return None
        # MPI's lengths are 32-bit numbers; an array of one dimension needs none.
        if not candidates or (len(candidates[0]) > 1 and not _fits_mpi(candidates[0])):
            self.unfit.add(size)
            return None
        axes = candidates[0]
        if is_guess:
            self.guessed.add(size)
        self.uses_grid |= any(map(self._is_of_grid, origins_of_division[axes]))
        return axes

    def _is_of_grid(self, origin: _Origin) -> bool:
        """Whether the last dimensions are divided as the user says, and the others not."""
        undivided = (1,) * (len(origin.grid) - len(self.grid))
        return origin.grid == (*undivided, *self.grid)

    def _is_divided(self, origin: _Origin) -> bool:
        """Whether an array with one dimension is divided into the same lengths and number of parts as one of these."""
        for length, parts in zip(origin.block, origin.grid, strict=True):
            # One element per rank says nothing about the dimensions of others in which each rank has one.
            if length > 1 and parts > 1 and (length, parts) in self.divided:
                return True
        return False


def _has_equal_sides(origin: _Origin) -> bool:
    return origin.has_equal_sides


def read_arrays(tables: Iterable[log.ModuleRecords], ranks: int, grid: Sequence[int] = ()) -> Arrays:
    """Return the arrays that so many ranks access collectively in a log.

    Args:
        tables: records of MODULES.
        grid: as in `Arrays`.
    """
    arrays = Arrays(grid)
    for table in tables:
        counter_names, _ = table.names
        for row in table.integers:
            counters = dict(zip(counter_names, row.tolist(), strict=True))
            if not any(counters.get(name, 0) > 0 for name in _COLLECTIVE):
                continue
            points = _first_counter(counters, "H5D_DATASPACE_NPOINTS", "PNETCDF_VAR_NPOINTS")
            for size, lengths, element_bytes in _block_accesses(table.module, counters):
                arrays.lengths.setdefault(size, set()).add((lengths, element_bytes))
                if len(lengths) == 1 and points == ranks * lengths[0]:
                    arrays.divided.add((lengths[0], ranks))
    return arrays


def _first_counter(counters: Mapping[str, int], *names: str) -> int:
    """The first of the counters that the module has; 0 if it has none."""
    for name in names:
        if name in counters:
            return counters[name]
    return 0


def _block_accesses(module: str, counters: Mapping[str, int]) -> Iterator[tuple[int, Lengths, int]]:
    """Size in bytes, lengths and bytes of an element of the frequent accesses that are a block of an array in a row."""
    dimensions = _first_counter(counters, "H5D_DATASPACE_NDIMS", "PNETCDF_VAR_NDIMS")
    element_bytes = counters[f"{module}_DATATYPE_SIZE"]
    is_chunked = any(counters.get(f"H5D_CHUNK_SIZE_D{dimension}", 0) for dimension in _DIMENSIONS)
    if is_chunked or not 0 < dimensions <= len(_DIMENSIONS):
        return
    for number in _ACCESSES:
        access = f"{module}_ACCESS{number}"
        size = counters[f"{access}_ACCESS"]
        lengths = [counters[f"{access}_LENGTH_D{dimension}"] for dimension in _DIMENSIONS]
        strides = [counters[f"{access}_STRIDE_D{dimension}"] for dimension in _DIMENSIONS]
        # Darshan 3.4 writes the slowest dimension of HDF5 last, that of PnetCDF first; the rest is 0.
        if module == "H5D":
            lengths.reverse()
        block = tuple(length for length in lengths if length > 0)
        is_whole = len(block) == dimensions and math.prod(block) * element_bytes == size
        if size > 0 and is_whole and max(strides) <= 1:
            yield size, block, element_bytes


def _grids(ranks: int, dimensions: int) -> Iterator[Lengths]:
    """Into how many parts the dimensions can be divided among so many ranks."""
    if dimensions == 1:
        yield (ranks,)
        return
    for parts in range(1, ranks + 1):
        if ranks % parts == 0:
            for other_parts in _grids(ranks // parts, dimensions - 1):
                yield (parts, *other_parts)


def _axes_of_grid(block: Lengths, sizes: NDArray[np.int64]) -> tuple[Lengths, ...]:
    """The lengths of the parts of each dimension; `sizes` are the bytes of the parts, one axis per dimension."""
    dimensions = len(block)
    axes = []
    for dimension, length in enumerate(block):
        # The first parts in all other dimensions are as long as those of the first rank.
        index = [0] * dimension + [slice(None)] + [0] * (dimensions - dimension - 1)
        lengths = sizes[tuple(index)] * length // sizes.flat[0]
        axes.append(tuple(lengths.tolist()))
    return tuple(axes)


def _part_sizes(origin: _Origin) -> NDArray[np.int64]:
    """The bytes of each part, in the order of the ranks."""
    sizes = np.array([origin.element_bytes])
    for axis in origin.axes:
        sizes = np.multiply.outer(sizes, np.array(axis)).ravel()
    return sizes


def _mesh(axes: Sequence[Sequence[int] | NDArray[np.int64]]) -> NDArray[np.int64]:
    """One row for each combination of the numbers, the last one varies fastest."""
    columns = np.meshgrid(*(np.array(axis, np.int64) for axis in axes), indexing="ij")
    return np.stack(columns, axis=-1).reshape(-1, len(axes))


def _starts(lengths: Lengths) -> NDArray[np.int64]:
    """Where each of the parts that follow each other begins."""
    return np.cumsum(lengths, dtype=np.int64) - lengths


def _part_offsets(axes: Sequence[Lengths]) -> NDArray[np.int64]:
    """Where each part begins in the array, in bytes."""
    offsets = np.zeros(1, np.int64)
    for axis in axes:
        offsets = np.add.outer(offsets * sum(axis), _starts(axis)).ravel()
    return offsets


def _join_dimensions(axes: Sequence[Lengths]) -> tuple[Lengths, ...]:
    """The same parts in as few dimensions as possible: equal if they are the same bytes.

    A dimension that nobody divides is a part of the one before it, and so is one of which each part has one row.
    """
    joined = list(axes)
    for dimension in range(len(joined) - 1, 0, -1):
        before, last = joined[dimension - 1], joined[dimension]
        if len(last) == 1:
            joined[dimension - 1 : dimension + 1] = [tuple(length * last[0] for length in before)]
        elif max(before) == 1:
            joined[dimension - 1 : dimension + 1] = [last * len(before)]
    return tuple(joined)


def _fits_mpi(axes: Sequence[Lengths]) -> bool:
    return max(map(sum, axes)) <= _MAX_LENGTH


def _divide(axes: Sequence[Lengths]) -> Division:
    """The parts side by side, one for each of as many ranks."""
    counts = _mesh(axes)
    starts = _mesh([_starts(axis) for axis in axes])
    return Division(
        ranks=tuple(range(len(counts))),
        shape=tuple(map(sum, axes)),
        starts=tuple(map(tuple, starts.tolist())),
        counts=tuple(map(tuple, counts.tolist())),
    )


def _with_empty_parts(parts: Division, access: _Access) -> Division:
    """The division among all ranks of the access: those that move nothing have an empty part."""
    empty = (0,) * len(parts.shape)
    starts = [empty] * len(access.ranks)
    counts = [empty] * len(access.ranks)
    for position, start, count in zip(access.moving, parts.starts, parts.counts, strict=True):
        starts[position] = start
        counts[position] = count
    return Division(access.ranks, parts.shape, tuple(starts), tuple(counts))
