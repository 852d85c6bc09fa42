"""What a parser fills in while it reads, and how it becomes an `Output`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from iowatch.metrics import METRICS
from iowatch.model import Output, Result, Scalar, Status, canonical_json
from iowatch.parsers.lines import Lines, Source
from iowatch.parsers.trouble import Sign, Trouble, exit_meaning, signs_of

_MOST_REASONS = 4
# A run with more rows is no benchmark; the limit bounds memory whatever the output holds.
MOST_ROWS = 50_000
# Options and other named values; programs print some dozens.
MOST_NAMES = 1_000
MOST_RANKS = 1 << 24
# Nobody aligns or stripes beyond 64 GiB.
LARGEST_ALIGNMENT = 1 << 36
# A metric whose value may honestly be below what the tool resolves ("0.000 s"); it is left out, without blame.
_MAY_VANISH = frozenset(name for name, row in METRICS.items() if row.unit == "s")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What else a run left, and what was asked for.

    Attributes:
        stderr: the run's stderr, or None where it is not at hand.
        rc: its exit code (negative: signal), or None.
        ranks: MPI processes that were asked for, or None.
        log: what the program printed where its results are in a file of their own, or None.
    """

    stderr: Source | None = None
    rc: int | None = None
    ranks: int | None = None
    log: Source | None = None

    def other_ranks(self, ran: Any, program: str) -> str | None:
        """Why a run with `ran` ranks is not the one that was asked for; None where it is, or nobody asked."""
        if self.ranks is None or ran == self.ranks:
            return None
        alone = ": each was alone, as with the launcher of another MPI" if ran == 1 else ""
        return f"{self.ranks} ranks were asked for, {program} ran with {ran}{alone}"


@dataclass
class Draft:
    """One output in the making.

    Attributes:
        tool: name of the tool.
        version: as printed.
        signs: phrases of failure that only this tool prints.
        facts: see `iowatch.model.Output.facts`.
    """

    tool: str
    signs: tuple[Sign, ...] = ()
    version: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    _failed: list[str] = field(default_factory=list)
    _incomplete: list[str] = field(default_factory=list)
    _results: dict[str, tuple[Result, list[float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trouble = Trouble(signs_of(self.tool, self.signs))

    def lines(self, source: Source) -> Lines:
        """The lines of the output; signs of trouble are noted on the way."""
        return Lines(source, self.trouble.inspect)

    def fail(self, reason: str) -> None:
        """The run reported or betrayed an error."""
        if reason not in self._failed:
            self._failed.append(reason)

    def cut(self, reason: str) -> None:
        """Something is missing or damaged."""
        if reason not in self._incomplete:
            self._incomplete.append(reason)

    @property
    def sound(self) -> bool:
        """Whether nothing spoke against the output so far."""
        return not self._failed and not self._incomplete

    def keep(
        self, operation: str, metric: str, samples: Iterable[float], case: Mapping[str, Scalar | None]
    ) -> None:
        """Keep what passes; a value that no run can give is refused, and said.

        A metric in seconds is kept only while the output is sound and all its values are above what the tool
        resolves: what a damaged output lost may have been below.

        Args:
            operation: see docs/architecture.md, "Case parameters".
            metric: a name in `iowatch.metrics`.
            samples: in the metric's unit, in the order measured.
            case: parameters; those that are None are left out.
        """
        row = METRICS[metric]
        values = list(samples)
        if not 0 < int(case.get("ranks") or 1) <= MOST_RANKS:
            self.fail(f"{case['ranks']} ranks cannot be")
            return
        good = tuple([v for v in values if 0 < v <= row.ceiling])
        if metric in _MAY_VANISH and (len(good) < len(values) or not self.sound):
            if self.sound:
                self.facts.setdefault("below_resolution", []).append(f"{operation} {metric}")
            return
        if len(good) < len(values):
            bad = next(v for v in values if not 0 < v <= row.ceiling)
            self.fail(
                f"{operation} {metric} of {bad:g} {row.unit} cannot be (ceiling {row.ceiling:g} {row.unit})"
            )
        if good:
            self._add(
                Result(operation, metric, row.unit, good, {k: v for k, v in case.items() if v is not None})
            )

    def _add(self, result: Result) -> None:
        key = canonical_json(
            {"case": dict(result.case), "metric": result.metric, "operation": result.operation}
        )
        _, samples = self._results.setdefault(key, (result, []))
        samples.extend(result.samples)

    def drop_results(self) -> None:
        """Take back every result (for instance when two runs wrote into one output)."""
        self._results.clear()

    def close(self, evidence: Evidence, lines: Lines) -> Output:
        """Judge and hand over."""
        self.trouble.inspect_source(evidence.stderr)
        self.trouble.inspect_source(evidence.log)
        if lines.empty:
            self._incomplete[:] = ["the output is empty"]  # all else follows from that
        if evidence.rc:
            stopped, words = exit_meaning(evidence.rc)
            (self.cut if stopped else self.fail)(words)
        status, reasons = self._judge()
        return Output(
            tool=self.tool,
            version=self.version,
            status=status,
            reason="; ".join(reasons[:_MOST_REASONS]) or None,
            results=tuple(replace(result, samples=tuple(s)) for result, s in self._results.values()),
            facts=self.facts,
        )

    def _judge(self) -> tuple[Status, list[str]]:
        fatal = self.trouble.fatal()
        if not fatal and self.sound:
            return "ok", []
        reasons = [*fatal, *self._failed, *self.trouble.hints(), *self._incomplete]
        return ("failed" if fatal or self._failed else "incomplete"), reasons
