"""A store that another program slows in half of its sessions: findings tell the program from the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from iowatch.findings import Finding, update_findings
from iowatch.output.text.losses import format_outlook
from iowatch.store import History, write
from tests.builders import build_output, build_result, build_run, build_session

START = datetime(2025, 1, 1, 2, tzinfo=UTC)
SESSIONS, CHANGED_AT = 40, 25
# Effect and noise (ln) of each case, and how often a run sees the program.
EFFECTS = {"64k": np.log(0.43), "128k": np.log(0.55), "256k": np.log(0.7), "1m": np.log(0.6)}
NOISE, SEEN = 0.07, 0.97


def mornings(history: History, seed: int, own_change: float = 1.0) -> list[list[Finding]]:
    """Findings after each session; from CHANGED_AT on the store itself has another speed."""
    rng = np.random.default_rng(seed)
    active = rng.permutation(SESSIONS) < SESSIONS // 2
    found = []
    for number in range(SESSIONS):
        moment = START + timedelta(days=number)
        time, speed = int(moment.timestamp()), 8 * (own_change if number >= CHANGED_AT else 1.0)
        runs = []
        for position, (name, effect) in enumerate(EFFECTS.items()):
            value = speed * np.exp(effect * active[number] + NOISE * rng.standard_normal())
            blocked = float(1 + (active[number] and rng.random() < SEEN))
            facts = {
                side: {"time_s": time, "processes_blocked": blocked, "load_1m": float(rng.normal(4, 1))}
                for side in ("before", "after")
            }
            result = build_result(value, case={"transfer": name, "ranks": 1})
            started_at = time + 60 * position
            runs.append(
                build_run(result, name=name, partition="node", started_at=started_at, facts={"covariates": facts})
            )
        with history.writing() as connection:
            write.insert_session(connection, build_session(f"{number}", system="site", started_at=time), ())
            write.insert_runs(connection, f"{number}", runs)
        found.append(update_findings(history, "site", moment + timedelta(hours=1)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [9201, 9203])
def test_another_program_alone_is_no_finding_on_any_morning(history: History, root: Path, seed: int) -> None:
    """As measured, each has findings, some of them open. In these seeds the program comes and goes early on."""
    assert not any(mornings(history, seed))


def test_a_load_that_ends_for_the_first_time_is_named_and_not_reported(history: History, root: Path) -> None:
    """In this seed the program runs in the first seven sessions, and not in the eighth: nothing shows what it does."""
    found = mornings(history, 9202)
    assert not any(found[:7])
    (finding,) = found[7]
    assert (finding.state, finding.direction) == ("suspected", "up")
    assert not finding.needs_action
    assert "processes of the node blocked by I/O changed at the same time" in format_outlook(finding)
    assert not any(one.needs_action for later in found for one in later)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", [9203, 9208])
def test_a_slower_store_is_suspected_within_five_sessions(history: History, root: Path, seed: int) -> None:
    found = mornings(history, seed, own_change=0.85)
    # The program is unseen in 3 % of its sessions: the control chart reports such a loss for a session.
    assert not any(one.outlook or one.state == "open" for morning in found[:CHANGED_AT] for one in morning)
    (finding,) = (one for one in found[CHANGED_AT + 4] if one.resolution is None)
    assert finding.direction == "down"
    assert finding.size == pytest.approx(0.85, abs=0.06)
    assert len(finding.members) >= 2
    assert any(one.needs_action for one in found[CHANGED_AT + 6])


def test_traffic_of_the_runs_themselves_explains_no_longer_times(history: History, root: Path) -> None:
    """A slower run takes longer and moves fewer bytes per second; the latter is no reason of the former."""
    rng = np.random.default_rng(9205)
    for number in range(30):
        moment = START + timedelta(days=number)
        time, runs = int(moment.timestamp()), []
        for name in EFFECTS:
            duration = 10 * np.exp(0.03 * rng.standard_normal()) * (1.15 if number >= 28 else 1.0)
            facts = {"before": {"time_s": time, "client_written_bytes": 0.0}}
            facts["after"] = {"time_s": time + 10, "client_written_bytes": 1e10 / duration}
            output = build_output(build_result(duration, metric="time", case={"transfer": name}), tool="benchio")
            run = build_run(name=name, partition="node", stack="one", started_at=time, output=output)
            runs.append(replace(run, facts={"covariates": facts}))
        with history.writing() as connection:
            write.insert_session(connection, build_session(f"{number}", system="site", started_at=time), ())
            write.insert_runs(connection, f"{number}", runs)
    (finding,) = update_findings(history, "site", moment + timedelta(hours=1))
    assert finding.direction == "down"
    assert len(finding.members) == len(EFFECTS)
