"""Channels of notices: settings and secrets, the forms of a notice, and delivery of one notice to one channel.

A delivery is one attempt: what a server refuses is sent again by the next session. Messages never contain an address, a
token or a password. Redirects are not followed, because they would send these to another host. `NOTICE_CHANNELS` has
all channels; plugins of a site add some.
"""

from __future__ import annotations

import hashlib
import http
import http.client
import json
import re
import smtplib
import ssl
import textwrap
from collections.abc import Callable
from contextlib import closing
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from html import escape as escape_html
from pathlib import Path
from typing import Annotated, Any, Literal, Union
from urllib.parse import quote

from pydantic import Field, StringConstraints, create_model, model_validator

from iowatch.core import IowatchError, plugins, roots, settings, write_atomically, yamlfile
from iowatch.output.channels.github import GITHUB
from iowatch.output.channels.gitlab import GITLAB
from iowatch.output.channels.jira import JIRA
from iowatch.output.channels.markdown import issue_text
from iowatch.output.channels.notice import (
    ChannelSettings,
    Notice,
    NoticeChannel,
    PartlyDeliveredError,
    Secret,
    UndeliveredError,
)
from iowatch.output.channels.web import TIMEOUT_S, WebAnswer, connection_error, post_json
from iowatch.output.report import escape_markdown
from iowatch.site import system_file

# Blanks and line ends could turn one address into several, or into a header.
MailAddress = Annotated[str, StringConstraints(pattern=r"^[^\s@<>,]+@[^\s@<>,]+$")]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "never"]


class WebhookChannel(ChannelSettings):
    """A web address that accepts JSON. Knowledge of the address permits posting, so it is a secret, too."""

    kind: Literal["webhook", "slack", "mattermost", "teams"]
    url: Secret
    token: Secret | None = None


class MailChannel(ChannelSettings):
    """Mail through an SMTP server; by default port 587 with STARTTLS."""

    kind: Literal["mail"]
    host: Annotated[str, StringConstraints(pattern=r"^\S+$")]
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: MailAddress
    to: Annotated[tuple[MailAddress, ...], Field(min_length=1)]
    user: str | None = None
    password: Secret | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> MailChannel:
        if (self.user is None) != (self.password is None):
            raise ValueError("'user' and 'password' go together")
        if self.password is not None and self.security == "none":
            raise ValueError("a password is not sent without encryption: 'security: starttls' or 'tls'")
        return self


class IssueChannel(ChannelSettings):
    """One Markdown file per notice: text of a GitLab or GitHub issue, for a job that opens the issue."""

    kind: Literal["issue"]
    directory: str


# Suites run at least once in a quarter of a year; more hours would hide a system that is not measured any more.
_MAX_OVERDUE_HOURS = 92 * 24.0


