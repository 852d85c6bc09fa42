"""The log of h5bench's driver: what it started and what it thinks of it, but no numbers.

The driver returns 0 whatever happened (without `--abort-on-failure`), and says SUCCESS where a program printed
nothing but `Failed:`; an `ok` here is therefore less than one from the programs' own output.
"""

from __future__ import annotations

import re

from iowatch.parsers.draft import MOST_NAMES, Draft

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} h5bench - (DEBUG|INFO|WARNING|ERROR|CRITICAL) - (.*)")
_STATE = re.compile(r"h5bench \[([^\]]+)\] - (Starting|Complete)")
_SUCCESS = re.compile(r"SUCCESS \(all output files are located at (.*)\)")


_MOST_ERRORS = 4


class LogReader:
    """Follows the driver."""

    def __init__(self) -> None:
        self._started: list[str] = []
        self._completed: list[str] = []
        self._directories: list[str] = []
        self._errors: list[str] = []
        self._ends = 0
        self._starts = 0
        self._damaged = 0

    def read(self, line: str) -> None:
        """Take one cleaned line."""
        match = LINE.fullmatch(line)
        if match is None:
            self._damaged += " h5bench - " in line
            return
        level, text = match[1], match[2]
        if max(map(len, (self._started, self._completed, self._directories))) > MOST_NAMES:
            self._damaged += 1
            return
        state = _STATE.fullmatch(text)
        if state is not None:
            (self._started if state[2] == "Starting" else self._completed).append(state[1])
        elif (success := _SUCCESS.fullmatch(text)) is not None:
            self._directories.append(success[1])
        elif level in ("ERROR", "CRITICAL") and len(self._errors) < _MOST_ERRORS:
            self._errors.append(text)
        self._starts += text == "Starting h5bench Suite"
        self._ends += text == "Finishing h5bench Suite"

    def judge(self, draft: Draft) -> None:
        """Judge the driver's run."""
        draft.facts["benchmarks"] = self._started
        draft.facts["directories"] = self._directories
        for error in self._errors:
            draft.fail(f"the driver reports '{error}'")
        if self._starts > 1 or self._ends > 1:
            draft.fail("more than one driver wrote into this log")
        if self._starts == 0 or self._ends == 0 or self._damaged:
            draft.cut("the driver's log is not whole")
        if self._started != self._completed or len(self._directories) != len(self._started):
            draft.cut("not every benchmark was completed")
        if not self._started:
            draft.cut("no benchmark was started")
