"""Telling people: one notice an event, through the channels of `systems/<name>/notify.yaml`."""

from iowatch.notify.config import Settings, load
from iowatch.notify.notice import Notice
from iowatch.notify.tell import Outcome, rehearse, tell

__all__ = ["Notice", "Outcome", "Settings", "load", "rehearse", "tell"]
