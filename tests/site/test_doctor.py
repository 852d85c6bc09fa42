"""Installed parts, missing parts, and the command that installs them."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from iowatch.cli.commands.doctor import command
from iowatch.site import doctor, load_system, machine, reframe_config, storage, system
from iowatch.site.file_system import Scratch
from iowatch.site.stack.records import Stack, StackPart
from iowatch.site.system import CovariateSettings, PrometheusSettings, System
from tests.builders import build_stack
from tests.conftest import ROOT


def stack(*names: str) -> Stack:
    programs = {"ior": ("/usr/bin/mdtest",), "hpcc": ("/usr/bin/hpcc",)}
    parts = tuple(StackPart(name, "1.2.3", files=programs.get(name, ())) for name in names)
    from iowatch.site.stack.probe import features_of_parts

    return build_stack(*parts, name="system-x", kind="system", features=features_of_parts(parts))


@pytest.fixture
def machine_with(monkeypatch: pytest.MonkeyPatch, var: Path):
    """A Debian machine with these parts, no Spack, and root's rights."""

    def make(*names: str, debian: bool = True, uid: int = 0, programs: bool = True) -> None:
        monkeypatch.setattr(doctor, "discover_stacks", lambda system: [stack(*names)] if names else [])
        monkeypatch.setattr(doctor, "_configuration_problems", lambda system: ())
        monkeypatch.setattr(doctor.stack_install, "spack_version", lambda: None)
        monkeypatch.setattr(machine, "detect_distribution", lambda: machine.Distribution("Some Linux 1", debian))
        monkeypatch.setattr(doctor.os, "getuid", lambda: uid)
        monkeypatch.setattr(machine, "can_read_darshan_logs", lambda: True)
        monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}" if programs else None)
        monkeypatch.setattr(
            doctor.stack_probe, "find_compiler_library", lambda _compiler, name: name if programs else None
        )

    return make


SPACK = "iowatch stack install reference --system local --bootstrap"
# Where Debian's packages are the libraries, only benchmarks and Darshan are to be built.
QUICK = "iowatch stack install quick --system local --bootstrap"


@pytest.mark.capability("experiments.common")  # needs strace
def test_bare_debian_gets_one_apt_command(machine_with) -> None:
    machine_with(programs=False)
    report = doctor.examine_machine()
    assert not report.usable
    assert report.commands == (
        "apt-get install -y -o DPkg::Lock::Timeout=600 gcc openmpi-bin libopenmpi-dev libhdf5-openmpi-dev "
        "libnetcdf-mpi-dev libpnetcdf-dev pnetcdf-bin fio hpcc cmake pkg-config libyaml-dev strace",
        QUICK,
    )


@pytest.mark.parametrize(
    ("debian", "features", "expected"),
    [
        (True, {"hdf5", "fio"}, ("apt-get install -y -o DPkg::Lock::Timeout=600 libhdf5-openmpi-dev fio",)),
        (True, {"netcdf4", "h5bench"}, ("apt-get install -y -o DPkg::Lock::Timeout=600 libnetcdf-mpi-dev", QUICK)),
        (True, {"libyaml"}, ("apt-get install -y -o DPkg::Lock::Timeout=600 libyaml-dev",)),
        (False, {"libyaml"}, (SPACK,)),
        (False, {"hdf5"}, (SPACK,)),
        (False, {"fio", "romio"}, (SPACK,)),
        (False, {"romio"}, ()),  # no command installs it
    ],
)
def test_features_of_stacks_get_the_same_commands(
    machine_with, debian: bool, features: set[str], expected: tuple[str, ...]
) -> None:
    """Sessions store these commands for what no stack provides, without looking for stacks."""
    machine_with(debian=debian)
    assert doctor.install_commands(load_system("local"), features) == expected


