"""Franklin, 1 January to 30 April 2009, reconstructed from published figures.

Every factor and every level marked "published" is from K. Antypas and A. Uselton, "MPI-I/O on Franklin XT4
System at NERSC", CUG 2009. The paper gives the rates of the file-per-process tests in figures only, so their
levels are assumed: below the 11 GB/s peak of /scratch (section 2); only ratios to them are published.
"""

from __future__ import annotations

from datetime import date

from iowatch.demo.generator import Level, Story
from iowatch.model import Scalar
from iowatch.stacks import Part, Stack
from iowatch.store import StackRecord
from iowatch.units import mib_per_s

LABEL = "reconstructed from published figures"
SYSTEM = "franklin"
MAINTENANCE = date(2009, 3, 17)
FIRST, LAST = date(2009, 1, 1), date(2009, 4, 30)

# Assumed rates of IOR file per process, MB/s; the published rates of the shared file are fractions of them.
_FPP = {"write": 7000.0, "read": 6000.0}
_TRANSFERS = {"1 MiB": 1_048_576, "1 MB": 1_000_000}
# Section 3, shared file as a fraction of file per process, and section 5.4, factor after 17 March.
_SHARED: dict[tuple[str, str], tuple[float, float, str]] = {
    ("1 MiB", "write"): (0.40, 3.0, "published: about 40 % of file per process; about x3 (3, 5.4)"),
    ("1 MB", "write"): (0.07, 3.0, "published: 7 % of file per process; about x3 (3, 5.4)"),
    ("1 MiB", "read"): (1.05, 1.0, "published: slightly above file per process; about the same (3, 5.4)"),
    ("1 MB", "read"): (0.01, 51.0, "published: 1 % of file per process; over x50 (3, 5.4)"),
}


def _ior(api: str, file: str, transfer: str, operation: str) -> Level:
    # 64 processes, 2 GB each, in some 2000 pieces of the transfer size (section 3).
    parameters: dict[str, Scalar] = {
        "operation": operation,
        "api": api,
        "file": file,
        "ranks": 64,
        "transfer_bytes": _TRANSFERS[transfer],
        "block_bytes": _TRANSFERS[transfer],
        "segments": 2000,
        "file_system": "scratch",
    }
    fraction, factor, source = 1.0, 1.0, "level assumed; published: peak about 11 GB/s (2)"
    if file == "shared":
        fraction, factor, source = _SHARED[transfer, operation]
    before = _FPP[operation] * fraction
    return _level(f"ior-{api.lower()}-{transfer.replace(' ', '')}", "ior", parameters, before, factor, source)


def _level(
    run: str,
    benchmark: str,
    parameters: dict[str, Scalar],
    before: float,
    factor: float,
    source: str,
    *,
    sigma: float = 0.05,
) -> Level:
    """A bandwidth of `before` MB/s until the maintenance and `factor` times as much from that night on."""
    start = mib_per_s(before, "MB/s")
    levels = ((FIRST, start), (MAINTENANCE, start * factor))
    return Level(run, benchmark, parameters, levels, source, sigma=sigma)


def _madbench(api: str, file: str, seconds: float, factor: float, source: str) -> Level:
    parameters: dict[str, Scalar] = {
        "operation": "run",
        "api": api,
        "file": file,
        "ranks": 256,
        "file_system": "scratch",
    }
    levels = ((FIRST, seconds), (MAINTENANCE, seconds / factor))
    return Level(f"madbench2-{api.lower()}", "madbench2", parameters, levels, source, metric="time")


def _application(api: str, file: str, ranks: int, total_bytes: int) -> dict[str, Scalar]:
    return {
        "api": api,
        "file": file,
        "ranks": ranks,
        "total_bytes": total_bytes,
        "file_system": "scratch",
    }


def _applications() -> tuple[Level, ...]:
    flash = _application("HDF5", "shared", 2048, 10 * 10**9)
    s3d = _application("POSIX", "per-process", 512, 512 * 5_800_000)
    return (
        _madbench("POSIX", "per-process", 300.0, 1.0, "time assumed; published: little difference (5.1)"),
        _madbench("MPIIO", "shared", 1200.0, 4.0, "time assumed; published: roughly 4 times faster (5.1)"),
        _level(
            "flash-hdf5",
            "flash",
            {**flash, "operation": "write"},
            800.0,
            2.5,
            "level assumed; published: x2 to x3 (5.2)",
        ),
        _level(
            "flash-hdf5",
            "flash",
            {**flash, "operation": "read"},
            99.0,
            1400.0 / 99.0,
            "published: less than 100 MB/s, then 1400 MB/s (5.2)",
        ),
        # Section 5.3: "a high degree of variability in both cases"; harmonic means of 27 February and after.
        _level(
            "s3d-posix",
            "s3d",
            {**s3d, "operation": "write"},
            955.0,
            4972.0 / 955.0,
            "published: 955, then 4972 MB/s (5.3)",
            sigma=0.25,
        ),
    )


def _stack(cle: str) -> StackRecord:
    """Franklin's system software as far as the paper names it (section 4)."""
    stack = Stack("cray-xt", SYSTEM, "modules", "declared", (Part("cray-linux-environment", cle),))
    return StackRecord(stack.name, stack.to_json())


def story() -> Story:
    """The history to generate; which "couple of days at the end of February" were lost is assumed."""
    ior = tuple(
        _ior(api, file, transfer, operation)
        for api, file in (("POSIX", "per-process"), ("MPIIO", "shared"))
        for transfer in _TRANSFERS
        for operation in ("write", "read")
    )
    return Story(
        name="franklin",
        system=SYSTEM,
        partition="compute",
        label=LABEL,
        first=FIRST,
        last=LAST,
        series=(*ior, *_applications()),
        stacks=((FIRST, _stack("2.1")), (MAINTENANCE, _stack("2.1UP01 with patch sets 01, 01A, 02"))),
        missing=frozenset({date(2009, 2, 28), date(2009, 3, 1)}),
        kept=frozenset(date(2009, 3, day) for day in range(14, 21)),
    )
