"""Tickets as issues of GitLab (https://docs.gitlab.com/api/issues/, version 4 of the interface)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal
from urllib.parse import quote, urlencode

from iowatch.output.channels.markdown import comment_text
from iowatch.output.channels.notice import Notice, NoticeChannel
from iowatch.output.channels.tickets import NewTicket, Ticket, TicketSettings, Tracker, deliver_ticket
from iowatch.output.channels.web import RefusedRequestError

_PAGE = 100


class GitLabChannel(TicketSettings):
    """Issues of a project of GitLab; `project` is its path, such as `io/operations`."""

    kind: Literal["gitlab"]
    server: str = "https://gitlab.com"


class GitLab(Tracker):
    """A project of GitLab; numbers are those of its issues (`iid`)."""

    @property
    def _issues(self) -> str:
        return f"/api/v4/projects/{quote(self.channel.project, safe='')}/issues"

    def headers(self, token: str) -> Mapping[str, str]:
        """A token of a project or person."""
        return {"PRIVATE-TOKEN": token}

    def find_ticket(self, mark: str) -> Ticket | None:
        """Search the texts of all issues."""
        query = urlencode({"search": mark, "in": "description", "state": "all", "per_page": _PAGE})
        for issue in self.request("GET", f"{self._issues}?{query}"):
            if mark in (issue["description"] or ""):
                return _ticket(issue)
        return None

    def read_ticket(self, number: str) -> Ticket | None:
        """The issue; None if it was deleted."""
        try:
            return _ticket(self.request("GET", f"{self._issues}/{quote(number)}"))
        except RefusedRequestError as error:
            if error.code == 404:
                return None
            raise

    def open_ticket(self, ticket: NewTicket) -> Ticket:
        """Open an issue; an owner that the project does not know leaves it without one."""
        document: dict[str, Any] = {
            "title": ticket.title,
            "description": f"{ticket.text}\n\n{ticket.mark}",
            "labels": ",".join(self.channel.labels),
        }
        if ticket.owner is not None:
            users = self.request("GET", f"/api/v4/users?{urlencode({'username': ticket.owner})}")
            document["assignee_ids"] = [user["id"] for user in users]
        return _ticket(self.request("POST", self._issues, document))

    def comments(self, ticket: Ticket) -> Iterator[str]:
        """The newest hundred."""
        query = urlencode({"order_by": "created_at", "sort": "desc", "per_page": _PAGE})
        for note in self.request("GET", f"{self._issues}/{quote(ticket.number)}/notes?{query}"):
            yield note["body"]

    def add_comment(self, ticket: Ticket, text: str) -> None:
        """Add a note."""
        self.request("POST", f"{self._issues}/{quote(ticket.number)}/notes", {"body": text})

    def set_closed(self, ticket: Ticket, closed: bool) -> None:
        """Close or reopen the issue."""
        event = "close" if closed else "reopen"
        self.request("PUT", f"{self._issues}/{quote(ticket.number)}", {"state_event": event})

    def notice_text(self, notice: Notice) -> str:
        """Markdown."""
        return comment_text(notice)


def _ticket(issue: Mapping[str, Any]) -> Ticket:
    return Ticket(str(issue["iid"]), str(issue["web_url"]), issue["state"] == "closed", issue["description"] or "")


GITLAB = NoticeChannel("gitlab", GitLabChannel, partial(deliver_ticket, GitLab))
