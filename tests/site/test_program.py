"""What ran against what should have run: program, libraries, versions, and the origin of an output."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iowatch.site import Stack, StackPart
from iowatch.site.program import (
    ProgramFacts,
    RunOrigin,
    origin_mismatches,
    parse_program_facts,
    program_commands,
    program_mismatches,
    used_parts,
    version_mismatches,
)
from tests.builders import build_output, build_stack


def test_a_job_records_the_program_that_it_finds(tmp_path: Path) -> None:
    """Values from the shell's own tools: the file behind a link on PATH, its libraries, variables for MPI."""
    real = Path(os.path.realpath("/bin/ls"))
    (tmp_path / "measured").symlink_to(real)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "OMPI_MCA_io": "romio321", "HOME": "/x"}
    script = "\n".join(program_commands("measured", "facts"))
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, check=True)
    facts = parse_program_facts((tmp_path / "facts").read_text())
    assert (facts.path, facts.sha256) == (str(real), hashlib.sha256(real.read_bytes()).hexdigest())
    assert any("/libc.so" in path for path in facts.libraries)
    assert facts.environment == {"OMPI_MCA_io": "romio321"}
    assert facts.host == os.uname().nodename


def collected(tmp_path: Path, program: str, path: str, **variables: str) -> ProgramFacts:
    script = "\n".join(program_commands(program, str(tmp_path / "facts")))
    subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, env={"PATH": path, **variables}, check=True)
    return parse_program_facts((tmp_path / "facts").read_text())


@pytest.mark.parametrize("missing", ["ldd", "readlink", "xargs", "sha256sum", "timeout", "env", "grep"])
def test_node_without_a_tool_is_reported(missing: str, tmp_path: Path) -> None:
    """Nothing could be compared there: the list of libraries, the checksum or the variables would be empty."""
    tools = tmp_path / "bin"
    tools.mkdir()
    names = "cut date env grep ldd readlink sed sha256sum timeout tr uname xargs bash sh ls"
    for name in names.split():
        if name != missing:
            (tools / name).symlink_to(shutil.which(name) or name)
    facts = collected(tmp_path, "ls", str(tools))
    assert f"the node has no '{missing}': the program and its libraries could not be examined" in facts.unread


