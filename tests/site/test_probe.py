"""Parts of stacks that Spack did not build; the outputs are those of released tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.site import Stack, StackPart
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack import tool_query
from iowatch.site.stack.probe import MpiInstallation, MpiVersion

from .conftest import Tool

# Printed by mpirun of Debian 12's openmpi-bin 4.1.4-3+b1, mpich 4.0.2-3+b1, and by Open MPI 5's prterun.
VERSIONS = {
    "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/": MpiVersion(
        "openmpi", "4.1.4"
    ),
    "HYDRA build details:\n    Version:                                 4.0.2": MpiVersion("mpich", "4.0.2"),
    "mpirun (Open MPI) 5.0.8": MpiVersion("openmpi", "5.0.8"),
    "something else 1.2.3": None,
}


@pytest.mark.parametrize(("answer", "expected"), VERSIONS.items())
def test_mpi_is_identified_by_its_version_output(tool: Tool, answer: str, expected: MpiVersion | None) -> None:
    path = tool("mpirun", f"cat <<'END'\n{answer}\nEND")
    assert stack_probe.identify_mpi(str(path)) == expected


def test_failing_tool_is_not_found(tool: Tool) -> None:
    path = tool("mpirun", "echo 'mpirun (Open MPI) 5.0.8'; exit 1")
    assert stack_probe.identify_mpi(str(path)) is None


def test_program_without_permission_is_named(tool: Tool, caplog: pytest.LogCaptureFixture) -> None:
    """ "The stack does not provide ior" would let a person look for it where it is."""
    path = tool("ior", "exit 0")
    path.chmod(0o644)
    assert stack_probe.probe_package("ior", MpiInstallation("openmpi", ".openmpi")) is None
    assert f"{path} exists, but is not executable" in caplog.text


SETTINGS = """HDF5 Version: 1.10.8
Installation point: /usr
Parallel HDF5: {parallel}
Threadsafety: no"""


@pytest.mark.parametrize(("parallel", "found"), [("yes", True), ("no", False), ("ON", True), ("OFF", False)])
def test_only_parallel_hdf5_is_found(tool: Tool, parallel: str, found: bool) -> None:
    tool("h5pcc.mpich", f"cat <<'END'\n{SETTINGS.format(parallel=parallel)}\nEND")
    part = stack_probe.probe_hdf5(MpiInstallation("mpich", ".mpich"))
    assert (part is not None) is found
    if part:
        assert (part.version, part.prefix) == ("1.10.8", "/usr")
        assert dict(part.variants) == {"mpi": "true", "threadsafe": "false"}


@pytest.mark.parametrize(("library", "found"), [("libmpi.so.40", False), ("libmpich.so.12", True), ("libc.so.6", True)])
def test_hdf5_of_another_mpi_is_not_found(
    tool: Tool, tmp_path_factory: pytest.TempPathFactory, library: str, found: bool
) -> None:
    """A module of MPICH without HDF5 leaves the h5pcc of another MPI first on PATH, for example Debian's."""
    libdir = tmp_path_factory.mktemp("lib")
    (libdir / "libhdf5.so").write_text("")
    settings = SETTINGS.format(parallel="yes")
    tool("h5pcc", f"[ $1 = -show ] && echo mpicc -L{libdir} || cat <<'END'\n{settings}\nEND")
    tool("ldd", f"echo '{library} => /usr/lib/{library}'")
    assert (stack_probe.probe_hdf5(MpiInstallation("mpich")) is not None) is found


