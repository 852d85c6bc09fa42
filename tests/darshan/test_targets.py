"""Targets in Darshan logs: the public log of a bad OST, generated logs with planted targets, and what is not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from iowatch.darshan import DarshanReader, Trace, anonymise_trace, derive_hints, read_trace, render_trace
from iowatch.darshan.targets import (
    FileSystemTargets,
    NamedTarget,
    format_probability_bound,
    format_slow_target,
    target_lines,
)

MakeLog = Callable[..., Path]
Cli = Callable[..., Result]
MIB = 1 << 20


def rendered(trace: Trace) -> str:
    return "\n".join(str(line) for line in render_trace(trace))


def file_per_rank(
    seconds: Callable[[int, int], float], *, files: int = 96, targets: int = 24, written: int = 64 * MIB
) -> dict[str, Any]:
    """Fields of a log in which each rank writes one file, on targets in rotation.

    Args:
        seconds: of rank and target to the time of its writes.
    """
    posix = []
    lustre = []
    for rank in range(files):
        target = rank % targets
        path = f"/lus/data.{rank}"
        counters = {"POSIX_WRITES": 1, "POSIX_BYTES_WRITTEN": written, "POSIX_OPENS": 1}
        posix.append((path, rank, {**counters, "POSIX_F_WRITE_TIME": seconds(rank, target), "POSIX_F_META_TIME": 50.0}))
        lustre.append((path, [(MIB, 1, [target])]))
    return {"posix": posix, "lustre": lustre, "ranks": files, "run_time_s": 600}


def test_bad_ost_of_edison_is_named(bad_ost_log: Path, reader: DarshanReader) -> None:
    """85 of 2,048 files are on OST 14; all files slower than 200 s are, all others take at most 17 s."""
    trace = read_trace(bad_ost_log, reader)
    (of,) = trace.targets
    assert (of.file_system, of.compared, of.files, of.targets, of.undecided) == ("/scratch1", "files", 2048, 24, None)
    (slow,) = of.slow
    assert (slow.target, slow.files, slow.slow_files, slow.all_slow_files) == (14, 85, 85, 85)
    # Median of OST 14: 510 s of writing; of the other 23 medians 11.1 s.
    assert slow.ratio == pytest.approx(45.8, rel=0.01)
    assert slow.probability < 1e-20
    figures = {entry.target: entry for entry in of.figures}
    assert sum(entry.files for entry in of.figures) == 2048
    others = [entry.relative_time for target, entry in figures.items() if target != 14]
    assert max(value for value in others if value is not None) < 1.5


def test_command_states_the_bad_ost(bad_ost_log: Path, cli: Cli) -> None:
    sentence = (
        "85 of 85 slow files on OST 14 of /scratch1: 45.83 times the median of the other 23 targets, "
        "by chance with probability < 1e-06"
    )
    text = " ".join(cli("darshan", bad_ost_log).stdout.split())
    assert f"Hint (slow_target): {sentence}." in text
    # The slow rank is stated, too, with what makes it slow, and after the target.
    assert "rank 1507, 778.5 s of POSIX, on OST 14, which is slow for all ranks." in text
    assert text.index("slow_target") < text.index("slow_rank")
    hints = json.loads(cli("darshan", bad_ost_log, "--json").stdout)["hints"]
    assert [hint["key"] for hint in hints] == ["slow_target", "slow_rank"]
    assert hints[0]["counters"] == {"target": 14, "target_ratio": pytest.approx(45.83, rel=1e-3)}


def test_report_of_pydarshan_states_the_bad_target(make_log: MakeLog, cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("mako", reason="reports of PyDarshan need the extra `pages`: pip install iowatch[pages]")
    log = make_log(**file_per_rank(lambda rank, target: (30.0 if target == 5 else 3.0) + rank / 100))
    page = tmp_path / "report.html"
    cli("darshan", log, "--html", page)
    assert "<p>4 of 4 slow files on OST 5 of /lus: " in page.read_text()


def test_planted_target_is_named(make_log: MakeLog, reader: DarshanReader) -> None:
    """Metadata time, 50 s of each file, is none of the target's."""
    fields = file_per_rank(lambda rank, target: (30.0 if target == 5 else 3.0) + rank / 100)
    trace = read_trace(make_log(**fields), reader)
    ((slow,),) = [of.slow for of in trace.targets]
    # The files of target 5 take 30.41 s (ranks 29 and 53), those of the others 3.48 s.
    assert (slow.target, slow.files, slow.ratio) == (5, 4, pytest.approx(30.41 / 3.48, rel=0.01))
    assert "slow_target" in [hint.key for hint in derive_hints(trace)]


