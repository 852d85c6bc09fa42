"""IOR's JSON (`-O summaryFormat=JSON`), read line by line: `-v` and warnings make it invalid JSON.

Version 3.2 and 3.3 nest the repetitions, later ones do not; no version numbers them. Source: `ior-output.c`.
"""

from __future__ import annotations

import re

from iowatch.parsers.ior_run import OPERATIONS, CommandLine, Row, Run, Summary, is_count

_PAIR = re.compile(r'"([^"]+)" ?: ("[^"]*"|[^",{}\[\]]+)')
_NUMBER = re.compile(r"\d{1,15}\.\d{4}")
_NUMBERS = re.compile(rf"(?:{_NUMBER.pattern} )+")
_UNREAL = re.compile(r"(?:^| )-*(?:inf|nan)")
_SECTION = re.compile(r'"(Parameters|Options|Results|max|summary)": ')
_BEGINNINGS = frozenset(("access", "operation", "Finished"))
_TIMES = ("openTime", "wrRdTime", "closeTime", "totalTime")
_ROW_KEYS = ("access", "bwMiB", "blockKiB", "xferKiB", "iops", "latency", *_TIMES)
# before 3.3
_OLD_ROW_KEYS = tuple(key for key in _ROW_KEYS if key not in ("iops", "latency"))
_PARAMETERS = {
    **{"tasksPerNode": "per_node", "repetitions": "repetitions", "fsync": "fsync"},
    **{"segmentCount": "segments", "transferSize": "transfer", "blockSize": "block"},
}
_SUMMARY = {
    **{"segmentCount": "segments", "blockSize": "block", "transferSize": "transfer", "numTasks": "tasks"},
    **{"tasksPerNode": "per_node", "repetitions": "repetitions"},
}
_FACTS = {"Began": "began", "Machine": "machine", "Path": "path", "apiVersion": "api_version"}


def _half(_value: float) -> float:
    """Half a unit of the last digit: all numbers of rows have four decimals."""
    return 0.00005


class JsonReader:
    """Fills a `Run` from the lines of a JSON output."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._test = run.nobodys
        self._section = ""
        self._object: list[tuple[str, str]] = []
        self._counts: dict[str, int] = {}

    def read(self, line: str) -> None:
        """Take one cleaned line."""
        line = line.strip()
        if line[-1] in "{[" and (section := _SECTION.match(line)) is not None:
            self._close()
            self._section = section[1]
            return
        for key, value in _PAIR.findall(line):
            self._take(key, value[1:-1] if value[0] == '"' else value.rstrip())
        if line.startswith("}"):
            self._close()

    def _take(self, key: str, text: str) -> None:
        if self._object and key not in _BEGINNINGS:
            self._object.append((key, text))
        elif key == "Finished":
            self._close()
            self._run.ends += 1
        elif key in ("access", "operation") and self._section in ("Results", "summary"):
            self._close()
            self._object = [(key, text)]
        elif key == "TestID":
            self._begin_test(text)
        else:
            self._take_head(key, text)

    def _take_head(self, key: str, text: str) -> None:
        if key == "Version":
            self._run.titles += 1
            self._run.version = text
        elif key == "Command line":
            self._run.set_command(CommandLine.read(text))
        elif key in _FACTS:
            self._run.facts.setdefault(_FACTS[key], text)
        elif self._section == "Parameters" and key in _PARAMETERS and is_count(text):
            self._test.set_exact(_PARAMETERS[key], int(text))
        elif self._section == "Options":
            self._test.set_option(key, text)

    def _begin_test(self, number: str) -> None:
        if is_count(number):
            self._section = ""
            self._counts = {}
            self._test = self._run.begin_test(int(number))
            self._test.half = _half

    def finish(self) -> None:
        """All lines were read: what the parameters did not say exactly is missing."""
        for test in self._run.tests.values():
            if not set(_PARAMETERS.values()) <= test.exact.keys():
                test.contradictions.add("Parameters")

    def _close(self) -> None:
        """The end of a row or of one operation's summary."""
        pairs, self._object = self._object, []
        if not pairs:
            return
        if self._section == "summary":
            self._close_summary(dict(pairs))
        elif pairs[0][1] in OPERATIONS:
            self._close_row(pairs)

    def _close_row(self, pairs: list[tuple[str, str]]) -> None:
        operation = pairs[0][1]
        iteration = self._counts.get(operation, 0)
        self._counts[operation] = iteration + 1
        keys, (_, *values) = zip(*pairs, strict=True)
        numbers = "".join([f"{value} " for value in values])
        if _UNREAL.search(numbers):
            self._run.unreal += 1
        elif keys != self._row_keys() or not _NUMBERS.fullmatch(numbers):
            self._run.damaged += 1
        else:
            self._add(operation, iteration, dict(pairs))

    def _add(self, operation: str, iteration: int, values: dict[str, str]) -> None:
        texts = [values.get(key) for key in ("bwMiB", "iops", *_TIMES)]
        row = Row(*(float(t) if t is not None else None for t in texts))  # type: ignore[arg-type]
        if not self._test.add(operation, iteration, row):
            self._run.damaged += 1

    def _row_keys(self) -> tuple[str, ...]:
        return _OLD_ROW_KEYS if (self._run.version or "").startswith("3.2") else _ROW_KEYS

    def _close_summary(self, values: dict[str, str]) -> None:
        numbers = [values.get(key, "") for key in ("bwMaxMIB", "bwMinMIB", "bwMeanMIB")]
        test = values.get("TestID", "")
        if values.get("operation") not in OPERATIONS:
            return
        known = is_count(test) and int(test) in self._run.tests
        if not known or not all(map(_NUMBER.fullmatch, numbers)):
            self._run.damaged += not known
            return
        target = self._run.tests[int(test)]
        target.summaries[values["operation"]] = Summary(
            float(numbers[0]), float(numbers[1]), float(numbers[2]), 0.00005
        )
        for key, name in _SUMMARY.items():
            if is_count(values.get(key, "")):
                target.set_exact(name, int(values[key]))
        if "API" in values:
            target.set_option("api", values["API"])
