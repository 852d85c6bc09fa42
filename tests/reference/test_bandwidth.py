"""Reference bandwidths: format, lookup, bounds, rewriting, and those of the published machines."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iowatch.core import InputError, UsageError
from iowatch.reference import bandwidth, policy, propose, published
from iowatch.reference.bandwidth import Provenance, Reference, References
from iowatch.site.file_system import FileSystem
from tests.conftest import ROOT
from tests.reference import seeded

BY = Provenance(statistic="median of maxima", n=9, spread=0.03, date=dt.date(2026, 1, 1), origin=["a", "b"],
                by="me", why="first")  # fmt: skip
ENTRY = Reference("BenchioCheck", "here:default", "stack-a", "api=MPIIO,ranks=4", "write_bandwidth", 100.0,
              -0.1, 0.2, "MiB/s", BY)  # fmt: skip
Written = Callable[[str, str], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A file with one entry in which a text is replaced."""

    def write(old: str = "", new: str = "") -> Path:
        text = propose.update_reference_text("here", "", [ENTRY])
        assert old in text
        path = tmp_path / "here.yaml"
        path.write_text(text.replace(old, new, 1) if old else text)
        return path

    return write


def test_written_entry_is_read_back(written: Written) -> None:
    (entry,) = bandwidth.load_references("here", written("", "")).entries
    assert replace(entry, where="") == ENTRY
    assert (entry.lower, entry.upper) == (90, 120)
    assert (entry.operation, entry.metric.name) == ("write", "bandwidth")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("write_bandwidth: [100", "write_bandwith: [100", r":8:9: 'write_bandwith' is not <operation>_"),
        ("[100, -0.1", "[0, -0.1", r":8:26: write_bandwidth: the value must be a positive number, found 0"),
        ("[100, -0.1", "['100', -0.1", r":8:26: write_bandwidth: the value must be a positive number"),
        ("[100, -0.1", "[100, 0.1", r"the lower bound is relative, from -1 to 0 or null, found 0.1"),
        ("0.2, MiB/s]", "-0.2, MiB/s]", r"the upper bound is relative"),
        ("0.2, MiB/s]", "0.2, MB/s]", r"the unit is MiB/s, found 'MB/s'"),
        ("0.2, MiB/s]", "0.2]", r"expected \[value, low, high, unit\]"),
        ("here:default", "there:default", r":5:3: partition 'there:default': expected 'here:<partition>'"),
        ("api=MPIIO,ranks=4", "ranks=4,api=MPIIO", r":7:7: case .* is not sorted"),
        ("api=MPIIO,ranks=4", "mpiio at 4", r":7:7: case 'mpiio at 4': expected name=value"),
        ("$index: [$partition", "$index: [$system", r":4:3: BenchioCheck.\$index must be"),
        ("n: 9", "nights: 9", r":14:\d+: field '.*nights': unknown field"),
        ("n: 9", "n: many", r":14:\d+: field 'provenance\..*\.n': .*found 'many'"),
        ("write_bandwidth: {", "write_bandwidth:  # {", r":14:\d+: field 'provenance\..*valid dictionary"),
        ("statistic: median of maxima", "statistic: best", r"statistic': Input should be 'max'"),
        ("api=MPIIO,ranks=4:\n        write_bandwidth: [", "api=MPIIO: [", r":7:7: expected 'variable: …' below"),
    ],
)  # fmt: skip
def test_fault_is_reported_with_file_line_and_column(written: Written, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        bandwidth.load_references("here", written(old, new))
    assert "here.yaml:" in str(error.value)


def test_value_without_provenance_and_the_reverse_are_reported(tmp_path: Path) -> None:
    text = propose.update_reference_text("here", "", [ENTRY])
    head, _ = text.split("provenance:")
    path = tmp_path / "here.yaml"
    path.write_text(head)
    with pytest.raises(InputError, match=r":8:9: no provenance for BenchioCheck/here:default"):
        bandwidth.load_references("here", path)
    path.write_text(text.replace("read_bandwidth", "").replace("write_bandwidth: {", "read_bandwidth: {"))
    with pytest.raises(InputError, match=r"provenance of nothing: there is no .*read_bandwidth"):
        bandwidth.load_references("here", path)


def test_missing_file_has_no_entries(tmp_path: Path) -> None:
    references = bandwidth.load_references("here", tmp_path / "here.yaml")
    assert (references.entries, references.exists) == ((), False)


def _here(*entries: Reference) -> References:
    return References("here", Path("here.yaml"), entries)


def test_most_specific_matching_entry_is_found() -> None:
    wide = replace(ENTRY, case="api=MPIIO")
    references = _here(wide, ENTRY)
    case = {"api": "MPIIO", "ranks": 4, "collective": True, "operation": "write"}
    assert references.find("default", "stack-a", case, "write", "bandwidth") == ENTRY
    assert references.find("here:default", "stack-a", {**case, "ranks": 8}, "write", "bandwidth") == wide
    assert references.find("default", "stack-b", case, "write", "bandwidth") is None
    assert references.find("default", "stack-a", case, "read", "bandwidth") is None
    assert references.find("default", "stack-a", {"ranks": 4}, "write", "bandwidth") is None


def test_bounds_are_in_the_unit_of_the_value() -> None:
    """As ReFrame reads [100, -0.1, 0.2]; None without a bound."""
    assert (ENTRY.lower, ENTRY.upper) == (pytest.approx(90), pytest.approx(120))
    open_ended = replace(ENTRY, low=None, high=None)
    assert (open_ended.lower, open_ended.upper) == (None, None)


@given(
    st.dictionaries(
        st.sampled_from(["api", "ranks", "chunk", "collective", "alignment_bytes"]),
        st.one_of(st.booleans(), st.integers(-1, 2**40), st.sampled_from(["MPIIO", "128x128x128", "a-b.c"])),
        min_size=1,
    )
)
def test_case_text_is_independent_of_order_and_kind_of_number(parameters: dict[str, bool | int | str]) -> None:
    text = bandwidth.format_case_key(parameters)
    floats = {k: float(v) if type(v) is int else v for k, v in reversed(parameters.items())}
    assert text == bandwidth.format_case_key({**floats, "operation": "write", "absent": None})
    assert text == ",".join(sorted(text.split(",")))


def test_longest_matching_metric_name_is_used() -> None:
    variable = bandwidth.split_variable("write_raw_bandwidth")
    assert (variable.operation, variable.metric.name) == ("write", "raw_bandwidth")
    with pytest.raises(UsageError, match="Did you mean 'bandwidth'"):
        bandwidth.split_variable("write_bandwith")


def test_rewrite_keeps_comments_and_order(written: Written) -> None:
    path = written("", "")
    old = path.read_text().replace("    stack-a:\n", "    stack-a:  # the one we trust\n", 1)
    entries = [replace(ENTRY, value=110.0), replace(ENTRY, variable="read_bandwidth")]
    proposals = tuple(propose.ReferenceProposal("changed", None, entry) for entry in entries)
    change = propose.ReferenceFileChange("here", path, old, proposals)
    new, diff = change.new, change.diff
    assert "# the one we trust" in new
    assert new.index("write_bandwidth") < new.index("read_bandwidth")
    assert (
        "-        write_bandwidth: [100, -0.1, 0.2, MiB/s]\n+        write_bandwidth: [110, -0.1, 0.2, MiB/s]" in diff
    )
    path.write_text(new)
    assert [e.value for e in bandwidth.load_references("here", path).entries] == [110, 100]


def test_rewrite_without_entries_changes_nothing(written: Written) -> None:
    text = written("", "").read_text()
    assert propose.update_reference_text("here", text, []) == text


@pytest.mark.slow
@pytest.mark.parametrize("system", seeded.systems_with_published_references())
def test_committed_references_of_published_machines_follow_from_the_tables(system: str) -> None:
    committed = bandwidth.load_references(system)
    assert committed.exists
    made = propose.update_reference_text(system, "", seeded.published_references(system))
    assert committed.path.read_text() == made, "`python -m tests.reference.seeded` writes it again"


def test_published_reference_has_maximum_and_printed_bound() -> None:
    """[lawrence2017], Table 2, 3072 writers: maximum 15898, median 7645, 40 runs."""
    case = {"api": "MPIIO", "file": "shared", "pattern": "block3d", "collective": True, "ranks": 3072,
            "nodes": 128, "local_size": "128x128x128", "stripe_count": -1, "stripe_bytes": 2**20,
            "file_system": "fs3"}  # fmt: skip
    entry = bandwidth.load_references("archer").find("default", "published", case, "write", "bandwidth")
    assert entry is not None
    assert (entry.value, entry.provenance.n, entry.provenance.origin) == (15898, 40, ["lawrence2017/2"])
    assert entry.lower == pytest.approx(7645, abs=1)


def test_published_reference_of_ior_has_blocks_and_segments() -> None:
    """[bartz2014], Table A.5 with Table 4.5: POSIX, 1-OST, 20k segments of 1 MiB; 1075.61, minimum 1071.89."""
    case = {"api": "POSIX", "file": "shared", "collective": False, "ranks": 10, "nodes": 10, "segments": 20480,
            "block_bytes": 2**20, "transfer_bytes": 2**20, "stripe_count": -1, "stripe_bytes": 2**20,
            "layout": "contiguous", "reorder": "constant"}  # fmt: skip
    entry = bandwidth.load_references("hamburg").find("default", "published", case, "write", "bandwidth")
    assert entry is not None
    assert entry.value == 1075.61
    assert entry.lower == pytest.approx(1071.89, abs=0.01)


def test_every_published_maximum_of_cosma6_is_a_reference() -> None:
    """COSMA6, Tables 16 and 17: 67 printed cells, 67 entries."""
    cells = sum(
        cell is not None
        for t in ("16", "17")
        for row in published.load_published_table("lawrence2017", t).rows
        for cell in row[2:]
    )
    assert len(bandwidth.load_references("cosma6").entries) == cells == 67


CASE = {"api": "MPIIO", "ranks": 4, "file": "shared"}
EXISTING = References("here", Path(__file__), (ENTRY,))


def _resolved(
    references: References, which: policy.MissingReferencePolicy, **changed: object
) -> policy.ResolvedReferences:
    arguments = {"check": "BenchioCheck", "partition": "here:default", "stack": "stack-a", "case": CASE,
                 "variables": ["write_bandwidth"], **changed}  # fmt: skip
    return policy.resolve_references(references, policy=which, **arguments)  # type: ignore[arg-type]


def test_check_receives_the_key_that_reframe_uses() -> None:
    found = _resolved(_here(ENTRY), "required")
    assert (found.key, found.problems) == (ENTRY.case, ())
    assert found.entries == {"write_bandwidth": ENTRY}


@pytest.mark.parametrize(
    ("references", "changed", "message"),
    [
        (_here(), {}, "this file does not exist"),
        (EXISTING, {"stack": "stack-b"}, "no reference for BenchioCheck on stack-b"),
        (EXISTING, {"variables": ["read_bandwidth"]}, "read_bandwidth"),
    ],
)
def test_required_reference_that_is_missing_is_a_problem(
    references: References, changed: dict[str, object], message: str
) -> None:
    assert message in " ".join(_resolved(references, "required", **changed).problems)
    assert _resolved(references, "optional", **changed).problems == ()
    assert _resolved(references, "none", **changed) == policy.ResolvedReferences(None, {})


def test_unknown_check_in_the_file_is_a_problem_even_where_references_are_optional() -> None:
    references = _here(replace(ENTRY, check="BenchoCheck"))
    (problem,) = _resolved(references, "optional", known_checks=["BenchioCheck", "IorCheck"]).problems
    assert "no check is called 'BenchoCheck'" in problem
    assert "Did you mean 'BenchioCheck'" in problem


def test_every_benchmark_names_its_check_class() -> None:
    """The classes in reframe_tests are read, not imported: they need ReFrame."""
    sources = [path.read_text() for path in (ROOT / "reframe_tests").glob("*.py")]
    classes = [re.search(r"^@(?:rfm\.)?simple_test\w*\nclass (\w+)", source, re.M) for source in sources]
    assert sorted(policy.check_class_names()) == sorted(found[1] for found in classes if found)


def _peak(mib_per_s: float, operation: str = "both") -> dict[str, object]:
    return {"value": mib_per_s, "unit": "MiB/s", "operation": operation, "source": "a test"}


def _file_system(name: str, *peaks: dict[str, object]) -> FileSystem:
    fields = {"name": name, "technology": "Lustre", "source": "a test", "peaks": list(peaks)}
    return FileSystem.model_validate(fields)


def test_peak_depends_on_operation_and_file_system() -> None:
    scratch, home = _file_system("scratch", _peak(1000), _peak(800, "read")), _file_system("home", _peak(100))
    assert published.peak_mib_per_s([scratch], "write") == 1000
    assert published.peak_mib_per_s([scratch], "read") == 800
    assert published.peak_mib_per_s([scratch, home], "write") is None
    assert published.peak_mib_per_s([scratch, home], "write", "home") == 100
    assert published.peak_mib_per_s([_file_system("tmp")], "write") is None
    assert published.percent_of_peak(530, 1000) == 53
    assert published.percent_of_peak(530, None) is None


def test_only_bandwidths_of_all_ranks_have_a_peak() -> None:
    """h5bench reports raw and observed bandwidths; bandwidths of one rank are not compared with a peak."""
    assert all(published.has_peak(name) for name in ("bandwidth", "raw_bandwidth", "observed_bandwidth"))
    assert not any(published.has_peak(name) for name in ("rank_bandwidth", "rate", "time"))


def test_example_in_the_documentation_is_valid(tmp_path: Path) -> None:
    manual = (Path(__file__).resolve().parents[2] / "docs" / "references.md").read_text(encoding="utf-8")
    path = tmp_path / "local.yaml"
    path.write_text(manual.split("```yaml\n")[1].split("```")[0])
    (entry,) = bandwidth.load_references("local", path).entries
    assert (entry.lower, entry.upper, entry.provenance.by) == (1700, 2400, "Ada")


@pytest.mark.parametrize("which", ["required", "optional", "none"])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"check": "BenchoCheck"}, "no check is called 'BenchoCheck'. Did you mean 'BenchioCheck'"),
        ({"variable": "wirte_bandwidth"}, "there is no operation 'wirte'.*Did you mean 'write'"),
        ({"case": "aip=MPIIO,ranks=4"}, "no case has a parameter 'aip'.*Did you mean 'api'"),
    ],
)
def test_unknown_name_is_a_problem_with_any_policy(
    which: policy.MissingReferencePolicy, changed: dict[str, str], message: str
) -> None:
    references = _here(ENTRY, replace(ENTRY, **changed))  # type: ignore[arg-type]
    (problem,) = _resolved(references, which, known_checks=["BenchioCheck", "IorCheck"]).problems
    assert re.search(message, problem)


