"""`make bench` (bench/all.py): which benchmarks it runs."""

from __future__ import annotations

from bench import all as bench

from tests.conftest import ROOT


def test_make_bench_leaves_out_what_needs_arguments() -> None:
    """It calls every other one without arguments, or with those of its short form."""
    sources = {name: (ROOT / "bench" / f"{name}.py").read_text() for name in bench.NAMES}
    assert {"compare", "detect", "panels"} <= {name.removeprefix("statistics/") for name in bench.NAMES}
    assert {name for name, text in sources.items() if "required=True" in text} <= {*bench.BY_HAND, *bench.SHORT}
    assert {*bench.BY_HAND, *bench.SHORT} <= {*bench.NAMES}
