"""YAML that people and programs write together: read with line numbers, validated closed, comments kept."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from iowatch import paths
from iowatch.errors import InputError, UsageError
from iowatch.files import locked, write_whole


class Closed(BaseModel):
    """A record that refuses unknown keys: a misspelt key must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)
Entry = TypeVar("Entry")
# A list of a file; a key without entries, as when somebody takes the last one out, is an empty one.
Entries = Annotated[tuple[Entry, ...], BeforeValidator(lambda found: () if found is None else found)]


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 110
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def path_in_reference(folder: str, system: str) -> Path:
    """`reference/<folder>/<system>.yaml`.

    Raises:
        UsageError: the name would lead out of the folder.
    """
    require_system_name(system)
    return paths.root() / "reference" / folder / f"{system}.yaml"


def require_system_name(system: str) -> None:
    """Refuse what cannot be the name of a system's files.

    Raises:
        UsageError: the name would lead out of a folder.
    """
    if not system or system.startswith(".") or "/" in system or "\0" in system:
        raise UsageError(f"'{system}' is not the name of a system", hint="Expected for example archer2.")


def read_document(path: Path) -> Any:
    """The document of a file with its comments and line numbers; None where there is no file.

    Raises:
        InputError: unreadable or not YAML.
    """
    if not path.exists():
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable: {error}") from error
    try:
        return _yaml().load(text)
    except YAMLError as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:
        raise InputError(_no_date(path, text) or f"{path}: not YAML: {error}") from error


def _no_date(path: Path, text: str) -> str | None:
    """The line with what YAML takes for a date and the calendar does not have, as 30 February."""
    for number, line in enumerate(text.splitlines(), start=1):
        for year, month, day in re.findall(r"\b(\d{4})-(\d\d?)-(\d\d?)\b", line):
            try:
                date(int(year), int(month), int(day))
            except ValueError as error:
                return f"{path}:{number}: '{year}-{month}-{day}' is no date: {error}"
    return None


def of_system(path: Path, system: str, model: type[Model], known: str) -> Model | None:
    """The file of a system as a record, which has the field `system`; None where there is none, or it is empty.

    Args:
        known: where the fields are documented, for the hint.

    Raises:
        InputError: against the schema, or of another system; every fault is told with file, line and field.
    """
    document = read_document(path)
    if document is None:
        return None
    file = validated(path, document, model, known)
    found = getattr(file, "system", None)
    if found != system:
        raise InputError(f"{path}:1: field 'system' is '{found}', expected '{system}' (the file's name)")
    return file


def validated(
    path: Path, document: Any, model: type[Model], known: str, *, quote: bool = True, entry: str | None = None
) -> Model:
    """The document as a record; every fault is told with file, line and field.

    Args:
        entry: what to call a document that is not in the file yet, and so has no line there.
        known: where the fields are documented, for the hint.
        quote: repeat what was found; not where it may be a secret in the wrong place.

    Raises:
        InputError: against the schema.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        told = InputError("\n".join(_faults(path, document, error, quote, entry)), hint=known)
        raise told from (error if quote else None)


# What pydantic says in words of Python.
_PLAIN = {
    "extra_forbidden": "unknown field",
    "tuple_type": "expected a list, each entry behind '- '",
    "model_type": "expected fields, 'name: value'",
    "model_attributes_type": "expected fields, 'name: value'",
}


def _faults(path: Path, document: Any, error: ValidationError, quote: bool, entry: str | None) -> list[str]:
    lines = []
    for fault in error.errors(include_url=False):
        name = ".".join(str(key) for key in fault["loc"])
        unknown = fault["type"] == "extra_forbidden"
        # What several fields say together has no one value to show: `found` would be all of them.
        quoted = quote and not unknown and fault["type"] != "missing" and not isinstance(fault["input"], dict)
        message = _PLAIN.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
        where = entry or f"{path}:{_line(document, fault['loc'])}"
        field = f"field '{name}': " if name else ""
        lines.append(f"{where}: {field}{message}" + (f" (found {fault['input']!r})" if quoted else ""))
    return lines


def _line(document: Any, location: Sequence[int | str]) -> int:
    """Line (from 1) of the deepest part of `location` that the document has; a union's tag is no part of it."""
    line = 0
    for key in location:
        try:
            marks = document.lc
            line = marks.item(key)[0] if isinstance(document, CommentedSeq) else marks.key(key)[0]
            document = document[key]
        except (AttributeError, KeyError, IndexError, TypeError):
            continue
    return int(line) + 1


def append(path: Path, system: str, key: str, entry: dict[str, Any]) -> None:
    """Add one entry to the list `key` of a file, made with `system` if absent; comments stay as they are.

    Several processes may add at once: one after the other reads, adds and writes.

    Raises:
        InputError: the file is damaged.
        MachineError: it cannot be written.
    """
    with locked(path):
        document = read_document(path)
        if document is None:
            document = CommentedMap({"system": system, key: CommentedSeq()})
        if document.get(key) is None:
            document[key] = CommentedSeq()
        document[key].append(CommentedMap({k: v for k, v in entry.items() if v not in (None, {}, [])}))
        text = io.StringIO()
        _yaml().dump(document, text)
        write_whole(path, text.getvalue())
