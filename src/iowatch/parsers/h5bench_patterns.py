"""Stdout of h5bench's own programs, 1.3 to 1.6 (write, read, append, overwrite and their kin).

Several programs may have written one after the other. Source: hpc-io/h5bench, `h5bench_patterns/*.c`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from iowatch.model import Scalar
from iowatch.parsers.draft import LARGEST_ALIGNMENT, MOST_NAMES, Draft, Evidence
from iowatch.parsers.h5bench_numbers import YES, Measured, amount, human, seconds, whole

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_() ]*?)(?:: ?| = )(.*)")
_RATE = re.compile(r"results: (A?SYNC) (?:Raw|Observed) (write|read|modify) rate")
_STEP = re.compile(r"(?:Writing|Reading) Timestep_(\d{1,9}) \.\.\.")
# function that wrote (all versions from 1.3 to 1.6) -> memory and file pattern
_PATTERNS = {
    "contig_contig_MD_array": "contiguous",
    "contig_to_interleaved": "contiguous-interleaved",
    "interleaved_to_contig": "interleaved-contiguous",
    "interleaved_to_interleaved": "interleaved",
}
_PATTERN = re.compile(rf"data_write_({'|'.join(_PATTERNS)}): Finished writing time step")
_AVAILABLE = re.compile(r"(Total particles in the file|Number of particles available per rank): (\d+)")
_STRIDE = re.compile(r"Stride parameters: STRIDE_SIZE = \d+, BLOCK_SIZE = (\d{1,9}), BLOCK_CNT = (\d{1,9})")
_ALIGNMENT = re.compile(r"Value of alignment (length|threshold) : +(\d+)")
_CHANGE = {"Append 8 variable completed": "append", "Overwrite 8 variable completed": "overwrite"}
_WRITE_TIMES = {
    "open_time": "H5Fcreate() time",
    "sync_time": "H5Fflush() time",
    "close_time": "H5Fclose() time",
}
# Nobody starts more in one job; the limit bounds memory.
_MOST_PROGRAMS = 1_000
# Eight variables of four bytes.
_PARTICLE_BYTES = 32


@dataclass
class _Block:
    """One program's output, from its first line to the end of its results."""

    values: dict[str, str] = field(default_factory=dict)
    dims: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    patterns: set[str] = field(default_factory=set)
    stride: tuple[int, int] | None = None
    change: str | None = None
    inside: str = ""
    closed: bool = False
    contradicts: bool = False
    varying: bool = False
    strided: bool = False
    aligned: bool = False
    alignment: dict[str, str] = field(default_factory=dict)
    available: dict[str, int] = field(default_factory=dict)
    unlimited: bool = False
    compressing: bool = False

    def add_step(self, number: int) -> None:
        """Time steps come in order, each once."""
        self.contradicts |= number != self.steps or self.inside == "results"
        self.steps += 1

    def result(self, name: str) -> str:
        """What stands under `Performance Results`."""
        return self.values.get(f"results: {name}", "")

    def option(self, name: str) -> str:
        """What stands under `Benchmark Configuration`."""
        return self.values.get(f"configuration: {name}", "")


