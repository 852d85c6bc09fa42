"""What the tables of mdtest's versions mean, and which numbers of an output contradict each other.

The outputs in `data` are of mdtest itself (versions in their names, 2 ranks); the others are written for these tests.
"""

from __future__ import annotations

import pytest

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output, parse_output_file
from iowatch.core import Output
from tests.benchmarks.corpus import DATA
from tests.datasets import unpacked

HEADS = "   Operation                      Max            Min           Mean        Std Dev\n"
LINE = "   ---------                      ---            ---           ----        -------\n"


def parse(text: str) -> Output:
    return parse_output("mdtest", text, RunContext())


def samples(output: Output, operation: str, metric: str = "rate") -> tuple[float, ...] | None:
    for result in output.results:
        if (result.operation, result.metric) == (operation, metric):
            return result.samples
    return None


def row(label: str, *numbers: float) -> str:
    """A row as versions before 2021 print it, with a colon."""
    return f"   {label:<18}: " + " ".join(f"{number:14.3f}" for number in numbers) + "\n"


def old_output(
    version: str, options: str, rates: dict[str, tuple[float, ...]], *, tasks: int, files: int, before: str = ""
) -> str:
    """An output of version 1.9.3 to 3.4-dev with `-F`; rates of operations that are not given are 0."""
    labels = ("File creation", "File stat", "File read", "File removal", "Tree creation", "Tree removal")
    table = "".join(row(label, *rates.get(label, (0.0, 0.0, 0.0, 0.0))) for label in labels)
    return (
        "-- started at 11/02/2026 18:52:20 --\n\n"
        f"mdtest-{version} was launched with {tasks} total task(s) on 1 node(s)\n"
        f'Command line used: mdtest "-F" "-d" "/scratch/out" {options}\n'
        "Path: /scratch\n\n"
        f"{tasks} tasks, {files} files\n{before}\n"
        f"SUMMARY rate: (of 1 iterations)\n{HEADS}{LINE}{table}\n-- finished at 11/02/2026 19:02:17 --\n"
    )


def test_statistics_over_iterations_and_ranks_give_no_samples() -> None:
    path = unpacked("captured") / "mdtest" / "3.3.0" / "files_dirs_n100_i3_u" / "stdout"
    output = parse_output_file("mdtest", path)
    assert output.status == "incomplete"
    assert "'File creation'" in str(output.reason)
    assert "repeat the run with -i 1, or with -v" in str(output.reason)
    assert samples(output, "create") is None
    # Rank 0 alone creates the tree, so that maximum and minimum are iterations.
    assert samples(output, "tree-create") is not None
    assert output.facts["rate_summary"]["create"]["mean"] > 0


def test_lines_of_iterations_are_the_samples_of_statistics_over_ranks() -> None:
    """The table of the same output has 60353.600 and 37891.347: the latter is of rank 1."""
    output = parse_output_file("mdtest", DATA / "mdtest-3.3.0-verbose.txt")
    assert (output.status, output.reason) == ("ok", None)
    assert samples(output, "create") == (60353.6, 40178.634, 37899.848)
    assert samples(output, "stat") == (893583.179, 716691.751, 288285.795)


def test_missing_line_of_an_iteration_is_reported() -> None:
    text = (DATA / "mdtest-3.3.0-verbose.txt").read_text()
    line = next(line for line in text.splitlines(keepends=True) if "40178.634" in line)
    output = parse(text.replace(line, ""))
    assert output.status == "incomplete"
    assert "2 lines of iterations of 'File creation', expected 3" in str(output.reason)
    assert samples(output, "create") is None


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("3.3.0", "60353.600 ops", "80353.600 ops"),  # above the maximum of the table
        ("4.0.0", "      25368.774      17330.641", "      95368.774      17330.641"),
    ],
)
def test_line_of_an_iteration_that_contradicts_the_table_is_refused(name: str, old: str, new: str) -> None:
    text = (DATA / f"mdtest-{name}-verbose.txt").read_text()
    assert old in text
    output = parse(text.replace(old, new))
    assert output.status == "incomplete"
    assert samples(output, "create") is None


def test_fastest_rank_of_version_3_2_is_refused_if_a_line_contradicts_it() -> None:
    """Numbers of hpc/ior, issue 183: `-u`, 32 tasks; files of rank 0 took 7.251 s, the table has the fastest rank."""
    rates = {"File stat": (126072.839, 126072.839, 126072.839, 0.0), "File creation": (66972.954,) * 3 + (0.0,)}
    lines = (
        "V-1:   File creation     :          4.778 sec,      66972.804 ops/sec\n"
        "V-1:   File stat         :          7.251 sec,      44129.214 ops/sec\n"
    )
    text = old_output("1.9.3", '"-C" "-T" "-n" "10000" "-u" "-v"', rates, tasks=32, files=320000, before=lines)
    output = parse(text)
    assert output.status == "incomplete"
    assert "the line of an iteration of 'File stat', 7.251 sec and 44129.214 ops/sec, contradicts" in str(output.reason)
    assert samples(output, "stat") is None
    assert samples(output, "create") == (66972.954,)


