"""The CSV of h5bench's programs (`CSV_FILE=…`, 1.3 to 1.6): a metric a row, a unit that changes by row.

It says less than stdout: no sizes a rank, no time steps.
"""

from __future__ import annotations

from iowatch.model import Scalar
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.h5bench_numbers import YES, Measured, amount, whole

HEADER = "metric, value, unit"
# operation as printed -> ours, and what it says about the case
_OPERATIONS: dict[str, tuple[str, dict[str, Scalar | None]]] = {
    "write": ("write", {}),
    "read": ("read", {}),
    "append": ("append", {}),
    "overwrite": ("overwrite", {}),
    "write unlimited": ("write", {"unlimited": True}),
    "write_var_normal_dist": ("write", {"distribution": "normal"}),
}
_ROWS = ("raw time", "raw rate", "observed rate", "observed time", "total compute time", "total size")


class CsvReader:
    """Collects the rows."""

    def __init__(self) -> None:
        self._rows: dict[str, str] = {}
        self._headers = 0
        self._contradicts = False

    def read(self, line: str) -> None:
        """Take one cleaned line."""
        if line == HEADER:
            self._headers += 1
            return
        name, _, rest = line.partition(", ")
        value, _, unit = rest.partition(", ")
        text = value if unit in ("", "seconds") else f"{value} {unit}"
        text = text.rstrip(",")
        if self._rows.setdefault(name, text) != text:
            self._contradicts = True

    def judge(self, draft: Draft, evidence: Evidence) -> None:
        """Judge the rows and keep the numbers."""
        rows = self._rows
        operation, ranks = _OPERATIONS.get(rows.get("operation", "")), whole(rows.get("ranks", ""))
        size = amount(rows.get("total size", ""))
        missing = [name for name in _ROWS if name not in rows]
        whole_rows = not self._contradicts and self._headers == 1 and not missing
        if not whole_rows or operation is None or ranks is None or size is None:
            draft.cut("the rows are not printed whole, or contradict each other")
            return
        if evidence.ranks is not None and evidence.ranks != ranks:
            draft.fail(f"{evidence.ranks} ranks were asked for, h5bench ran with {ranks}")
            return
        case: dict[str, Scalar | None] = {
            "api": "HDF5",
            "collective": YES.get(rows.get("collective data", "")),
            "collective_metadata": YES.get(rows.get("collective meta", "")),
            "ranks": ranks,
            "total_bytes": round(size.value),
            **operation[1],
        }
        measured = Measured(
            operation=operation[0],
            raw_rate=rows["raw rate"],
            observed_rate=rows["observed rate"],
            raw_time=rows["raw time"],
            observed_time=rows["observed time"],
            compute_time=rows["total compute time"],
            times={},
        )
        measured.keep(draft, case, size.value, "")
