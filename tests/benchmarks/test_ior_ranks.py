"""The file of IOR with the times of its ranks; rows are of IOR 4.0.0 on three ranks, `-w -r -i 1`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iowatch.benchmarks.ior_ranks import IOR_RANK_TIMES, read_ior_rank_times
from iowatch.benchmarks.registry import BENCHMARKS

HEADER = "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput\n"
TEXT = f"""{HEADER}write,0,7.9469680786e-03,7.8492164612e-03,5.2778669280e+08,5.3435957853e+08
write,1,1.8004179001e-02,1.7954826355e-02,2.3296280268e+08,2.3360315032e+08
write,2,1.4367103577e-02,1.4293909073e-02,2.9193803592e+08,2.9343295656e+08
read,0,4.9400329590e-04,4.8089027405e-04,8.4904372801e+09,8.7219563929e+09
read,1,5.1689147949e-04,5.0687789917e-04,8.1144769578e+09,8.2747817707e+09
read,2,6.7210197449e-04,6.6399574280e-04,6.2405768160e+09,6.3167633912e+09
"""


def test_times_of_the_transfers_are_read() -> None:
    assert read_ior_rank_times(TEXT) == {
        "write": [[7.8492164612e-03, 1.7954826355e-02, 1.4293909073e-02]],
        "read": [[4.8089027405e-04, 5.0687789917e-04, 6.6399574280e-04]],
    }


def test_each_repetition_begins_with_rank_0() -> None:
    times = read_ior_rank_times(TEXT + TEXT.removeprefix(HEADER))
    assert [len(repetitions) for repetitions in times.values()] == [2, 2]
    assert times["write"][0] == times["write"][1]


DAMAGE: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "no header": lambda text: text.removeprefix(HEADER),
    "a row is cut off": lambda text: text[:-40],
    "a number is cut off": lambda text: text.replace("1.7954826355e-02", "1.795e"),
    "a rank is missing": lambda text: "".join(line for line in text.splitlines(True) if "write,1" not in line),
    "the first rank is missing": lambda text: "".join(line for line in text.splitlines(True) if "write,0" not in line),
    "no time": lambda text: text.replace("1.7954826355e-02", "nan"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected|has|is not|unpack|convert"):
        read_ior_rank_times(DAMAGE[name](TEXT))


@pytest.mark.parametrize(
    ("options", "operation", "is_own"),
    [
        ({"api": "posix", "sync": True}, "write", True),
        # MPI_File_sync is collective.
        ({"api": "mpiio", "sync": True}, "write", False),
        ({"api": "mpiio", "sync": False}, "write", True),
        ({"api": "mpiio", "sync": True}, "read", True),
        ({"api": "mpiio", "sync": False, "collective": True}, "read", False),
    ],
)
def test_time_of_a_rank_is_its_own_where_it_waits_for_no_other(
    options: dict[str, str | bool], operation: str, is_own: bool
) -> None:
    assert IOR_RANK_TIMES.is_own_time(BENCHMARKS["ior"].read_options(options), operation) is is_own
