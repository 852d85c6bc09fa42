"""What each rank does in order of time, as rows of TOKEN: opens, transfers, flushes, closes, barriers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from iowatch.applications.workloads.accesses import LogUse
from iowatch.applications.workloads.families import Family
from iowatch.applications.workloads.patterns import Key
from iowatch.applications.workloads.uses import ACCESS, FileUse, RankUse

# Shorter pauses are not described: they are those of the program between two calls.
PAUSE_S = 0.005
# Ranks that differ by less have done the same share of their accesses.
_SAME_SHARE = 0.01
# A pause for another open is so many times as long as the usual one.
_LONG_PAUSE = 4.0
# Fewer accesses with a stride are written one by one.
_SHORTEST_RUN = 3
# An action: the position of its key, the number of the file among those of the rank, and its place and time.
TOKEN = np.dtype(
    [
        ("key", "i4"),
        ("number", "i8"),
        ("offset", "i8"),
        ("size", "i8"),
        ("count", "i8"),
        ("stride", "i8"),
        ("start", "f8"),
        ("end", "f8"),
    ]
)
TRANSFERS = ("read", "write")
# What a rank of a file of MPI-IO can do without the others.
_INDEPENDENT_VERBS = (*TRANSFERS, "stat", "remove")


class Streams:
    """What the ranks do, in order of time.

    Attributes:
        ranks: number of ranks.
        keys: what the actions do; `key` of TOKEN is a position in it.
        losses: what is not described, as sentences.
        by_rank: rank to rows of TOKEN, what it does on its own.
        common: (actions, ranks) of TOKEN, what all ranks do at the same time: equal keys in each row.
    """

    def __init__(self, use: LogUse, families: Sequence[Family], keys: list[Key], losses: list[str]) -> None:
        self.ranks = use.ranks
        self.keys = keys
        self.losses = losses
        self._positions: dict[Key, int] = {}
        tables_of_rank: dict[int, list[NDArray[np.void]]] = {rank: [np.zeros(0, TOKEN)] for rank in range(use.ranks)}
        common_tables = [np.zeros((0, use.ranks), TOKEN)]
        for family in families:
            for file, numbers in family.files:
                streams = self._file_streams(family, file, numbers)
                if file.api == "mpiio" and len(file.ranks) == use.ranks > 1:
                    common = self._take_common(streams)
                    if common is not None:
                        common_tables.append(common)
                common_tables.append(self._barriers(file))
                for rank, rows in streams.items():
                    tables_of_rank[rank].append(rows)
        self.by_rank = {rank: in_order(np.concatenate(tables)) for rank, tables in tables_of_rank.items()}
        self.common = np.concatenate(common_tables)
        if len(self.common):
            # All ranks are there when the last one is.
            self.common = self.common[np.argsort(self.common["start"].max(axis=1), kind="stable")]

    def key_position(self, key: Key) -> int:
        """Return the position of a key in `keys`; one that is new is added."""
        if key not in self._positions:
            self._positions[key] = len(self.keys)
            self.keys.append(key)
        return self._positions[key]

    def _file_streams(self, family: Family, file: FileUse, numbers: Mapping[int, int]) -> dict[int, NDArray[np.void]]:
        """What each rank does with one file; `numbers` says which of its files of this name it is."""
        streams: dict[int, NDArray[np.void]] = {}
        # MPI-IO opens together, POSIX each rank on its own.
        groups = [[rank] for rank in file.ranks]
        if file.api == "mpiio":
            groups = [list(file.ranks)]
        for ranks in groups:
            file_of_ranks = replace(file, ranks={rank: file.ranks[rank] for rank in ranks})
            sessions = _open_sessions(file_of_ranks)
            opening_keys = [self._opening_key(family, file_of_ranks, session, sessions[0]) for session in sessions]
            flushes_of_ranks = _share_flushes(file_of_ranks, sessions)
            for rank in ranks:
                writer = _RankStream(
                    streams=self,
                    name=family.name,
                    file=file,
                    rank=rank,
                    number=numbers[rank],
                    flushes=flushes_of_ranks[rank],
                )
                streams[rank] = writer.write(sessions, opening_keys)
        return streams

    def _barriers(self, file: FileUse) -> NDArray[np.void]:
        """Barriers before ranks read what others have written, (n, ranks): a log does not say that they waited."""
        times = _barrier_times(file)
        barriers = np.zeros((len(times), self.ranks), TOKEN)
        if times:
            barriers["key"] = self.key_position(Key("barrier"))
            barriers["count"] = 1
            barriers["start"] = np.array(times)[:, None]
            barriers["end"] = barriers["start"]
        return barriers

    def _opening_key(self, family: Family, file: FileUse, session: _OpenSession, first_session: _OpenSession) -> Key:
        """How the ranks open a file for one session."""
        verbs = session.verbs
        if file.has_two_interfaces:
            # It is made once, and never removed: the other interface has data in it.
            is_given = file.is_made_by_other or family.document.get("input", False)
            is_created = session is first_session and not is_given
        elif session is first_session:
            is_written_or_mpi = verbs != {"read"} or file.api == "mpiio"
            is_created = not family.document.get("input") and is_written_or_mpi
        else:
            may_be_created = file.created or file.api == "mpiio"
            is_created = may_be_created and verbs == {"write"} and _rewrites(file, session)
        if is_created:
            return Key("create", family.name, mode="read-write" if "read" in verbs else None)
        mode = None
        if verbs == {"write"}:
            mode = "write"
        elif verbs == {"read", "write"}:
            mode = "read-write"
        return Key("open", family.name, mode=mode)

    def _take_common(self, streams: dict[int, NDArray[np.void]]) -> NDArray[np.void] | None:
        """Take what all ranks do together out of the streams of a file: (actions, ranks); None if they do not agree."""
        common = self._take_agreed(streams)
        if common is not None:
            return common
        loss = "ranks do not agree about the order of collective accesses of a file: they are replayed as independent"
        if loss not in self.losses:
            self.losses.append(loss)
        for rank, rows in streams.items():
            self._make_independent(rank, rows)
        return self._take_agreed(streams)

    def _make_independent(self, rank: int, rows: NDArray[np.void]) -> None:
        """Replace the keys of collective accesses by those of independent ones, which are bytes in a row."""
        for position, key in enumerate(list(self.keys)):
            has_key = rows["key"] == position
            if key.division is not None:
                # Its offset is that of the whole.
                rows["offset"][has_key] += key.division.bytes_before(rank)
            if has_key.any():
                independent = key._replace(collective=False, viewed=False, division=None)
                rows["key"][has_key] = self.key_position(independent)

    def _take_agreed(self, streams: dict[int, NDArray[np.void]]) -> NDArray[np.void] | None:
        """Take what only all ranks can do; None, and nothing taken, if these are not the same actions on all ranks."""
        is_common_key = np.array([key.collective or key.verb not in _INDEPENDENT_VERBS for key in self.keys], bool)
        common_of_ranks: list[NDArray[np.void]] = []
        independent_of_ranks: dict[int, NDArray[np.void]] = {}
        for rank, rows in streams.items():
            is_common = is_common_key[rows["key"]]
            common_of_ranks.append(rows[is_common])
            independent_of_ranks[rank] = rows[~is_common]
        # The same keys in the same order.
        keys_of_first = common_of_ranks[0]["key"].tobytes()
        if any(rows["key"].tobytes() != keys_of_first for rows in common_of_ranks):
            return None
        streams.update(independent_of_ranks)
        return np.stack(common_of_ranks, axis=1)


@dataclass
class _RankStream:
    """Writes what one rank does with one file.

    Attributes:
        streams: has the keys.
        name: of the file in the description.
        file: the file, with all of its ranks.
        rank: the rank.
        number: which of its files of this name it is.
        flushes: number of flushes in each session.
    """

    streams: Streams
    name: str
    file: FileUse
    rank: int
    number: int
    flushes: Sequence[int]

    def write(self, sessions: Sequence[_OpenSession], opening_keys: Sequence[Key]) -> NDArray[np.void]:
        """Return the rows of all sessions: opening, accesses, flushes, closing."""
        use = self.file.ranks[self.rank]
        is_mpiio = self.file.api == "mpiio"
        tables: list[NDArray[np.void]] = []
        clock = 0.0
        for session, opening_key, flushes in zip(sessions, opening_keys, self.flushes, strict=True):
            is_first = session is sessions[0]
            is_last = session is sessions[-1]
            start_s = max(self._opening_time(session, opening_key, is_first), clock)
            is_created_again = not is_first and opening_key.verb == "create"
            if is_created_again and self._is_synchronised and self.rank == min(self.file.ranks):
                # Deletions are not in a log. What is created again and written whole was new, or truncated.
                tables.append(self._token(Key("remove", self.name), np.nextafter(clock, np.inf), 0.0))
                start_s = max(start_s, np.nextafter(clock + 1e-9, np.inf))
            # The log has the start of the first open and the end of the last one.
            end_s = start_s
            if use.opens == 1:
                end_s = min(use.opened[1], session.start_s)
            tables.append(self._token(opening_key, start_s, end_s))

            # Flushes of POSIX are among the accesses, those of MPI-IO behind them.
            rows = session.accesses[self.rank]
            flushes_behind = flushes if is_mpiio or not len(rows) else 0
            tables.append(self._accesses(rows, flushes - flushes_behind))
            clock = max(start_s, session.end_s)
            for _ in range(flushes_behind):
                tables.append(self._token(Key("flush", self.name), clock, clock))
            # The log has the times of the last close.
            closing_end = clock
            if is_last:
                clock = max(clock, use.closed[0])
                closing_end = max(clock, use.closed[1])
            tables.append(self._token(Key("close", self.name), clock, closing_end))
        if not is_mpiio:
            for _ in range(use.stats):
                tables.append(self._token(Key("stat", self.name), clock, clock))
        return np.concatenate(tables)

    @property
    def _is_synchronised(self) -> bool:
        """Whether ranks are at the same action at the same time: not those that share a file of POSIX."""
        return len(self.file.ranks) == 1 or self.file.api == "mpiio"

    def _opening_time(self, session: _OpenSession, opening_key: Key, is_first: bool) -> float:
        """When the file is opened for a session: in the log for the first one, else just before the accesses."""
        opening_time = session.start_s
        first_open_s = self.file.ranks[self.rank].opened[0]
        # A shared record has the first open of any rank; who opens what another has created is later.
        if is_first and first_open_s and (self._is_synchronised or opening_key.verb == "create"):
            opening_time = min(first_open_s, session.start_s)
        return float(np.nextafter(opening_time, 0))

    def _token(self, key: Key, start_s: float, end_s: float) -> NDArray[np.void]:
        position = self.streams.key_position(key)
        return np.array([(position, self.number, 0, 0, 1, 0, start_s, max(start_s, end_s))], TOKEN)

    def _accesses(self, rows: NDArray[np.void], flushes: int) -> NDArray[np.void]:
        """The tokens of accesses, with so many flushes evenly among them, the rest at the end."""
        tokens = np.zeros(len(rows), TOKEN)
        for name in ("offset", "size", "count", "stride", "start", "end"):
            tokens[name] = rows[name]
        tokens["number"] = self.number
        accesses, access_of_row = np.unique(rows[["write", "collective", "division"]], return_inverse=True)
        for index, (is_write, is_collective, division) in enumerate(accesses.tolist()):
            key = self._access_key(is_write, is_collective, division)
            tokens["key"][access_of_row == index] = self.streams.key_position(key)
        if not flushes or not len(tokens):
            return _join_runs(tokens, rows["collective"])

        tables = []
        first = 0
        for end in _flush_positions(len(tokens), flushes):
            tables.append(_join_runs(tokens[first:end], rows["collective"][first:end]))
            time = float(tokens["end"][max(end - 1, 0)])
            tables.append(self._token(Key("flush", self.name), time, time))
            first = end
        return np.concatenate(tables)

    def _access_key(self, is_write: bool, is_collective: bool, division_number: int) -> Key:
        """What an access does; `division_number` is that of ACCESS."""
        division = None
        if division_number:
            division = self.file.divisions[division_number - 1]
        is_independent_read = not is_write and not is_collective
        return Key(
            verb="write" if is_write else "read",
            file=self.name,
            collective=is_collective,
            division=division,
            viewed=is_collective and self.file.has_view_per_access and division is None,
            short=is_independent_read and self.file.has_short_reads,
        )


@dataclass(frozen=True)
class _OpenSession:
    """What ranks do with a file from one opening to the closing.

    Attributes:
        accesses: rank to rows of ACCESS.
        start_s, end_s: first start and last end of the accesses of all ranks.
    """

    accesses: Mapping[int, NDArray[np.void]]
    start_s: float
    end_s: float

    @property
    def verbs(self) -> set[str]:
        """`read`, `write`, both, or none."""
        verbs = set()
        for rows in self.accesses.values():
            if rows["write"].any():
                verbs.add("write")
            if not rows["write"].all():
                verbs.add("read")
        return verbs


def _open_sessions(file: FileUse) -> list[_OpenSession]:
    """The sessions of ranks that open a file together, as many as they opened it, and one at least."""
    count = max(1, *(use.opens for use in file.ranks.values()))
    reopenings = _reopening_times(file, count)
    tables_of_rank = {rank: _split_at(use, reopenings, count) for rank, use in file.ranks.items()}
    # A session without accesses is at the end of the one before.
    clock = max(use.opened[0] for use in file.ranks.values())
    sessions: list[_OpenSession] = []
    for index in range(count):
        accesses = {rank: tables[index] for rank, tables in tables_of_rank.items()}
        starts: list[float] = []
        ends: list[float] = []
        for rows in accesses.values():
            if len(rows):
                starts.append(float(rows["start"][0]))
                ends.append(float(rows["end"].max()))
        start_s = min(starts, default=clock)
        clock = max(clock, *ends, start_s)
        sessions.append(_OpenSession(accesses, start_s, clock))
    return sessions


def _split_at(use: RankUse, times: Sequence[float], number: int) -> list[NDArray[np.void]]:
    """The accesses of a rank before, between and behind some times; so many tables, the last ones empty."""
    tables = np.split(use.accesses, np.searchsorted(use.accesses["start"], np.array(times)))
    return [*tables, *[np.zeros(0, ACCESS)] * (number - len(tables))]


def _reopening_times(file: FileUse, number: int) -> list[float]:
    """When the file is opened again: at starts of accesses behind a pause of all ranks in it.

    First where writing follows reading (or the reverse), then behind the longest pauses, much longer than the usual
    one, at which all ranks have done the same share of their accesses. All have done as many collective accesses:
    ranks that need not wait for each other are not always at the same one. Further opens are not followed by accesses.
    """
    used_tables = [use.accesses for use in file.ranks.values() if len(use.accesses)]
    if number < 2 or not used_tables:
        return []
    rows = in_order(np.concatenate(used_tables))
    pauses_s = rows["start"][1:] - np.maximum.accumulate(rows["end"])[:-1]
    usual_pause_s = 0.0
    if number <= len(pauses_s):
        usual_pause_s = float(np.median(np.maximum(pauses_s, 0.0)))

    # Candidates: each access before which no rank is in the file.
    is_candidate = pauses_s > 0
    starts = rows["start"][1:][is_candidate]
    changes_verb = (rows["write"][1:] != rows["write"][:-1])[is_candidate]
    pauses_s = pauses_s[is_candidate]

    done_shares = np.array([np.searchsorted(table["start"], starts) / len(table) for table in used_tables])
    have_same_share = np.ptp(done_shares, axis=0) < _SAME_SHARE
    done_collectives = []
    for use in file.ranks.values():
        collective_starts = use.accesses["start"][use.accesses["collective"]]
        done_collectives.append(np.searchsorted(collective_starts, starts))
    have_same_collectives = np.ptp(done_collectives, axis=0) == 0
    is_long_pause = have_same_share & (pauses_s > _LONG_PAUSE * usual_pause_s)
    is_usable = have_same_collectives & (changes_verb | is_long_pause)

    starts = starts[is_usable]
    by_preference = np.lexsort((-pauses_s[is_usable], ~changes_verb[is_usable]))
    return sorted(starts[by_preference[: number - 1]].tolist())


def _rewrites(file: FileUse, session: _OpenSession) -> bool:
    """Whether a session writes everything that the ranks ever write."""
    writes = [use.accesses[use.accesses["write"]] for use in file.ranks.values()]
    extent_of_writes = _extent(file, np.concatenate(writes))
    return extent_of_writes == _extent(file, np.concatenate(list(session.accesses.values())))


def _extent(file: FileUse, rows: NDArray[np.void]) -> tuple[int, int]:
    """First byte and end of accesses."""
    return int(rows["offset"].min()), int(file.ends(rows).max())


def _share_flushes(file: FileUse, sessions: Sequence[_OpenSession]) -> dict[int, list[int]]:
    """Rank to its flushes in each session: those that write have the same number, the last one also the remainder.

    MPI-IO flushes together, also the ranks that did not write in a session.
    """
    writing_sessions = [number for number, session in enumerate(sessions) if "write" in session.verbs]
    if not writing_sessions:
        writing_sessions = [len(sessions) - 1]
    flushes_of_ranks: dict[int, list[int]] = {}
    for rank, use in file.ranks.items():
        share, remainder = divmod(use.flushes, len(writing_sessions))
        flushes = [0] * len(sessions)
        for number in writing_sessions:
            flushes[number] = share
        flushes[writing_sessions[-1]] += remainder
        flushes_of_ranks[rank] = flushes
    return flushes_of_ranks


def _flush_positions(rows: int, flushes: int) -> list[int]:
    """Behind how many rows each flush is."""
    if flushes < rows:
        return [round((number + 1) * rows / flushes) for number in range(flushes)]
    # Behind each row as many, and the remainder behind the last one.
    per_row, remainder = divmod(flushes, rows)
    positions = list(range(1, rows + 1)) * per_row + [rows] * remainder
    return sorted(positions)


def _barrier_times(file: FileUse) -> list[float]:
    """When ranks must have waited: between the end of all writes and a read with other ranks around it."""
    tables = [use.accesses for use in file.ranks.values()]
    rows = np.concatenate(tables)
    if len(tables) < 2 or not rows["write"].any():
        return []
    ranks = np.repeat(np.array(list(file.ranks)), [len(table) for table in tables])
    order = np.argsort(rows["start"], kind="stable")
    rows, ranks = rows[order], ranks[order]
    writes_ended = np.maximum.accumulate(np.where(rows["write"], rows["end"], 0.0))
    reads_behind_writes = np.flatnonzero(rows["write"][:-1] & ~rows["write"][1:]) + 1
    times = []
    for position in reads_behind_writes.tolist():
        start_s = rows["start"][position]
        ranks_around = ranks[max(0, position - len(tables)) : position + len(tables)]
        if writes_ended[position] <= start_s and len(set(ranks_around.tolist())) > 1:
            middle_s = (writes_ended[position] + start_s) / 2
            times.append(min(np.nextafter(start_s, 0), middle_s))
    return times


def in_order(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Return rows by their start."""
    return rows[np.argsort(rows["start"], kind="stable")]


