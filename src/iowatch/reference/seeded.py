"""References of the machines that papers published: from the tables' long form to entries.

The printed maximum is the value. Where a median is printed too it is the lower bound: a night's maximum of ten
samples lies below the median of all of them once in a thousand nights. Where only a minimum is printed, that
is the bound; where neither is, there is none, and the entry can be compared with but not failed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

from iowatch.model import Scalar
from iowatch.reference import longform, published
from iowatch.reference.bandwidth import Entry, Provenance, References, case_text, variable
from iowatch.reference.rewrite import as_written
from iowatch.units import MIB

STACK, PARTITION, BY = "published", "default", "iowatch"
_CHECKS = {"benchio": "BenchioCheck", "ior": "IorCheck"}
_SAME = ("api", "pattern", "collective", "local_size", "stripe_count", "dimensions", "file_system")
_BYTES = {
    "stripe_size_mib": "stripe_bytes",
    "transfer_mib": "transfer_bytes",
    "alignment_mib": "alignment_bytes",
}
# Source 001, Tables 4.3 to 4.8: what each process writes is 20 GiB, in blocks of as many MiB as OSTs.
_PER_PROCESS_MIB = 20 * 1024
_REPETITIONS = {"000": 10, "001": 3}

_Record = dict[str, Scalar | None]


def _parameters(record: _Record) -> dict[str, Scalar | None]:
    """Case parameters in the words of docs/architecture.md."""
    case: dict[str, Scalar | None] = {name: record[name] for name in _SAME}
    case |= {"file": "shared", "ranks": record["writers"], "nodes": record["nodes"]}
    for name, ours in _BYTES.items():
        case[ours] = _bytes(record[name])
    if record["benchmark"] == "ior":
        case |= _ior(record)
    return case


def _bytes(mebibytes: Scalar | None) -> int | None:
    return int(float(mebibytes) * MIB) if mebibytes is not None else None


def _ior(record: _Record) -> dict[str, Scalar | None]:
    """Blocks, segments and storage of IOR in source 001."""
    osts = record["osts"] if record["pattern"] == "interleaved" else None
    block = _PER_PROCESS_MIB if osts is None else int(osts)
    chunk = _bytes(record["chunk_mib"])
    return {
        "block_bytes": block * MIB,
        "segments": _PER_PROCESS_MIB // block,
        "layout": "contiguous" if chunk is None else "chunked",
        "chunk": chunk,
        "unlimited": True if record["variant"] else None,
        "reorder": "constant",
        "pattern": None,
    }


def _comparable(record: _Record) -> bool:
    """Averages under load, and the version that wrote 10 MiB in all, are no reference of anything."""
    return record["instances"] is None and record["variant"] != "old default chunk size"


def _identity(record: _Record) -> tuple[Scalar | None, ...]:
    return tuple(v for k, v in record.items() if k not in ("statistic", "value", "unit"))


def _bound(statistics: dict[str, float]) -> float | None:
    """The lower bound relative to the maximum."""
    printed = statistics.get("median", statistics.get("min"))
    return None if printed is None else printed / statistics["max"] - 1


def _spread(statistics: dict[str, float]) -> float | None:
    deviation, mean = statistics.get("stddev"), statistics.get("mean")
    return None if deviation is None or not mean else deviation / mean


def _entry(table: published.Table, record: _Record, statistics: dict[str, float], date: dt.date) -> Entry:
    printed = [name for name in ("median", "min") if name in statistics][:1]
    why = (
        f"published maximum; lower bound: printed {printed[0]}"
        if printed
        else "published maximum; no spread printed"
    )
    n = int(statistics.get("count", _REPETITIONS[table.source]))
    origin = [f"{table.source}/{table.name}"]
    return Entry(
        check=_CHECKS[str(record["benchmark"])],
        partition=f"{record['system']}:{PARTITION}",
        stack=STACK,
        case=case_text(_parameters(record)),
        variable=variable(str(record["operation"]), "bandwidth"),
        value=statistics["max"],
        low=_bound(statistics),
        high=None,
        unit="MiB/s",
        provenance=Provenance(
            statistic="max", n=n, spread=_spread(statistics), date=date, origin=origin, by=BY, why=why
        ),
    )


def _of_table(table: published.Table, date: dt.date) -> Iterable[Entry]:
    groups: dict[tuple[Scalar | None, ...], tuple[_Record, dict[str, float]]] = {}
    for record in longform.measurements(table):
        _, statistics = groups.setdefault(_identity(record), (record, {}))
        statistics[str(record["statistic"])] = float(record["value"] or 0)
    for record, statistics in groups.values():
        if _comparable(record) and "max" in statistics and statistics["max"] > 0:
            yield _entry(table, record, statistics, date)


def by_system() -> dict[str, list[Entry]]:
    """References of all published systems; of several tables with one case, the first that prints a spread.

    Raises:
        InputError: a table is damaged.
    """
    found: dict[str, dict[tuple[str, ...], Entry]] = {}
    for table in (t for t in published.load_all() if longform.has_long_form(t) and _is_primary(t)):
        date = dt.date.fromisoformat(published.sources()[table.source].date or "")
        for entry in _of_table(table, date):
            of_system = found.setdefault(entry.partition.removesuffix(f":{PARTITION}"), {})
            known = of_system.get(entry.key)
            if known is None or (known.low is None and entry.low):
                of_system[entry.key] = entry
    return {system: list(entries.values()) for system, entries in found.items()}


def entries(system: str) -> list[Entry]:
    """References of one published system, or none.

    Raises:
        InputError: a table is damaged.
    """
    return by_system().get(system, [])


def differences(references: References, printed: Iterable[Entry]) -> list[tuple[str, str]]:
    """(where, what) of entries of the papers that are not, or no more, what the tables give.

    Args:
        printed: `entries` of that system.
    """
    tables = {entry.key: as_written(entry) for entry in printed}
    there = {entry.key: entry for entry in references.entries if entry.stack == STACK}
    found = [
        (entry.where, f"{entry.variable}: {what}")
        for key, entry in there.items()
        if (what := _difference(entry, tables.get(key)))
    ]
    lost = [entry for key, entry in tables.items() if key not in there]
    return found + [
        (
            str(references.path),
            f"{entry.variable} of table {entry.provenance.origin[0]}, {entry.case}, is not there",
        )
        for entry in lost
    ]


def _difference(entry: Entry, printed: Entry | None) -> str | None:
    if printed is None:
        return f"no table gives an entry of stack '{STACK}' for this case"
    if replace(entry, where="") == printed:
        return None
    here, paper = ([e.value, e.low, e.high, e.unit] for e in (entry, printed))
    if here != paper:
        return f"{here} is not what table {printed.provenance.origin[0]} gives: {paper}"
    return f"its provenance is not what table {printed.provenance.origin[0]} gives"


def _is_primary(table: published.Table) -> bool:
    """Table 21 of source 000 only repeats (and partly contradicts, see ERRATA.md) the others."""
    return (table.source, table.name) != ("000", "21")


def systems() -> list[str]:
    """Published systems that have measurements."""
    tables = [t for t in published.load_all() if longform.has_long_form(t) and _is_primary(t)]
    return sorted({str(record["system"]) for table in tables for record in longform.measurements(table)})
