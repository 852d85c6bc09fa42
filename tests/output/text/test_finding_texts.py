"""What texts state about a finding: when it was there, what differs, what is to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import pytest

from iowatch.findings import AppliedDecision, EvidenceDifference, Finding, FindingState
from iowatch.findings.finding import MovedLayer, Resolution
from iowatch.output.text.cards import card_facts, next_step, probable_cause
from iowatch.output.text.evidence import format_moved_layer, format_short_difference
from iowatch.output.text.findings import finding_headline, format_period
from iowatch.statistics.layers import LayerProbability
from tests.builders import build_finding


def epoch_s(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, 12, tzinfo=UTC).timestamp())


CHANGE_S, END_S = epoch_s(2017, 4, 24), epoch_s(2017, 8, 4)


def resolved(resolution: Resolution | None) -> Finding:
    state: FindingState = "open" if resolution is None else "resolved"
    return replace(build_finding(first_after=CHANGE_S, resolution=resolution), state=state)


@pytest.mark.parametrize(
    ("resolution", "period"),
    [
        (None, "since 24 Apr 2017"),
        (Resolution("returned", finding="other", since=END_S), "from 24 Apr to 4 Aug 2017, over"),
        (Resolution("over", since=epoch_s(2018, 1, 2)), "from 24 Apr 2017 to 2 Jan 2018, over"),
        (Resolution("over", since=CHANGE_S), "on 24 Apr 2017, over"),
        (Resolution("spell", sessions=7, since=epoch_s(2017, 5, 1)), "from 24 Apr to 1 May 2017, over"),
        # Recorded by a release that did not keep the end.
        (Resolution("spell", sessions=7), "from 24 Apr 2017 on for 7 sessions, over"),
        (Resolution("transient", sessions=1), "from 24 Apr 2017 on for at most 1 session, over"),
        (Resolution("superseded", since=END_S), "from 24 Apr to 4 Aug 2017, superseded"),
        (Resolution("not confirmed"), "from 24 Apr 2017 on, not confirmed"),
        # The change is still there: it belongs to another finding.
        (Resolution("recovery", finding="other"), "since 24 Apr 2017, recovery of other"),
    ],
)
def test_headline_states_from_when_to_when(resolution: Resolution | None, period: str) -> None:
    finding = resolved(resolution)
    assert format_period(finding) == period
    assert finding_headline(finding) == f"write POSIX lost 50 % (×0.5) {period}"


def decided(decision: Literal["accepted", "dismissed"]) -> Finding:
    return build_finding(state=decision, review=AppliedDecision(decision, "A", "intended", "2017-05-01", None))


@pytest.mark.parametrize(
    "finding",
    [resolved(Resolution("returned", finding="other", since=END_S)), decided("accepted"), decided("dismissed")],
    ids=["resolved", "accepted", "dismissed"],
)
def test_nothing_is_left_to_do_about_what_is_over_or_decided(finding: Finding) -> None:
    assert next_step(finding) == ""
    assert "Next step" not in dict(card_facts(finding))


def test_resolution_is_the_first_fact() -> None:
    facts = list(card_facts(resolved(Resolution("returned", finding="other", since=END_S))))
    assert facts[0] == ("Resolved", "back at the level before since 4 Aug 2017 (other)")


STRIPING = EvidenceDifference(
    "compute node",
    "compute node",
    "default striping",
    "stripe_count: -1 stripe_size: 1048576 pattern: raid0",
    "stripe_count: 1 stripe_size: 1048576 pattern: raid0",
)


def test_next_step_does_not_repeat_the_cause() -> None:
    finding = build_finding(differences=(STRIPING,))
    assert probable_cause(finding) == "default striping: stripe_count -1 -> 1"
    assert next_step(finding) == "Check whether this difference was intended"
    library = EvidenceDifference("stack", "stack gnu", "hdf5", "1.10", "1.14")
    assert (
        next_step(build_finding(differences=(STRIPING, library))) == "Check whether these 2 differences were intended"
    )


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (STRIPING.before, STRIPING.after, "what: stripe_count -1 -> 1"),
        ("1.10", "1.14", "what 1.10 -> 1.14"),
        # Of parts of a stack: version, then what differs besides it (`evidence.stack_differences`).
        (
            "4.9.2 (variants build_type=Release mpi=True) (hash a5k6q2rv)",
            "4.9.2 (variants build_type=Debug mpi=True) (hash z3n7h4ob)",
            "what: build_type Release -> Debug",
        ),
        ("1.10 (hash a5k6q2rv)", "1.14 (hash z3n7h4ob)", "what 1.10 -> 1.14"),
        ("4.9.2 (hash a5k6q2rv)", "4.9.2 (hash z3n7h4ob)", "what: hash a5k6q2rv -> z3n7h4ob"),
        ("none", "1.14 (hash z3n7h4ob)", "what none -> 1.14"),
        ("rw,vers=4.2,rsize=1048576,hard", "rw,vers=4.1,rsize=1048576,hard", "what: vers 4.2 -> 4.1"),
        ("nfs4 srv:/a rw,hard", "nfs4 srv:/a rw,soft", "what rw,hard -> rw,soft"),
        ("rw,hard", "rw,soft", "what hard -> soft"),
        ("Spectre: Retpolines | Meltdown: PTI", "Spectre: Vulnerable | Meltdown: PTI",
         "what Spectre: Retpolines -> Spectre: Vulnerable"),
        ('{"a": 1, "b": 2}', '{"a": 1, "b": 3}', 'what {"a": 1, "b": 2} -> {"a": 1, "b": 3}'),
        ("a b", "b a", "what a b -> b a"),
        ("a=1 b=1 c=1 d=1", "a=2 b=2 c=2 d=2", "what: a 1 -> 2, b 1 -> 2, c 1 -> 2, 1 more"),
    ],
)  # fmt: skip
def test_short_texts_state_only_what_differs(before: str, after: str, text: str) -> None:
    assert format_short_difference(EvidenceDifference("settings", "where", "what", before, after)) == text


def candidates(*names: str) -> MovedLayer:
    return MovedLayer(None, tuple(LayerProbability(name, 0.4) for name in names), (), (), ("mdtest",))


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (
            candidates("disk", "file system", "network"),
            "cannot be distinguished between disk, file system and network (a series of mdtest would distinguish them)",
        ),
        (candidates("disk"), "probably disk, not certain (a series of mdtest would show it)"),
        (candidates(), "cannot be named: no single layer explains the changes"),
    ],
)
def test_pages_state_the_layer_as_the_terminal_does(layer: MovedLayer, text: str) -> None:
    finding = replace(build_finding(), layer=layer)
    assert format_moved_layer(layer) == text
    assert dict(card_facts(finding))["Layer"] == text
