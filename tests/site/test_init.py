"""`iowatch system init`: iowatch and ReFrame accept the written files, for every scheduler."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from iowatch.benchmarks.suites import load_suite
from iowatch.core import InputError, UsageError
from iowatch.site import machine, reframe_config
from iowatch.site.init import write_system
from iowatch.site.machine import QueueInfo
from iowatch.site.schedulers import SCHEDULER_OPTIONS, with_mpi_types
from iowatch.site.system import read_system

from .test_reframe import STACK, configuration

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that has only the template, on a machine with one stack."""
    root = tmp_path / "checkout"
    (root / "benchmarks").mkdir(parents=True)
    shutil.copytree(ROOT / "systems" / "_template", root / "systems" / "_template")
    monkeypatch.setenv("IOWATCH_ROOT", str(root))
    monkeypatch.setattr(reframe_config, "discover_stacks", lambda system: [STACK])
    return root


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a program of a batch system on PATH; the programs of this machine are hidden."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("cat", "sh"):
        (directory / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(directory))

    def make(name: str, body: str) -> None:
        path = directory / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    return make


SINFO = """case "$1" in
--version) echo "slurm 22.05.8" ;;
*) printf 'standard|100|64|1-00:00:00\\nhigh mem|4|64+|infinite\\nstandard|20|64|1-00:00:00\\n' ;;
esac"""
QSTAT = """printf 'Queue Max Tot\\n----- --- ---\\nworkq 0 0\\nlong 0 0\\n'"""