def test_rank_0_alone_is_in_lines_of_version_4() -> None:
    """Its rate is a share of that of the table: 12684.387/s of one of two tasks."""
    output = parse_output_file("mdtest", DATA / "mdtest-4.0.0-verbose.txt")
    assert (output.status, output.reason) == ("ok", None)
    assert samples(output, "create") == (25368.774, 17330.641)


def test_rate_of_another_operation_in_a_line_is_ignored_if_its_time_is_right() -> None:
    """Versions of 2021 print it: hpc/ior, issue 381. Made of the output of 4.0.0: a creation of 60 files in 0.003 s."""
    text = (DATA / "mdtest-4.0.0-verbose.txt").read_text()
    line = "File creation     :          0.003 sec,       8665.321 ops/sec"
    assert line in text
    output = parse(text.replace(line, line.replace("  8665.321", "344737.315")))
    assert (output.status, output.reason) == ("ok", None)


@pytest.mark.parametrize("version", ["1.9.3", "3.3alpha1", "3.3.0+dev", "3.4.0+dev"])
def test_one_iteration_over_ranks_is_its_slowest_rank(version: str) -> None:
    """All items by the time of the slowest rank; one repetition, not two."""
    rates = {"File stat": (869001.467, 868995.927, 869000.379, 1.159)}
    output = parse(old_output(version, '"-T" "-n" "210000"', rates, tasks=260, files=54600000))
    assert (output.status, output.version) == ("ok", version)
    assert samples(output, "stat") == (868995.927,)


def test_deviation_of_one_of_many_ranks_may_be_0() -> None:
    """One of 10,000 ranks is 0.04 slower: the deviation of the others is 0.0004."""
    rates = {"File stat": (5000.040, 5000.0, 5000.040, 0.0)}
    assert parse(old_output("3.3.0", '"-T" "-n" "10"', rates, tasks=10_000, files=100_000)).status == "ok"
    output = parse(old_output("3.3.0", '"-T" "-n" "10"', rates, tasks=4, files=40))
    assert output.status == "incomplete"
    assert "deviation 0.000 is impossible for 4 values from 5000.000 to 5000.040" in str(output.reason)


def test_columns_are_read_by_their_heads() -> None:
    """With --showRankStatistics three columns are of ranks, and four of iterations."""
    output = parse_output_file("mdtest", DATA / "mdtest-4.1.0-ranks.txt")
    assert (output.status, output.reason) == ("ok", None)
    assert samples(output, "create") == (33307.953, 7332.699)
    text = (DATA / "mdtest-4.1.0-ranks.txt").read_text()
    output = parse(text.replace("per Iteration: Max            Min", "per Iteration: Max               "))
    assert (output.status, output.results) == ("incomplete", ())
    assert "the heads of a table are missing or damaged" in str(output.reason)


# `Continue stonewall`: each of 4 tasks created 21,700 of its 100,000 files in at least 1 s.
STONEWALL = "Continue stonewall hit min: 20100 max: 21700 avg: 20900.0 \n"


@pytest.mark.parametrize(
    ("version", "rate", "status", "reason"),
    [
        ("1.9.3", 362318.841, "incomplete", "the rate counts all requested files"),
        ("3.2.0", 362318.841, "incomplete", "the rate counts all requested files"),
        # 400,000 requested files in 5 s would be as likely as 86,800 created ones in 1.08 s.
        ("1.9.3", 80000.0, "incomplete", "no time is printed that shows which"),
        ("3.3.0", 80000.0, "ok", None),
        ("3.3.0", 362318.841, "incomplete", "the rate counts all requested files"),
    ],
)
def test_rate_of_requested_files_is_refused(version: str, rate: float, status: str, reason: str | None) -> None:
    rates = {"File creation": (rate, rate, rate, 0.0)}
    options = '"-C" "-W" "1" "-n" "100000"'
    output = parse(old_output(version, options, rates, tasks=4, files=400000, before=STONEWALL))
    assert output.status == status
    assert reason is None or reason in str(output.reason)
    assert samples(output, "create") == ((rate,) if status == "ok" else None)


def test_time_of_a_line_shows_that_created_files_are_counted() -> None:
    lines = STONEWALL + "V-1:   File creation     :          1.085 sec,      80000.000 ops/sec\n"
    rates = {"File creation": (80000.0, 80000.0, 80000.0, 0.0)}
    text = old_output("1.9.3", '"-C" "-W" "1" "-v" "-n" "100000"', rates, tasks=4, files=400000, before=lines)
    assert samples(parse(text), "create") == (80000.0,)


