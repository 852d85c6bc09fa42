"""What is told, once, and what is never told: secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest

from iowatch import notify
from iowatch.errors import InputError, MachineError
from iowatch.findings import update
from iowatch.notify import Notice, Settings, outbox
from iowatch.notify.send import UndeliveredError
from iowatch.store import History, SessionRecord
from tests.conftest import ROOT
from tests.findings.conftest import STEP, Watch, morning, root, slower_mpiio, watch

__all__ = ["root", "watch"]

ISSUES = {"name": "issues", "kind": "issue", "directory": "notices"}


def settings(**changed: Any) -> Settings:
    return Settings.model_validate({"digest": "never", "silence_hours": 1e6, "channels": [ISSUES], **changed})


class Post:
    """Takes what is sent; refuses as long as told to."""

    def __init__(self) -> None:
        self.sent: list[Notice] = []
        self.refuses = False

    def __call__(self, _channel: Any, notice: Notice) -> None:
        if self.refuses:
            raise UndeliveredError("the server answered 503", True)
        self.sent.append(notice)

    @property
    def titles(self) -> list[str]:
        return [f"{notice.kind}: {notice.lines[0]}" for notice in self.sent]


def far(history: History, system: str = "planted") -> None:
    """A session of a night, so that nothing here is silence."""
    started = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp())
    history.begin_session(SessionRecord("living", system, "smoke", "run", started))


def test_a_finding_is_told_when_confirmed_and_only_once(history: History, watch: Watch) -> None:
    far(history)
    post, story = Post(), slower_mpiio()
    watch(story, STEP)
    notify.tell(history, "planted", settings(), morning(STEP), post)
    assert post.sent == []
    since, told = STEP, []
    for days in (2, 5, 8, 12, 20):
        until = STEP + timedelta(days=days)
        found = watch(story, until, since)
        told.append([f.state for f in found])
        for _ in range(2):
            notify.tell(history, "planted", settings(), morning(until), post)
        since = until
    assert told[-1] == ["open"], told
    assert len(post.sent) == 1
    (notice,) = post.sent
    assert notice.kind == "finding"
    assert notice.facts["state"] == "open"
    assert notice.title == f"planted [{', '.join(notice.facts['news'])}]: {notice.facts['line']}"
    assert any(word in notice.title for word in ("[new", "[confirmed"))
    # Said once: the details begin where the title ends.
    assert notice.facts["line"] not in "\n".join((*notice.lines, *notice.details))
    assert notice.details[0].startswith("What changed")
    assert f"iowatch review accept {notice.facts['id']} --reason …" in notice.lines[2]


def test_a_finding_that_nobody_listened_to_is_told_later(history: History, watch: Watch) -> None:
    far(history)
    post, story = Post(), slower_mpiio()
    watch(story, STEP)
    notify.tell(history, "planted", settings(), morning(STEP), post)
    until = STEP + timedelta(days=20)
    watch(story, until, STEP)
    # Another update, of a run by hand perhaps, takes the news away.
    assert [f.news for f in update(history, "planted", morning(until))] == [()]
    notify.tell(history, "planted", settings(), morning(until), post)
    assert [notice.facts["state"] for notice in post.sent] == ["open"]


def test_the_past_is_not_told_when_notices_begin(history: History, watch: Watch) -> None:
    far(history)
    until = STEP + timedelta(days=20)
    watch(slower_mpiio(), until)
    update(history, "planted", morning(until))
    post = Post()
    for _ in range(2):
        notify.tell(history, "planted", settings(), morning(until), post)
    assert post.sent == []


def test_what_a_server_refuses_is_sent_the_next_time(history: History, watch: Watch) -> None:
    far(history)
    until = STEP + timedelta(days=20)
    watch(slower_mpiio(), until)
    post = Post()
    post.refuses = True
    (outcome,) = notify.tell(history, "planted", settings(), morning(until), post)
    assert (outcome.sent, outcome.waiting, outcome.reason) == ((), 1, "the server answered 503")
    post.refuses = False
    # The news are gone from the history by now; the outbox has them.
    update(history, "planted", morning(until))
    (outcome,) = notify.tell(history, "planted", settings(), morning(until), post)
    assert (len(outcome.sent), outcome.waiting, outcome.reason) == (1, 0, None)


def test_old_waiting_notices_are_given_up(history: History, var: Path) -> None:
    post, start = Post(), datetime(2025, 6, 2, tzinfo=UTC)
    post.refuses = True
    notify.tell(history, "local", settings(), start, post)
    assert len(outbox.read("local").waiting["issues"]) == 1
    notify.tell(history, "local", settings(), start + timedelta(days=15), post)
    assert outbox.read("local").waiting["issues"] == []


def night(history: History, uuid: str, moment: datetime, status: str = "ok", runs: int = 1) -> None:
    from tests.report.test_session_reports import ran

    started = int(moment.timestamp())
    history.begin_session(SessionRecord(uuid, "local", "nightly", "run", started))
    for number in range(runs):
        history.record_runs(uuid, [ran(f"{uuid}-{number}")])
    history.end_session(uuid, status, started + 600)  # type: ignore[arg-type]


def test_silence_is_told_once_and_again_after_it_was_broken(history: History) -> None:
    post, start = Post(), datetime(2025, 6, 2, 2, tzinfo=UTC)
    watched = settings(silence_hours=26)

    def tell(moment: datetime) -> int:
        before = len(post.sent)
        notify.tell(history, "local", watched, moment, post)
        return len(post.sent) - before

    assert tell(start) == 1
    assert post.sent[0].lines[0] == "Nothing has ever run; expected within 26 hours."
    night(history, "n1", start)
    assert tell(start + timedelta(hours=26)) == 0
    assert tell(start + timedelta(hours=27)) == 1
    assert post.sent[1].lines[0] == "Nothing ran since 2025-06-02 02:10 UTC; expected within 26 hours."
    # A session in which nothing ran is silence, too: the same one.
    night(history, "n2", start + timedelta(hours=28), "incomplete", runs=0)
    assert tell(start + timedelta(hours=50)) == 0
    night(history, "n3", start + timedelta(hours=72))
    assert tell(start + timedelta(hours=73)) == 0
    assert tell(start + timedelta(hours=120)) == 1
    assert {notice.kind for notice in post.sent} == {"silence"}


def test_one_digest_a_week_on_its_day_or_later(history: History) -> None:
    monday = datetime(2025, 6, 2, 6, tzinfo=UTC)
    for days in range(14):
        moment = monday + timedelta(days=days, hours=-4)
        night(history, f"n{days}", moment, "ok" if days != 3 else "failed")
    post, watched = Post(), settings(digest="tuesday")
    counts = []
    for days in (0, 1, 2, 6, 7, 9, 10):
        notify.tell(history, "local", watched, monday + timedelta(days=days), post)
        counts.append(len(post.sent))
    # Tuesday 3 June; then Monday 9 is too early, and Tuesday 10 nobody asked: Wednesday 11.
    assert counts == [0, 1, 1, 1, 1, 2, 2]
    assert "Sessions: 1 failed, 6 ok" in post.sent[1].lines


def test_a_rehearsal_sends_and_remembers_nothing(history: History, var: Path) -> None:
    moment = datetime(2025, 6, 2, tzinfo=UTC)
    for _ in range(2):
        planned = notify.rehearse(history, "local", settings(), moment)
        assert [notice.kind for notice in planned["issues"]] == ["silence"]
    assert not (var / "notify").exists()


def test_a_notice_survives_its_json() -> None:
    notice = Notice("digest", "k", "s", "t", ("a", "b"), (), None, {"n": 1}, 5)
    assert Notice.from_json(json.loads(json.dumps(notice.to_json()))) == notice


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 9}', "\x00"])
def test_a_damaged_outbox_is_told(history: History, var: Path, text: str) -> None:
    (var / "notify").mkdir(parents=True)
    (var / "notify" / "local.json").write_text(text)
    with pytest.raises(InputError, match=r"local\.json"):
        notify.tell(history, "local", settings(), send=Post())


def test_a_failing_channel_does_not_stop_the_next(history: History) -> None:
    both = settings(channels=[ISSUES, {**ISSUES, "name": "second"}])
    post = Post()

    def send(channel: Any, notice: Notice) -> None:
        if channel.name == "issues":
            raise MachineError("disk full")
        post(channel, notice)

    outcomes = notify.tell(history, "local", both, datetime(2025, 6, 2, tzinfo=UTC), send)
    assert [(o.channel, len(o.sent), o.reason) for o in outcomes] == [
        ("issues", 0, "disk full"),
        ("second", 1, None),
    ]


class Killed(BaseException):
    """As if the process had ended there."""


@pytest.mark.parametrize("delivered", [False, True])
def test_a_kill_while_sending_loses_nothing(history: History, delivered: bool) -> None:
    """Three notices wait; the process ends at the second, before or after the server took it."""
    post, both = Post(), settings(digest="monday", silence_hours=26)
    weeks = [datetime(2025, 6, 2, tzinfo=UTC) + timedelta(days=7 * n) for n in range(2)]
    post.refuses = True
    for week in weeks:
        notify.tell(history, "local", both, week, post)
    assert len(outbox.read("local").waiting["issues"]) == 3
    post.refuses = False

    def send(channel: Any, notice: Notice) -> None:
        if len(post.sent) == 1:
            if delivered:
                post(channel, notice)
            raise Killed
        post(channel, notice)

    with pytest.raises(Killed):
        notify.tell(history, "local", both, weeks[1], send)
    notify.tell(history, "local", both, weeks[1], post)
    keys = [notice.key for notice in post.sent]
    assert len(set(keys)) == 3
    assert len(keys) == (4 if delivered else 3)


def test_two_at_once_tell_once(history: History) -> None:
    post = Post()

    def slowly(channel: Any, notice: Notice) -> None:
        sleep(0.05)
        post(channel, notice)

    def tell() -> None:
        with History.open() as own:
            notify.tell(own, "local", settings(), datetime(2025, 6, 2, tzinfo=UTC), slowly)

    threads = [Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [notice.key for notice in post.sent] == ["silence never"]


# Settings


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write systems/local/notify.yaml of a checkout of the test's own."""
    place = tmp_path / "checkout"
    (place / "benchmarks").mkdir(parents=True)
    (place / "systems" / "local").mkdir(parents=True)
    (place / "systems" / "local" / "system.yaml").symlink_to(ROOT / "systems" / "local" / "system.yaml")
    monkeypatch.setenv("IOWATCH_ROOT", str(place))

    def to_file(text: str) -> Path:
        path = place / "systems" / "local" / "notify.yaml"
        path.write_text(text)
        return path

    return to_file


