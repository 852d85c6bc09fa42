"""Reads YAML into closed models, and says for each fault in which file, line and column it is.

libyaml (through PyYAML, which ReFrame reads its references with too) is some twenty times faster than a
round-trip parser and its nodes know where they stand; ruamel.yaml is used where a person's file is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from iowatch.errors import InputError, near_miss

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAPPING, _SEQUENCE = yaml.MappingNode, yaml.SequenceNode

Model = TypeVar("Model", bound="Closed")


class Closed(BaseModel):
    """A frozen model that refuses unknown keys by name and does not convert between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in data if isinstance(data, dict) else ():
            if key not in known:
                hint = near_miss(str(key), known)
                raise PydanticCustomError("unknown_key", f"unknown key '{key}'. {hint}", {"key": key})
        return data


class Document:
    """One YAML file: its data, and where each part of it stands.

    Attributes:
        path: the file.
        data: what it holds.
    """

    def __init__(self, path: Path) -> None:
        """Read a file.

        Raises:
            InputError: not readable, not YAML, or a key twice in one mapping.
        """
        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not readable: {error}") from error
        loader = _LOADER(text)
        try:
            self._node = loader.get_single_node()
            for mark, key in _twice(self._node):
                raise InputError(f"{path}:{mark.line + 1}:{mark.column + 1}: key '{key}' occurs twice")
            self.data: Any = None if self._node is None else loader.construct_document(self._node)
        except (yaml.YAMLError, ValueError, TypeError) as error:
            raise InputError(f"{path}:{_place(error)} not YAML: {_problem(error)}") from error
        finally:
            loader.dispose()

    def where(self, location: Sequence[int | str], *, value: bool = False) -> str:
        """`file:line:column` of the deepest part of `location` that the file has: its key or its value."""
        mark = self._node.start_mark if self._node is not None else None
        node = self._node
        for key in location:
            found = _child(node, key)
            if found is not None:
                mark, node = found[1].start_mark if value else found[0], found[1]
        return f"{self.path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{self.path}:1:1"

    def validated(self, model: type[Model], at: Sequence[int | str] = ()) -> Model:
        """The file's data, or the part of it at `at`, as a model.

        Raises:
            InputError: against the schema; all faults together, each with file, line and column.
        """
        try:
            return model.model_validate(reduce(lambda part, key: part[key], at, self.data))
        except ValidationError as error:
            raise InputError("\n".join(self._faults(error, at))) from error

    def _faults(self, error: ValidationError, at: Sequence[int | str]) -> Iterator[str]:
        for fault in error.errors(include_url=False):
            location = [*at, *fault["loc"]]
            if fault["type"] == "unknown_key":
                yield f"{self.where([*location, fault['ctx']['key']])}: {fault['msg']}"
                continue
            field = ".".join(str(part) for part in location) or "document"
            found = "" if fault["type"] == "missing" else f" (found {fault['input']!r})"
            yield f"{self.where(location, value=True)}: {field}: {fault['msg']}{found}"


def _place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"{mark.line + 1}:{mark.column + 1}:" if mark else ""


def _problem(error: Exception) -> str:
    return str(getattr(error, "problem", None) or error)


def _child(node: Any, key: int | str) -> tuple[Any, Any] | None:
    """Position and node of one entry of a mapping or sequence."""
    if isinstance(node, _MAPPING):
        for name, value in node.value:
            if name.value == str(key):
                return name.start_mark, value
    if isinstance(node, _SEQUENCE) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark, node.value[key]
    return None


def _twice(node: Any) -> Iterator[tuple[Any, str]]:
    """Keys that stand twice in one mapping: YAML would silently keep the last."""
    if isinstance(node, _MAPPING):
        seen: set[str] = set()
        for name, value in node.value:
            if name.value in seen:
                yield name.start_mark, name.value
            seen.add(name.value)
            yield from _twice(value)
    elif isinstance(node, _SEQUENCE):
        for value in node.value:
            yield from _twice(value)
