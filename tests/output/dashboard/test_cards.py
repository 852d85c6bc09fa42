"""What an administrator sees first: cards of findings, ranked and grouped, events of several systems, first results."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from iowatch.demo.scenarios import generate_sessions
from iowatch.findings import load_findings
from iowatch.output.dashboard.cards import status_cards, waiting_days
from iowatch.output.dashboard.data import collect_catalogue
from iowatch.output.text.cards import card_facts
from iowatch.output.text.findings import finding_headline
from iowatch.store import History, SessionFacts, StackRecord
from iowatch.store.records import Origin
from tests.builders import build_finding, build_member, build_session_row, build_system_entry
from tests.output.dashboard import mornings
from tests.output.dashboard.browser import Browser
from tests.output.dashboard.test_status import shown

DAY_S = 86400


def status(site: Path) -> str:
    return shown((site / "index.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("origin", "days"), [("run", 2), ("import", 30), ("demo", 30)])
def test_days_that_a_finding_waits(origin: Origin, days: int) -> None:
    """A change of 30 days ago that was reported two days ago: an import reports the findings of years at once."""
    newest = 100 * DAY_S
    finding = replace(build_finding(first_after=newest - 30 * DAY_S), first_seen_at=newest - 2 * DAY_S)
    machine = build_system_entry(sessions=[build_session_row(origin=origin, started_at=newest)])
    assert waiting_days(machine, finding) == days
    # A part of a day does not count, and a session of an earlier start has not waited.
    assert waiting_days(machine, replace(finding, first_seen_at=newest, first_after=newest - DAY_S + 1)) == 0
    assert waiting_days(machine, replace(finding, first_seen_at=newest + 60, first_after=newest + 60)) == 0
    assert waiting_days(build_system_entry(), finding) == 0


@pytest.mark.slow
def test_one_event_on_three_systems_is_one_card(fleet: Path) -> None:
    """The planted factors are 0.7, 0.5 and 0.3 of MPI-IO from 10 February on."""
    with History.open(str(fleet.parent / "history.db")) as history:
        groups = status_cards(collect_catalogue(history).machines)
    card = groups["waiting"][0]
    assert {entry.machine.name for entry in card.findings} == set(mornings.SHARED)
    assert card.machine.name == "coral"  # with the largest loss
    expected = r"MPI-IO lost up to (69|70|71) % \(×0.(29|3\d?)\) since 10 Feb 2025 on 3 systems"
    assert re.fullmatch(expected, card.headline)
    assert len(groups["waiting"]) == 2  # and the loss of another system on another day
    assert groups["waiting"][1].machine.name == "dolomite"
    (gain,) = groups["improvements"]
    assert (gain.machine.name, gain.is_loss) == ("emerald", False)


def test_losses_come_first_and_improvements_apart(fleet: Path) -> None:
    text = status(fleet)
    assert (
        text.index("Waiting for a decision 2") < text.index("MPI-IO lost") < text.index("POSIX") < text.index("gained")
    )
    assert "No new loss, 2 losses waiting, 1 improvement" in text


def test_system_rows_state_loss_since_and_size(fleet: Path) -> None:
    text = (fleet / "index.html").read_text(encoding="utf-8")
    rows = {name: shown(row) for name, row in re.findall(r'<tr data-system="(\w+)".*?>(.*?)</tr>', text, re.DOTALL)}
    assert list(rows)[:4] == ["coral", "beryl", "amber", "dolomite"]
    # Of noisy values: 29 to 31 % are left.
    worst = r"−(69|70|71) % \(×0.(29|3\d?)\) since 10 Feb 2025, 2 series"
    assert re.search(rf"complete\s*8 / 8 2 below, .*{worst}", rows["coral"])
    assert rows["garnet"].endswith("none")
    strips = re.findall(r'aria-label="([^"]*)"', text)
    assert strips.count("30 sessions: 30 complete, 0 in part, 0 with none; 0 sessions missed") == 7
    assert strips.count("29 sessions: 29 complete, 0 in part, 0 with none; 1 session missed") == 1


def test_new_loss_is_reported_on_the_first_morning(bad_morning: Path) -> None:
    text = status(bad_morning)
    assert "1 new loss" in text
    assert re.search(r"New with the newest session 1 ▼ MPI-IO lost 6\d % .* since 10 Feb 2025 \(1 session\)", text)
    assert "Probable causeunknown: no event is recorded near" in text


def test_first_session_shows_what_stands_out_and_what_is_missing(first_results: Path) -> None:
    """MPI-IO of the second stack has a seventh of the bandwidth; NetCDF-4 is not in it."""
    text = status(first_results)
    assert "1 of 7 days with observations until changes can be detected; 6 to go." in text
    assert "What stands outior with MPI-IO is 7 times slower on mpich than on openmpi (2 series)" in text
    assert "POSIX is" not in text  # as fast as the other
    assert "2 cases, stack mpich: the stack does not provide netcdf4" in text
    assert text.count("the stack does not provide") == 10  # five tools on both stacks
    assert "What they need is installed by:iowatch stack install reference --system laptop" in text
    assert "peak of the file system is unknown" in text
    # The shared-file cases of IOR, as in the verdict.
    assert "Published maxima of like cases (one shared file)" in text
    assert "of peak [bartz2014, Table" in text


def _complete_night(history: History) -> date:
    """A session of the system's MPI without IOR, then one of the stack that was built, half an hour later."""
    first_day = mornings.FIRST
    lacking = {"kind": "unavailable", "stack": "openmpi", "run": "7 cases", "reason": "the stack does not provide ior"}
    commands = ["iowatch stack install quick --system laptop"]
    attributes = {"stacks": ["openmpi"], "unavailable": [{**lacking, "partition": ""}], "install_commands": commands}
    choice = {"stacks": ["openmpi", "quick"], "choice": {"stacks": ["quick"]}}
    for number, (stack, facts) in enumerate([("openmpi", attributes), ("quick", choice)]):
        (night,) = generate_sessions(mornings.scenario("laptop", first_day, {}), seed=1)
        started_at = night.session.started_at + 1800 * number
        session = replace(
            night.session,
            uuid=f"night-{stack}",
            started_at=started_at,
            origin="run",
            facts=SessionFacts.from_document(facts),
        )
        runs = []
        for run in night.runs:
            fingerprint = f"{stack}-{run.name}"
            moved = replace(run, stack=StackRecord(stack), fingerprint=fingerprint, started_at=started_at)
            runs.append(moved)
        history.begin_session(session, [])
        history.record_runs(session.uuid, runs)
        history.end_session(session.uuid, "ok", started_at + 600)
    return first_day


