"""Pages of workloads: files, phases, and the pictures of accesses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from iowatch.applications.workloads.page import FileView, WorkloadPage, _build_page
from iowatch.applications.workloads.report import workload_files
from iowatch.store import History
from tests.builders import build_site_build

DOCUMENT: dict[str, Any] = {
    "name": "two-files",
    "parameters": {"traced_ranks": 2},
    "files": {
        "field": {"api": "mpiio", "bytes": "ranks * 400"},
        "log": {"api": "posix", "layout": "per-process", "count": 3, "bytes": 10},
    },
    "phases": [
        {
            "name": "write",
            "actions": [
                {"create": "field"},
                {"write": "field", "offset": "rank * 100", "size": 100, "count": 4, "stride": 200, "collective": True},
                {"close": "field"},
            ],
        },
        {
            "name": "logs",
            "actions": [
                {"repeat": 3, "index": "i", "actions": [
                    {"create": "log", "number": "i"},
                    {"write": "log", "number": "i", "offset": 0, "size": 10},
                    {"close": "log", "number": "i"}]},
            ],
        },
    ],
}  # fmt: skip


Build = Callable[[Any, str], WorkloadPage]


@pytest.fixture
def build(history: History, tmp_path: Path) -> Build:
    """The page of a description with this file name, on a site without systems."""

    def build_from(document: Any, name: str) -> WorkloadPage:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return _build_page(build_site_build(history, tmp_path), "two-files", path)

    return build_from


def strokes(picture: str) -> list[tuple[float, float]]:
    """Left end and width of each access in the wide picture, in its units."""
    wide = picture.split("<svg")[1]
    return [(float(x), float(w)) for x, w in re.findall(r"M(\S+) \S+h(\d+\.\d)", wide)]


def test_each_access_is_drawn_at_its_offset(build: Build) -> None:
    """The file of 800 bytes is as wide as the picture between its margins: 536 units, 67 per access."""
    page = build(DOCUMENT, "two-files.yaml")
    assert page.fault is None
    assert page.files == [
        FileView("field", "mpiio", "shared", "800 B"),
        FileView("log", "posix", "per-process, 3 of them", "10 B"),
    ]
    write, logs = (phase.summary for phase in page.phases)
    ((field,), (log,)) = (phase.pictures for phase in page.phases)
    assert (write.operations["collective write"], write.written_bytes, logs.written_bytes) == (8, 800, 60)
    found = strokes(field.picture)
    assert {width for _, width in found} == {67.0}
    assert sorted(round((left - 58) / 67) for left, _ in found) == [*range(8)]
    assert field.caption == "field: 8 transfers of 2 ranks, all collective"
    assert len(strokes(log.picture)) == 6


def test_each_part_of_a_file_view_is_drawn(build: Build) -> None:
    """The accesses of above as one operation per rank."""
    parts = [[f"rank * 100 + {200 * i}", 100] for i in range(4)]
    write = {"write": "field", "list": parts, "view": True, "collective": True}
    phase = {"name": "write", "actions": [{"create": "field"}, write, {"close": "field"}]}
    page = build({**DOCUMENT, "phases": [phase]}, "two-files.yaml")
    assert page.fault is None
    (phase_view,) = page.phases
    summary, (field,) = phase_view.summary, phase_view.pictures
    assert (summary.operations["collective write"], summary.written_bytes) == (2, 800)
    assert sorted(round((left - 58) / 67) for left, width in strokes(field.picture) if width == 67) == [*range(8)]
    assert field.caption == "field: 2 transfers of 2 ranks, all collective"


def test_a_description_that_cannot_be_read_is_named(build: Build) -> None:
    field = {"api": "mpiio", "bytes": "nx"}
    unknown = build({**DOCUMENT, "files": {**DOCUMENT["files"], "field": field}}, "a.yaml")
    assert "unknown name 'nx'" in str(unknown.fault)
    assert "phases" in str(build({**DOCUMENT, "phases": []}, "b.yaml").fault)


def test_every_workload_has_a_page(franklin_site: Path) -> None:
    index = (franklin_site / "workloads.html").read_text()
    for name in workload_files():
        assert f'href="workload/{name}.html"' in index
        assert "<svg" in (franklin_site / "workload" / f"{name}.html").read_text()


def test_a_file_with_datasets_is_as_large_as_these(build: Build) -> None:
    """Two ranks: 2 * 1024 doubles, and five data sets of 512 floats."""
    datasets = {
        "density": {"type": "double", "shape": ["ranks", 1024]},
        "level": {"type": "float", "shape": [512], "count": 5},
    }
    write = {"write": "field", "dataset": "density", "start": ["rank", 0], "count": [1, 1024]}
    actions = [{"create": "field"}, write, {"close": "field"}]
    document = {
        **DOCUMENT,
        "files": {"field": {"api": "hdf5", "datasets": datasets}},
        "phases": [{"name": "write", "actions": actions}],
    }
    page = build(document, "two-files.yaml")
    assert page.fault is None
    assert page.files == [FileView("field", "hdf5", "shared", "26 KiB")]
