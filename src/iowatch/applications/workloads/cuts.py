"""The moments between phases: no rank reads or writes, and what is read or written changes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.streams import TRANSFERS, Streams, in_order
from iowatch.core import InputError, format_count

_MAX_PHASES = 32

# Verb and file of a transfer.
_Transfer = tuple[str, str]


@dataclass(frozen=True)
class _Block:
    """What happens between two moments at which no rank does anything.

    Attributes:
        start_s: when it begins.
        pause_s: time without any action before it.
        transfers: what is read and written.
    """

    start_s: float
    pause_s: float
    transfers: frozenset[_Transfer]


def choose_cuts(streams: Streams, phases: int | None) -> list[float]:
    """Return the starts of all phases but the first, in seconds, at moments at which no rank reads or writes.

    Args:
        streams: what the ranks do.
        phases: how many; None: one for each change of what is read or written.

    Raises:
        InputError: there are fewer pauses than are needed for so many phases.
    """
    blocks = _find_blocks(streams, one_per_transfer=phases is None)
    if phases is None:
        first_blocks = _blocks_with_changes(blocks)
    elif phases > max(len(blocks), 1):
        pauses = format_count(max(len(blocks) - 1, 0), "pause")
        raise InputError(f"the log has {pauses} of all ranks, too few for {phases} phases")
    else:
        first_blocks = _behind_longest_pauses(blocks[1:], phases - 1)
    return sorted(block.start_s for block in first_blocks)


def _blocks_with_changes(blocks: Sequence[_Block]) -> list[_Block]:
    """Blocks that read or write something else than the one before."""
    changed = []
    for before, block in itertools.pairwise(blocks):
        if before.transfers != block.transfers:
            changed.append(block)
    if len(changed) >= _MAX_PHASES:
        # What is repeated so often is one phase. Cuts remain where something begins for the first time or ended.
        changed = _first_and_last(blocks)
    return _behind_longest_pauses(changed, _MAX_PHASES - 1)


def _behind_longest_pauses(blocks: Sequence[_Block], number: int) -> list[_Block]:
    return sorted(blocks, key=lambda block: -block.pause_s)[:number]


def _first_and_last(blocks: Sequence[_Block]) -> list[_Block]:
    """The blocks in which something is done for the first time, or before which it was done for the last time."""
    first_of_transfer: dict[_Transfer, int] = {}
    behind_last_of_transfer: dict[_Transfer, int] = {}
    for number, block in enumerate(blocks):
        for transfer in block.transfers:
            first_of_transfer.setdefault(transfer, number)
            behind_last_of_transfer[transfer] = number + 1
    numbers = {*first_of_transfer.values(), *behind_last_of_transfer.values()}
    return [blocks[number] for number in sorted(numbers - {0, len(blocks)})]


@dataclass(frozen=True)
class _Spans:
    """Times of n actions in seconds, with the position of their key; each (n,)."""

    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    keys: NDArray[np.int32]


def _find_blocks(streams: Streams, one_per_transfer: bool) -> list[_Block]:
    """The blocks of a log with transfers.

    Args:
        streams: what the ranks do.
        one_per_transfer: whether the n-th time that the ranks read or write a file is not divided.
    """
    spans = _all_spans(streams, one_per_transfer)
    latest_ends = np.maximum.accumulate(spans.ends)
    first_actions = [0]
    if len(spans.starts):
        # A block begins after a moment at which everything before it has ended.
        begins_block = np.concatenate([[True], spans.starts[1:] > latest_ends[:-1]])
        first_actions = np.flatnonzero(begins_block).tolist()
    blocks: list[_Block] = []
    # Opens without transfers belong to the block that follows, closes to the one before.
    opened_s: float | None = None
    for first, end in itertools.pairwise([*first_actions, len(spans.starts)]):
        keys = [streams.keys[key] for key in np.unique(spans.keys[first:end])]
        transfers = frozenset((key.verb, key.file) for key in keys if key.verb in TRANSFERS)
        if not transfers:
            has_opens = any(key.verb in ("open", "create") for key in keys)
            if opened_s is None and has_opens:
                opened_s = float(spans.starts[first])
            continue
        start_s = opened_s
        if start_s is None:
            start_s = float(spans.starts[first])
        # The pause is that before the first open of the block.
        actions_before = int(np.searchsorted(spans.starts, start_s))
        pause_s = 0.0
        if actions_before:
            pause_s = start_s - float(latest_ends[actions_before - 1])
        blocks.append(_Block(start_s, pause_s, transfers))
        opened_s = None
    return blocks


def _all_spans(streams: Streams, one_per_transfer: bool) -> _Spans:
    """The times of all actions, by their start; a common action takes from its first to its last rank."""
    groups = [_Spans(rows["start"], rows["end"], rows["key"]) for rows in streams.by_rank.values()]
    common = streams.common
    if len(common):
        groups.append(_Spans(common["start"].min(axis=1), common["end"].max(axis=1), common["key"][:, 0]))
    if one_per_transfer:
        groups.append(_transfer_spans(streams))
    # All groups together, in order.
    starts = np.concatenate([spans.starts for spans in groups])
    ends = np.concatenate([spans.ends for spans in groups])
    keys = np.concatenate([spans.keys for spans in groups])
    order = np.argsort(starts, kind="stable")
    return _Spans(starts[order], ends[order], keys[order])


def _transfer_spans(streams: Streams) -> _Spans:
    """The n-th time that each rank reads (or writes) a file, from the first rank to the last.

    Ranks that do not wait for each other are not a phase each.
    """
    is_transfer = np.array([key.verb in TRANSFERS for key in streams.keys], dtype=bool)
    # Key and how often each rank has used it before, to first start and last end.
    span_of_turn: dict[tuple[int, int], tuple[float, float]] = {}
    for rank, own_rows in streams.by_rank.items():
        rows = in_order(np.concatenate([own_rows, streams.common[:, rank]]))
        rows = rows[is_transfer[rows["key"]]]
        if not len(rows):
            continue
        changes = np.flatnonzero(rows["key"][1:] != rows["key"][:-1]) + 1
        turns: Counter[int] = Counter()
        for rows_of_turn in np.split(rows, changes):
            key = int(rows_of_turn["key"][0])
            turns[key] += 1
            start_s = float(rows_of_turn["start"][0])
            end_s = float(rows_of_turn["end"].max())
            first_s, last_s = span_of_turn.get((key, turns[key]), (start_s, end_s))
            span_of_turn[key, turns[key]] = (min(first_s, start_s), max(last_s, end_s))
    times = np.array(list(span_of_turn.values())).reshape(-1, 2)
    return _Spans(times[:, 0], times[:, 1], np.array([key for key, _ in span_of_turn], np.int32))