GOOD = """\
dashboard: https://io.example.org
digest: monday
channels:
  - name: chat
    kind: slack
    url: {environment: IOWATCH_SLACK}
  - name: admins
    kind: mail
    host: mail.example.org
    sender: iowatch@example.org
    to: [admins@example.org]
    user: iowatch
    password: {file: ~/.config/iowatch/mail}
  - name: tracker
    kind: issue
    tell: [finding]
    directory: issues
"""


def test_settings_are_read(write: Callable[[str], Path]) -> None:
    write(GOOD)
    read = notify.load("local")
    assert read is not None
    assert [channel.kind for channel in read.channels] == ["slack", "mail", "issue"]


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ("digest: monday", "digest: someday", 2, "digest"),
        ("kind: slack", "kind: pigeon", 4, "pigeon"),
        ("url: {environment: IOWATCH_SLACK}", "url: hunter2", 6, "url"),
        ("url: {environment: IOWATCH_SLACK}", "url: {environment: A, file: B}", 6, "one of"),
        ("environment: IOWATCH_SLACK", "secret: hunter2", 6, "unknown field"),
        ("to: [admins@example.org]", 'to: ["a@b.c\\nBcc: x@y.z"]', 11, "to"),
        ("    user: iowatch\n", "", 7, "go together"),
        ("host: mail.example.org", "host: m\n    security: none", 7, "without encryption"),
        ("name: tracker", "name: chat", 1, "differ"),
        ("directory: issues", "directory: issues\n    colour: red", 18, "colour"),
    ],
)
def test_faults_are_told_with_file_line_and_field_but_never_with_a_secret(
    write: Callable[[str], Path], old: str, new: str, line: int, word: str
) -> None:
    assert old in GOOD
    path = write(GOOD.replace(old, new))
    with pytest.raises(InputError) as told:
        notify.load("local")
    assert f"{path}:{line}: " in str(told.value)
    assert word in str(told.value)
    assert "hunter2" not in str(told.value)


