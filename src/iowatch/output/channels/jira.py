"""Tickets of Jira Data Center and Cloud (version 2 of the interface, whose texts are wiki marks)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from pydantic import StringConstraints

from iowatch.output.channels.notice import Notice, NoticeChannel, UndeliveredError
from iowatch.output.channels.tickets import Name, NewTicket, Ticket, TicketSettings, Tracker, deliver_ticket
from iowatch.output.channels.web import RefusedRequestError

_API = "/rest/api/2"
# The category of states in which a ticket is closed, whatever a site calls them.
_DONE = "done"


class JiraChannel(TicketSettings):
    """Tickets of a project; `project` is its key.

    Attributes:
        issue_type: name of the type of new tickets.
        user: mail address of the account for Jira Cloud; None: the token is a personal one of Data Center.
    """

    kind: Literal["jira"]
    project: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]+$")]
    labels: tuple[Annotated[str, StringConstraints(pattern=r"^\S+$")], ...] = ("iowatch",)
    issue_type: Name = "Task"
    user: str | None = None


class Jira(Tracker):
    """A project of Jira. The mark of a finding is a label, because texts are indexed later."""

    channel: JiraChannel

    def headers(self, token: str) -> Mapping[str, str]:
        """A personal token, or an account with its token."""
        if self.channel.user is None:
            return {"Authorization": f"Bearer {token}"}
        account = base64.b64encode(f"{self.channel.user}:{token}".encode()).decode()
        return {"Authorization": f"Basic {account}"}

    def find_ticket(self, mark: str) -> Ticket | None:
        """Search by the label; the oldest one, if a person copied the ticket."""
        query = {
            "jql": f'project = "{self.channel.project}" AND labels = "{mark}" ORDER BY created ASC',
            "fields": "status,description",
            "maxResults": "1",
        }
        issues = self._search(urlencode(query))["issues"]
        return self._ticket(issues[0]) if issues else None

    def _search(self, query: str) -> Any:
        """Jira Cloud has another address for searches since 2025, which Data Center does not have."""
        path = "search" if self.channel.user is None else "search/jql"
        return self.request("GET", f"{_API}/{path}?{query}")

    def read_ticket(self, number: str) -> Ticket | None:
        """The ticket; None if it was deleted."""
        try:
            return self._ticket(self.request("GET", f"{_API}/issue/{quote(number)}?fields=status,description"))
        except RefusedRequestError as error:
            if error.code == 404:
                return None
            raise

    def open_ticket(self, ticket: NewTicket) -> Ticket:
        """Open a ticket; without the owner if Jira does not accept that account."""
        fields: dict[str, Any] = {
            "project": {"key": self.channel.project},
            "issuetype": {"name": self.channel.issue_type},
            "summary": ticket.title,
            "description": ticket.text,
            "labels": [*self.channel.labels, ticket.mark],
        }
        created: Any = None
        if ticket.owner is not None:
            # Cloud knows accounts by their id, Data Center by their name.
            account = "name" if self.channel.user is None else "accountId"
            try:
                document = {"fields": {**fields, "assignee": {account: ticket.owner}}}
                created = self.request("POST", f"{_API}/issue", document)
            except RefusedRequestError as error:
                if error.code != 400:
                    raise
        if created is None:
            created = self.request("POST", f"{_API}/issue", {"fields": fields})
        return Ticket(created["key"], self._address(created["key"]), is_closed=False, text=ticket.text)

    def comments(self, ticket: Ticket) -> Iterator[str]:
        """All of them."""
        for comment in self.request("GET", f"{_API}/issue/{quote(ticket.number)}/comment?maxResults=5000")["comments"]:
            yield comment["body"]

    def add_comment(self, ticket: Ticket, text: str) -> None:
        """Add a comment."""
        self.request("POST", f"{_API}/issue/{quote(ticket.number)}/comment", {"body": text})

    def set_closed(self, ticket: Ticket, closed: bool) -> None:
        """Use the first transition of the project's workflow that leads to a closed state, or out of it."""
        path = f"{_API}/issue/{quote(ticket.number)}/transitions"
        for transition in self.request("GET", path)["transitions"]:
            if (transition["to"]["statusCategory"]["key"] == _DONE) == closed:
                self.request("POST", path, {"transition": {"id": transition["id"]}})
                return
        what = "closes" if closed else "reopens"
        raise UndeliveredError(f"the workflow of {ticket.number} has no transition that {what} it for this account")

    def notice_text(self, notice: Notice) -> str:
        """Wiki marks; text of the machine is in a block in which nothing is a mark."""
        lines = [notice.title, *notice.lines, *(["", *notice.details] if notice.details else [])]
        # The end of the block cannot be written inside it.
        text = "\n".join(lines).replace("{noformat}", "{no format}")
        link = f"\n[Dashboard|{notice.link}]" if notice.link is not None else ""
        return f"{{noformat}}\n{text}\n{{noformat}}{link}"

    def _ticket(self, issue: Mapping[str, Any]) -> Ticket:
        category = issue["fields"]["status"]["statusCategory"]["key"]
        text = issue["fields"].get("description") or ""
        return Ticket(issue["key"], self._address(issue["key"]), category == _DONE, text)

    def _address(self, key: str) -> str:
        return f"{self.channel.server.rstrip('/')}/browse/{quote(key)}"


JIRA = NoticeChannel("jira", JiraChannel, partial(deliver_ticket, Jira))
