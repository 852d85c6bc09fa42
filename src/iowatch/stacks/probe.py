"""Asks installed tools what they are: the parts of a stack that Spack did not build.

Each probe returns a `Part`, or None where the tool is absent, does not answer, or belongs to another MPI.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from iowatch.stacks.model import Part

TIMEOUT_S = 20.0
CRAY = "cray-mpich"
# What each MPI's library is called by programs that load it. MPICH and those that keep its binary interface
# share `libmpi.so.12`: each of them can serve such a program.
_LIBRARIES = {
    "openmpi": r"libmpi\.so\.[24]0\b",
    "mpich": r"libmpich\.so|libmpi\.so\.12\b",
    "intel-oneapi-mpi": r"libmpi\.so\.12\b",
    CRAY: r"libmpi_(?:amd|aocc|cray|gnu|intel|nvidia)\w*\.so",
}
# Cray's programming environment has one wrapper for each language, which brings MPI along.
_CRAY_NAMES = {"mpicc": "cc", "mpicxx": "CC", "mpifort": "ftn"}


@dataclass(frozen=True)
class Flavour:
    """One MPI of this machine.

    Attributes:
        mpi: Spack's name of it.
        suffix: what Debian appends to its tools (`.openmpi`), or nothing.
    """

    mpi: str
    suffix: str = ""

    def own_name(self, name: str) -> str:
        """What this MPI calls a tool (`mpicc`, `h5pcc`…)."""
        return (_CRAY_NAMES.get(name, name) if self.mpi == CRAY else name) + self.suffix

    def tool(self, name: str) -> str | None:
        """Path of this MPI's own variant of a tool."""
        return shutil.which(self.own_name(name))

    def serves(self, path: str) -> bool:
        """Whether a program or library is linked against this MPI."""
        return self.mpi in linked_mpis(path)


@cache
def ask(*command: str) -> str:
    """What a program prints, on both streams; empty where it is absent, fails or hangs."""
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C", **as_root},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _find(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1).strip() if match else None


def _yes_no(text: str, names: Mapping[str, str]) -> dict[str, str]:
    """Variants of lines `label: yes` or `label -> enabled`."""
    found = {}
    for variant, label in names.items():
        word = _find(rf"{re.escape(label)}\s*(?::|->)\s*(\w+)", text)
        if word:
            found[variant] = "true" if word.lower() in ("yes", "enabled", "1") else "false"
    return found


def library(directory: str, name: str) -> str | None:
    """Path of `lib<name>.so` in a directory, or None."""
    path = Path(directory) / f"lib{name}.so"
    return str(path) if path.exists() else None


@cache
def linked_mpis(path: str) -> frozenset[str]:
    """Names (Spack's) of MPIs that a program or library can run with; empty where it is linked against none."""
    listing = ask("ldd", path)
    return frozenset(mpi for mpi, pattern in _LIBRARIES.items() if re.search(pattern, listing))


def identify_mpi(mpirun: str) -> tuple[str, str] | None:
    """(Spack's name, version) of an MPI by what its `mpirun --version` says."""
    answer = ask(mpirun, "--version")
    for mpi, pattern in (
        ("openmpi", r"\((?:Open MPI|OpenRTE)\)\s+(\d[\w.]*)"),
        ("intel-oneapi-mpi", r"Intel\(R\) MPI Library.*Version (\S+)"),
        ("mpich", r"^\s*Version:\s+(\d\S*)"),
    ):
        version = _find(pattern, answer)
        if version:
            return mpi, version
    return None


def first_on_path() -> Flavour | None:
    """The MPI whose `mpicc` and `mpirun` come first on PATH, or Cray's where its environment is loaded."""
    if os.environ.get("PE_ENV") and os.environ.get("CRAY_MPICH_VERSION") and shutil.which("cc"):
        return Flavour(CRAY)
    mpirun = shutil.which("mpirun")
    known = identify_mpi(mpirun) if mpirun and shutil.which("mpicc") else None
    return Flavour(known[0]) if known else None


