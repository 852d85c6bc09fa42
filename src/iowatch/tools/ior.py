"""IOR (https://github.com/hpc/ior, 3.3.0 and 4.x): options as its user guide names them."""

from __future__ import annotations

from iowatch.tools.tool import Options, Tool, number, operations, size

SUMMARY = "ior.json"

_OPTIONS = {
    "api": "posix, mpiio, hdf5 or ncmpi",
    "file": "shared or per-process (-F)",
    "op": "write, read or both",
    "transfer": "transfer size (-t)",
    "block": "block size (-b)",
    "segments": "segments (-s): more than one interleaves the ranks' blocks",
    "repeat": "repetitions (-i)",
    "collective": "collective transfers (-c)",
    "sync": "fsync inside the timed part (-e); false leaves it out",
    "reorder": "read what another node wrote (-C); false leaves it out",
    "direct": "O_DIRECT, POSIX only",
    "stripe-count": "Lustre stripe count of the directory, -1 for all",
    "stripe-size": "Lustre stripe size of the directory in bytes",
    "ranks": "MPI processes",
    "nodes": "nodes",
}

_API = {"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "ncmpi": "NCMPI"}
_FEATURE = {"hdf5": "hdf5", "ncmpi": "pnetcdf"}


def _arguments(options: Options, place: str) -> list[str]:
    api = str(options.get("api", "posix"))
    words = ["-a", _API[api]]
    words += ["-t", str(size(options, "transfer", "1m")), "-b", str(size(options, "block", "16m"))]
    words += ["-s", str(number(options, "segments", 1)), "-i", str(number(options, "repeat", 10))]
    words += {"both": ["-w", "-r"], "write": ["-w"], "read": ["-w", "-r"]}[str(options.get("op", "both"))]
    # Without -e and -C reads come from the page cache of the node that wrote; both are on unless taken off.
    flags = {
        "-F": options.get("file") == "per-process",
        "-c": bool(options.get("collective", False)),
        "-e": bool(options.get("sync", True)),
        "-C": bool(options.get("reorder", True)),
        "--posix.odirect": bool(options.get("direct", False)),
    }
    words += [flag for flag, wanted in flags.items() if wanted]
    return [*words, "-o", f"{place}/ior", "-O", f"summaryFile={SUMMARY},summaryFormat=JSON"]


def _requires(options: Options) -> tuple[str, ...]:
    library = _FEATURE.get(str(options.get("api")))
    return ("mpi", "ior", library) if library else ("mpi", "ior")


def _file_bytes(options: Options) -> int:
    per_rank = size(options, "block", "16m") * number(options, "segments", 1)
    return per_rank * number(options, "ranks", 1)


IOR = Tool(
    name="ior",
    options=_OPTIONS,
    program=lambda _options: "ior",
    arguments=_arguments,
    requires=_requires,
    expects=lambda options: tuple((operation, "bandwidth") for operation in operations(options)),
    file_bytes=_file_bytes,
    volume_bytes=lambda o: _file_bytes(o) * number(o, "repeat", 10) * max(2, len(operations(o))),
    results=(SUMMARY,),
    inodes=lambda options: number(options, "ranks", 1) if options.get("file") == "per-process" else 1,
)
