"""Parts of a stack that Spack did not build, found by querying the installed tools, and stacks of such parts.

Each probe returns a part, or None if the tool is absent, does not respond, or is linked against another MPI. The
packages of the operating system form one stack per installed MPI.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from iowatch.benchmarks.benchmark import Benchmark, ProgramInterface, ProgramProbe
from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.site.stack.records import Stack, StackPart
from iowatch.site.stack.tool_query import AS_ROOT, keep_answers, query_tool, unanswered_questions

_LOG = logging.getLogger(__name__)

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

    def tool_name(self, name: str) -> str:
        """Return the name of a tool (`mpicc`, `h5pcc`…) in this MPI."""
        if self.mpi == CRAY:
            name = _CRAY_NAMES.get(name, name)
        return name + self.suffix

    def tool(self, name: str) -> str | None:
        """Return the path of this MPI's own variant of a tool."""
        return shutil.which(self.tool_name(name))

    def serves(self, path: str) -> bool:
        """Return whether a program or library is linked against this MPI."""
        return self.mpi in find_linked_mpis(path)


def _query_if_found(path: str | None, *arguments: str) -> str:
    """Return the output of a program (`query_tool`); empty without a path."""
    if path is None:
        return ""
    return query_tool(path, *arguments)


def _first_match(pattern: str, text: str) -> str | None:
    """Return the group of a pattern in a text of several lines."""
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        return None
    return match.group(1).strip()


