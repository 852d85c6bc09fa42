"""mdtest (part of IOR): rates of file operations, as source 002 measures them with 1,048,576 files."""

from __future__ import annotations

from iowatch.model import Scalar
from iowatch.tools.tool import Options, Tool, number

_OPTIONS = {
    "files": "files in all, over all ranks",
    "directories": "single (all ranks in one) or separate (-u: one a rank)",
    "repeat": "runs; mdtest prints no single repetitions, so it is started once for each",
    "ranks": "MPI processes",
    "nodes": "nodes",
}

_OPERATIONS = ("create", "stat", "read", "remove")


def _per_rank(options: Options) -> int:
    return -(-number(options, "files", 1024) // number(options, "ranks", 1))


def _shows(options: Options) -> dict[str, Scalar]:
    return {
        "files": _per_rank(options) * number(options, "ranks", 1),
        "directories": str(options.get("directories", "single")),
    }


def _arguments(options: Options, place: str) -> list[str]:
    # -N shifts ranks by those of one node: nobody stats what it created (client caches).
    shift = number(options, "ranks", 1) // number(options, "nodes", 1)
    words = ["-F", "-n", str(_per_rank(options)), "-N", str(shift), "-i", "1", "-d", f"{place}/mdtest"]
    return [*words, "-u"] if options.get("directories") == "separate" else words


MDTEST = Tool(
    name="mdtest",
    options=_OPTIONS,
    program=lambda _options: "mdtest",
    arguments=_arguments,
    requires=lambda _options: ("mpi", "mdtest"),
    expects=lambda _options: tuple((operation, "rate") for operation in _OPERATIONS),
    samples=lambda options: number(options, "repeat", 3),
    shows=_shows,
    file_bytes=lambda options: 4096 * number(options, "files", 1024),
    volume_bytes=lambda _options: 0,
    runs=lambda options: number(options, "repeat", 3),
    inodes=lambda options: number(options, "files", 1024) + number(options, "ranks", 1) + 2,
)
