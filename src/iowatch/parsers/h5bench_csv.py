"""The CSV of h5bench's programs (`CSV_FILE=…`, 1.3 to 1.6): a metric a row, a unit that changes by row.

It says less than stdout: no sizes a rank, no time steps.
"""

from __future__ import annotations

from iowatch.model import Scalar
from iowatch.parsers.draft import MOST_NAMES, Draft, Evidence
from iowatch.parsers.h5bench_numbers import YES, Measured, amount, human, whole

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
_ALWAYS = {
    *("operation", "ranks", "total compute time", "total size", "raw time", "raw rate", "metadata time"),
    *("observed rate", "observed time"),
}
_COLLECTIVE = {"collective data", "collective meta"}
_SOMETIMES = {"subfiling", "Total number of particles", "Final mean particles", "Final standard deviation"}
_PARTICLE_BYTES = 32


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
        if len(self._rows) > MOST_NAMES or self._rows.setdefault(name, text) != text:
            self._contradicts = True

    def judge(self, draft: Draft, evidence: Evidence) -> None:
        """Judge the rows and keep the numbers."""
        case = None if self._contradicts or self._headers != 1 else self._case()
        if case is None:
            draft.cut("the rows are not printed whole, or contradict each other")
        elif others := evidence.other_ranks(case["ranks"], "h5bench"):
            draft.fail(others)
        else:
            self._measured().keep(draft, case, float(case["total_bytes"] or 0), "")

    def _case(self) -> dict[str, Scalar | None] | None:
        rows = self._rows
        operation, ranks = _OPERATIONS.get(rows.get("operation", "")), whole(rows.get("ranks", ""))
        size = amount(rows.get("total size", ""))
        if operation is None or ranks is None or size is None:
            return None
        if any(rows[name] not in YES for name in _COLLECTIVE & rows.keys()):
            return None
        expected = _ALWAYS if operation[0] in ("append", "overwrite") else _ALWAYS | _COLLECTIVE
        if not expected <= rows.keys() <= expected | _COLLECTIVE | _SOMETIMES:
            return None
        # every rank does the same, except where sizes are drawn at random
        share = _PARTICLE_BYTES * (1 if "distribution" in operation[1] else ranks)
        if amount(human(share * round(size.value / share))) != size:
            return None
        return {
            "api": "HDF5",
            "collective": YES.get(rows.get("collective data", "")),
            "collective_metadata": YES.get(rows.get("collective meta", "")),
            "ranks": ranks,
            "total_bytes": round(size.value),
            **operation[1],
        }

    def _measured(self) -> Measured:
        rows = self._rows
        return Measured(
            operation=_OPERATIONS[rows["operation"]][0],
            raw_rate=rows["raw rate"],
            observed_rate=rows["observed rate"],
            raw_time=rows["raw time"],
            observed_time=rows["observed time"],
            compute_time=rows["total compute time"],
            times={},
        )