@pytest.mark.parametrize(
    ("processor", "expected"),
    [("x86_64", " --only-binary=:all: --python-version 3.12 --target "), ("aarch64", "spack install darshan-util@3.")],
)
def test_missing_library_of_pydarshan_gets_its_command(
    machine_with, monkeypatch: pytest.MonkeyPatch, processor: str, expected: str
) -> None:
    """PyDarshan has packages with its library for x86-64 and up to Python 3.12 only; suites run without it."""
    machine_with("gcc", "openmpi", "hdf5", "netcdf-c", "parallel-netcdf", "fio", "hpcc")
    monkeypatch.setattr(machine, "can_read_darshan_logs", lambda: False)
    monkeypatch.setattr(machine.os, "uname", lambda: os.uname_result(("Linux", "node", "6", "1", processor)))
    report = doctor.examine_machine()
    assert [expected in command for command in report.commands] == [True, False]
    assert "PyDarshan's library" in [finding.title for finding in report.missing]
    assert report.usable


def test_other_sources_of_missing_programs_are_named(machine_with) -> None:
    machine_with("gcc", "openmpi", "hdf5", "netcdf-c", "parallel-netcdf", "h5bench")
    done = CliRunner().invoke(command, [], standalone_mode=False)
    assert "  or provide IOR, mdtest, Darshan by PATH, a modules stack, or `programs` in system.yaml" in done.stdout


def test_apt_command_has_sudo_without_root(machine_with) -> None:
    machine_with("gcc", "openmpi", uid=1000)
    assert (
        doctor.examine_machine()
        .commands[0]
        .startswith("sudo apt-get install -y -o DPkg::Lock::Timeout=600 libhdf5-openmpi-dev ")
    )


def test_other_distributions_get_the_spack_command(machine_with) -> None:
    machine_with("gcc", "openmpi", debian=False)
    report = doctor.examine_machine()
    assert report.usable
    assert report.commands == (SPACK,)
    assert {finding.command for finding in report.missing} == {SPACK}


