"""Short names of cases: what tells one case from the others that are shown with it."""

from __future__ import annotations

from collections.abc import Sequence

from iowatch.explain.conditions import Parameters, shown
from iowatch.model import Scalar

_ALWAYS = ("benchmark", "operation", "api", "file")
_HIDDEN = ("aligned", "mpiio", *_ALWAYS)


def names(cases: Sequence[Parameters]) -> list[str]:
    """One name a case: benchmark, operation, api, file layout, and what else differs within the benchmark.

    Args:
        cases: parameters with `benchmark` among them.
    """
    differing = {str(c.get("benchmark")): _differing(c.get("benchmark"), cases) for c in cases}
    return [_name(case, differing[str(case.get("benchmark"))]) for case in cases]


def _differing(benchmark: Scalar | None, cases: Sequence[Parameters]) -> list[str]:
    inside = [c for c in cases if c.get("benchmark") == benchmark]
    keys = sorted({key for case in inside for key in case} - set(_HIDDEN))
    return [key for key in keys if len({str(case.get(key)) for case in inside}) > 1]


def _name(case: Parameters, differing: Sequence[str]) -> str:
    parts = [str(case[key]) if key == "operation" else shown(key, case[key]) for key in _ALWAYS if key in case]
    parts += [
        shown(key, case[key])
        if isinstance(case[key], str)
        else f"{key.removesuffix('_bytes')} {shown(key, case[key])}"
        for key in differing
        if key in case
    ]
    return " ".join(parts)
