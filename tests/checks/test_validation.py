"""Outputs that show less than a suite requested, or something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iowatch.benchmarks import suites
from iowatch.benchmarks.benchio import hints_in_force
from iowatch.benchmarks.hints import parameter_of_info
from iowatch.benchmarks.registry import parse_output_file
from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks import validation
from iowatch.core import InputError, Output, Result, Scalar
from tests.builders import build_output
from tests.datasets import unpacked


def case_of(benchmark: str, suite: str = "smoke") -> SuiteCase:
    return next(case for case in suites.load_suite(suite) if case.benchmark == benchmark)


def complete_output(case: SuiteCase, **others: Scalar) -> Output:
    """The output of a complete run: every repetition of every expected result, with the requested parameters."""
    shown = {**case.tool.shows(case.options), **others}
    samples = tuple(float(n + 1) for n in range(case.tool.samples(case.options)))
    results = tuple(Result(operation, metric, "x", samples, shown) for operation, metric in case.expects)
    return build_output(*results, tool=case.benchmark)


TOOLS = ("benchio", "ior", "mdtest", "h5bench")


@pytest.mark.parametrize("benchmark", TOOLS)
def test_complete_output_is_unchanged(benchmark: str) -> None:
    case = case_of(benchmark)
    output = complete_output(case)
    assert validation.validate_output(case, output) is output
    assert validation.missing_case_results(case, output) == []


@pytest.mark.parametrize("benchmark", TOOLS)
def test_fewer_repetitions_are_a_failure(benchmark: str) -> None:
    case = case_of(benchmark)
    output = complete_output(case)
    first, *others = output.results
    short = replace(output, results=(replace(first, samples=first.samples[1:]), *others))
    requested = case.tool.samples(case.options)
    reason = f"{first.operation} {first.metric}: {requested - 1} of {requested} repetitions"
    assert (validation.validate_output(case, short).status, validation.validate_output(case, short).reason) == (
        "failed",
        reason,
    )


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [("benchio", "total_bytes"), ("ior", "total_bytes"), ("mdtest", "files"), ("h5bench", "total_bytes")],
)
def test_fewer_bytes_or_files_are_a_failure(benchmark: str, name: str) -> None:
    case = case_of(benchmark)
    requested = case.tool.shows(case.options)[name]
    validated = validation.validate_output(case, complete_output(case, **{name: 512}))
    assert (validated.status, validated.reason) == (
        "failed",
        f"{name} is 512 in the output, the suite asks for {requested}",
    )


def test_more_repetitions_are_a_failure() -> None:
    """For example two runs in one output."""
    case = case_of("benchio")
    output = complete_output(case)
    doubled = replace(output, results=tuple(replace(r, samples=2 * r.samples) for r in output.results))
    assert "write bandwidth: 20 of 10 repetitions" in (validation.validate_output(case, doubled).reason or "")


@pytest.mark.parametrize("benchmark", TOOLS)
def test_every_condition_that_is_not_met_is_a_failure(benchmark: str) -> None:
    """Unless the suite allows it: then the result is in the series of what was achieved."""
    for case in suites.cases_of_benchmark(benchmark):
        strict = replace(case, may_differ=())
        for name, asked in case.tool.shows(case.options).items():
            output = complete_output(case, **{name: "other"})
            reason = f"{name} is other in the output, the suite asks for {asked}"
            assert (validation.validate_output(strict, output).reason or "").count(reason) == 1
            assert validation.validate_output(replace(case, may_differ=(name,)), output) is output


@pytest.mark.parametrize(
    ("benchmark", "options", "names"),
    [
        ("benchio", "cache: drop, sync: each, access: independent", "cache sync collective nodes"),
        ("benchio", "api: mpiio, hints: cb=off, align: 1m", "hints alignment_bytes"),
        ("ior", "api: mpiio, hints: cb=off", "hints"),
        ("h5bench", "op: read, hints: cb=off", "hints cache"),
        ("ior", "op: read, reorder: false", "cache sync reorder"),
        ("ior", "direct: true, nodes: 2, ranks: 4", "cache nodes"),
        ("mdtest", "ranks: 4", "ranks nodes"),
        ("h5bench", "op: read, collective: false", "cache collective"),
    ],
)
def test_conditions_of_the_options_are_asked_for(benchmark: str, options: str, names: str, tmp_path: Path) -> None:
    (case,) = own_suite(tmp_path, benchmark, f"matrix: [{{{options}}}]")
    assert set(names.split()) <= case.tool.shows(case.options).keys()


def own_suite(tmp_path: Path, benchmark: str, text: str) -> list[SuiteCase]:
    path = tmp_path / benchmark / "suites" / "own.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"format: 1\nsummary: x\n{text}\n")
    return suites.read_suite_file(path)


def test_misspelt_condition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'may_differ': no case asks for 'cash'"):
        own_suite(tmp_path, "benchio", "may_differ: [cash]\nmatrix: [{cache: drop}]")


def test_ineffective_hints_are_not_part_of_the_case(tmp_path: Path) -> None:
    """Hints of a record that has those of the open file ("effective" in benchio's schema)."""
    (case,) = own_suite(tmp_path, "benchio", "matrix: [{ranks: 4, hints: 'cb_nodes=1,romio_ds_write=disable'}]")
    words = case.tool.arguments(case.options, "/x")
    assert [word for word in words if "hint" in word] == ["--hint=cb_nodes=1", "--hint=romio_ds_write=disable"]
    asked = {"romio_ds_write": "disable", "cb_nodes": "1"}
    for source, effective, found in (
        ("MPI_File_get_info", {**asked, "other": "1"}, "cb_nodes=1+romio_ds_write=disable"),
        ("MPI_File_get_info", {"cb_nodes": "2", "romio_ds_write": "disable"}, "romio_ds_write=disable"),
        (None, {}, "cb_nodes=1+romio_ds_write=disable"),
    ):
        record = {"options": {"hint": asked}, "hints": {"source": source, "effective": effective}}
        hints = parameter_of_info(hints_in_force(record))
        assert hints == found
        assert (hints == case.tool.shows(case.options)["hints"]) == (found.startswith("cb"))


def test_fsync_that_ior_resets_is_not_part_of_the_case() -> None:
    """IOR 3.3.0 has no fsync for HDF5 and prints so; the command line has `-e`."""
    run = unpacked("captured") / "ior/3.3.0/hdf5_shared_coll_np4"
    output = parse_output_file("ior", run / "stdout", stderr=run / "stderr", rc=0, ranks=4)
    assert "-e" in (run / "stdout").read_text().split("\n")[3].split()
    assert {result.case["sync"] for result in output.results} == {False}


def test_missing_verification_is_a_failure() -> None:
    case = next(c for c in suites.load_suite("smoke") if c.options.get("verify") and c.benchmark == "ior")
    output = complete_output(case)
    unverified = tuple(replace(r, case={k: v for k, v in r.case.items() if k != "verify"}) for r in output.results)
    validated = validation.validate_output(case, replace(output, results=unverified))
    assert validated.reason == "verify is missing from the output, the suite asks for True"


def test_reason_of_a_failed_run_is_kept() -> None:
    case = case_of("ior")
    failed = replace(complete_output(case), status="failed", reason="disk full", results=())
    assert validation.validate_output(case, failed, ["striping"]) is failed
    assert validation.missing_case_results(case, failed) == ["write bandwidth"]
    unstriped = validation.validate_output(case, complete_output(case), ["the striping could not be set: x"])
    assert unstriped.status == "failed"