def _join_runs(rows: NDArray[np.void], collective: NDArray[np.bool_]) -> NDArray[np.void]:
    """Join three or more single accesses of one key and size, one stride apart and without a pause, into one row."""
    if len(rows) < _SHORTEST_RUN:
        return rows
    strides = np.diff(rows["offset"])
    # Whether each row, but for the first, may continue a run.
    continues = (np.diff(rows["key"]) == 0) & (np.diff(rows["size"]) == 0) & ~collective[1:]
    continues &= (rows["count"][1:] == 1) & (rows["count"][:-1] == 1)
    continues &= rows["start"][1:] - rows["end"][:-1] < PAUSE_S
    has_same_stride = continues[1:] & continues[:-1] & (strides[1:] == strides[:-1])
    # Rows that are the last of a run, whatever row it begins at.
    last_rows = np.append(np.flatnonzero(~np.concatenate([[False], has_same_stride])), len(rows) - 1)
    joined = []
    first = 0
    while first < len(rows):
        # The longest run that begins where the last one ended.
        later_end = int(np.searchsorted(last_rows, first, side="right"))
        last = int(last_rows[min(later_end, len(last_rows) - 1)])
        length = last - first + 1
        if first == len(continues) or not continues[first] or length < _SHORTEST_RUN:
            joined.append(rows[first : first + 1])
            first += 1
            continue
        run = rows[first : first + 1].copy()
        run["count"] = length
        run["stride"] = strides[first]
        run["end"] = rows["end"][last]
        joined.append(run)
        first += length
    return np.concatenate(joined)
