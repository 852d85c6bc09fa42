"""The command line of IOR: which of its options take a value, what they ask for, which change how bytes are moved.

An option has up to three names: a letter (`-c`), a long name (`--collective`) and a directive (`-O collective=1`).
Source: hpc/ior 3.0.1 to 4.1, `parse_options.c` and `aiori-*.c`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from iowatch.benchmarks.command_line import CommandLine, CommandLineSyntax, read_command_line

OPERATIONS = ("write", "read")

# Options that change how bytes are moved, and that no other parameter of a case represents.
_WAYS = {
    "cephfs.olazy",
    "chfs.chunk_size",
    "daos.chunk_size",
    "daos.oclass",
    "dfs.chunk_size",
    "dfs.dir_oclass",
    "dfs.oclass",
    "finchfs.chunk_size",
    "hdf5.chunkSize",
    "mmap.madv_dont_need",
    "mmap.madv_pattern",
    "mpiio.preallocate",
    "mpiio.useFileView",
    "mpiio.useStridedDatatype",
    "ncmpi.preallocate",
    "ncmpi.useFileView",
    "ncmpi.useStridedDatatype",
    "posix.gpfs.createsharing",
    "posix.gpfs.finegrainreadsharing",
    "posix.gpfs.finegrainwritesharing",
    "posix.gpfs.hintaccess",
    "posix.lustre.ignorelocks",
    "posix.rangelocks",
}
_VALUED_WAYS = {name for name in _WAYS if name.endswith(("oclass", "chunk_size"))}
# Long options without a value (`OPTION_FLAG`).
_LONG_FLAGS = (_WAYS - _VALUED_WAYS) | {
    "collective",
    "daos.destroy",
    "dfs.destroy",
    "dryRun",
    "dummy.delay-only-rank0",
    "gpuDirect",
    "hdf5.collectiveMetadata",
    "hdf5.individualDataSets",
    "hdf5.noFill",
    "hdf5.showHints",
    "hdfs.odirect",
    "ime.odirect",
    "mpiio.showHints",
    "ncmpi.showHints",
    "posix.odirect",
    "warningAsErrors",
}
_SYNTAX = CommandLineSyntax(frozenset("aAbdDfGijJlMNoOQstTUX"), frozenset(_LONG_FLAGS))
# Phases of a test, if set by directives.
_PHASES = {"writeFile", "readFile", "checkWrite", "checkRead"}
# Long options of IOR itself, and of the interfaces that have the same options in all versions.
_LONG_OPTIONS = _LONG_FLAGS | _PHASES
_LONG_OPTIONS |= {
    "aio.granularity",
    "aio.max-pending",
    "allocateBufferOnGPU",
    "dataPacketType",
    "hdf5.hintsFileName",
    "hdf5.setAlignment",
    "mpiio.hintsFileName",
    "ncmpi.hintsFileName",
    "posix.beegfs.ChunkSize",
    "posix.beegfs.NumTargets",
    "posix.gpfs.releasetoken",
    "posix.lustre.pool",
    "posix.lustre.startost",
    "posix.lustre.stripecount",
    "posix.lustre.stripesize",
    "random-offset-seed",
    "randomPrefill",
}
_FIXED_INTERFACES = {"aio", "hdf5", "mmap", "mpiio", "ncmpi", "posix"}
# Directives that change no parameter of a test.
_OUTPUT_DIRECTIVES = {"summaryFile", "summaryFormat", "saveRankPerformanceDetailsCSV", "savePerOpDataCSV"}
_STONEWALL_DIRECTIVES = {"stoneWallingStatusFile", "stoneWallingWearOut", "stoneWallingWearOutIterations"}
_DIRECTIVE = re.compile(r"[A-Za-z]\w*=.*", re.ASCII)
_WAY_VALUE = re.compile(r"[A-Za-z0-9_]{1,24}")
_SIZE = re.compile(r"\s*(\d{1,18})\s*(.?).*", re.DOTALL)
_SIZE_SHIFT = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


@dataclass(frozen=True)
class IorCommand:
    """The options of one run of IOR.

    Attributes:
        line: the command line as printed.
    """

    line: CommandLine = field(default_factory=CommandLine)

    @classmethod
    def read(cls, text: str) -> IorCommand:
        """Read `ior -a MPIIO -wk -t 1m …`."""
        return cls(read_command_line(text, _SYNTAX))

    @cached_property
    def directives(self) -> dict[str, str]:
        """Values of all `-O name=value,…` by name."""
        directives: dict[str, str] = {}
        for directive in self._directive_texts:
            name, _, value = directive.partition("=")
            directives[name] = value
        return directives

    @property
    def _directive_texts(self) -> list[str]:
        texts = ",".join(self.line.values("O")).split(",")
        return [text for text in texts if text]

    @property
    def is_scripted(self) -> bool:
        """Whether options are from a script that the output does not show."""
        return "f" in self.line.names

    @property
    def describes_tests(self) -> bool:
        """Whether the options alone describe the test: neither a script nor a directive sets a parameter of it."""
        return not self.is_scripted and self.directives.keys() <= _OUTPUT_DIRECTIVES | _STONEWALL_DIRECTIVES

    @property
    def damage(self) -> str | None:
        """Why this is no command line of IOR; None if it is one."""
        if self.line.strays:
            return f"the command line has '{self.line.strays[0]}', which is no option"
        if self.line.without_value:
            return f"option '{self.line.without_value[0]}' of the command line has no value"
        for directive in self._directive_texts:
            if _DIRECTIVE.fullmatch(directive) is None:
                return f"the command line has '-O {directive}', expected NAME=VALUE"
        for name in sorted(_VALUED_WAYS & self.line.names):
            if _WAY_VALUE.fullmatch(self.line.value(name, "") or "") is None:
                return f"option '--{name}' of the command line is '{self.line.value(name, '')}'"
        # Either a script or the command line describes the tests.
        if self.is_scripted and {"t", "b", "o"} & self.line.names:
            return "the command line has a script (-f) and the options of a test"
        return None

    def is_set(self, *names: str) -> bool:
        """Return whether a flag is set under one of its names: letter, long name or directive."""
        is_directive = any(self.directives.get(name, "0") != "0" for name in names)
        return is_directive or any(self.line.is_set(name) for name in names)

    def value(self, *names: str) -> str | None:
        """Return the value of an option under the first of its names that is given; None if none is."""
        for name in names:
            value = self.line.value(name, self.directives.get(name))
            if value is not None:
                return value
        return None

    def unknown_option(self, api: str) -> str | None:
        """Return a long option that neither IOR nor the interface has; None if there is none.

        The options of an interface begin with its name. Interfaces are an open set, so their options are, too.

        Args:
            api: interface of the test as IOR prints it.
        """
        for name in sorted(self.line.names - _LONG_OPTIONS):
            interface, dot, _ = name.partition(".")
            is_of_interface = dot != "" and interface.upper() == api.upper()
            if len(name) > 1 and (interface in _FIXED_INTERFACES or not is_of_interface):
                return name
        return None

    @property
    def ways(self) -> str | None:
        """Options that change how bytes are moved, joined by commas; None if there are none."""
        ways: list[str] = []
        # Given twice, they are other orders: random offsets may overlap, ranks are shuffled.
        for letter, name in (("Z", "reorderTasksRandom"), ("z", "randomOffset")):
            if self.line.count(letter) > 1:
                ways.append(f"{name}={self.line.count(letter)}")
        for name in sorted(_WAYS & self.line.names):
            value = self.line.value(name)
            if value is not None and name.endswith("chunk_size"):
                value = str(parse_ior_size(value))
            if value is None or (name not in _VALUED_WAYS and value == "1"):
                ways.append(name)
            elif value != "0":
                ways.append(f"{name}={value}")
        return ",".join(sorted(ways)) or None

    def operations(self) -> set[str]:
        """Return the operations that must be timed: those named, or both if none is named."""
        names = self.line.names
        if self.is_scripted or _PHASES & names or any(self.directives.get(name) for name in _PHASES):
            return set()
        if not set("wrWR") & names:
            return set(OPERATIONS)
        return {operation for operation in OPERATIONS if operation[0] in names}


def parse_ior_size(text: str | None) -> int | None:
    """Return the bytes of a size as IOR reads it (`string_to_bytes`); None for none.

    A whole number and one letter count, whatever follows: `1m`, `1mb` and `1MiB` are all 2^20 bytes.
    """
    match = _SIZE.match(text or "")
    if match is None:
        return None
    size = int(match[1]) << _SIZE_SHIFT.get(match[2].lower(), 0)
    return size if size < 1 << 63 else None
