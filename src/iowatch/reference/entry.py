"""One accepted bandwidth: value, bounds, where it comes from; and how that of a result is found."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from iowatch.errors import UsageError, near_miss
from iowatch.metrics import METRICS, Metric
from iowatch.model import Scalar
from iowatch.reference.checked import Closed

Text = Annotated[str, Field(min_length=1)]
_CASE = re.compile(r"\w+=[\w.:/+-]+(,\w+=[\w.:/+-]+)*")


class Provenance(Closed):
    """Where a reference value comes from.

    Attributes:
        statistic: what the value is of the nights (or of the printed samples) behind it.
        n: how many nights or samples.
        spread: their relative scatter (0.05 is 5 %); None where it is not known.
        date: when it was accepted, or published.
        origin: sessions (first, last), or source and table ("000/2").
        by, why: who accepted it, and for what reason.
        versions: parts of the stack and their versions at that time; empty where not known.
    """

    statistic: Literal["max", "median", "median of maxima", "median of minima"]
    n: Annotated[int, Field(ge=1)] | None = None
    spread: Annotated[float, Field(ge=0)] | None = None
    date: dt.date
    origin: Annotated[list[Text], Field(min_length=1)]
    by: Text
    why: Text
    versions: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One reference value.

    Attributes:
        check: the check's class name.
        partition: as ReFrame writes it, `system:partition`.
        stack: the environment.
        case: the text of its case parameters, sorted, `name=value,…`.
        variable: ReFrame's performance variable, `<operation>_<metric>`.
        value: in the metric's unit.
        low, high: bounds relative to the value (-0.1 is 10 % below); None where there is no bound.
    """

    check: str
    partition: str
    stack: str
    case: str
    variable: str
    value: float
    low: float | None
    high: float | None
    unit: str
    provenance: Provenance
    where: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What identifies it in its file."""
        return self.check, self.partition, self.stack, self.case, self.variable

    @property
    def metric(self) -> Metric:
        """The facts of its metric."""
        return split(self.variable)[1]

    @property
    def operation(self) -> str:
        """`write`, `read`… with `_` for every blank and hyphen."""
        return split(self.variable)[0]

    @property
    def lower(self) -> float | None:
        """The lowest value that is still accepted, in its unit."""
        return None if self.low is None else self.value * (1 + self.low)

    @property
    def upper(self) -> float | None:
        """The highest value that is still accepted, in its unit."""
        return None if self.high is None else self.value * (1 + self.high)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """`name=value` of each case parameter."""
        return frozenset(self.case.split(","))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, bounds in the unit of the value."""
        plain = {
            name: getattr(self, name) for name in ("check", "partition", "stack", "case", "variable", "value")
        }
        bounds = {"lower": self.lower, "upper": self.upper, "unit": self.unit}
        return {**plain, **bounds, "provenance": self.provenance.model_dump(mode="json")}


def variable(operation: str, metric: str) -> str:
    """ReFrame's name of a result; operations of some tools have blanks or hyphens."""
    return f"{operation}_{metric}".replace(" ", "_").replace("-", "_")


def split(name: str) -> tuple[str, Metric]:
    """Operation and metric of a performance variable.

    Raises:
        UsageError: it does not end in a known metric.
    """
    fitting = [m for m in METRICS if name.endswith(f"_{m}")]
    if not fitting:
        raise UsageError(
            f"'{name}' is not <operation>_<metric>", hint=near_miss(name.rpartition("_")[2], list(METRICS))
        )
    metric = max(fitting, key=len)
    return name.removesuffix(f"_{metric}"), METRICS[metric]


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def case_text(parameters: Mapping[str, Scalar | None]) -> str:
    """Case parameters (docs/architecture.md) without the operation as the key of an entry."""
    kept = {name: value for name, value in parameters.items() if value is not None and name != "operation"}
    return ",".join(f"{name}={_text(kept[name])}" for name in sorted(kept))


def is_case(text: str) -> bool:
    """Whether a text can be the case of an entry: `name=value,name=value`, no blanks, no commas in values."""
    return _CASE.fullmatch(text) is not None


@dataclass(frozen=True)
class References:
    """All references of one system.

    Attributes:
        path: the file, whether or not it exists.
        entries: in the order of the file.
    """

    system: str
    path: Path
    entries: tuple[Entry, ...]

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.is_file()

    @property
    def checks(self) -> list[str]:
        """Names of the check classes that have references."""
        return list(dict.fromkeys(entry.check for entry in self.entries))

    def find(
        self, partition: str, stack: str, case: Mapping[str, Scalar], operation: str, metric: str
    ) -> Entry | None:
        """The reference of one result, or None.

        An entry fits when each of its case parameters is one of the case; of several, that with the most.

        Args:
            partition: with or without `system:` in front.
            case: case parameters, with or without the operation.
        """
        full = partition if ":" in partition else f"{self.system}:{partition}"
        has = frozenset(case_text(case).split(","))
        wanted = (full, stack, variable(operation, metric))
        fitting = [
            e for e in self.entries if (e.partition, e.stack, e.variable) == wanted and e.parameters <= has
        ]
        return max(fitting, key=lambda e: len(e.parameters), default=None)
