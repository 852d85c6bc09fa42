"""Suites: from a matrix in YAML to named cases; invalid files are reported with file and field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iowatch.benchmarks import benchio, ior, suites
from iowatch.benchmarks.benchmark import API_LAYERS, LAYERS
from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import InputError, UsageError
from tests.conftest import ROOT

ALL = sorted((ROOT / "benchmarks").glob("*/suites/*.yaml"))


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_suites_of_the_repository_are_valid(path: Path) -> None:
    cases = suites.read_suite_file(path)
    assert cases
    for case in cases:
        assert case.expects
        assert case.tool.file_bytes(case.options) >= 0
        for operation, _ in case.expects:  # so that a finding can name the layer that moved (docs/layers.md)
            assert case.tool.layers({"operation": operation, **case.tool.shows(case.options)}), operation


def test_every_interface_has_layers_and_every_layer_a_control() -> None:
    interfaces = {*benchio._APIS.values(), *ior._CASE_API.values()}
    assert interfaces <= API_LAYERS.keys()
    metadata = BENCHMARKS["mdtest"].layers({})
    assert {path[-1] for path in (*API_LAYERS.values(), metadata)} == {*LAYERS}
    for path in (*API_LAYERS.values(), metadata):
        assert len({*path}) == len(path)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "benchio" / "suites" / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


GOOD = """\
format: 1
summary: x
defaults: {op: both, ranks: 4}
matrix:
  - {api: [posix, mpiio], local: [8x8x8, 16x16x16]}
"""


def test_matrix_expands_to_all_combinations_with_distinct_names(tmp_path: Path) -> None:
    cases = suites.read_suite_file(write(tmp_path, GOOD))
    assert [case.name for case in cases] == [
        "api=posix,local=8x8x8",
        "api=posix,local=16x16x16",
        "api=mpiio,local=8x8x8",
        "api=mpiio,local=16x16x16",
    ]
    assert cases[0].expects == (("write", "bandwidth"), ("read", "bandwidth"))
    assert cases[1].tool.file_bytes(cases[1].options) == 8 * 16**3 * 4
    assert cases[2].requires == ("mpi",)


NODES = """\
format: 1
summary: x
defaults: {op: both, local: 8x8x8, ranks-per-node: 2}
matrix:
  - {api: posix, nodes: [1, 2, all]}