def test_log_without_slow_target_says_so(make_log: MakeLog, reader: DarshanReader) -> None:
    trace = read_trace(make_log(**file_per_rank(lambda rank, target: 3.0 + rank / 100)), reader)
    assert "Targets: no slow target among 24 of /lus (96 files compared)" in rendered(trace)
    assert "slow_target" not in [hint.key for hint in derive_hints(trace)]


def test_size_of_files_is_no_slow_target(make_log: MakeLog, reader: DarshanReader) -> None:
    """All files of target 5 are small, as one of four on the others is: each takes 3 s, 32 times as long per byte."""
    fields = file_per_rank(lambda rank, target: 3.0 + rank / 1000)
    for _, rank, counters in fields["posix"]:
        if rank % 24 == 5 or rank < 24:
            counters["POSIX_BYTES_WRITTEN"] = 2 * MIB
    (of,) = read_trace(make_log(**fields), reader).targets
    assert (of.slow, of.undecided) == ((), None)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (file_per_rank(lambda rank, target: 3.0, files=20), "too few files per target"),
        (file_per_rank(lambda rank, target: 3.0, targets=1), "all files are on one target"),
        (file_per_rank(lambda rank, target: 3.0, written=4096), "no file of 1 MiB or more"),
        ({**file_per_rank(lambda rank, target: 3.0), "lustre": ()}, "the log does not have the targets of its files"),
    ],
)
def test_what_is_not_decidable_is_stated(
    fields: dict[str, Any], line: str, make_log: MakeLog, reader: DarshanReader
) -> None:
    trace = read_trace(make_log(**fields), reader)
    (of,) = trace.targets
    assert of.undecided is not None
    assert of.slow == ()
    assert f"Targets: slow targets of /lus: not decidable, {line}" in rendered(trace)


def test_log_of_another_file_system_says_nothing_about_targets(make_log: MakeLog, reader: DarshanReader) -> None:
    posix = [("/home/a", 0, {"POSIX_BYTES_WRITTEN": 64 * MIB, "POSIX_F_WRITE_TIME": 1.0})]
    trace = read_trace(make_log(posix=posix), reader)
    assert trace.targets == []
    assert "target" not in rendered(trace)


