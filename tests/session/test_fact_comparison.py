"""Facts of runs compared with the last accepted session: what differs is red until a person accepts it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result as CliResult

from iowatch.core import DAY_S, InputError, utc_now
from iowatch.reference import reviews
from iowatch.session import fact_comparison
from iowatch.session.run import SessionSummary
from iowatch.session.verdict import assess_session
from iowatch.site import load_system
from iowatch.site.compared_facts import COMPARED_FACTS, node_commands
from iowatch.store import ExperimentFacts, FactDifference, History, SessionFacts, StackRecord
from tests.builders import START_S, build_output, build_result, build_run, build_session, store_session

STACK = {"parts": [{"name": "openmpi", "version": "4.1.4"}, {"name": "hdf5", "version": "1.14.6"}]}
# As jobs of a workstation record it; the checksums are invented.
FACTS: dict[str, Any] = {
    "machine": {
        "host": "ws1",
        "kernel": "6.1.0-40-amd64",
        "vulnerabilities": "spectre_v1: Mitigation: usercopy | spectre_v2: Mitigation: Retpolines",
        "writeback": {"dirty_ratio": "20"},
        "cores": "2",
        "processor_quota": "none",
        "nice": "0",
        "io_priority": "none",
        "launcher": f"/usr/bin/orterun, SHA-256 {'a' * 64}",
        "preload": {},
        "configuration_files": {"/etc/openmpi/openmpi-mca-params.conf": "btl_base_warn_component_unused=0"},
        "statfs": "62875bc31a9c14cd 66053021 4096",
        "mount_options": "/scratch rw,relatime,rw,discard",
        "boot": "first",
    },
    "program": {
        "path": "/opt/ior/bin/ior",
        "sha256": "b" * 64,
        "library_checksums": {"/opt/lib/libmpi.so.40": "c" * 64},
        "variables": {"OMPI_MCA_rmaps_base_oversubscribe": "1"},
    },
    "reframe": {"launcher": "mpirun -np 2", "settings": {"scheduler": "local"}},
    "repetitions": 3,
    "scratch_file_system": {"mount": "/scratch", "type": "ext4", "source": "/dev/sdb1"},
    "covariates": {"before": {"setting:read_ahead_kib": 128.0}, "after": {}},
}
Changes = Mapping[str, Any]
Night = Callable[..., tuple[int, list[str]]]


def changed(changes: Changes) -> dict[str, Any]:
    """The facts with other values; a key is `section.name` or `section.name.item`, None removes it."""
    facts = copy.deepcopy(FACTS)
    for path, value in changes.items():
        section, _, name = path.partition(".")
        if not name:
            facts[section] = value
            continue
        name, _, item = name.partition(":")
        owner, key = (facts[section].setdefault(name, {}), item) if item else (facts[section], name)
        if value is None:
            owner.pop(key)
        else:
            owner[key] = value
    return facts


@pytest.fixture
def night(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """One session of one run a day; returns 1 if its facts differ, and the problems."""
    (tmp_path / "site.yaml").write_text("title: test\n")
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path))
    number = 0

    def run_night(
        *runs: Changes,
        stack: Mapping[str, Any] = STACK,
        assessed: bool = True,
        session_facts: SessionFacts | None = None,
        names: tuple[str, ...] = (),
        status: str = "ok",
        version: str = "4.0.0",
        suite: str = "nightly",
    ) -> tuple[int, list[str]]:
        nonlocal number
        number += 1
        start = START_S + number * DAY_S
        records = []
        for position, changes in enumerate(runs or ({},)):
            name = names[position] if names else f"ior:case{position}"
            output = build_output(build_result(), version=version, status=status)  # type: ignore[arg-type]
            record = build_run(
                name=name,
                stack=StackRecord("gnu", stack),
                started_at=start + position,
                output=output,
                facts=changed(changes),
            )
            records.append(record)
        facts = session_facts or SessionFacts(iowatch="0.1.0")
        session = build_session(f"session-{number}", started_at=start, facts=facts, suite=suite)
        store_session(history, session, records)
        if not assessed:
            return 0, []
        # As the verdict does it.
        differences = fact_comparison.compare_facts(history, history.session(session.uuid))
        history.add_facts(session.uuid, SessionFacts(fact_differences=differences))
        problems = fact_comparison.fact_problems("local", differences)
        return int(bool(problems)), problems

    return run_night


HINT = "what ran is not what ran before; `iowatch review plan --system local` lists and accepts this"


def difference(text: str) -> str:
    return f"differs from the last accepted session: {text}"


def test_ordinary_sessions_do_not_differ(night: Night) -> None:
    """Also after a restart of the machine, and with what only jobs of other sessions have."""
    assert night() == (0, [])
    assert night() == (0, [])
    assert night({"machine.boot": "second", "covariates.after": {"load_1m": 9.0}}) == (0, [])
    assert night({"machine.requeued": "1"}) == (0, [])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"machine.nice": "19"}, "nice value 19 instead of 0 (partition default)"),
        ({"machine.io_priority": "idle"}, "I/O priority idle instead of none (partition default)"),
        (
            {"machine.cores": "1"},
            "processors in the affinity mask 1 instead of 2 (partition default, host ws1, run ior:case0)",
        ),
        (
            {"machine.processor_quota": "50000 100000"},
            "processor time in µs per period 50000 100000 instead of none (partition default, run ior:case0)",
        ),
        ({"machine.host": "ws2"}, "host ws2 instead of ws1 (partition default)"),
        (
            {"machine.kernel": "6.1.0-41-amd64"},
            "kernel 6.1.0-41-amd64 instead of 6.1.0-40-amd64 (partition default, host ws1)",
        ),
        (
            {"machine.vulnerabilities": "spectre_v1: Mitigation: usercopy | spectre_v2: Vulnerable"},
            "mitigations of vulnerabilities of the processor spectre_v2=Vulnerable instead of "
            "spectre_v2=Mitigation: Retpolines (partition default, host ws1)",
        ),
        (
            {"machine.writeback:dirty_ratio": "80"},
            "write-back settings of the kernel (vm.dirty_*) dirty_ratio=80 instead of dirty_ratio=20 "
            "(partition default, host ws1)",
        ),
        (
            {"machine.launcher": f"/home/me/mpirun, SHA-256 {'d' * 64}"},
            "launcher /home/me/mpirun, SHA-256 dddddddddddd… instead of /usr/bin/orterun, SHA-256 aaaaaaaaaaaa… "
            "(partition default, host ws1, stack gnu)",
        ),
        ({"repetitions": 1}, "repetitions 1 instead of 3 (partition default, stack gnu, run ior:case0)"),
        (
            {"reframe.launcher": "srun"},
            "command of the launcher srun instead of mpirun -np 2 (partition default, stack gnu, run ior:case0)",
        ),
        (
            {"reframe.settings:prepare_cmds of the partition": "renice -n 19 $$"},
            "settings in reframe.py prepare_cmds of the partition=renice -n 19 $$ instead of none "
            "(partition default, stack gnu)",
        ),
        (
            {"program.variables:OMPI_MCA_io": "romio321", "program.variables:HDF5_USE_FILE_LOCKING": "FALSE"},
            "environment variables HDF5_USE_FILE_LOCKING=FALSE, OMPI_MCA_io=romio321 instead of none "
            "(partition default, stack gnu)",
        ),
        (
            {"program.variables:OMPI_MCA_rmaps_base_oversubscribe": None},
            "environment variables none instead of OMPI_MCA_rmaps_base_oversubscribe=1 (partition default, stack gnu)",
        ),
        (
            {"machine.configuration_files:~/.openmpi/mca-params.conf": "io = romio321"},
            "configuration files of MPI ~/.openmpi/mca-params.conf=io = romio321 instead of none "
            "(partition default, host ws1, stack gnu)",
        ),
        (
            {"machine.preload:/home/me/e.so": "e" * 64},
            "preloaded libraries /home/me/e.so=eeeeeeeeeeee… instead of none (partition default, host ws1, stack gnu)",
        ),
        (
            {"program.sha256": "f" * 64},
            "program SHA-256=ffffffffffff… instead of SHA-256=bbbbbbbbbbbb… (partition default, host ws1, stack gnu)",
        ),
        (
            {"program.path": "/home/me/ior"},
            "program path=/home/me/ior instead of path=/opt/ior/bin/ior (partition default, host ws1, stack gnu)",
        ),
        (
            {"program.library_checksums:/opt/lib/libmpi.so.40": "f" * 64},
            "libraries /opt/lib/libmpi.so.40=ffffffffffff… instead of /opt/lib/libmpi.so.40=cccccccccccc… "
            "(partition default, host ws1, stack gnu)",
        ),
        (
            {"machine.mount_options": "/scratch rw,relatime,rw,sync"},
            "mount options of scratch sync=set instead of discard=set (partition default, host ws1)",
        ),
        (
            {"covariates.before": {"setting:read_ahead_kib": 4096.0}},
            "settings of the file system read_ahead_kib=4096.0 instead of read_ahead_kib=128.0 "
            "(partition default, host ws1)",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_fact_that_differs_is_red_until_it_returns(night: Night, changes: Changes, sentence: str) -> None:
    night()
    for _ in range(3):
        assert night(changes) == (1, [difference(sentence), HINT])
    assert night() == (0, [])


def test_other_file_system_on_the_same_device_is_red(night: Night) -> None:
    """Another image with another block size on the same loop device: id and size of statfs are others."""
    night()
    code, problems = night({"machine.statfs": "1111111111111111 163840 1024"})
    assert (code, problems) == (
        1,
        [
            difference(
                "id of the file system of scratch 1111111111111111 instead of 62875bc31a9c14cd "
                "(partition default, local to ws1)"
            ),
            difference(
                "size of the file system of scratch 167772160 bytes instead of 270553174016 bytes "
                "(partition default, local to ws1)"
            ),
            HINT,
        ],
    )


@pytest.mark.parametrize(
    ("kernel_type", "before", "after", "is_red"),
    [
        # XFS and NFS: what statfs calls the id is a number of the device or of nothing.
        ("xfs", {"statfs": "fd03 9 4096"}, {"statfs": "fd04 9 4096"}, False),
        ("xfs", {"file_system_uuid": "1-2"}, {"file_system_uuid": "3-4"}, True),
        ("nfs4", {"statfs": "0 9 4096"}, {"statfs": "0 8 4096"}, False),
        ("nfs4", {"nfs_volume": "8f3c:0"}, {"nfs_volume": "9a1d:0"}, True),
        # A pool: its size is what other file systems leave.
        ("zfs", {"statfs": "aa 9 4096"}, {"statfs": "aa 8 4096"}, False),
        ("lustre", {"statfs": "5 9 4096"}, {"statfs": "6 8 4096"}, False),
        # In memory: another one while the machine runs; after a restart there is always another one.
        ("tmpfs", {"statfs": "aa 9 4096"}, {"statfs": "bb 9 4096"}, True),
        ("tmpfs", {"statfs": "aa 9 4096"}, {"statfs": "bb 9 4096", "boot": "second"}, False),
        ("tmpfs", {"statfs": "aa 9 4096"}, {"statfs": "bb 8 4096", "boot": "second"}, True),
        # The root of a container has layers of its own, an overlay elsewhere has not.
        ("overlay", {"mount_options": "/ rw,upperdir=/a"}, {"mount_options": "/ rw,upperdir=/b"}, False),
        ("overlay", {"mount_options": "/s rw,upperdir=/a"}, {"mount_options": "/s rw,upperdir=/b"}, True),
        ("nfs4", {"mount_options": "/s rw,clientaddr=1"}, {"mount_options": "/s rw,clientaddr=2"}, False),
    ],
)
def test_identity_of_a_file_system_is_what_a_restart_keeps(
    night: Night, kernel_type: str, before: Changes, after: Changes, is_red: bool
) -> None:
    def facts_of(machine: Changes) -> dict[str, Any]:
        return {"scratch_file_system.type": kernel_type, **{f"machine.{name}": text for name, text in machine.items()}}

    night(facts_of(before))
    code, _ = night(facts_of({**before, **after}))
    assert code == is_red


def test_fact_that_is_not_recorded_any_more_is_red(night: Night) -> None:
    """A node without `nice` or `env`; later sessions are compared with the last one that recorded it."""
    night()
    for _ in range(2):
        code, problems = night({"machine.nice": None, "program.variables": None})
        assert (code, problems) == (
            1,
            [
                difference("nice value not recorded instead of 0 (partition default)"),
                difference(
                    "environment variables not recorded instead of OMPI_MCA_rmaps_base_oversubscribe=1 "
                    "(partition default, stack gnu)"
                ),
                HINT,
            ],
        )
    assert night() == (0, [])
    assert night({"machine.nice": "1"})[0] == 1


def test_facts_of_an_earlier_release_are_not_missed(night: Night) -> None:
    """A fact that no session recorded before is recorded from now on."""
    old = {"machine.nice": None, "machine.preload": None, "program.variables": None}
    assert night(old) == (0, [])
    assert night() == (0, [])
    assert night({"machine.nice": "19"})[0] == 1


def test_upgrade_of_a_stack_or_program_is_no_difference(night: Night) -> None:
    """Another version of a part, or of the program, has another checksum; the variables are compared nevertheless."""
    night()
    newer = {"parts": [{"name": "openmpi", "version": "4.1.5"}, {"name": "hdf5", "version": "1.14.6"}]}
    other = {"program.sha256": "f" * 64, "program.library_checksums": {"/opt/lib/libmpi.so.41": "e" * 64}}
    assert night(other, stack=newer) == (0, [])
    assert night({**other, "program.sha256": "e" * 64}, stack=newer, version="4.1.0") == (0, [])
    assert night({**other, "program.variables:OMPI_MCA_io": "ompio"}, stack=newer, version="4.1.0")[0] == 1
    assert night(other, stack=newer, version="4.1.0")[0] == 1


def test_difference_is_accepted_until_the_next_one(
    night: Night, history: History, cli: Callable[..., CliResult]
) -> None:
    night()
    night({"machine.nice": "19", "program.variables:OMPI_MCA_io": "romio321"})
    listed = cli("review", "plan", "--system", "local")
    assert listed.exit_code == 1
    assert listed.stdout == (
        "nice value 19 instead of 0 (partition default)\n"
        "environment variables OMPI_MCA_io=romio321 instead of none (partition default, stack gnu)\n"
        "Accept this with --reason TEXT.\n"
    )
    assert cli("review", "plan", "--system", "local", "--suite", "smoke").exit_code == 0
    done = cli("review", "plan", "--system", "local", "--reason", "ROMIO is wanted", "--by", "A. Reviewer")
    assert done.exit_code == 0
    (decision,) = reviews.load_plan_decisions("local")
    assert (decision.suite, decision.lost, len(decision.facts)) == (None, (), 2)
    assert cli("review", "plan", "--system", "local").exit_code == 0
    new = {"machine.nice": "19", "program.variables:OMPI_MCA_io": "romio321"}
    assert night(new) == (0, [])
    # The old value is now another one.
    assert night({"program.variables:OMPI_MCA_io": "romio321"}) == (
        1,
        [difference("nice value 0 instead of 19 (partition default)"), HINT],
    )
    assert night(new) == (0, [])


def test_killed_session_accepts_nothing(night: Night) -> None:
    night()
    night({"machine.nice": "19"}, assessed=False)
    assert night({"machine.nice": "19"})[0] == 1


def test_session_that_differs_for_long_is_not_accepted_by_itself(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_comparison, "_SESSIONS", 2)
    night()
    assert [night({"machine.nice": "19"})[0] for _ in range(4)] == [1, 1, 1, 1]


def test_experiments_change_facts_on_purpose(night: Night) -> None:
    """They are no basis of a comparison."""
    night()
    experiment = ExperimentFacts(title="t", command="c")
    night({"machine.nice": "19"}, session_facts=SessionFacts(iowatch="0.1.0", experiment=experiment))
    assert night() == (0, [])
    assert night({"machine.nice": "19"})[0] == 1


def test_sessions_of_all_suites_are_compared(night: Night) -> None:
    night(suite="smoke")
    assert night({"machine.nice": "19"}, suite="nightly")[0] == 1


def test_same_difference_of_many_runs_is_one_sentence(night: Night) -> None:
    night(*[{}] * 5)
    assert night(*[{"machine.cores": "1"}] * 5) == (
        1,
        [difference("processors in the affinity mask 1 instead of 2 (partition default, host ws1, 5 runs)"), HINT],
    )


def test_fact_that_varies_from_run_to_run_is_not_compared(night: Night) -> None:
    """A variable with the number of the job."""
    night({"program.variables:UCX_LOG_FILE": "/tmp/1"}, {"program.variables:UCX_LOG_FILE": "/tmp/2"})
    second = ({"program.variables:UCX_LOG_FILE": "/tmp/3"}, {"program.variables:UCX_LOG_FILE": "/tmp/4"})
    assert night(*second) == (0, [])
    # But a change within a session is one.
    assert night(second[0], {**second[1], "machine.nice": "5"})[0] == 1


QUEUE = {"reframe.settings": {"scheduler": "slurm"}, "reframe.launcher": "srun"}


def node(name: str, kernel: str = "1", cores: str = "64") -> dict[str, Any]:
    return {**QUEUE, "machine.host": name, "machine.kernel": kernel, "machine.cores": cores}


def test_changing_nodes_of_a_queue_do_not_differ(night: Night) -> None:
    """A cluster of which each session gets other nodes."""
    for number in range(6):
        assert night(node(f"n{number}"), node(f"n{number + 1}")) == (0, [])


def test_disks_of_nodes_are_compared_on_their_node(night: Night) -> None:
    """Each node has a disk of its own, of any size; a volume of NFS is the same on all."""

    def disk(name: str, number: str) -> dict[str, Any]:
        return {**node(name), "machine.statfs": f"{number} 9 4096"}

    night(disk("n1", "aa"))
    assert night(disk("n2", "bb")) == (0, [])
    assert night(disk("n3", "cc")) == (0, [])
    assert night(disk("n1", "dd"))[0] == 1
    volume = {"scratch_file_system.type": "nfs4", "machine.nfs_volume": "8f3c:0"}
    night({**node("n4"), **volume})
    assert night({**node("n5"), **volume, "machine.nfs_volume": "9a1d:0"})[0] == 1


def test_nodes_that_are_upgraded_one_by_one_do_not_alternate(night: Night, cli: Callable[..., CliResult]) -> None:
    """The launcher of the new image is accepted once; nodes with the old image are as they were."""
    old, new = ({"machine.launcher": f"/usr/bin/srun, SHA-256 {digit * 64}"} for digit in "12")
    night({**node("n1"), **old}, {**node("n2"), **old})
    assert night({**node("n1"), **new})[0] == 1
    assert cli("review", "plan", "--system", "local", "--reason", "upgrade", "--by", "A").exit_code == 0
    for name, image in (("n2", old), ("n1", new), ("n2", old), ("n2", new), ("n3", new)):
        assert night({**node(name), **image}) == (0, []), name


def test_nodes_of_an_allocation_of_flux_do_not_differ(night: Night) -> None:
    """ReFrame's scheduler is the local one there."""
    flux = {"reframe.launcher": "flux run -n 4"}
    night({**flux, "machine.host": "n1"})
    assert night({**flux, "machine.host": "n2"}) == (0, [])