class PatternsReader:
    """Collects what the programs wrote."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._same = ""

    def read(self, line: str) -> None:
        """Take one cleaned line; the three lines of a time step come by the million, so they go first."""
        text = line.strip()
        if text == self._same or text.startswith("Computing..."):
            return
        if text.startswith(("Writing T", "Reading T")) and self._blocks:
            if (step := _STEP.fullmatch(text)) is not None:
                self._blocks[-1].add_step(int(step[1]))
            return
        self._read_rare(text)

    def _read_rare(self, text: str) -> None:
        if not self._blocks or text.startswith("Configuration file: ") or self._restarts(text):
            if self.full:
                return
            self._blocks.append(_Block())
            self._same = ""
        block = self._blocks[-1]
        if text.startswith("==="):
            _read_rule(block, text)
        elif block.inside and not text.startswith("Stride parameters: "):
            _read_value(block, text)
        elif (pattern := _PATTERN.fullmatch(text)) is not None:
            block.patterns.add(pattern[1])
            self._same = text
        else:
            _read_other(block, text)

    def _restarts(self, text: str) -> bool:
        """A configuration after results: the first line of the next program was lost."""
        return self._blocks[-1].closed and "Benchmark Configuration" in text

    @property
    def full(self) -> bool:
        """Whether there are as many programs as are kept at most."""
        return len(self._blocks) >= _MOST_PROGRAMS

    def judge(self, draft: Draft, evidence: Evidence) -> None:
        """Judge all programs and keep their numbers."""
        if self.full:
            draft.fail(f"more than {_MOST_PROGRAMS - 1} programs wrote into this output")
        for number, block in enumerate(self._blocks, 1):
            _judge(draft, block, f"program {number}: " if len(self._blocks) > 1 else "", evidence)


def _read_other(block: _Block, text: str) -> None:
    """Lines before, between and after the configuration and the results."""
    if (stride := _STRIDE.fullmatch(text)) is not None:
        block.stride = int(stride[1]), int(stride[2])
    elif (available := _AVAILABLE.fullmatch(text)) is not None:
        block.available[available[1][0]] = int(available[2])
    elif (alignment := _ALIGNMENT.fullmatch(text)) is not None:
        block.alignment[f"align {alignment[1]}"] = alignment[2]
    elif text in _CHANGE:
        block.change = _CHANGE[text]
    else:
        block.varying |= text.startswith("Given mean particles")
        block.compressing |= text.startswith("Parallel compressed: ")
        block.unlimited |= text.startswith("Collective write: ")


def _read_rule(block: _Block, text: str) -> None:
    if "Configuration" in text or "Results" in text:
        name = "configuration" if "Configuration" in text else "results"
        block.contradicts |= block.inside == name or block.closed
        block.inside = name
    elif set(text) == {"="}:
        block.closed |= block.inside == "results"
        block.inside = ""


def _read_value(block: _Block, text: str) -> None:
    match = _KEY.fullmatch(text)
    if match is None:
        return
    if match[1] == "Strided access settings":
        block.strided = True
    if match[1] == "Align settings":
        block.aligned = True
    name = f"{block.inside}: {match[1]}"
    if match[1].startswith("Dim_") and len(block.dims) <= MOST_NAMES:
        block.dims[match[1]] = match[2]
    if len(block.values) > MOST_NAMES or block.values.setdefault(name, match[2]) != match[2]:
        block.contradicts = True


def _judge(draft: Draft, block: _Block, where: str, evidence: Evidence) -> None:
    if not block.closed:
        draft.cut(f"{where}the results are not printed whole")
    kinds = {(match[1], match[2]) for name in block.values if (match := _RATE.fullmatch(name))}
    if len(kinds) != 1:
        draft.cut(f"{where}no rates were printed whole")
        return
    mode, word = kinds.pop()
    case = _case(block, mode, word)
    if case is None:
        draft.cut(f"{where}the configuration is not printed whole, or contradicts the results")
    elif case["particles"] == 1:
        draft.fail(f"{where}one particle a rank: the configuration lacks its dimensions")
    elif others := evidence.other_ranks(case["ranks"], "h5bench"):
        draft.fail(f"{where}{others}")
    else:
        measured = _measured(block, mode, word)
        measured.keep(draft, case, float(case["total_bytes"] or 0), where)
        metadata = seconds(block.result("Metadata time"))
        draft.facts.setdefault("metadata_time_s", []).append(metadata)


def _measured(block: _Block, mode: str, word: str) -> Measured:
    observed = "Observed completion time" if word == "write" else f"Observed {word} completion time"
    return Measured(
        operation=(block.change or word) if word == "modify" else word,
        raw_rate=block.result(f"{mode} Raw {word} rate"),
        observed_rate=block.result(f"{mode} Observed {word} rate"),
        raw_time=block.result(f"Raw {word} time"),
        observed_time=block.result(observed),
        compute_time=block.result("Total emulated compute time"),
        times={metric: block.result(name) for metric, name in _WRITE_TIMES.items()} if word == "write" else {},
    )


def _case(block: _Block, mode: str, word: str) -> dict[str, Scalar | None] | None:
    """The parameters, where all that is printed about them agrees."""
    ranks = whole(block.result("Total number of ranks"))
    particles, steps = (whole(block.option(f"Number of {n}")) for n in ("particles per rank", "time steps"))
    dims = [whole(block.dims.get(f"Dim_{n}", "")) or 0 for n in range(1, len(block.dims) + 1)]
    collective = YES.get(block.option("Collective buffering for data operations"))
    metadata = YES.get(block.option("Collective metadata operations"))
    if (
        block.contradicts
        or not _strides_fit(block)
        or not _alignment_fits(block)
        or not (ranks and particles and steps)
        or collective is None
        or metadata is None
    ):
        return None
    shape_fits = (
        len(dims) <= 3
        and (math.prod(dims) == particles or _partial_fits(block, word, ranks * steps, particles, dims))
        and block.option("Number of dimensions") == str(len(dims))
    )
    if not shape_fits or block.steps != steps or not _ranks_fit(block, word, ranks):
        return None
    if not _compression_fits(block) or len(block.patterns) != (word == "write" and not block.unlimited):
        return None
    total = _total_bytes(block, word, ranks * steps * _PARTICLE_BYTES, particles)
    if total is None:
        return None
    return {
        "api": "HDF5",
        "file": "shared",
        "collective": collective,
        "collective_metadata": metadata,
        "pattern": _pattern(block),
        "mode": "async" if mode == "ASYNC" else None,
        "ranks": ranks,
        "local_size": "x".join(map(str, dims)),
        "particles": particles,
        "steps": steps,
        "distribution": "normal" if block.varying else None,
        "unlimited": block.unlimited or None,
        "compressed": block.compressing or None,
        "alignment_bytes": whole(block.option("align length")) if block.aligned else None,
        "total_bytes": total,
    }


def _partial_fits(block: _Block, word: str, times: int, particles: int, dims: list[int]) -> bool:
    """A read of the first part of each rank's share (TO_READ_NUM_PARTICLES): the size printed fits exactly."""
    whole_share = math.prod(dims)
    printed = block.result("Total read size").rstrip()
    return (
        word == "read"
        and particles < whole_share == block.available.get("N")
        and human(times * _PARTICLE_BYTES * particles) == printed
    )


