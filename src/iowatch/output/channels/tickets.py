"""Tickets: a finding opens one in the tracker of the site, updates it with comments, and closes it.

Data flow: notice of a finding (from the outbox) -> the ticket of that finding -> comment, state -> its address in
`var/notify/<system>-tickets.json`, from which the pages link to it.

A ticket contains the id of its finding as a mark, and each comment the digest of its notice. Both are looked for before
they are written, so a repeated delivery, or one after the loss of `var/`, neither opens a second ticket nor repeats a
comment. A notice that is delivered after a later one is a comment, but does not close or reopen the ticket. What a
tracker is asked is in `Tracker`; `gitlab`, `github` and `jira` are one module each.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from iowatch.core import exclusive_file_lock, parse_json, settings, write_atomically, yamlfile
from iowatch.output.channels.notice import ChannelSettings, Notice, PartlyDeliveredError, Secret, UndeliveredError
from iowatch.output.channels.web import send_request

# A list of a hundred tickets with long texts has about 1 MB.
_MAX_ANSWER_BYTES = 16 * 2**20
# States of a finding that close its ticket.
_OVER = ("resolved", "accepted", "dismissed")
_TITLE_CHARACTERS = 250

Name = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$", max_length=200)]


class TicketOwner(yamlfile.ClosedModel):
    """Who gets the tickets of findings to which all given conditions apply.

    Attributes:
        to: name of the account in the tracker.
        system, benchmark, file_system: conditions; at least one. A finding has a benchmark or file system if one of its
            series has it.
    """

    to: Name
    system: str | None = None
    benchmark: str | None = None
    file_system: str | None = None

    @model_validator(mode="after")
    def _has_condition(self) -> TicketOwner:
        if self.system is None and self.benchmark is None and self.file_system is None:
            raise ValueError("expected a condition: 'system', 'benchmark' or 'file_system'")
        return self

    def applies(self, notice: Notice) -> bool:
        """Whether all conditions apply to the finding of a notice."""
        if self.system is not None and self.system != notice.system:
            return False
        if self.benchmark is not None and self.benchmark not in notice.facts.get("benchmarks", ()):
            return False
        return self.file_system is None or self.file_system in notice.facts.get("file_systems", ())


class TicketSettings(ChannelSettings):
    """What all trackers need.

    Attributes:
        server: address of the tracker, without a path of its interface.
        project: where tickets are opened.
        token: of an account that may open, comment on and close tickets.
        labels: of new tickets.
        owners: the first one that applies gets the ticket.
        send: tickets are of findings, and close when a person has decided.
    """

    server: Annotated[str, StringConstraints(pattern=r"^https?://[^\s?#]+$")]
    project: Name
    token: Secret
    labels: tuple[Name, ...] = ("iowatch",)
    owners: tuple[TicketOwner, ...] = ()
    send: Annotated[tuple[Literal["finding", "decision"], ...], Field(min_length=1)] = ("finding", "decision")

    def owner_of(self, notice: Notice) -> str | None:
        """The account that gets the ticket of a finding; None if no entry of `owners` applies."""
        for owner in self.owners:
            if owner.applies(notice):
                return owner.to
        return None


@dataclass(frozen=True)
class TicketLink:
    """Where a ticket is.

    Attributes:
        number: by which the tracker knows it.
        address: of its page.
    """

    number: str
    address: str


@dataclass(frozen=True)
class StoredLink(TicketLink):
    """A ticket of the file of a system.

    Attributes:
        noticed_at: when the latest of its notices was made, epoch seconds; 0 if it is not known.
    """

    noticed_at: int = 0


@dataclass(frozen=True)
class Ticket(TicketLink):
    """A ticket as the tracker has it now; `text` is what it was opened with."""

    is_closed: bool
    text: str


@dataclass(frozen=True)
class NewTicket:
    """What a ticket is opened with.

    Attributes:
        text: in the marks of the tracker, with that of the notice.
        mark: by which the ticket is found again; the tracker adds it.
    """

    title: str
    text: str
    mark: str
    owner: str | None


class Tracker(ABC):
    """The requests to a tracker; all raise `UndeliveredError`.

    Args:
        channel: its entry in `notify.yaml`.
    """

    def __init__(self, channel: TicketSettings) -> None:
        self.channel = channel
        self._token = channel.token.read()

    @abstractmethod
    def find_ticket(self, mark: str) -> Ticket | None:
        """The ticket with a mark, open or closed; None if there is none."""

    @abstractmethod
    def read_ticket(self, number: str) -> Ticket | None:
        """The ticket with a number; None if it was deleted or moved."""

    @abstractmethod
    def open_ticket(self, ticket: NewTicket) -> Ticket:
        """Open a ticket."""

    @abstractmethod
    def comments(self, ticket: Ticket) -> Iterator[str]:
        """Texts of the comments, newest first where the tracker can."""

    @abstractmethod
    def add_comment(self, ticket: Ticket, text: str) -> None:
        """Add a comment."""

    @abstractmethod
    def set_closed(self, ticket: Ticket, closed: bool) -> None:
        """Close or reopen a ticket."""

    @abstractmethod
    def headers(self, token: str) -> Mapping[str, str]:
        """The headers of authentication."""

    @abstractmethod
    def notice_text(self, notice: Notice) -> str:
        """A notice in the marks of the tracker."""

    def request(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> Any:
        """Send a request to a path of the interface; the answer, parsed, None if it is empty."""
        url = f"{self.channel.server.rstrip('/')}{path}"
        answer = send_request(method, url, document, self.headers(self._token), _MAX_ANSWER_BYTES)
        if not answer.text:
            return None
        try:
            return parse_json(answer.text)
        except ValueError:
            # For example the page of a login.
            raise UndeliveredError(f"the server answered {answer.code}, but not as {self.channel.kind} does") from None


def deliver_ticket(tracker: type[Tracker], channel: TicketSettings, notice: Notice) -> None:
    """Open, comment on, close or reopen the ticket of the finding of a notice.

    Raises:
        InputError: the token is missing or not safe.
        UndeliveredError: the tracker refused a request or cannot be reached.
        PartlyDeliveredError: the ticket has the notice, but could not be closed or reopened.
        MachineError: the address of the ticket cannot be stored.
    """
    finding = notice.facts.get("id")
    if not isinstance(finding, str):
        raise UndeliveredError(f"a notice of kind '{notice.kind}' is about no finding")
    try:
        _deliver(tracker(channel), notice, finding)
    except (KeyError, TypeError, AttributeError, IndexError):
        # The answer has another form than the tracker documents.
        raise UndeliveredError(f"the server does not answer as {channel.kind} does") from None


def _deliver(tracker: Tracker, notice: Notice, finding: str) -> None:
    channel = tracker.channel
    mark, digest = finding_mark(finding), notice_mark(notice)
    text = f"{tracker.notice_text(notice)}\n\n{digest}"
    link = read_tickets(notice.system).get(channel.name, {}).get(finding)
    is_latest = link is None or notice.made_at >= link.noticed_at
    ticket = tracker.read_ticket(link.number) if link is not None else None
    if ticket is None:
        ticket = tracker.find_ticket(mark)
    if ticket is None:
        # Nobody needs a new ticket about what is over, or about an earlier state.
        if notice.facts.get("state") in _OVER or not is_latest:
            return
        title = notice.title if len(notice.title) <= _TITLE_CHARACTERS else f"{notice.title[: _TITLE_CHARACTERS - 1]}…"
        ticket = tracker.open_ticket(NewTicket(title, text, mark, channel.owner_of(notice)))
    if is_latest:
        stored = StoredLink(ticket.number, ticket.address, notice.made_at)
        if stored != link:
            _store_link(notice.system, channel.name, finding, stored)
    # A notice is written once, also if this process was killed before it could record that.
    is_written = digest in ticket.text or any(digest in comment for comment in tracker.comments(ticket))
    if not is_written:
        tracker.add_comment(ticket, text)
    if is_latest:
        _set_state(tracker, ticket, notice)


def _set_state(tracker: Tracker, ticket: Ticket, notice: Notice) -> None:
    """Close the ticket of a finding that is over, reopen that of one that needs action."""
    if notice.facts.get("state") in _OVER:
        closes = True
    elif notice.facts.get("needs_action", True):
        closes = False
    else:
        # Of an acknowledged finding the ticket stays as it is: who closed it has decided about the ticket.
        return
    if closes == ticket.is_closed:
        return
    try:
        tracker.set_closed(ticket, closes)
    except UndeliveredError as error:
        # The comment is written. The workflow of one ticket must not keep the notices of the others waiting.
        raise PartlyDeliveredError(error.message, ()) from error


def finding_mark(finding: str) -> str:
    """The mark of a finding in the text of its ticket: one word, so that every search finds it whole."""
    return f"iowatch-finding-{hashlib.sha256(finding.encode()).hexdigest()[:16]}"


def notice_mark(notice: Notice) -> str:
    """The mark of a notice in the text of its comment."""
    return f"iowatch-notice-{hashlib.sha256(notice.key.encode()).hexdigest()[:16]}"


# Where tickets are kept


def _tickets_path(system: str) -> Path:
    return settings.var_directory() / "notify" / f"{system}-tickets.json"


def read_tickets(system: str) -> dict[str, dict[str, StoredLink]]:
    """The tickets of a system by channel and finding; empty without any, or if the file is damaged.

    A lost file costs one search per finding.
    """
    try:
        document = parse_json(_tickets_path(system).read_text(encoding="utf-8"))
        tickets: dict[str, dict[str, StoredLink]] = {}
        for channel, by_finding in document["tickets"].items():
            tickets[channel] = {finding: StoredLink(**link) for finding, link in by_finding.items()}
        return tickets
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _store_link(system: str, channel: str, finding: str, link: StoredLink) -> None:
    path = _tickets_path(system)
    with exclusive_file_lock(path):
        tickets = read_tickets(system)
        tickets.setdefault(channel, {})[finding] = link
        document: dict[str, dict[str, Any]] = {}
        for name, by_finding in tickets.items():
            document[name] = {key: asdict(value) for key, value in by_finding.items()}
        write_atomically(path, json.dumps({"format": 1, "tickets": document}, ensure_ascii=False, indent=1), 0o600)


def ticket_links(system: str, finding: str) -> list[TicketLink]:
    """The tickets of a finding, of all channels."""
    links: list[TicketLink] = []
    for by_finding in read_tickets(system).values():
        link = by_finding.get(finding)
        # The address is what a server answered, and becomes a link of a page.
        if link is not None and link.address.startswith(("https://", "http://")):
            links.append(link)
    return links
