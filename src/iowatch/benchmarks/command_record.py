"""The record that a job prints after the output of a command, and the script that prints it.

    iowatch-command/1 compress              before the program starts
    …                                       its output, as it prints it
    definition {"case":{…},"metrics":[…]}   one line of JSON
    times 1764556800.123456 1764556802.654321 0     start and end in epoch seconds, exit status
    stdout 1234 .SGVsbG8…                   length in bytes, and the last mebibyte in base64
    stderr 0 .
    file 0 .
    end 2f1c…                               SHA-256 of these lines from `definition` on

The record contains all that a result needs, so that an output is read as in its session, wherever it is. Its digest
shows whether a line was changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# Name of the script, and of the definition, in the directory of the job.
SCRIPT_FILE, DEFINITION_FILE = "iowatch-command.sh", "iowatch-command.json"
FORMAT = "iowatch-command/1"
# Bytes of each text that a record keeps: its end. A line of the parsers has at most 16 MiB.
TEXT_BYTES = 1 << 20

# Words: `prepare` and the words of a command; or `run`, the command's name, the result file of the program or an empty
# word, the program as it is searched on PATH, and the words that start it, which may be those of a tool around it. Only
# the first rank prints to the standard output; the others, which start with it, print to the standard error. Pipes give
# the program's output to the job as it is printed, so that a program that does not end leaves what it has printed.
SCRIPT = f"""\
#!/bin/bash
mode=$1; shift
rank=${{OMPI_COMM_WORLD_RANK:-${{PMIX_RANK:-${{PMI_RANK:-${{SLURM_PROCID:-0}}}}}}}}
if [ "$mode" = prepare ]; then
  [ "$rank" = 0 ] || exit 0
  exec "$@"
fi
name=$1 file=$2 program=$3; shift 3
[ "$rank" = 0 ] || exec "$@" < /dev/null >&2
work=iowatch-command.d
rm -rf "$work"; mkdir "$work"
echo "{FORMAT} $name"
if command -v "$program" > /dev/null; then
  {{
    {{
      begin=${{EPOCHREALTIME:-$(date +%s.%N)}}
      "$@" < /dev/null
      status=$? end=${{EPOCHREALTIME:-$(date +%s.%N)}}
      echo "times ${{begin/,/.}} ${{end/,/.}} $status" > "$work/times"
    }} 2>&3 | tee "$work/stdout"
  }} 3>&1 1>&4 4>&- | tee "$work/stderr" >&2
else
  echo "missing $PATH" > "$work/times"
fi 4>&1
text() {{ printf '%s %s .' "$1" "$(wc -c < "$2")"; tail -c {TEXT_BYTES} "$2" | base64 -w 0; echo; }}
touch "$work/stdout" "$work/stderr" "$work/file"
[ -z "$file" ] || ! [ -f "$file" ] || cp -- "$file" "$work/file"
{{
  printf 'definition '; cat {DEFINITION_FILE}
  cat "$work/times"
  text stdout "$work/stdout"; text stderr "$work/stderr"; text file "$work/file"
}} > "$work/record"
echo
cat "$work/record"
echo "end $(sha256sum < "$work/record" | cut -d ' ' -f 1)"
rm -rf "$work"
# The record has the exit status; a launcher would add its own words about it.
exit 0
"""

_HEAD = re.compile(rf"{re.escape(FORMAT)} \S{{1,80}}")
_TIMES = re.compile(r"times (\d{1,12}\.\d{1,9}) (\d{1,12}\.\d{1,9}) (\d{1,3})")
_TEXT = re.compile(r"(stdout|stderr|file) (\d{1,15}) \.([A-Za-z0-9+/=]*)")
_END = re.compile(r"end ([0-9a-f]{64})")
# From `definition` to `end`; an output with more such lines was not printed by the script.
_RECORD_LINES = 6
_BEGINNINGS = ("definition ", "times ", "missing ", "stdout ", "stderr ", "file ", "end ")


class RecordError(ValueError):
    """A record that is incomplete or was changed."""


@dataclass(frozen=True)
class RecordedText:
    """A text that the program wrote.

    Attributes:
        text: its last mebibyte at most.
        size_bytes: of all of it.
    """

    text: str
    size_bytes: int


@dataclass(frozen=True)
class CommandRecord:
    """What one start of a command left.

    Attributes:
        definition: what the case asked for (`iowatch.benchmarks.command`).
        seconds: wall time of the program; None if it was not on PATH.
        status: its exit status; None likewise.
        search_path: of a program that was not on PATH, else None.
        texts: by name: `stdout`, `stderr`, `file`.
    """

    definition: dict[str, Any]
    seconds: float | None
    status: int | None
    search_path: str | None
    texts: dict[str, RecordedText]


@dataclass
class RecordLines:
    """The lines of an output that belong to its record.

    Attributes:
        heads: number of lines with which a record begins.
        record: its lines after the output of the program.
        is_complete: whether its last line was there.
    """

    heads: int = 0
    record: list[str] = field(default_factory=list)
    is_complete: bool = False

    def add(self, line: str) -> None:
        """Take a line, if it can belong to the record."""
        line = line.rstrip("\r")
        if _HEAD.fullmatch(line):
            self.heads += 1
            self.record.clear()
            self.is_complete = False
        elif line.startswith("definition {"):
            # The program may have printed such a line, too: the last one counts.
            self.record[:] = [line]
            self.is_complete = False
        elif 0 < len(self.record) < _RECORD_LINES and not self.is_complete and line.startswith(_BEGINNINGS):
            self.record.append(line)
            self.is_complete = line.startswith("end ")


def parse_record(lines: Iterable[str]) -> CommandRecord:
    """Return the record of its lines.

    Raises:
        RecordError: a line is missing, or was changed.
    """
    *body, last = lines or [""]
    end = _END.fullmatch(last)
    if end is None or len(body) != _RECORD_LINES - 1:
        raise RecordError("the record after the output is incomplete")
    text = "".join(f"{line}\n" for line in body)
    if hashlib.sha256(text.encode("latin-1", "replace")).hexdigest() != end[1]:
        raise RecordError("the record after the output was changed: it does not agree with its digest")
    try:
        definition = json.loads(body[0].removeprefix("definition "))
    except ValueError as error:
        raise RecordError(f"the definition in the record is not JSON: {error}") from None
    texts: dict[str, RecordedText] = {}
    for line in body[2:]:
        match = _TEXT.fullmatch(line)
        if match is None:
            raise RecordError("a text of the record is damaged")
        texts[match[1]] = RecordedText(_decoded(match[3]), int(match[2]))
    if body[1].startswith("missing "):
        return CommandRecord(definition, None, None, body[1].removeprefix("missing "), texts)
    times = _TIMES.fullmatch(body[1])
    if times is None:
        raise RecordError("the program did not end: the record has no times")
    return CommandRecord(definition, float(times[2]) - float(times[1]), int(times[3]), None, texts)


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise RecordError("a text of the record is damaged") from None
