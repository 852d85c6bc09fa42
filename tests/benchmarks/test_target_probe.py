"""target_probe: captured outputs with and without a slow target (tests/data/PROVENANCE.md), and the program itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from statistics import median

import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output
from iowatch.benchmarks.target_probe import TARGET_PROBE
from iowatch.core import Output
from iowatch.findings import slow_targets_of_run
from iowatch.output.text.evidence import slow_target_lines
from iowatch.store import RunFacts
from tests.conftest import ROOT

DATA = Path(__file__).parent / "data"
SOUND = (DATA / "target_probe-1-sound.txt").read_text()
SLOW = (DATA / "target_probe-1-slow.txt").read_text()
FAILED = (DATA / "target_probe-1-failed.txt").read_text()
COMPILER = shutil.which("gcc") or shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


def parse(text: str, ranks: int | None = 1, rc: int = 0) -> Output:
    return parse_output("target_probe", text, RunContext(ranks=ranks, rc=rc))


def rates_of_first_repetition(text: str, operation: str) -> list[float]:
    """MiB/s of the lines of the first repetition, each of 1 MiB: 1 / s."""
    return [1 / float(seconds) for seconds in re.findall(rf"(?m)^row 1 \d+ {operation} 1048576 (\S+)$", text)]


def test_median_and_slowest_target_of_each_repetition() -> None:
    output = parse(SOUND)
    assert (output.status, output.version, output.facts["hosts"]) == ("ok", "1", ["n1"])
    first = {result.operation: result.samples[0] for result in output.results}
    expected = {}
    for operation in ("write", "read"):
        rates = rates_of_first_repetition(SOUND, operation)
        assert len(rates) == 8
        expected[f"{operation}-median-target"] = pytest.approx(median(rates))
        expected[f"{operation}-slowest-target"] = pytest.approx(min(rates))
    assert first == expected
    assert {result.metric for result in output.results} == {"target_bandwidth"}
    assert all(len(result.samples) == 3 for result in output.results)
    case = {"api": "POSIX", "ranks": 1, "total_bytes": 2**20, "cache": "drop"}
    assert all(result.case == case for result in output.results)


def test_run_keeps_the_rates_of_all_targets() -> None:
    """The third line of a write of t5 is 1 MiB in 0.027195 s: 36.77 MiB/s."""
    facts = RunFacts.from_document(parse(SLOW).facts)
    rates = facts.target_rates
    assert rates is not None
    assert (rates.names, rates.target_count) == (tuple(f"t{number}" for number in range(8)), 8)
    assert rates.locations[5] == "/targets/t5"
    assert rates.write[5][2] == 36.77
    assert len(rates.read) == 8


def test_only_the_slow_target_is_named() -> None:
    """Each of its five calls took 5 ms more, of the others 1.2 ms in all: about a twentieth."""
    sound = RunFacts.from_document(parse(SOUND).facts)
    assert list(slow_target_lines(sound)) == []
    slow = RunFacts.from_document(parse(SLOW).facts)
    assert slow.target_rates is not None
    named = slow_targets_of_run(slow.target_rates)
    assert {(target.target, target.operation) for target in named} == {("t5", "write"), ("t5", "read")}
    assert all(5 < target.ratio < 40 and target.others == 7 and target.repetitions == 3 for target in named)
    lines = list(slow_target_lines(slow))
    assert lines[0].startswith("target t5 (/targets/t5) writes at 0.0")
    assert lines[0].endswith(" of the median of the other 7 in all 3 repetitions")


def test_failed_target_fails_the_run_and_the_others_are_kept() -> None:
    output = parse(FAILED, rc=1)
    assert (output.status, output.results) == ("failed", ())
    assert "target t6 (/targets/t6): open: No such file or directory" in str(output.reason)
    rates = RunFacts.from_document(output.facts).target_rates
    assert rates is not None
    # Eight targets, of which a session measures every second one.
    assert (rates.names, rates.target_count) == (("t0", "t2", "t4"), 8)


def test_reads_from_the_page_cache_are_of_no_target() -> None:
    rates = RunFacts.from_document(parse(with_lines(SOUND, "cache drop", "cache keep")).facts).target_rates
    assert rates is not None
    assert (rates.read, len(rates.write)) == ((), 8)


def with_lines(text: str, before: str, after: str) -> str:
    """The output with other lines, and the checksum of these."""
    assert before in text
    *lines, last = text.replace(before, after).splitlines()
    return "\n".join([*lines, f"{last.rpartition(' ')[0]} {zlib.crc32(''.join(lines).encode()):08x}"]) + "\n"


def test_directories_of_one_name_are_named_by_their_paths() -> None:
    text = with_lines(SOUND, "target 1 t1 @", "target 1 t0 @")
    rates = RunFacts.from_document(parse(text).facts).target_rates
    assert rates is not None
    assert rates.names[:3] == ("/targets/t0", "/targets/t1", "t2")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("target_probe 1", "target_probe 2", "not the format 1"),
        ("targets 8", "targets 9", "expected the names of 9 targets (found 8)"),
        ("known 8", "known 7", "a line of the head is missing or impossible"),
        ("repetitions 3", "repetitions 4", "target 0 has 3 of 4 repetitions of the write"),
        ("row 2 3 read", "row 3 3 read", "a row is there twice, is missing"),
        ("row 1 0 write 1048576 0.", "row 1 0 write 0 0.", "a row is there twice, is missing"),
        ("row 3 7 read", "row 3 8 read", "a row is there twice, is missing"),
        ("cache drop", "cache some", "the line about the page cache is missing"),
    ],
)
def test_output_that_contradicts_itself_has_no_result(before: str, after: str, reason: str) -> None:
    output = parse(with_lines(SOUND, before, after))
    assert (output.status, output.results) == ("incomplete", ())
    assert reason in str(output.reason)


def test_changed_digit_is_found_by_the_checksum() -> None:
    line = next(line for line in SOUND.splitlines() if line.startswith("row 2 4 write"))
    output = parse(SOUND.replace(line, f"{line[:-1]}{(int(line[-1]) + 1) % 10}"))
    assert (output.status, output.results) == ("incomplete", ())
    assert "checksum of all lines" in str(output.reason)


def test_two_outputs_and_several_ranks_are_failures() -> None:
    assert parse(SOUND + SOUND).status == "failed"
    assert "8 ranks were requested" in str(parse(SOUND, ranks=8).reason)
    assert "not an output of target_probe" in str(parse("nothing\n").reason)


def test_volume_is_that_of_the_most_targets_of_a_session() -> None:
    """1 MiB written and read twice on 10 targets."""
    options = TARGET_PROBE.read_options({"size": "1m", "repeat": 2, "most": 10})
    assert TARGET_PROBE.volume_bytes(options) == 40 * 2**20
    assert TARGET_PROBE.arguments(options, "/scratch") == ["iowatch.targets", "1048576", "2", "2", "10"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target_probe")
    source = ROOT / "benchmarks" / "target_probe" / "src" / "target_probe.c"
    words = [str(COMPILER), "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run([*words, "-o", str(folder / "target_probe"), str(source)], check=True)
    preloaded = Path(__file__).parent / "slow_target.c"
    subprocess.run([*words, "-shared", "-fPIC", "-o", str(folder / "slow.so"), str(preloaded), "-ldl"], check=True)
    return folder / "target_probe"


def list_of(tmp_path: Path, names: list[str]) -> Path:
    """A list of directories below `tmp_path`, which are made."""
    lines = []
    for name in names:
        directory = tmp_path / name
        directory.mkdir()
        lines.append(f"{name}\t{directory}\t{directory}/.file\n")
    path = tmp_path / "list"
    path.write_text("".join(lines))
    return path


def run_program(program: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, env=environment, check=False)


@needs_compiler
def test_program_names_the_slow_target_and_leaves_no_file(program: Path, tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(6)]
    targets = list_of(tmp_path, names)
    slow = {"LD_PRELOAD": str(program.parent / "slow.so"), "SLOW_PATH": f"{tmp_path}/t2/", "SLOW_US": "200000"}
    done = run_program(program, targets, 2**18, 3, 2, 100, **slow)
    assert done.returncode == 0, done.stderr
    output = parse(done.stdout)
    rates = RunFacts.from_document(output.facts).target_rates
    assert (output.status, rates is not None) == ("ok", True)
    assert rates is not None
    assert {target.target for target in slow_targets_of_run(rates)} == {"t2"}
    assert [path for name in names for path in (tmp_path / name).iterdir()] == []


@needs_compiler
def test_each_day_has_a_part_of_many_targets(program: Path, tmp_path: Path) -> None:
    """Seven targets, at most three per session: three days have all of them."""
    targets = list_of(tmp_path, [f"t{number}" for number in range(7)])
    by_day = []
    for day in range(20000, 20003):
        done = run_program(program, targets, 4096, 2, 1, 3, day)
        by_day.append(re.findall(r"(?m)^target \d+ (t\d) @", done.stdout))
    assert sorted(len(names) for names in by_day) == [2, 2, 3]
    assert sorted(name for names in by_day for name in names) == [f"t{number}" for number in range(7)]


@needs_compiler
def test_target_without_a_layout_is_reported(program: Path, tmp_path: Path) -> None:
    """An empty name of a file: `lfs setstripe` could make none on this target."""
    targets = list_of(tmp_path, ["t0", "t1"])
    targets.write_text(f"{targets.read_text()}OST 2\twork-OST0002\t\n")
    done = run_program(program, targets, 4096, 2)
    assert done.returncode == 1
    assert "target OST 2 (work-OST0002): layout: no file could be made on it" in str(parse(done.stdout, rc=1).reason)


@needs_compiler
def test_slow_target_moves_fewer_bytes(program: Path, tmp_path: Path) -> None:
    """0.5 s for the write, in chunks of 256 KiB that take 0.3 s each: the second one begins in time, the third not."""
    targets = list_of(tmp_path, ["t0"])
    slow = {"LD_PRELOAD": str(program.parent / "slow.so"), "SLOW_PATH": f"{tmp_path}/t0/", "SLOW_US": "300000"}
    done = run_program(program, targets, 2**22, 1, 1, **slow)
    assert re.findall(r"(?m)^row 1 0 write (\d+) ", done.stdout) == [str(2 * 2**18)]
