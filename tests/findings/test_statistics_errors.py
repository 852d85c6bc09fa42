"""Errors of the statistics reach the command line as errors of iowatch, with the same message and hint."""

from __future__ import annotations

import pickle

import pytest

from iowatch.core import InputError, IowatchError, UsageError
from iowatch.findings import reported_as
from iowatch.session.ab_run import make_stop_rule
from iowatch.statistics import StatisticsError


@pytest.mark.parametrize("error_type", [InputError, UsageError])
def test_message_and_hint_stay(error_type: type[IowatchError]) -> None:
    with pytest.raises(error_type) as caught, reported_as(error_type):
        raise StatisticsError("series 3: no values", hint="Leave it out.")
    assert (caught.value.message, caught.value.hint) == ("series 3: no values", "Leave it out.")
    assert caught.value.exit_code == 2


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), reported_as(UsageError):
        raise ZeroDivisionError


def test_error_of_a_detection_process_keeps_its_hint() -> None:
    error = pickle.loads(pickle.dumps(StatisticsError("series 3: no values", hint="Leave it out.")))
    assert (error.message, error.hint, str(error)) == ("series 3: no values", "Leave it out.", "series 3: no values")


def test_invalid_stop_rule_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="0 pairs cannot be run") as caught:
        make_stop_rule(0, None, None)
    assert caught.value.hint == "At least 1; 8 for a verdict."
