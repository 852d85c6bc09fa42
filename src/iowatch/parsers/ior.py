"""Outputs of IOR 3.0 to 4.1: the default text (also with `-v`), JSON and CSV."""

from __future__ import annotations

from iowatch.model import Output
from iowatch.parsers import ior_csv
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.ior_csv import CsvReader
from iowatch.parsers.ior_json import JsonReader
from iowatch.parsers.ior_judge import judge
from iowatch.parsers.ior_run import Run
from iowatch.parsers.ior_text import TextReader
from iowatch.parsers.lines import Source
from iowatch.parsers.trouble import Sign

_SIGNS = (
    Sign(r"[Ii]ncorrect data on", "data check errors"),
    Sign(
        r"WARNING: (?:write|read|pwrite|pread|fsync|close|lseek)\(.*(?:failed|returned EOF)", "I/O calls failed"
    ),
    Sign(r"WARNING: .*partial (?:write|read)\(\)", "I/O calls failed"),
    Sign(r"(?:^|ior )ERROR[: ]|ERROR in aiori", "IOR reports an error"),
    Sign(r"FAILED in TestIoSys|FAILED comparison", "IOR reports an error"),
    Sign(r"[Ii]nvalid (?:option|argument)|[Uu]nrecognized|Error invalid", "wrong use of IOR"),
)
# Lines that only one form of output has.
_TITLES = ("IOR-", "access,bw(MiB/s)", '  "Version"', '"Version"')
_JSON_STARTS = ("{", '"Version"', '"Began"', '"tests"')
_TEXT_STARTS = (
    "IOR-",
    "Began",
    "Command line",
    "Machine",
    "Options:",
    "access    bw",
    "TestID",
    "Summary",
    "Writing output",
)


def _form(line: str) -> str | None:
    """The form of output that a line belongs to; None where it does not say."""
    text = line.lstrip()
    if text.startswith("access,bw(MiB/s)"):
        return "csv"
    if text == "{" or text.startswith(_JSON_STARTS[1:]):
        return "json"
    return "text" if line.startswith(_TEXT_STARTS) else None


def parse(source: Source, evidence: Evidence) -> Output:
    """Read an output of IOR (see `iowatch.parsers.parse`)."""
    draft, run, table = Draft("ior", _SIGNS), Run(), CsvReader()
    document = JsonReader(run)
    readers = {"text": TextReader(run).read, "json": document.read, "csv": table.read}
    lines = draft.lines(source)
    form, read = None, None
    for line in lines:
        if run.titles > 1 or table.headers > 1:
            lines.decided = True
        elif form is None:
            form = _form(line)
            read = readers.get(form or "")
        elif line == "{" and not run.tests and run.titles == 1:
            # version 3.2 prints its title before the document
            form, read = "json", readers["json"]
        elif line.startswith(_TITLES) and _form(line.strip()) != form:
            draft.fail("outputs of different forms are mixed")
        if read is not None:
            read(line)
    if form == "json":
        document.finish()
    if form == "csv":
        ior_csv.judge(draft, table, evidence, lines.ended)
    else:
        judge(draft, run, evidence)
    return draft.close(evidence, lines)
