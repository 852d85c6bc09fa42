"""Outputs of h5bench 1.3 to 1.6: its programs' stdout and CSV, `hdf5_iotest`, and the driver's log."""

from __future__ import annotations

from iowatch.model import Output
from iowatch.parsers import h5bench_csv, h5bench_iotest, h5bench_log
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.h5bench_csv import CsvReader
from iowatch.parsers.h5bench_iotest import IotestReader
from iowatch.parsers.h5bench_log import LogReader
from iowatch.parsers.h5bench_patterns import PatternsReader
from iowatch.parsers.lines import Source
from iowatch.parsers.trouble import Sign

_SIGNS = (
    Sign(r"[Ff]ailed(?: |:|$)|\(\) failed", "h5bench reports an error"),
    Sign(r"Assertion .* failed|: Assertion `", "an assertion failed"),
    Sign(
        r"[Ee]rror with opening|Invalid hyperslab|Unknown (?:read pattern|Parameter|value)",
        "h5bench reports an error",
    ),
    Sign(r"must be at least|requires (?:STRIDE|BLOCK)_SIZE|exceeds maximum", "wrong configuration of h5bench"),
)
# Lines that tell which program wrote.
_TITLES = ("Configuration file: ", "Config loaded from", h5bench_csv.HEADER, h5bench_iotest.CSV_HEADER)
_PATTERN_STARTS = ("Configuration file: ", "===", "Start benchmark: ", "Read data file: ", "Output data file: ")


def _form(line: str) -> str | None:
    """The form of output that a line belongs to; None where it does not say."""
    if line == h5bench_csv.HEADER:
        return "csv"
    if h5bench_log.LINE.fullmatch(line):
        return "log"
    if line.startswith(("Config loaded from", h5bench_iotest.CSV_HEADER, "Wall clock [s]:", "\tsteps=")):
        return "iotest"
    return "patterns" if line.startswith(_PATTERN_STARTS) else None


def parse(source: Source, evidence: Evidence) -> Output:
    """Read an output of h5bench (see `iowatch.parsers.parse`)."""
    draft = Draft("h5bench", _SIGNS)
    table, log, iotest, patterns = CsvReader(), LogReader(), IotestReader(), PatternsReader()
    readers = {"csv": table.read, "log": log.read, "iotest": iotest.read, "patterns": patterns.read}
    lines = draft.lines(source)
    form, read = None, None
    for line in lines:
        if form is None:
            form = _form(line)
            read = readers.get(form or "")
        elif line.startswith(_TITLES) or " h5bench - " in line:
            lines.decided = patterns.full
            if _form(line) != form:
                draft.fail("outputs of different programs are mixed")
        if read is not None:
            read(line)
    if form == "log":
        log.judge(draft)
    elif form is None:
        draft.cut("this is no output of h5bench that holds results")
    else:
        judges = {"csv": table.judge, "iotest": iotest.judge, "patterns": patterns.judge}
        judges[form](draft, evidence)
    if not lines.ended:
        draft.cut("the last line is cut off")
    return draft.close(evidence, lines)
