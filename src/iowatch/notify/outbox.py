"""`var/notify/<system>.json`: what was told, and what still waits for a channel. Survives any kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from iowatch import paths
from iowatch.errors import InputError
from iowatch.files import locked, write_whole
from iowatch.notify.config import Settings
from iowatch.notify.notice import Notice

_FORMAT = 1
_DAY_S = 86400
# A server that is away for longer has people who know; old notices would only bury new ones.
_GIVE_UP_S = 14 * _DAY_S
_FORGET_S = 800 * _DAY_S


@dataclass
class Outbox:
    """Keys and when they were taken up; notices that wait, by channel; states of findings as told."""

    path: Path
    told: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] | None = None
    waiting: dict[str, list[Notice]] = field(default_factory=dict)

    def take(self, notices: Sequence[Notice], settings: Settings) -> list[Notice]:
        """Queue what was not told yet for every channel that wants it; returns the new ones."""
        fresh = [notice for notice in notices if notice.key not in self.told]
        for notice in fresh:
            self.told[notice.key] = notice.made_at
            for channel in settings.channels:
                if notice.kind in channel.tell:
                    self.waiting.setdefault(channel.name, []).append(notice)
        return fresh

    def expire(self, settings: Settings, now: datetime) -> int:
        """Give up what waits too long or for a channel that is no more; returns how many."""
        moment, names = now.timestamp(), {channel.name for channel in settings.channels}
        before = sum(map(len, self.waiting.values()))
        self.waiting = {
            name: [notice for notice in queue if moment - notice.made_at <= _GIVE_UP_S]
            for name, queue in self.waiting.items()
            if name in names
        }
        self.told = {key: at for key, at in self.told.items() if moment - at <= _FORGET_S}
        return before - sum(map(len, self.waiting.values()))

    def save(self) -> None:
        """Replace the file at once.

        Raises:
            MachineError: it cannot be written.
        """
        waiting = {name: [notice.to_json() for notice in queue] for name, queue in self.waiting.items()}
        document = {"format": _FORMAT, "told": self.told, "states": self.states, "waiting": waiting}
        write_whole(self.path, json.dumps(document, ensure_ascii=False, indent=1), 0o600)


def _path(system: str) -> Path:
    return paths.var() / "notify" / f"{system}.json"


def read(system: str) -> Outbox:
    """The outbox of a system; empty where there is none yet.

    Raises:
        InputError: its file is damaged, or of a newer iowatch.
    """
    path = _path(system)
    if not path.exists():
        return Outbox(path)
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != _FORMAT:
            raise InputError(f"{path} has format {document['format']}; this iowatch knows {_FORMAT}")
        waiting = {
            name: [Notice.from_json(notice) for notice in queue] for name, queue in document["waiting"].items()
        }
        return Outbox(path, dict(document["told"]), document["states"], waiting)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged: {error!r}",
            hint="Move it away: what is news today is then told, perhaps for a second time.",
        ) from error


@contextmanager
def held(system: str) -> Iterator[Outbox]:
    """The outbox for this process alone; a second one waits until the first is done.

    Raises:
        MachineError: the lock cannot be made.
    """
    with locked(_path(system)):
        yield read(system)
