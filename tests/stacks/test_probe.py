"""Parts of stacks that Spack did not build; the answers are those of the tools' own releases."""

from __future__ import annotations

import pytest

from iowatch.stacks import probe
from iowatch.stacks.probe import Flavour

from .conftest import Tool

# Printed by mpirun of Debian 12's openmpi-bin 4.1.4-3+b1, mpich 4.0.2-3+b1, and by Open MPI 5's prterun.
VERSIONS = {
    "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/": (
        "openmpi",
        "4.1.4",
    ),
    "HYDRA build details:\n    Version:                                 4.0.2": ("mpich", "4.0.2"),
    "mpirun (Open MPI) 5.0.8": ("openmpi", "5.0.8"),
    "something else 1.2.3": None,
}


@pytest.mark.parametrize(("answer", "expected"), VERSIONS.items())
def test_which_mpi_is_it(tool: Tool, answer: str, expected: tuple[str, str] | None) -> None:
    path = tool("mpirun", f"cat <<'END'\n{answer}\nEND")
    assert probe.identify_mpi(str(path)) == expected


def test_a_tool_that_fails_is_absent(tool: Tool) -> None:
    path = tool("mpirun", "echo 'mpirun (Open MPI) 5.0.8'; exit 1")
    assert probe.identify_mpi(str(path)) is None


SETTINGS = """HDF5 Version: 1.10.8
Installation point: /usr
Parallel HDF5: {parallel}
Threadsafety: no"""


@pytest.mark.parametrize(("parallel", "found"), [("yes", True), ("no", False)])
def test_only_parallel_hdf5_counts(tool: Tool, parallel: str, found: bool) -> None:
    tool("h5pcc.mpich", f"cat <<'END'\n{SETTINGS.format(parallel=parallel)}\nEND")
    part = probe.hdf5(Flavour("mpich", ".mpich"))
    assert (part is not None) is found
    if part:
        assert (part.version, part.prefix) == ("1.10.8", "/usr")
        assert dict(part.variants) == {"mpi": "true", "threadsafe": "false"}


def test_netcdf_of_another_mpi_is_not_ours(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> None:
    libdir = tmp_path_factory.mktemp("lib")
    (libdir / "libnetcdf.so").write_text("")
    tool(
        "nc-config",
        f"cat <<'END'\n --has-parallel4 -> yes\n --libdir -> {libdir}\n --version -> netCDF 4.9.3\nEND",
    )
    tool("ldd", "echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'")
    assert probe.netcdf(Flavour("mpich")) is None
    probe.ask.cache_clear()
    part = probe.netcdf(Flavour("openmpi"))
    assert part is not None
    assert part.version == "4.9.3"


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
def test_netcdf_whose_config_tells_neither_parallel_nor_libdir(
    tool: Tool,
    tmp_path_factory: pytest.TempPathFactory,
    version: str,
    settings: str | None,
    found: bool,
) -> None:
    """What nc-config and libnetcdf.settings of netCDF 4.3.3.1 and 4.4.0 print."""
    prefix = tmp_path_factory.mktemp("netcdf")
    (prefix / "lib").mkdir()
    (prefix / "lib" / "libnetcdf.so").write_text("")
    if settings:
        (prefix / "lib" / "libnetcdf.settings").write_text(f"# Features\n{settings}\nMMap Support:\tno\n")
    tool("nc-config", f"cat <<'END'\n  {OLD.format(prefix=prefix, version=version)}\nEND")
    tool("ldd", "echo 'libmpi.so.40 => /usr/lib/libmpi.so.40'")
    part = probe.netcdf(Flavour("openmpi"))
    assert (part and part.version) == (version if found else None)


def test_nothing_installed_means_no_stack(tool: Tool) -> None:
    from iowatch.stacks.system import system_stacks

    tool("unrelated", "true")
    assert system_stacks("local") == []