def compiler(flavour: Flavour) -> Part | None:
    """The C compiler behind `mpicc`."""
    answer = ask(flavour.tool("mpicc") or "", "--version").partition("\n")[0]
    version = _find(r"(\d+\.\d+\.\d+)", answer)
    if version is None:
        return None
    name = next((known for known in ("clang", "icx", "icc", "nvc") if known in answer.lower()), "gcc")
    return Part(name, version)


def mpi(flavour: Flavour) -> Part | None:
    """The MPI itself: needs `mpicc` and `mpirun`; Cray's, which the batch system starts, its compiler alone."""
    mpicc, mpirun = flavour.tool("mpicc"), flavour.tool("mpirun")
    if flavour.mpi == CRAY and mpicc:
        version = os.environ.get("CRAY_MPICH_VERSION", "unknown")
        return Part(CRAY, version, prefix=os.environ.get("MPICH_DIR"), files=(mpicc,))
    known = identify_mpi(mpirun) if mpicc and mpirun else None
    if mpicc is None or mpirun is None or known is None:
        return None
    return Part(known[0], known[1], prefix=str(Path(mpirun).parent.parent), files=(mpicc, mpirun))


def hdf5(flavour: Flavour) -> Part | None:
    """Parallel HDF5, as `h5pcc -showconfig` describes it."""
    h5pcc = flavour.tool("h5pcc")
    settings = ask(h5pcc, "-showconfig") if h5pcc else ""
    version = _find(r"HDF5 Version:\s*(\S+)", settings)
    names = {"mpi": "Parallel HDF5", "threadsafe": "Threadsafety", "subfiling": "Subfiling VFD"}
    variants = _yes_no(settings, names)
    if h5pcc is None or version is None or variants.get("mpi") != "true":
        return None
    libdir = _find(r"-L(\S+)", ask(h5pcc, "-show"))
    shared = library(libdir, "hdf5") if libdir else None
    prefix = _find(r"Installation point:\s*(\S+)", settings)
    return Part("hdf5", version, variants, prefix=prefix, files=(h5pcc, *([shared] if shared else [])))


def _parallel_by_settings(libdir: str) -> str:
    """Whether netCDF-4 is parallel, as `libnetcdf.settings` says it; `nc-config` does not before 4.7."""
    try:
        settings = Path(libdir, "libnetcdf.settings").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "false"
    return _yes_no(settings, {"mpi": "Parallel Support"}).get("mpi", "false")


def _netcdf_by_config(flavour: Flavour) -> Part | None:
    config = flavour.tool("nc-config") or shutil.which("nc-config")
    answer = ask(config, "--all") if config else ""
    version, prefix = _find(r"--version\s*->\s*netCDF (\S+)", answer), _find(r"--prefix\s*->\s*(\S+)", answer)
    libdir = _find(r"--libdir\s*->\s*(\S+)", answer) or f"{prefix}/lib"  # not told before 4.4.1.1
    variants = _yes_no(answer, {"mpi": "--has-parallel4", "parallel-netcdf": "--has-pnetcdf"})
    variants.setdefault("mpi", _parallel_by_settings(libdir))
    shared = library(libdir, "netcdf") or library(libdir, "netcdf_parallel")  # Cray's
    if version is None or variants["mpi"] != "true" or shared is None or not flavour.serves(shared):
        return None
    return Part("netcdf-c", version, variants, prefix=prefix, files=(shared,))


def _netcdf_by_pkgconfig(flavour: Flavour) -> Part | None:
    """Debian's parallel netCDF has no nc-config of its own, but a `netcdf-mpi.pc`."""
    version = ask("pkg-config", "--modversion", "netcdf-mpi").strip()
    libdir = ask("pkg-config", "--variable=libdir", "netcdf-mpi").strip()
    shared = library(libdir, "netcdf_mpi") if version else None
    if shared is None or not flavour.serves(shared):
        return None
    prefix = ask("pkg-config", "--variable=prefix", "netcdf-mpi").strip()
    return Part("netcdf-c", version, {"mpi": "true"}, prefix=prefix, files=(shared,))


