"""IOR (https://github.com/hpc/ior, 3.3.0 and 4.x): options as its user guide names them."""

from __future__ import annotations

from iowatch.model import Scalar
from iowatch.tools.tool import Options, Tool, drop_cache, number, operations, size, striping

SUMMARY = "ior.json"

_OPTIONS = {
    "api": "posix, mpiio, hdf5 or ncmpi",
    "file": "shared or per-process (-F)",
    "op": "write; read (of a file written before and dropped from the page cache); both (several nodes only)",
    "transfer": "transfer size (-t)",
    "block": "block size (-b)",
    "segments": "segments (-s): more than one interleaves the ranks' blocks",
    "repeat": "repetitions (-i)",
    "collective": "collective transfers (-c)",
    "sync": "fsync inside the timed part (-e); false leaves it out",
    "reorder": "read what another node wrote (-C); false leaves it out",
    "direct": "O_DIRECT, POSIX only",
    "verify": "compare the data: writes are read back (-W), reads compare while they read (-R): their own case",
    "stripe-count": "Lustre stripe count of the directory, -1 for all",
    "stripe-size": "Lustre stripe size of the directory in bytes",
    "ranks": "MPI processes",
    "nodes": "nodes",
}

_API = {"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "ncmpi": "NCMPI"}
_CASE_API = {**_API, "ncmpi": "PNETCDF"}
_FEATURE = {"hdf5": "hdf5", "ncmpi": "pnetcdf"}


# phase -> the option that checks its data
_CHECKS = {"-w": "-W", "-r": "-R"}


def _common(options: Options, place: str) -> list[str]:
    words = ["-a", _API[str(options.get("api", "posix"))]]
    words += ["-t", str(size(options, "transfer", "1m")), "-b", str(size(options, "block", "16m"))]
    words += ["-s", str(number(options, "segments", 1))]
    # Without -e and -C reads come from the page cache of the node that wrote; both are on unless taken off.
    flags = {
        "-F": options.get("file") == "per-process",
        "-c": bool(options.get("collective", False)),
        "-e": bool(options.get("sync", True)),
        "-C": bool(options.get("reorder", True)),
        "--posix.odirect": bool(options.get("direct", False)),
    }
    if options.get("verify"):
        words += ["-G", "1"]  # what is in the file, also for a later start
    return [*words, *(flag for flag, wanted in flags.items() if wanted), "-o", f"{place}/ior"]


def _arguments(options: Options, place: str) -> list[str]:
    op = str(options.get("op", "write"))
    phases = {"both": ["-w", "-r"], "write": ["-w"], "read": ["-r", "-k"]}
    repeat = 1 if op == "read" else number(options, "repeat", 10)
    summary = ["-O", f"summaryFile={SUMMARY},summaryFormat=JSON"]
    checks = [flag for phase, flag in _CHECKS.items() if phase in phases[op] and options.get("verify")]
    return [*_common(options, place), *phases[op], *checks, "-i", str(repeat), *summary]


def _prepare(options: Options, place: str) -> list[list[str]]:
    """A read needs a file; it is written by the same number of ranks in the same pattern."""
    return [["ior", *_common(options, place), "-w", "-k"]] if options.get("op") == "read" else []


def _before(options: Options, place: str) -> str:
    """Drop the file from the page cache of every node: readers are not always where -C puts them."""
    return drop_cache(f"{place}/ior") if options.get("op") == "read" else ""


def _case(options: Options) -> dict[str, Scalar]:
    """What IOR does not print: the cache policy of reads, the striping asked for."""
    return ({"cache": "drop"} if options.get("op") == "read" else {}) | striping(options)


def _shows(options: Options) -> dict[str, Scalar]:
    return {
        "api": _CASE_API[str(options.get("api", "posix"))],
        "file": "per-process" if options.get("file") == "per-process" else "shared",
        "collective": bool(options.get("collective", False)),
        "transfer_bytes": size(options, "transfer", "1m"),
        "block_bytes": size(options, "block", "16m"),
        "segments": number(options, "segments", 1),
        "total_bytes": _file_bytes(options),
        **({"verify": True} if options.get("verify") else {}),
    }


def _requires(options: Options) -> tuple[str, ...]:
    library = _FEATURE.get(str(options.get("api")))
    return ("mpi", "ior", library) if library else ("mpi", "ior")


def _file_bytes(options: Options) -> int:
    per_rank = size(options, "block", "16m") * number(options, "segments", 1)
    return per_rank * number(options, "ranks", 1)


def _volume_bytes(options: Options) -> int:
    transfers = number(options, "repeat", 10) * len(operations(options))
    if options.get("verify") and options.get("op") != "read":
        transfers += number(options, "repeat", 10)
    return _file_bytes(options) * (transfers + (options.get("op") == "read"))


IOR = Tool(
    name="ior",
    options=_OPTIONS,
    program=lambda _options: "ior",
    arguments=_arguments,
    requires=_requires,
    expects=lambda options: tuple((operation, "bandwidth") for operation in operations(options)),
    samples=lambda options: number(options, "repeat", 10),
    shows=_shows,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    results=(SUMMARY,),
    prepare=_prepare,
    runs=lambda options: number(options, "repeat", 10) if options.get("op") == "read" else 1,
    before=_before,
    case=_case,
    inodes=lambda options: number(options, "ranks", 1) if options.get("file") == "per-process" else 1,
)
