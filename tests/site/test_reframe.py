"""Every `systems/*/reframe.py` is a configuration that ReFrame accepts, with warnings as errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iowatch.core import InputError, MachineError
from iowatch.site import reframe_config
from iowatch.site.schedulers import SCHEDULER_OPTIONS, access_options
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack.records import StackPart
from iowatch.site.system import load_system, system_names
from tests.builders import build_stack
from tests.site.cases import load_configuration

ROOT = Path(__file__).resolve().parents[2]
STACK = build_stack(name="one", system="any", kind="system", features=("hdf5", "openmpi"), settings={"A": "1"})


@pytest.fixture
def one_stack(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack for machines without MPI."""
    monkeypatch.setattr(reframe_config, "discover_stacks", lambda system: [STACK])


def configuration(path: Path) -> object:
    site = load_configuration(path)
    site.validate()
    site.select_subconfig(path.parent.name)
    return site


@pytest.mark.parametrize("name", system_names())
@pytest.mark.usefixtures("one_stack")
def test_reframe_configuration_is_valid(name: str) -> None:
    site = configuration(ROOT / "systems" / name / "reframe.py")
    assert site.get("systems/0/name") == name
    assert site.get("systems/0/partitions/0/environs")
    assert site.get("systems/0/partitions/0/max_jobs") in (1, None) or load_system(name).retired
    assert Path(site.get("systems/0/partitions/0/extras")["scratch"]).is_absolute()


@pytest.mark.parametrize("name", [name for name in system_names() if load_system(name).retired])
def test_retired_machines_are_never_recognised_by_host_name(name: str, var: Path) -> None:
    site = configuration(ROOT / "systems" / name / "reframe.py")
    assert not any(re.match(pattern, "vm") for pattern in site.get("systems/0/hostnames"))


@pytest.mark.usefixtures("one_stack")
def test_environment_activates_the_stack(var: Path) -> None:
    (environment,) = reframe_config.reframe_environments("local")
    script = var / "stacks" / "any" / "one" / "activate.sh"
    assert environment["prepare_cmds"] == [f". {script}"]
    assert [name for name in environment["features"] if name != "libyaml"] == ["mpi", "hdf5", "openmpi"]
    assert environment["extras"]["stack_json"] == str(script.parent / "stack.json")
    assert script.is_file()


@pytest.mark.parametrize(
    ("mpi", "setting", "expected"),
    [("mpich", "", "ROMIO"), ("cray-mpich", "", "ROMIO"), ("openmpi", "romio321", "ROMIO"), ("openmpi", "", "OMPIO")],
)
@pytest.mark.usefixtures("var")
def test_stack_offers_romio_where_its_mpi_uses_it(mpi: str, setting: str, expected: str) -> None:
    """Open MPI has both; OMPIO is its default."""
    settings = {"OMPI_MCA_io": setting} if setting else {}
    stack = build_stack(StackPart(mpi, "1"), name="one", system="any", kind="system", settings=settings)
    assert stack.mpi_io == expected
    assert ("romio" in reframe_config.reframe_environment(stack)["features"]) is (expected == "ROMIO")


@pytest.mark.parametrize(
    ("part", "library", "expected"),
    [
        (StackPart("benchio", "1.0", {"workloads": "true"}, hash="x" * 32), None, True),
        (StackPart("benchio", "1.0", {"workloads": "false"}, hash="x" * 32), "/usr/lib/libyaml.so", False),
        (StackPart("openmpi", "4.1.4"), "/usr/lib/libyaml.so", True),
        (StackPart("openmpi", "4.1.4"), None, False),
    ],
)
@pytest.mark.usefixtures("var")
def test_stack_runs_workloads_where_its_benchio_has_libyaml(
    part: StackPart, library: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spack's benchio has it by its variant; a session builds others with the library that the compiler finds."""
    monkeypatch.setattr(stack_probe, "find_compiler_library", lambda *_: library)
    stack = build_stack(part, name="one", system="any", kind="system")
    assert ("libyaml" in reframe_config.reframe_environment(stack)["features"]) is expected


def test_committed_stacks_have_valid_reframe_names() -> None:
    """ReFrame's schema: `^[a-zA-Z_](?:[a-zA-Z0-9_-])*$`; `netcdf-4.4.0` has dots."""
    stacks = {path.parent.name for path in ROOT.glob("systems/*/stacks/*/spack.yaml")}
    assert "netcdf-4.4.0" in stacks
    names_ = {reframe_config.reframe_environment_name(stack) for stack in stacks}
    assert len(names_) == len(stacks)
    assert all(re.fullmatch(r"[a-zA-Z_](?:[a-zA-Z0-9_-])*", name) for name in names_)
    assert reframe_config.reframe_environment_name("4.4") == "_4_4"


def test_stacks_with_equal_reframe_names_are_refused(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = [build_stack(name=name, kind="system") for name in ("a.1", "a_1")]
    monkeypatch.setattr(reframe_config, "discover_stacks", lambda system: stacks)
    with pytest.raises(InputError, match=r"'a\.1' and 'a_1'"):
        reframe_config.reframe_environments("local")


def test_missing_stack_is_an_error(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ReFrame without an environment would print "Ran 0/0" and exit with 0."""
    monkeypatch.setattr(reframe_config, "discover_stacks", lambda system: [])
    with pytest.raises(MachineError, match="no usable stack"):
        reframe_config.reframe_environments("local")


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        ("slurm", ["--no-requeue", "--account=x", "--partition=long", "--exclusive"]),
        ("pbs", ["-r n", "--account=x", "-q long", "-l place=excl"]),
        ("lsf", ["-rn", "--account=x", "-q long", "-x"]),
        ("flux", ["--account=x"]),
        ("local", ["--account=x"]),
    ],
)
def test_access_options_of_each_scheduler(scheduler: str, expected: list[str]) -> None:
    assert access_options(scheduler, "long", ["--account=x"]) == expected


def test_flux_launcher_spreads_ranks_over_nodes() -> None:
    from reframe.core.backends import getlauncher

    import iowatch.site.reframe_config  # noqa: F401 - registers the launcher

    class Job:
        num_tasks = 6
        num_tasks_per_node = 4

    launcher = getlauncher(SCHEDULER_OPTIONS["flux"].launcher)()
    assert launcher.command(Job()) == ["flux", "run", "-n", "6", "-N", "2", "--exclusive"]
