"""The questions of `iowatch system init`: what is asked, how answers are verified, and what the files then say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iowatch.cli.commands import system as command
from iowatch.cli.main import iowatch
from iowatch.site import init, machine, storage, trial
from iowatch.site.init import Answers, write_system
from iowatch.site.system import read_system
from iowatch.site.trial import JobTrial

from .test_init import SINFO, checkout, fake
from .test_reframe import configuration

__all__ = ["checkout", "fake"]

TWO = SINFO.replace("standard|", "standard*|")


@pytest.fixture
def one_machine(fake: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a scheduler and with one local file system, in Berlin."""
    mount = storage.Mount("/", "ext4", 10**12, 10**11, True)
    monkeypatch.setattr("iowatch.site.storage.list_mounts", lambda: [mount])
    monkeypatch.setattr(machine, "detect_time_zone", lambda: machine.DetectedTimeZone("Europe/Berlin", "TZ"))
    monkeypatch.setenv("USER", "ann")
    for name in ("SCRATCH", "WORK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(one_machine: None, fake: Callable[[str, str], None]) -> None:
    """The same with a Slurm of two partitions, `standard` (the default) and `high mem`."""
    fake("sinfo", TWO)


class Person:
    """Answers in order; keeps the questions."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.questions = list(answers), list[str]()

    def ask(self, question: str, default: str) -> str:
        self.questions.append(question)
        return self.answers.pop(0) or default

    def describe(self, name: str = "new-one", given: Answers | None = None, **options: Any) -> init.InitResult:
        """Run the interview; all answers must be used."""
        written = write_system(name, given or Answers(), ask=self.ask, **options)
        assert self.answers == []
        return written


Slurm = Callable[[Sequence[str | None], Sequence[str], Path], dict[str, tuple[str, str]]]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Callable[[Slurm], list[list[str]]]:
    """Set what becomes of jobs: partition to status and answer; all others run. Returns the submissions."""

    def use(outcome: Slurm) -> list[list[str]]:
        submissions: list[list[str]] = []

        def try_partitions(scheduler: str, names: Any, access: Any, scratch: Path) -> list[JobTrial]:
            submissions.append([*names, *access])
            found = outcome(names, access, scratch)
            judged = ((name, *found.get(name, ("ran", ""))) for name in names)
            return [JobTrial(name, status, "--options", answer) for name, status, answer in judged]

        monkeypatch.setattr(trial, "try_partitions", try_partitions)
        return submissions

    return use


def test_machine_without_scheduler_asks_one_question(
    checkout: Path, one_machine: None, var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enter is enough: the proposed directory is tried, and nothing of the trial is left."""
    monkeypatch.setattr(command, "is_interactive", lambda: True)
    done = CliRunner().invoke(iowatch, ["system", "init", "here"], input="\n")
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert done.stderr.count("]: ") == 1
    lines = [line.split("#")[0].strip() for line in done.stderr.splitlines()[-3:]]
    assert lines == [
        "iowatch doctor --system here",
        "iowatch run --system here --suite tiny",
        "iowatch nightly --system here --suite nightly",
    ]
    path = checkout / "systems" / "here" / "system.yaml"
    found = read_system(path)
    assert (found.title, found.timezone, found.scratch_directory()) == ("here", "Europe/Berlin", var / "scratch")
    assert f"# a file was written to {var}/scratch and removed (mount " in path.read_text()
    assert list((var / "scratch").iterdir()) == []


def test_wrong_scratch_is_explained_and_asked_again(
    checkout: Path, one_machine: None, tmp_path: Path, messages: list[str]
) -> None:
    (tmp_path / "file").touch()
    good = str(tmp_path / "io")
    person = Person("relative/io", "${NO_SUCH_VARIABLE}/io", "/no/such/io", f"{tmp_path}/file", "9", good)
    person.describe()
    assert len(person.questions) == 6
    text = "\n".join(messages)
    for fault in ("is no absolute path", "names a variable that is not set", "No such file or directory: /no/such"):
        assert fault in text
    assert read_system(checkout / "systems" / "new-one" / "system.yaml").scratch_directory() == Path(good)


@pytest.mark.parametrize("variable", ["SCRATCH", "WORK"])
def test_scratch_that_the_machine_names_is_not_asked_for(
    checkout: Path, one_machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    person = Person()
    assert person.describe().unverified == ()
    found = read_system(checkout / "systems" / "new-one" / "system.yaml")
    assert found.scratch is not None
    assert found.scratch.path == f"${{{variable}}}/iowatch"


def test_all_file_systems_are_offered(
    checkout: Path, one_machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """Two parallel file systems: which one to measure is a question; the other ones stay in the description."""
    places = [tmp_path / name for name in ("work", "fast", "home")]
    for place in places:
        place.mkdir()
    mounts = [
        storage.Mount(str(p), kind, writable=True) for p, kind in zip(places, ("Lustre", "GPFS", "NFS"), strict=True)
    ]
    monkeypatch.setattr("iowatch.site.storage.list_mounts", lambda: mounts)
    person = Person("2")
    person.describe()
    assert [line.split()[1] for line in messages if line.startswith("  ") and line[2].isdigit()] == [
        f"{places[0]}/iowatch", f"{places[1]}/iowatch", "${IOWATCH_VAR}/scratch", f"{places[2]}/iowatch",
    ]  # fmt: skip
    found = read_system(checkout / "systems" / "new-one" / "system.yaml")
    assert found.scratch_directory() == places[1] / "iowatch"
    assert [one.technology for one in found.file_systems] == ["Lustre", "GPFS", "NFS"]
    # The comments of an entry are valid fields: without their marks the file system is measured, too.
    path = checkout / "systems" / "new-one" / "system.yaml"
    text = path.read_text().replace(
        f'scratch: "{places[1]}/iowatch"', f"scratch: {{path: {places[1]}/iowatch, file_system: fast}}"
    )
    for field in (f'directory: "{places[2]}/iowatch"', "limits: {total_bytes"):
        head, mark, tail = text.rpartition(f"  # {field}")
        assert mark
        text = f"{head}  {field}{tail}"
    path.write_text(text)
    assert [one.name for one in read_system(path).measured_file_systems] == ["fast", "home"]


def test_cluster_asks_at_most_three_questions(
    checkout: Path,
    cluster: None,
    slurm: Callable[[Slurm], list[list[str]]],
    fake: Callable[[str, str], None],
    messages: list[str],
) -> None:
    """Scratch, partition, and the account only because the scheduler refuses jobs without one."""
    fake("sacctmgr", "printf 'abc\\nabc\\ndef\\n'")
    refusal = "sbatch: error: Batch job submission failed: Invalid account"
    submissions = slurm(lambda n, access, s: {} if access else {"standard": ("refused", refusal)})
    person = Person("", "", "")
    written = person.describe(given=Answers(title="Our cluster"))
    assert len(person.questions) == 3
    assert submissions == [["standard"], ["standard", "--account=abc"]]
    assert refusal in "\n".join(messages)
    assert written.unverified == ()
    settings = checkout / "systems" / "new-one" / "reframe.py"
    (partition,) = configuration(settings).get("systems/0/partitions")
    assert partition["access"] == ["--no-requeue", "--account=abc", "--partition=standard", "--exclusive"]
    assert "# Verified: partition standard: a job ran with --options." in settings.read_text()


def test_refused_partition_can_be_left_out_or_kept(
    checkout: Path, cluster: None, slurm: Callable[[Slurm], list[list[str]]]
) -> None:
    slurm(lambda n, a, s: {"high mem": ("refused", "not your\ngroup")})
    Person("", "all", "drop").describe("left-out")
    person = Person("", "all", "--qos=x --account=y", "")
    kept = person.describe("kept")
    assert kept.unverified == ("partition high mem: not your\ngroup",)
    texts = {name: (checkout / "systems" / name / "reframe.py").read_text() for name in ("left-out", "kept")}
    assert "high mem" not in texts["left-out"].partition("# settings: end")[0]
    assert '"time_limit": "60m"},  # not verified: not your\\ngroup' in texts["kept"]
    assert 'ACCESS = ["--qos=x", "--account=y"]' in texts["kept"]


def test_scratch_that_nodes_do_not_see_is_asked_again(
    checkout: Path, cluster: None, slurm: Callable[[Slurm], list[list[str]]], tmp_path: Path, messages: list[str]
) -> None:
    shared = tmp_path / "shared"
    slurm(lambda n, a, scratch: {} if scratch == shared else {"standard": ("no scratch", "mkdir: cannot create")})
    person = Person("", "", str(shared))
    assert person.describe().unverified == ()
    assert "mkdir: cannot create" in "\n".join(messages)


def test_job_that_waits_is_reported_and_not_asked_about(
    checkout: Path, cluster: None, slurm: Callable[[Slurm], list[list[str]]]
) -> None:
    """A busy machine: the answers were accepted."""
    slurm(lambda n, a, s: {"standard": ("waiting", "job 7 was accepted and did not start within 60 s (Resources)")})
    written = Person("", "").describe()
    assert written.unverified == ("partition standard: job 7 was accepted and did not start within 60 s (Resources)",)
    assert not written.refused


def test_nothing_is_asked_or_submitted_without_a_terminal(
    checkout: Path, cluster: None, slurm: Callable[[Slurm], list[list[str]]], var: Path
) -> None:
    submissions = slurm(lambda n, a, s: {})
    for options in ([], ["--no-input", "--force"], ["--json", "--force"]):
        done = CliRunner().invoke(iowatch, ["system", "init", "new-one", *options])
        assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["unverified"] == ["scratch: not tried", "partitions: no job was submitted"]
    assert "interconnect" in document["gaps"]
    assert submissions == []
    assert not (var / "scratch").exists()


def test_given_answers_are_verified_without_a_terminal(
    checkout: Path, cluster: None, slurm: Callable[[Slurm], list[list[str]]], tmp_path: Path, cli: Callable[..., Result]
) -> None:
    submissions = slurm(lambda n, access, s: {} if "--account=abc" in access else {"standard": ("refused", "no")})
    words = (
        "system",
        "init",
        "new-one",
        "--force",
        "--scratch",
        tmp_path / "io",
        "--partition",
        "standard",
        "--timezone",
        "Asia/Tokyo",
        "--title",
        "Ours",
    )
    assert cli(*words, "--account", "abc").exit_code == 0
    assert cli(*words, "--account", "xyz").exit_code == 1
    assert cli(*words, "--account", "xyz", "--no-verify").exit_code == 1  # nothing is known about the account
    assert len(submissions) == 2
    found = read_system(checkout / "systems" / "new-one" / "system.yaml")
    assert (found.title, found.timezone, found.scratch_directory()) == ("Ours", "Asia/Tokyo", tmp_path / "io")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--partition", "standart"), "Did you mean 'standard'?"),
        (("--timezone", "Europe/Berlim"), "Did you mean 'Europe/Berlin'?"),
        (("--scratch", "io"), "is no absolute path"),
        (("--scheduler", "flux", "--account", "a"), "has no accounts"),
    ],
)
def test_impossible_answers_are_wrong_use(
    checkout: Path, cluster: None, cli: Callable[..., Result], words: tuple[str, ...], message: str
) -> None:
    done = cli("system", "init", "new-one", *words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert not (checkout / "systems" / "new-one").exists()


def test_time_zone_of_the_site_is_not_repeated(
    checkout: Path, one_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOWATCH_TIMEZONE", "America/Chicago")
    write_system("new-one")
    assert read_system(checkout / "systems" / "new-one" / "system.yaml").timezone is None


def test_unknown_time_zone_is_asked_for(checkout: Path, one_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "detect_time_zone", lambda: None)
    Person("", "Berlin", "Europe/Berlin").describe()
    assert read_system(checkout / "systems" / "new-one" / "system.yaml").timezone == "Europe/Berlin"


def test_time_zone_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """localtime(5), timezone(5) of Debian, tzset(3)."""
    etc = tmp_path / "etc"
    etc.mkdir()
    monkeypatch.delenv("TZ", raising=False)
    assert machine.detect_time_zone(tmp_path) == machine.DetectedTimeZone("UTC", "no /etc/localtime")
    (etc / "localtime").write_bytes(b"TZif2")  # a copy of the rules, without their name
    assert machine.detect_time_zone(tmp_path) is None
    (etc / "timezone").write_text("Asia/Tokyo\n")
    assert machine.detect_time_zone(tmp_path) == machine.DetectedTimeZone("Asia/Tokyo", "/etc/timezone")
    (etc / "localtime").unlink()
    (etc / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert machine.detect_time_zone(tmp_path) == machine.DetectedTimeZone("Europe/Berlin", "/etc/localtime")
    monkeypatch.setenv("TZ", ":America/Chicago")
    assert machine.detect_time_zone(tmp_path) == machine.DetectedTimeZone("America/Chicago", "TZ")
    monkeypatch.setenv("TZ", "CET-1CEST")
    assert machine.detect_time_zone(tmp_path) == machine.DetectedTimeZone("Europe/Berlin", "/etc/localtime")
