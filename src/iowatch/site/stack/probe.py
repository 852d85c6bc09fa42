"""Parts of a stack that Spack did not build, found by querying the installed tools, and stacks of such parts.

Each probe returns a part, or None if the tool is absent, does not respond, or is linked against another MPI. The
packages of the operating system form one stack per installed MPI.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from iowatch.benchmarks.benchmark import Benchmark, ProgramProbe
from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.site.machine import run_program
from iowatch.site.stack.records import Stack, StackPart

TIMEOUT_S = 20.0
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
CRAY = "cray-mpich"
# Packages that Spack builds as the MPI of a stack, and all that programs can be started with.
SPACK_MPIS = ("openmpi", "mpich")
MPI_PACKAGES = (*SPACK_MPIS, CRAY)
# Library names in programs that load an MPI. MPICH and the implementations with its ABI share
# `libmpi.so.12`: each of them can run such a program.
MPI_LIBRARIES = {
    "openmpi": r"libmpi\.so\.[24]0\b",
    "mpich": r"libmpich\.so|libmpi\.so\.12\b",
    "intel-oneapi-mpi": r"libmpi\.so\.12\b",
    CRAY: r"libmpi_(?:amd|aocc|cray|gnu|intel|nvidia)\w*\.so",
}
HDF5_LIBRARY = r"libhdf5(?:_(?:openmpi|mpich|serial|parallel\w*|gnu\w*))?\.so"
# Cray's programming environment has one wrapper per language, which includes MPI.
_CRAY_NAMES = {"mpicc": "cc", "mpicxx": "CC", "mpifort": "ftn"}


@dataclass(frozen=True)
class MpiInstallation:
    """One MPI installation of this machine.

    Attributes:
        mpi: Spack's name of it.
        suffix: Debian's suffix of its tools (`.openmpi`), or empty.
    """

    mpi: str
    suffix: str = ""

    def own_name(self, name: str) -> str:
        """Return the name of a tool (`mpicc`, `h5pcc`…) in this MPI."""
        return (_CRAY_NAMES.get(name, name) if self.mpi == CRAY else name) + self.suffix

    def tool(self, name: str) -> str | None:
        """Return the path of this MPI's own variant of a tool."""
        return shutil.which(self.own_name(name))

    def serves(self, path: str) -> bool:
        """Return whether a program or library is linked against this MPI."""
        return self.mpi in find_linked_mpis(path)


@cache
def query_tool(*command: str) -> str:
    """Return the output of a program on both streams; empty if it is absent, fails or times out."""
    try:
        done = run_program(*command, timeout_s=TIMEOUT_S, LC_ALL="C", **_AS_ROOT)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _first_match(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1).strip() if match else None


