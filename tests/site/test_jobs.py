"""Job states from mock-ups of the schedulers' programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from iowatch.site import schedulers
from iowatch.site.schedulers import earlier_starts, job_state, query_job

# Slurm 22.05, shortened: cancelled while it waited for a drained node; beyond its time limit.
WAITED = (
    "JobId=5 JobName=x JobState=CANCELLED Reason=ReqNodeNotAvail,_UnavailableNodes:n1 Dependency=(null) "
    "RunTime=00:00:00 TimeLimit=00:01:00 NodeList= NumNodes=1"
)
SLOW = (
    "JobId=5 JobName=x JobState=TIMEOUT Reason=TimeLimit RunTime=00:01:09 TimeLimit=00:01:00 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2] BatchHost=n1"
)
# PBS Professional Reference Guide 2022.1, "qstat": a wrapped comment; -29 is a job beyond its walltime.
PBS = """Job Id: 5.server
    Job_Name = x
    resources_used.walltime = 00:01:09
    job_state = F
    Resource_List.walltime = 00:01:00
    comment = Job run at Mon Jan 01 at 02:00 on (n1:ncpus=1) and exceeded resource w
\talltime
    Exit_status = -29
"""


def put_programs_on_path(place: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """Put only these programs on PATH; each prints its text, or fails if it has none."""
    for name, text in programs.items():
        (place / f"{name}.txt").write_text(text)
        (place / name).write_text(f"#!/bin/sh\n[ -s {place}/{name}.txt ] && /bin/cat {place}/{name}.txt\n")
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(place))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (
            WAITED,
            "job 5: state CANCELLED, reason ReqNodeNotAvail, UnavailableNodes:n1, ran 00:00:00, time limit 00:01:00",
        ),
        (SLOW, "job 5: state TIMEOUT, reason TimeLimit, ran 00:01:09, time limit 00:01:00, nodes n[1-2]"),
    ],
)
def test_slurm_job_state_without_accounting(
    text: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_programs_on_path(tmp_path, monkeypatch, scontrol=text)
    assert job_state("squeue", "5") == state


def test_last_state_of_a_job_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured on a cluster whose node n1 lost its power: the others still ended the job."""
    ending = SLOW.replace("JobState=TIMEOUT Reason=TimeLimit", "JobState=COMPLETING Reason=NodeDown")
    assert ending != SLOW
    put_programs_on_path(tmp_path, monkeypatch, scontrol=ending)
    monkeypatch.setattr(schedulers, "_ENDING_POLL_S", 0.0)
    answers: list[dict[str, str]] = []

    def query(scheduler: str, job: str) -> dict[str, str]:
        if len(answers) == 3:
            (tmp_path / "scontrol.txt").write_text(SLOW)
        answers.append(query_job(scheduler, job))
        return answers[-1]

    monkeypatch.setattr(schedulers, "query_job", query)
    assert job_state("squeue", "5").startswith("job 5: state TIMEOUT, reason TimeLimit")
    assert [answer["state"] for answer in answers] == ["COMPLETING"] * 3 + ["TIMEOUT"]


def test_node_that_is_down_is_named_although_its_job_is_still_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes of the job are known to accounting only; n1 is one that the ending job does not list."""
    ending = SLOW.replace("JobState=TIMEOUT Reason=TimeLimit", "JobState=COMPLETING Reason=NodeDown")
    put_programs_on_path(
        tmp_path, monkeypatch, scontrol=ending, sacct="NODE_FAIL|n[1-4]|\n", sinfo="n1 down*\nn2 idle\n"
    )
    monkeypatch.setattr(schedulers, "_ENDING_LIMIT_S", 0.0)
    assert job_state("squeue", "5").endswith("nodes n[1-2], failed node n1")


def test_slurm_job_state_from_accounting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_programs_on_path(
        tmp_path, monkeypatch, scontrol="", sacct="CANCELLED by 0|None|00:00:00|00:01:00|None assigned\n"
    )
    assert job_state("slurm", "5") == "job 5: state CANCELLED by 0, ran 00:00:00, time limit 00:01:00"


def test_requeued_job_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_programs_on_path(tmp_path, monkeypatch, scontrol=SLOW.replace("RunTime", "Requeue=1 Restarts=2 RunTime"))
    assert job_state("squeue", "5").endswith("nodes n[1-2], requeued 2")


def test_limit_of_the_time_in_the_queue_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_programs_on_path(
        tmp_path, monkeypatch, scontrol=WAITED.replace("ReqNodeNotAvail,_UnavailableNodes:n1", "Resources")
    )
    assert job_state("squeue", "5", 90.0) == (
        "job 5: cancelled by iowatch after 90 minutes in the queue (queue_minutes); the scheduler's reason: Resources"
    )


@pytest.mark.parametrize("scontrol", ["", WAITED.replace("Reason=ReqNodeNotAvail,_UnavailableNodes:n1 ", "")])
def test_limit_of_the_time_in_the_queue_is_named_without_the_schedulers_reason(
    scontrol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler no longer knows the job, or gives no reason."""
    put_programs_on_path(tmp_path, monkeypatch, scontrol=scontrol)
    assert job_state("squeue", "5", 90.0) == (
        "job 5: cancelled by iowatch after 90 minutes in the queue (queue_minutes); "
        "the scheduler's reason: not reported"
    )


