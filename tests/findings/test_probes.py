"""A finding states whether the raw disk, the memory or the messages changed, too."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from iowatch.benchmarks.benchmark import API_LAYERS
from iowatch.demo.scenarios import Scenario
from iowatch.findings import finding_document, finding_from_document
from iowatch.findings.layers import find_moved_layer
from iowatch.output.text.cards import card_facts
from iowatch.output.text.findings import finding_line, finding_lines
from iowatch.statistics.layers import LayerSeries
from tests.findings.conftest import STEP, RecordAndUpdate, level, scenario_of

END = date(2025, 4, 1)


def sessions(disk: float, memory: float = 1.0) -> Scenario:
    """All files lose half of their bandwidth on STEP; fio and hpcc change by these factors."""
    probes = [
        *(("fio", {"operation": op, "api": "raw", "file": "serial"}, disk) for op in ("write", "read")),
        ("hpcc", {"operation": "triad", "ranks": 2}, memory),
        *(("hpcc", {"operation": op, "api": "MPI", "ranks": 2}, 1.0) for op in ("ping-pong", "random-ring")),
    ]
    steps = {factor: level("X", "write", (STEP, factor)) for _, _, factor in probes}
    return scenario_of(
        *(level(api, op, (STEP, 0.5)) for api in ("POSIX", "MPIIO", "HDF5") for op in ("write", "read")),
        *(
            replace(steps[factor], run=f"{tool}-{case['operation']}", benchmark=tool, parameters=case)
            for tool, case, factor in probes
        ),
    )


def test_unchanged_probes_exclude_disk_memory_and_messages(record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(sessions(1.0), END, None)
    assert {member.parameters["benchmark"] for member in finding.members} == {"ior"}
    assert [(one.what, one.changed, one.total) for one in finding.probes] == [
        ("raw disk (fio)", 0, 2),
        ("memory (hpcc)", 0, 1),
        ("messages (hpcc)", 0, 2),
    ]
    facts = dict(card_facts(finding))
    assert facts["Unaffected"].endswith("; raw disk (fio), memory (hpcc), messages (hpcc) unchanged")
    assert "fio" not in facts["Probable cause"]
    stated = {
        "cannot be distinguished between",
        "file system",
        "metadata server",
        "a series of mdtest would distinguish them",
    }
    assert all(words in facts["Layer"] for words in stated)
    assert finding_from_document(finding_document(finding)) == finding


def test_slow_disk_is_stated_where_files_and_probe_slow_down(record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(sessions(0.5), END, None)
    disk, memory, _ = finding.probes
    assert (disk.changed, disk.gain, memory.changed) == (2, pytest.approx(0.5, rel=0.1), 0)
    facts = dict(card_facts(finding))
    assert facts["Unaffected"].endswith("; memory (hpcc), messages (hpcc) unchanged")
    assert "raw disk (fio) −5" in facts["Probable cause"] or "raw disk (fio) −4" in facts["Probable cause"]
    assert finding.layer is not None
    assert (finding.layer.named, "network" in finding.layer.unmoved) == ("disk", True)
    assert "lowest layer that moved: disk" in finding_line(finding)
    lines = [line for line in finding_lines(finding) if "(fio)" in line]
    assert [line.startswith("Probes") and line.endswith(", too") for line in lines] == [True]


def test_changed_memory_is_stated(record_and_update: RecordAndUpdate) -> None:
    (finding,) = record_and_update(sessions(1.0, memory=0.5), END, None)
    assert [one.what for one in finding.probes if one.changed] == ["memory (hpcc)"]


def test_history_without_probes_states_nothing(record_and_update: RecordAndUpdate) -> None:
    scenario = sessions(1.0)
    (finding,) = record_and_update(
        replace(scenario, series=tuple(one for one in scenario.series if one.benchmark == "ior")), END, None
    )
    assert finding.probes == ()
    assert not any("Probes" in line for line in finding_lines(finding))
    # POSIX and all above it moved: without probes what lies below may have moved as well.
    assert finding.layer is not None
    assert finding.layer.named is None
    assert "raw disk (fio)" in finding.layer.would_tell


def test_many_series_give_the_same_layer_as_few() -> None:
    """Only some of those with one path and direction are used, so that the time does not grow with their number."""
    few = [
        LayerSeries(tuple(one.name for one in path), gain, 0.05, 0.003, 4.0, "write")
        for api, path in API_LAYERS.items()
        for gain in (-0.7 if api in ("HDF5", "NETCDF4") else 0.0,)
    ]
    found, more = find_moved_layer(few * 3), find_moved_layer(few * 300)
    assert found is not None
    assert more is not None
    assert found.named == more.named == "HDF5"
