"""What a scheduler says of a job that brought no result: that it was cancelled, ran out of time, lost its node.

ReFrame passes over some of these ends: with Slurm's `squeue` a job that is gone has ended, whatever ended it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from iowatch.systems.machine import ask

_TIMEOUT_S = 30


@dataclass(frozen=True)
class _Question:
    """A command that describes a job, and what to take from its answer: words for people to patterns."""

    command: tuple[str, ...]
    patterns: Mapping[str, str]


# `scontrol` knows jobs for some minutes after their end (MinJobAge), `sacct` for long where accounts are kept.
_SLURM = (
    _Question(
        ("scontrol", "show", "job", "-o", "{job}"),
        {
            "state": r"\bJobState=(\S+)",
            "reason": r"\bReason=(\S+)",
            "ran": r"\bRunTime=(\S+)",
            "time limit": r"\bTimeLimit=(\S+)",
            "nodes": r"\bNodeList=([^\s(]\S*)",
        },
    ),
    _Question(
        ("sacct", "-n", "-P", "-X", "-j", "{job}", "-o", "State,Reason,Elapsed,Timelimit,NodeList"),
        {
            "state": r"^([^|\n]+)\|",
            "reason": r"^[^|\n]*\|([^|\n]+)",
            "ran": r"^(?:[^|\n]*\|){2}([^|\n]+)",
            "time limit": r"^(?:[^|\n]*\|){3}([^|\n]+)",
            "nodes": r"^(?:[^|\n]*\|){4}([^|\n]+)",
        },
    ),
)
# PBS Professional Reference Guide, "Job Attributes"; a long value goes on after a line break and a tab.
_PBS = (
    _Question(
        ("qstat", "-x", "-f", "{job}"),
        {
            "state": r"^\s*job_state = (\S+)",
            "reason": r"^\s*comment = (.+(?:\n\t.+)*)",
            "exit status": r"^\s*Exit_status = (-?\d+)",
            "ran": r"^\s*resources_used\.walltime = (\S+)",
            "time limit": r"^\s*Resource_List\.walltime = (\S+)",
        },
    ),
)
# By the names of ReFrame's schedulers.
_QUESTIONS = {"slurm": _SLURM, "squeue": _SLURM, "pbs": _PBS, "pbspro": _PBS}


def fate(scheduler: str, job: str | None) -> str:
    """What the scheduler says of a job, in one line; empty where there is nobody to ask or no answer.

    Args:
        scheduler: ReFrame's name of it.
        job: the job's number as the scheduler gave it, or None where it was never submitted.
    """
    for question in _QUESTIONS.get(scheduler, ()) if job else ():
        said = _take(question.patterns, _answer(question.command, str(job)))
        if said:
            return f"job {job}: " + ", ".join(f"{what} {value}" for what, value in said.items())
    return ""


def _answer(command: tuple[str, ...], job: str) -> str:
    """Standard output of the command; empty where it fails: a reason that cannot be had hides no result."""
    return ask(*(word.format(job=job) for word in command), timeout_s=_TIMEOUT_S) or ""


def _take(patterns: Mapping[str, str], text: str) -> dict[str, str]:
    found = {what: re.search(pattern, text, re.MULTILINE) for what, pattern in patterns.items()}
    said = {what: "".join(match.group(1).split("\n\t")).strip() for what, match in found.items() if match}
    # Slurm joins the words of a reason with underscores, and says None where it has none.
    said = {what: value.replace("_", " ") if what == "reason" else value for what, value in said.items()}
    return {what: value for what, value in said.items() if value not in ("", "None", "(null)", "None assigned")}