def test_machine_without_a_known_file_system_is_valid(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example a container; its description is valid nevertheless."""
    monkeypatch.setattr("iowatch.site.storage.list_mounts", list)
    written = write_system("here", scheduler="local")
    assert read_system(Path(written.files[0])).file_systems == ()


@pytest.mark.usefixtures("checkout", "fake")  # without the batch system of this machine
def test_smoke_suite_fits_a_machine_with_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a scheduler; a batch system would leave a job with more ranks than cores in the queue for ever."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    written = write_system("here", scheduler="local")
    batch = write_system("batch", scheduler="squeue")
    monkeypatch.delenv("IOWATCH_ROOT")
    needed = max(case.ranks for case in load_suite("smoke"))
    assert read_system(Path(written.files[0])).limits.ranks_per_node == needed
    assert read_system(Path(batch.files[0])).limits.ranks_per_node == 2


def test_misspelt_scheduler_in_a_configuration_is_refused() -> None:
    """`SCHEDULER = "Slurm"` in reframe.py, or ReFrame's own word for one."""
    with pytest.raises(InputError, match="no scheduler is called 'Slurm'") as error:
        SCHEDULER_OPTIONS["Slurm"]
    assert "Did you mean 'slurm'?" in str(error.value)
    assert "pbspro" not in SCHEDULER_OPTIONS


def test_slurm_partitions_are_detected(fake: Callable[[str, str], None]) -> None:
    fake("sinfo", SINFO)
    assert machine.detect_scheduler().name == "slurm"
    assert machine.detect_partitions("slurm") == [
        QueueInfo("standard", 120, 64, 1440),
        QueueInfo("high mem", 4, 64, None),
    ]


def test_partition_of_unequal_nodes_has_the_cores_of_its_smallest(fake: Callable[[str, str], None]) -> None:
    """sinfo prints a row for each type of nodes, or `4+` for four and more."""
    fake("sinfo", "printf 'mixed|1|8|60:00\\nmixed|2|4|60:00\\nall|3|4+|60:00\\n'")
    assert machine.detect_partitions("slurm") == [QueueInfo("mixed", 3, 4, 60), QueueInfo("all", 3, 4, 60)]


def test_partition_without_nodes_has_unknown_nodes(fake: Callable[[str, str], None]) -> None:
    """As a Slurm that was installed and not configured reports it: no "0 nodes" in questions and files."""
    fake("sinfo", "printf 'debug*|0|0|infinite\\n'")
    assert machine.detect_partitions("slurm") == [QueueInfo("debug", None, None, None, default=True)]


def test_pbs_queues_are_detected(fake: Callable[[str, str], None]) -> None:
    fake("pbsnodes", "echo pbs_version = 23.06.06")
    fake("qstat", QSTAT)
    assert machine.detect_scheduler().title == "pbs_version = 23.06.06"
    assert machine.detect_partitions("pbs") == [QueueInfo("workq"), QueueInfo("long")]


def test_machine_without_scheduler_is_local(fake: Callable[[str, str], None]) -> None:
    assert machine.detect_scheduler() == machine.LOCAL_SCHEDULER
    assert machine.detect_partitions("local") == []


@pytest.mark.parametrize("scheduler", ["local", "slurm", "pbs", "lsf", "flux"])
def test_written_files_are_accepted(checkout: Path, fake: Callable[[str, str], None], scheduler: str) -> None:
    if scheduler == "slurm":
        fake("sinfo", SINFO)
    written = write_system("new-one", scheduler=scheduler)
    folder = checkout / "systems" / "new-one"
    assert written.files == (str(folder / "system.yaml"), str(folder / "reframe.py"))
    assert "interconnect" in written.gaps
    system = read_system(folder / "system.yaml")
    assert system.nodes
    assert system.retired is None
    site = configuration(folder / "reframe.py")
    names = [partition["name"] for partition in site.get("systems/0/partitions")]
    assert names == (["standard", "high-mem"] if scheduler == "slurm" else ["default"])
    if scheduler == "slurm":
        assert site.get("systems/0/partitions/1/access") == ["--no-requeue", "--partition=high mem", "--exclusive"]
        assert site.get("systems/0/partitions/0/processor")["num_cpus"] == 64
        # Limits of cases: the nodes of the partition, as system.yaml has them.
        assert [partition["extras"]["nodes"] for partition in site.get("systems/0/partitions")] == [120, 4]
    elif scheduler in ("pbs", "lsf"):
        # The cores of this login node are no limit of the nodes.
        assert "num_cpus" not in site.get("systems/0/partitions/0/processor")


def test_missing_facts_are_noted_in_the_file(checkout: Path, fake: Callable[[str, str], None]) -> None:
    written = write_system("new-one", scheduler="pbs")
    text = (checkout / "systems" / "new-one" / "system.yaml").read_text()
    assert all(f"# Not found: {gap}." in text for gap in written.gaps)
    assert any("pbs: no answer" in gap for gap in written.gaps)


@pytest.mark.parametrize(
    ("scheduler", "default", "is_missing"),
    [("local", None, False), ("pbs", None, False), ("slurm", None, True), ("slurm", "pmix", False)],
)
@pytest.mark.usefixtures("checkout")
def test_mpi_type_is_missing_only_where_slurm_does_not_report_it(
    fake: Callable[[str, str], None], scheduler: str, default: str | None, is_missing: bool
) -> None:
    """Only srun has such a type: there is nothing to add with other schedulers."""
    fake("sinfo", SINFO)
    if default:
        fake("scontrol", f'echo "MpiDefault              = {default}"')
    gaps = write_system("new-one", scheduler=scheduler).gaps
    assert any("PMI type for srun" in gap for gap in gaps) == is_missing


def test_existing_description_is_not_overwritten(checkout: Path) -> None:
    write_system("new-one")
    (checkout / "systems" / "new-one" / "system.yaml").write_text("name: new-one\ntitle: mine\n")
    with pytest.raises(UsageError, match="already exists"):
        write_system("new-one")
    assert read_system(checkout / "systems" / "new-one" / "system.yaml").title == "mine"
    write_system("new-one", force=True)
    assert read_system(checkout / "systems" / "new-one" / "system.yaml").title != "mine"


@pytest.mark.parametrize("name", ["Upper", "with blank", "../out", "", "_template"])
def test_invalid_names_are_refused(checkout: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a system"):
        write_system(name)


def test_unknown_scheduler_is_refused(checkout: Path) -> None:
    with pytest.raises(UsageError, match="no scheduler 'slrm'"):
        write_system("new-one", scheduler="slrm")


def test_template_is_valid(var: Path, tmp_path: Path) -> None:
    """Copying the folder is the alternative way to add a system."""
    folder = tmp_path / "template"
    shutil.copytree(ROOT / "systems" / "_template", folder)
    assert read_system(folder / "system.yaml").limits.minutes == 60


@pytest.mark.parametrize(("kind", "name"), [("none", "squeue"), ("slurmdbd", "slurm")])
def test_slurm_without_accounting_uses_squeue(fake: Callable[[str, str], None], kind: str, name: str) -> None:
    """ReFrame's `slurm` ends the whole session at its first `sacct` where there are no accounts."""
    fake("sinfo", SINFO)
    fake("scontrol", f'echo "AccountingStorageType   = accounting_storage/{kind}"')
    found = machine.detect_scheduler()
    assert (found.name, found.launcher) == (name, "srun")
    assert [partition.name for partition in machine.detect_partitions(name)] == ["standard", "high mem"]


# Slurm 22.05 of Debian 12.
MPI_LIST = r"""printf 'MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\n'
printf 'specific pmix plugin versions available: pmix_v4\n'"""


@pytest.mark.parametrize(
    ("default", "types"),
    [
        ("none", {"openmpi": "pmix", "mpich": "pmi2"}),
        ("(null)", {"openmpi": "pmix", "mpich": "pmi2"}),
        ("pmix", {}),
        ("cray_shasta", {}),
        (None, None),
    ],
)
def test_srun_mpi_type_is_set_if_slurm_has_no_default(
    fake: Callable[[str, str], None], default: str | None, types: dict[str, str] | None
) -> None:
    """With `none`, ranks of Open MPI abort, and each rank of MPICH is `0 of 1`; observed with Debian's packages."""
    fake("srun", MPI_LIST)
    if default:
        fake("scontrol", f'echo "MpiDefault              = {default}"')
    assert machine.slurm_mpi_types() == types


def test_environments_get_the_mpi_type_of_their_mpi() -> None:
    environments = [{"name": mpi, "features": ["mpi", mpi]} for mpi in ("openmpi", "mpich", "intel")]
    settings = {
        e["name"]: e.get("env_vars") for e in with_mpi_types(environments, {"openmpi": "pmix", "mpich": "pmi2"})
    }
    assert settings == {"openmpi": [["SLURM_MPI_TYPE", "pmix"]], "mpich": [["SLURM_MPI_TYPE", "pmi2"]], "intel": None}
    assert with_mpi_types(environments, {}) == environments


def test_environment_modules_use_the_current_reframe_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LMOD_CMD", raising=False)
    monkeypatch.setenv("MODULESHOME", "/usr/share/modules")
    assert machine.detect_module_system() == "envmod"


@pytest.mark.parametrize("place", ["/fs/a b: c #d", "/fs/é"])
def test_scratch_path_with_special_characters_is_read_back(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("SCRATCH", place)
    write_system("new-one")
    found = read_system(checkout / "systems" / "new-one" / "system.yaml")
    assert found.scratch_directory() == Path(place) / "iowatch"
