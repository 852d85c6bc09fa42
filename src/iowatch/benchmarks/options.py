"""Options of benchmarks: what a suite may set, declared once, and the values of one case with their types.

A benchmark declares each option with name, type, unit, default, bounds and help:

    OPTIONS = declare_options(
        Option("block", OptionType.SIZE, "size of a block", default="1m", minimum=1),
        Option("op", OptionType.CHOICE, "what is timed", default="write", choices=("write", "read")),
        repeat_option(3, "number of starts"),
    )

Its functions get `Options`, whose readers fill in the defaults: `options.number("block")` is 1048576 where the suite
sets nothing. A wrong option is found by the declaration, before any function of the benchmark is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any

from iowatch.core import InputError, Scalar, parse_size, suggest_name


class OptionType(Enum):
    """Type of an option; the value says what a person writes into a suite."""

    NUMBER = "a whole number"
    SIZE = "a size such as 4096, 64k or 1m"
    FLAG = "true or false"
    CHOICE = "one of some words"
    TEXT = "a text"
    SHAPE = "whole numbers joined by x, such as 64x64x64"
    SIZES = "sizes joined by x, such as 64x64x64 or 1mx1"


OptionValue = int | bool | str | tuple[int, ...]
_NUMBERS = (OptionType.NUMBER, OptionType.SIZE)
_SHAPES = (OptionType.SHAPE, OptionType.SIZES)
_WORDS = (OptionType.CHOICE, OptionType.TEXT)
_WHOLE_NUMBER = re.compile(r"-?\d+")


class OptionError(InputError):
    """An option whose value cannot be used; functions of benchmarks raise it where options contradict each other.

    Attributes:
        option: name of the option.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option of a benchmark.

    Attributes:
        name: as suites write it.
        type: type of its values.
        help: what it does, in words.
        default: value where a suite does not set the option, in the form of a suite; None if its absence has a meaning
            of its own, which the help says.
        unit: unit of a number, for example `ms`; sizes are in bytes.
        minimum: smallest number, size, or number of a shape; None for any.
        maximum: largest one; None for any.
        choices: all values of a choice.
        dimensions: possible numbers of dimensions of a shape; empty for any.
        check: function that raises InputError for a text that is not valid; None for any text.
    """

    name: str
    type: OptionType
    help: str
    default: Scalar | None = None
    unit: str = ""
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[Scalar, ...] = ()
    dimensions: tuple[int, ...] = ()
    check: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a declaration that contradicts itself."""
        if (self.type is OptionType.CHOICE) != bool(self.choices):
            raise ValueError(f"option '{self.name}': a choice has choices, and nothing else has")
        if self.default is not None:
            try:
                self.value_of(self.default)
            except InputError as error:
                raise ValueError(f"default of option '{self.name}': {error.message}") from error

    @property
    def expected(self) -> str:
        """What a value has to be, in words: `a whole number of at least 1`."""
        if self.type is OptionType.CHOICE:
            *first, last = [_suite_text(choice) for choice in self.choices]
            return f"{', '.join(first)} or {last}" if first else last
        words = str(self.type.value)
        if self.dimensions:
            words += f" ({' or '.join(map(str, self.dimensions))} of them)"
        unit = f" {self.unit}" if self.unit else ""
        if self.minimum is not None and self.maximum is not None:
            return f"{words} from {self.minimum} to {self.maximum}{unit}"
        if self.minimum is not None:
            return f"{words} of at least {self.minimum}{unit}"
        return words

    def value_of(self, given: Scalar) -> OptionValue:
        """Return the value of what a suite sets.

        Raises:
            InputError: it is of another type, out of bounds, or no choice.
        """
        if self.type is OptionType.CHOICE:
            return self._choice(given)
        if self.type is OptionType.FLAG:
            if not isinstance(given, bool):
                raise self._wrong(given)
            return given
        # In YAML, `true` is also the number 1.
        if isinstance(given, bool):
            raise self._wrong(given)
        if self.type is OptionType.TEXT:
            return self._text(str(given))
        if self.type in _SHAPES:
            return self._shape(str(given))
        return self._number(str(given))

    def _choice(self, given: Scalar) -> str:
        for choice in self.choices:
            # True == 1 in Python, not in a suite.
            if type(choice) is type(given) and choice == given:
                return _suite_text(choice)
        near = get_close_matches(str(given), [str(choice) for choice in self.choices], n=1)
        raise self._wrong(given, f". Did you mean '{near[0]}'?" if near else "")

    def _text(self, text: str) -> str:
        if self.check is not None:
            self.check(text)
        return text

    def _number(self, text: str) -> int:
        if self.type in (OptionType.SIZE, OptionType.SIZES):
            try:
                number = parse_size(text)
            except InputError as error:
                raise self._wrong(text, f": {error.message}") from error
        elif _WHOLE_NUMBER.fullmatch(text):
            number = int(text)
        else:
            raise self._wrong(text)
        if self.minimum is not None and number < self.minimum:
            raise self._wrong(text)
        if self.maximum is not None and number > self.maximum:
            raise self._wrong(text)
        return number

    def _shape(self, text: str) -> tuple[int, ...]:
        words = text.split("x")
        if self.dimensions and len(words) not in self.dimensions:
            raise self._wrong(text)
        try:
            return tuple([self._number(word) for word in words])
        except InputError as error:
            raise self._wrong(text) from error

    def _wrong(self, given: Scalar, more: str = "") -> InputError:
        return InputError(f"expected {self.expected} (found '{_suite_text(given)}'){more}")


