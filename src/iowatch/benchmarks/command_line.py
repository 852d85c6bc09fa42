"""Command lines that IOR and mdtest print, read as their own parser of options reads them.

Forms: `-t 1m`, `-t=1m`, `-t1m`, several flags in one word (`-wrk`), `-F=0` (a flag that is off), `--dfs.pool p1`,
`--dfs.pool=p1`. mdtest puts each argument in quotes, IOR none. Names of one letter and long names are in one list.
Source: hpc/ior, `option.c` (3.2 to 4.1) and `parse_options.c` (getopt, 3.0 and 3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_ARGUMENT = re.compile(r"""'[^']*'|"[^"]*"|\S+""")
_LETTERS = re.compile(r"[A-Za-z]+")
_LONG_NAME = re.compile(r"[A-Za-z][\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class CommandLineSyntax:
    """Which options of a program take a value.

    Attributes:
        valued_letters: options of one letter with a value; all others are flags.
        long_flags: long options without a value; any other has one, unless another option follows it.
    """

    valued_letters: frozenset[str]
    long_flags: frozenset[str]


@dataclass(frozen=True, slots=True)
class GivenOption:
    """One option of a command line: its name without hyphens, and its value; None if it is given without one."""

    name: str
    value: str | None = None


@dataclass(frozen=True)
class CommandLine:
    """The options of a command line.

    Attributes:
        options: in the order given.
        strays: words that are neither an option nor the value of one: the line is damaged, or a value has blanks.
        without_value: names of options that need a value and have none: the line is cut off.
    """

    options: tuple[GivenOption, ...] = ()
    strays: tuple[str, ...] = ()
    without_value: tuple[str, ...] = ()

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of all options."""
        return frozenset(option.name for option in self.options)

    def value(self, name: str, default: str | None = None) -> str | None:
        """Return the value of an option, the last one if it is given more than once; `default` if it is not given."""
        values = self.values(name)
        return values[-1] if values else default

    def values(self, name: str) -> list[str]:
        """Return all values of an option in the order given."""
        return [option.value for option in self.options if option.name == name and option.value is not None]

    def count(self, name: str) -> int:
        """Return how often an option is given."""
        return len([option for option in self.options if option.name == name])

    def is_set(self, name: str) -> bool:
        """Return whether a flag is given; `-F=0` switches it off."""
        if name not in self.names:
            return False
        last = [option for option in self.options if option.name == name][-1]
        return last.value != "0"


def read_command_line(text: str, syntax: CommandLineSyntax) -> CommandLine:
    """Read a command line.

    Args:
        text: program and arguments as printed, each argument in quotes or none.
        syntax: of the program.
    """
    words = [_without_quotes(word) for word in _ARGUMENT.findall(text)]
    arguments = _Arguments(iter(words[1:]))
    for word in arguments:
        if word.startswith("--"):
            _read_long_option(word[2:], arguments, syntax)
        elif word.startswith("-"):
            _read_letters(word[1:], arguments, syntax)
        else:
            arguments.strays.append(word)
    return CommandLine(tuple(arguments.options), tuple(arguments.strays), tuple(arguments.without_value))


class _Arguments:
    """The words of a command line that are not read yet, and what was read of the others."""

    def __init__(self, words: Iterator[str]) -> None:
        self._words = words
        self._next: str | None = None
        self.options: list[GivenOption] = []
        self.strays: list[str] = []
        self.without_value: list[str] = []

    def __iter__(self) -> Iterator[str]:
        while (word := self.take()) is not None:
            yield word

    def take(self) -> str | None:
        """Return the next word; None after the last."""
        word, self._next = self._next, None
        return next(self._words, None) if word is None else word

    def take_value(self) -> str | None:
        """Return the next word if it is no option; None if it is one, or after the last.

        A negative number (`-Q -1`) is no option.
        """
        word = self.take()
        if word is not None and word.startswith("-") and not word[1:2].isdecimal():
            self._next = word
            return None
        return word

    def add(self, name: str, value: str | None) -> None:
        """Record an option that has a value; None or an empty value: it is cut off."""
        if not value:
            self.without_value.append(name)
        self.options.append(GivenOption(name, value or None))


def _without_quotes(word: str) -> str:
    if len(word) > 1 and word[0] in "'\"" and word[-1] == word[0]:
        return word[1:-1]
    return word


def _read_long_option(text: str, arguments: _Arguments, syntax: CommandLineSyntax) -> None:
    name, equals, value = text.partition("=")
    if _LONG_NAME.fullmatch(name) is None:
        arguments.strays.append(f"--{text}")
    elif equals:
        arguments.add(name, value)
    elif name in syntax.long_flags:
        arguments.options.append(GivenOption(name))
    else:
        # The flags of some interfaces are not listed: then the next word is an option.
        arguments.options.append(GivenOption(name, arguments.take_value()))


def _read_letters(text: str, arguments: _Arguments, syntax: CommandLineSyntax) -> None:
    """Read a word of one-letter options: flags, or flags and then an option with a value."""
    position = 0
    while position < len(text) and text[position] not in syntax.valued_letters and text[position] != "=":
        position += 1
    flags, rest = text[:position], text[position:]
    letter = "" if rest.startswith("=") else rest[:1]
    if _LETTERS.fullmatch(flags + letter) is None:
        arguments.strays.append(f"-{text}")
        return
    value = rest[len(letter) :]
    has_equals = value.startswith("=")
    value = value.removeprefix("=")
    # `-F=0`: the value of the word is the value of each of its flags.
    for flag in flags:
        arguments.options.append(GivenOption(flag, value if has_equals else None))
    if letter:
        is_in_word = has_equals or value != ""
        # The option after a lost value is no value: `-i  -u` would run without -u.
        arguments.add(letter, value if is_in_word else arguments.take_value())
