"""benchio: the project's own benchmark (benchmarks/benchio, docs/benchio.md)."""

from __future__ import annotations

from math import prod

from iowatch.model import Scalar
from iowatch.tools.tool import Options, Tool, number, operations, size, striping

_OPTIONS = {
    "api": "posix, mpiio, hdf5, netcdf4, pnetcdf or null",
    "file": "shared, per-process or per-node",
    "instances": "groups of ranks with files of their own at the same time",
    "pattern": "block3d, disjoint or interleaved",
    "op": "write, read or both",
    "local": "elements a rank, NXxNYxNZ (weak scaling)",
    "global": "elements in all, NXxNYxNZ (strong scaling)",
    "transfer": "transfer size in bytes",
    "block": "block size in bytes",
    "segments": "segments",
    "row": "row of two-dimensional data in bytes",
    "access": "collective or independent",
    "cache": "keep, drop or direct",
    "sync": "flush inside the timed part: true or end, each, none",
    "chunk": "chunk shape in elements",
    "unlimited": "slowest varying dimension unlimited",
    "fill": "libraries write fill values first",
    "align": "libraries align objects to this many bytes",
    "collective-metadata": "HDF5 metadata collectively",
    "repeat": "repetitions",
    "verify": "check every byte",
    "stripe-count": "Lustre stripe count of the directory, -1 for all",
    "stripe-size": "Lustre stripe size of the directory in bytes",
    "ranks": "MPI processes",
    "nodes": "nodes",
}

# Not program arguments: where and how wide the job runs, how its directory is striped.
_PLACEMENT = {"ranks", "nodes", "stripe-count", "stripe-size"}
_DOUBLE_BYTES = 8
RECORD = "benchio.json"
_CASE_API = {
    **{"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "netcdf4": "NETCDF4", "pnetcdf": "PNETCDF"},
}


def _arguments(options: Options, place: str) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        if name in _PLACEMENT or value is False:
            continue
        words.append(f"--{name}" if value is True else f"--{name}={value}")
    return [*words, f"--dir={place}", f"--json={RECORD}"]


def _requires(options: Options) -> tuple[str, ...]:
    library = {"hdf5": "hdf5", "netcdf4": "netcdf4", "pnetcdf": "pnetcdf"}.get(str(options.get("api")))
    return ("mpi", library) if library else ("mpi",)


def _expects(options: Options) -> tuple[tuple[str, str], ...]:
    return tuple((operation, "bandwidth") for operation in operations(options))


def _file_bytes(options: Options) -> int:
    if str(options.get("api")) == "null":
        return 0
    ranks = number(options, "ranks", 1)
    if options.get("pattern", "block3d") != "block3d":
        # benchio's defaults: one block of 16 MiB, or 16 interleaved blocks of one transfer.
        interleaved = options["pattern"] == "interleaved"
        block = size(options, "block", str(options.get("transfer", "1m")) if interleaved else "16m")
        return ranks * block * number(options, "segments", 16 if interleaved else 1)
    if "global" in options:
        return _DOUBLE_BYTES * _elements(str(options["global"])) * number(options, "instances", 1)
    return _DOUBLE_BYTES * _elements(str(options.get("local", "128x128x128"))) * ranks


def _elements(shape: str) -> int:
    return prod(int(n) for n in shape.split("x"))


def _volume_bytes(options: Options) -> int:
    return _file_bytes(options) * number(options, "repeat", 10) * len(operations(options))


def _shows(options: Options) -> dict[str, Scalar]:
    if str(options.get("api")) == "null":
        return {}
    return {
        "api": _CASE_API[str(options.get("api", "mpiio"))],
        "total_bytes": _file_bytes(options),
        **({"verify": True} if options.get("verify") else {}),
    }


def _inodes(options: Options) -> int:
    """Files of all instances and roles, and their directory."""
    files = {"per-process": "ranks", "per-node": "nodes"}.get(str(options.get("file")), "instances")
    return 1 + max(number(options, files, 1), number(options, "instances", 1))


BENCHIO = Tool(
    name="benchio",
    options=_OPTIONS,
    program=lambda _options: "benchio",
    arguments=_arguments,
    requires=_requires,
    expects=_expects,
    samples=lambda options: number(options, "repeat", 10),
    shows=_shows,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    results=(RECORD,),
    case=striping,
    inodes=_inodes,
)