class NotifySettings(yamlfile.ClosedModel):
    """Content of `notify.yaml`; `notify_settings_model` adds the fields of the channels, which plugins can extend.

    Attributes:
        dashboard: address of the published site, for links.
        digest: day of the weekly digest in the zone of the system, or `never`.
        overdue_hours: hours after the last session from which the next one is overdue; at most a quarter of a year.
        suspected: also report suspected findings.
        channels: at least one.
    """

    docs = "docs/notices.md#notices"
    quoted = False
    dashboard: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None
    digest: Weekday = "monday"
    overdue_hours: Annotated[float, Field(gt=0, le=_MAX_OVERDUE_HOURS)] = 26.0
    suspected: bool = False
    channels: Annotated[tuple[ChannelSettings, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_differ(self) -> NotifySettings:
        names = [channel.name for channel in self.channels]
        if len(set(names)) < len(names):
            raise ValueError(f"names of channels must differ: {', '.join(names)}")
        return self

    def page_link(self, page: str) -> str | None:
        """Address of a page of the published site; characters of identifiers that no address may have are quoted."""
        return f"{self.dashboard.rstrip('/')}/{quote(page)}" if self.dashboard else None


# Below the limits of the servers (Slack truncates at 40,000 characters, Mattermost rejects more than 16,383).
_CHAT_CHARACTERS = 12_000
_SUBJECT_CHARACTERS = 120


_escape_slack = partial(escape_html, quote=False)


def slack_message(notice: Notice) -> dict[str, Any]:
    """Slack's mrkdwn; `&`, `<`, `>` are escaped as Slack specifies, so text cannot notify a channel or hide a link."""
    body = "\n".join(_escape_slack(line) for line in notice.lines)
    text = f"*{_escape_slack(notice.title)}*\n{body}"[:_CHAT_CHARACTERS]
    if notice.link is not None:
        text += f"\n<{_escape_slack(notice.link)}|Dashboard>"
    return {"text": text}


def mattermost_message(notice: Notice) -> dict[str, Any]:
    """Mattermost's Markdown."""
    body = "\n".join(f"- {escape_markdown(line)}" for line in notice.lines)
    text = f"**{escape_markdown(notice.title)}**\n\n{body}"[:_CHAT_CHARACTERS]
    if notice.link is not None:
        text += f"\n\n[Dashboard]({notice.link})"
    return {"text": text}


def teams_message(notice: Notice) -> dict[str, Any]:
    """An Adaptive Card, which a workflow of Microsoft Teams posts; its texts are Markdown of a few marks."""
    texts = [notice.title, *notice.lines]
    blocks: list[dict[str, Any]] = []
    for text in texts:
        escaped = escape_markdown(text)[:_CHAT_CHARACTERS]
        blocks.append({"type": "TextBlock", "text": escaped, "wrap": True})
    blocks[0]["weight"] = "bolder"
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    if notice.link is not None:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Dashboard", "url": notice.link}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def webhook_message(notice: Notice) -> dict[str, Any]:
    """The notice as JSON; `version` changes when a field changes its meaning."""
    return {"version": 1, **notice.to_json()}


def mail_subject(notice: Notice) -> str:
    """The first two parts of the title: mail programs show 60 to 120 characters, and the text has the others."""
    # `=?` would begin an encoded word, which may contain line ends (RFC 2047).
    title = f"iowatch: {notice.title}".replace("=?", "= ?")
    subject = "; ".join(re.split(r"; |\. ", title)[:2])
    if len(subject) <= _SUBJECT_CHARACTERS:
        return subject
    return textwrap.wrap(subject, _SUBJECT_CHARACTERS - 1)[0] + "…"


def mail_message(notice: Notice, channel: MailChannel) -> EmailMessage:
    """Text with an HTML alternative; equal notices have equal Message-IDs, so a repeated mail is recognised."""
    message = EmailMessage()
    message["Subject"] = mail_subject(notice)
    message["From"] = channel.sender
    message["To"] = ", ".join(channel.to)
    digest = hashlib.sha256(f"{notice.key} {channel.name}".encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{digest}@{channel.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic replies
    text = [notice.title, "", *notice.lines]
    if notice.link is not None:
        text.append(notice.link)
    if notice.details:
        text += ["", *notice.details]
    message.set_content("\n".join(text) + "\n")
    message.add_alternative(_mail_html(notice), subtype="html")
    return message


# Mail programs ignore style sheets, so styles are inline; a style that a program ignores is not essential.
_BODY = "font-family: sans-serif; font-size: 15px; line-height: 1.45; max-width: 70em"
_PRE = "font-size: 13px; line-height: 1.4; overflow-x: auto; background: #f6f8fa; color: #1b1f24; padding: 10px"


def _mail_html(notice: Notice) -> str:
    """Title, lines and link to the dashboard; then the details in a fixed-width font."""
    lines = "".join(f"<li>{escape_html(line)}</li>" for line in notice.lines)
    link = f'<p><a href="{escape_html(notice.link)}">Look at it on the dashboard</a></p>' if notice.link else ""
    details = "\n".join(escape_html(line) for line in notice.details)
    block = f'<pre style="{_PRE}">{details}</pre>' if details else ""
    head = f'<head><title>{escape_html(notice.title)}</title></head><body style="{_BODY}">'
    title = f'<h1 style="font-size: 18px">{escape_html(notice.title)}</h1>'
    return f'<html lang="en">{head}{title}<ul>{lines}</ul>{link}{block}</body></html>\n'


def accept_chat_answer(answer: WebAnswer) -> bool:
    """Slack and Mattermost answer `ok` (api.slack.com/messaging/webhooks, Mattermost's `incoming_webhook`)."""
    return answer.text == "ok"


def accept_teams_answer(answer: WebAnswer) -> bool:
    """A workflow of Teams answers 202 (accepted) without a body; the older connectors answer `1`."""
    return (answer.code == http.HTTPStatus.ACCEPTED and not answer.text) or answer.text == "1"


def accept_web_answer(answer: WebAnswer) -> bool:
    """Any answer but a page for people, such as that of a login, and but JSON that reports an error."""
    is_page = answer.content_type in ("text/html", "application/xhtml+xml")
    if is_page or answer.text[:1] == "<":
        return False
    try:
        document = json.loads(answer.text)
    except ValueError:
        return True  # a text or nothing
    if not isinstance(document, dict):
        return True
    is_refused = document.get("ok") is False or document.get("success") is False
    has_error = bool(document.get("error")) or bool(document.get("errors"))
    return not (is_refused or has_error or document.get("status") in ("error", "fail", "failed"))


def _post_notice(
    channel: WebhookChannel,
    notice: Notice,
    message: Callable[[Notice], dict[str, Any]],
    accept: Callable[[WebAnswer], bool],
) -> None:
    """Send a notice to a web address.

    Args:
        message: forms the document of a notice.
        accept: whether an answer says that the notice was taken: a server that answers 200 may have refused it.
    """
    token = channel.token.read() if channel.token is not None else None
    answer = post_json(channel.url.read(), message(notice), token)
    if not accept(answer):
        # Without its words, which may contain the address.
        size = f"{len(answer.text)} characters of {answer.content_type or 'unknown type'}"
        reason = f"the server answered {answer.code}, but not as {channel.kind} confirms a notice ({size})"
        raise UndeliveredError(reason)


def _send_mail(channel: MailChannel, notice: Notice) -> None:
    recipients = notice.recipients or channel.to
    message = mail_message(notice, channel)
    message["Date"] = formatdate(localtime=False)
    try:
        context = ssl.create_default_context()
        connect = partial(smtplib.SMTP_SSL, context=context) if channel.security == "tls" else smtplib.SMTP
        # No quit() at the end: the mail is delivered, and if the server drops the connection it must not be repeated.
        with closing(connect(channel.host, channel.port, timeout=TIMEOUT_S)) as server:
            if channel.security == "starttls":
                server.starttls(context=context)
            if channel.user is not None and channel.password is not None:
                server.login(channel.user, channel.password.read())
            refused = server.send_message(message, to_addrs=recipients)
    except smtplib.SMTPRecipientsRefused as error:
        code, _ = next(iter(error.recipients.values()))
        raise UndeliveredError(f"the mail server refused all recipients ({code})") from None
    except smtplib.SMTPResponseException as error:
        raise UndeliveredError(f"the mail server answered {error.smtp_code}") from None
    except (smtplib.SMTPException, OSError) as error:
        raise connection_error(error, "mail server") from None
    if refused:
        codes = sorted({str(code) for code, _ in refused.values()})
        reason = f"the mail server refused {len(refused)} of {len(recipients)} recipients ({', '.join(codes)})"
        raise PartlyDeliveredError(reason, sorted(refused))


def _write_issue(channel: IssueChannel, notice: Notice) -> None:
    # A relative directory is one in var/.
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", notice.key).strip("-.")[:120]
    directory = settings.var_directory() / Path(channel.directory).expanduser()
    write_atomically(directory / f"{name}.md", issue_text(notice))


def _web_channel(
    name: str, message: Callable[[Notice], dict[str, Any]], accept: Callable[[WebAnswer], bool]
) -> NoticeChannel:
    """A channel that posts to a web address, in the form of one kind of server."""
    return NoticeChannel(name, WebhookChannel, partial(_post_notice, message=message, accept=accept))


NOTICE_CHANNELS = plugins.Registry(
    NoticeChannel,
    (
        _web_channel("webhook", webhook_message, accept_web_answer),
        _web_channel("slack", slack_message, accept_chat_answer),
        _web_channel("mattermost", mattermost_message, accept_chat_answer),
        _web_channel("teams", teams_message, accept_teams_answer),
        NoticeChannel("mail", MailChannel, _send_mail),
        NoticeChannel("issue", IssueChannel, _write_issue),
        GITLAB,
        GITHUB,
        JIRA,
    ),
)


def deliver_notice(channel: ChannelSettings, notice: Notice) -> None:
    """Deliver a notice, in one attempt.

    Raises:
        InputError: a secret is missing or not safe.
        UndeliveredError: it was refused.
        MachineError: the file of an issue cannot be written.
    """
    try:
        NOTICE_CHANNELS[channel.kind].deliver(channel, notice)
    except IowatchError:
        raise
    except Exception as error:
        plugin = NOTICE_CHANNELS.plugin_of(channel.kind)
        if plugin is None:
            raise
        # Without its message, which may contain a secret.
        raise UndeliveredError(f"{plugin.path}: {type(error).__name__}") from None


def notify_settings_model() -> type[NotifySettings]:
    """The form of `notify.yaml` with the settings of all channels, also of those of plugins."""
    models = tuple(dict.fromkeys(channel.settings for channel in NOTICE_CHANNELS.values()))
    # The members are known at run time only, which type checkers do not understand.
    entry = Annotated[Union[models], Field(discriminator="kind")]  # type: ignore[valid-type]  # noqa: UP007
    channels = Annotated[tuple[entry, ...], Field(min_length=1)]
    return create_model("NotifySettings", __base__=NotifySettings, channels=(channels, ...))


def load_notify_settings(system: str) -> NotifySettings | None:
    """Settings of a system, of its `notify.yaml` or else of `notify` in `site.yaml`; None without both.

    Raises:
        UsageError: unknown system.
        InputError: the file is invalid; all faults with file, line and field.
    """
    path = system_file(system, "notify")
    if path.exists():
        return yamlfile.read_model(path, notify_settings_model())
    if settings.site_settings().notify is None:
        return None
    return yamlfile.read_model(settings.site_root() / roots.SITE_FILE, notify_settings_model(), ("notify",))
