"""How many MPI-IO operations a paper prints for one repetition, to show ours beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from iowatch.model import Case
from iowatch.reference import published

# Source 000, section 6, "NetCDF Performance": Darshan's counts of its base case, kept in the table `text`.
_SOURCE, _TABLE = "000", "text"
_APIS = {"MPI-IO": "MPIIO", "HDF5": "HDF5", "NetCDF": "NETCDF4"}


@dataclass(frozen=True, slots=True)
class Printed:
    """Operations of one repetition; `where` is source and table."""

    collective: int
    independent: int
    where: str

    @property
    def text(self) -> str:
        """`source 000 prints 24 and 6`."""
        return f"source {self.where.partition('/')[0]} prints {self.collective} and {self.independent}"


def printed(case: Case) -> Printed | None:
    """What is printed for the like of a case (benchio, writing one shared file collectively), or None."""
    wanted = {"operation": "write", "file": "shared", "collective": True}
    if case.benchmark != "benchio" or any(case.parameters.get(k, v) != v for k, v in wanted.items()):
        return None
    return _all().get(str(case.parameters.get("api")))


@cache
def _all() -> Mapping[str, Printed]:
    table = published.load(_SOURCE, _TABLE)
    names = [column.name for column in table.sidecar.columns]
    quantity, value = names.index("Quantity"), names.index("Value")
    known = {str(row[quantity]): row[value] for row in table.rows}
    found = {}
    for name, api in _APIS.items():
        both = [known.get(f"{kind} writes of {name}") for kind in ("collective", "independent")]
        if all(isinstance(one, int | float) for one in both):
            found[api] = Printed(int(both[0]), int(both[1]), f"{_SOURCE}/{_TABLE}")  # type: ignore[arg-type]
    return found
