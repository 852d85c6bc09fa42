"""The file of pulses: percentiles per hour, what is kept how long, size, other versions."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from iowatch.core import InputError, MachineError
from iowatch.pulse.probe import LeftProcess, Reading
from iowatch.pulse.store import LEVEL_DAYS, Stall, open_store, store_path
from tests.pulse import simulated
from tests.pulse.simulated import DAY_S, START_S

HOUR_S = 3600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pulses" / "scratch.db"


def test_percentiles_of_an_hour_are_those_of_numpy(path: Path) -> None:
    samples = np.random.default_rng(1).integers(1_000_000, 50_000_000, (6, 5))
    with open_store(path, create=True) as store:
        for index, of_pulse in enumerate(samples.tolist()):
            store.add_pulse(START_S + 600 * index, [Reading("stat", 1, tuple(of_pulse))], in_session=False)
        store.summarise_hours(START_S + HOUR_S - 1)
        assert store.hours(0, START_S + DAY_S) == []  # the hour has not ended
        store.summarise_hours(START_S + HOUR_S)
        (hour,) = store.hours(START_S, START_S + HOUR_S)
    expected = np.percentile(samples, [10, 50, 90, 99, 100])
    assert [hour.p10_ns, hour.p50_ns, hour.p90_ns, hour.p99_ns, hour.max_ns] == pytest.approx(expected, abs=1)
    assert (hour.hour, hour.operation, hour.samples, hour.unfinished, hour.failed) == (START_S, "stat", 30, 0, 0)


def test_hour_in_which_nothing_ended_has_no_percentiles(path: Path) -> None:
    with open_store(path, create=True) as store:
        store.add_pulse(START_S, [Reading("open", 1_400_000_000, (), "unfinished")], in_session=False)
        store.add_pulse(START_S + 600, [Reading("open", 0, (), "failed", "No space left")], in_session=False)
        store.summarise_hours(START_S + HOUR_S)
        (hour,) = store.hours(0, START_S + HOUR_S)
    assert (hour.samples, hour.p50_ns, hour.max_ns, hour.unfinished, hour.failed) == (0, None, None, 1, 1)


def test_hours_are_kept_and_pulses_are_not(path: Path) -> None:
    with open_store(path, create=True) as store:
        store.add_pulse(START_S, [Reading("stat", 5, (5,))], in_session=False)
        later_s = START_S + (LEVEL_DAYS + 1) * DAY_S
        store.add_pulse(later_s, [Reading("stat", 7, (7,))], in_session=False)
        store.summarise_hours(later_s + HOUR_S)
        assert [level.ns for level in store.levels(0, later_s + 1)] == [7]
        assert [hour.p50_ns for hour in store.hours(0, later_s + HOUR_S)] == [5, 7]


def test_ten_years_take_less_than_100_mb(path: Path) -> None:
    """From the growth of the second month on: before, pulses of the last eight weeks are added, too."""
    rng = np.random.default_rng(2)
    sizes = [simulated.fill_store(path, rng, 10, start_day=10 * part) for part in range(8)]
    growth_per_day = (sizes[7] - sizes[6]) / 10
    assert growth_per_day > 3_000
    assert sizes[7] + 3650 * growth_per_day < 100e6


def test_failure_within_a_pulse_changes_nothing(path: Path) -> None:
    with open_store(path, create=True) as store:
        store.add_pulse(START_S, [Reading("stat", 5, (5,))], in_session=False)
    with suppress(KeyError), open_store(path, create=True) as store:
        store.add_pulse(START_S + 600, [Reading("stat", 5, (5,))], in_session=False)
        raise KeyError
    with open_store(path) as store:
        assert store.newest_pulse() == START_S


def test_stalls_and_the_left_process_are_kept(path: Path) -> None:
    left = LeftProcess("open", "login1", 4711, 99)
    stall = Stall("stat", START_S, START_S, 1_200_000, 40_000_000, "completed")
    with open_store(path, create=True) as store:
        store.set_left_process(left)
        store.save_stall(stall)
        assert (store.left_process(), store.stalls(START_S + DAY_S)) == (left, [stall])
        ended = Stall("stat", START_S, START_S, 1_200_000, 40_000_000, "completed", "", START_S + 60, "usual again")
        store.save_stall(ended)
        store.set_left_process(None)
        assert (store.left_process(), store.stalls(START_S), store.stalls(START_S + DAY_S)) == (None, [ended], [])


def test_other_files_are_refused(path: Path) -> None:
    with pytest.raises(InputError, match="no pulses in"), open_store(path):
        pass
    path.parent.mkdir()
    path.write_bytes(b"no database, but long enough to look like one" * 100)
    with pytest.raises(InputError, match="is damaged"), open_store(path, create=True):
        pass
    path.unlink()
    with open_store(path, create=True):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InputError, match="version 99"), open_store(path):
        pass


def test_second_pulse_at_the_same_time_is_an_error(path: Path) -> None:
    with open_store(path, create=True), pytest.raises(MachineError, match="locked"), open_store(path, create=True):
        pass


def test_path_names_system_client_and_file_system(var: Path) -> None:
    assert store_path("archer", "login", "work") == var / "pulse" / "archer" / "login" / "work.db"
