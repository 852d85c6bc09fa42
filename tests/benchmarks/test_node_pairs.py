"""node_pairs: captured outputs with and without a slow link (tests/data/PROVENANCE.md), and the slow nodes."""

from __future__ import annotations

import shutil
import subprocess
import zlib
from itertools import combinations
from pathlib import Path

import pytest

from iowatch.benchmarks.node_pairs import NODE_PAIRS
from iowatch.benchmarks.parsing import RunContext
from iowatch.benchmarks.registry import parse_output
from iowatch.core import InputError, NodeWithSlowMessages, Output, PairMessages, assess_node_pairs
from iowatch.output.text.sessions import format_slow_nodes
from iowatch.store import RunFacts
from tests.conftest import ROOT

DATA = Path(__file__).parent / "data"
SOUND = (DATA / "node_pairs-1-four.txt").read_text()
SLOW = (DATA / "node_pairs-1-slow-link.txt").read_text()
MIB = 2**20


def parse(text: str, ranks: int | None = 4) -> Output:
    return parse_output("node_pairs", text, RunContext(ranks=ranks))


def test_median_and_slowest_pair_of_each_repetition() -> None:
    """Read off the lines of the first repetition: of six pairs the mean of the third and the fourth."""
    output = parse(SOUND)
    assert (output.status, output.version, output.facts["hosts"]) == ("ok", "1", ["n1", "n2", "n3", "n4"])
    first = {(result.operation, result.metric): result.samples[0] for result in output.results}
    assert first == {
        ("median-pair", "latency"): pytest.approx((3.0647e-05 + 3.4619e-05) / 2),
        ("slowest-pair", "latency"): 0.00044898,
        ("median-pair", "network_bandwidth"): pytest.approx((3.05107e08 + 3.25888e08) / 2 / MIB),
        ("slowest-pair", "network_bandwidth"): pytest.approx(2.60348e08 / MIB),
    }
    assert all(len(result.samples) == 3 for result in output.results)
    sizes = {result.metric: result.case["transfer_bytes"] for result in output.results}
    assert sizes == {"latency": 8, "network_bandwidth": 1048576}


def test_only_the_node_with_the_slow_link_is_named() -> None:
    """16 Mbit/s are 1.9 MiB/s; the best of n3's pairs has 2.0 MB/s, usual are some 300."""
    assert parse(SOUND).facts["node_pairs"]["slow_nodes"] == ()
    facts = RunFacts.from_document(parse(SLOW).facts)
    assert facts.node_pairs is not None
    (slow_node,) = facts.node_pairs.slow_nodes
    assert (slow_node.node, slow_node.metric) == ("n3", "network_bandwidth")
    assert (slow_node.slow_pairs, slow_node.pairs) == (3, 3)
    assert 0.004 < slow_node.ratio < 0.012
    assert "n3" in facts.node_pairs.slowest.nodes
    text = format_slow_nodes(facts.node_pairs)
    assert text.startswith("slow messages: n3: 0.00")
    assert text.endswith(" of the usual network bandwidth in 3 of 3 pairs")


def pairs_of(nodes: int, slow: dict[str, float], latency: float = 1.0) -> list[PairMessages]:
    """Pairs of nodes with 1000 MiB/s and 2 us, or as slow as the slower node of each."""
    pairs = []
    for names in combinations([f"n{number}" for number in range(1, nodes + 1)], 2):
        share = min(slow.get(name, 1.0) for name in names)
        pairs.append(PairMessages(names, 2e-6 * (latency if share < 1 else 1.0), 1000 * share))
    return pairs


@pytest.mark.parametrize(
    ("nodes", "slow", "named"),
    [
        (2, {"n1": 0.1}, []),  # of one pair, either node may have the slow link
        (3, {"n2": 0.5}, ["n2"]),
        (4, {"n2": 0.5}, ["n2"]),
        (16, {"n2": 0.5, "n7": 0.1}, ["n7", "n2"]),
        (16, {"n2": 0.9}, []),
    ],
)
def test_slow_nodes(nodes: int, slow: dict[str, float], named: list[str]) -> None:
    assert [slow_node.node for slow_node in assess_node_pairs(pairs_of(nodes, slow)).slow_nodes] == named