def test_node_that_differs_from_all_others_is_red_until_it_is_accepted(
    night: Night, cli: Callable[..., CliResult]
) -> None:
    """A node with other cores or another kernel; one decision is for all nodes, which are upgraded one by one."""
    night(node("n1"))
    night(node("n2"))
    assert night(node("n3", cores="32")) == (
        1,
        [
            difference("processors in the affinity mask 32 instead of 64 (partition default, host n3, run ior:case0)"),
            HINT,
        ],
    )
    assert night(node("n1", kernel="2"))[1] == [difference("kernel 2 instead of 1 (partition default, host n1)"), HINT]
    assert cli("review", "plan", "--system", "local", "--reason", "upgrade", "--by", "A").exit_code == 0
    assert night(node("n2", kernel="2")) == (0, [])
    assert night(node("n1", kernel="2")) == (0, [])
    assert night(node("n9", kernel="2")) == (0, [])
    assert night(node("n3", kernel="2", cores="32")) == (0, [])
    assert night(node("n1", kernel="1"))[0] == 1


def test_site_says_which_facts_may_vary(night: Night, tmp_path: Path) -> None:
    path = tmp_path / "systems" / "local" / "system.yaml"
    path.parent.mkdir(parents=True)
    text = "name: local\ntitle: t\nscratch: /scratch\nfacts: {may_vary: [host, 'variables:UCX_*']}\n"
    path.write_text(text)
    night()
    assert night({"machine.host": "ws3", "program.variables:UCX_TLS": "tcp"}) == (0, [])
    assert night({"program.variables:OMPI_MCA_io": "ompio"})[0] == 1
    for entry, message in (("hosts", "no fact of runs is called 'hosts'"), ("variables:", "names no item")):
        path.write_text(text.replace("host,", f"'{entry}',") + "# \n")
        with pytest.raises(InputError, match=message):
            load_system("local")


