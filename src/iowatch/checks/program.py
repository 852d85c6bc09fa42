"""What ran: the program and its libraries are those of the stack, and the output is that of this run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from iowatch.checks.run import ENDED_FILE, STARTED_FILE, CheckedRun, FinishedJob, read_number
from iowatch.core import InputError, Output
from iowatch.site import Stack, program, stack_from_json

# In the stage directory: what the job found out about its program.
FACTS_FILE = "iowatch.program"


def program_facts(stage: Path) -> program.ProgramFacts:
    """Return the facts that a job recorded; empty if it did not start."""
    path = stage / FACTS_FILE
    return program.parse_program_facts(path.read_text(errors="replace") if path.is_file() else "")


def other_run_reasons(run: CheckedRun, job: FinishedJob, outputs: Sequence[Output]) -> Iterator[str]:
    """Yield the reasons why outputs are not of this run, or of other programs than the stack's."""
    facts, stack, tool = program_facts(run.stage), _described_stack(run), run.case.tool
    used_parts = program.used_parts(run.case.requires)
    # What could not be read was not compared.
    yield from facts.unread
    checksums = _checksums_of_build(run.program)
    yield from program.program_mismatches(stack, tool.package, run.program, facts, checksums, used_parts)
    part = None
    if stack and tool.package and "/" not in run.program:
        part = stack.part(tool.package)
    expected_version = part.version if part else run.built_version
    origin = program.RunOrigin(
        run.run_id if tool.run_id("") else None,
        str(run.scratch),
        read_number(run.stage / STARTED_FILE),
        read_number(run.stage / ENDED_FILE),
        frozenset(filter(None, (facts.host, *job.nodes))),
    )
    for output in outputs:
        yield from program.origin_mismatches(output, origin, facts.zone)
        yield from program.version_mismatches(stack, output, expected_version, used_parts)


def _described_stack(run: CheckedRun) -> Stack | None:
    """The stack of the run; None where the environment has no stack.json that can be read."""
    try:
        return stack_from_json(dict(run.stack), "stack.json")
    except InputError:
        return None


def _checksums_of_build(program_path: str) -> dict[str, str]:
    """SHA-256 of a program that was built from the checkout, as its build recorded it."""
    recorded = Path(f"{program_path}.sha256")
    if "/" not in program_path or not recorded.is_file():
        return {}
    words = recorded.read_text(encoding="utf-8").split()
    return {program_path: words[0]} if words else {}
