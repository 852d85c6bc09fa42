"""Two planted faults on an imaginary system: what a red finding looks like.

Nothing in it was measured. On the planted dates, netcdf-c of the stack is rebuilt in a way that costs NetCDF-4
a third of its write bandwidth, and the file system's default striping is reset from all targets to one.
"""

from __future__ import annotations

from datetime import date

from iowatch.demo.generator import Level, Story
from iowatch.model import Scalar
from iowatch.stacks import Part, Stack
from iowatch.store import StackRecord

LABEL = "planted for demonstration, nothing was measured"
SYSTEM = "demo"
FIRST, LAST = date(2026, 1, 5), date(2026, 4, 5)
STACK_REBUILT, STRIPING_RESET = date(2026, 2, 16), date(2026, 3, 18)

_RANKS = 128
_LEVELS = {"POSIX": 5200.0, "MPIIO": 3100.0, "HDF5": 2700.0, "NETCDF4": 2400.0}
_NETCDF_FACTOR = 0.66
# One target of sixteen serves a shared file; the network allows it more than a sixteenth of what all did.
_STRIPE_FACTOR = 0.22


def _level(api: str, operation: str, stripe_count: int) -> Level:
    file = "per-process" if api == "POSIX" else "shared"
    parameters: dict[str, Scalar] = {
        "operation": operation,
        "api": api,
        "file": file,
        "pattern": "block3d",
        "ranks": _RANKS,
        "nodes": 4,
        "local_size": "256x256x256",
        "stripe_count": stripe_count,
        "file_system": "scratch",
    }
    value = _LEVELS[api] * (1.15 if operation == "read" else 1.0)
    levels = [(FIRST, value)]
    if api == "NETCDF4" and operation == "write":
        value *= _NETCDF_FACTOR
        levels.append((STACK_REBUILT, value))
    if file == "shared" and stripe_count == 0:
        levels.append((STRIPING_RESET, value * _STRIPE_FACTOR))
    run = f"benchio-{api.lower()}-stripes{stripe_count}"
    return Level(run, "benchio", parameters, tuple(levels), "imagined")


def _stack(netcdf_variants: dict[str, str], digest: str) -> StackRecord:
    parts = (
        Part("hdf5", "1.14.5", {"mpi": "true"}, "m4qk3zjd"),
        Part("netcdf-c", "4.9.2", netcdf_variants, digest),
        Part("openmpi", "5.0.8", {}, "t7w2c5yx"),
    )
    stack = Stack("openmpi-hdf5-1.14-netcdf-4.9", SYSTEM, "spack", "installed", parts)
    return StackRecord(stack.name, stack.to_json())


def _met(stripe_count: int) -> dict[str, dict[str, str]]:
    """What each job met on its node."""
    striping = f"stripe_count: {stripe_count} stripe_size: 1048576 pattern: raid0"
    return {"machine": {"kernel": "5.14.0-503.el9.x86_64", "lustre": "2.15.5", "striping": striping}}


def story() -> Story:
    """The history to generate; a stripe count of 0 is the file system's default, -1 is all targets."""
    series = tuple(
        _level(api, operation, stripe_count)
        for api in _LEVELS
        for stripe_count in (0, -1)
        for operation in ("write", "read")
    )
    return Story(
        name="regress",
        system=SYSTEM,
        partition="compute",
        label=LABEL,
        first=FIRST,
        last=LAST,
        series=series,
        stacks=(
            (FIRST, _stack({"build_type": "Release"}, "a5k6q2rv")),
            (STACK_REBUILT, _stack({"build_type": "Debug"}, "z3n7h4ob")),
        ),
        facts=((FIRST, _met(-1)), (STRIPING_RESET, _met(1))),
    )