def _parse_yes_no(text: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return variants from lines `label: yes`, `label: ON` (builds by CMake) or `label -> enabled`."""
    found = {}
    for variant, label in names.items():
        word = _first_match(rf"{re.escape(label)}\s*(?::|->)\s*(\w+)", text)
        if word:
            found[variant] = "true" if word.lower() in ("yes", "on", "enabled", "1") else "false"
    return found


def find_library(directory: str, name: str) -> str | None:
    """Return the path of `lib<name>.so` in a directory, or None."""
    path = Path(directory) / f"lib{name}.so"
    return str(path) if path.exists() else None


@cache
def find_linked_mpis(path: str) -> frozenset[str]:
    """Return Spack's names of the MPIs that a program or library can run with; empty if it does not link MPI."""
    listing = query_tool("ldd", path)
    return frozenset(mpi for mpi, pattern in MPI_LIBRARIES.items() if re.search(pattern, listing))


def identify_mpi(mpirun: str) -> tuple[str, str] | None:
    """Return (Spack's name, version) of an MPI from its `mpirun --version`."""
    answer = query_tool(mpirun, "--version")
    for mpi, pattern in (
        ("openmpi", r"\((?:Open MPI|OpenRTE)\)\s+(\d[\w.]*)"),
        ("intel-oneapi-mpi", r"Intel\(R\) MPI Library.*Version (\S+)"),
        ("mpich", r"^\s*Version:\s+(\d\S*)"),
    ):
        version = _first_match(pattern, answer)
        if version:
            return mpi, version
    return None


def _find_mpi(suffix: str) -> MpiInstallation | None:
    """Return the MPI whose `mpicc` and `mpirun` with this suffix are first on PATH."""
    candidate = MpiInstallation("", suffix)
    mpirun = candidate.tool("mpirun")
    known = identify_mpi(mpirun) if mpirun and candidate.tool("mpicc") else None
    return MpiInstallation(known[0], suffix) if known else None


def first_mpi_on_path() -> MpiInstallation | None:
    """Return the MPI whose `mpicc` and `mpirun` are first on PATH, or Cray's if its environment is loaded."""
    if os.environ.get("PE_ENV") and os.environ.get("CRAY_MPICH_VERSION") and shutil.which("cc"):
        return MpiInstallation(CRAY)
    return _find_mpi("")


def probe_compiler(flavour: MpiInstallation) -> StackPart | None:
    """Return the C compiler behind `mpicc`."""
    answer = query_tool(flavour.tool("mpicc") or "", "--version").partition("\n")[0]
    version = _first_match(r"(\d+\.\d+\.\d+)", answer)
    if version is None:
        return None
    name = next((known for known in ("clang", "icx", "icc", "nvc") if known in answer.lower()), "gcc")
    return StackPart(name, version)


def probe_mpi(flavour: MpiInstallation) -> StackPart | None:
    """Return the MPI itself: needs `mpicc` and `mpirun`; for Cray's, started by the batch system, only the compiler."""
    mpicc, mpirun = flavour.tool("mpicc"), flavour.tool("mpirun")
    if flavour.mpi == CRAY and mpicc:
        version = os.environ.get("CRAY_MPICH_VERSION", "unknown")
        return StackPart(CRAY, version, prefix=os.environ.get("MPICH_DIR"), files=(mpicc,))
    known = identify_mpi(mpirun) if mpicc and mpirun else None
    if mpicc is None or mpirun is None or known is None:
        return None
    return StackPart(known[0], known[1], prefix=str(Path(mpirun).parent.parent), files=(mpicc, mpirun))


def probe_hdf5(flavour: MpiInstallation) -> StackPart | None:
    """Return parallel HDF5, as described by `h5pcc -showconfig`."""
    h5pcc = flavour.tool("h5pcc")
    settings = query_tool(h5pcc, "-showconfig") if h5pcc else ""
    version = _first_match(r"HDF5 Version:\s*(\S+)", settings)
    names = {"mpi": "Parallel HDF5", "threadsafe": "Threadsafety", "subfiling": "Subfiling VFD"}
    variants = _parse_yes_no(settings, names)
    filters = _first_match(r"I/O filters \(external\):[ \t]*(.*)", settings) or ""
    printed = {"deflate": "DEFLATE|deflate", "szip": "ENCODE|encoder"}  # CMake's names, Autotools' names
    variants |= {name: "true" for name, pattern in printed.items() if re.search(pattern, filters)}
    if h5pcc is None or version is None or variants.get("mpi") != "true":
        return None
    libdir = _first_match(r"-L(\S+)", query_tool(h5pcc, "-show"))
    shared = find_library(libdir, "hdf5") if libdir else None
    if shared and find_linked_mpis(shared) and not flavour.serves(shared):
        return None  # the first h5pcc on PATH belongs to another MPI
    prefix = _first_match(r"Installation point:\s*(\S+)", settings)
    return StackPart("hdf5", version, variants, prefix=prefix, files=(h5pcc, *([shared] if shared else [])))


def _netcdf_by_config(flavour: MpiInstallation) -> StackPart | None:
    config = flavour.tool("nc-config") or shutil.which("nc-config")
    answer = query_tool(config, "--all") if config else ""
    version = _first_match(r"--version\s*->\s*netCDF (\S+)", answer)
    prefix = _first_match(r"--prefix\s*->\s*(\S+)", answer)
    libdir = _first_match(r"--libdir\s*->\s*(\S+)", answer) or f"{prefix}/lib"  # not printed before 4.4.1.1
    # Before 4.7 only the settings file states whether netCDF-4 is parallel, not `nc-config`.
    settings = Path(libdir, "libnetcdf.settings")
    more = settings.read_text(encoding="utf-8", errors="replace") if settings.is_file() else ""
    variants = {"mpi": "false"} | _parse_yes_no(more, {"mpi": "Parallel Support"})
    variants |= _parse_yes_no(
        answer, {"mpi": "--has-parallel4", "parallel-netcdf": "--has-pnetcdf", "zstd": "--has-zstd"}
    )
    shared = find_library(libdir, "netcdf") or find_library(libdir, "netcdf_parallel")  # Cray's
    if version is None or variants["mpi"] != "true" or shared is None or not flavour.serves(shared):
        return None
    return StackPart("netcdf-c", version, variants, prefix=prefix, files=(shared,))


def _netcdf_by_pkgconfig(flavour: MpiInstallation) -> StackPart | None:
    """Return Debian's parallel netCDF, which has a `netcdf-mpi.pc` instead of its own nc-config."""
    version = query_tool("pkg-config", "--modversion", "netcdf-mpi").strip()
    libdir = query_tool("pkg-config", "--variable=libdir", "netcdf-mpi").strip()
    shared = find_library(libdir, "netcdf_mpi") if version else None
    if shared is None or not flavour.serves(shared):
        return None
    prefix = query_tool("pkg-config", "--variable=prefix", "netcdf-mpi").strip()
    return StackPart("netcdf-c", version, {"mpi": "true"}, prefix=prefix, files=(shared,))


def probe_netcdf(flavour: MpiInstallation) -> StackPart | None:
    """Return netCDF-C with parallel netCDF-4."""
    return _netcdf_by_config(flavour) or _netcdf_by_pkgconfig(flavour)


def _fits_hdf5(part: StackPart, hdf5: StackPart | None) -> bool:
    """Return whether a library is linked against this HDF5, or against none: no process can use two."""
    own = {Path(os.path.realpath(file)).parent for file in (hdf5.files if hdf5 else ()) if ".so" in file}
    listing = "".join(query_tool("ldd", file) for file in part.files)
    linked = {Path(os.path.realpath(path)).parent for path in re.findall(rf"{HDF5_LIBRARY}\S* => (/\S+)", listing)}
    return not own or linked <= own


def probe_pnetcdf(flavour: MpiInstallation) -> StackPart | None:
    """Return PnetCDF, as described by `pnetcdf-config`; in Debian 13 its directories are those of Debian's build."""
    config = flavour.tool("pnetcdf-config") or shutil.which("pnetcdf-config")
    answer = query_tool(config, "--all") if config else ""
    version = _first_match(r"PnetCDF (\d\S*)", answer)
    shared = find_library(query_tool(config, "--libdir").strip(), "pnetcdf") if config else None
    shared = shared or _library_of_compiler(flavour, "libpnetcdf.so")
    if version is None or shared is None or not flavour.serves(shared):
        return None
    variants = _parse_yes_no(answer, {"subfiling": "--subfiling", "burstbuffer": "--burst-buffering"})
    prefix = query_tool(str(config), "--prefix").strip()
    place = prefix if prefix and Path(prefix).is_dir() else None
    return StackPart("parallel-netcdf", version, variants, prefix=place, files=(shared,))


def _library_of_compiler(flavour: MpiInstallation, name: str) -> str | None:
    return find_compiler_library(flavour.tool("mpicc"), name)


def find_compiler_library(compiler: str | None, name: str) -> str | None:
    """Return the path of a library that a compiler finds without any option."""
    answer = query_tool(compiler, f"-print-file-name={name}").strip() if compiler else ""
    return os.path.realpath(answer) if Path(answer).is_absolute() and Path(answer).exists() else None


def probe_package(package: str, flavour: MpiInstallation) -> StackPart | None:
    """Return the part with the benchmarks of one package, if the program of the first of them is installed."""
    probes = [b.probe for b in BENCHMARKS.values() if b.package == package and b.probe]
    first = probes[0]
    program = _find_program(first, flavour)
    command = shutil.which(first.version_command[0]) if first.version_command else program
    if program is None or command is None:
        return None
    answer = query_tool(command, *first.version_command[1:]) if first.version_command else ""
    version = (_first_match(first.version_pattern, answer) if answer else None) or "unknown"
    later = (new for old, name, new in first.later if old == version and Path(command).with_name(name).is_file())
    version = next(later, version)
    libraries = query_tool("ldd", program) if first.variants else ""
    variants = {variant: str(name in libraries).lower() for variant, name in first.variants.items()}
    others = [path for probe in probes[1:] if (path := _find_program(probe, flavour))]
    programs = tuple(dict.fromkeys([command, program, *others]))
    return StackPart(package, version, variants, files=programs, checksums=file_checksums(programs))


def file_checksums(paths: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file that can be read."""
    found = {}
    for path in paths:
        with suppress(OSError), Path(path).open("rb") as stream:
            found[path] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def _find_program(probe: ProgramProbe, flavour: MpiInstallation) -> str | None:
    """Return the path of a program on PATH, linked against this MPI if it uses MPI."""
    path = shutil.which(probe.program)
    return path if path and (not probe.uses_mpi or flavour.serves(path)) else None


def probe_darshan_runtime(flavour: MpiInstallation) -> StackPart | None:
    """Return darshan-runtime by `darshan-config`, which reports version and modules only from 3.5 on (`--all`)."""
    config = shutil.which("darshan-config")
    answer = query_tool(config, "--all") if config else ""
    libdir = _first_match(r"-L(\S+)", query_tool(config, "--dyn-ld-flags")) if config else None
    shared = find_library(libdir, "darshan") if libdir else None
    if libdir is None or shared is None or (find_linked_mpis(shared) and not flavour.serves(shared)):
        return None
    version = _pkgconfig_version(Path(libdir), "darshan-runtime")
    return StackPart("darshan-runtime", version, _parse_yes_no(answer, {"hdf5": "--hdf5-mod"}), files=(shared,))


def probe_darshan_util(flavour: MpiInstallation) -> StackPart | None:
    """Return darshan-util by `darshan-parser`, which prints the version of the log library it was built with."""
    parser = shutil.which("darshan-parser")
    version = _pkgconfig_version(Path(parser).parent.parent / "lib", "darshan-util") if parser else "unknown"
    return StackPart("darshan-util", version, files=(parser,)) if parser else None


def _pkgconfig_version(libdir: Path, name: str) -> str:
    config = libdir / "pkgconfig" / f"{name}.pc"
    return _first_match(r"^Version:\s*(\S+)", config.read_text() if config.is_file() else "") or "unknown"


def _probes() -> tuple[Callable[[MpiInstallation], StackPart | None], ...]:
    packages = dict.fromkeys(b.package for b in BENCHMARKS.values() if b.package and b.probe)
    return (
        probe_compiler,
        probe_mpi,
        probe_hdf5,
        probe_netcdf,
        probe_pnetcdf,
        *(partial(probe_package, package) for package in packages),
        probe_darshan_runtime,
        probe_darshan_util,
    )


# Debian supports several MPIs at once and adds a suffix to the tools of each.
_SUFFIXES = (".openmpi", ".mpich")
TOOLS = ("mpicc", "mpicxx", "mpifort", "mpirun", "mpiexec", "h5pcc", "h5pfc")

# Open MPI rejects more ranks than cores without this; 5.x uses the second name of the option.
_OVERSUBSCRIBE = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}

FEATURE_OF_PART = {
    "openmpi": "openmpi",
    "mpich": "mpich",
    "cray-mpich": "mpich",
    "hdf5": "hdf5",
    "netcdf-c": "netcdf4",
    "parallel-netcdf": "pnetcdf",
    "darshan-runtime": "darshan",
    "hdf5-vol-async": "vol-async",
}
# Variants that are features. `deflate` is none of Spack's HDF5, which always has it.
FEATURE_VARIANTS = {"hdf5": ("deflate", "szip", "subfiling"), "netcdf-c": ("zstd",)}


def features_of_parts(parts: Iterable[StackPart]) -> tuple[str, ...]:
    """Return the features that checks can require of an environment with these parts."""
    parts = list(parts)
    found = {FEATURE_OF_PART[part.name] for part in parts if part.name in FEATURE_OF_PART}
    for part in parts:
        found |= {name for name in FEATURE_VARIANTS.get(part.name, ()) if part.variants.get(name) == "true"}
        found |= {"deflate"} if part.name == "hdf5" and part.hash else set()
    found |= {b.name for b in BENCHMARKS.values() for part in parts if _provides(part, b)}
    return tuple(sorted(found))


def features_of_stack(stack: Stack) -> list[str]:
    """Return the features of a stack: of its parts, and what no part is named for.

    These are `mpi`, ROMIO, and libyaml, with which benchio runs workloads.
    """
    own = stack.part("benchio")
    if own is not None and own.hash:
        has_yaml = own.variants.get("workloads") == "true"
    else:
        has_yaml = find_compiler_library(shutil.which("cc"), "libyaml.so") is not None
    found = [*(["romio"] if stack.mpi_io == "ROMIO" else []), *(["libyaml"] if has_yaml else [])]
    return ["mpi", *found, *stack.features]


def _provides(part: StackPart, benchmark: Benchmark) -> bool:
    """Return whether a part contains a benchmark; on PATH, unlike in Spack packages, programs may be missing."""
    if part.name == benchmark.package and part.hash and benchmark.probe and benchmark.probe.option:
        return part.variants.get(benchmark.probe.option) == "true"
    if part.name != benchmark.package or part.hash or benchmark.probe is None:
        return part.name == benchmark.package
    program = benchmark.probe.program
    return bool(benchmark.probe.version_command) or any(Path(path).name == program for path in part.files)


def mpi_settings(mpi: str) -> dict[str, str]:
    """Return the environment that an MPI needs to start more ranks than cores, also as root."""
    if mpi != "openmpi":
        return {}
    return {**_OVERSUBSCRIBE, **(_AS_ROOT if os.getuid() == 0 else {})}


def installed_mpis() -> list[MpiInstallation]:
    """Return the MPIs of this machine: Debian's variants, and the first one on PATH if it is different."""
    found = [flavour for flavour in map(_find_mpi, _SUFFIXES) if flavour]
    plain = first_mpi_on_path()
    return [*found, plain] if plain and all(flavour.mpi != plain.mpi for flavour in found) else found


def _make_system_stack(system: str, flavour: MpiInstallation) -> Stack:
    found = sorted(filter(None, (ask(flavour) for ask in _probes())), key=lambda part: part.name)
    hdf5 = next((part for part in found if part.name == "hdf5"), None)
    parts = tuple(part for part in found if part.name != "netcdf-c" or _fits_hdf5(part, hdf5))
    renamed = [name for name in TOOLS if flavour.own_name(name) != name]
    tools = {name: path for name in renamed if (path := flavour.tool(name))}
    name, features, settings = f"system-{flavour.mpi}", features_of_parts(parts), mpi_settings(flavour.mpi)
    return Stack(name, system, "system", "installed", parts, features=features, settings=settings, tools=tools)


def system_stacks(system: str, programs: tuple[str, ...] = ()) -> list[Stack]:
    """Return one stack per MPI of this machine, sorted by name: `system-mpich`, `system-openmpi`.

    Args:
        programs: directories that are searched before PATH, here and in jobs.
    """
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([*programs, before])
    try:
        stacks = [_make_system_stack(system, flavour) for flavour in installed_mpis()]
    finally:
        os.environ["PATH"] = before
    paths = {"PATH": programs} if programs else {}
    return sorted((replace(stack, paths=paths) for stack in stacks), key=lambda stack: stack.name)


def loaded_stack(system: str) -> Stack | None:
    """Return the stack of the MPI that is first on PATH (of the loaded modules), or None."""
    plain = first_mpi_on_path()
    return _make_system_stack(system, plain) if plain else None


def print_loaded_stack() -> None:
    """Print `loaded_stack` of argv[1] as one line of JSON; `iowatch.site.stack.load` calls this in a separate shell."""
    stack = loaded_stack(sys.argv[1])
    if stack is None:
        sys.exit(1)
    print(json.dumps(stack.to_json()))
