"""The job of a run without ReFrame: order in, lines of the script out."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.benchmarks.registry import get_benchmark
from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks import (
    EXTENSIONS,
    CheckedRun,
    CheckExtension,
    CheckTurn,
    ExtensionSettings,
    ExtraWork,
    JobScript,
    OrderedFileSystem,
    OrderedRun,
    RunOrder,
    ordered_runs,
)
from iowatch.checks.cases import ReframeTasks, changed_case, skip_reason
from iowatch.checks.job import compose_job, job_time_limit_s, scheduler_options
from iowatch.checks.outputs import missing_results_of, read_output
from iowatch.checks.run import FinishedJob
from iowatch.checks.starts import add_starts, remove_earlier_start
from iowatch.core import UsageError
from iowatch.site import FileSystemIdentity
from tests.builders import build_checked_run, build_output

VERIFICATION = ExtraWork("verification", 1, 1.0, 30.0)


def lines_of(script: JobScript, launcher: str = "mpirun -np 4") -> list[str]:
    """All lines of the script, as ReFrame writes them."""
    start = " ".join([launcher, *script.command] if script.is_launched else script.command)
    return [*script.before, start, *script.after]


def position(lines: list[str], words: str) -> int:
    """Number of the only line with these words."""
    (found,) = (number for number, line in enumerate(lines) if words in line)
    return found


def test_script_is_of_the_shell_and_in_its_order() -> None:
    run = build_checked_run()
    lines = lines_of(compose_job(run, JobScript()))
    assert subprocess.run(["bash", "-n"], input="\n".join(lines), text=True, check=False).returncode == 0
    start = position(lines, "mpirun -np 4 ior ")
    assert f" -o {run.scratch}/" in lines[start]
    places = [
        position(lines, f"mkdir -m 700 {run.scratch} || exit 1"),
        position(lines, "iowatch.machine"),
        position(lines, "> iowatch.program"),
        position(lines, "iowatch.covariates.sh /var/scratch/x.y/iowatch-s1/" + run.scratch.name + " before"),
        position(lines, "> iowatch.started"),
        start,
        position(lines, "echo $? > start-0.rc"),
        position(lines, "> iowatch.ended"),
        position(lines, run.scratch.name + " after"),
        position(lines, "> iowatch.mount.after"),
    ]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("nodes", "environment", "component"),
    [(1, {}, ""), (2, {}, "^lockedfile"), (2, {"OMPI_MCA_sharedfp": "lockedfile"}, "lockedfile")],
)
def test_open_mpi_needs_no_file_of_its_own_on_several_nodes(
    nodes: int, environment: dict[str, str], component: str
) -> None:
    """A site's own choice stays."""
    script = compose_job(build_checked_run(options={"nodes": nodes}), JobScript())
    exports = [line for line in script.before if line.startswith("export OMPI_")]
    commands = "\n".join([*exports, 'printf %s "$OMPI_MCA_sharedfp"'])
    done = subprocess.run(["bash", "-c", commands], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == component


def test_lines_of_the_user_are_kept() -> None:
    script = compose_job(build_checked_run(), JobScript(before=["module load x"], after=["echo end"]))
    assert "module load x" in script.before
    assert "echo end" in script.after


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"prepare.out": "", "prepare.err": "ERROR: unrecognized IO API (HDF5)", "prepare.rc": "255\n"},
            "the file to read could not be written: `ior -a HDF5 …` ended with exit code 255: "
            "ERROR: unrecognized IO API (HDF5)",
        ),
        ({"prepare.out": "", "prepare.err": ""}, "the write of the file to read did not end"),
        ({}, "the program was not started or did not end"),
        (
            {"prepare.out": "IOR-4.0.0", "iowatch.started": "1.0"},
            "the program was not started or did not end: IOR-4.0.0",
        ),
    ],
)
def test_read_without_its_file_says_so(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    run = build_checked_run(tmp_path, options={"op": "read", "api": "hdf5"})
    output = read_output(run, FinishedJob(None, (), tmp_path / "rfm_job.sh"))
    assert (output.status, output.reason) == ("failed", reason)


def test_write_of_the_file_to_read_leaves_its_exit_code(tmp_path: Path) -> None:
    """Only a failed one: the job ends with it, and the program is not started."""
    run = build_checked_run(tmp_path, options={"op": "read"}, launcher="true;", program="false")
    (line,) = [line for line in lines_of(compose_job(run, JobScript())) if "prepare.rc" in line]
    ended = subprocess.run(["bash", "-c", f"{line}\necho started"], cwd=tmp_path, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert (tmp_path / "prepare.rc").read_text() == "1\n"


def test_read_starts_once_per_sample_and_each_has_its_exit_code() -> None:
    lines = lines_of(compose_job(build_checked_run(options={"op": "read"}), JobScript()))
    assert [line for line in lines if line.endswith(".rc")] == [f"echo $? > start-{n}.rc" for n in range(3)]
    assert sum(line.startswith("mpirun -np 4 ior ") and line.endswith(" 2>> start-1.err") for line in lines) == 1


@pytest.mark.parametrize(
    ("writer", "reader", "started", "code"), [(0, 0, "h5bench_read", "0"), (0, 3, "h5bench_read", "3"), (1, 0, "", "1")]
)
def test_file_is_read_only_after_a_write_that_succeeded(
    tmp_path: Path, writer: int, reader: int, started: str, code: str
) -> None:
    """`write-read` of h5bench is two programs in one start, which has the exit code of the one that failed."""
    options = get_benchmark("h5bench").read_options({"op": "write-read", "ranks": 4, "nodes": 1})
    case = SuiteCase("mine", "h5bench", "single", options, "none", 60)
    lines = list(add_starts(build_checked_run(tmp_path, case=case), JobScript(command=["h5bench_write"])).after)
    (tmp_path / "mpirun").write_text(f"#!/bin/sh\necho $3 > started\nexit {reader}\n")
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "started").touch()
    job = [f"PATH={tmp_path}:$PATH", f"(exit {writer})", *lines[: position(lines, "> start-0.rc") + 1]]
    subprocess.run(["bash", "-c", "\n".join(job)], cwd=tmp_path, check=True)
    assert (tmp_path / "started").read_text().strip() == started
    assert (tmp_path / "start-0.rc").read_text().strip() == code


def test_verification_follows_the_measurement() -> None:
    run = build_checked_run()
    assert not any("verification" in line for line in lines_of(compose_job(run, JobScript())))
    run = replace(run, order=RunOrder(session="s1", runs=(OrderedRun(run.key, (VERIFICATION,)),)))
    lines = lines_of(compose_job(run, JobScript()))
    assert position(lines, "echo $? > verification.rc") > position(lines, "> iowatch.ended")
    assert job_time_limit_s(run) == 90


def test_job_has_the_limit_of_its_case() -> None:
    assert job_time_limit_s(build_checked_run()) is None


def test_directory_of_the_session_is_used() -> None:
    identity = FileSystemIdentity(type="lustre")
    file_systems = (OrderedFileSystem(None, Path("/lustre"), {"default": identity}),)
    run = build_checked_run(order=RunOrder(session="s1", file_systems=file_systems), scratch_base=Path("/lustre"))
    assert run.scratch.parent == Path("/lustre/iowatch-s1")
    assert any("expected type lustre" in line for line in compose_job(run, JobScript()).before)


def test_only_ordered_runs_are_executed() -> None:
    run = build_checked_run()
    ordered = replace(run, order=RunOrder(runs=(OrderedRun(run.key),)))
    assert skip_reason(ordered) is None
    others = (OrderedRun(run.key._replace(stack="other")),)
    assert skip_reason(replace(run, order=RunOrder(runs=others))) == "not chosen for this session"
    assert skip_reason(replace(ordered, turn=CheckTurn(1, "left", "gnu"))) is None
    assert skip_reason(replace(ordered, turn=CheckTurn(1, "left", "other"))) == "a turn of the other stack"


def test_session_runs_cases_as_the_suite_says(tmp_path: Path) -> None:
    case = build_checked_run().case
    changed = changed_case(case, RunOrder(), ReframeTasks({"repeat": "5"}, 8, 4))
    assert (changed.options["repeat"], changed.ranks, changed.nodes) == (5, 8, 2)
    with pytest.raises(UsageError, match="ranks of a case"):
        changed_case(case, RunOrder(spool=tmp_path), ReframeTasks({}, 8, None))
    assert changed_case(case, RunOrder(spool=tmp_path), ReframeTasks({}, 1, None)) == case


def test_retest_avoids_nodes() -> None:
    run = build_checked_run(scheduler="slurm")
    assert scheduler_options(run) == []
    run = replace(run, order=RunOrder(runs=(OrderedRun(run.key, (), ("n3", "n4")),)))
    assert scheduler_options(run) == ["--exclude=n3,n4"]


@pytest.mark.parametrize(("scheduler", "options"), [("squeue", ["--nodelist=n1,n2"]), ("pbspro", []), ("local", [])])
def test_job_requires_nodes_where_its_scheduler_has_an_option(scheduler: str, options: list[str]) -> None:
    run = build_checked_run(scheduler=scheduler)
    (required,) = ordered_runs([run.key], required_nodes={run.key: ["n1", "n2"]})
    assert scheduler_options(replace(run, order=RunOrder(runs=(required,)))) == options


class Numbered(CheckExtension):
    """Uses everything that an extension can change."""

    name = "numbered"
    measures = False
    files = {"numbers": ("numbers.txt",)}  # noqa: RUF012 - read only

    def options(self, case: SuiteCase, settings: ExtensionSettings) -> Mapping[str, str]:
        return {"repeat": str(settings["repeat"])}

    def time_limit_s(self, case: SuiteCase, limit_s: float, settings: ExtensionSettings) -> float:
        return limit_s + 1

    def scheduler_options(self, scheduler: str, settings: ExtensionSettings) -> list[str]:
        return [f"--comment={scheduler}"]

    def change_command(self, run: CheckedRun, script: JobScript, settings: ExtensionSettings) -> JobScript:
        return script.with_command(["nl", *script.command])

    def change_job(self, run: CheckedRun, script: JobScript, settings: ExtensionSettings) -> JobScript:
        return script.starting_with(["echo begin"]).ending_with(["echo end"])


@pytest.fixture
def numbered(monkeypatch: pytest.MonkeyPatch) -> RunOrder:
    """An order that switches the extension on."""
    len(EXTENSIONS)
    monkeypatch.setattr(EXTENSIONS, "_all", {**EXTENSIONS, "numbered": Numbered()})
    return RunOrder(session="s1", extensions={"numbered": {"repeat": 2}})


def test_extension_changes_the_job(numbered: RunOrder) -> None:
    run = build_checked_run(options={"op": "read"}, order=numbered)
    lines = lines_of(compose_job(run, JobScript()))
    assert (lines[0], lines[-1]) == ("echo begin", "echo end")
    assert sum(line.startswith("mpirun -np 4 nl ior ") for line in lines) == 3, "every start"
    assert job_time_limit_s(run) == 61
    assert scheduler_options(run) == ["--comment=local"]
    assert changed_case(run.case, numbered, ReframeTasks({}, 1, None)).options["repeat"] == 2


def test_run_of_an_extension_that_does_not_measure_lacks_no_result(numbered: RunOrder) -> None:
    output = build_output()
    assert missing_results_of(build_checked_run(order=numbered), output) == []
    assert "write bandwidth" in missing_results_of(build_checked_run(), output)


def test_unknown_extension_is_refused() -> None:
    run = build_checked_run(order=RunOrder(extensions={"nonsense": {}}))
    with pytest.raises(UsageError, match="no check extension 'nonsense'"):
        compose_job(run, JobScript())


def test_job_that_is_started_again_has_only_the_results_of_its_last_start(tmp_path: Path) -> None:
    """As after a requeue: the first start ended in its second repetition; what ReFrame wrote before stays."""
    (tmp_path / "order.json").write_text("{}")
    (tmp_path / "rfm_job.out").touch()  # the scheduler opens it before the script starts
    lines = remove_earlier_start(tmp_path)
    first = [*lines, "mkdir darshan; echo 1 > darshan/start-0.darshan", "echo 1 > start-0.rc", "echo 1 >> start-1.out"]
    second = [*lines, "ls -A > ../second"]
    for script in (first, second):
        subprocess.run(["bash"], input="\n".join(script), cwd=tmp_path, text=True, check=True)
    assert sorted((tmp_path.parent / "second").read_text().split()) == ["iowatch.files", "order.json", "rfm_job.out"]
    # These are the first lines of every job.
    run = build_checked_run()
    script = compose_job(run, JobScript(before=["module load x"]))
    assert list(script.before[: len(lines)]) == remove_earlier_start(run.stage)


def test_job_that_starts_elsewhere_removes_and_writes_nothing(tmp_path: Path) -> None:
    """PBS and LSF start jobs in the home directory, unless an option names another one."""
    (tmp_path / "iowatch.files").write_text("iowatch.files\n")
    (tmp_path / "thesis").touch()
    lines = remove_earlier_start(tmp_path / "stage")
    subprocess.run(["bash"], input="\n".join(lines), cwd=tmp_path, text=True, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iowatch.files", "thesis"]
