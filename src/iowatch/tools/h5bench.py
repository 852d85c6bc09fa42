"""h5bench (https://github.com/hpc-io/h5bench, 1.3 to 1.6): its write and read programs, without its driver.

The driver starts its own `mpirun` and returns 0 whatever happened; ReFrame's launcher starts the programs
instead, with the configuration file that the driver would have written.
"""

from __future__ import annotations

from iowatch.model import Scalar
from iowatch.tools.tool import Options, Tool, drop_cache, number, operations

_CONFIGURATION, _WRITE_CONFIGURATION = "h5bench.cfg", "h5bench_write.cfg"

_OPTIONS = {
    "op": "write, or read (a file that is written before, unmeasured)",
    "memory": "pattern in memory: contiguous or interleaved",
    "pattern": "pattern in the file: contiguous or interleaved; reads: full, partial or strided",
    "dims": "particles a rank in each dimension: 4194304, 1024x1024, …",
    "timesteps": "time steps",
    "collective": "collective transfers",
    "repeat": "runs; one run gives one sample",
    "ranks": "MPI processes",
    "nodes": "nodes",
}

_WORD = {"contiguous": "CONTIG", "interleaved": "INTERLEAVED", "strided": "STRIDED"}
_READ = {"full": "FULL", "partial": "PARTIAL", "strided": "STRIDED"}
# One particle: 8 variables of 4 bytes (h5bench's h5bench_write.c: x, y, z, px, py, pz, id_1 and id_2).
_PARTICLE_BYTES = 32


def _shape(options: Options) -> list[int]:
    return [int(n) for n in str(options.get("dims", "1048576")).split("x")]


def _particles(options: Options) -> int:
    product = 1
    for n in _shape(options):
        product *= n
    return product


def _base(options: Options) -> dict[str, str]:
    shape = [*_shape(options), 1, 1, 1]
    yes = "YES" if options.get("collective", True) else "NO"
    return {
        "TIMESTEPS": str(number(options, "timesteps", 5)),
        "DELAYED_CLOSE_TIMESTEPS": "2",
        "COLLECTIVE_DATA": yes,
        "COLLECTIVE_METADATA": yes,
        "EMULATED_COMPUTE_TIME_PER_TIMESTEP": "100 ms",
        "NUM_DIMS": str(len(_shape(options))),
        **{f"DIM_{axis + 1}": str(shape[axis]) for axis in range(3)},
    }


def _write_settings(options: Options) -> dict[str, str]:
    file_pattern = str(options.get("pattern", "contiguous")) if options.get("op") != "read" else "contiguous"
    memory = str(options.get("memory", "contiguous"))
    return {"MEM_PATTERN": _WORD[memory], "FILE_PATTERN": _WORD[file_pattern], **_base(options)}


def _read_settings(options: Options) -> dict[str, str]:
    how = str(options.get("pattern", "full"))
    settings = {"MEM_PATTERN": "CONTIG", "FILE_PATTERN": "CONTIG", "READ_OPTION": _READ[how], **_base(options)}
    particles = _particles(options)
    if how == "partial":
        settings["TO_READ_NUM_PARTICLES"] = str(particles // 2)
    if how == "strided":
        # h5bench refuses more than (stride + block) x count particles a rank.
        settings |= {"FILE_PATTERN": "STRIDED", "STRIDE_SIZE": "64", "BLOCK_SIZE": "2"}
        settings["BLOCK_CNT"] = str(particles // 66)
    return settings


def _text(settings: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _files(options: Options) -> dict[str, str]:
    if options.get("op", "write") == "write":
        return {_CONFIGURATION: _text(_write_settings(options))}
    return {
        _CONFIGURATION: _text(_read_settings(options)),
        _WRITE_CONFIGURATION: _text(_write_settings(options)),
    }


def _program(options: Options) -> str:
    return f"h5bench_{options.get('op', 'write')}"


def _prepare(options: Options, place: str) -> list[list[str]]:
    if options.get("op", "write") == "write":
        return []
    return [["h5bench_write", _WRITE_CONFIGURATION, f"{place}/h5bench.h5"]]


def _file_bytes(options: Options) -> int:
    steps = number(options, "timesteps", 5)
    return _PARTICLE_BYTES * _particles(options) * number(options, "ranks", 1) * steps


def _shows(options: Options) -> dict[str, Scalar]:
    """Time steps, and the bytes of all of them: of the part that is read, where it is a part."""
    settings = _read_settings(options) if options.get("op") == "read" else {}
    block, count = (int(settings.get(name, 0)) for name in ("BLOCK_SIZE", "BLOCK_CNT"))
    particles = block * count or int(settings.get("TO_READ_NUM_PARTICLES", _particles(options)))
    share = _PARTICLE_BYTES * number(options, "ranks", 1) * number(options, "timesteps", 5)
    return {
        "total_bytes": share * particles,
        "steps": number(options, "timesteps", 5),
        "collective": bool(options.get("collective", True)),
    }


def _case(options: Options) -> dict[str, Scalar]:
    """What h5bench does not print: the pattern in memory, which part is read, the cache policy of reads."""
    if options.get("op", "write") == "read":
        return {"pattern": str(options.get("pattern", "full")), "cache": "drop"}
    return {
        "memory": str(options.get("memory", "contiguous")),
        "pattern": str(options.get("pattern", "contiguous")),
    }


H5BENCH = Tool(
    name="h5bench",
    options=_OPTIONS,
    program=_program,
    arguments=lambda _options, place: [_CONFIGURATION, f"{place}/h5bench.h5"],
    requires=lambda _options: ("mpi", "hdf5", "h5bench"),
    expects=lambda options: tuple(
        (operation, metric)
        for operation in operations(options)
        for metric in ("raw_bandwidth", "observed_bandwidth")
    ),
    samples=lambda options: number(options, "repeat", 3),
    shows=_shows,
    file_bytes=_file_bytes,
    volume_bytes=lambda o: _file_bytes(o) * (number(o, "repeat", 3) + (o.get("op") == "read")),
    configuration=_files,
    prepare=_prepare,
    runs=lambda options: number(options, "repeat", 3),
    before=lambda options, place: drop_cache(f"{place}/h5bench") if options.get("op") == "read" else "",
    case=_case,
)