def test_an_empty_file_is_told(write: Callable[[str], Path]) -> None:
    write("")
    with pytest.raises(InputError, match=r"notify\.yaml:1"):
        notify.load("local")


def test_without_settings_nobody_is_told(cli: Any, write: Callable[[str], Path], var: Path) -> None:
    done = cli("notify", "--system", "local")
    assert done.exit_code == 0
    assert "no notify.yaml" in done.output


def test_the_command_sends_and_says_so(cli: Any, write: Callable[[str], Path], var: Path) -> None:
    write("digest: never\nchannels:\n  - {name: tracker, kind: issue, directory: issues}\n")
    History.open().close()
    rehearsed = cli("notify", "--system", "local", "--dry-run")
    assert (rehearsed.exit_code, rehearsed.stdout) == (0, "tracker: local: nothing ran last night\n")
    done = cli("notify", "--system", "local", "--json")
    assert done.exit_code == 0
    (channel,) = json.loads(done.stdout)["channels"]
    assert channel["sent"] == ["silence never"]
    assert "# local: nothing ran last night" in (var / "issues" / "silence-never.md").read_text()
    assert "0 sent" in cli("notify", "--system", "local").output


def test_a_failed_channel_is_exit_code_1(
    cli: Any, write: Callable[[str], Path], var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IOWATCH_SLACK", raising=False)
    write("channels:\n  - {name: chat, kind: slack, url: {environment: IOWATCH_SLACK}}\n")
    History.open().close()
    done = cli("notify", "--system", "local")
    assert done.exit_code == 1
    assert "IOWATCH_SLACK" in done.output


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--json",)])
def test_a_misspelt_history_is_refused_and_nobody_told(
    cli: Any, write: Callable[[str], Path], var: Path, more: tuple[str, ...]
) -> None:
    """Not a second, empty history, on which nothing ever ran."""
    write("channels:\n  - {name: tracker, kind: issue, directory: issues}\n")
    absent = var / "mispelt" / "iowatch.db"
    done = cli("notify", "--system", "local", "--db", absent, *more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"there is no history at sqlite:///{absent}" in done.stderr
    assert not absent.parent.exists()
    assert not (var / "issues").exists()


def test_the_day_of_the_fixture() -> None:
    """The digest's test counts from this."""
    assert date(2025, 6, 2).weekday() == 0


def test_the_file_in_the_documentation_is_valid(write: Callable[[str], Path]) -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    examples = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    (example,) = [one for one in examples if "channels:" in one]
    write(example)
    read = notify.load("local")
    assert read is not None
    assert [channel.name for channel in read.channels] == ["chat", "monitoring", "admins", "tracker"]
