"""Tickets as issues of GitHub, or of a GitHub Enterprise server (https://docs.github.com/en/rest/issues)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from pydantic import StringConstraints

from iowatch.output.channels.markdown import comment_text
from iowatch.output.channels.notice import Notice, NoticeChannel
from iowatch.output.channels.tickets import NewTicket, Ticket, TicketSettings, Tracker, deliver_ticket
from iowatch.output.channels.web import RefusedRequestError

_PAGE = 100
_MISSING = (404, 410)


class GitHubChannel(TicketSettings):
    """Issues of a repository; `server` of GitHub Enterprise is `https://HOST/api/v3`."""

    kind: Literal["github"]
    server: str = "https://api.github.com"
    project: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]


class GitHub(Tracker):
    """A repository of GitHub."""

    @property
    def _issues(self) -> str:
        return f"/repos/{quote(self.channel.project)}/issues"

    def headers(self, token: str) -> Mapping[str, str]:
        """A personal token, or that of a job."""
        return {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}

    def find_ticket(self, mark: str) -> Ticket | None:
        """Read the issues with the first label, page by page: the index of GitHub's search is minutes behind."""
        page = 1
        while True:
            query: dict[str, Any] = {"state": "all", "per_page": _PAGE, "page": page}
            if self.channel.labels:
                query["labels"] = self.channel.labels[0]
            issues = self.request("GET", f"{self._issues}?{urlencode(query)}")
            for issue in issues:
                if mark in (issue["body"] or ""):
                    return _ticket(issue)
            if len(issues) < _PAGE:
                return None
            page += 1

    def read_ticket(self, number: str) -> Ticket | None:
        """The issue; None if it was deleted."""
        try:
            return _ticket(self.request("GET", f"{self._issues}/{quote(number)}"))
        except RefusedRequestError as error:
            if error.code in _MISSING:
                return None
            raise

    def open_ticket(self, ticket: NewTicket) -> Ticket:
        """Open an issue; without the owner if GitHub does not accept that account."""
        document: dict[str, Any] = {
            "title": ticket.title,
            "body": f"{ticket.text}\n\n{ticket.mark}",
            "labels": list(self.channel.labels),
        }
        if ticket.owner is None:
            return _ticket(self.request("POST", self._issues, document))
        try:
            return _ticket(self.request("POST", self._issues, {**document, "assignees": [ticket.owner]}))
        except RefusedRequestError as error:
            if error.code != 422:
                raise
        return _ticket(self.request("POST", self._issues, document))

    def comments(self, ticket: Ticket) -> Iterator[str]:
        """All of them, oldest first: the interface cannot sort them."""
        page = 1
        while True:
            query = urlencode({"per_page": _PAGE, "page": page})
            comments = self.request("GET", f"{self._issues}/{quote(ticket.number)}/comments?{query}")
            for comment in comments:
                yield comment["body"] or ""
            if len(comments) < _PAGE:
                return
            page += 1

    def add_comment(self, ticket: Ticket, text: str) -> None:
        """Add a comment."""
        self.request("POST", f"{self._issues}/{quote(ticket.number)}/comments", {"body": text})

    def set_closed(self, ticket: Ticket, closed: bool) -> None:
        """Close or reopen the issue."""
        self.request("PATCH", f"{self._issues}/{quote(ticket.number)}", {"state": "closed" if closed else "open"})

    def notice_text(self, notice: Notice) -> str:
        """Markdown."""
        return comment_text(notice)


def _ticket(issue: Mapping[str, Any]) -> Ticket:
    return Ticket(str(issue["number"]), str(issue["html_url"]), issue["state"] == "closed", issue["body"] or "")


GITHUB = NoticeChannel("github", GitHubChannel, partial(deliver_ticket, GitHub))
