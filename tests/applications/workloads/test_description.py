"""Descriptions of workloads from Darshan logs (docs/workloads.md, "From a Darshan log")."""

from __future__ import annotations

import itertools
import json
import math
import operator
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from click.testing import Result

from iowatch.applications.workloads.description import describe_log
from iowatch.applications.workloads.divisions import Arrays
from iowatch.applications.workloads.profile import profile_log
from iowatch.applications.workloads.rank_expressions import describe_ranks
from iowatch.benchmarks.workloads import Operation, Workload, data_bytes, evaluate, file_count, format_description
from iowatch.core import InputError
from iowatch.darshan import DarshanReader
from iowatch.darshan.summary import summarise_log
from tests.conftest import ROOT
from tests.datasets import DATA

MakeLog = Callable[..., Path]
Access = tuple[float, ...]
SCHEMA = json.loads((ROOT / "benchmarks" / "benchio" / "schema" / "workload.json").read_text())


def describe_workload(
    log: Path, reader: DarshanReader, phases: int | None = None, grid: Sequence[int] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The description and the losses of a log."""
    answer = reader.call(describe_log, log, name="traced", phases=phases, grid=list(grid))
    return answer["description"], answer["losses"]


def describe(log: Path, reader: DarshanReader, phases: int | None = None) -> tuple[Workload, list[str]]:
    """The description as benchio reads it: written as text, valid against the schema."""
    document, losses = describe_workload(log, reader, phases=phases)
    read = yaml.safe_load(format_description(document))
    jsonschema.validate(read, SCHEMA)
    return Workload(read, ranks=read["parameters"]["traced_ranks"]), losses


def operations(workload: Workload, rank: int) -> list[Operation]:
    return [one for phase in range(len(workload.phases)) for one in workload.operations(phase, rank)]


def accesses(workload: Workload, rank: int) -> list[tuple[str, str, int, int]]:
    found = operations(workload, rank)
    return [(o.verb, o.file, o.offset, o.size) for o in found if o.verb in ("read", "write")]


def written(path: str, rank: int, places: Sequence[tuple[int, int]], start: float = 1.0) -> dict[str, Any]:
    """A file that one rank creates and writes at (offset, size), one per millisecond."""
    rows = [(offset, size, start + i / 1000, start + i / 1000 + 0.0005) for i, (offset, size) in enumerate(places)]
    counters = {"POSIX_OPENS": 1, "POSIX_WRITES": len(rows), "POSIX_MODE": 0o644}
    return {"posix": [(path, rank, counters)], "dxt": [(path, rank, rows, [])]}


def joined(*parts: dict[str, Any]) -> dict[str, Any]:
    return {key: [row for part in parts for row in part[key]] for key in ("posix", "dxt")}


@pytest.mark.parametrize("name", ["counted", "posix", "mpiio", "mpiio_dxt", "hdf5"])
def test_description_has_the_operations_that_the_log_counted(name: str, reader: DarshanReader) -> None:
    """Compared with Darshan's counters of the real runs of tests/data/PROVENANCE.md, with DXT and without."""
    log = DATA / "darshan" / f"{name}.darshan"
    workload, losses = describe(log, reader)
    assert any("no DXT" in loss for loss in losses) == (name != "mpiio_dxt")
    counters = reader.call(summarise_log, log)["modules"]
    found: Counter[str] = Counter()
    for rank in range(workload.ranks):
        for one in operations(workload, rank):
            if one.verb in ("read", "write"):
                layer = "MPIIO" if workload.document["files"][one.file]["api"] == "mpiio" else "POSIX"
                found[f"{layer}_{'COLL_' * one.collective}{one.verb.upper()}S"] += 1
                found[f"{layer}_BYTES_{'WRITTEN' if one.verb == 'write' else 'READ'}"] += one.size
    if "MPI-IO" in counters:
        parallel = counters["MPI-IO"]
        for counter in ("MPIIO_COLL_WRITES", "MPIIO_COLL_READS", "MPIIO_BYTES_WRITTEN", "MPIIO_BYTES_READ"):
            assert found[counter] == parallel[counter], counter
        assert found["MPIIO_WRITES"] == parallel["MPIIO_INDEP_WRITES"]
    else:
        for counter in ("POSIX_WRITES", "POSIX_READS", "POSIX_BYTES_WRITTEN", "POSIX_BYTES_READ"):
            assert found[counter] == counters["POSIX"][counter], counter


def test_program_with_known_operations_is_described_exactly(reader: DarshanReader) -> None:
    """The operations are those of tests/data/darshan/counted.c."""
    workload, losses = describe(DATA / "darshan" / "counted_dxt.darshan", reader)
    assert ["offsets of MPI-IO accesses are not in the log" in loss for loss in losses] == [True]
    for rank in range(3):
        shared = [(o.verb, o.offset, o.size, o.collective) for o in operations(workload, rank) if o.file == "file2"]
        together = [("write", 4096 * (i * 3 + rank), 4096, True) for i in range(5)]
        alone = [("write", 4096 * (15 + i), 4096, False) for i in range(2)] if rank == 0 else []
        assert shared == [("create", 0, 0, False), *together, *alone, ("close", 0, 0, False)]
        own = [(o.verb, o.offset, o.size) for o in operations(workload, rank) if o.file == "file1"]
        writes = [("write", 3000 * i, 3000) for i in range(rank + 1)]
        assert own == [("create", 0, 0), *writes, ("read", 0, 500), ("flush", 0, 0), ("close", 0, 0)]


def test_nested_blocks_of_all_ranks_become_one_repeat(make_log: MakeLog, reader: DarshanReader) -> None:
    """Six rows of four records; each rank has a column of its own: linear in both repeats and in the rank."""
    places = {rank: [(i * 1000 + rank * 100 + j * 10, 10) for i in range(6) for j in range(4)] for rank in range(4)}
    log = make_log(**joined(*(written("/lus/a", rank, places[rank]) for rank in range(4))))
    workload, losses = describe(log, reader)
    assert losses == []
    assert workload.document["files"] == {"file1": {"api": "posix", "bytes": 5340}}
    (phase,) = workload.document["phases"]
    inner = {"write": "file1", "offset": "100 * rank + i * 1000", "size": 10, "count": 4}
    assert phase["actions"] == [
        {"create": "file1"},
        {"repeat": 6, "index": "i", "actions": [inner]},
        {"close": "file1"},
    ]


@pytest.mark.parametrize(
    "offsets",
    [
        [lambda rank: 7, "7"],
        [lambda rank: (rank + 1) % 4 * 64, "64 * ((rank + 1) % 4)"],
        [lambda rank: rank % 2 * 10 + rank // 2 * 500, "10 * (rank % 2) + 500 * (rank / 2)"],
        [lambda rank: 10 * rank + min(rank, 2), "10 * rank + min(rank, 2)"],
        [lambda rank: 7 if rank < 3 else 5, "5 + 2 * (rank < 3)"],
        [lambda rank: [0, 5, 50, 3][rank], "(rank == 1) * 5 + (rank == 2) * 50 + (rank == 3) * 3"],
    ],
    ids=lambda value: str(value[1]),
)
def test_offsets_are_an_expression_of_the_rank(offsets: Any, make_log: MakeLog, reader: DarshanReader) -> None:
    place, text = offsets
    log = make_log(**joined(*(written("/lus/a", rank, [(place(rank), 8)]) for rank in range(4))))
    workload, _ = describe(log, reader)
    assert str(workload.document["phases"][0]["actions"][1]["offset"]) == text
    assert [accesses(workload, rank) for rank in range(4)] == [
        [("write", "file1", place(rank), 8)] for rank in range(4)
    ]


def test_files_of_a_rank_are_numbered(make_log: MakeLog, reader: DarshanReader) -> None:
    parts = [written(f"/lus/{rank}/{i}", rank, [(0, 50)], 1.0 + i / 100) for rank in range(4) for i in range(8)]
    workload, _ = describe(make_log(**joined(*parts)), reader)
    assert workload.document["files"] == {"file1": {"api": "posix", "layout": "per-process", "count": 8, "bytes": 50}}
    (repeat,) = (action for action in workload.document["phases"][0]["actions"] if "repeat" in action)
    assert [o.number for o in operations(workload, 2) if o.verb == "create"] == [*range(8)]
    assert len(repeat["actions"]) <= 4


def test_irregular_accesses_keep_their_order_or_say_that_they_do_not(make_log: MakeLog, reader: DarshanReader) -> None:
    generator = random.Random(1)
    few = [(generator.randrange(1 << 20), 7) for _ in range(500)]
    workload, losses = describe(make_log(**written("/lus/a", 0, few)), reader)
    assert losses == []
    assert accesses(workload, 0) == [("write", "file1", *place) for place in few]
    many = [(generator.randrange(1 << 20) * 7, 7 + i % 2) for i in range(21_000)]
    log = make_log(**written("/lus/a", 0, many))
    workload, losses = describe(log, reader)
    assert "rank 0: 21002 actions have no pattern of 20,000 numbers" in losses[0]
    assert Counter(size for *_, size in accesses(workload, 0)) == {7: 10_500, 8: 10_500}
    assert len(format_description(workload.document)) < 2000


def test_pauses_of_all_ranks_are_described_and_divide_phases(make_log: MakeLog, reader: DarshanReader) -> None:
    """Rank 3 is half a second late once, for which the others wait: nobody computes for that time."""
    parts = [written("/lus/a", rank, [(rank, 1)] * 2, 1.0) for rank in range(4)]
    parts += [written("/lus/a", rank, [(rank, 1)] * 2, 3.0 + (rank == 3) / 2) for rank in range(4)]
    rows = [(path, rank, counts) for part in parts[:4] for path, rank, counts in part["posix"]]
    for _, _, counts in rows:
        counts["POSIX_WRITES"] = 4
    traces = [("/lus/a", rank, parts[rank]["dxt"][0][2] + parts[4 + rank]["dxt"][0][2], []) for rank in range(4)]
    log = make_log(posix=rows, dxt=traces)
    workload, _ = describe(log, reader)
    assert workload.phases == ["write"]
    assert sum(o.value for o in operations(workload, 0)) == pytest.approx(2.0, abs=0.01)
    workload, _ = describe(log, reader, phases=2)
    assert workload.phases == ["write", "write-2"]
    with pytest.raises(InputError, match="too few for 9 phases"):
        describe(log, reader, phases=9)


def test_collective_accesses_are_found_among_independent_ones(make_log: MakeLog, reader: DarshanReader) -> None:
    """Rank 0 writes a header of 5 bytes alone between two collective writes; offsets are in the log (MPICH)."""
    counters = {"MPIIO_COLL_OPENS": 4, "MPIIO_COLL_WRITES": 8, "MPIIO_INDEP_WRITES": 1, "MPIIO_MODE": 5}
    both = [(100 * rank, 100, 1.0, 1.1) for rank in range(4)], [(400 + 100 * rank, 100, 2.0, 2.1) for rank in range(4)]
    traces = [("/lus/a", r, [both[0][r], *([(9000, 5, 1.5, 1.6)] if r == 0 else []), both[1][r]], []) for r in range(4)]
    workload, losses = describe(make_log(mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces), reader)
    assert losses == []
    found = [(o.offset, o.collective) for o in operations(workload, 0) if o.verb == "write"]
    assert found == [(0, True), (9000, False), (400, True)]
    assert [(o.offset, o.collective) for o in operations(workload, 3) if o.verb == "write"] == [
        (300, True),
        (700, True),
    ]


def test_ranks_open_a_file_again_between_the_same_collective_accesses(make_log: MakeLog, reader: DarshanReader) -> None:
    """Rank 1 is late in the last of 200 writes, for which rank 0 does not wait; the longest pause is before it."""
    counters = {"MPIIO_COLL_OPENS": 6, "MPIIO_COLL_WRITES": 400, "MPIIO_COLL_READS": 2, "MPIIO_MODE": 5}
    traces = []
    for rank in range(2):
        times = [1 + 0.01 * i + (0.5 if (rank, i) == (1, 199) else 0.0) for i in range(200)]
        writes = [(100 * (2 * i + rank), 100, at, at + 0.006) for i, at in enumerate(times)]
        traces.append(("/lus/a", rank, writes, [(100 * rank, 100, 5.0, 5.1)]))
    workload, losses = describe(make_log(ranks=2, mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces), reader)
    assert losses == []
    verbs = ["create", *["write"] * 200, "close", "open", "read", "close", "open", "close"]
    for rank in range(2):
        found = [o for o in operations(workload, rank) if o.verb not in ("barrier", "compute")]
        assert [o.verb for o in found] == verbs
        assert all(o.collective for o in found if o.verb in ("write", "read"))


def test_collective_accesses_without_a_common_order_are_independent(make_log: MakeLog, reader: DarshanReader) -> None:
    """Two ranks write and read in opposite order: the file is opened and closed together all the same."""
    counters = {"MPIIO_COLL_OPENS": 2, "MPIIO_COLL_WRITES": 2, "MPIIO_COLL_READS": 2, "MPIIO_MODE": 5}
    first, second = (1.0, 1.5), (2.0, 2.5)
    traces = [
        ("/lus/a", rank, [(100 * rank, 100, *write)], [(100 * rank, 100, *read)])
        for rank, (write, read) in enumerate([(first, second), (second, first)])
    ]
    workload, losses = describe(make_log(ranks=2, mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces), reader)
    assert any("do not agree about the order" in loss for loss in losses)
    for rank, order in enumerate([["write", "read"], ["read", "write"]]):
        found = [o for o in operations(workload, rank) if o.verb not in ("barrier", "compute")]
        assert [o.verb for o in found] == ["create", *order, "close"]
        assert not any(o.collective for o in found if o.verb in ("write", "read"))
    shared = [o for phase in workload.document["phases"] for o in phase["actions"] if isinstance(o, dict)]
    assert [set(o) & {"ranks"} for o in shared if "create" in o or "close" in o] == [set(), set()]


def test_parts_of_arrays_without_a_common_order_are_apart(make_log: MakeLog, reader: DarshanReader) -> None:
    """Blocks of 3 x 5 doubles, which the last rank reads before it writes: each rank has bytes of its own."""
    counters = {"MPIIO_COLL_OPENS": 4, "MPIIO_COLL_WRITES": 4, "MPIIO_COLL_READS": 4, "MPIIO_MODE": 5}
    places = [(512 + 8 * (30 * (rank // 2) + 5 * (rank % 2)), 120) for rank in range(4)]
    times = [[(1.0, 1.5), (2.0, 2.5)][:: -1 if rank == 3 else 1] for rank in range(4)]
    traces = [
        ("/lus/a", rank, [(*places[rank], *times[rank][0])], [(*places[rank], *times[rank][1])]) for rank in range(4)
    ]
    log = make_log(mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces, pnetcdf=[("/lus/a", -1, variable([3, 5], 60))])
    workload, losses = describe(log, reader)
    assert any("do not agree about the order" in loss for loss in losses)
    for rank in range(4):
        found = {(o.verb, o.offset, o.size) for o in operations(workload, rank) if o.verb in ("write", "read")}
        assert found == {("write", 512 + 120 * rank, 120), ("read", 512 + 120 * rank, 120)}


def test_ranks_that_do_not_write_flush_together_with_the_others(make_log: MakeLog, reader: DarshanReader) -> None:
    """200 collective writes and a flush; then rank 0 writes a header alone, and both flush."""
    counters = {"MPIIO_COLL_OPENS": 4, "MPIIO_COLL_WRITES": 400, "MPIIO_INDEP_WRITES": 1, "MPIIO_SYNCS": 4,
                "MPIIO_MODE": 5}  # fmt: skip
    traces = []
    for rank in range(2):
        writes = [(100 * (2 * i + rank), 100, 1 + 0.01 * i, 1.006 + 0.01 * i) for i in range(200)]
        traces.append(("/lus/a", rank, [*writes, *([(0, 8, 9.0, 9.1)] if rank == 0 else [])], []))
    workload, losses = describe(make_log(ranks=2, mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces), reader)
    assert losses == []
    for rank in range(2):
        found = [o for o in operations(workload, rank) if o.verb not in ("barrier", "compute")]
        second = ["open", *["write"] * (rank == 0), "flush", "close"]
        assert [o.verb for o in found] == ["create", *["write"] * 200, "flush", "close", *second]
        assert sum(o.collective for o in found if o.verb == "write") == 200


@pytest.mark.parametrize("hdf5", [True, False])
def test_sizes_of_data_sets_that_ranks_access_alone_are_not_collective(
    hdf5: bool, make_log: MakeLog, reader: DarshanReader
) -> None:
    """Collective writes of 100 bytes, of which no record has the lengths; rank 0 has two others, of an array's size."""
    counters = {"MPIIO_COLL_OPENS": 4, "MPIIO_COLL_WRITES": 8, "MPIIO_INDEP_WRITES": 2, "MPIIO_MODE": 5}
    both = [[(400 * i + 100 * r, 100, 1.0 + i, 1.1 + i) for i in range(2)] for r in range(4)]
    alone = [(9000, 120, 1.5, 1.6), (9120, 120, 1.7, 1.8)]
    traces = [("/lus/a", r, [both[r][0], *(alone if r == 0 else []), both[r][1]], []) for r in range(4)]
    record = {k: n for k, n in variable([3, 5], 30, hdf5).items() if "COLL" not in k}
    log = make_log(
        mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces, **{"h5d" if hdf5 else "pnetcdf": [("/lus/a", 0, record)]}
    )
    found = [(o.size, o.collective) for o in operations(describe(log, reader)[0], 0) if o.verb == "write"]
    assert found == [(100, True), (120, False), (120, False), (100, True)]


def test_sizes_of_arrays_say_what_is_collective_only_if_all_ranks_agree(
    make_log: MakeLog, reader: DarshanReader
) -> None:
    """Each rank writes 120 bytes together, twice; rank 1 also 120 alone, and rank 2 moves 60 in its second turn."""
    counters = {"MPIIO_COLL_OPENS": 4, "MPIIO_COLL_WRITES": 8, "MPIIO_INDEP_WRITES": 2, "MPIIO_MODE": 5}
    sizes = [[120, 120], [120, 120], [120, 60], [120, 120]]
    both = [[(480 * i + 120 * r, sizes[r][i], 1.0 + i, 1.1 + i) for i in range(2)] for r in range(4)]
    alone = {1: [(9000, 120, 1.5, 1.6)], 2: [(9120, 120, 1.5, 1.6)]}
    traces = [("/lus/a", r, [both[r][0], *alone.get(r, []), both[r][1]], []) for r in range(4)]
    records = [("/lus/a", -1, variable([3, 5], 60))]
    workload, _ = describe(make_log(mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces, pnetcdf=records), reader)
    for rank in (1, 2):
        found = [(o.size, o.collective) for o in operations(workload, rank) if o.verb == "write"]
        assert found == [(120, True), (120, False), (sizes[rank][1], True)]


def test_offsets_of_open_mpi_are_those_below(make_log: MakeLog, reader: DarshanReader) -> None:
    """Rank 0 writes the bytes of all four ranks with one access to the file, which has no record of its own."""
    counters = {"MPIIO_COLL_OPENS": 4, "MPIIO_COLL_WRITES": 4, "MPIIO_MODE": 5}
    traces = [("/lus/a", rank, [(-1, 10 * (rank + 1), 1.0, 1.5)], []) for rank in range(4)]
    below = {"posix": [("/lus/a", -1, {"POSIX_OPENS": 4, "POSIX_WRITES": 1})]}
    log = make_log(
        mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces, dxt=[("/lus/a", 0, [(5000, 100, 1.2, 1.4)], [])], **below
    )
    workload, losses = describe(log, reader)
    assert "offsets of MPI-IO accesses are not in the log" in losses[0]
    assert [accesses(workload, rank) for rank in range(4)] == [
        [("write", "file1", offset, size)] for offset, size in ((5000, 10), (5010, 20), (5030, 30), (5060, 40))
    ]
    assert list(workload.document["files"]) == ["file1"]


def test_time_between_accesses_is_not_that_of_io(make_log: MakeLog, reader: DarshanReader) -> None:
    """Three writes of 1 ms, one behind the other in the file, with 4 ms between them: 3 ms of I/O, one action."""
    counters = {"POSIX_OPENS": 1, "POSIX_WRITES": 3, "POSIX_MODE": 0o644}
    trace = [(10 * i, 10, 1 + 0.005 * i, 1.001 + 0.005 * i) for i in range(3)]
    log = make_log(ranks=1, posix=[("/lus/a", 0, counters)], dxt=[("/lus/a", 0, trace, [])])
    assert part(describe(log, reader)[0]) == [{"offset": 0, "size": 10, "count": 3}]
    profile = reader.call(profile_log, log)
    assert profile["phases"] == pytest.approx([0.003])
    ((size, seconds, deciles),) = profile["durations"]["write"]
    assert (size, seconds) == (10, pytest.approx(0.003))
    assert deciles == pytest.approx([0.001] * 9)


@pytest.mark.parametrize(("got", "short"), [(150, True), (200, False), (400, False), (None, False)])
def test_reads_that_get_less_than_they_asked_for_may_be_short(
    got: int | None, short: bool, make_log: MakeLog, reader: DarshanReader
) -> None:
    """HDF5 reads what a converted write will not fill, also behind the end of the file; None: nothing is known."""
    counters = {"MPIIO_INDEP_OPENS": 1, "MPIIO_INDEP_READS": 2, "MPIIO_BYTES_READ": 200, "MPIIO_MODE": 2}
    below = [("/lus/a", 0, {"POSIX_OPENS": 1, "POSIX_READS": 2, "POSIX_BYTES_READ": got})] if got is not None else []
    trace = [(0, 100, 1.0, 1.1), (100, 100, 1.1, 1.2)]
    log = make_log(ranks=1, mpiio=[("/lus/a", 0, counters)], posix=below, dxt_mpiio=[("/lus/a", 0, [], trace)])
    (phase,) = describe(log, reader)[0].document["phases"]
    assert {action.get("short", False) for action in phase["actions"] if "read" in action} == {short}


def variable(lengths: Sequence[int], points: int, hdf5: bool = False) -> dict[str, int]:
    """Counters of a variable of doubles in which each rank accesses a block with these lengths, as Darshan has them."""
    name = "H5D" if hdf5 else "PNETCDF_VAR"
    places = range(5, 0, -1) if hdf5 else range(1, 6)
    dataspace = "H5D_DATASPACE" if hdf5 else name
    together = "H5D_USE_MPIIO_COLLECTIVE" if hdf5 else "PNETCDF_VAR_COLL_WRITES"
    return {f"{name}_ACCESS1_LENGTH_D{d}": n for d, n in zip(places, lengths, strict=False)} | {
        together: 1 if hdf5 else 4,
        f"{dataspace}_NDIMS": len(lengths), f"{dataspace}_NPOINTS": points, f"{name}_DATATYPE_SIZE": 8,
        f"{name}_ACCESS1_ACCESS": 8 * math.prod(lengths), f"{name}_ACCESS1_COUNT": 4}  # fmt: skip


def written_together(
    sizes: Sequence[int], offsets: Sequence[int] | None = None, pieces: Sequence[tuple[int, int]] | None = None
) -> dict[str, Any]:
    """A file that ranks write once, together; `pieces`: what rank 0 writes below, by default all bytes at 512."""
    counters = {"MPIIO_COLL_OPENS": len(sizes), "MPIIO_COLL_WRITES": len(sizes), "MPIIO_MODE": 5}
    places = offsets or [-1] * len(sizes)
    below = [(at, size, 1.2, 1.4) for at, size in pieces or [(512, sum(sizes))]]
    return {
        "ranks": len(sizes),
        "mpiio": [("/lus/a", -1, counters)],
        "dxt_mpiio": [
            ("/lus/a", r, [(at, n, 1.0, 1.5)], []) for r, (at, n) in enumerate(zip(places, sizes, strict=True))
        ],
        "posix": [("/lus/a", -1, {"POSIX_OPENS": 1, "POSIX_WRITES": len(below)})],
        "dxt": [("/lus/a", 0, below, [])],
    }


def part(workload: Workload) -> list[dict[str, Any]]:
    """The write action of the only phase, without its file."""
    (phase,) = workload.document["phases"]
    return [{k: v for k, v in one.items() if k != "write"} for one in phase["actions"] if "write" in one]


def test_offsets_of_mpi_io_say_how_ranks_divide_an_array(make_log: MakeLog, reader: DarshanReader) -> None:
    """An array of 6 x 10 doubles in blocks of 3 x 5, of which the log has the first bytes (MPICH)."""
    offsets = [512 + 8 * (30 * (r // 2) + 5 * (r % 2)) for r in range(4)]
    for hdf5 in (True, False):
        kind = {"h5d" if hdf5 else "pnetcdf": [("/lus/a", -1, variable([3, 5], 60, hdf5))]}
        workload, losses = describe(make_log(**written_together([120] * 4, offsets), **kind), reader)
        assert losses == []
        expected = {"offset": 512, "shape": [6, 80], "start": ["3 * (rank / 2)", "40 * (rank % 2)"], "count": [3, 40]}
        assert part(workload) == [{**expected, "collective": True}]
        assert workload.document["files"]["file1"]["bytes"] == 512 + 480
        assert [accesses(workload, r)[0][2:] for r in range(4)] == [(offset, 120) for offset in offsets]


@pytest.mark.parametrize(("views", "viewed"), [(0, False), (3, False), (4, True), (8, True)])
def test_views_of_each_collective_access_are_described(
    views: int, viewed: bool, make_log: MakeLog, reader: DarshanReader
) -> None:
    """As many calls of MPI_File_set_view as collective accesses: PnetCDF makes one per access, HDF5 two."""
    spec = written_together([100] * 4, [512 + 100 * r for r in range(4)])
    spec["mpiio"][0][2]["MPIIO_VIEWS"] = views
    workload, _ = describe(make_log(**spec), reader)
    expected = {"offset": "512 + 100 * rank", "size": 100, "collective": True}
    assert part(workload) == [{**expected, "view": True} if viewed else expected]
    assert [accesses(workload, r) for r in range(4)] == [[("write", "file1", 512 + 100 * r, 100)] for r in range(4)]


OWN_PIECES = {0: [(512, 10), (532, 20), (600, 5)], 1: [(522, 10), (552, 30)]}


def written_in_pieces(below: Mapping[int, Sequence[tuple[int, int]]], views: int = 2) -> dict[str, Any]:
    """Two ranks write 35 and 40 bytes in one collective access, and these pieces of the file below."""
    spec = written_together([35, 40])
    spec["mpiio"][0][2]["MPIIO_VIEWS"] = views
    spec["posix"][0][2]["POSIX_WRITES"] = sum(map(len, below.values()))
    spec["dxt"] = [("/lus/a", r, [(at, n, 1.2, 1.4) for at, n in pieces], []) for r, pieces in below.items()]
    return spec


def test_pieces_that_each_rank_wrote_are_its_file_view(make_log: MakeLog, reader: DarshanReader) -> None:
    """Rank 1 has two pieces, rank 0 three."""
    workload, _ = describe(make_log(**written_in_pieces(OWN_PIECES)), reader)
    (action,) = part(workload)
    found = [[[evaluate(one, {"rank": r}) for one in pair] for pair in action["list"]] for r in range(2)]
    assert found == [[[512, 10], [532, 20], [600, 5]], [[522, 10], [552, 30], [582, 0]]]
    assert {key: value for key, value in action.items() if key != "list"} == {"view": True, "collective": True}
    assert workload.document["files"]["file1"]["bytes"] == 605


@pytest.mark.parametrize(
    ("below", "views"),
    [
        (OWN_PIECES, 0),  # pieces without a view: they are not the ranks' own
        ({0: [*OWN_PIECES[0], *OWN_PIECES[1]]}, 2),  # one rank writes all
        ({0: [(512, 10), (532, 20), (600, 6)], 1: [(522, 10), (552, 29)]}, 2),  # another number of bytes
        ({0: [(512, 10), (532, 25)], 1: [(522, 10), (552, 30)]}, 2),  # both write bytes 552 to 556
    ],
)
def test_pieces_that_may_be_of_other_ranks_are_no_view(
    below: Mapping[int, Sequence[tuple[int, int]]], views: int, make_log: MakeLog, reader: DarshanReader
) -> None:
    workload, _ = describe(make_log(**written_in_pieces(below, views)), reader)
    assert "list" not in part(workload)[0]


@pytest.mark.parametrize(("second", "verbs"), [(30, ["create", "open"]), (120, ["create", "remove", "create"])])
def test_files_with_arrays_are_created_again_only_if_all_of_them_is(
    second: int, verbs: list[str], make_log: MakeLog, reader: DarshanReader
) -> None:
    """480 bytes of an array of 6 x 10 doubles; opened a second time, the first 120 bytes or the array are written."""
    blocks = [8 * (30 * (r // 2) + 5 * (r % 2)) for r in range(4)]
    places = blocks if second == 120 else [30 * r for r in range(4)]
    rows = [[(blocks[r], 120, 1.0, 1.1), (places[r], second, 3.0, 3.1)] for r in range(4)]
    counters = {"MPIIO_COLL_OPENS": 8, "MPIIO_COLL_WRITES": 8, "MPIIO_MODE": 5}
    log = make_log(
        mpiio=[("/lus/a", -1, counters)],
        dxt_mpiio=[("/lus/a", r, rows[r], []) for r in range(4)],
        h5d=[("/lus/a", -1, variable([3, 5], 60, hdf5=True))],
    )
    workload, losses = describe(log, reader)
    assert losses == []
    assert [o.verb for o in operations(workload, 0) if o.verb in ("create", "open", "remove")] == verbs
    assert [o.size for o in operations(workload, 3) if o.verb == "write"] == [120, second]


@pytest.mark.parametrize(
    ("lengths", "grid", "start"),
    [
        ([4, 8], (), ["4 * rank", "0"]),  # the sides become 16 and 8 or 8 and 16: open; see below
        ([8, 4, 4], (), ["0", "4 * (rank / 2)", "32 * (rank % 2)"]),
        ([5, 8, 4, 4], (), ["0", "0", "4 * (rank / 2)", "32 * (rank % 2)"]),
        ([3, 5], (2, 2), ["3 * (rank / 2)", "40 * (rank % 2)"]),
        ([3, 5], (4,), ["0", "40 * rank"]),
    ],
)
def test_sides_or_the_user_say_how_ranks_divide_an_array(
    lengths: list[int], grid: tuple[int, ...], start: list[str], make_log: MakeLog, reader: DarshanReader
) -> None:
    """Offsets are not in the log (Open MPI): blocks of 8 x 4 x 4 make a cube in one way; else the user says it."""
    log = make_log(
        **written_together([8 * math.prod(lengths)] * 4),
        pnetcdf=[("/lus/a", -1, variable(lengths, 4 * math.prod(lengths)))],
    )
    document, losses = describe_workload(log, reader, grid=grid)
    workload = Workload(document, ranks=4)
    open_ = lengths == [4, 8]
    answer = "each rank's part is contiguous" if open_ else "guessed from their sides"
    assert [answer in loss for loss in losses if "--grid says" in loss] == ([] if grid else [True])
    (action,) = part(workload)
    assert "shape" not in action if open_ else [str(one) for one in action["start"]] == start
    assert sum(size for rank in range(4) for *_, size in accesses(workload, rank)) == 32 * math.prod(lengths)


def test_blocks_in_a_row_need_no_shape(make_log: MakeLog, reader: DarshanReader) -> None:
    """Lengths that differ, or an array of one dimension with the same length, show what is divided."""
    uneven = [variable([n, 4, 4], 32 * 7) for n in (3, 4)]
    alike = [variable([4, 8, 8], 1024), variable([4], 16)]
    for sizes, records in (([384, 512, 384, 512], uneven), ([2048] * 4, alike)):
        log = make_log(**written_together(sizes), pnetcdf=[(f"/lus/a{i}", -1, one) for i, one in enumerate(records)])
        workload, losses = describe(log, reader)
        assert len(losses) == 1
        assert "shape" not in part(workload)[0]


def test_a_view_of_blocks_in_a_row_keeps_the_array(make_log: MakeLog, reader: DarshanReader) -> None:
    """One piece of the file needs no view unless it is several in memory: HDF5 then sets one, with the dimensions."""
    uneven = [variable([n, 4, 4], 4 * 16 * 7) for n in (3, 4)]
    spec = written_together([384, 512, 384, 512])
    spec["mpiio"][0][2]["MPIIO_VIEWS"] = 8
    log = make_log(**spec, pnetcdf=[(f"/lus/a{i}", -1, one) for i, one in enumerate(uneven)])
    workload, _ = describe(log, reader)
    (action,) = part(workload)
    assert action["shape"] == [14, 4, 32]
    assert action["count"][1:] == [4, 32]
    assert [accesses(workload, r)[0][2:] for r in range(4)] == [(512, 384), (896, 512), (1408, 384), (1792, 512)]


@pytest.mark.parametrize(
    "record",
    [
        {"PNETCDF_VAR_ACCESS1_STRIDE_D1": 2},
        {"PNETCDF_VAR_NDIMS": 2},
        {"PNETCDF_VAR_DATATYPE_SIZE": 4},
        {"PNETCDF_VAR_ACCESS1_LENGTH_D1": 0},
        {"PNETCDF_VAR_ACCESS1_LENGTH_D2": -1},
    ],
)
def test_records_that_do_not_say_a_block_are_not_used(
    record: dict[str, int], make_log: MakeLog, reader: DarshanReader
) -> None:
    found = {**variable([8, 4, 4], 512), **record}
    workload, _ = describe(make_log(**written_together([1024] * 4), pnetcdf=[("/lus/a", -1, found)]), reader)
    assert "shape" not in part(workload)[0]


def test_an_array_with_rows_longer_than_an_int_is_one_row() -> None:
    """Rows of 2^31 bytes one after the other: no array of MPI, but one piece of the file per rank."""
    found = Arrays(lengths={1 << 31: {((1, 1 << 28), 8)}}).find(range(2), [1 << 31] * 2, [0, 1 << 31])
    assert found is not None
    assert found.shape == (1 << 32,)


def test_gaps_below_are_no_array(make_log: MakeLog, reader: DarshanReader) -> None:
    log = make_log(
        **written_together([1024] * 4, pieces=[(0, 2048), (4096, 2048)]),
        pnetcdf=[("/lus/a", -1, variable([8, 4, 4], 512))],
    )
    assert "shape" not in part(describe(log, reader)[0])[0]


def test_blocks_of_s3d_io_are_described_as_it_makes_them(reader: DarshanReader) -> None:
    """8 x 8 x 8 points in 1 x 2 x 2 blocks, x fastest, in arrays of 11, 3, 1 and 1 such fields, five times."""
    workload, losses = describe(DATA / "darshan" / "pnetcdf_dxt.darshan", reader)
    assert ["offsets of MPI-IO accesses are not in the log" in loss for loss in losses] == [True, False]
    assert "it is guessed from their sides; --grid says" in losses[1]
    for rank in range(4):
        corner = 8 * (rank // 2 * 4 * 8 + rank % 2 * 4)
        bases = [(1024 + 4096 * fields, 1024 * n) for fields, n in ((0, 11), (11, 3), (14, 1), (15, 1))]
        assert [o.collective for o in operations(workload, rank) if o.verb == "write"].count(True) == 20
        together = [(o.offset, o.size) for o in operations(workload, rank) if o.collective]
        assert together == 5 * [(base + corner, size) for base, size in bases]


def test_blocks_of_hdf5_are_those_of_the_grid(reader: DarshanReader) -> None:
    """benchio's blocks of 16 x 16 x 16 doubles; its header and superblock are written by one rank at a time."""
    log = DATA / "darshan" / "hdf5_dxt.darshan"
    assert any("--grid says" in loss for loss in describe(log, reader)[1])
    document, losses = describe_workload(log, reader, grid=(1, 2, 2))
    assert len(losses) == 1
    workload = Workload(document, ranks=4)
    for rank in range(4):
        corner = 2048 + 8 * (rank // 2 * 16 * 32 + rank % 2 * 16)
        assert [(o.verb, o.offset, o.size) for o in operations(workload, rank) if o.collective] == [
            ("write", corner, 32768),
            ("read", corner, 32768),
        ]


@pytest.mark.parametrize("grid", ["1x", "x", "0x2", "2x2x2x2x2x2", "a"])
def test_wrong_grids_are_refused(grid: str, tmp_path: Path, cli: Callable[..., Result]) -> None:
    log = DATA / "darshan" / "counted_dxt.darshan"
    result = cli("workload", "from-darshan", log, "--grid", grid, "-o", tmp_path / "a.yaml")
    assert result.exit_code == 2
    assert "is not a grid" in result.stderr


@pytest.mark.parametrize("grid", [(), (2, 2), (1, 4)])
def test_uneven_parts_in_several_dimensions(grid: tuple[int, ...], make_log: MakeLog, reader: DarshanReader) -> None:
    """Blocks of 30 x 26 and 30 x 25 doubles in turn: an array of 60 x 51 on 2 x 2 ranks, or of 30 x 102 on 1 x 4."""
    log = make_log(
        **written_together([6240, 6000] * 2), pnetcdf=[(f"/lus/a{n}", -1, variable([30, n], 60 * 51)) for n in (26, 25)]
    )
    document, losses = describe_workload(log, reader, grid=grid)
    assert [" is not in the log (parts of 6,240 bytes)" in loss for loss in losses[1:]] == ([] if grid else [True])
    corners: dict[tuple[int, ...], list[int]]
    corners = {(2, 2): [0, 26, 30 * 51, 30 * 51 + 26], (1, 4): [0, 26, 51, 77]}
    places = [8 * corner for corner in corners[grid]] if grid else [0, 6240, 12240, 18480]
    workload = Workload(document, ranks=4)
    expected = [(512 + at, size) for at, size in zip(places, [6240, 6000] * 2, strict=True)]
    assert [accesses(workload, rank)[0][2:] for rank in range(4)] == expected


def test_blocks_of_equal_bytes_are_told_apart(make_log: MakeLog, reader: DarshanReader) -> None:
    """101 x 101 doubles on 2 x 2 ranks: 51 x 50 and 50 x 51 have the same bytes, and fit in one way."""
    sizes = [8 * n for n in (51 * 51, 51 * 50, 50 * 51, 50 * 50)]
    blocks = [[51, 51], [51, 50], [50, 51], [50, 50]]
    log = make_log(
        **written_together(sizes), pnetcdf=[(f"/lus/{i}", -1, variable(one, 101**2)) for i, one in enumerate(blocks)]
    )
    workload, losses = describe(log, reader)
    assert len(losses) == 1
    corners = [0, 51, 51 * 101, 51 * 101 + 51]
    assert [accesses(workload, r)[0][2:] for r in range(4)] == [
        (512 + 8 * at, n) for at, n in zip(corners, sizes, strict=True)
    ]


@pytest.mark.parametrize(
    ("grid", "start", "loss"),
    [
        ((), None, "(parts of 840 bytes): each rank's part is contiguous; --grid says"),
        ((1, 2, 2), ["0", "7 * (rank / 2)", "40 * (rank % 2)"], None),
        ((4, 1), None, "(parts of 840 bytes): each rank's part is contiguous; --grid says"),
        ((1, 2, 3), None, "--grid 1x2x3 (6 parts) fits no collective access to an array in this log of 4 ranks"),
    ],
)
def test_variables_of_equal_bytes_and_other_lengths(
    grid: tuple[int, ...], start: list[str] | None, loss: str | None, make_log: MakeLog, reader: DarshanReader
) -> None:
    """Parts of 3 x 7 x 5 or 15 x 7 doubles: what the user says must fit one of them; else it stays open."""
    records = [("/lus/a", -1, variable([3, 7, 5], 420)), ("/lus/b", -1, variable([15, 7], 420))]
    log = make_log(**written_together([840] * 4), pnetcdf=records)
    document, losses = describe_workload(log, reader, grid=grid)
    assert any(loss in one for one in losses) if loss else len(losses) == 1
    (action,) = part(Workload(document, ranks=4))
    assert "shape" not in action if start is None else [str(one) for one in action["start"]] == start


def test_offsets_decide_between_variables_of_equal_bytes_or_fit_none(make_log: MakeLog, reader: DarshanReader) -> None:
    """Columns of 3 x 5 and of 5 x 3 doubles: 5 or 3 doubles apart; 4 is neither."""
    records = [(f"/lus/{i}", -1, variable(one, 60)) for i, one in enumerate(([3, 5], [5, 3]))]
    for step, counts in ((5, [3, 40]), (3, [5, 24]), (4, None)):
        log = make_log(**written_together([120] * 4, [8 * step * r for r in range(4)]), pnetcdf=records)
        workload, losses = describe(log, reader)
        assert part(workload)[0].get("count") == counts
        reason = "no division of an array has the lengths and offsets of collective accesses (parts of 120 bytes)"
        assert [loss.startswith(reason) for loss in losses] == ([] if counts else [True])


def test_blocks_of_which_some_are_unknown_fit_no_array(make_log: MakeLog, reader: DarshanReader) -> None:
    """Darshan has the four most frequent lengths only: one part of 64 bytes is none of them."""
    log = make_log(**written_together([120, 120, 120, 64]), pnetcdf=[("/lus/a", -1, variable([3, 5], 53))])
    workload, losses = describe(log, reader)
    assert losses[1].startswith("no division of an array has the lengths")
    assert "shape" not in part(workload)[0]


def test_single_elements_say_nothing_about_other_arrays(make_log: MakeLog, reader: DarshanReader) -> None:
    """An array with one number per rank has no dimension in common with one of which each rank has one plane."""
    records = [("/lus/a", -1, variable([1, 5, 7], 140)), ("/lus/b", -1, variable([1], 4))]
    workload, losses = describe(make_log(**written_together([280] * 4), pnetcdf=records), reader)
    assert "(parts of 280 bytes): each rank's part is contiguous; --grid says" in losses[1]
    assert "shape" not in part(workload)[0]


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_arrays_make_the_whole_array(seed: int) -> None:
    """Any lengths of parts per dimension: each byte belongs to one rank, and offsets alone find the division again."""
    draw = random.Random(seed)
    even = seed % 2 == 0
    grid = [draw.choice((1, 2, 3)) for _ in range(draw.randint(1, 4))]
    axes = [[draw.randint(1, 4)] * n if even else [draw.randint(1, 4) for _ in range(n)] for n in grid]
    blocks = [*itertools.product(*axes)]
    sizes = [4 * math.prod(block) for block in blocks]
    shape = [sum(axis) for axis in axes]
    corners = [*itertools.product(*([*itertools.accumulate(axis, initial=0)][:-1] for axis in axes))]
    offsets = [4 * int(np.ravel_multi_index(corner, shape)) + 100 for corner in corners]
    known: dict[int, set[tuple[tuple[int, ...], int]]] = {}
    for size, block in zip(sizes, blocks, strict=True):
        known.setdefault(size, set()).add((block, 4))
    found = Arrays(lengths=known).find(range(len(blocks)), sizes, offsets)
    if len(blocks) == 1:
        assert found is None
        return
    assert found is not None
    whole = np.zeros(found.shape, int)
    for start, count in zip(found.starts, found.counts, strict=True):
        whole[tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))] += 1
    assert (whole == 1).all()
    steps = [math.prod(found.shape[i + 1 :]) for i in range(len(found.shape))]
    assert [100 + sum(map(operator.mul, start, steps)) for start in found.starts] == offsets
    assert found.size == sum(sizes)


@pytest.mark.parametrize(
    ("grid", "shape", "undecided", "unfit"),
    [((), None, 1, 0), ((2, 2), (4, 1 << 30), 0, 0), ((1, 4), None, 0, 1), ((4, 1), (8, 1 << 29), 0, 0)],
)
def test_divisions_that_mpi_cannot_have_are_possible_all_the_same(
    grid: tuple[int, ...], shape: tuple[int, ...] | None, undecided: int, unfit: int
) -> None:
    """Blocks of 2 x 2^26 doubles on 4 ranks: in a row of 4 GiB, side by side, or in rows longer than an int of MPI."""
    size = 1 << 30
    arrays = Arrays(grid, lengths={size: {((2, 1 << 26), 8)}})
    found = arrays.find(range(4), [size] * 4, None)
    assert (found and found.shape) == shape
    assert (arrays.undecided, arrays.unfit) == ({size} if undecided else set(), {size} if unfit else set())


@pytest.mark.parametrize("grid", [(5,), (3, 4), (4, 3), (2, 2, 2), (3, 2, 4), (2, 3, 2, 2)])
def test_places_in_grids_of_ranks_are_short_expressions(grid: tuple[int, ...]) -> None:
    """Dimensions of 10 * n + n - 1 elements: all parts but the last one have 11, as MPI programs divide."""
    ranks = range(math.prod(grid))
    for place, n in zip(np.unravel_index(np.arange(len(ranks)), grid), grid, strict=True):
        for values in (10 * place + np.minimum(place, n - 1), 10 + (place < n - 1)):
            text = describe_ranks(values, ranks)
            assert [evaluate(text, {"rank": rank}) for rank in ranks] == values.tolist()
            assert "==" not in text


def test_steps_and_sections_of_offsets_are_short_expressions() -> None:
    """Parts of 32 MiB, and 3,136 bytes of metadata behind each seventh one; sections with other lengths of parts."""
    ranks = np.arange(384)
    stepped = 8336 + 33554432 * ranks + 3136 * (ranks // 7)
    sectioned = np.concatenate([np.arange(40) * 1000, 40_000 + np.arange(50) * 333, 60_000 + np.arange(10)])
    for values in (stepped, sectioned):
        text = describe_ranks(values, list(range(len(values))))
        assert [evaluate(text, {"rank": rank}) for rank in range(len(values))] == values.tolist()
        assert "==" not in text
        assert len(text) < 8 * len(values)
    # Numbers without a rule are listed.
    random_values = np.array([3, 99, 5, 17, 2, 60])
    text = describe_ranks(random_values, list(range(6)))
    assert [evaluate(text, {"rank": rank}) for rank in range(6)] == random_values.tolist()


def test_steps_that_offsets_share_are_a_variable(make_log: MakeLog, reader: DarshanReader) -> None:
    """64 ranks write twice; behind each fifth part there are 7 bytes of others."""
    counters = {"MPIIO_COLL_OPENS": 64, "MPIIO_COLL_WRITES": 128, "MPIIO_MODE": 5}
    offsets = [100 * rank + 7 * (rank // 5) for rank in range(64)]
    traces = []
    for rank, offset in enumerate(offsets):
        # Sizes differ, so that the two are no repeat.
        writes = [(offset, 90, 1.0, 1.1), (100_000 + offset, 80, 2.0, 2.1)]
        traces.append(("/lus/a", rank, writes, []))
    log = make_log(ranks=64, mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces)
    workload, _ = describe(log, reader)
    assert workload.document["variables"].keys() == {"steps1"}
    assert "100 * rank + 7 * steps1" in format_description(workload.document)
    for rank in (0, 4, 5, 63):
        assert [offset for *_, offset, _ in accesses(workload, rank)] == [offsets[rank], 100_000 + offsets[rank]]


def header_and_parts(*, first: str, nonblocking: bool = False) -> dict[str, Any]:
    """Rank 0 writes 50 bytes by POSIX and fsyncs, all write 100 bytes each collectively; `first` says what is first."""
    direct, collective = (1.0, 2.0) if first == "posix" else (3.0, 2.0)
    posix = {"POSIX_OPENS": 5, "POSIX_WRITES": 5, "POSIX_BYTES_WRITTEN": 450, "POSIX_FSYNCS": 1, "POSIX_MODE": 0o644}
    kind = "NB" if nonblocking else "COLL"
    mpiio = {"MPIIO_COLL_OPENS": 4, f"MPIIO_{kind}_WRITES": 4, "MPIIO_BYTES_WRITTEN": 400, "MPIIO_MODE": 5}
    parts = [(50 + 100 * rank, 100) for rank in range(4)]
    below = [[(*part, collective + 0.1, collective + 0.2)] for part in parts]
    below[0].append((0, 50, direct, direct + 0.1))
    return {
        "posix": [("/lus/a", -1, posix)],
        "mpiio": [("/lus/a", -1, {**mpiio, "MPIIO_F_OPEN_START_TIMESTAMP": collective - 0.1})],
        "dxt": [("/lus/a", rank, rows, []) for rank, rows in enumerate(below)],
        "dxt_mpiio": [("/lus/a", rank, [(*part, collective, collective + 0.5)], []) for rank, part in enumerate(parts)],
    }


@pytest.mark.parametrize("first", ["posix", "mpiio"])
def test_posix_accesses_beside_mpiio_are_described(first: str, make_log: MakeLog, reader: DarshanReader) -> None:
    """What MPI-IO does below is not; the file is made by the interface that is first, and never removed."""
    workload, losses = describe(make_log(**header_and_parts(first=first)), reader)
    assert losses == []
    assert workload.document["files"] == {
        "file1": {"api": "mpiio", "bytes": 450},
        "file1-posix": {"api": "posix", "same_as": "file1", "ranks": "rank == 0", "bytes": 50},
    }
    done = [(o.verb, o.file, o.offset, o.size) for o in operations(workload, 0) if o.verb != "compute"]
    makes = {"posix": ("create", "open"), "mpiio": ("open", "create")}[first]
    header = [
        (makes[0], "file1-posix", 0, 0),
        ("write", "file1-posix", 0, 50),
        ("flush", "file1-posix", 0, 0),
        ("close", "file1-posix", 0, 0),
    ]
    parts = [(makes[1], "file1", 0, 0), ("write", "file1", 50, 100), ("close", "file1", 0, 0)]
    assert done == (header + parts if first == "posix" else parts + header)
    assert accesses(workload, 3) == [("write", "file1", 350, 100)]
    # What is one file is counted once.
    assert (data_bytes(workload, "file1"), data_bytes(workload, "file1-posix")) == (450, 0)
    assert (file_count(workload, "file1"), file_count(workload, "file1-posix")) == (1, 0)


def test_posix_accesses_that_may_be_those_of_mpiio_are_a_loss(make_log: MakeLog, reader: DarshanReader) -> None:
    """A nonblocking transfer of MPI-IO may be going on when no call is."""
    workload, losses = describe(make_log(**header_and_parts(first="posix", nonblocking=True)), reader)
    assert any("POSIX read 0 bytes and wrote 50 bytes more than MPI-IO" in loss for loss in losses)
    assert workload.document["files"].keys() == {"file1"}


def test_posix_accesses_to_many_files_of_mpiio_have_the_numbers_of_these(
    make_log: MakeLog, reader: DarshanReader
) -> None:
    """Twelve checkpoints, each with a header by POSIX: two files with a count, one of them the other interface."""
    parts: dict[str, list[Any]] = {}
    for number in range(12):
        for module, rows in header_and_parts(first="posix").items():
            for path, rank, *contents in rows:
                shifted: list[Any] = []
                for content in contents:
                    if isinstance(content, list):
                        shift = 10.0 * number
                        content = [(at, size, start + shift, end + shift) for at, size, start, end in content]
                    else:
                        content = {
                            name: value + 10.0 * number if "TIMESTAMP" in name else value
                            for name, value in content.items()
                        }
                    shifted.append(content)
                parts.setdefault(module, []).append((f"{path}{number}", rank, *shifted))
    workload, losses = describe(make_log(**parts), reader)
    assert losses == []
    assert workload.document["files"]["file1"]["count"] == 12
    headers = [o for o in operations(workload, 0) if o.file == "file1-posix" and o.verb == "write"]
    assert [o.number for o in headers] == list(range(12))


def test_equal_accesses_are_divided_once() -> None:
    """The same sizes at another place of the file are the same object; other ranks and distances are not."""
    arrays = Arrays(lengths={120: {((3, 5), 8)}})
    first = arrays.find(range(2), [120, 120], [0, 40])
    assert first is not None
    assert arrays.find(range(2), [120, 120], [1000, 1040]) is first
    assert arrays.find(range(2), [120, 120], [0, 120]) != first
    assert arrays.find(range(2, 4), [120, 120], [0, 40]) != first


@pytest.mark.parametrize("segment", [True, False])
def test_equal_parts_of_all_ranks_hold_for_any_number(segment: bool, make_log: MakeLog, reader: DarshanReader) -> None:
    """Each of 4 ranks writes 3 x 10 bytes into its own 30 of a shared file; or 10 by 10 in turn, for 4 ranks only."""
    places = [[30 * r + 10 * i if segment else 40 * i + 10 * r for i in range(3)] for r in range(4)]
    traces = [("/lus/a", r, [(at, 10, 1 + i, 1.5 + i) for i, at in enumerate(places[r])], []) for r in range(4)]
    counters = {"MPIIO_COLL_OPENS": 4, "MPIIO_INDEP_WRITES": 12, "MPIIO_MODE": 5}
    workload, _ = describe(make_log(mpiio=[("/lus/a", -1, counters)], dxt_mpiio=traces), reader)
    assert "for any number" in workload.document["description"] if segment else workload.document["ranks"] == 4
    if segment:
        found = [accesses(Workload(workload.document, ranks=6), rank) for rank in range(6)]
        assert found == [[("write", "file1", 30 * r + 10 * i, 10) for i in range(3)] for r in range(6)]
        assert Workload(workload.document, ranks=6).value(workload.document["files"]["file1"]["bytes"]) == 180
    else:
        with pytest.raises(InputError, match="described for 4 ranks only: it cannot run on 6"):
            Workload(workload.document, ranks=6)


def test_files_per_process_hold_for_any_number_if_all_ranks_do_the_same(
    make_log: MakeLog, reader: DarshanReader
) -> None:
    alike = joined(*(written(f"/lus/{rank}", rank, [(0, 10), (90, 10)]) for rank in range(4)))
    workload, _ = describe(make_log(**alike), reader)
    assert [len(accesses(Workload(workload.document, ranks=9), rank)) for rank in range(9)] == [2] * 9
    for other in (written("/lus/3", 3, [(0, 10), (80, 10)]), written("/lus/3", 3, [(0, 10)])):
        three = joined(*(written(f"/lus/{rank}", rank, [(0, 10), (90, 10)]) for rank in range(3)), other)
        assert describe(make_log(**three), reader)[0].document["ranks"] == 4


def test_files_of_open_mpi_itself_are_left_out(make_log: MakeLog, reader: DarshanReader) -> None:
    """`locktest` beside the file; `_cid-` with its name in the session's directory, other names there are kept."""
    opened, session = {"POSIX_OPENS": 1, "POSIX_STATS": 1}, "/tmp/ompi.n1.0/pid.1/1"
    names = ["/lus/a.locktest.0", "/lus/a-1234-5.lock", f"{session}/a_cid-5-26667.sm", f"{session}/a_cid--1-3.sm"]
    names.append(f"{session}/b_cid-5-2.sm")
    log = make_log(
        mpiio=[("/lus/a", -1, {"MPIIO_COLL_OPENS": 4, "MPIIO_COLL_WRITES": 4, "MPIIO_MODE": 5})],
        dxt_mpiio=[("/lus/a", rank, [(10 * rank, 10, 1.0, 1.5)], []) for rank in range(4)],
        posix=[(name, 0, opened) for name in names],
    )
    workload, _ = describe(log, reader)
    assert sorted(file["api"] for file in workload.document["files"].values()) == ["mpiio", "posix"]


def test_sizes_without_dxt_have_the_histogram_of_the_log(make_log: MakeLog, reader: DarshanReader) -> None:
    """12 writes of 1,000 bytes, 4 of 1 MiB, and 3 of unknown size with 2,050 bytes in the bins to 100 and to 1,024."""
    counters = {
        **{"POSIX_OPENS": 4, "POSIX_WRITES": 19, "POSIX_BYTES_WRITTEN": 12_000 + (4 << 20) + 1050},
        **{"POSIX_SIZE_WRITE_0_100": 1, "POSIX_SIZE_WRITE_100_1K": 14, "POSIX_SIZE_WRITE_100K_1M": 4},
        **{"POSIX_ACCESS1_ACCESS": 1000, "POSIX_ACCESS1_COUNT": 12},
        **{"POSIX_ACCESS2_ACCESS": 1 << 20, "POSIX_ACCESS2_COUNT": 4},
        **{"POSIX_F_WRITE_START_TIMESTAMP": 1.0, "POSIX_F_WRITE_END_TIMESTAMP": 2.0},
    }
    workload, losses = describe(make_log(posix=[("/lus/a", -1, counters)]), reader)
    assert losses[0].startswith("no DXT")
    sizes = Counter(size for rank in range(4) for *_, size in accesses(workload, rank))
    assert (sizes[1000], sizes[1 << 20], sizes.total()) == (12, 4, 19)
    rest = sorted((sizes - Counter({1000: 12, 1 << 20: 4})).elements())
    assert sum(rest) == 1050
    assert [size <= 100 for size in rest] == [True, False, False]
    counters["POSIX_BYTES_WRITTEN"] = 1
    with pytest.raises(InputError, match="contradict each other"):
        describe(make_log(posix=[("/lus/a", -1, counters)]), reader)


@pytest.mark.parametrize("counter", ["COLL", "SPLIT"])
def test_collective_writes_without_dxt_are_the_largest_of_each_rank(
    counter: str, make_log: MakeLog, reader: DarshanReader
) -> None:
    """4 collective writes of 1 MiB, whether split or not, and 4 independent ones of 1,000 bytes, of 4 ranks."""
    counters = {
        **{"MPIIO_COLL_OPENS": 4, f"MPIIO_{counter}_WRITES": 4, "MPIIO_INDEP_WRITES": 4},
        **{"MPIIO_BYTES_WRITTEN": (4 << 20) + 4000, "MPIIO_MODE": 9},
        **{"MPIIO_SIZE_WRITE_AGG_100_1K": 4, "MPIIO_SIZE_WRITE_AGG_100K_1M": 4},
        **{"MPIIO_ACCESS1_ACCESS": 1000, "MPIIO_ACCESS1_COUNT": 4},
        **{"MPIIO_ACCESS2_ACCESS": 1 << 20, "MPIIO_ACCESS2_COUNT": 4},
        **{"MPIIO_F_WRITE_START_TIMESTAMP": 1.0, "MPIIO_F_WRITE_END_TIMESTAMP": 2.0},
    }
    posix = {
        **{"POSIX_OPENS": 4, "POSIX_WRITES": 8, "POSIX_BYTES_WRITTEN": (4 << 20) + 4000},
        **{"POSIX_SIZE_WRITE_100_1K": 4, "POSIX_SIZE_WRITE_100K_1M": 4},
        **{"POSIX_ACCESS1_ACCESS": 1000, "POSIX_ACCESS1_COUNT": 4},
        **{"POSIX_ACCESS2_ACCESS": 1 << 20, "POSIX_ACCESS2_COUNT": 4},
    }
    log = make_log(posix=[("/lus/a", -1, posix)], mpiio=[("/lus/a", -1, counters)])
    workload, losses = describe(log, reader)
    for rank in range(4):
        writes = [(o.size, o.collective) for o in operations(workload, rank) if o.verb == "write"]
        assert sorted(writes) == [(1000, False), (1 << 20, True)]
    assert any("split collective transfers" in loss for loss in losses) == (counter == "SPLIT")


@pytest.mark.parametrize(("size", "count"), [(3000, 1), (1500, 3), (1000, 2)])
def test_reads_without_dxt_are_inside_of_what_was_written(
    size: int, count: int, make_log: MakeLog, reader: DarshanReader
) -> None:
    """One rank writes 2,000 bytes, and reads the same file in larger pieces, more of them, or exactly."""
    counters = {
        **{"POSIX_OPENS": 2, "POSIX_WRITES": 2, "POSIX_BYTES_WRITTEN": 2000, "POSIX_SIZE_WRITE_100_1K": 2},
        **{"POSIX_READS": count, "POSIX_BYTES_READ": size * count},
        **{f"POSIX_SIZE_READ_{'100_1K' if size <= 1024 else '1K_10K'}": count},
        **{"POSIX_ACCESS1_ACCESS": 1000, "POSIX_ACCESS1_COUNT": 2 + count * (size == 1000)},
        **{"POSIX_F_WRITE_START_TIMESTAMP": 1.0, "POSIX_F_WRITE_END_TIMESTAMP": 2.0},
        **{"POSIX_F_READ_START_TIMESTAMP": 3.0, "POSIX_F_READ_END_TIMESTAMP": 4.0},
    }
    workload, _ = describe(make_log(posix=[("/lus/a", 0, counters)]), reader)
    reads = [(offset, length) for verb, _, offset, length in accesses(workload, 0) if verb == "read"]
    assert sum(length for _, length in reads) == size * count
    assert all(0 <= offset <= max(2000 - length, 0) for offset, length in reads)


def test_names_of_the_log_are_not_in_the_description(
    make_log: MakeLog, tmp_path: Path, cli: Callable[..., Result]
) -> None:
    log = make_log(
        **written("/home/alice/secret/run.dat", 0, [(0, 10)]),
        exe="/home/alice/bin/solver --license 1234",
        metadata={"lib_ver": "3.4.7", "owner": "alice"},
        uid=4711,
    )
    out = tmp_path / "solver.yaml"
    result = cli("workload", "from-darshan", log, "-o", out)
    assert (result.exit_code, result.stderr) == (0, f"wrote {out}\n")
    text = out.read_text()
    assert yaml.safe_load(text)["name"] == "solver"
    for word in ("alice", "secret", "run.dat", "solver --", "node1", "4711", "1234", "/home", "/lus"):
        assert word not in text


def test_losses_are_on_stderr_and_in_the_file(make_log: MakeLog, tmp_path: Path, cli: Callable[..., Result]) -> None:
    log = make_log(posix=[("/lus/a", -1, {"POSIX_OPENS": 4})])
    result = cli("workload", "from-darshan", log, "-o", tmp_path / "a.yaml")
    assert result.exit_code == 0
    assert "not described: no DXT" in result.stderr
    assert "No DXT" in " ".join((tmp_path / "a.yaml").read_text().split())


def test_damaged_logs_are_refused_or_described_as_they_were(
    make_log: MakeLog, tmp_path: Path, reader: DarshanReader
) -> None:
    """A bit is changed, or the end is cut off: what is described all the same has the operations of the original."""
    places = {rank: [(i * 64 + rank * 8, 8) for i in range(20)] for rank in range(4)}
    log = make_log(**joined(*(written("/lus/a", rank, places[rank]) for rank in range(4))))
    content, path = log.read_bytes(), tmp_path / "damaged.darshan"
    generator, refused = random.Random(3), 0
    for _ in range(60):
        data = bytearray(content)
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        path.write_bytes(data[: generator.choice([len(data), generator.randrange(len(data))])])
        try:
            workload, _ = describe(path, reader)
        except InputError as error:
            refused += str(path) in str(error)
            continue
        for rank in range(min(4, workload.ranks)):
            assert accesses(workload, rank) == [("write", "file1", *place) for place in places[rank]]
    assert refused > 40


@pytest.mark.parametrize("hdf5", [True, False])
def test_records_of_arrays_that_are_damaged_or_missing_are_reported(
    hdf5: bool, make_log: MakeLog, reader: DarshanReader
) -> None:
    """Darshan marks the module, or its compressed bytes are overwritten."""
    from iowatch.darshan.log import read_header

    module = "H5D" if hdf5 else "PNETCDF_VAR"
    fields = {
        **written_together([1024] * 4),
        "h5d" if hdf5 else "pnetcdf": [("/lus/a", -1, variable([8, 4, 4], 512, hdf5))],
    }
    path = make_log(**fields, partial=[module])
    text = f"records of arrays ({module}) are missing, as Darshan ran out of memory: accesses to these arrays"
    assert describe(path, reader)[1][0].startswith(text)
    path = make_log(**fields)
    assert not any("records of arrays" in loss for loss in describe(path, reader)[1])
    region = read_header(path).modules[module]
    data = bytearray(path.read_bytes())
    data[region.offset_bytes : region.offset_bytes + region.length_bytes] = bytes(region.length_bytes)
    path.write_bytes(data)
    workload, losses = describe(path, reader)
    assert losses[0] == f"records of arrays ({module}) are damaged: accesses to these arrays have no shape"
    assert "shape" not in part(workload)[0]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"posix": []}, "no file was opened"),
        ({**written("/lus/a", 0, [(0, 8)]), "partial": ["POSIX"]}, "records of POSIX are missing"),
        (joined(written("/lus/a", 0, [(-5, 8)])), "no valid size or offset"),
        (
            {**written("/lus/a", 0, [(0, 8)]), "dxt": [("/lus/a", 9, [(1.0, 2.0)], [])]},
            "a rank that the job does not have",
        ),
        ({**written("/lus/a", 0, [(0, 8)]), "dxt": [("/lus/a", 0, [(float("nan"), 2.0)], [])]}, "no valid time"),
    ],
)
def test_logs_that_cannot_be_described_are_refused(
    fields: dict[str, Any], reason: str, make_log: MakeLog, reader: DarshanReader
) -> None:
    with pytest.raises(InputError, match=reason):
        describe(make_log(**fields), reader)


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("seed", range(20))
def test_no_access_is_lost_or_changed(seed: int, make_log: MakeLog, reader: DarshanReader) -> None:
    """Random files of one rank or of all, opened up to three times, with random accesses and pauses."""
    generator = random.Random(seed)
    wanted: dict[int, Counter[tuple[str, int, int]]] = {rank: Counter() for rank in range(4)}
    posix, dxt = [], []
    for name in ("/lus/a", "/lus/b", "/lus/c"):
        for rank in generator.choice([[generator.randrange(4)], [*range(4)], [0, 2]]):
            time, rows = 1.0, {"write": [], "read": []}  # type: ignore[var-annotated]
            for turn in range(generator.randrange(12)):
                time += generator.choice([0.0, 0.001, 0.02])
                offset = generator.choice([turn * 8 + rank * 1000, generator.randrange(10_000)])
                verb = generator.choice(["write", "write", "read"])
                rows[verb].append((offset, 8, time, time + 0.0005))
                wanted[rank][verb, offset, 8] += 1
                time += 0.0005
            counts = {"POSIX_WRITES": len(rows["write"]), "POSIX_READS": len(rows["read"])}
            posix.append((name, rank, {**counts, "POSIX_OPENS": generator.randint(1, 3), "POSIX_MODE": 0o644}))
            dxt.append((name, rank, rows["write"], rows["read"]))
    workload, _ = describe(make_log(posix=posix, dxt=dxt), reader)
    for rank in range(4):
        assert Counter((verb, offset, size) for verb, _, offset, size in accesses(workload, rank)) == wanted[rank]
        opened: Counter[tuple[str, int]] = Counter()
        for one in operations(workload, rank):
            opened[one.file, one.number] += (one.verb in ("create", "open")) - (one.verb == "close")
            assert opened[one.file, one.number] == (one.verb not in ("close", "stat", "remove", "compute", "barrier"))
