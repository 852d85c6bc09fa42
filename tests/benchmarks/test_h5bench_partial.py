"""A partial read of h5bench 1.6: half of each rank's particles; the output was made for this project."""

from __future__ import annotations

from pathlib import Path

from iowatch.benchmarks import registry
from iowatch.benchmarks.parsing import RunContext

OUTPUT = (Path(__file__).parent / "data" / "h5bench-1.6-partial-read.txt").read_text()


def test_partial_read_counts_the_bytes_read() -> None:
    output = registry.parse_output("h5bench", OUTPUT, RunContext(rc=0, ranks=2, fresh=True))
    assert (output.status, output.reason) == ("ok", None)
    case = output.results[0].case
    # 2 ranks x 2 steps x 32,768 particles of 32 bytes: the 4.000 MB printed.
    assert (case["particles"], case["local_size"], case["total_bytes"]) == (32768, "65536", 4 * 2**20)


def test_partial_read_with_inconsistent_size_is_incomplete() -> None:
    for damaged in (OUTPUT.replace("rank: 32768", "rank: 3276"), OUTPUT.replace("size: 4.000", "size: 4.00")):
        output = registry.parse_output("h5bench", damaged, RunContext(rc=0, ranks=2, fresh=True))
        assert output.status == "incomplete"
        assert output.results == ()
