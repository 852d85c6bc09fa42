"""What repeats from night to night, and what is a run's own: each kind of run is kept once (table `run_kind`).

`split` takes a run's facts apart by a table of names and looks at no value; what the table does not name stays
with the run, lists of nodes as one text. `whole` puts them together again and needs no table of what repeats,
so that names may be added at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from iowatch.store.nodelist import fold, unfold

# Facts that are the same until a machine, a stack or a suite changes: None for all of a fact, else its members.
# A fact that differs from night to night, such as a node's name, must not stand here: each night would make a
# kind of its own.
_REPEATS: dict[str, tuple[str, ...] | None] = {
    **dict.fromkeys(("mpi", "libraries", "machine", "striping", "kernel", "options_hash", "cache", "hints")),
    **dict.fromkeys(
        ("below_resolution", "generation", "api_version", "reframe_test", "exit_code", "label", "source")
    ),
    "filesystem": (
        *("type", "mount", "source"),
        *("directory_stripe_count", "directory_stripe_bytes", "directory_components"),
    ),
    "darshan": ("status", "reason", "logs", "repetitions"),
}
# Texts that are the same but for the session's UUID in the name of its scratch directory.
_TEXTS = ("command", "path")
_SESSION = "{session}"
# Lists of names of nodes, kept as one text under the name with these brackets: 512 nodes in the place of 7 KB.
_NODES = ("nodes", "hosts")
_FOLDED = "[]"

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """What runs have in common; the fields are columns of `run_kind`.

    Attributes:
        facts: the facts that repeat, and of some the members that do.
        texts: facts that are texts, with `{session}` for the session's UUID.
    """

    name: str
    partition: str
    tool: str
    version: str | None
    facts: Facts
    texts: Mapping[str, str]

    @property
    def columns(self) -> dict[str, Any]:
        """Values of all columns but the digest."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def digest(self) -> str:
        """SHA-256 of everything, also of the order of facts: a run is read as it was written."""
        return hashlib.sha256(json.dumps(list(self.columns.values())).encode()).hexdigest()


def split(facts: Facts, session: str) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Facts of a run to those of its kind, texts of its kind, and its own.

    Args:
        session: UUID of its session.
    """
    kind: dict[str, Any] = {}
    texts: dict[str, str] = {}
    own: dict[str, Any] = {}
    for name, value in facts.items():
        members = _REPEATS.get(name, ())
        if members is None:
            kind[name] = value
        elif members and isinstance(value, Mapping):
            kind[name], rest = _parted(value, members)
            own |= {name: rest} if rest else {}
        elif name in _TEXTS and isinstance(value, str) and _filled(_opened(value, session), session) == value:
            texts[name] = _opened(value, session)
        else:
            own[name] = value
    return kind, texts, folded(own)


def whole(kind: Facts, texts: Mapping[str, str], own: Facts, session: str) -> dict[str, Any]:
    """The facts that `split` took apart."""
    found = {**kind, **{name: _filled(text, session) for name, text in texts.items()}}
    for name, value in unfolded(own).items():
        found[name] = {**found[name], **value} if name in found else value
    return found


def folded(own: Facts) -> dict[str, Any]:
    """A run's own facts with lists of nodes as texts, where the text gives the very same list."""
    return dict(_folded(name, value) for name, value in own.items())


def unfolded(own: Facts) -> dict[str, Any]:
    """The facts of `folded`; those with lists stay as they are."""
    return dict(_unfolded(name, value) for name, value in own.items())


def _folded(name: str, value: Any) -> tuple[str, Any]:
    if name not in _NODES or not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return name, value
    text = fold(value)
    return (f"{name}{_FOLDED}", text) if list(unfold(text)) == value else (name, value)


def _unfolded(name: str, value: Any) -> tuple[str, Any]:
    plain = name.removesuffix(_FOLDED)
    return (plain, list(unfold(value))) if plain != name and plain in _NODES else (name, value)


def _parted(value: Facts, members: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    repeats = {name: one for name, one in value.items() if name in members}
    return repeats, {name: one for name, one in value.items() if name not in members}


def _opened(text: str, session: str) -> str:
    return text.replace(session, _SESSION)


def _filled(text: str, session: str) -> str:
    return text.replace(_SESSION, session)
