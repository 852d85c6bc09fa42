"""Files that a command reports into: continuous integration publishes them whatever the command ended with.

What an earlier call wrote is removed first, so that yesterday's success is never published for today's failure; and a
command that ends with an error reports that error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from iowatch.core import IowatchError, MachineError, write_atomically

# Forms the text of a file from the message of the error that ended the command.
ErrorReport = Callable[[str], str]


class ReportFiles:
    """The files of one call, which are written once each."""

    def __init__(self, error_reports: Mapping[Path, ErrorReport | None]) -> None:
        self._error_reports = error_reports
        self._written: set[Path] = set()

    def write(self, path: Path, text: str) -> None:
        """Write a file.

        Raises:
            MachineError: it cannot be written.
        """
        write_atomically(path, text)
        self._written.add(path)

    def write_error(self, message: str) -> None:
        """Write the error into each file that has no content yet and has a form for errors."""
        for path, error_report in self._error_reports.items():
            if error_report is None or path in self._written:
                continue
            # The error that ends the command is the one to report, not that it cannot be written here.
            with suppress(MachineError):
                self.write(path, error_report(message))


@contextmanager
def report_files(error_reports: Mapping[Path | None, ErrorReport | None]) -> Iterator[ReportFiles]:
    """Remove the files that an earlier call wrote, and report an error that ends the block.

    Args:
        error_reports: by path how an error is reported; None as the path: an option that is not given; None as the
            form: a picture, which is then absent.
    """
    requested_reports = {path: report for path, report in error_reports.items() if path is not None}
    for path in requested_reports:
        # What cannot be removed cannot be written either, which is reported then: it must not cost the session.
        with suppress(OSError):
            path.unlink(missing_ok=True)
    files = ReportFiles(requested_reports)
    try:
        yield files
    except BaseException as error:
        files.write_error(message_of(error))
        raise


def message_of(error: BaseException) -> str:
    """The message of an error that ends a command, as a file or a notice reports it."""
    if isinstance(error, IowatchError):
        return error.message
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, KeyboardInterrupt | SystemExit | click.Abort):
        return "ended by a signal before it had a result"
    return f"internal error: {type(error).__name__}: {error}"