def _strides_fit(block: _Block) -> bool:
    """Strides are named in three places; some programs print strides of 0 for anything else."""
    sizes = [block.option("Stride size"), block.option("Block size")]
    if block.strided != all(sizes) or block.strided != any(sizes):
        return False
    return (block.stride is not None) == (sizes[0] not in ("", "0"))


def _alignment_fits(block: _Block) -> bool:
    """Programs that align say how, most of them twice; others say nothing of it."""
    if any(block.option(name).strip() != value for name, value in block.alignment.items()):
        return False
    lengths = [whole(block.option(name)) for name in ("align length", "align threshold")]
    if not block.aligned:
        return not any(lengths)
    return all(length is not None and length <= LARGEST_ALIGNMENT for length in lengths)


def _ranks_fit(block: _Block, word: str, ranks: int) -> bool:
    """Programs that read say what each rank gets of the file."""
    found = block.available
    return word == "write" or ("T" in found and "N" in found and found["T"] // ranks == found["N"])


def _compression_fits(block: _Block) -> bool:
    """Programs that compress say so twice."""
    return not block.compressing or block.option("Use compression") == "1"


def _pattern(block: _Block) -> str | None:
    if block.stride is not None:
        return "strided"
    name = next(iter(block.patterns), None)
    return None if name is None else _PATTERNS[name]


def _total_bytes(block: _Block, word: str, share: int, particles: int) -> int | None:
    """Bytes of the run: exact where the configuration explains them, otherwise (partial reads) as printed."""
    printed = block.result(f"Total {word} size").rstrip()
    size = amount(printed)
    if size is None:
        return None
    selected = [particles] if block.stride is None else [particles, math.prod(block.stride)]
    exact = next((share * n for n in selected if human(share * n) == printed), None)
    if exact is not None:
        return exact
    rounded = share * round(size.value / share)
    if not block.varying and human(rounded) != printed:
        return None
    if block.varying or (word == "read" and size.value <= share * particles):
        return round(size.value)
    return None