def test_first_night_that_a_new_stack_completed_lacks_only_what_all_stacks_lack(tmp_path: Path) -> None:
    """The session of the stack `quick` has measured IOR: nothing is left to install, and its results have a link."""
    mornings.build(tmp_path, _complete_night)
    text = status(tmp_path / "site")
    assert "the stack does not provide ior" not in text
    assert "iowatch stack install quick" not in text
    assert re.search(r"All results: session of [\d -]+:\d\d, session of [\d -]+:\d\d \(quick\)", text)
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert page.index('href="session/night-openmpi.html"') < page.index('href="session/night-quick.html"')


def test_stacks_of_a_first_session_are_named_and_compared_first(first_results: Path) -> None:
    """Published comparisons with a clear verdict come after the own one without."""
    index = shown((first_results / "comparisons.html").read_text(encoding="utf-8"))
    assert index.index("laptop: mpich against openmpi") < index.index("Default against maximum striping")
    (page,) = (first_results / "session").glob("*.html")
    text = shown(page.read_text(encoding="utf-8"))
    assert "ior:MPIIO on openmpi" in text
    assert "ior:MPIIO on mpich" in text


def test_headline_and_facts_of_franklin(franklin_history: Path) -> None:
    """[antypas2009]: MPI-IO on shared files changed on 17 March 2009, POSIX file per process did not."""
    with History.open(str(franklin_history)) as history:
        (finding,) = load_findings(history, "franklin")
    assert re.fullmatch(
        r"MPI-IO shared file gained \d{3} % \(×\d\.\d\) since 17 Mar 2009 \(3 sessions\)", finding_headline(finding, 3)
    )
    facts = dict(card_facts(finding))
    assert list(facts) == ["Affected", "Unaffected", "Probable cause", "Layer", "Next step"]
    assert re.match(r"7 of 13 series: unaligned reads \(ior\) \+\d,\d{3} % \(×5\d\)", facts["Affected"])
    assert facts["Unaffected"].startswith("POSIX file per process: 5 of 6 series did not change")
    assert facts["Probable cause"].startswith("scheduled maintenance: upgrade to CLE 2.1UP01")
    assert "cray-linux-environment 2.1 -> 2.1UP01" in facts["Probable cause"]
    assert facts["Layer"].startswith("cannot be distinguished between CPU or memory, MPI-IO")
    assert facts["Next step"].startswith("Accept the new level")


def test_lost_performance_orders_findings() -> None:
    """0.3 + 0.5 lost by two series is more than 0.7 lost by one; gains do not count."""

    def lost(*gains: float) -> float:
        return build_finding(*(build_member(number, gain=gain) for number, gain in enumerate(gains))).lost_performance

    assert lost(0.7, 0.5, 1.9) == pytest.approx(0.8)
    assert lost(0.7, 0.5) > lost(0.3)
    assert lost(1.2) == 0


@pytest.mark.browser
def test_eight_systems_fit_one_screen(browser: Browser, fleet: Path) -> None:
    browser.resize(1440, 900)
    browser.open(fleet / "index.html")
    assert browser.run("return document.querySelectorAll('.strips tbody tr').length") == 8
    assert browser.run("return document.querySelector('.strips').getBoundingClientRect().bottom") < 600
    browser.resize(390, 844)
    assert browser.run("return document.documentElement.scrollWidth") <= 390
    assert browser.messages() == []


@pytest.mark.browser
def test_wall_display_does_not_scroll_and_counts_what_does_not_fit(browser: Browser, fleet: Path) -> None:
    browser.resize(1920, 1080)
    browser.open(fleet / "index.html", "?display=wall")
    visible = "return [...document.querySelectorAll('.strips tbody tr, .card')].filter(e => !e.matches('.cut')).length"
    assert browser.run("return getComputedStyle(document.documentElement).overflowY") == "hidden"
    assert browser.run(visible) == 8 + 3
    assert browser.run("return document.getElementById('cut')") is None
    assert browser.run("return getComputedStyle(document.querySelector('body > header')).display") == "none"
    assert "page built 0 h ago" in browser.run("return document.querySelector('.lead').innerText")
    browser.resize(800, 500)
    browser.wait("return document.getElementById('cut') !== null")
    left = 8 + 3 - browser.run(visible)
    counted = sum(map(int, re.findall(r"\d+", browser.run("return document.getElementById('cut').textContent"))))
    assert counted == left > 0
    assert browser.messages() == []