def test_netcdf_of_another_mpi_is_not_found(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> None:
    libdir = tmp_path_factory.mktemp("lib")
    (libdir / "libnetcdf.so").write_text("")
    tool("nc-config", f"cat <<'END'\n --has-parallel4 -> yes\n --libdir -> {libdir}\n --version -> netCDF 4.9.3\nEND")
    tool("ldd", "echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'")
    assert stack_probe.probe_netcdf(MpiInstallation("mpich")) is None
    tool_query.forget_answers()
    part = stack_probe.probe_netcdf(MpiInstallation("openmpi"))
    assert part is not None
    assert part.version == "4.9.3"


@pytest.mark.parametrize(("linked", "found"), [("own", True), ("debian", False)])
def test_netcdf_of_another_hdf5_is_not_in_the_stack(
    tool: Tool, tmp_path_factory: pytest.TempPathFactory, linked: str, found: bool
) -> None:
    """A module of HDF5 without netCDF leaves the nc-config of Debian's netCDF on PATH."""
    place = tmp_path_factory.mktemp("libraries")
    for name in ("own/libhdf5.so.310", "own/libhdf5.so", "debian/libhdf5_openmpi.so.103", "debian/libnetcdf.so"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("")
    tool("mpicc", "echo gcc 12.2.0")
    tool("mpirun", "echo 'mpirun (Open MPI) 5.0.8'")
    settings = SETTINGS.format(parallel="ON")
    tool("h5pcc", f"[ $1 = -show ] && echo mpicc -L{place}/own || cat <<'END'\n{settings}\nEND")
    answer = f" --has-parallel4 -> yes\n --libdir -> {place}/debian\n --version -> netCDF 4.9.0"
    tool("nc-config", f"cat <<'END'\n{answer}\nEND")
    library = {"own": "own/libhdf5.so.310", "debian": "debian/libhdf5_openmpi.so.103"}[linked]
    tool("ldd", f"echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'; echo '{Path(library).name} => {place}/{library} (0x0)'")
    stack = stack_probe.loaded_stack("somewhere")
    assert stack is not None
    assert stack.part("hdf5") is not None
    assert ("netcdf4" in stack.features) is found


def test_pnetcdf_of_debian_13_is_found_by_the_compiler(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its pnetcdf-config reports the directories of Debian's build, which do not exist here."""
    library = tmp_path_factory.mktemp("lib") / "libpnetcdf.so"
    library.write_text("")
    built = "/build/reproducible-path/pnetcdf-1.14.0/debian/tmp//usr"
    tool("pnetcdf-config", f'[ "$1" = --all ] && echo "This PnetCDF 1.14.0 was built" || echo {built}')
    tool("mpicc.openmpi", f"echo {library}")
    tool("ldd", "echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'")
    part = stack_probe.probe_pnetcdf(MpiInstallation("openmpi", ".openmpi"))
    assert part is not None
    assert (part.version, part.prefix, part.files) == ("1.14.0", None, (str(library),))
    tool_query.forget_answers()
    tool("mpicc.openmpi", "echo libpnetcdf.so")  # the answer if it is not found
    assert stack_probe.probe_pnetcdf(MpiInstallation("openmpi", ".openmpi")) is None


OLD = "--has-pnetcdf-> no\n  --prefix    -> {prefix}\n  --version   -> netCDF {version}"


@pytest.mark.parametrize(
    ("version", "settings", "found"),
    [
        ("4.3.3.1", "Parallel Support:\tyes", True),
        ("4.4.0", "NC-4 Parallel Support:\tyes", True),
        ("4.4.0", "NC-4 Parallel Support:\tno", False),
        ("4.4.0", None, False),
    ],
)
def test_netcdf_without_parallel_and_libdir_in_nc_config(
    tool: Tool, tmp_path_factory: pytest.TempPathFactory, version: str, settings: str | None, found: bool
) -> None:
    """Output of nc-config and libnetcdf.settings of netCDF 4.3.3.1 and 4.4.0."""
    prefix = tmp_path_factory.mktemp("netcdf")
    (prefix / "lib").mkdir()
    (prefix / "lib" / "libnetcdf.so").write_text("")
    if settings:
        (prefix / "lib" / "libnetcdf.settings").write_text(f"# Features\n{settings}\nMMap Support:\tno\n")
    tool("nc-config", f"cat <<'END'\n  {OLD.format(prefix=prefix, version=version)}\nEND")
    tool("ldd", "echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'")
    part = stack_probe.probe_netcdf(MpiInstallation("openmpi"))
    assert (part and part.version) == (version if found else None)


def test_machine_without_mpi_has_no_system_stack(tool: Tool) -> None:
    from iowatch.site.stack.probe import system_stacks

    tool("unrelated", "true")
    assert system_stacks("local") == []


# What `ldd` prints of programs: Open MPI 3 to 5 and 2, Debian's MPICH, original MPICH (its ABI since 3.1 is
# shared by MVAPICH, Intel MPI and others), Cray's MPICH for three compilers, no MPI.
@pytest.mark.parametrize(
    ("listing", "mpis"),
    [
        ("libmpi.so.40 => /usr/lib/x86_64-linux-gnu/libmpi.so.40 (0x7f)", {"openmpi"}),
        ("libmpi.so.20 => not found", {"openmpi"}),
        ("libmpich.so.12 => /usr/lib/x86_64-linux-gnu/libmpich.so.12 (0x7f)", {"mpich"}),
        ("libmpi.so.12 => /opt/mpich/4.2/lib/libmpi.so.12 (0x7f)", {"mpich", "intel-oneapi-mpi"}),
        ("libmpi_gnu_91.so.12 => /opt/cray/pe/lib64/libmpi_gnu_91.so.12 (0x7f)", {"cray-mpich"}),
        ("libmpi_cray.so.12 => /opt/cray/pe/lib64/libmpi_cray.so.12 (0x7f)", {"cray-mpich"}),
        ("libmpi_intel.so.12 => not found", {"cray-mpich"}),
        ("libc.so.6 => /lib/libc.so.6 (0x7f)", set()),
    ],
)
def test_linked_mpis_of_a_program_are_found(tool: Tool, listing: str, mpis: set[str]) -> None:
    tool("ldd", f"echo '{listing}'")
    assert stack_probe.find_linked_mpis("/some/ior") == mpis


def test_ior_of_original_mpich_is_found(tool: Tool) -> None:
    """The library does not have Debian's name."""
    tool("ldd", "echo 'libmpi.so.12 => /opt/mpich/lib/libmpi.so.12'")
    tool("ior", "echo 'IOR-4.0.0: MPI Coordinated Test of Parallel I/O'")
    part = stack_probe.probe_package("ior", MpiInstallation("mpich"))
    assert part is not None
    assert part.version == "4.0.0"


@pytest.mark.parametrize(
    ("printed", "installed", "expected"),
    [
        ("1.4.0", "h5bench_write_var_normal_dist", "1.6"),
        ("1.4.0", "h5bench_write_normal_dist", "1.5"),
        ("1.4.0", "h5bench_read", "1.4.0"),
        ("1.7.0", "h5bench_write_var_normal_dist", "1.7.0"),
    ],
)
def test_h5bench_that_prints_an_earlier_version_is_identified_by_its_programs(
    tool: Tool, printed: str, installed: str, expected: str
) -> None:
    """`h5bench --version` of the releases 1.4, 1.5 and 1.6 is 1.4.0; programs as in their CMakeLists.txt."""
    tool("ldd", "echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'")
    tool("h5bench", f"echo 'h5bench {printed}'")
    tool("h5bench_write", "true")
    tool(installed, "true")
    part = stack_probe.probe_package("h5bench", MpiInstallation("openmpi"))
    assert part is not None
    assert part.version == expected


def test_cray_stack_is_found_without_mpicc_and_mpirun(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in PrgEnv-gnu: `cc` includes MPI, and `srun` starts programs."""
    from iowatch.site.stack.probe import loaded_stack

    wrapper = tool("cc", "echo 'gcc-12 (SUSE Linux) 12.3.0'")
    tool("h5pcc", f"cat <<'END'\n{SETTINGS.format(parallel='yes')}\nEND")
    assert loaded_stack("alps") is None
    for name, value in {"PE_ENV": "GNU", "CRAY_MPICH_VERSION": "8.1.29", "MPICH_DIR": "/opt/cray/x"}.items():
        monkeypatch.setenv(name, value)
    stack = loaded_stack("alps")
    assert stack is not None
    versions = {part.name: part.version for part in stack.parts}
    assert versions == {"cray-mpich": "8.1.29", "gcc": "12.3.0", "hdf5": "1.10.8"}
    assert stack.features == ("hdf5", "mpich")
    assert stack.tools == {"mpicc": str(wrapper)}


DARSHAN_3_4 = "Usage: darshan-config [--pre-ld-flags] [--post-ld-flags] [--dyn-ld-flags] [--log-path]"
DARSHAN_3_5 = "This darshan-runtime 3.5.0 was built with the following features:\n\n  --hdf5-mod              -> 1"


@pytest.mark.parametrize(
    ("version", "features", "variants"), [("3.4.7", DARSHAN_3_4, {}), ("3.5.0", DARSHAN_3_5, {"hdf5": "true"})]
)
def test_darshan_runtime_of_3_4_and_3_5_is_found(
    tool: Tool, tmp_path_factory: pytest.TempPathFactory, version: str, features: str, variants: dict[str, str]
) -> None:
    """Output of `darshan-config --all` of both releases; only 3.5 has the option and names its version there."""
    libdir = tmp_path_factory.mktemp("darshan") / "lib"
    (libdir / "pkgconfig").mkdir(parents=True)
    (libdir / "libdarshan.so").write_text("")
    (libdir / "pkgconfig" / "darshan-runtime.pc").write_text(f"Name: darshan\nVersion: {version}\nRequires: zlib\n")
    flags = f"-L{libdir}  -Wl,-rpath={libdir} -ldarshan"
    tool("darshan-config", f"case $1 in --dyn-ld-flags) echo '{flags}';; *) cat <<'END'\n{features}\nEND\nesac")
    part = stack_probe.probe_darshan_runtime(MpiInstallation("openmpi"))
    assert part is not None
    assert (part.version, dict(part.variants)) == (version, variants)


@pytest.mark.parametrize(
    ("benchio", "library", "expected"),
    [
        (StackPart("benchio", "1.0", {"workloads": "true"}, hash="abc"), None, True),
        (StackPart("benchio", "1.0", {"workloads": "false"}, hash="abc"), "/usr/lib/libyaml.so", False),
        # That of a commit, which a bisection builds on this machine.
        (StackPart("benchio", "1.0", {"commit": "1a2b"}), "/usr/lib/libyaml.so", True),
        (StackPart("benchio", "1.0", {"commit": "1a2b"}), None, False),
    ],
)
def test_workloads_need_the_yaml_of_the_package_or_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, benchio: StackPart, library: str | None, expected: bool
) -> None:
    monkeypatch.setattr(stack_probe, "find_compiler_library", lambda *_: library)
    stack = Stack("gnu", "local", "spack", "installed", (benchio,))
    assert ("libyaml" in stack_probe.features_of_stack(stack)) == expected


@pytest.mark.parametrize(("programs", "expected"), [(("ior", "mdtest"), True), (("ior",), False)])
def test_program_on_path_beside_others_of_its_package_is_a_feature(programs: tuple[str, ...], expected: bool) -> None:
    part = StackPart("ior", "4.0.0", files=tuple(f"/usr/bin/{program}" for program in programs))
    assert ("mdtest" in stack_probe.features_of_parts([part])) == expected


# Printed by `-h` of builds of hpc/ior with Debian 12's Open MPI 4.1.4: release 4.0.0, without HDF5 and with it, and the
# branch main (5fcf0ba); the program of 3.3.0 ends with 0, the others with 1. 3.0.1 prints its source (`src/ior.c`).
HELP = Path(__file__).with_name("data")
STATIC_HELP = "OPTIONS:\n -a S  api --  API for I/O [POSIX|MPIIO|HDF5|NCMPI]"


def ior_with_help(tool: Tool, text: str, libraries: str = "", mdtest: str | None = None) -> StackPart:
    """The part of an IOR that prints this text; `libraries`: lines of ldd besides that of Open MPI."""
    tool("ldd", f"echo 'libmpi.so.40 => /usr/lib/libmpi.so.40\n{libraries}'")
    tool("ior", f"if [ $1 = -h ]; then cat <<'END'\n{text}\nEND\nexit 1; fi; echo 'IOR-4.0.0: MPI Coordinated'")
    if mdtest is not None:
        tool("mdtest", f"cat <<'END'\n{mdtest}\nEND\nexit 1")
    part = stack_probe.probe_package("ior", MpiInstallation("openmpi"))
    assert part is not None
    return part


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("ior-3.3.0-help.txt", ("ior-without-hdf5", "ior-without-ncmpi")),
        ("ior-4.0.0-help.txt", ("ior-without-hdf5", "ior-without-ncmpi")),
        ("ior-4.0.0-help-hdf5.txt", ("ior-without-ncmpi",)),
        ("ior-4.1.0-dev-help.txt", ("ior-without-hdf5", "ior-without-ncmpi")),
    ],
)
def test_interfaces_are_those_that_the_program_lists(tool: Tool, name: str, lacking: tuple[str, ...]) -> None:
    """Of a static HDF5 there is no library; a library that another part of the program loads is no interface."""
    part = ior_with_help(tool, (HELP / name).read_text(), "libpnetcdf.so => /usr/lib/libpnetcdf.so")
    assert stack_probe.lacking_interface_features([part]) == lacking
    assert part.variants["hdf5"] == str("ior-without-hdf5" not in lacking).lower()
    assert set(part.variants) == {"hdf5", "ncmpi"}, "what every build has is not stated: the stack would differ"


def test_interfaces_of_releases_that_list_all_are_those_of_their_libraries(tool: Tool) -> None:
    part = ior_with_help(tool, STATIC_HELP, "libhdf5.so => /usr/lib/libhdf5.so")
    assert part.variants == {"hdf5": "true", "ncmpi": "false"}


def test_build_without_posix_or_mpiio_is_recognised(tool: Tool) -> None:
    listed = "  -a=DFS       API for I/O [DUMMY|{}DFS]"
    part = ior_with_help(tool, listed.format("MPIIO|"), mdtest=listed.format(""))
    assert stack_probe.lacking_interface_features([part]) == (
        *("ior-without-hdf5", "ior-without-mdtest-posix", "ior-without-ncmpi", "ior-without-posix"),
    )
    mdtest = (HELP / "mdtest-4.0.0-help.txt").read_text()
    tool_query.forget_answers()
    assert "mdtest-posix" not in ior_with_help(tool, listed.format("MPIIO|"), mdtest=mdtest).variants


def test_interfaces_are_unknown_if_nothing_answers(tool: Tool) -> None:
    tool("ior", "exit 1")
    benchmark = BENCHMARKS["ior"]
    assert stack_probe._probe_interfaces(benchmark, [str(tool("ior", "exit 1"))], starts_here=True) == {}
    assert stack_probe.lacking_interface_features([StackPart("ior", "4.0.0")]) == ()


def test_h5bench_without_a_program_lacks_its_operation(tool: Tool) -> None:
    tool("ldd", "echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'")
    tool("h5bench", "echo 'h5bench 1.4.0'")
    for name in ("h5bench_write", "h5bench_read", "h5bench_overwrite", "h5bench_write_unlimited"):
        tool(name, "true")
    part = stack_probe.probe_package("h5bench", MpiInstallation("openmpi"))
    assert part is not None
    assert stack_probe.lacking_interface_features([part]) == (
        *("h5bench-without-h5bench_append", "h5bench-without-h5bench_write_var_normal_dist"),
    )


def test_packages_of_spack_state_their_interfaces(tmp_path: Path) -> None:
    """IOR's package has `hdf5` and `ncmpi` off by default; benchio's has `pnetcdf` off."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/h5bench_write").write_text("")
    parts = (
        StackPart("ior", "4.0.0", {"hdf5": "false", "ncmpi": "true"}, hash="a"),
        StackPart("benchio", "1.0", {"hdf5": "true", "netcdf": "true", "pnetcdf": "false"}, hash="b"),
        StackPart("h5bench", "1.4", hash="c", prefix=str(tmp_path)),
        StackPart("hdf5", "1.14.6", {"hdf5": "false"}, hash="d"),
    )
    features = stack_probe.features_of_stack(Stack("gnu", "here", "spack", "installed", parts))
    assert {"ior-without-hdf5", "benchio-without-pnetcdf", "h5bench-without-h5bench_read"} <= set(features)
    assert "ior-without-ncmpi" not in features
