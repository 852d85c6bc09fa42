"""Runs that are traced instead of measured: the base of the extensions that do it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks import CheckedRun, CheckExtension, ExtensionSettings, JobScript

# Time limits added to that of a case while its system calls are traced.
_TRACED = 9
_SCRIPT_FILE = "profile.sh"


class TracingExtension(CheckExtension, ABC):
    """Starts the program under a script, after Darshan's words: `mpirun -np N sh profile.sh env … program …`."""

    measures = False

    @abstractmethod
    def script(self, settings: ExtensionSettings) -> str:
        """The script, which runs its arguments."""

    def options(self, case: SuiteCase, settings: ExtensionSettings) -> Mapping[str, str]:
        """One repetition is enough: it is no measurement."""
        return {"repeat": "1"} if "repeat" in case.tool.options else {}

    def time_limit_s(self, case: SuiteCase, limit_s: float, settings: ExtensionSettings) -> float:
        """A traced run takes several times as long."""
        return limit_s + _TRACED * case.time_limit_s

    def change_command(self, run: CheckedRun, script: JobScript, settings: ExtensionSettings) -> JobScript:
        """Start the program under the script."""
        started_by_script = script.with_command(["sh", _SCRIPT_FILE, *script.command])
        return started_by_script.with_files({_SCRIPT_FILE: self.script(settings)})
