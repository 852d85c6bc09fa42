"""Findings where a system measures several file systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from iowatch.core import Scalar
from iowatch.findings import Finding, update_findings
from iowatch.output.text.findings import finding_line
from iowatch.store import History
from tests.builders import build_result, build_run, build_session, store_session
from tests.session.test_file_systems import ONE, TWO

DAY_S, START = 86_400, 1_750_000_000
NIGHTS = 16


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "site/systems/local"
    place.mkdir(parents=True)
    (tmp_path / "site/site.yaml").write_text("title: A test\n")
    monkeypatch.setenv("IOWATCH_SITE", str(tmp_path / "site"))
    return place / "system.yaml"


def nights(history: History, file_systems: Sequence[str | None], changes: Callable[[str, str | None], bool]) -> None:
    """Cases of two interfaces with 1, 2 and 4 ranks on each file system; those that change halve after half of them."""
    noise = np.random.default_rng(1)
    for night in range(NIGHTS):
        uuid, time = f"night-{night}", START + night * DAY_S
        runs = []
        for where, api, ranks in product(file_systems, ("POSIX", "MPIIO"), (1, 2, 4)):
            case: dict[str, Scalar] = {"api": api, "ranks": ranks, **({"file_system": where} if where else {})}
            factor = 0.5 if night >= NIGHTS / 2 and changes(api, where) else 1.0
            samples = 1000 * ranks * factor * np.exp(0.01 * noise.standard_normal(3))
            result = build_result(*samples.tolist(), case=case)
            name = f"ior:{api}-{ranks}-{where}"
            runs.append(build_run(result, name=name, started_at=time))
        store_session(history, build_session(uuid, started_at=time), runs, duration_s=60)


def identity(found: Sequence[Finding]) -> list[tuple[str, str, list[int]]]:
    return [(one.id, finding_line(one), sorted(member.series_id for member in one.members)) for one in found]


def test_second_file_system_leaves_the_findings_as_they_are(described: Path, var: Path, tmp_path: Path) -> None:
    """Those that are known, and those that a history gets anew."""
    found = []
    for first in (ONE, TWO):
        described.write_text(first)
        with History.open(str(tmp_path / f"{len(found)}.db")) as history:
            nights(history, [None], lambda api, _: api == "MPIIO")
            found.append(identity(update_findings(history, "local", report=False)))
            described.write_text(TWO)
            found.append(identity(update_findings(history, "local", report=False)))
    assert found[1:] == found[:1] * 3
    assert [(len(members), "MPI-IO" in line) for _, line, members in found[0]] == [(3, True)]


@pytest.mark.parametrize(("where", "name"), [("fast", "fast"), (None, "scratch")])
def test_file_system_is_the_common_factor(history: History, described: Path, where: str | None, name: str) -> None:
    """Also the default one, which its cases do not name."""
    described.write_text(TWO)
    nights(history, [None, "fast"], lambda _, of: of == where)
    (found,) = update_findings(history, "local", report=False)
    assert len(found.members) == 6
    assert f"6 of 12 series down; common factor {name}" in finding_line(found)
