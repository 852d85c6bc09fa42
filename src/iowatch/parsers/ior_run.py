"""Everything read of one output of IOR, however it was printed, before anything is believed.

Source of all formats: hpc/ior 3.0.1 to 4.1, `ior-output.c` (3.0 and 3.1: `ior.c`), `parse_options.c`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from iowatch.parsers.draft import MOST_NAMES, MOST_ROWS

# Sizes in KiB as the rows repeat them, kept among the options.
ROW_BLOCK, ROW_TRANSFER = "block(KiB)", "xfer(KiB)"

OPERATIONS = ("write", "read")

# Options of one letter that take a value, in any version from 3.0 to 4.1.
_WITH_VALUE = frozenset("aAbdDfGijJlMNoOQstTUX")

# Options spelt out that take no value (`OPTION_FLAG` in `parse_options.c` and `aiori-*.c`); WAYS change how
# bytes are moved, and no other parameter of a case stands for them.
WAYS = frozenset(
    (
        *("mpiio.preallocate", "mpiio.useFileView", "mpiio.useStridedDatatype"),
        *("ncmpi.preallocate", "ncmpi.useFileView", "ncmpi.useStridedDatatype"),
        *("posix.rangelocks", "posix.lustre.ignorelocks", "posix.gpfs.createsharing", "posix.gpfs.hintaccess"),
        *("posix.gpfs.finegrainreadsharing", "posix.gpfs.finegrainwritesharing"),
        *("mmap.madv_dont_need", "mmap.madv_pattern", "cephfs.olazy"),
    )
)
_FLAGS = WAYS | {
    *("dryRun", "collective", "warningAsErrors", "gpuDirect", "posix.odirect", "hdfs.odirect", "ime.odirect"),
    *("hdf5.showHints", "hdf5.collectiveMetadata", "hdf5.individualDataSets", "hdf5.noFill"),
    *("mpiio.showHints", "ncmpi.showHints", "dfs.destroy", "dummy.delay-only-rank0"),
}
# Options spelt out that take one.
_VALUED = {
    *("dataPacketType", "randomPrefill", "random-offset-seed", "allocateBufferOnGPU"),
    *("posix.beegfs.NumTargets", "posix.beegfs.ChunkSize", "posix.gpfs.releasetoken"),
    *("posix.lustre.stripecount", "posix.lustre.stripesize", "posix.lustre.startost"),
    *("mpiio.hintsFileName", "hdf5.hintsFileName", "ncmpi.hintsFileName", "hdf5.setAlignment"),
    *("aio.max-pending", "aio.granularity", "dummy.delay-create", "dummy.delay-close", "dummy.delay-sync"),
    *("dummy.delay-xfer", "hdfs.user", "hdfs.name_node", "hdfs.replicas", "hdfs.block_size"),
}
# What a test does, where directives say it.
_PHASES = {"writeFile", "readFile", "checkWrite", "checkRead"}
_WORDS = _FLAGS | _VALUED | _PHASES
_BACKENDS = {name.partition(".")[0] for name in _WORDS if "." in name}
# A script with more is none; the limit bounds memory.
_MOST_TESTS = 10_000
_OUTPUT_DIRECTIVES = {"", "summaryFile", "summaryFormat", "saveRankPerformanceDetailsCSV", "savePerOpDataCSV"}


class Row(NamedTuple):
    """One repetition in MiB/s, 1/s (None before 3.3) and seconds."""

    bandwidth: float
    rate: float | None
    open_time: float
    transfer_time: float
    close_time: float
    time: float


class Summary(NamedTuple):
    """What the summary says about the bandwidth of one operation, in MiB/s; `half`: of its last digit."""

    max: float
    min: float
    mean: float
    half: float


@dataclass
class CommandLine:
    """IOR's own options, as far as the printed command line shows them.

    Attributes:
        letters: option of one letter -> its value.
        words: option spelt out -> its value.
        damaged: whether there is something that is no option.
    """

    letters: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    damaged: bool = False

    @classmethod
    def read(cls, text: str) -> CommandLine:
        """Read `ior -a MPIIO -wk -t 1m …`; what cannot be understood is left out."""
        line = cls()
        tokens = iter(text.split()[1:])
        for token in tokens:
            if not token.startswith("-") or not token.isascii():
                line.damaged = True
            elif token.startswith("--"):
                name, equals, value = token[2:].partition("=")
                line.words[name] = value if equals or name in _FLAGS else next(tokens, "")
            else:
                line._read_letters(token[1:], tokens)
        # either a script describes the tests or the command line does
        line.damaged |= line.scripted and bool({"t", "b", "o"} & line.letters.keys())
        return line

    def _read_letters(self, letters: str, rest: Iterator[str]) -> None:
        for position, letter in enumerate(letters):
            if letter in _WITH_VALUE:
                value = letters[position + 1 :].lstrip("=") or next(rest, "")
                old = self.letters.get(letter)
                self.letters[letter] = f"{old},{value}" if letter == "O" and old else value
                return
            self.letters[letter] = ""

    @property
    def scripted(self) -> bool:
        """Whether options come from a script that the output does not show."""
        return "f" in self.letters

    def directive(self, name: str) -> str | None:
        """Value of one `-O name=value,…`."""
        pairs = (pair.partition("=") for pair in self.letters.get("O", "").split(","))
        return next((value for key, _, value in pairs if key == name), None)

    def knows_words(self, api: str) -> bool:
        """Whether IOR has every option that is spelt out; backends not listed here have those of their name."""
        others = (name.partition(".") for name in self.words.keys() - _WORDS)
        return all(dot and name not in _BACKENDS and name.upper() == api for name, dot, _ in others)

    @property
    def plain(self) -> bool:
        """Whether all parameters of the test were given by letters."""
        names = {pair.partition("=")[0] for pair in self.letters.get("O", "").split(",")}
        return not self.scripted and names <= _OUTPUT_DIRECTIVES

    def operations(self) -> set[str]:
        """The operations that must be timed: those named, or both where none was."""
        if self.scripted or any(self.directive(name) for name in _PHASES) or _PHASES & self.words.keys():
            return set()
        if not set("wrWR") & set(self.letters):
            return set(OPERATIONS)
        return {name for name in OPERATIONS if name[0] in self.letters}


def half_in_table(value: float) -> float:
    """Half a unit of the last digit that IOR's table prints of a number, or more (`PPDouble`)."""
    return 0.5 if value >= 3600 else 0.005 if value >= 1 else 0.0000005