def test_pbs_job_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_programs_on_path(tmp_path, monkeypatch, qstat=PBS)
    assert job_state("pbs", "5.server") == (
        "job 5.server: state F, reason Job run at Mon Jan 01 at 02:00 on (n1:ncpus=1) and exceeded resource "
        "walltime, exit status -29, ran 00:01:09, time limit 00:01:00"
    )


@pytest.mark.parametrize(
    ("scheduler", "job"), [("slurm", "5"), ("slurm", None), ("local", "5"), ("flux", "5"), ("new", "5")]
)
def test_job_state_without_scheduler_programs_is_empty(
    scheduler: str, job: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_state(scheduler, job) == ""


def test_undecodable_bytes_do_not_hide_the_job_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "qstat"
    program.write_text("#!/bin/sh\nprintf ' job_state = F\\n comment = arr\\352t\\351 par le site\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_state("pbs", "5") == "job 5: state F, reason arr\ufffdt\ufffd par le site"


# Slurm with accounting: a job of two nodes that was requeued after n2 failed, and failed again; FailedNode is
# empty where no node did (sacct(1)).
FAILED = (
    "JobId=5 JobName=x JobState=NODE_FAIL Reason=None Requeue=1 Restarts=1 RunTime=00:00:09 TimeLimit=00:10:00 "
    "NodeList=n[1-2] BatchHost=n1"
)
STARTS = "NODE_FAIL|n[1-2]|n2\nNODE_FAIL|n[3-4]|n4\n"


def test_failed_node_and_earlier_start_of_a_requeued_job_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_programs_on_path(tmp_path, monkeypatch, scontrol=FAILED, sacct=STARTS)
    assert earlier_starts("slurm", "5") == ["NODE_FAIL on n[1-2], failed node n2"]
    assert job_state("slurm", "5") == (
        "job 5: state NODE_FAIL, ran 00:00:09, time limit 00:10:00, nodes n[1-2], requeued 1, failed node n4, "
        "earlier start: NODE_FAIL on n[1-2], failed node n2"
    )


def test_earlier_start_is_reported_by_a_slurm_without_failed_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm 22.05 refuses the query: `sacct: error: Invalid field requested: "FailedNode"`, exit code 1."""
    put_programs_on_path(tmp_path, monkeypatch, scontrol=FAILED, sinfo="n1 idle\nn2 idle\nn3 idle\nn4 down*\n")
    answer = "NODE_FAIL|n[1-2]\nNODE_FAIL|n[3-4]\n"
    sacct = tmp_path / "sacct"
    sacct.write_text(f'#!/bin/sh\ncase "$*" in *FailedNode*) exit 1 ;; esac\nprintf "{answer}"\n')
    sacct.chmod(0o755)
    assert earlier_starts("slurm", "5") == ["NODE_FAIL on n[1-2]"]
    assert job_state("slurm", "5").endswith("failed node n4, earlier start: NODE_FAIL on n[1-2]")


def test_failed_node_without_accounting_is_the_one_that_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = "n1 idle\nn2 down*\nn2 down*\n"
    put_programs_on_path(tmp_path, monkeypatch, scontrol=FAILED.replace("Restarts=1", "Restarts=0"), sinfo=down)
    assert job_state("squeue", "5").endswith("nodes n[1-2], failed node n2")
    assert earlier_starts("squeue", "5") == []


@pytest.mark.parametrize(("scheduler", "job"), [("slurm", None), ("pbspro", "5"), ("local", "5")])
def test_earlier_starts_are_known_of_slurm_only(scheduler: str, job: str | None) -> None:
    assert earlier_starts(scheduler, job) == []
