"""MPI-IO hints as cases name them: one canonical form, and words for sentences.

`iowatch.benchmarks.hints` gives them to programs and compares them with those in force.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from iowatch.core.errors import InputError
from iowatch.core.units import format_size, parse_size

NO_HINTS = "none"
_SEPARATOR = "+"  # a comma separates parameters of `compare` and of ReFrame's variables
_SWITCH = {"off": "disable", "on": "enable", "auto": "automatic"}
_LARGEST = 2**31 - 1  # ROMIO reads an int
_ROMIO_SWITCH = {value: value for value in _SWITCH.values()}


@dataclass(frozen=True)
class MpiHint:
    """One name that the option accepts.

    Attributes:
        label: its name in sentences.
        keys: ROMIO's keys.
        values: accepted word -> ROMIO's value; empty for a number.
        is_size: the number is a size in bytes.
        ompio: values that OMPIO understands, too: all, or those named.
    """

    label: str
    keys: tuple[str, ...]
    values: Mapping[str, str] | None = None
    is_size: bool = False
    ompio: bool | frozenset[str] = False

    @property
    def expected(self) -> str:
        """The accepted values in words."""
        number = f"{'a size in bytes' if self.is_size else 'an integer'} from 1 to {_LARGEST}"
        return ", ".join(self.values) if self.values else number


def _both(name: str) -> tuple[str, ...]:
    return f"romio_{name}_write", f"romio_{name}_read"


# Keys of ROMIO: ROMIO user guide, section "Hints". The shorthands come first: they fold pairs of keys.
HINTS: dict[str, MpiHint] = {
    "cb": MpiHint("collective buffering", _both("cb"), _SWITCH, ompio=frozenset({"off"})),
    "ds": MpiHint("data sieving", _both("ds"), _SWITCH),
    "cb_nodes": MpiHint("aggregators", ("cb_nodes",), ompio=True),
    "cb_buffer_size": MpiHint("collective buffer", ("cb_buffer_size",), is_size=True, ompio=True),
    "striping_factor": MpiHint("stripe count by hint", ("striping_factor",)),
    "striping_unit": MpiHint("stripe size by hint", ("striping_unit",), is_size=True),
    "romio_cb_write": MpiHint("collective buffering of writes", ("romio_cb_write",), _ROMIO_SWITCH),
    "romio_cb_read": MpiHint("collective buffering of reads", ("romio_cb_read",), _ROMIO_SWITCH),
    "romio_ds_write": MpiHint("data sieving of writes", ("romio_ds_write",), _ROMIO_SWITCH),
    "romio_ds_read": MpiHint("data sieving of reads", ("romio_ds_read",), _ROMIO_SWITCH),
    "ind_wr_buffer_size": MpiHint("data sieving buffer of writes", ("ind_wr_buffer_size",), is_size=True),
    "ind_rd_buffer_size": MpiHint("data sieving buffer of reads", ("ind_rd_buffer_size",), is_size=True),
}
STRIPING_HINTS = frozenset({"striping_factor", "striping_unit"})


def parse_hints(text: str) -> dict[str, str]:
    """Return name -> value in canonical form: sorted, sizes in bytes, pairs of ROMIO's keys as their shorthand.

    Raises:
        InputError: an unknown name, a value that it cannot have, or two values of one key.
    """
    info: dict[str, str] = {}
    words = [] if text == NO_HINTS else re.split(r"[+,\s]+", text.strip())
    for word in words:
        name, equals, value = word.partition("=")
        if name not in HINTS or not equals:
            raise InputError(f"'{word}' is not a hint, expected NAME=VALUE with one of {', '.join(HINTS)}")
        raw = _checked_value(name, value)
        for key in HINTS[name].keys:
            if info.setdefault(key, raw) != raw:
                raise InputError(f"hints '{text}' set {key} to {info[key]} and to {raw}, expected one value")
    return fold_hints(info)


def _checked_value(name: str, value: str) -> str:
    """Return ROMIO's value of a hint."""
    hint = HINTS[name]
    if hint.values is not None:
        if value in hint.values:
            return hint.values[value]
    elif (hint.is_size or value.isdecimal()) and 0 < (number := parse_size(value)) <= _LARGEST:
        return str(number)
    raise InputError(f"hint '{name}' cannot be '{value}', expected {hint.expected}")


def fold_hints(info: Mapping[str, str]) -> dict[str, str]:
    """Return ROMIO's keys as canonical hints; unknown keys stay as they are."""
    rest = dict(info)
    folded: dict[str, str] = {}
    for name, hint in HINTS.items():
        # A shorthand stands for several keys with one value.
        values = {rest.get(key) for key in hint.keys}
        value = values.pop()
        if value is None or values:
            continue
        words = {raw: word for word, raw in (hint.values or {}).items()}
        if hint.values and value not in words:
            continue
        folded[name] = words.get(value, value)
        for key in hint.keys:
            del rest[key]
    return dict(sorted({**folded, **rest}.items()))


def format_hints(hints: Mapping[str, str]) -> str:
    """Return hints as the value of the case parameter, `cb=off+cb_nodes=2`."""
    return _SEPARATOR.join(f"{name}={value}" for name, value in hints.items())


def split_hints(text: str) -> dict[str, str]:
    """Return name -> value of the case parameter; also of hints that no suite accepts."""
    hints: dict[str, str] = {}
    for word in re.split(r"[+,]", text):
        name, equals, value = word.partition("=")
        if equals:
            hints[name] = value
    return hints


def describe_hints(text: str) -> str:
    """Return the case parameter in words: `collective buffering off, 2 aggregators`."""
    return ", ".join(_describe(name, value) for name, value in split_hints(text).items()) or text


def _describe(name: str, value: str) -> str:
    hint = HINTS.get(name)
    if hint is None:
        return f"{name} {value}"
    if name == "cb_nodes":
        return f"{value} aggregator{'s' if value != '1' else ''}"
    if hint.is_size and value.isdecimal():
        return f"{hint.label} {format_size(int(value))}"
    if value == "auto":
        return f"{hint.label} automatic"
    return f"{hint.label} {value}"