def with_times(seconds: float) -> str:
    """An output of -P: 20 files in 0.01 s are 2,000/s."""
    rates = {"File stat": (2000.0, 2000.0, 2000.0, 0.0)}
    text = old_output("3.3.0", '"-T" "-P" "-n" "10"', rates, tasks=2, files=20)
    table = text[text.index("SUMMARY") : text.index("\n-- finished")]
    times = table.replace("SUMMARY rate", "SUMMARY time").replace("      2000.000", f"{seconds:14.3f}")
    return text.replace(table, f"{table}\n{times}")


def test_rate_and_time_of_a_phase_confirm_its_items() -> None:
    output = parse(with_times(0.01))
    assert (output.status, samples(output, "stat", "time")) == ("ok", (0.01,))
    output = parse(with_times(0.1))
    assert (output.status, output.reason) == ("incomplete", "rate x time of 'File stat' is 200 items, not 20")


@pytest.mark.parametrize("options", ['"-n=10"', '"-n" "10" "-G=-500593791"', '"-n10" "--dataPacketType=timestamp"'])
def test_options_are_read_in_all_forms(options: str) -> None:
    rates = {"File stat": (2000.0, 2000.0, 2000.0, 0.0)}
    output = parse(old_output("3.4.0+dev", f'"-T" {options}', rates, tasks=2, files=20))
    assert (output.status, output.reason) == ("ok", None)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ('"-T" "-n"', "the command line has no value of -n"),
        ('"-T" "-n" "10" "-Q"', "the command line has -Q, which mdtest has not"),
        ('"-T" "-n" "10" "md"', "the command line has 'md', which is no option"),
        ('"-T" "-n" "1O"', "the value of -n is '1O', which is no number"),
        ('"-T" "-n" "11"', "the command line asks for 11 items per task, not for 20 of 2 tasks"),
    ],
)
def test_reason_names_the_damaged_option(options: str, reason: str) -> None:
    rates = {"File stat": (2000.0, 2000.0, 2000.0, 0.0)}
    output = parse(old_output("3.3.0", options, rates, tasks=2, files=20))
    assert (output.status, output.results) == ("incomplete", ())
    assert reason in str(output.reason)


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ("mdtest-1.9.3 was launched with", "the line 'was launched with' is missing"),
        ("Command line used", "the line 'Command line used' is missing"),
        ("2 tasks, 40 files/directories", "the line 'tasks, … files' is missing"),
        ("   Operation   ", "the heads of a table are missing"),
    ],
)
def test_reason_names_the_missing_line(lost: str, reason: str) -> None:
    lines = (DATA / "mdtest-1.9.3.txt").read_text().splitlines(keepends=True)
    output = parse("".join(line for line in lines if lost not in line))
    assert (output.status, output.results) == ("incomplete", ())
    assert reason in str(output.reason)


def test_number_that_is_wider_than_its_column_is_read() -> None:
    """Fifteen characters move the rest of their row."""
    rate = 10351001269.583
    rates = {"File removal": (rate, rate, rate, 0.0)}
    text = old_output("3.3.0", '"-r" "-n" "270000000"', rates, tasks=9600, files=2592000000000)
    assert samples(parse(text), "remove") == (rate,)
    # A digit less in a number of the usual width shortens its row.
    output = parse(text.replace("10351001269.583 10351001269.583 1", "1035100126.583 10351001269.583 1"))
    assert output.status == "incomplete"
    assert samples(output, "remove") is None


def test_version_that_lost_a_number_is_refused() -> None:
    """It decides what the table means and whether nodes are counted."""
    text = (DATA / "mdtest-1.9.3-lanl.txt").read_text()
    output = parse(text.replace("mdtest-1.9.3 was", "mdtest-1.9 was"))
    assert (output.status, output.results) == ("incomplete", ())
    assert "the line 'was launched with' is missing or damaged" in str(output.reason)


@pytest.mark.parametrize(
    ("directories", "status"),
    [
        # IOR's mdtest 1.9.3 and the one before it, with -v and without -d.
        ("dirpath(s):\n\t./out\ndirs_only               : False\n", "ok"),
        ("dirpath(s):\ndirs_only               : False\n", "ok"),
        # The end of the command line is missing, or nothing states the directory.
        ("dirpath(s):\n\t/scratch/out\ndirs_only               : False\n", "incomplete"),
        ("", "incomplete"),
    ],
)
def test_command_line_without_a_directory_needs_the_default_path(directories: str, status: str) -> None:
    rates = {"File creation": (100.0, 100.0, 100.0, 0.0), "Tree creation": (50.0, 50.0, 50.0, 0.0)}
    text = old_output("1.9.3", '"-C" "-n" "10"', rates, tasks=2, files=20, before=directories)
    output = parse(text.replace('"-d" "/scratch/out" ', ""))
    assert output.status == status
    assert status == "ok" or "names no directory (-d)" in str(output.reason)
