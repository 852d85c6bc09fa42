"""Command lines as IOR and mdtest print them; expected options as `option.c` of hpc/ior 4.0 reads them."""

from __future__ import annotations

import pytest

from iowatch.benchmarks.command_line import CommandLineSyntax, GivenOption, read_command_line

SYNTAX = CommandLineSyntax(valued_letters=frozenset("abinoOQt"), long_flags=frozenset({"posix.odirect"}))


def _options(text: str) -> dict[str, str | None]:
    return {option.name: option.value for option in read_command_line(text, SYNTAX).options}


@pytest.mark.parametrize("text", ["ior -t 1m -b 8m", "ior -t=1m -b=8m", "ior -t1m -b8m", "ior '-t' '1m' '-b=8m'"])
def test_forms_of_a_value_are_equal(text: str) -> None:
    assert _options(text) == {"t": "1m", "b": "8m"}


def test_flags_in_one_word() -> None:
    assert _options("ior -wrk -Fn10") == {"w": None, "r": None, "k": None, "F": None, "n": "10"}


def test_long_options() -> None:
    line = read_command_line("ior --dfs.pool=p1 --dfs.cont c1 --posix.odirect --x.y -w", SYNTAX)
    assert line.options == (
        GivenOption("dfs.pool", "p1"),
        GivenOption("dfs.cont", "c1"),
        GivenOption("posix.odirect"),
        GivenOption("x.y"),
        GivenOption("w"),
    )
    assert not line.strays
    assert not line.without_value


def test_options_given_more_than_once() -> None:
    line = read_command_line("ior -O a=1 -O b=2 -e -e -i 2 -i 3", SYNTAX)
    assert line.values("O") == ["a=1", "b=2"]
    assert line.value("i") == "3"
    assert line.is_set("e")
    assert line.count("e") == 2
    assert line.names == {"O", "e", "i"}


def test_value_with_an_equals_sign() -> None:
    assert _options("ior -O=summaryFormat=JSON -o /a=b") == {"O": "summaryFormat=JSON", "o": "/a=b"}


def test_flag_that_is_off() -> None:
    line = read_command_line("ior -F=0 -e=1 --posix.odirect=0", SYNTAX)
    assert line.is_set("e")
    for flag in ("F", "posix.odirect", "C"):
        assert not line.is_set(flag)


def test_negative_value() -> None:
    assert _options("ior -Q -1 -w") == {"Q": "-1", "w": None}


def test_missing_values() -> None:
    assert read_command_line("ior -t 1m -b", SYNTAX).without_value == ("b",)
    assert read_command_line("ior -t= -w", SYNTAX).without_value == ("t",)
    # The value is lost, and the next option is none.
    line = read_command_line("ior -b  -F -w", SYNTAX)
    assert (line.without_value, line.is_set("F")) == (("b",), True)
    assert read_command_line("ior --dfs.pool=", SYNTAX).without_value == ("dfs.pool",)


@pytest.mark.parametrize("stray", ["1m", "-F1", "-", "--", "-é", "--=x"])
def test_words_that_are_no_options(stray: str) -> None:
    assert read_command_line(f"ior -w {stray} -r", SYNTAX).strays == (stray,)