"""


def test_ranks_per_node_are_multiplied_by_the_nodes(tmp_path: Path) -> None:
    """All nodes are those of a system; before one is known the case has one node."""
    cases = suites.read_suite_file(write(tmp_path, NODES))
    assert [(case.name, case.nodes, case.ranks) for case in cases] == [
        ("nodes=1", 1, 2),
        ("nodes=2", 2, 4),
        ("nodes=all", 1, 2),
    ]
    assert [case.is_on_all_nodes for case in cases] == [False, False, True]
    resolved = suites.on_all_nodes(cases[2], 7)
    assert (resolved.name, resolved.nodes, resolved.ranks, resolved.is_on_all_nodes) == ("nodes=7", 7, 14, False)


def test_name_of_a_case_on_all_nodes_has_their_number(tmp_path: Path) -> None:
    """Also where no other case is in the suite: partitions differ."""
    (case,) = suites.read_suite_file(write(tmp_path, NODES.replace("[1, 2, all]", "all")))
    assert suites.on_all_nodes(case, 3).name == "nodes=3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NODES.replace("node: 2", "node: 0"), ":3:.*'ranks-per-node': expected a whole number of at least 1"),
        (NODES.replace("node: 2", "node: true"), ":3:.*'ranks-per-node': expected a whole number of at least 1"),
        (NODES.replace("posix,", "posix, ranks: 4,"), "'ranks-per-node' and 'ranks': expected one of them"),
        (NODES.replace("[1, 2, all]", "al"), "option 'nodes' of benchio"),
        (GOOD.replace("api:", "apj:"), "no option 'apj'"),
        (GOOD.replace("format: 1", "format: 2"), "format"),
        (GOOD + "surprise: 1\n", "surprise"),
        (GOOD.replace("[posix, mpiio]", "[posix, posix]"), "defined twice"),
        ("format: 1\nsummary: x\nmatrix: []\n", "matrix"),
        ("{", "not YAML"),
        ("", "Input should be a valid dictionary"),
    ],
)
def test_invalid_suite_is_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        suites.read_suite_file(write(tmp_path, text))


@pytest.mark.parametrize(
    ("tool", "entry", "message"),
    [
        (
            "ior",
            "{api: mpio}",
            "option 'api' of ior (interface (-a)): expected posix, mpiio, hdf5 or ncmpi (found 'mpio'). "
            "Did you mean 'mpiio'?",
        ),
        ("ior", "{op: append}", "expected write, read or both (found 'append')"),
        ("ior", "{transfer: 1.3x}", "'1.3x' is not a size"),
        ("ior", "{transfer: 0}", "expected a size such as 4096, 64k or 1m of at least 1 (found '0')"),
        ("ior", "{verify: 1}", "expected true or false (found '1')"),
        ("ior", "{segments: true}", "expected a whole number of at least 1 (found 'true')"),
        ("h5bench", "{dims: 1024*1024}", "option 'dims' of h5bench (particles per rank and dimension): expected "),
        ("h5bench", "{op: read, pattern: whole}", "option 'pattern' of h5bench (pattern in the file: "),
        ("h5bench", "{op: read, pattern: interleaved}", "option 'pattern' of h5bench: interleaved is for writes"),
        ("h5bench", "{collective: false, op: append}", "option 'collective' of h5bench: h5bench compresses and"),
        (
            "benchio",
            "{local: 8x8x}",
            "option 'local' of benchio (elements per rank, NXxNYxNZ (weak scaling)): expected ",
        ),
        ("benchio", "{local: 8x8}", "(3 of them) of at least 1 (found '8x8')"),
        ("benchio", "{sync: 1}", "expected true, false, end, each or none (found '1')"),
        ("benchio", "{workload: flash-oi}", "no workload 'flash-oi'. Did you mean 'flash-io'?"),
        (
            "mdtest",
            "{files: many}",
            "option 'files' of mdtest (files, or directories, in all, over all ranks): expected",
        ),
        ("mdtest", "{ranks: 0}", "option 'ranks' of mdtest (MPI processes): expected a whole number of at least 1"),
        ("benchio", "{nodes: 0}", "option 'nodes' of benchio (nodes): expected a whole number of at least 1"),
    ],
)
def test_unusable_value_is_reported_with_its_position(tmp_path: Path, tool: str, entry: str, message: str) -> None:
    path = tmp_path / tool / "suites" / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"format: 1\nsummary: x\nmatrix:\n  - {entry}\n")
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        suites.read_suite_file(path)
    assert raised.value.message.startswith(f"{path}:4:")


def test_every_wrong_option_is_reported_once_with_its_position(tmp_path: Path) -> None:
    text = "format: 1\nsummary: x\ndefaults: {repaet: 3}\nmatrix:\n  - {api: [mpiio, posix], op: writes}\n"
    with pytest.raises(InputError) as raised:
        suites.read_suite_file(write(tmp_path, text))
    first, second = raised.value.message.splitlines()
    assert "mine.yaml:3:20: benchio has no option 'repaet'. Did you mean 'repeat'?" in first
    assert "mine.yaml:5:31: option 'op' of benchio (what is timed): expected write, read or both" in second


def test_wrong_combination_of_a_default_is_reported_at_its_entry(tmp_path: Path) -> None:
    """The option that does not fit is not in the file; the position is that of the entry."""
    path = tmp_path / "fio" / "suites" / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("format: 1\nsummary: x\nmatrix:\n  - {total: 3000}\n")
    with pytest.raises(
        InputError, match="option 'transfer' of fio: 3000 bytes are not a multiple of 1048576"
    ) as raised:
        suites.read_suite_file(path)
    assert raised.value.message.startswith(f"{path}:4:")


def test_unknown_suite_error_suggests_a_known_suite() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'smoke'\?"):
        suites.load_suite("smok")


def test_fault_in_one_suite_file_leaves_the_other_suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = write(tmp_path, "format: 1\n")
    good = damaged.with_name("tiny.yaml")
    good.write_text(GOOD)
    monkeypatch.setattr(
        suites.settings, "list_files", lambda _kind: {("benchio", "mine"): damaged, ("benchio", "tiny+more"): good}
    )
    assert [case.suite for case in suites.cases_of_benchmark("benchio", "tiny")] == ["tiny"] * 4
    with pytest.raises(InputError, match=r"mine\.yaml"):
        suites.cases_of_benchmark("benchio")


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("single", "mdtest"),
        ("single,file_system=work", "mdtest:file_system=work"),
        ("directories=single", "mdtest:directories=single"),
        ("singles", "mdtest:singles"),
    ],
)
def test_only_case_of_a_suite_has_the_name_of_its_benchmark(case: str, name: str) -> None:
    """`mdtest:single` would look like the value `single` of its option `directories`."""
    assert suites.run_name("mdtest", case) == name
    # Runs of earlier releases.
    assert suites.current_run_name(f"mdtest:{case}") == name
    assert suites.current_run_name(f"mdtest:{case}#retest") == f"{name}#retest"
    assert suites.current_run_name(name) == name
