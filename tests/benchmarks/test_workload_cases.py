"""Workloads as cases of benchio: plans of the shipped ones, and results of a record."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from iowatch.benchmarks import registry, workload_cases
from iowatch.benchmarks.benchio import BENCHIO
from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.workloads import read_description
from iowatch.core import InputError, settings
from tests.benchmarks.sealed import sealed

SHIPPED = {name: path for (name,), path in settings.list_files("workload").items()}
# Operations by the phases of each description; a phase named as what it does has no other name.
OPERATIONS = {
    "bd-cats": ("read",),
    "flash-io": ("checkpoint write", "plot-centre write", "plot-corner write", "restart read"),
    "hacc-io": ("write", "read"),
    "madbench2": ("s write", "w run", "c read"),
    "s3d-io": ("checkpoint write", "restart read"),
    "s3d-io-files": ("checkpoint write", "restart read"),
    "vpic-io": ("write",),
}
# Bytes of all files on 4 ranks, worked out from the sources that the descriptions name.
BYTES = {
    "s3d-io": ("npx=2+npy=2+nx=10+ny=10+nz=10", 5 * (4 * 1000 * (11 + 3 + 1 + 1) * 8 + 120)),
    "s3d-io-files": ("", 4 * 5 * 45360 * 16 * 8),
    "hacc-io": ("particles=1000", 4 * (1000 * 38 + 24 * 2**20)),
    "madbench2": ("pixels=1000+bins=3+block=4096", 4 * 3 * 489 * 4096),  # 1000 * 1000 * 8 / 4 bytes, rounded up
    "vpic-io": ("particles=1000", 4 * 8 * 1000 * 4),
}
# Of FLASH-IO on 4 ranks, which have 5, 6, 7 and 5 blocks of 2^3 cells: a checkpoint of 3 variables, plot files of 2.
FLASH_BYTES = 23 * (17 * 4 + 12 * 8) + 23 * 3 * 2**3 * 8 + 2 * 23 * (17 * 4 + 12 * 4) + 23 * 2 * (2**3 + 3**3) * 4


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_shipped_workloads_are_valid_and_planned(name: str) -> None:
    options = BENCHIO.read_options({"workload": name, "ranks": 4, "repeat": 2})
    assert read_description(SHIPPED[name])["name"] == name
    expected = {(one, "time") for one in (*OPERATIONS[name], "run")} | {("run", "bandwidth")}
    assert set(BENCHIO.expects(options)) == expected | {(one, "bandwidth") for one in OPERATIONS[name]}
    if name in BYTES:
        chosen, size = BYTES[name]
        assert BENCHIO.file_bytes(options.with_values({"set": chosen} if chosen else {})) == size


def test_every_shipped_workload_is_checked_above_and_has_its_own_name() -> None:
    assert set(SHIPPED) == set(OPERATIONS)
    assert not set(SHIPPED) & set(registry.benchmark_names())


def test_parameters_choose_library_and_phases() -> None:
    options = BENCHIO.read_options({"workload": "flash-io", "ranks": 4, "set": "api=pnetcdf+restarts=0"})
    assert BENCHIO.requires(options) == ("mpi", "libyaml", "pnetcdf")
    assert ("restart read", "bandwidth") not in BENCHIO.expects(options)
    words = BENCHIO.arguments(options, "/scratch")
    assert [f"--workload={SHIPPED['flash-io']}", "--set=api=pnetcdf", "--set=restarts=0"] == words[:3]


@pytest.mark.parametrize(
    ("api", "scalars"),
    [
        # h5_write_header_info of the FLASH I/O benchmark: time, version, parameters, four letters per variable; and the
        # names in the compound type.
        ("hdf5", 3 * (40 + 20 + 328) + 40 + 2 * 28 + (3 + 2 + 2) * 4),
        ("pnetcdf", 248 + 2 * 328),  # as attributes
    ],
)
def test_flash_has_data_sets_for_scalars_with_hdf5_only(api: str, scalars: int) -> None:
    chosen = f"api={api}+blocks=5+cells=2+unknowns=3+plotted=2+restarts=0"
    assert (
        BENCHIO.file_bytes(BENCHIO.read_options({"workload": "flash-io", "ranks": 4, "set": chosen}))
        == FLASH_BYTES + scalars
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workload": "flash-oi"}, "no workload 'flash-oi'. Did you mean 'flash-io'"),
        ({"workload": "sub/none.yaml"}, "no workload 'sub/none.yaml'"),
        ({"workload": "flash-io", "set": "block=3"}, "'block=3': expected NAME=VALUE of a parameter"),
        ({"workload": "flash-io", "set": "blocks"}, "'blocks': expected NAME=VALUE"),
        ({"workload": "flash-io", "local": "8x8x8"}, "option 'local' has no meaning for a workload"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        workload_cases.plan(BENCHIO.read_options(options))


def _repetition(seconds: float, size: int) -> dict[str, Any]:
    return {"seconds": seconds, "io_seconds": seconds, "bandwidth_bytes_per_second": size / seconds if size else None}


def _phase(name: str, operation: str, size: int, seconds: float, files: list[str]) -> dict[str, Any]:
    sizes = {"bytes_read": size if operation == "read" else 0, "bytes_written": size if operation == "write" else 0}
    repetitions = [_repetition(seconds, size)] * 2
    return {"name": name, "operation": operation, **sizes, "operations": 4, "files": files, "repetitions": repetitions}


MIB = 1 << 20
RECORD: dict[str, Any] = {
    "schema": "benchio-record/2",
    "program": {"name": "benchio", "version": "1.0.0"},
    "status": "ok",
    "options": {"repeat": 2, "verify": False, "hint": {}, "set": {"n": "2^4"}, "run-id": None},
    "failure": None,
    "hosts": [{"name": "n1", "ranks": 2, "first_rank": 0}],
    "node_of_rank": [0, 0],
    "geometry": {"ranks": 2, "nodes": 1, "instances": 1, "files": 3, "bytes_per_repetition": 48 * MIB},
    "workload": {
        "name": "solver",
        "sha256": "0123456789abcdef" * 4,
        "parameters": {"n": 16},
        "files": [
            {"name": "a", "api": "hdf5", "layout": "shared"},
            {"name": "b", "api": "posix", "layout": "per-process"},
        ],
        "needed_bytes": 64 * MIB,
    },
    "phases": [
        _phase("checkpoint", "write", 32 * MIB, 2.0, ["a"]),
        _phase("read", "read", 16 * MIB, 1.0, ["a", "b"]),
        _phase("clean", "metadata", 0, 0.5, ["b"]),
    ],
    "total": [_repetition(3.5, 48 * MIB)] * 2,
    "operations": [],
    "hints": {"source": None, "effective": {}},
    "cache": {"asked": "keep", "achieved": "keep"},
    "verification": {"asked": False, "bytes_checked": 0, "bytes_different": 0},
}


def parse(record: dict[str, Any]) -> Any:
    return registry.parse_output("benchio", sealed(record), RunContext(None, 0, 2))


def test_each_phase_is_an_operation() -> None:
    output = parse(RECORD)
    assert (output.status, output.reason) == ("ok", None)
    found = {(one.operation, one.metric): one for one in output.results}
    assert {key: one.samples[0] for key, one in found.items()} == {
        ("checkpoint write", "bandwidth"): 16.0,
        ("checkpoint write", "time"): 2.0,
        ("read", "bandwidth"): 16.0,
        ("read", "time"): 1.0,
        ("clean run", "time"): 0.5,
        ("run", "bandwidth"): pytest.approx(48 / 3.5),
        ("run", "time"): 3.5,
    }
    case = found["checkpoint write", "bandwidth"].full_case("benchio")
    assert (case.benchmark, case.parameters["set"], case.parameters["description"]) == ("solver", "n=2^4", "01234567")
    assert (case.parameters["api"], case.parameters["file"], case.parameters["total_bytes"]) == (
        "HDF5",
        "shared",
        32 * MIB,
    )
    assert "api" not in found["read", "time"].case  # two interfaces


def _short_of_a_repetition(record: dict[str, Any]) -> None:
    del record["phases"][0]["repetitions"][1:]


def _wrong_bandwidth(record: dict[str, Any]) -> None:
    record["phases"][1]["repetitions"][0] = {**record["phases"][1]["repetitions"][0], "bandwidth_bytes_per_second": 1.0}


def _unknown_file(record: dict[str, Any]) -> None:
    record["phases"][1]["files"] = ["c"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_short_of_a_repetition, "1 of 2 repetitions"),
        (_wrong_bandwidth, "read: repetitions contradict"),
        (_unknown_file, "the record is damaged: KeyError"),
    ],
)
def test_contradictions_are_reported(damage: Any, reason: str) -> None:
    record = copy.deepcopy(RECORD)
    damage(record)
    output = parse(record)
    assert output.status == "incomplete"
    assert reason in str(output.reason)


def test_a_path_is_relative_to_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site.yaml").write_text("format: 1\n")
    document = {
        "name": "own",
        "files": {"a": {"api": "posix", "bytes": "ranks * 10", "layout": "per-process", "count": 3}},
        "phases": [{"name": "make", "actions": [{"create": "a"}, {"close": "a"}]}],
    }
    (tmp_path / "own.yaml").write_text(json.dumps(document))
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    options = BENCHIO.read_options({"workload": "./own.yaml", "ranks": 2})
    assert (BENCHIO.file_bytes(options), BENCHIO.inodes(options)) == (2 * 3 * 20, 1 + 6)
    assert BENCHIO.expects(options) == (("make run", "time"), ("run", "time"))
