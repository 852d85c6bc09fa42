"""How stderr, the exit code and the requested ranks change the status of an output; and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import benchmark_names, parse_output, parse_output_file
from iowatch.cli.commands.parse import command
from iowatch.core import InputError, UsageError
from tests.benchmarks.corpus import DATA
from tests.benchmarks.sealed import sealed
from tests.datasets import unpacked

SOUND = DATA / "ior-3.2.1-posix.txt"


def test_valid_output_with_exit_code_0_is_ok() -> None:
    assert parse_output_file("ior", SOUND, rc=0, ranks=2).status == "ok"


@pytest.mark.parametrize(
    ("rc", "status", "words"),
    [(1, "failed", "exit code 1"), (137, "incomplete", "SIGKILL"), (-15, "incomplete", "SIGTERM")],
)
def test_exit_code_determines_status(rc: int, status: str, words: str) -> None:
    output = parse_output_file("ior", SOUND, rc=rc)
    assert output.status == status
    assert words in str(output.reason)


def test_failure_signature_in_stderr_fails_the_output() -> None:
    text = SOUND.read_text()
    assert parse_output("ior", text, RunContext(stderr="module: command not found\n")).status == "ok"
    output = parse_output(
        "ior", text, RunContext(stderr=b"x\nmca_fbtl_posix_pwritev: error in writev:No space left on device\n")
    )
    assert output.status == "failed"
    assert str(output.reason).startswith("no space left on device")


# Those of other numbers of ranks are in test_probes.py, test_node_pairs.py, test_target_probe.py,
# test_pnetcdf_kernels.py, test_command.py and test_node_times.py.
OF_OTHERS = ("fio", "hpcc", "node_pairs", "target_probe", "s3d_io", "flash_io", "benchio-record-nodes", "command")
OF_TWO_RANKS = [path for path in sorted(DATA.iterdir()) if not path.name.startswith(OF_OTHERS)]


@pytest.mark.parametrize("path", OF_TWO_RANKS, ids=lambda path: path.name)
def test_unexpected_number_of_ranks_is_a_failure(path: Path) -> None:
    tool = path.name.partition("-")[0]
    # A session refuses an output without IOR's summary, which only other programs that contain IOR print.
    is_of_session = "part-of-a-program" not in path.name
    assert parse_output_file(tool, path, ranks=2, fresh=is_of_session).status == "ok"
    output = parse_output_file(tool, path, ranks=4)
    assert output.status == "failed"
    assert "4 ranks were requested" in str(output.reason)


def test_independent_processes_are_reported_as_rank_mismatch() -> None:
    """Observed with MPICH of Ubuntu 24.04: `mpiexec -n 4` starts four programs of one rank."""
    assert RunContext(ranks=4).rank_mismatch_reason(1, "IOR") == (
        "4 ranks were requested, IOR ran with 1: independent processes, as with the launcher of another MPI"
    )
    assert RunContext(ranks=4).rank_mismatch_reason(2, "IOR") == "4 ranks were requested, IOR ran with 2"
    assert RunContext(ranks=1).rank_mismatch_reason(1, "IOR") is None
    assert RunContext().rank_mismatch_reason(1, "IOR") is None


def test_two_runs_in_one_output_fail_without_results() -> None:
    output = parse_output("ior", SOUND.read_text() * 2, RunContext())
    assert (output.status, output.results) == ("failed", ())


def test_result_file_next_to_the_output_is_read(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("Writing output to /scratch/other/out.txt\n")
    assert parse_output_file("ior", tmp_path / "stdout").status == "incomplete"
    (tmp_path / "out.txt").write_text(SOUND.read_text())
    assert parse_output_file("ior", tmp_path / "stdout").status == "ok"


def test_every_tool_has_a_parser_and_unknown_tools_are_refused() -> None:
    assert all(parse_output(tool, "", RunContext()).status != "ok" for tool in benchmark_names())
    with pytest.raises(UsageError, match="no benchmark 'iro'"):
        parse_output("iro", "", RunContext())


def test_unreadable_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Is a directory"):
        parse_output_file("ior", tmp_path)


def test_command_prints_one_document() -> None:
    result = CliRunner().invoke(command, ["ior", str(SOUND), "--rc", "0", "--ranks", "2", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert {"tool", "version", "status", "reason", "results"} <= document.keys()
    assert document["results"][0].keys() == {"operation", "metric", "unit", "samples", "case"}


def test_command_prints_the_reason(tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_text(SOUND.read_text()[:-60])
    result = CliRunner().invoke(command, ["ior", str(cut)])
    assert result.exit_code == 1
    assert result.stdout.startswith("ior 3.2.1: incomplete\nthe output ends before 'Finished'")
    assert "api=POSIX" in result.stdout


def test_command_refuses_a_missing_file() -> None:
    result = CliRunner().invoke(command, ["ior", "/nowhere/at/all"])
    assert result.exit_code == 2


@pytest.mark.parametrize("tool", ["benchio", "ior", "mdtest", "h5bench"])
def test_empty_output_is_reported_as_empty(tool: str) -> None:
    """The missing parts follow from that and are not listed; an exit code is reported in addition."""
    assert parse_output(tool, "\n", RunContext()).reason == "the output is empty"
    reason = parse_output(tool, "", RunContext(rc=-9)).reason
    assert reason is not None
    assert reason.startswith("the output is empty; ")


def test_runs_with_verification_are_separate_cases() -> None:
    """IOR's reads compare while they are timed (-R), so that such a read is slower."""
    root = unpacked("captured") / "ior" / "4.0.0"
    for name, verified in (("posix_check_WR", True), ("posix_shared_indep_np2", None)):
        output = parse_output_file("ior", root / name / "stdout")
        assert {result.case.get("verify") for result in output.results} == {verified}


@pytest.mark.parametrize(("checked", "status"), [(0, "failed"), (1 << 20, "ok")])
def test_benchio_fails_when_requested_verification_is_missing(checked: int, status: str) -> None:
    record = json.loads((DATA / "benchio-record.json").read_text())
    record["options"]["verify"] = True
    record["verification"] = {"asked": True, "bytes_checked": checked, "bytes_different": 0}
    output = parse_output("benchio", sealed(record), RunContext())
    assert output.status == status, output.reason
    assert {result.case.get("verify") for result in output.results} == {True}


def test_failure_signature_in_the_log_fails_a_result_file(tmp_path: Path) -> None:
    log = tmp_path / "out"
    record = DATA / "benchio-record.json"
    log.write_text("benchio 1.0.0: posix\n")
    assert parse_output_file("benchio", record, log=log).status == "ok"
    log.write_text("n1: write failed: No space left on device\n")
    assert "no space left" in str(parse_output_file("benchio", record, log=log).reason)