def test_unmeasured_metric_is_a_problem_unless_policy_is_none() -> None:
    references = _here(replace(ENTRY, variable="write_rate", unit="1/s"))
    (problem,) = _resolved(references, "optional").problems
    assert "BenchioCheck has no write_rate for this case. Did you mean" in problem
    assert _resolved(references, "optional", variables=["read_bandwidth"]).problems == ()


def test_unlisted_parameter_is_accepted_if_the_run_has_it() -> None:
    references = _here(replace(ENTRY, case="api=MPIIO,colour=red"))
    assert _resolved(references, "optional", case={**CASE, "colour": "red"}).problems == ()
    assert len(_resolved(references, "optional").problems) == 1


def test_known_parameters_are_documented() -> None:
    manual = (Path(__file__).resolve().parents[2] / "docs" / "case-parameters.md").read_text(encoding="utf-8")
    named = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in manual.splitlines() if row.startswith("| `")]
    assert {name for row in named for name in row} - {"operation"} == set(bandwidth.KNOWN_PARAMETERS)


@pytest.mark.parametrize(
    ("variable", "unit", "expected"), [("write_bandwidth", "MiB/s", 130.0), ("write_time", "s", 70.0)]
)
def test_best_sample_depends_on_the_direction_of_the_metric(variable: str, unit: str, expected: float) -> None:
    entry = replace(ENTRY, variable=variable, unit=unit)
    assert entry.metric.best([100.0, 130.0, 70.0]) == expected


@pytest.mark.parametrize("value", [90.0, 100.0, 120.0])
def test_value_on_or_between_the_bounds_is_accepted(value: float) -> None:
    assert bandwidth.outside_bounds_reason(ENTRY, value) is None


@pytest.mark.parametrize(("value", "side"), [(89.9, "low"), (120.1, "high")])
def test_value_beyond_a_bound_is_reported_with_the_bounds(value: float, side: str) -> None:
    text = bandwidth.outside_bounds_reason(ENTRY, value)
    assert text == (f"write_bandwidth is {side}: {value}, accepted 90 to 120 MiB/s (reference 100 of 2026-01-01)")


def test_reference_without_bounds_accepts_every_value() -> None:
    open_ended = replace(ENTRY, low=None, high=None)
    assert [bandwidth.outside_bounds_reason(open_ended, value) for value in (1e-3, 1e9)] == [None, None]
    assert bandwidth.outside_bounds_reason(replace(ENTRY, high=None), 1e9) is None
    assert bandwidth.outside_bounds_reason(replace(ENTRY, low=None), 1e-3) is None
