"""A session as JUnit XML, as GitLab, Jenkins and GitHub read it: one test case an expected run."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# Only written here, never parsed: nothing of bandit's B405 can happen.
from xml.etree import ElementTree as Xml  # nosec B405

from iowatch.store import ExpectedResult, History, RunRow
from iowatch.verdict import Verdict

# What XML 1.0 (section 2.2) cannot hold, not even escaped; outputs of crashed programs have it.
_UNSAYABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_Key = tuple[str, str, str]


def junit(history: History, verdict: Verdict) -> str:
    """The session of a verdict as one JUnit document.

    A run that was expected and is absent, or came without all of its results, is an error; one that failed is a
    failure, also where it was not expected; cases that this machine cannot run, or the night had no room for,
    are skipped. Every open finding is a failed case of a suite of its own, so that the document is red exactly
    when the verdict is.
    """
    runs = {(run.partition, run.stack, run.name): run for run in history.runs(verdict.session)}
    expected = _metrics(history.expected(verdict.session))
    root = Xml.Element("testsuites", name="iowatch")
    suite = Xml.SubElement(root, "testsuite", name=_said(f"{verdict.suite} on {verdict.system}"))
    absent = {(one.partition, one.stack, one.run): one.reason for one in verdict.absent}
    for key in [*expected, *(key for key, run in runs.items() if key not in expected and run.status != "ok")]:
        _case(suite, key, runs.get(key), absent)
    for trouble in (*verdict.left_out, *verdict.unavailable):
        # Readers take cases of one name for one and the same; "2 cases" can stand there for several reasons.
        case = Xml.SubElement(suite, "testcase", classname=_said(trouble.stack), name=_said(trouble.reason))
        Xml.SubElement(case, "skipped", message=_said(f"{trouble.run}: {trouble.reason}"))
    _count(suite, history.session(verdict.session).started_at, verdict.wall_s)
    _references(root, verdict)
    _findings(root, verdict)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False).join(
        ['<?xml version="1.0" encoding="UTF-8"?>\n', "\n"]
    )


def _metrics(expected: list[ExpectedResult]) -> dict[_Key, list[str]]:
    """What each expected run was to bring, in the order planned."""
    found: dict[_Key, list[str]] = {}
    for item in expected:
        key = item.partition, item.stack, item.run_name
        found.setdefault(key, []).append(f"{item.operation} {item.metric}")
    return found


def _case(suite: Xml.Element, key: _Key, run: RunRow | None, absent: dict[_Key, str]) -> None:
    partition, stack, name = key
    case = Xml.SubElement(suite, "testcase", classname=_said(f"{partition}.{stack}"), name=_said(name))
    case.set("time", f"{(run.wall_s or 0.0) if run else 0.0:.3f}")
    if run is not None and run.status != "ok":
        reason = f"{run.status}: {run.reason or 'no reason given'}"
        Xml.SubElement(case, "failure", type=run.status, message=_said(reason))
    elif key in absent:
        Xml.SubElement(case, "error", type="absent", message=_said(absent[key]))
    elif run is None:
        Xml.SubElement(case, "error", type="absent", message="expected, and nothing came")


def _references(root: Xml.Element, verdict: Verdict) -> None:
    if not verdict.references:
        return
    suite = Xml.SubElement(root, "testsuite", name=_said(f"references of {verdict.system}"))
    for trouble in verdict.references:
        name = f"{trouble.stack} {trouble.run}"
        case = Xml.SubElement(suite, "testcase", classname="references", name=_said(name), time="0.000")
        Xml.SubElement(case, "failure", type="reference", message=_said(trouble.reason))
    _count(suite, None, 0.0)


def _findings(root: Xml.Element, verdict: Verdict) -> None:
    suite = Xml.SubElement(root, "testsuite", name=_said(f"changes on {verdict.system}"))
    for line in verdict.changes:
        name, _, text = line.partition(": ")
        case = Xml.SubElement(suite, "testcase", classname="changes", name=_said(name), time="0.000")
        Xml.SubElement(case, "failure", type="change", message=_said(text))
    _count(suite, None, 0.0)


def _count(suite: Xml.Element, started_at: int | None, wall_s: float) -> None:
    for name, tag in (("errors", "error"), ("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("time", f"{wall_s:.3f}")
    if started_at is not None:
        suite.set("timestamp", f"{datetime.fromtimestamp(started_at, UTC):%Y-%m-%dT%H:%M:%S}")


def _said(text: str) -> str:
    return _UNSAYABLE.sub("�", text)