def test_damaged_file_of_decisions_accepts_nothing(night: Night) -> None:
    night()
    path = reviews.review_file_path("local")
    path.parent.mkdir(parents=True)
    path.write_text("system: [\n")
    assert night({"machine.nice": "19"})[0] == 1


def test_verdict_is_red_and_keeps_the_differences(night: Night, history: History) -> None:
    """Pages and notices read the problems of the session."""
    night()
    night({"machine.nice": "19"}, assessed=False)
    verdict = assess_session(history, SessionSummary("session-2"))
    assert (verdict.exit_code, verdict.problems) == (
        1,
        (difference("nice value 19 instead of 0 (partition default)"), HINT),
    )
    facts = history.session("session-2").facts
    assert facts.problems == verdict.problems
    assert facts.fact_differences == (FactDifference("nice", "", {"partition": "default"}, "0", "19"),)


def test_commands_have_the_names_under_which_facts_are_read() -> None:
    """What no fact reads need not be recorded: every command changes the value of a fact."""
    recorded = {name: f"value of {name}" for name in node_commands()}
    recorded |= {"statfs": "aa 9 4096", "mount_options": "/ rw", "vulnerabilities": "a: b"}
    for name in node_commands():
        is_read = name == "boot"
        for kernel_type in ("ext4", "xfs", "nfs4"):
            document = {"machine": recorded, "scratch_file_system": {"type": kernel_type}}
            without = {**document, "machine": {key: text for key, text in recorded.items() if key != name}}
            is_read = is_read or any(fact.read(document) != fact.read(without) for fact in COMPARED_FACTS.values())
        assert is_read, name


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "expected 'lost', the results that are not expected any more, or 'facts'"),
        (
            {"lost": [{"partition": "p", "stack": "s", "run": "r", "results": ["write bandwidth"]}]},
            "'lost' needs 'suite'",
        ),
    ],
)
def test_decision_on_the_plan_accepts_results_of_a_suite_or_facts(
    night: Night, entry: dict[str, Any], message: str
) -> None:
    common = {"by": "A", "reason": "r", "date": utc_now().replace(microsecond=0)}
    with pytest.raises(InputError, match=message):
        reviews.add_plan_decision("local", {**common, **entry})