def _parse_yes_no(text: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return variants from lines `label: yes`, `label: ON` (builds by CMake) or `label -> enabled`."""
    variants = {}
    for variant, label in names.items():
        word = _first_match(rf"{re.escape(label)}\s*(?::|->)\s*(\w+)", text)
        if word:
            is_enabled = word.lower() in ("yes", "on", "enabled", "1")
            variants[variant] = str(is_enabled).lower()
    return variants


def find_library(directory: str | None, name: str) -> str | None:
    """Return the path of `lib<name>.so` in a directory; None if it is not there, or without a directory."""
    if not directory:
        return None
    path = Path(directory) / f"lib{name}.so"
    return str(path) if path.exists() else None


def find_linked_mpis(path: str) -> frozenset[str]:
    """Return Spack's names of the MPIs that a program or library can run with; empty if it does not link MPI."""
    listing = query_tool("ldd", path)
    return frozenset(mpi for mpi, pattern in MPI_LIBRARIES.items() if re.search(pattern, listing))


@dataclass(frozen=True)
class MpiVersion:
    """An MPI and its version.

    Attributes:
        mpi: Spack's name.
    """

    mpi: str
    version: str


def identify_mpi(mpirun: str) -> MpiVersion | None:
    """Return what an MPI is, from its `mpirun --version`; None if it is none of those that are known."""
    answer = query_tool(mpirun, "--version")
    for mpi, pattern in (
        ("openmpi", r"\((?:Open MPI|OpenRTE)\)\s+(\d[\w.]*)"),
        ("intel-oneapi-mpi", r"Intel\(R\) MPI Library.*Version (\S+)"),
        ("mpich", r"^\s*Version:\s+(\d\S*)"),
    ):
        version = _first_match(pattern, answer)
        if version:
            return MpiVersion(mpi, version)
    return None


def _find_mpi(suffix: str) -> MpiInstallation | None:
    """Return the MPI whose `mpicc` and `mpirun` with this suffix are first on PATH."""
    candidate = MpiInstallation("", suffix)
    mpirun = candidate.tool("mpirun")
    if mpirun is None or candidate.tool("mpicc") is None:
        return None
    identity = identify_mpi(mpirun)
    if identity is None:
        return None
    return MpiInstallation(identity.mpi, suffix)


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
    for compiler in ("clang", "icx", "icc", "nvc"):
        if compiler in answer.lower():
            return StackPart(compiler, version)
    return StackPart("gcc", version)


def probe_mpi(flavour: MpiInstallation) -> StackPart | None:
    """Return the MPI itself: needs `mpicc` and `mpirun`; for Cray's, started by the batch system, only the compiler."""
    mpicc, mpirun = flavour.tool("mpicc"), flavour.tool("mpirun")
    if flavour.mpi == CRAY and mpicc:
        version = os.environ.get("CRAY_MPICH_VERSION", "unknown")
        return StackPart(CRAY, version, prefix=os.environ.get("MPICH_DIR"), files=(mpicc,))
    if mpicc is None or mpirun is None:
        return None
    identity = identify_mpi(mpirun)
    if identity is None:
        return None
    return StackPart(identity.mpi, identity.version, prefix=str(Path(mpirun).parent.parent), files=(mpicc, mpirun))


def probe_hdf5(flavour: MpiInstallation) -> StackPart | None:
    """Return parallel HDF5, as described by `h5pcc -showconfig`."""
    h5pcc = flavour.tool("h5pcc")
    if h5pcc is None:
        return None
    settings = query_tool(h5pcc, "-showconfig")
    version = _first_match(r"HDF5 Version:\s*(\S+)", settings)
    labels = {"mpi": "Parallel HDF5", "threadsafe": "Threadsafety", "subfiling": "Subfiling VFD"}
    variants = _parse_yes_no(settings, labels)
    # Filters: CMake's names, Autotools' names.
    filters = _first_match(r"I/O filters \(external\):[ \t]*(.*)", settings) or ""
    for filter_name, pattern in {"deflate": "DEFLATE|deflate", "szip": "ENCODE|encoder"}.items():
        if re.search(pattern, filters):
            variants[filter_name] = "true"
    if version is None or variants.get("mpi") != "true":
        return None
    # The first h5pcc on PATH can belong to another MPI.
    library_directory = _first_match(r"-L(\S+)", query_tool(h5pcc, "-show"))
    library = find_library(library_directory, "hdf5")
    if library and find_linked_mpis(library) and not flavour.serves(library):
        return None
    files = (h5pcc, library) if library else (h5pcc,)
    prefix = _first_match(r"Installation point:\s*(\S+)", settings)
    return StackPart("hdf5", version, variants, prefix=prefix, files=files)


def _netcdf_by_config(flavour: MpiInstallation) -> StackPart | None:
    """Return the parallel netCDF that `nc-config` describes; None if it is serial or of another MPI."""
    config = flavour.tool("nc-config") or shutil.which("nc-config")
    answer = _query_if_found(config, "--all")
    version = _first_match(r"--version\s*->\s*netCDF (\S+)", answer)
    prefix = _first_match(r"--prefix\s*->\s*(\S+)", answer)
    # Not printed before 4.4.1.1.
    library_directory = _first_match(r"--libdir\s*->\s*(\S+)", answer) or f"{prefix}/lib"
    variants = {"mpi": "false"}
    # Before 4.7 only the settings file states whether netCDF-4 is parallel, not `nc-config`.
    settings = Path(library_directory, "libnetcdf.settings")
    if settings.is_file():
        variants |= _parse_yes_no(settings.read_text(encoding="utf-8", errors="replace"), {"mpi": "Parallel Support"})
    variants |= _parse_yes_no(
        answer, {"mpi": "--has-parallel4", "parallel-netcdf": "--has-pnetcdf", "zstd": "--has-zstd"}
    )
    if version is None or variants["mpi"] != "true":
        return None
    # The second is Cray's.
    library = find_library(library_directory, "netcdf") or find_library(library_directory, "netcdf_parallel")
    if library is None or not flavour.serves(library):
        return None
    return StackPart("netcdf-c", version, variants, prefix=prefix, files=(library,))


def _netcdf_by_pkgconfig(flavour: MpiInstallation) -> StackPart | None:
    """Return Debian's parallel netCDF, which has a `netcdf-mpi.pc` instead of its own nc-config."""
    version = query_tool("pkg-config", "--modversion", "netcdf-mpi").strip()
    if not version:
        return None
    library_directory = query_tool("pkg-config", "--variable=libdir", "netcdf-mpi").strip()
    library = find_library(library_directory, "netcdf_mpi")
    if library is None or not flavour.serves(library):
        return None
    prefix = query_tool("pkg-config", "--variable=prefix", "netcdf-mpi").strip()
    return StackPart("netcdf-c", version, {"mpi": "true"}, prefix=prefix, files=(library,))


def probe_netcdf(flavour: MpiInstallation) -> StackPart | None:
    """Return netCDF-C with parallel netCDF-4."""
    return _netcdf_by_config(flavour) or _netcdf_by_pkgconfig(flavour)


def _fits_hdf5(part: StackPart, hdf5: StackPart | None) -> bool:
    """Return whether a library is linked against this HDF5, or against none: no process can use two."""
    if hdf5 is None:
        return True
    hdf5_directories = {Path(os.path.realpath(file)).parent for file in hdf5.files if ".so" in file}
    if not hdf5_directories:
        return True
    linked_libraries: list[str] = []
    for file in part.files:
        linked_libraries += re.findall(rf"{HDF5_LIBRARY}\S* => (/\S+)", query_tool("ldd", file))
    linked_directories = {Path(os.path.realpath(library)).parent for library in linked_libraries}
    return linked_directories <= hdf5_directories


def probe_pnetcdf(flavour: MpiInstallation) -> StackPart | None:
    """Return PnetCDF, as described by `pnetcdf-config`; in Debian 13 its directories are those of Debian's build."""
    config = flavour.tool("pnetcdf-config") or shutil.which("pnetcdf-config")
    if config is None:
        return None
    answer = query_tool(config, "--all")
    version = _first_match(r"PnetCDF (\d\S*)", answer)
    library = find_library(query_tool(config, "--libdir").strip(), "pnetcdf")
    if library is None:
        library = find_compiler_library(flavour.tool("mpicc"), "libpnetcdf.so")
    if version is None or library is None or not flavour.serves(library):
        return None
    variants = _parse_yes_no(answer, {"subfiling": "--subfiling", "burstbuffer": "--burst-buffering"})
    prefix: str | None = query_tool(config, "--prefix").strip()
    if not prefix or not Path(prefix).is_dir():
        prefix = None
    return StackPart("parallel-netcdf", version, variants, prefix=prefix, files=(library,))


def find_compiler_library(compiler: str | None, name: str) -> str | None:
    """Return the path of a library that a compiler finds without any option."""
    path = Path(_query_if_found(compiler, f"-print-file-name={name}").strip())
    # A compiler prints only the name of a library that it does not find.
    if not path.is_absolute() or not path.exists():
        return None
    return os.path.realpath(path)


def probe_package(package: str, flavour: MpiInstallation) -> StackPart | None:
    """Return the part with the benchmarks of one package, if the program of the first of them is installed."""
    benchmarks = [benchmark for benchmark in BENCHMARKS.values() if benchmark.package == package]
    probes = [benchmark.probe for benchmark in benchmarks if benchmark.probe]
    first_probe = probes[0]
    program = _find_program(first_probe, flavour)
    command = program
    if first_probe.version_command:
        command = shutil.which(first_probe.version_command[0])
    if program is None or command is None:
        return None
    with unanswered_questions() as questions:
        version = _program_version(first_probe, command)
    # An MPI that cannot start a program on this node lets all programs wait until their time is over.
    starts_here = not questions
    programs = [command, program]
    for probe in probes[1:]:
        other_program = _find_program(probe, flavour)
        if other_program:
            programs.append(other_program)
    files = tuple(dict.fromkeys(programs))
    variants: dict[str, str] = {}
    for benchmark in benchmarks:
        variants.update(_probe_interfaces(benchmark, files, starts_here))
    return StackPart(package, version, variants, files=files, checksums=file_checksums(files))


def _probe_interfaces(benchmark: Benchmark, programs: Iterable[str], starts_here: bool) -> dict[str, str]:
    """Return variants of a package: `false` for each interface that its build of a benchmark lacks.

    The program itself lists them. If it does not, an interface is lacking whose library the program does not load.
    Of libraries that are only for one interface, `true` is stated, too.

    Args:
        programs: paths of the programs of the package.
        starts_here: whether they can be started on this machine.
    """
    probe = benchmark.probe
    program = None
    if probe is not None:
        program = next((path for path in programs if Path(path).name == probe.program), None)
    if probe is None or program is None:
        return {}
    listed = _listed_interfaces(probe, program) if starts_here else None
    linked_libraries = ""
    if listed is None and any(interface.library for interface in benchmark.interfaces):
        linked_libraries = query_tool("ldd", program)
    variants: dict[str, str] = {}
    for interface in benchmark.interfaces:
        is_built: bool | None = None
        if interface.program:
            is_built = Path(program).with_name(interface.program).exists()
        elif listed is not None and interface.listed:
            is_built = interface.listed in listed
        elif linked_libraries and interface.library:
            is_built = interface.library in linked_libraries
        # What every build should have is a variant only where it is lacking.
        if is_built is False or (is_built and interface.library):
            variants[interface.variant] = str(is_built).lower()
    return variants


def _listed_interfaces(probe: ProgramProbe, program: str) -> frozenset[str] | None:
    """Return the interfaces that a program lists; None if it lists none.

    Args:
        program: its path.
    """
    if not probe.interfaces_command:
        return None
    answer = query_tool(program, *probe.interfaces_command[1:], any_exit_code=True)
    names = _first_match(probe.interfaces_pattern, answer)
    if names is None:
        return None
    return frozenset(name.strip() for name in names.split("|"))


def lacks_interface(part: StackPart, interface: ProgramInterface) -> bool:
    """Return whether a part is a build without an interface, as far as it is known."""
    variant = part.variants.get(interface.variant)
    if variant is not None:
        return variant == "false"
    # A package of Spack has its programs below its prefix.
    if interface.program and part.hash and part.prefix:
        directory = Path(part.prefix, "bin")
        return directory.is_dir() and not (directory / interface.program).exists()
    return False


def lacking_interface_features(parts: Iterable[StackPart]) -> tuple[str, ...]:
    """Return the features that say which interfaces the benchmarks of a stack lack (`Benchmark.lacking_feature`)."""
    features: set[str] = set()
    for part in parts:
        for benchmark in BENCHMARKS.values():
            if benchmark.package != part.name:
                continue
            for interface in benchmark.interfaces:
                if lacks_interface(part, interface):
                    features.add(benchmark.lacking_feature(interface.variant))
    return tuple(sorted(features))


def _program_version(probe: ProgramProbe, command: str) -> str:
    """Return the version that a program prints, or that files beside it show; `unknown` if it prints none.

    Args:
        command: path of the program that prints its version.
    """
    answer = ""
    if probe.version_command:
        answer = query_tool(command, *probe.version_command[1:])
    version = "unknown"
    if answer:
        version = _first_match(probe.version_pattern, answer) or version
    for printed_version, later_program, later_version in probe.later:
        if printed_version == version and Path(command).with_name(later_program).is_file():
            return later_version
    return version


def file_checksums(paths: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file that can be read."""
    checksums = {}
    for path in paths:
        with suppress(OSError), Path(path).open("rb") as stream:
            checksums[path] = hashlib.file_digest(stream, "sha256").hexdigest()
    return checksums


def _find_program(probe: ProgramProbe, flavour: MpiInstallation) -> str | None:
    """Return the path of a program on PATH, linked against this MPI if it uses MPI."""
    path = shutil.which(probe.program)
    if path is None:
        _warn_of_files_without_permission(probe.program)
    if path and probe.uses_mpi and not flavour.serves(path):
        return None
    return path


def _warn_of_files_without_permission(program: str) -> None:
    """Say that a program is there and cannot be started: "not found" would not help."""
    for directory in os.get_exec_path():
        path = Path(directory) / program
        if path.is_file() and not os.access(path, os.X_OK):
            _warn_of_file_without_permission(path)


@cache
def _warn_of_file_without_permission(path: Path) -> None:
    """Say it once: each MPI of a system asks for the same programs."""
    _LOG.warning("%s exists, but is not executable: it is not used", path)


def probe_darshan_runtime(flavour: MpiInstallation) -> StackPart | None:
    """Return darshan-runtime by `darshan-config`, which reports version and modules only from 3.5 on (`--all`)."""
    config = shutil.which("darshan-config")
    if config is None:
        return None
    library_directory = _first_match(r"-L(\S+)", query_tool(config, "--dyn-ld-flags"))
    library = find_library(library_directory, "darshan")
    if library_directory is None or library is None:
        return None
    if find_linked_mpis(library) and not flavour.serves(library):
        return None
    version = _pkgconfig_version(Path(library_directory), "darshan-runtime")
    variants = _parse_yes_no(query_tool(config, "--all"), {"hdf5": "--hdf5-mod"})
    return StackPart("darshan-runtime", version, variants, files=(library,))


def probe_darshan_util(flavour: MpiInstallation) -> StackPart | None:
    """Return darshan-util by `darshan-parser`, which prints the version of the log library it was built with."""
    parser = shutil.which("darshan-parser")
    if parser is None:
        return None
    version = _pkgconfig_version(Path(parser).parent.parent / "lib", "darshan-util")
    return StackPart("darshan-util", version, files=(parser,))


def _pkgconfig_version(library_directory: Path, name: str) -> str:
    """Return the version in the pkg-config file of a library, or `unknown`."""
    config = library_directory / "pkgconfig" / f"{name}.pc"
    if not config.is_file():
        return "unknown"
    return _first_match(r"^Version:\s*(\S+)", config.read_text()) or "unknown"


_Probe = Callable[[MpiInstallation], StackPart | None]


def _probes() -> dict[str, _Probe]:
    """Return the functions that look for the parts of a stack, by the name of the part.

    Compiler and MPI are parts under names of their own. They are in the order of the parts.
    """
    packages = dict.fromkeys(b.package for b in BENCHMARKS.values() if b.package and b.probe)
    return {
        "compiler": probe_compiler,
        "mpi": probe_mpi,
        "hdf5": probe_hdf5,
        "netcdf-c": probe_netcdf,
        "parallel-netcdf": probe_pnetcdf,
        **{package: partial(probe_package, package) for package in packages},
        "darshan-runtime": probe_darshan_runtime,
        "darshan-util": probe_darshan_util,
    }


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
    features: set[str] = set()
    for part in parts:
        if part.name in FEATURE_OF_PART:
            features.add(FEATURE_OF_PART[part.name])
        # What its build supports.
        for variant in FEATURE_VARIANTS.get(part.name, ()):
            if part.variants.get(variant) == "true":
                features.add(variant)
        if part.name == "hdf5" and part.hash:
            features.add("deflate")
        features |= {benchmark.name for benchmark in BENCHMARKS.values() if _provides(part, benchmark)}
    return tuple(sorted(features))


def features_of_stack(stack: Stack) -> list[str]:
    """Return the features of a stack: of its parts, and what no part is named for.

    These are `mpi`, ROMIO, libyaml, with which benchio runs workloads, and what its benchmarks lack.
    """
    features = ["mpi"]
    if stack.mpi_io == "ROMIO":
        features.append("romio")
    # A benchio of Spack has its own libyaml; another one is built on the machine.
    benchio = stack.part("benchio")
    if benchio is not None and benchio.hash:
        has_yaml = benchio.variants.get("workloads") == "true"
    else:
        has_yaml = find_compiler_library(shutil.which("cc"), "libyaml.so") is not None
    if has_yaml:
        features.append("libyaml")
    return [*features, *stack.features, *lacking_interface_features(stack.parts)]


def _provides(part: StackPart, benchmark: Benchmark) -> bool:
    """Return whether a part contains a benchmark; on PATH, unlike in Spack packages, programs may be missing."""
    if part.name != benchmark.package:
        return False
    probe = benchmark.probe
    if probe is None:
        return True
    if part.hash:
        # A package of Spack has all programs but those of an option.
        return not probe.option or part.variants.get(probe.option) == "true"
    if probe.version_command:
        return True
    return any(Path(path).name == probe.program for path in part.files)


def mpi_settings(mpi: str) -> dict[str, str]:
    """Return the environment that an MPI needs to start more ranks than cores, also as root."""
    if mpi != "openmpi":
        return {}
    if os.getuid() == 0:
        return {**_OVERSUBSCRIBE, **AS_ROOT}
    return dict(_OVERSUBSCRIBE)


def installed_mpis() -> list[MpiInstallation]:
    """Return the MPIs of this machine: Debian's variants, and the first one on PATH if it is different."""
    installations = [mpi for mpi in map(_find_mpi, _SUFFIXES) if mpi]
    first_on_path = first_mpi_on_path()
    if first_on_path and first_on_path.mpi not in {installation.mpi for installation in installations}:
        installations.append(first_on_path)
    return installations


@dataclass(frozen=True)
class _ProbedParts:
    """The parts that can be used with an MPI.

    Attributes:
        parts: sorted by name.
        unanswered: features of parts that may be there, and which tool did not answer.
    """

    parts: tuple[StackPart, ...]
    unanswered: Mapping[str, str]


def _probe_parts(flavour: MpiInstallation) -> _ProbedParts:
    """Look for all parts of a stack."""
    parts: dict[str, StackPart] = {}
    unanswered: dict[str, str] = {}
    for name, probe in _probes().items():
        with unanswered_questions() as questions:
            part = probe(flavour)
        if part is not None:
            parts[part.name] = part
        elif questions:
            unanswered.update(dict.fromkeys(_features_of_part_name(name), questions[0]))
    if "netcdf-c" in parts and not _fits_hdf5(parts["netcdf-c"], parts.get("hdf5")):
        del parts["netcdf-c"]
    return _ProbedParts(tuple(parts[name] for name in sorted(parts)), unanswered)


def _features_of_part_name(name: str) -> list[str]:
    """Return the features that a part of this name can give a stack."""
    features = [FEATURE_OF_PART[name]] if name in FEATURE_OF_PART else []
    features += FEATURE_VARIANTS.get(name, ())
    features += [benchmark.name for benchmark in BENCHMARKS.values() if benchmark.package == name]
    return features


def _make_system_stack(system: str, flavour: MpiInstallation) -> Stack:
    """Return the stack of an MPI of this machine, with everything that is installed for it."""
    probed = _probe_parts(flavour)
    parts = probed.parts
    # Tools under the usual names, where those of this MPI have others.
    tools = {}
    for name in TOOLS:
        path = flavour.tool(name)
        if path and flavour.tool_name(name) != name:
            tools[name] = path
    return Stack(
        f"system-{flavour.mpi}",
        system,
        "system",
        "installed",
        parts,
        features=features_of_parts(parts),
        settings=mpi_settings(flavour.mpi),
        tools=tools,
        unanswered=probed.unanswered,
    )


def system_stacks(system: str, programs: tuple[str, ...] = ()) -> list[Stack]:
    """Return one stack per MPI of this machine, sorted by name: `system-mpich`, `system-openmpi`.

    Args:
        programs: directories that are searched before PATH, here and in jobs.
    """
    path_before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([*programs, path_before])
    try:
        stacks = [_make_system_stack(system, flavour) for flavour in installed_mpis()]
        keep_answers()
    finally:
        os.environ["PATH"] = path_before
    if programs:
        stacks = [replace(stack, paths={"PATH": programs}) for stack in stacks]
    return sorted(stacks, key=lambda stack: stack.name)


def loaded_stack(system: str) -> Stack | None:
    """Return the stack of the MPI that is first on PATH (of the loaded modules), or None."""
    mpi = first_mpi_on_path()
    if mpi is None:
        return None
    stack = _make_system_stack(system, mpi)
    keep_answers()
    return stack


def print_loaded_stack() -> None:
    """Print `loaded_stack` of argv[1] as one line of JSON; `iowatch.site.stack.load` calls this in a separate shell."""
    stack = loaded_stack(sys.argv[1])
    if stack is None:
        sys.exit(1)
    print(json.dumps({**stack.to_json(), "unanswered": dict(stack.unanswered)}))
