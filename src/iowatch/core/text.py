"""Text that leaves iowatch, in the console, pages, notices and JSON; text that enters it.

External text is never interpreted: characters that control a terminal, or reverse or hide adjacent text, are shown as
escapes such as `\\x1b` and `\\u202e`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

# Controls (C0 without tab and line feed, C1), format characters (bidirectional, zero-width, tags), line and paragraph
# separators, lone surrogates, and letters without a glyph: all characters of Unicode's Cc, Cf, Zl, Zp and Cs.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000110bd"
    "\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


# In the URL of a database: what is between the user and the last @, which a password may contain unescaped; and
# parameters of the drivers with a secret.
_URL_PASSWORD = re.compile(r"(://[^:/@\s]*):\S*@")
_SECRET_PARAMETER = re.compile(r"([?&][^=&\s]*(?:pass|pwd|secret|token|key)[^=&\s]*=)[^&\s]*", re.IGNORECASE)


def hide_passwords(text: str) -> str:
    """Return a text, in which `***` stands for the passwords of URLs."""
    return _SECRET_PARAMETER.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", text))


def escape_controls(text: str) -> str:
    """Return a text in which each control and invisible character is an escape; tabs and line ends are kept."""
    if text.isascii() and text.isprintable():  # nearly all texts, in a fifth of the time
        return text
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


# A page by its path in a clone, as messages name it; not the end of a longer path.
_PAGE_PATH = re.compile(r"(?<![\w/.`-])docs/([\w-]+)\.md(#[\w-]+)?")


def name_pages(text: str) -> str:
    """Return a text in which `iowatch docs PAGE` stands for docs/PAGE.md: an installed iowatch has no such path.

    Messages and help name pages by their paths, which their tests and the site of the documentation check; whatever
    prints them calls this function.
    """
    if "docs/" not in text:
        return text
    return _PAGE_PATH.sub(lambda match: f"`iowatch docs {match[1]}{match[2] or ''}`", text)


def escape_line(text: str) -> str:
    """Return a text on one line: tabs and line ends are escapes, too."""
    return escape_controls(text).replace("\n", "\\n").replace("\t", "\\t")


def escape_json_controls(document: str) -> str:
    """Return the same JSON document, with JSON's escapes for the characters of `escape_controls`."""
    return _CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], document)


def escape_texts(value: Any) -> Any:
    """Return a value in which all texts are escaped, as pages show it; numbers and finished markup are unchanged."""
    if type(value) is str:
        return escape_controls(value)
    if isinstance(value, tuple):
        return tuple(map(escape_texts, value))
    if isinstance(value, list):
        return list(map(escape_texts, value))
    if isinstance(value, dict):
        return {escape_texts(key): escape_texts(entry) for key, entry in value.items()}
    return value


_Value = TypeVar("_Value")
_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(value: _Value) -> _Value:
    """Replace NUL and lone surrogates by U+FFFD in a text, or in all texts of a JSON document or of a record.

    No database stores lone surrogates, PostgreSQL stores no NUL, and both occur in outputs of killed jobs.
    """
    cleaned: Any = value
    if isinstance(value, str):
        cleaned = _NOT_STORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    elif isinstance(value, Mapping):
        cleaned = {clean_text(key): clean_text(entry) for key, entry in value.items()}
    elif isinstance(value, list | tuple):
        cleaned = type(value)([clean_text(entry) for entry in value])
    elif is_dataclass(value) and not isinstance(value, type):
        cleaned = replace(value, **{field.name: clean_text(getattr(value, field.name)) for field in fields(value)})
    return cleaned  # type: ignore[no-any-return]
