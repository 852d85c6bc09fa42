"""References of the published machines, computed from the long form of the tables.

    python -m tests.reference.seeded     writes reference/bandwidth/<system>.yaml of all of them again

The printed maximum is the value. Where a median is printed too it is the lower bound: the maximum of ten
samples of a session is below the median of all samples once in a thousand sessions. Where only a minimum is printed,
that is the bound; where neither is, there is none, and the entry can be used in comparisons but cannot fail.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from iowatch.benchmarks.registry import get_benchmark
from iowatch.core import MIB, Scalar
from iowatch.reference import published
from iowatch.reference.bandwidth import (
    Provenance,
    Reference,
    format_case_key,
    performance_variable,
    reference_file_path,
)
from iowatch.reference.propose import update_reference_text

STACK, PARTITION, BY = "published", "default", "iowatch"
_IDENTITY_PARAMETERS = ("api", "pattern", "collective", "local_size", "stripe_count", "dimensions", "file_system")
_SIZE_PARAMETERS = {
    "stripe_size_mib": "stripe_bytes",
    "transfer_mib": "transfer_bytes",
    "alignment_mib": "alignment_bytes",
}
# [bartz2014], Tables 4.3 to 4.8: each process writes 20 GiB, in blocks of as many MiB as there are OSTs.
_PER_PROCESS_MIB = 20 * 1024
_REPETITIONS = {"000": 10, "001": 3}

_Record = dict[str, Scalar | None]


def _case_parameters(record: _Record) -> dict[str, Scalar | None]:
    """Case parameters in the vocabulary of docs/case-parameters.md."""
    case: dict[str, Scalar | None] = {name: record[name] for name in _IDENTITY_PARAMETERS}
    case |= {"file": "shared", "ranks": record["writers"], "nodes": record["nodes"]}
    for name, ours in _SIZE_PARAMETERS.items():
        case[ours] = _mib_to_bytes(record[name])
    if record["benchmark"] == "ior":
        case |= _ior_parameters(record)
    return case


def _mib_to_bytes(mebibytes: Scalar | None) -> int | None:
    return int(float(mebibytes) * MIB) if mebibytes is not None else None


def _ior_parameters(record: _Record) -> dict[str, Scalar | None]:
    """Blocks, segments and storage of IOR in [bartz2014]."""
    osts = record["osts"] if record["pattern"] == "interleaved" else None
    block = _PER_PROCESS_MIB if osts is None else int(osts)
    chunk = _mib_to_bytes(record["chunk_mib"])
    return {
        "block_bytes": block * MIB,
        "segments": _PER_PROCESS_MIB // block,
        "layout": "contiguous" if chunk is None else "chunked",
        "chunk": chunk,
        "unlimited": True if record["variant"] else None,
        "reorder": "constant",
        "pattern": None,
    }


def _is_comparable(record: _Record) -> bool:
    """Averages under load, and the version that wrote only 10 MiB, are not used as references."""
    return record["instances"] is None and record["variant"] != "old default chunk size"


def _case_identity(record: _Record) -> tuple[Scalar | None, ...]:
    return tuple(v for k, v in record.items() if k not in ("statistic", "value", "unit"))


def _lower_bound(statistics: dict[str, float]) -> float | None:
    """The lower bound relative to the maximum."""
    printed = statistics.get("median", statistics.get("min"))
    return None if printed is None else printed / statistics["max"] - 1


def _spread(statistics: dict[str, float]) -> float | None:
    deviation, mean = statistics.get("stddev"), statistics.get("mean")
    return None if deviation is None or not mean else deviation / mean


def _make_published_entry(
    table: published.PublishedTable, record: _Record, statistics: dict[str, float], date: dt.date
) -> Reference:
    printed = [name for name in ("median", "min") if name in statistics][:1]
    why = f"published maximum; lower bound: printed {printed[0]}" if printed else "published maximum; no spread printed"
    n = int(statistics.get("count", _REPETITIONS[table.source]))
    origin = [f"{published.source_key(table.source)}/{table.name}"]
    return Reference(
        check=get_benchmark(str(record["benchmark"])).check,
        partition=f"{record['system']}:{PARTITION}",
        stack=STACK,
        case=format_case_key(_case_parameters(record)),
        variable=performance_variable(str(record["operation"]), "bandwidth"),
        value=statistics["max"],
        low=_lower_bound(statistics),
        high=None,
        unit="MiB/s",
        provenance=Provenance(
            statistic="max", n=n, spread=_spread(statistics), date=date, origin=origin, by=BY, why=why
        ),
    )


def _entries_of_table(table: published.PublishedTable, date: dt.date) -> Iterable[Reference]:
    groups: dict[tuple[Scalar | None, ...], tuple[_Record, dict[str, float]]] = {}
    for record in published.table_measurements(table):
        _, statistics = groups.setdefault(_case_identity(record), (record, {}))
        statistics[str(record["statistic"])] = float(record["value"] or 0)
    for record, statistics in groups.values():
        if _is_comparable(record) and "max" in statistics and statistics["max"] > 0:
            yield _make_published_entry(table, record, statistics, date)


def published_references_by_system() -> dict[str, list[Reference]]:
    """References of all published systems; of several tables with one case, the first that prints a spread.

    Raises:
        InputError: a table is damaged.
    """
    found: dict[str, dict[tuple[str, ...], Reference]] = {}
    for table in (t for t in published.load_all_tables() if published.has_long_form(t) and _is_primary(t)):
        date = dt.date.fromisoformat(published.load_sources()[table.source].date or "")
        for entry in _entries_of_table(table, date):
            of_system = found.setdefault(entry.partition.removesuffix(f":{PARTITION}"), {})
            known = of_system.get(entry.key)
            if known is None or (known.low is None and entry.low):
                of_system[entry.key] = entry
    return {system: list(entries.values()) for system, entries in found.items()}


def published_references(system: str) -> list[Reference]:
    """References of one published system, or none.

    Raises:
        InputError: a table is damaged.
    """
    return published_references_by_system().get(system, [])


def _is_primary(table: published.PublishedTable) -> bool:
    """Table 21 of [lawrence2017] only repeats (and partly contradicts, see ERRATA.md) the others."""
    return (table.source, table.name) != ("000", "21")


def systems_with_published_references() -> list[str]:
    """Published systems that have measurements."""
    tables = [t for t in published.load_all_tables() if published.has_long_form(t) and _is_primary(t)]
    return sorted({str(record["system"]) for table in tables for record in published.table_measurements(table)})


def main() -> None:
    """Write all files again."""
    for system in systems_with_published_references():
        path = reference_file_path(system)
        path.write_text(update_reference_text(system, "", published_references(system)), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
