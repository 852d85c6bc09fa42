"""Ingestion: finished cases go from the spool of a session to the history, with their files and their Darshan logs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from iowatch import checks
from iowatch.core import MachineError, Output, UsageError, artefacts
from iowatch.darshan import DarshanReader, add_overhead_result, add_trace_results, keep_darshan_log
from iowatch.store import Artefact, History, RunRecord, StackRecord, damaged_results


def ingest_spool(history: History, directory: Path, reader: DarshanReader | None = None) -> list[checks.SpooledCase]:
    """Move all finished cases from the spool to the history, each in its own transaction.

    Args:
        directory: `var/runs/<session>`.
        reader: reader of Darshan logs [default: a new one per log].

    Raises:
        MachineError: the history cannot be written; the cases that are left stay in the spool.
    """
    ingested: list[checks.SpooledCase] = []
    for case_directory in checks.finished_case_directories(directory):
        case = ingest_case(history, case_directory, reader)
        if case is not None:
            ingested.append(case)
    return ingested


def ingest_case(
    history: History, case_directory: Path, reader: DarshanReader | None = None
) -> checks.SpooledCase | None:
    """Move one finished case from the spool to the history; a damaged case is quarantined, and None is returned."""
    session = case_directory.parents[1].name
    try:
        case = checks.read_spooled_case(case_directory)
        run = make_run_record(session, case_directory, case, reader)
        # An extension may have added results that the spool did not check.
        damaged_results.require_plausible_samples(run)
        history.record_runs(session, [run])
    except (MachineError, UsageError, OSError):
        raise
    except Exception as error:  # no damaged case, whatever error it causes, may block the others
        checks.quarantine(case_directory, session, str(error) or repr(error))
        return None
    checks.remove_spooled_case(case_directory)
    return case


def make_run_record(
    session: str, case_directory: Path, case: checks.SpooledCase, reader: DarshanReader | None
) -> RunRecord:
    """The record of a finished case: its output, with the results of its Darshan logs, and its kept files."""
    logs = [case_directory / name for name in case.files.get("darshan", [])]
    output = _with_trace(checks.spooled_output(case), case, logs, reader)
    for name in case.files.get("overhead", []):  # only if the overhead of tracing was measured
        output = add_overhead_result(output, case_directory / name)
    # The directory is named after case, partition and stack: repeated ingestion has the same fingerprint.
    identity = hashlib.sha256(f"{session}\0{case_directory.name}".encode()).hexdigest()
    return RunRecord(
        name=case.name,
        partition=case.partition,
        stack=StackRecord(case.stack_name, case.stack),
        fingerprint=identity,
        started_at=case.started_at,
        output=output,
        wall_s=case.wall_s,
        facts=case.facts,
        artefacts=_keep_files(case_directory, case),
    )


def _keep_files(case_directory: Path, case: checks.SpooledCase) -> tuple[Artefact, ...]:
    """Copy the files of a case to the store of files; a Darshan log only if the site keeps logs."""
    kept: list[Artefact] = []
    for kind, names in case.files.items():
        for name in names:
            path = case_directory / name
            stored = keep_darshan_log(path) if kind == "darshan" else artefacts.store_artefact(path)
            if stored is not None:
                kept.append(Artefact(kind, name, stored.sha256, stored.size_bytes))
    return tuple(kept)


def _with_trace(output: Output, case: checks.SpooledCase, logs: Sequence[Path], reader: DarshanReader | None) -> Output:
    """The output with the results of its Darshan logs; an extension may use the logs for something else."""
    for extension in checks.EXTENSIONS.values():
        changed = extension.use_logs(output, logs, reader)
        if changed is not None:
            return changed
    is_traced = case.facts.get("tracing") != "none"
    return add_trace_results(output, logs, reader, case.stack, traced=is_traced)
