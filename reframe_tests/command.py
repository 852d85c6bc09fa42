"""Commands of a site under ReFrame: one test per case of `suites/command/` (docs/commands.md)."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


def simple_test_with_cases(check):
    """Make a check a test of ReFrame, which warns of one without cases: iowatch itself has no suite of commands."""
    return rfm.simple_test(check) if entries("command") else check


@simple_test_with_cases
class CommandCheck(BenchmarkCheck):
    """One case of a command, on every stack."""

    benchmark = "command"
    entry = parameter(entries("command"))