def test_node_with_long_latency() -> None:
    """The bandwidth of n2 is usual."""
    slow_nodes = assess_node_pairs(pairs_of(5, {"n2": 0.99}, latency=10)).slow_nodes
    assert slow_nodes == (NodeWithSlowMessages("n2", "latency", pytest.approx(10.0), 4, 4),)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("pair 2 0 3 2.1229e-05 5.14641e+08\n", "", "repetition 2 has 5 of 6 pairs"),
        ("end 18 0bdd8ccb\n", "", "the last line, with the number of pairs and the checksum"),
        ("2.1229e-05 5.14641e+08", "2.1229e-05 5.14641e+07", "the checksum of all lines, is missing or another one"),
        ("node 3 n4\n", "", "expected the names of 4 nodes (found 3)"),
        ("repetitions 3", "repetitions 4", "expected 4 repetitions (found 3)"),
        ("node_pairs 1", "node_pairs 2", "not the format 1"),
        ("pair 2 0 3 ", "pair 2 0 3x ", "repetition 2 has 5 of 6 pairs"),
    ],
)
def test_damaged_output_has_no_result(before: str, after: str, reason: str) -> None:
    assert before in SOUND
    output = parse(SOUND.replace(before, after))
    assert (output.status, output.results) == ("incomplete", ())
    assert reason in str(output.reason)


def test_latency_of_zero_is_refused() -> None:
    """Printed by a program whose clock stands still."""
    *lines, _ = SOUND.replace("pair 2 0 3 2.1229e-05", "pair 2 0 3 0").splitlines()
    checksum = zlib.crc32("".join(lines).encode())
    output = parse("\n".join([*lines, f"end 18 {checksum:08x}"]) + "\n")
    assert (output.status, output.results, output.reason) == ("incomplete", (), "a latency is zero")


def test_two_outputs_and_another_number_of_ranks_are_failures() -> None:
    assert parse(SOUND + SOUND).status == "failed"
    assert "8 ranks were requested" in str(parse(SOUND, ranks=8).reason)
    assert "not an output of node_pairs" in str(parse("nothing\n").reason)


def test_several_ranks_on_a_node_are_refused() -> None:
    options = NODE_PAIRS.read_options({"nodes": 2, "ranks": 4})
    with pytest.raises(InputError, match="one rank on each"):
        NODE_PAIRS.arguments(options, "")


ROUNDS = """
#define main program
#include "node_pairs.c"
#undef main
int main(void) {
    for (int nodes = 2; nodes < 40; nodes++) {
        int met[40][40] = {{0}};
        for (int round = 0; round < nodes + nodes % 2 - 1; round++)
            for (int node = 0; node < nodes; node++) {
                int partner = partner_in_round(node, round, nodes);
                if (partner < 0)
                    continue;
                if (partner_in_round(partner, round, nodes) != node)
                    return 1;
                met[node][partner]++;
            }
        for (int node = 0; node < nodes; node++)
            for (int other = 0; other < nodes; other++)
                if (met[node][other] != (node != other))
                    return 2;
    }
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("mpicc") is None, reason="needs mpicc")
def test_every_node_meets_every_other_one_once(tmp_path: Path) -> None:
    (tmp_path / "rounds.c").write_text(ROUNDS)
    source = ROOT / "benchmarks" / "node_pairs" / "src"
    compile_words = ["mpicc", "-std=c11", f"-I{source}", "-o", str(tmp_path / "rounds"), str(tmp_path / "rounds.c")]
    subprocess.run(compile_words, check=True)
    assert subprocess.run([tmp_path / "rounds"], check=False).returncode == 0