def striped_log(slow_target: int | None, slow_rank: int | None, *, ranks: int = 8, dxt: bool = True) -> dict[str, Any]:
    """One shared file on four targets, to which each rank writes 16 MiB, MiB after MiB."""
    rng = np.random.default_rng(3)
    osts = [3, 8, 1, 6]
    traces = []
    total_s = 0.0
    for rank in range(ranks):
        writes = []
        start = 0.0
        for block in range(16):
            offset = (rank * 16 + block) * MIB
            seconds = float(rng.lognormal(np.log(0.1), 0.1))
            if osts[offset // MIB % 4] == slow_target:
                seconds *= 6
            if rank == slow_rank:
                seconds *= 6
            writes.append((offset, MIB, start, start + seconds))
            start += seconds
        total_s += start
        traces.append(("/lus/shared", rank, writes, []))
    counters = {"POSIX_WRITES": 16 * ranks, "POSIX_BYTES_WRITTEN": 16 * ranks * MIB, "POSIX_F_WRITE_TIME": total_s}
    return {
        "ranks": ranks,
        "posix": [("/lus/shared", -1, counters)],
        "lustre": [("/lus/shared", [(MIB, 4, osts)])],
        "dxt": traces if dxt else [],
    }


def test_target_of_a_striped_file_is_named_by_its_accesses(make_log: MakeLog, reader: DarshanReader) -> None:
    (of,) = read_trace(make_log(**striped_log(8, None)), reader).targets
    # Eight ranks, each with accesses in the stripes of each of four targets.
    assert (of.compared, of.files, of.targets, of.undecided) == ("accesses", 32, 4, None)
    (slow,) = of.slow
    assert (slow.target, slow.ratio) == (8, pytest.approx(6, rel=0.15))
    assert "8 of 8 slow groups of accesses (DXT, by rank and stripe) on OST 8" in format_slow_target(slow, of)


def test_four_ranks_are_too_few_for_the_targets_of_a_striped_file(make_log: MakeLog, reader: DarshanReader) -> None:
    """That one of four targets is the slowest one for each of four ranks has a probability of 4 / 4^4 = 0.016."""
    (of,) = read_trace(make_log(**striped_log(8, None, ranks=4)), reader).targets
    assert of.undecided is not None
    assert of.slow == ()


def test_slow_rank_of_a_striped_file_is_no_slow_target(make_log: MakeLog, reader: DarshanReader) -> None:
    (of,) = read_trace(make_log(**striped_log(None, 2)), reader).targets
    assert (of.compared, of.undecided, of.slow) == ("accesses", None, ())


def test_striped_file_without_accesses_is_not_decidable(make_log: MakeLog, reader: DarshanReader) -> None:
    (of,) = read_trace(make_log(**striped_log(8, None, dxt=False)), reader).targets
    assert (of.compared, of.undecided) == ("files", "same_targets")


def test_privacy_hides_the_mount_point(make_log: MakeLog, reader: DarshanReader) -> None:
    fields = file_per_rank(lambda rank, target: (30.0 if target == 5 else 3.0) + rank / 100)
    trace = read_trace(make_log(**fields, exe="bench"), reader)
    dropped = anonymise_trace(trace, "drop")
    assert "/lus" not in json.dumps(dropped.to_json())
    (of,) = dropped.targets
    assert (of.file_system, [slow.target for slow in of.slow]) == (None, [5])
    assert next(target_lines([of])).startswith("4 of 4 slow files on OST 5: ")


SLOW = NamedTarget(14, files=85, ratio=45.83, slow_files=85, all_slow_files=87, probability=4e-4)


def test_sentences() -> None:
    of = FileSystemTargets("/scratch1", "files", 2048, 24, None, (SLOW,), ())
    assert format_slow_target(SLOW, of) == (
        "85 of 87 slow files on OST 14 of /scratch1: 45.83 times the median of the other 23 targets, "
        "by chance with probability < 0.001"
    )
    together = NamedTarget(4, 10, 3.0, 10, 10, 1e-9, same_files=(5,))
    assert "on OSTs 4, 5 of" in format_slow_target(together, of)
    assert "the other 22 targets" in format_slow_target(together, of)
    assert "which of them is slow is not known" in format_slow_target(together, of)
    of_two = FileSystemTargets("/scratch1", "files", 40, 2, None, (SLOW,), ())
    assert format_slow_target(SLOW, of_two).endswith("of two targets the other one may be fast")


@pytest.mark.parametrize(
    ("probability", "bound"),
    [
        (0.0, "< 1e-06"),
        (1e-50, "< 1e-06"),
        (2e-6, "< 1e-05"),
        (0.0004, "< 0.001"),
        (0.009, "< 0.01"),
        (0.001, "< 0.01"),
    ],
)
def test_probability_is_stated_as_a_bound(probability: float, bound: str) -> None:
    assert format_probability_bound(probability) == bound
