"""The interface of check extensions: what a session, or a site, adds to the job of every run without a new check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks.run import CheckedRun, JobScript
from iowatch.core import Output, UsageError, plugins, suggest_name
from iowatch.darshan import DarshanReader

# ExtensionSettings of an extension in the order of a session, as JSON has them.
ExtensionSettings = Mapping[str, Any]


class CheckExtension:
    """Changes the runs of a session whose order switches it on: `extensions: {name: settings}`.

    A subclass overrides what it changes; an object of it at the top level of a capability's `extension.py`, or of a
    plugin, is found by the registry.

    Attributes:
        name: by which orders name it.
        measures: whether its runs have results; otherwise missing results and a missing Darshan log are no failures.
        files: kind to names of files in the stage directory that are kept with the run.
    """

    name: str
    measures: bool = True
    files: Mapping[str, tuple[str, ...]] = {}

    def options(self, case: SuiteCase, settings: ExtensionSettings) -> Mapping[str, str]:
        """Return options of the benchmark that have other values than in the suite."""
        return {}

    def time_limit_s(self, case: SuiteCase, limit_s: float, settings: ExtensionSettings) -> float:
        """Return the time limit of the job.

        Args:
            limit_s: without the extension, seconds.
        """
        return limit_s

    def scheduler_options(self, scheduler: str, settings: ExtensionSettings) -> list[str]:
        """Return further options of the job.

        Args:
            scheduler: ReFrame's name of the scheduler.
        """
        return []

    def change_command(self, run: CheckedRun, script: JobScript, settings: ExtensionSettings) -> JobScript:
        """Return the script with another command for all starts of the program, or further files."""
        return script

    def change_job(self, run: CheckedRun, script: JobScript, settings: ExtensionSettings) -> JobScript:
        """Return the script with other lines before and after the program; the starts are part of it already."""
        return script

    def change_output(self, run: CheckedRun, output: Output, settings: ExtensionSettings) -> Output:
        """Return the validated output of a finished run with other results, facts or status."""
        return output

    def use_logs(self, output: Output, logs: Sequence[Path], reader: DarshanReader | None) -> Output | None:
        """Return the output of a spooled run with what its Darshan logs add; None: it is not a run of this extension.

        The session asks before it adds the results of the logs, which it does only if all extensions return None.
        """
        return None

    def describe(self, facts: Mapping[str, Any], limit: int) -> tuple[str, list[str]] | None:
        """Return a title and lines about a run for people; None if its facts say nothing to this extension.

        Args:
            facts: of the run, as the history keeps them.
            limit: largest number of lines.
        """
        return None

    def facts(self, run: CheckedRun, settings: ExtensionSettings) -> Mapping[str, Any]:
        """Return further facts of a finished run, which the history keeps with it."""
        return {}


EXTENSIONS = plugins.Registry(CheckExtension, (), file="extension")


def find_extension(name: str) -> CheckExtension:
    """Return the extension of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in EXTENSIONS:
        raise UsageError(f"there is no check extension '{name}'", hint=suggest_name(name, [*EXTENSIONS]))
    return EXTENSIONS[name]
