"""Commands of a site under ReFrame: one test per case of `suites/command/` (docs/commands.md)."""

import reframe as rfm
from reframe.core.builtins import parameter

from iowatch.checks.base import BenchmarkCheck, entries


@rfm.simple_test
class CommandCheck(BenchmarkCheck):
    """One case of a command, on every stack."""

    benchmark = "command"
    entry = parameter(entries("command"))
