"""Numbers as h5bench's programs print them, and whether those of one program agree.

K, M, G and T are powers of 1024, fractions are cut off at each division, and below 1024 the letter is a blank
(`format_human_readable` in `commons/h5bench_util.c`); infinity prints as `0.000 B/s`, NaN as
`8388608.000 TB/s`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from iowatch.model import Scalar
from iowatch.parsers.draft import Draft
from iowatch.units import KIB, MIB

_UNITS = {"": 1, "K": KIB, "M": MIB, "G": KIB**3, "T": KIB**4}
_AMOUNT = re.compile(r"(\d{1,7}\.\d{3}) +([KMGT]?)B(?:/s)?")
_SECONDS = re.compile(r"(\d+\.\d{3})(?: s)?")
_WHOLE = re.compile(r"[1-9]\d{0,11}")
_UNREAL = re.compile(r"nan|inf|\b0\.000 ", re.IGNORECASE)
_HALF_SECOND = 0.0005
# The programs compute in single precision.
_SINGLE = 1e-5

YES = {"YES": True, "NO": False}

Case = Mapping[str, Scalar | None]


class Amount(NamedTuple):
    """Bytes, or bytes per second, and half a unit of the last digit printed."""

    value: float
    half: float


def amount(text: str) -> Amount | None:
    """What `512.000  B`, `8.000 MB` or `1.102 GB/s` says; None where it is not printed whole."""
    match = _AMOUNT.fullmatch(text.rstrip())
    if match is None:
        return None
    value, unit = float(match[1]), _UNITS[match[2]]
    if (value < 1 and value != 0) or (unit == 1 and not value.is_integer()):
        return None
    if value >= KIB and match[2] != "T":
        return None
    return Amount(value * unit, 0.0005 * unit + unit / KIB)


def human(size_bytes: int) -> str:
    """A size as h5bench prints it."""
    letters, position, value, rest = list(_UNITS), 0, float(size_bytes), size_bytes
    while rest // KIB > 0 and position < len(letters) - 1:
        value, rest, position = rest / KIB, rest // KIB, position + 1
    return f"{value:.3f} {letters[position]:1}B"


def seconds(text: str) -> float | None:
    """What `0.029 s` says, or `0.029`."""
    match = _SECONDS.fullmatch(text.rstrip())
    return float(match[1]) if match else None


def whole(text: str) -> int | None:
    """A positive whole number."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else None


@dataclass
class Measured:
    """What one program says about its speed, as printed.

    Attributes:
        operation: `write`, `read`, `append`, `overwrite`, `modify`.
        raw_rate, observed_rate: with unit.
        raw_time, observed_time, compute_time: seconds; the observed rate leaves the emulated computation out.
        times: metric -> seconds, further times.
    """

    operation: str
    raw_rate: str
    observed_rate: str
    raw_time: str
    observed_time: str
    compute_time: str
    times: Mapping[str, str]
    _contradicts: bool = False

    def keep(self, draft: Draft, case: Case, total_bytes: float, where: str) -> None:
        """Keep the numbers that agree with each other: rate x time is the size."""
        raw, observed, computing = map(seconds, (self.raw_time, self.observed_time, self.compute_time))
        if raw is None or observed is None or computing is None:
            draft.cut(f"{where}the times are not printed whole")
            return
        rates = {
            "raw": self._rate(draft, self.raw_rate, raw, _HALF_SECOND, total_bytes, where),
            "observed": self._rate(
                draft, self.observed_rate, observed - computing, 2 * _HALF_SECOND, total_bytes, where
            ),
        }
        if self._contradicts:
            return
        for kind, rate in rates.items():
            if rate is not None:
                draft.keep(self.operation, f"{kind}_bandwidth", [rate / MIB], case)
        self._keep_times(draft, case, raw, observed, where)

    def _rate(
        self, draft: Draft, text: str, time_s: float, half_s: float, total_bytes: float, where: str
    ) -> float | None:
        rate = amount(text)
        if rate is None or rate.value == 0:
            blame = draft.fail if _UNREAL.search(text) else draft.cut
            blame(f"{where}a rate of '{text.strip()}' is no number that can be")
            return None
        slack = total_bytes * (_SINGLE + 1 / KIB)
        low = (rate.value - rate.half) * max(time_s - half_s, 0.0)
        high = (rate.value + rate.half) * (time_s + half_s)
        if low - slack <= total_bytes <= high + slack:
            return rate.value
        draft.cut(f"{where}a rate of '{text.strip()}', its time and its size contradict each other")
        self._contradicts = True
        return None

    def _keep_times(self, draft: Draft, case: Case, raw: float, observed: float, where: str) -> None:
        found = {"transfer_time": raw, "time": observed}
        for metric, text in self.times.items():
            value = seconds(text)
            if value is None or value > observed + _HALF_SECOND:
                draft.cut(f"{where}the {metric.replace('_', ' ')} is not printed whole")
            else:
                found[metric] = value
        for metric, value in found.items():
            draft.keep(self.operation, metric, [value], case)