def netcdf(flavour: Flavour) -> Part | None:
    """netCDF-C with parallel netCDF-4."""
    return _netcdf_by_config(flavour) or _netcdf_by_pkgconfig(flavour)


def pnetcdf(flavour: Flavour) -> Part | None:
    """PnetCDF, as `pnetcdf-config` describes it."""
    config = flavour.tool("pnetcdf-config") or shutil.which("pnetcdf-config")
    answer = ask(config, "--all") if config else ""
    version = _find(r"PnetCDF (\d\S*)", answer)
    shared = library(ask(config, "--libdir").strip(), "pnetcdf") if config else None
    if version is None or shared is None or not flavour.serves(shared):
        return None
    variants = _yes_no(answer, {"subfiling": "--subfiling", "burstbuffer": "--burst-buffering"})
    return Part(
        "parallel-netcdf",
        version,
        variants,
        prefix=ask(str(config), "--prefix").strip() or None,
        files=(shared,),
    )


def _program(name: str, flavour: Flavour) -> str | None:
    """A program on PATH that is linked against this MPI."""
    path = shutil.which(name)
    return path if path and flavour.serves(path) else None


def ior(flavour: Flavour) -> Part | None:
    """IOR, asked by a run of its backend that does no I/O; mdtest comes with it."""
    program = _program("ior", flavour)
    if program is None:
        return None
    banner = ask(program, "-a", "DUMMY", "-t", "1k", "-b", "1k")
    mdtest = _program("mdtest", flavour)
    variants = {
        "hdf5": str("libhdf5" in ask("ldd", program)).lower(),
        "ncmpi": str("pnetcdf" in ask("ldd", program)).lower(),
    }
    version = _find(r"IOR-(\S+?):", banner) or "unknown"
    return Part("ior", version, variants, files=(program, *([mdtest] if mdtest else [])))


def h5bench(flavour: Flavour) -> Part | None:
    """h5bench: its driver, and the write benchmark linked against this MPI."""
    driver, kernel = shutil.which("h5bench"), _program("h5bench_write", flavour)
    if driver is None or kernel is None:
        return None
    return Part(
        "h5bench", _find(r"(\d+\.\d+\S*)", ask(driver, "--version")) or "unknown", files=(driver, kernel)
    )


def darshan_runtime(flavour: Flavour) -> Part | None:
    """darshan-runtime, as `darshan-config` describes it."""
    config = shutil.which("darshan-config")
    answer = ask(config, "--all") if config else ""
    version = _find(r"[Dd]arshan[ -][Rr]untime (\d\S*)", answer)
    libdir = _find(r"-L(\S+)", ask(config, "--dyn-ld-flags")) if config else None
    shared = library(libdir, "darshan") if libdir else None
    if version is None or shared is None or (linked_mpis(shared) and not flavour.serves(shared)):
        return None
    return Part("darshan-runtime", version, _yes_no(answer, {"hdf5": "--hdf5-mod"}), files=(shared,))


def darshan_util(flavour: Flavour) -> Part | None:
    """darshan-util: `darshan-parser`, which prints the version of the log library it was built with."""
    parser = shutil.which("darshan-parser")
    config = Path(parser).parent.parent / "lib" / "pkgconfig" / "darshan-util.pc" if parser else None
    version = _find(r"^Version:\s*(\S+)", config.read_text()) if config and config.is_file() else None
    return Part("darshan-util", version or "unknown", files=(parser,)) if parser else None


PROBES: tuple[Callable[[Flavour], Part | None], ...] = (
    compiler, mpi, hdf5, netcdf, pnetcdf, ior, h5bench, darshan_runtime, darshan_util,
)  # fmt: skip
