"""An output that was printed again: all its samples are those of an earlier run, to the last digit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iowatch.core import DAY_S
from iowatch.session import conditions
from iowatch.store import History
from tests.builders import START_S, build_result, build_run, build_session

KINDS = ["sqlite", "postgresql"]
MEASURED = (101.25, 103.5, 99.75)
OTHERS = (100.5, 104.25, 98.0)


def record_night(history: History, number: int, write: tuple[float, ...], read: tuple[float, ...]) -> str:
    """A session with one run of IOR; return its UUID."""
    uuid = f"night-{number}"
    started_at = START_S + number * DAY_S
    history.begin_session(build_session(uuid, started_at=started_at))
    results = [build_result(*write, operation="write"), build_result(*read, operation="read")]
    run = build_run(*results, fingerprint=uuid, started_at=started_at)
    history.record_runs(uuid, [run])
    history.end_session(uuid, "ok", started_at + 60)
    return uuid


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_an_earlier_night_are_a_problem(new_database: Callable[[str], str], kind: str) -> None:
    with History.open(new_database(kind)) as history:
        record_night(history, 0, MEASURED, OTHERS)
        record_night(history, 1, OTHERS, MEASURED)
        repeated = record_night(history, 2, MEASURED, OTHERS)
        (sentence,) = conditions.repeated_outputs(history, history.session(repeated))
        (first_run,) = history.runs("night-0")
    assert sentence.startswith(f"gnu ior:write: all samples are those of run {first_run.id} (")


# What the first night and the one in question measured: write and read of each.
MEASUREMENTS = {
    "one of two results differs": (MEASURED, OTHERS, MEASURED, (100.5, 104.25, 98.25)),
    "the order of the samples differs": (MEASURED, OTHERS, MEASURED[::-1], OTHERS[::-1]),
    "a limit makes them equal": ((500.0,) * 3, (250.0,) * 3, (500.0,) * 3, (250.0,) * 3),
}


@pytest.mark.parametrize(("write", "read", "write_again", "read_again"), MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_measurements_that_agree_in_part_are_none(
    new_database: Callable[[str], str],
    write: tuple[float, ...],
    read: tuple[float, ...],
    write_again: tuple[float, ...],
    read_again: tuple[float, ...],
) -> None:
    with History.open(new_database("sqlite")) as history:
        record_night(history, 0, write, read)
        again = record_night(history, 1, write_again, read_again)
        assert conditions.repeated_outputs(history, history.session(again)) == []