@dataclass
class Test:
    """One test.

    Attributes:
        options: as printed under `Options`, keys of version 3.2 and later.
        exact: parameters that were printed exactly elsewhere (summary, JSON's parameters): `transfer`, `block`,
            `segments`, `tasks`, `per_node`, `repetitions`, `fsync`.
        rows: operation -> iteration -> numbers; count: of all of them.
        half: a printed number -> half a unit of its last digit.
        moved: (operation, iteration) -> bytes, where IOR said that it moved others than asked for.
        summaries: operation -> summary, where it was printed whole.
        contradictions: names of options that were printed twice with different values.
        old: printed by version 3.0 or 3.1, which leave out some options.
        without_nodes: printed by a version before 3.3, which leaves out the number of nodes.
    """

    options: dict[str, str] = field(default_factory=dict)
    exact: dict[str, int] = field(default_factory=dict)
    rows: dict[str, dict[int, Row]] = field(default_factory=lambda: {name: {} for name in OPERATIONS})
    count: int = 0
    half: Callable[[float], float] = half_in_table
    moved: dict[tuple[str, int], int] = field(default_factory=dict)
    summaries: dict[str, Summary] = field(default_factory=dict)
    contradictions: set[str] = field(default_factory=set)
    old: bool = False
    without_nodes: bool = False

    def set_option(self, name: str, value: str) -> None:
        """Note an option."""
        if len(self.options) > MOST_NAMES:
            self.contradictions.add("too many options")
        elif self.options.setdefault(name, value) != value:
            self.contradictions.add(name)

    def set_exact(self, name: str, value: int) -> None:
        """Note an exact parameter."""
        if self.exact.setdefault(name, value) != value:
            self.contradictions.add(name)

    def add(self, operation: str, iteration: int, row: Row) -> bool:
        """Take a row; False where that repetition was there already, or there are too many."""
        rows = self.rows[operation]
        if iteration in rows or self.count >= MOST_ROWS:
            return False
        rows[iteration] = row
        self.count += 1
        return True


@dataclass
class Run:
    """One output.

    Attributes:
        nobodys: what was printed before any test began, or under a damaged number.
        summarised: whether this form of output has a summary of each operation.
        titles: how often a run began; more than once: two runs wrote into one output.
        ends: how often a run said that it finished.
        damaged: rows that were not printed whole, or twice.
        unreal: rows with inf, nan or negative numbers.
        short_file: what was said about a file that holds fewer bytes than were written.
    """

    version: str | None = None
    command: CommandLine | None = None
    tests: dict[int, Test] = field(default_factory=dict)
    nobodys: Test = field(default_factory=Test)
    summarised: bool = True
    titles: int = 0
    ends: int = 0
    damaged: int = 0
    unreal: int = 0
    short_file: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def begin_test(self, number: int, old: bool = False) -> Test:
        """The test of that number; nobody's where there are too many."""
        if len(self.tests) >= _MOST_TESTS and number not in self.tests:
            self.damaged += 1
            return self.nobodys
        without_nodes = (self.version or "").startswith(("3.0", "3.1", "3.2"))
        return self.tests.setdefault(number, Test(old=old, without_nodes=without_nodes))

    def set_command(self, command: CommandLine) -> None:
        """Note the command line; a second one is another run's."""
        if self.command is not None and self.command != command:
            self.titles += 1
        self.command = command


def half_unit(number: str) -> float:
    """Half a unit of the last digit of a printed number."""
    point = number.find(".")
    return 0.5 if point < 0 else 0.5 * 10.0 ** (point + 1 - len(number))


def is_count(text: str) -> bool:
    """Whether a text is a whole number that some machine could mean (less than 10^18)."""
    return len(text) <= 18 and text.isascii() and text.isdecimal()