def _suite_text(value: Scalar) -> str:
    """Return a value as a suite writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def declare_options(*options: Option) -> dict[str, Option]:
    """Return the options of a benchmark by name.

    Raises:
        ValueError: two options have the same name.
    """
    declared: dict[str, Option] = {}
    for option in options:
        if option.name in declared:
            raise ValueError(f"option '{option.name}' is declared twice")
        declared[option.name] = option
    return declared


RANKS = Option("ranks", OptionType.NUMBER, "MPI processes", default=1, minimum=1)
NODES = Option("nodes", OptionType.NUMBER, "nodes", default=1, minimum=1)
STRIPE_COUNT = Option(
    "stripe-count", OptionType.NUMBER, "Lustre stripe count of the directory, -1 for all; unset: as it is", minimum=-1
)
STRIPE_SIZE = Option(
    "stripe-size", OptionType.SIZE, "Lustre stripe size of the directory; unset: as it is", unit="bytes", minimum=0
)


def repeat_option(default: int, help_text: str) -> Option:
    """Return the option `repeat`, the number of repetitions."""
    return Option("repeat", OptionType.NUMBER, help_text, default=default, minimum=1)


# A name that a suite defines becomes a part of names of runs, series and ReFrame's performance variables.
DEFINITION_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class SuiteDefinitions:
    """What a suite defines beside options, for options that name it (`Benchmark.definition_fields`).

    Attributes:
        entries: by name, checked records.
        directory: of the suite's file.
    """

    entries: Mapping[str, Any]
    directory: Path


NO_DEFINITIONS = SuiteDefinitions({}, Path())


class Options(Mapping[str, Scalar]):
    """The options of one case.

    As a mapping it has what the suite sets, as the suite writes it: this is the identity of the case. The readers
    (`number`, `flag`, `text`, `shape`) return values of the declared type, and the default where the suite sets none.
    """

    def __init__(
        self,
        benchmark: str,
        declared: Mapping[str, Option],
        given: Mapping[str, Scalar],
        definitions: SuiteDefinitions = NO_DEFINITIONS,
    ) -> None:
        """Check the given values.

        Args:
            benchmark: name of the benchmark, for messages.
            declared: its options by name.
            given: the values that a suite sets.
            definitions: what the suite defines, of which options have the names.

        Raises:
            OptionError: an option that is not declared, or a value that the declaration does not allow.
        """
        faults = option_faults(benchmark, declared, given)
        if faults:
            raise faults[0]
        self._benchmark = benchmark
        self._declared = dict(declared)
        self._given = dict(given)
        self.definitions = definitions

    def __getitem__(self, name: str) -> Scalar:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        return f"Options({self._benchmark}, {self._given})"

    def declares(self, name: str) -> bool:
        """Return whether the benchmark has an option of this name, set or not."""
        return name in self._declared

    def number(self, name: str) -> int:
        """Return a number, or a size in bytes.

        Raises:
            KeyError: the benchmark has no such option, or it is not set and has no default (all readers).
            TypeError: the option is declared with another type (all readers).
        """
        value = self._value(name, _NUMBERS)
        assert isinstance(value, int)
        return value

    def flag(self, name: str) -> bool:
        """Return whether a flag is true."""
        return bool(self._value(name, (OptionType.FLAG,)))

    def text(self, name: str) -> str:
        """Return a choice or a text."""
        return str(self._value(name, _WORDS))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a shape, in the order written."""
        value = self._value(name, _SHAPES)
        assert isinstance(value, tuple)
        return value

    def with_values(self, values: Mapping[str, Scalar]) -> Options:
        """Return the options with other values of some.

        Raises:
            OptionError: as for a suite.
        """
        return Options(self._benchmark, self._declared, {**self._given, **values}, self.definitions)

    def _value(self, name: str, types: tuple[OptionType, ...]) -> OptionValue:
        option = self._declared.get(name)
        if option is None:
            raise KeyError(f"{self._benchmark} declares no option '{name}'")
        if option.type not in types:
            raise TypeError(f"option '{name}' of {self._benchmark} is declared as {option.type.name}")
        given = self._given.get(name, option.default)
        if given is None:
            raise KeyError(f"option '{name}' of {self._benchmark} is not set and has no default")
        return option.value_of(given)


def option_faults(benchmark: str, declared: Mapping[str, Option], given: Mapping[str, Scalar]) -> list[OptionError]:
    """Return everything in which values of options contradict their declaration; empty if nothing does.

    Args:
        benchmark: name of the benchmark, for messages.
    """
    faults: list[OptionError] = []
    for name, value in given.items():
        option = declared.get(name)
        if option is None:
            hint = suggest_name(name, list(declared))
            faults.append(OptionError(name, f"{benchmark} has no option '{name}'. {hint}"))
            continue
        try:
            option.value_of(value)
        except InputError as error:
            faults.append(OptionError(name, f"option '{name}' of {benchmark} ({option.help}): {error.message}"))
    return faults
