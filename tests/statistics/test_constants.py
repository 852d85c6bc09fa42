"""bench/statistics/constants.py: constants are read from the source, and a scaled one changes what is computed from it.

Expected values: computed by hand from the sources below.
"""

from __future__ import annotations

import ast
import builtins
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """
DAY_S = 86400
_FEW, _SHARE = 5, 0.8
_LIMITS = (2.0, 3.0)
_LIMIT = 2 * DAY_S
_DERIVED = _FEW + 1
NAME = "levels"
"""


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "bench/statistics")
    import constants

    # A scaled module calls this name.
    monkeypatch.setattr(builtins, "__scaled__", constants.scaled, raising=False)
    return constants


def names_of(constants: ModuleType, source: str) -> list[str]:
    names: list[str] = []
    for name, value in constants.assigned_values(ast.parse(source)):
        names += [element for element, _ in constants.number_nodes(name, value)]
    return names


def test_elements_of_tuples_are_constants_of_their_own(constants: ModuleType) -> None:
    names = names_of(constants, SOURCE)
    assert names == ["DAY_S", "_FEW", "_SHARE", "_LIMITS[0]", "_LIMITS[1]", "_LIMIT", "_DERIVED"]


def test_settings_and_weights_are_listed(constants: ModuleType) -> None:
    names = {constant.full_name for constant in constants.list_constants()}
    assert "method.DetectorSettings.penalty" in names
    assert "method.DetectorSettings.settled_weights[0]" in names
    assert "panel_models.MODELS[0].real['size']" in names
    assert "constants.MAD_TO_SD" not in names


def test_counts_are_rounded_down_and_shares_stay_below_1(constants: ModuleType) -> None:
    assert constants.scaled(7, 0.5) == 3
    assert constants.scaled(7, 2.0) == 14
    assert constants.scaled(0.8, 2.0) == pytest.approx(0.9)
    assert constants.scaled(0.3, 2.0) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("name", "factor", "expected"),
    [
        ("_FEW", 2.0, {"_FEW": 10, "_DERIVED": 11, "_SHARE": 0.8, "_LIMITS": (2.0, 3.0)}),
        ("_SHARE", 2.0, {"_FEW": 5, "_DERIVED": 6, "_SHARE": 0.9, "_LIMITS": (2.0, 3.0)}),
        ("_LIMITS[1]", 0.5, {"_FEW": 5, "_DERIVED": 6, "_SHARE": 0.8, "_LIMITS": (2.0, 1.5)}),
    ],
)
def test_what_is_computed_from_a_scaled_constant_changes(
    constants: ModuleType, tmp_path: Path, name: str, factor: float, expected: dict[str, object]
) -> None:
    (tmp_path / "scaled_source.py").write_text(SOURCE)
    finder = constants.ScaledFinder("scaled_source", name, factor)
    spec = finder.find_spec("scaled_source", [str(tmp_path)])
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert {constant: vars(module)[constant] for constant in expected} == expected
    assert finder.find_spec("other_source", [str(tmp_path)]) is None


def test_the_first_table_that_differs_is_described(constants: ModuleType) -> None:
    base = {"series": {"f1": 0.89}, "year": {"changes": 48.0}}
    same = {"series": {"f1": 0.89}, "year": {"changes": 48.0}}
    assert constants.describe(same, base) == "none"
    other = {"series": {"f1": 0.89}, "year": {"changes": 47.0}}
    assert constants.describe(other, base) == "year: changes 48 → 47"
