"""Settings, a mock-up of a server, and a session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from iowatch.output.channels.notice import Notice, UndeliveredError
from iowatch.output.notice_channels import NotifySettings, notify_settings_model
from iowatch.store import History
from tests.builders import build_session
from tests.findings.conftest import record_and_update, root

__all__ = ["record_and_update", "root"]

ISSUES = {"name": "issues", "kind": "issue", "directory": "notices"}


def settings(**changed: Any) -> NotifySettings:
    return notify_settings_model().model_validate(
        {"digest": "never", "overdue_hours": 2208, "channels": [ISSUES], **changed}
    )


class Post:
    """Records what is sent; refuses it while `refuses` is set."""

    def __init__(self) -> None:
        self.sent: list[Notice] = []
        self.refuses = False

    def __call__(self, _channel: Any, notice: Notice) -> None:
        if self.refuses:
            raise UndeliveredError("the server answered 503")
        self.sent.append(notice)

    @property
    def titles(self) -> list[str]:
        return [f"{notice.kind}: {notice.lines[0]}" for notice in self.sent]


def prevent_overdue_notice(history: History, system: str = "planted") -> None:
    """Record a session, so that no overdue notice is sent."""
    started = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp())
    history.begin_session(build_session("living", system=system, suite="smoke", started_at=started))
