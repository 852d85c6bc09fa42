"""Short names of cases: what tells one case from the others that are shown with it."""

from __future__ import annotations

from collections.abc import Sequence

from iowatch.explain.conditions import Parameters, bits_of, shown
from iowatch.model import Scalar

_ALWAYS = ("benchmark", "operation", "api", "file")
_HIDDEN = ("aligned", "mpiio", *_ALWAYS)


def names(cases: Sequence[Parameters]) -> list[str]:
    """One name a case: benchmark, operation, api, file layout, and what else differs within the benchmark.

    Args:
        cases: parameters with `benchmark` among them.
    """
    benchmarks = {str(case.get("benchmark")) for case in cases}
    differing = {one: _differing([c for c in cases if str(c.get("benchmark")) == one]) for one in benchmarks}
    return [_name(case, differing[str(case.get("benchmark"))]) for case in cases]


def _differing(inside: Sequence[Parameters]) -> list[str]:
    keys = sorted({key for case in inside for key in case} - set(_HIDDEN), key=lambda k: (bits_of(k), k))
    kept: dict[tuple[int, ...], str] = {}
    for key in keys:
        order: dict[str, int] = {}
        # Two parameters that go together (transfer and block of IOR) are one difference.
        kept.setdefault(tuple(order.setdefault(str(case.get(key)), len(order)) for case in inside), key)
    return [key for pattern, key in kept.items() if any(pattern)]


def _name(case: Parameters, differing: Sequence[str]) -> str:
    parts = [str(case[key]) if key == "operation" else shown(key, case[key]) for key in _ALWAYS if key in case]
    return " ".join([*parts, *(_told(key, case[key]) for key in differing if key in case)])


def _told(key: str, value: Scalar) -> str:
    """`scratch1`, `full striping` as they are; a bare number or truth with its parameter's name."""
    text = shown(key, value)
    bare = isinstance(value, str) or (text != str(value).lower() and not key.endswith("_bytes"))
    return text if bare else f"{key.removesuffix('_bytes')} {text}"
