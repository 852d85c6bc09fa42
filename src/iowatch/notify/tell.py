"""Tell: compose, take up, deliver; what cannot be delivered waits for the next time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from iowatch.errors import IowatchError
from iowatch.notify import outbox
from iowatch.notify.compose import compose
from iowatch.notify.config import Settings
from iowatch.notify.notice import Notice
from iowatch.notify.send import deliver
from iowatch.store import History
from iowatch.units import utc_now

Deliver = Callable[[Any, Notice], None]


@dataclass(frozen=True)
class Outcome:
    """What one channel did: keys of notices sent, how many wait, and why they do."""

    channel: str
    kind: str
    sent: tuple[str, ...]
    waiting: int
    reason: str | None


def rehearse(
    history: History, system: str, settings: Settings, now: datetime | None = None
) -> dict[str, list[Notice]]:
    """What each channel would be sent now; sends nothing and remembers nothing."""
    box, moment = outbox.read(system), now or utc_now()
    box.take(compose(history, system, settings, box.states, moment).notices, settings)
    box.expire(settings, moment)
    return {channel.name: box.waiting.get(channel.name, []) for channel in settings.channels}


def tell(
    history: History,
    system: str,
    settings: Settings,
    now: datetime | None = None,
    send: Deliver = deliver,
) -> list[Outcome]:
    """Send every channel what is new to it; a notice goes out once.

    What was taken up is remembered before it is sent, and each delivery right after it: a kill in between costs
    at most one notice told twice, never one that is not told.

    Raises:
        InputError: the outbox is damaged.
        MachineError: the outbox cannot be written.
    """
    moment = now or utc_now()
    with outbox.held(system) as box:
        composed = compose(history, system, settings, box.states, moment)
        box.take(composed.notices, settings)
        box.states = composed.states
        box.expire(settings, moment)
        box.save()
        return [_empty(box, channel, send) for channel in settings.channels]


def _empty(box: outbox.Outbox, channel: Any, send: Deliver) -> Outcome:
    """Send what waits for one channel, oldest first; after a failure the rest waits, too."""
    sent: list[str] = []
    queue, reason = box.waiting.get(channel.name, []), None
    while queue and reason is None:
        try:
            send(channel, queue[0])
        except IowatchError as error:
            reason = error.message
        else:
            sent.append(queue.pop(0).key)
            box.save()
    return Outcome(channel.name, channel.kind, tuple(sent), len(queue), reason)