def test_failing_ldd_is_reported_but_not_a_program_without_libraries(tmp_path: Path) -> None:
    """`ldd` ends with 1 for a script, too, which it says."""
    script = tmp_path / "wrapper"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert collected(tmp_path, "ls", os.environ["PATH"]).unread == ()
    assert collected(tmp_path, str(script), os.environ["PATH"]).unread == ()
    assert collected(tmp_path, "no-such-program", os.environ["PATH"]).unread == ()
    fake = tmp_path / "ldd"
    fake.write_text("#!/bin/sh\necho 'cannot open' >&2; exit 4\n")
    fake.chmod(0o755)
    facts = collected(tmp_path, "ls", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert facts.unread == ("the libraries of the program could not be read: ldd ended with exit code 4",)


def test_libraries_of_stacks_have_checksums(tmp_path: Path) -> None:
    """A library that was replaced in its place has another one; `ldd` answers for a program of another machine."""
    library = tmp_path / "libmpi.so.40"
    library.write_bytes(b"mpi")
    fake = tmp_path / "ldd"
    fake.write_text(f"#!/bin/sh\necho '  libmpi.so.40 => {library} (0x1)'\necho '  libz.so.1 => /bin/ls (0x2)'\n")
    fake.chmod(0o755)
    facts = collected(tmp_path, "ls", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert facts.to_json()["library_checksums"] == {str(library): hashlib.sha256(b"mpi").hexdigest()}


def test_variables_of_the_start_itself_are_left_out(tmp_path: Path) -> None:
    """Those of Open MPI for its own processes are others in each start; sizes of ROMIO and OMPIO are settings."""
    variables = {
        "OMPI_MCA_ess_base_jobid": "41",
        "OMPI_MCA_orte_hnp_uri": "tcp://1",
        "OMPI_MCA_fs_lustre_stripe_size": "1",
    }
    facts = collected(tmp_path, "ls", os.environ["PATH"], **variables)
    assert facts.to_json()["variables"] == {"OMPI_MCA_fs_lustre_stripe_size": "1"}


USED = used_parts(["mpi", "ior", "hdf5"])


def place(root: Path, name: str) -> str:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """A stack like one of modules: Open MPI, HDF5 and IOR in directories of their own."""
    mpirun, hdf5 = place(tmp_path, "ompi/bin/mpirun"), place(tmp_path, "hdf5/lib/libhdf5.so.310")
    ior = place(tmp_path, "ior/bin/ior")
    parts = (
        StackPart("hdf5", "1.14.6", files=(hdf5,)),
        StackPart("ior", "4.0.0", files=(ior,), checksums={ior: "aa"}),
        StackPart("openmpi", "4.1.4", prefix=str(tmp_path / "ompi"), files=(mpirun,)),
    )
    return build_stack(*parts, name="s", system="here", kind="modules")


def facts_of(root: Path, **changes: Any) -> ProgramFacts:
    libraries = (place(root, "ompi/lib/libmpi.so.40"), place(root, "hdf5/lib/libhdf5.so.310"), "/usr/lib/libc.so.6")
    return replace(ProgramFacts(place(root, "ior/bin/ior"), "aa", libraries), **changes)


def mismatches(stack: Stack | None, facts: ProgramFacts, program: str = "ior", **checksums: str) -> list[str]:
    return list(program_mismatches(stack, "ior", program, facts, checksums, USED))


def test_program_and_libraries_of_the_stack_are_accepted(stack: Stack, tmp_path: Path) -> None:
    assert mismatches(stack, facts_of(tmp_path)) == []
    assert mismatches(None, facts_of(tmp_path)) == []


def test_other_program_on_path_is_found(stack: Stack, tmp_path: Path) -> None:
    (reason,) = mismatches(stack, facts_of(tmp_path, path="/home/me/bin/ior"))
    assert reason == f"the program is /home/me/bin/ior, the stack's ior is {tmp_path}/ior/bin/ior"
    # A path that was chosen explicitly.
    assert mismatches(stack, facts_of(tmp_path, path="/home/me/bin/ior"), "/home/me/bin/ior") == []


def test_changed_program_is_found(stack: Stack, tmp_path: Path) -> None:
    (reason,) = mismatches(stack, facts_of(tmp_path, sha256="bb"))
    assert "its SHA-256 is bb…, expected aa…" in reason
    own = str(tmp_path / "built")
    (reason,) = program_mismatches(None, None, own, ProgramFacts(os.path.realpath(own), "cc"), {own: "dd"}, USED)
    assert "its SHA-256 is cc…, expected dd…" in reason


@pytest.mark.parametrize(
    ("library", "named"),
    [
        ("other/lib/libmpi.so.40", "the stack's openmpi is"),
        ("hdf5/lib/libhdf5.so.200", "the stack's hdf5 is"),
        ("ompi/lib/libmpich.so.12", "the stack's MPI is openmpi"),
    ],
)
def test_other_libraries_are_found(library: str, named: str, stack: Stack, tmp_path: Path) -> None:
    """LD_LIBRARY_PATH leads to another installation, another version, or another MPI."""
    (reason,) = mismatches(stack, facts_of(tmp_path, libraries=(place(tmp_path, library),)))
    assert library in reason
    assert named in reason


def test_libraries_that_a_case_does_not_use_are_not_compared(stack: Stack, tmp_path: Path) -> None:
    """IOR may be linked with another HDF5 than the stack's; a POSIX case does not use it."""
    facts = facts_of(tmp_path, libraries=("/opt/hdf5/lib/libhdf5.so.200",))
    assert list(program_mismatches(stack, "ior", "ior", facts, {}, used_parts(["mpi", "ior"]))) == []
    assert used_parts(["netcdf4"]) >= {"netcdf-c", "hdf5", "openmpi"}


ORIGIN = RunOrigin("5a5a", "/scratch/case", 1_700_000_000.0, 1_700_000_100.0, frozenset({"n1"}))
# 1,700,000,000 is 2023-11-14 22:13:20 UTC.
RECORD = {
    "run_id": "5a5a",
    "started": "2023-11-14T22:13:21.000000Z",
    "filesystem": {"directory": "/scratch/case/benchio-1"},
    "hosts": ["n1.site"],
}


def reasons(facts: dict[str, Any], zone: str = "+0000", origin: RunOrigin = ORIGIN) -> list[str]:
    return list(origin_mismatches(build_output(tool="benchio", version="1.0.0", facts=facts), origin, zone))


def test_output_of_this_run_is_accepted() -> None:
    assert reasons(RECORD) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"run_id": "0b0b"}, "its run id is 0b0b, expected 5a5a"),
        ({"run_id": None}, "its run id is None"),
        ({"started": "2023-11-13T22:13:21.000000Z"}, "it started at 2023-11-13T22:13:21"),
        ({"started": "2023-11-14T22:17:21.000000Z"}, "it started at 2023-11-14T22:17:21"),
        ({"filesystem": {"directory": "/scratch/other"}}, "files in /scratch/other, expected in /scratch/case"),
        ({"hosts": ["n2"]}, "of host n2, expected n1"),
    ],
)
def test_output_of_another_run_is_found(change: dict[str, Any], expected: str) -> None:
    (reason,) = reasons({**RECORD, **change})
    assert expected in reason


@pytest.mark.parametrize(
    ("began", "zone", "known"),
    [
        ("Tue Nov 14 23:13:21 2023", "+0100", True),
        ("Tue Nov 14 23:13:21 2023", "+0000", False),
        ("11/14/2023 16:43:21", "-0530", True),
        ("11/14/2023 22:13:21", "-0500", False),
        ("yesterday", "+0000", True),
    ],
)
def test_local_times_are_read_in_the_zone_of_the_node(began: str, zone: str, known: bool) -> None:
    """IOR and mdtest print the time of their node without its zone; other forms are not compared."""
    facts = {"began": began, "path": "/scratch/case/ior", "machine": "Linux n1"}
    assert (reasons(facts, zone, replace(ORIGIN, run_id=None)) == []) == known


def test_versions_are_those_of_the_stack(stack: Stack) -> None:
    facts = {"mpi": {"implementation": "Open MPI", "version": "4.1.4"}, "libraries": {"hdf5": "1.14.6"}}
    output = build_output(tool="benchio", version="1.0.0", facts=facts)
    assert list(version_mismatches(stack, output, "1.0.0", USED)) == []
    assert list(version_mismatches(stack, output, "1.0", USED)) == []
    assert list(version_mismatches(stack, output, None, USED)) == []
    older = replace(output, version="0.0.1", facts={**facts, "mpi": {"implementation": "Open MPI", "version": "3.0.1"}})
    assert list(version_mismatches(stack, older, "1.0.0", USED)) == [
        "the output is of benchio 0.0.1, expected 1.0.0",
        "the program used openmpi 3.0.1, the stack has 4.1.4",
    ]
