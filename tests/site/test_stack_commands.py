"""`iowatch stack` and `iowatch system` as commands: exit codes, JSON, messages."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from iowatch.cli.commands import stack, system
from iowatch.core import InputError, UsageError
from iowatch.session.plan import make_session_plan
from iowatch.session.reframe import ReframeSite
from iowatch.site.show import render_stack_list
from iowatch.site.stack import install as stack_install
from iowatch.site.stack.install import install_stack
from tests.builders import build_stack

ROOT = Path(__file__).resolve().parents[2]


def run(command: object, *arguments: str) -> Result:
    return CliRunner().invoke(command.command, list(arguments), standalone_mode=False)  # type: ignore[attr-defined]


def test_diff_of_the_two_netcdf_stacks(var: Path) -> None:
    """They differ only in netCDF, as the comparison of [lawrence2017] requires."""
    done = run(stack, "diff", "netcdf-4.3.3.1", "netcdf-4.4.0", "--json")
    document = json.loads(done.stdout)
    assert document["differences"] == [{"part": "netcdf-c", "field": "version", "left": "4.3.3.1", "right": "4.4.0"}]
    assert document["rebuilt"] == ["benchio"]


def test_diff_of_lock_files_by_path(var: Path) -> None:
    folder = ROOT / "systems" / "local" / "stacks"
    locks = [str(folder / name / "spack.lock") for name in ("openmpi-4", "openmpi-5")]
    document = json.loads(run(stack, "diff", *locks, "--json").stdout)
    assert {"part": "openmpi", "field": "version", "left": "4.1.4", "right": "5.0.10"} in document["differences"]


def test_list_marks_locked_stacks(var: Path) -> None:
    document = json.loads(run(stack, "list", "--json").stdout)
    states = {one["name"]: one["status"] for one in document["stacks"]}
    assert states["reference"] == "locked"
    assert states["netcdf-4.10"] == "locked"


def test_list_shows_why_a_stack_is_broken() -> None:
    note = "its modules do not load: no module mpi/6"
    console = Console(width=100, record=True, file=io.StringIO())
    render_stack_list([build_stack(name="site", kind="modules", status="broken", note=note)], console)
    assert note in console.export_text()


def test_retired_systems_have_no_stacks(var: Path) -> None:
    assert json.loads(run(stack, "list", "--system", "archer", "--json").stdout) == {"stacks": []}
    with pytest.raises(UsageError, match="nothing can be installed for system 'archer': known here"):
        install_stack("reference", "archer")


def test_error_for_a_locked_stack_has_the_install_command(var: Path) -> None:
    """`iowatch run --ab netcdf-4.3.3.1 netcdf-4.4.0` on a machine where they were never built."""
    site = ReframeSite("local", Path("reframe.py"), (), {"system-openmpi": frozenset()})
    with pytest.raises(UsageError, match=r"'netcdf-4\.4\.0' of system 'local' cannot be run") as caught:
        make_session_plan(site, (), ("netcdf-4.4.0",))
    assert "iowatch stack install netcdf-4.4.0 --system local" in caught.value.message
    assert "--bootstrap" in str(caught.value.hint)
    with pytest.raises(UsageError, match="system 'local' has no stack 'system-opnmpi'") as caught:
        make_session_plan(site, (), ("system-opnmpi",))
    assert "Did you mean 'system-openmpi'?" in str(caught.value.hint)


def test_diff_has_a_summary_line(var: Path) -> None:
    shown = run(stack, "diff", "netcdf-4.3.3.1", "netcdf-4.4.0").stdout
    assert "netcdf-4.3.3.1 against netcdf-4.4.0: 1 version differs; 1 part rebuilt on other parts, " in shown
    same = run(stack, "diff", "netcdf-4.4.0", "netcdf-4.4.0").stdout
    assert "no difference; 0 parts" in same


def test_lock_file_by_path_has_no_install_command(var: Path) -> None:
    shown = run(stack, "show", str(ROOT / "systems/local/stacks/netcdf-4.4.0/spack.lock")).stdout
    assert "iowatch stack install" not in shown


def test_limits_of_a_system_have_units(var: Path) -> None:
    assert "total_bytes 256 GiB" in run(system, "show", "local").stdout


def test_unknown_stack_is_refused_with_a_suggestion(var: Path) -> None:
    done = run(stack, "show", "netcdf-4.4")
    assert isinstance(done.exception, UsageError)
    assert "Did you mean 'netcdf-4.4.0'?" in (done.exception.hint or "")


def test_lock_of_another_manifest_is_refused(tmp_path: Path, var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a changed spack.yaml would silently install the old versions."""
    folder = tmp_path / "checkout" / "systems" / "local" / "stacks" / "one"
    folder.mkdir(parents=True)
    source = ROOT / "systems" / "local"
    (folder / "spack.lock").write_bytes((source / "stacks" / "debian" / "spack.lock").read_bytes())
    text = (source / "stacks" / "debian" / "spack.yaml").read_text()
    (folder / "spack.yaml").write_text(text.replace("hdf5@1.10.8", "hdf5@1.14.6"))
    (folder.parents[1] / "system.yaml").write_text((source / "system.yaml").read_text())
    (tmp_path / "checkout" / "benchmarks").mkdir()
    monkeypatch.setenv("IOWATCH_ROOT", str(tmp_path / "checkout"))
    monkeypatch.setattr(stack_install, "spack_command", lambda: "/no/spack")
    with pytest.raises(InputError, match=r"was not made from spack\.yaml"):
        install_stack("one", "local")


def test_system_show_has_peaks_in_mib_per_s() -> None:
    document = json.loads(run(system, "show", "cirrus", "--json").stdout)
    (peak,) = document["file_systems"][0]["peaks"]
    assert (peak["value"], peak["unit"], peak["mib_per_s"]) == (10.0, "GiB/s", 10240.0)


def test_system_list_marks_the_retired() -> None:
    lines = run(system, "list").stdout.splitlines()
    assert next(line for line in lines if line.startswith("archer ")).rstrip().endswith("retired")
    assert next(line for line in lines if line.startswith("local ")).rstrip().endswith("in service")


def test_list_without_stacks_prints_a_message(var: Path) -> None:
    """A message instead of an empty table."""
    done = run(stack, "list", "--system", "archer")
    assert done.stdout.startswith("No stacks: a retired system")
