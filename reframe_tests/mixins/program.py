"""What ran: the program and its libraries are those of the stack, and the output is that of this run."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import run_after, run_before

from iowatch.core import InputError, Output
from iowatch.site import Stack, program, stack_from_json

_FACTS_FILE = "iowatch.program"


class ProgramMixin(rfm.RegressionTestPlugin):
    """`program_facts` of a finished run, and `other_run_reasons()`: why it is not what was asked.

    The check defines `benchmark` and `case`. Needs SuiteMixin, ScratchMixin and StackMixin.
    """

    #: Version of a program that was built from the checkout.
    built_version: str | None = None

    @run_after("setup")
    def choose_run_id(self) -> None:
        self.run_id = secrets.token_hex(8)

    @run_before("run")
    def identify_program(self) -> None:
        self.prerun_cmds = [*self.prerun_cmds, *program.program_commands(self.program, _FACTS_FILE)]

    @property
    def program_facts(self) -> program.ProgramFacts:
        """Facts that the job recorded; empty if it did not start."""
        path = Path(self.stagedir) / _FACTS_FILE
        return program.parse_program_facts(path.read_text(errors="replace") if path.is_file() else "")

    def described_stack(self) -> Stack | None:
        """The stack of the run; None where the environment has no stack.json that can be read."""
        try:
            return stack_from_json(self.stack_document(), "stack.json")
        except InputError:
            return None

    def other_run_reasons(self, outputs: list[Output], started: float | None, ended: float | None) -> Iterator[str]:
        """Reasons why outputs are not of this run, or of other programs than the stack's."""
        facts, stack, tool = self.program_facts, self.described_stack(), self.case.tool
        used = program.used_parts(self.case.requires)
        yield from program.program_mismatches(stack, tool.package, self.program, facts, self._own_checksums(), used)
        part = stack.part(tool.package) if stack and tool.package and "/" not in self.program else None
        expected = part.version if part else self.built_version
        origin = program.RunOrigin(
            self.run_id if tool.run_id("") else None,
            str(self.scratch_directory),
            started,
            ended,
            frozenset(filter(None, (facts.host, *self.job_nodes()))),
        )
        for output in outputs:
            yield from program.origin_mismatches(output, origin, facts.zone)
            yield from program.version_mismatches(stack, output, expected, used)

    def _own_checksums(self) -> dict[str, str]:
        """SHA-256 of a program that was built from the checkout, as its build recorded it."""
        recorded = Path(f"{self.program}.sha256")
        words = recorded.read_text(encoding="utf-8").split() if "/" in self.program and recorded.is_file() else []
        return {self.program: words[0]} if words else {}