def test_complete_machine_has_no_missing_parts(machine_with, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(
        "gcc", "openmpi", "hdf5", "netcdf-c", "parallel-netcdf", "ior", "h5bench", "fio", "hpcc", "darshan-runtime"
    )
    monkeypatch.setattr(doctor.stack_install, "spack_version", lambda: "1.1.0 (/x/spack)")
    report = doctor.examine_machine()
    assert (report.missing, report.commands) == ((), ())


def test_mdtest_is_missing_if_only_ior_is_installed(machine_with, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with("gcc", "openmpi")
    only_ior = build_stack(StackPart("ior", "4.0.0", files=("/opt/ior",)), name="x", kind="system", features=("ior",))
    monkeypatch.setattr(doctor, "discover_stacks", lambda system: [only_ior])
    missing = {finding.title for finding in doctor.examine_machine().missing}
    assert "mdtest" in missing
    assert "IOR" not in missing


@pytest.mark.parametrize(("parts", "code"), [(("gcc", "openmpi"), 0), (("gcc",), 1), ((), 1)])
def test_exit_code_and_json_report_usability(machine_with, parts: tuple[str, ...], code: int) -> None:
    machine_with(*parts)
    done = CliRunner().invoke(command, ["--json"], standalone_mode=False)
    assert done.return_value == code
    document = json.loads(done.stdout)
    assert document["usable"] is (code == 0)
    assert ("MPI" in document["missing"]) is (code == 1)
    assert {"mount", "technology", "free_bytes"} <= set(document["file_systems"][0])


def test_output_starts_with_the_answer(machine_with) -> None:
    machine_with("gcc", "openmpi")
    done = CliRunner().invoke(command, [], standalone_mode=False)
    first, second = done.stdout.splitlines()[:2]
    assert first.startswith("Suites can run; missing: parallel HDF5, ")
    packages = "libhdf5-openmpi-dev libnetcdf-mpi-dev libpnetcdf-dev pnetcdf-bin fio hpcc"
    assert second == f"  add it with: apt-get install -y -o DPkg::Lock::Timeout=600 {packages}"


def test_retired_system_gets_no_install_command(machine_with) -> None:
    machine_with()
    report = doctor.examine_machine("archer")
    assert report.retired is not None
    assert "published" in report.retired
    assert (report.commands, report.findings, report.usable) == ((), (), False)
    done = CliRunner().invoke(command, ["--system", "archer"], standalone_mode=False)
    assert done.return_value == 1
    assert done.stdout.startswith("No suite runs for this system, and nothing can be installed for it: ")
    assert "add it with" not in done.stdout


@pytest.mark.capability("experiments.common")  # needs strace
def test_system_without_system_stacks_gets_only_needed_packages(machine_with, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with(programs=False)
    described = system.load_system("local").model_copy(update={"system_stacks": False})
    monkeypatch.setattr(doctor, "load_system", lambda _system: described)
    assert doctor.examine_machine().commands == (
        "apt-get install -y -o DPkg::Lock::Timeout=600 cmake pkg-config strace",
        SPACK,
    )


def copy_system(place: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """A checkout with the system `copied`: that of the template, with one text of its reframe.py replaced."""
    (place / "systems").mkdir()
    (place / "benchmarks").symlink_to(ROOT / "benchmarks")
    shutil.copytree(ROOT / "systems" / "_template", folder := place / "systems" / "copied")
    for name, before, after in (("reframe.py", old, new), ("system.yaml", "name: template", "name: copied")):
        text = (folder / name).read_text()
        assert before in text
        (folder / name).write_text(text.replace(before, after))
    monkeypatch.setenv("IOWATCH_ROOT", str(place))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('SCHEDULER = "local"', 'SCHEDULER = "local', "line 8: unterminated string literal"),
        ('SCHEDULER = "local"', 'SCHEDULER = "slrum"', "no scheduler is called 'slrum'\n  Did you mean 'slurm'?"),
        ("LAUNCHER = None", 'LAUNCHER = "mprun"', "no such launcher: 'mprun'"),
        ('"time_limit": "60m"', '"time_limit": "60 minutes"', "time_limit '60 minutes', expected for example '1h30m'"),
        ("ACCESS = []", 'ACCESS = ["--account", 7]', "systems/0/partitions/0/access/1: 7 is not of type 'string'"),
        ('MODULES_SYSTEM = "nomod"', 'MODULES_SYSTEM = "tcl"', "systems/0/modules_system: 'tcl' is not one of"),
        ("launcher=LAUNCHER", "launcher=LAUNCHER.name", "AttributeError: 'NoneType' object has no attribute 'name'"),
    ],
)
def test_broken_reframe_configuration_is_refused_by_doctor_and_dry_run(
    old: str, new: str, problem: str, tmp_path: Path, var: Path, cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts are those of Python 3 and of ReFrame 4.10 for these mistakes."""
    monkeypatch.setattr(reframe_config, "discover_stacks", lambda system: [stack("gcc", "openmpi")])
    copy_system(tmp_path, monkeypatch, old, new)
    done = cli("doctor", "--system", "copied")
    assert (done.exit_code, problem in done.stdout) == (1, True), done.output
    assert done.stdout.startswith("Suites cannot run")
    refused = cli("run", "--system", "copied", "--suite", "tiny", "--dry-run")
    assert (refused.exit_code, problem in refused.stderr) == (2, True), refused.output


def test_valid_reframe_configuration_is_accepted(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reframe_config, "discover_stacks", lambda system: [stack("gcc", "openmpi")])
    copy_system(tmp_path, monkeypatch, "LAUNCHER = None", 'LAUNCHER = "mpiexec"')
    assert doctor.examine_machine("copied").problems == ()


def test_interfaces_that_a_program_lacks_are_shown() -> None:
    """`iowatch doctor` is what a session names for cases that are not available."""
    parts = (StackPart("ior", "4.0.0", {"hdf5": "false", "ncmpi": "true", "mdtest-posix": "false"}),)
    described = build_stack(*parts, name="system-x", kind="system", features=("ior", "mdtest"))
    ior, mdtest = (
        next(requirement for requirement in doctor._requirements() if requirement.feature == name)
        for name in ("ior", "mdtest")
    )
    assert doctor._versions_in_stacks(ior, [described]) == ("4.0.0 (system-x, no HDF5 interface)",)
    assert doctor._versions_in_stacks(mdtest, [described]) == ("4.0.0 (system-x, no POSIX interface)",)


def test_scratch_on_another_file_system_is_a_problem(machine_with, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is created; an undeclared file system is shown, and a misspelt path is a problem."""
    machine_with("gcc", "openmpi")
    found = storage.find_identity(tmp_path)
    for scratch, expected in (
        ({"path": str(tmp_path / "new")}, f"{tmp_path / 'new'} on {found} (not declared"),
        ({"path": str(tmp_path / "new"), "type": "lustre"}, "expected type lustre"),
        ({"path": str(tmp_path / "lustre-x" / "new")}, "lustre-x"),
    ):
        described = load_system("local").model_copy(update={"scratch": Scratch(**scratch)})
        monkeypatch.setattr(doctor, "load_system", lambda _name, described=described: described)
        report = doctor.examine_machine()
        assert report.usable == (report.scratch is not None) == ("not declared" in expected)
        assert expected in (report.scratch or report.problems[0])
        assert expected in CliRunner().invoke(command, [], standalone_mode=False).stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exists", [True, False])
def test_scratch_directory_is_tested_and_not_its_mount_point(
    machine_with, tmp_path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """`/scratch` belongs to root, `/scratch/ann/iowatch` to the user."""
    machine_with("gcc", "openmpi")
    scratch = tmp_path / "iowatch"
    if exists:
        scratch.mkdir()
    identity = storage.find_identity(tmp_path)
    assert identity is not None
    mount = storage.Mount(str(identity.mount), "ext4", 100, 100, writable=False)
    monkeypatch.setattr(storage, "list_mounts", lambda: [mount])
    described = load_system("local").model_copy(update={"scratch": Scratch(path=str(scratch))})
    monkeypatch.setattr(doctor, "load_system", lambda _name: described)
    report = doctor.examine_machine()
    assert (report.problems, report.file_systems[0].writable, scratch.exists()) == ((), True, exists)
    # The same directory, without the right to write.
    monkeypatch.setattr(os, "access", lambda *_words, **_more: False)
    monkeypatch.setattr(storage, "_write_probe", raise_read_only)
    report = doctor.examine_machine()
    assert (report.usable, report.scratch, report.file_systems[0].writable) == (False, None, False)
    fault = "cannot be written: Read-only" if exists else f"this account may not create it in {tmp_path}"
    assert fault in report.problems[0]


def raise_read_only(_base: Path) -> float:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_other_file_systems_are_shown_and_no_problem(machine_with, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions measure the others."""
    machine_with("gcc", "openmpi")
    facts = {"limits": {"total_bytes": "1g", "files": 10}, "technology": "x", "source": "x"}
    described = System.model_validate(
        {
            "name": "local",
            "title": "x",
            "scratch": str(tmp_path / "new"),
            "file_systems": [
                {"name": "here", "directory": f"{tmp_path}/other", **facts},
                {"name": "absent", "directory": "/absent/other", **facts},
            ],
        }
    )
    monkeypatch.setattr(doctor, "load_system", lambda _name: described)
    report = doctor.examine_machine()
    assert (report.usable, report.problems, [*report.other_file_systems]) == (True, (), ["here", "absent"])
    shown = CliRunner().invoke(command, [], standalone_mode=False).stdout
    assert f"File system here: {tmp_path}/other on mount " in shown
    assert "File system absent: cannot be used: the scratch directory /absent/other cannot be used: No such" in shown


def test_query_without_an_answer_is_reported(machine_with, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 9 refuses connections."""
    machine_with("gcc", "openmpi")
    queries = PrometheusSettings(url="http://127.0.0.1:9", queries={"ops": "up"})
    asking = load_system("local").model_copy(update={"covariates": CovariateSettings(prometheus=queries)})
    monkeypatch.setattr(doctor, "load_system", lambda name: asking)
    monkeypatch.setattr(doctor.covariates, "_silent", {})
    shown = CliRunner().invoke(command, [], standalone_mode=False).stdout
    assert "  not recorded: prometheus:ops: no answer of http://127.0.0.1:9" in shown
