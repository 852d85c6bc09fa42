"""benchio: the project's own benchmark (benchmarks/benchio, docs/benchio.md)."""

from __future__ import annotations

from math import prod

from iowatch.tools.tool import Options, Tool, number, operations, size

_OPTIONS = {
    "api": "posix, mpiio, hdf5, netcdf4, pnetcdf or null",
    "file": "shared, per-process or per-node",
    "op": "write, read or both",
    "local": "elements a rank, NXxNYxNZ (weak scaling)",
    "global": "elements in all, NXxNYxNZ (strong scaling)",
    "repeat": "repetitions",
    "sync": "flush to storage inside the timed part",
    "verify": "check every byte",
    "ranks": "MPI processes",
    "nodes": "nodes",
    "pattern": "block3d, disjoint or interleaved",
    "cache": "keep, drop or direct",
    "collective": "collective or independent transfers",
    "transfer": "transfer size in bytes",
    "block": "block size in bytes",
    "segments": "segments",
    "layout": "contiguous or chunked",
    "chunk": "chunk shape",
    "unlimited": "unlimited first dimension",
    "fill": "write fill values",
    "alignment": "alignment in bytes",
    "instances": "groups of ranks with files of their own at the same time",
    "stripe-count": "Lustre stripe count, -1 for all",
    "stripe-size": "Lustre stripe size in bytes",
}

# Not program arguments: where and how wide the job runs.
_PLACEMENT = {"ranks", "nodes"}
_DOUBLE_BYTES = 8


RECORD = "benchio.json"


def _arguments(options: Options, place: str) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        if name in _PLACEMENT or value is False:
            continue
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return [*words, "--dir", place, "--json", RECORD]


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
        return ranks * size(options, "block", "16m") * number(options, "segments", 1)
    if "global" in options:
        return _DOUBLE_BYTES * _elements(str(options["global"]))
    return _DOUBLE_BYTES * _elements(str(options.get("local", "128x128x128"))) * ranks


def _elements(shape: str) -> int:
    return prod(int(n) for n in shape.split("x"))


def _volume_bytes(options: Options) -> int:
    return _file_bytes(options) * number(options, "repeat", 10) * len(operations(options))


BENCHIO = Tool(
    name="benchio",
    options=_OPTIONS,
    program=lambda _options: "benchio",
    arguments=_arguments,
    requires=_requires,
    expects=_expects,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    results=(RECORD,),
)
