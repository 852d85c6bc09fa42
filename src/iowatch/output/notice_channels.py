"""Channels of notices: settings and secrets, the forms of a notice, and delivery of one notice to one channel.

Messages never contain an address, a token or a password. Redirects are not followed, because they would send these to
another host. The library apprise is not used: it reports only whether a message was sent (no status, so retries cannot
depend on it), sends to fixed hosts of Slack, and gives every mail another Message-ID.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import smtplib
import ssl
import stat
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from html import escape as html
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, PositiveFloat, StringConstraints, model_validator

from iowatch import __version__
from iowatch.core import (
    InputError,
    MachineError,
    escape_line,
    escape_texts,
    roots,
    settings,
    write_atomically,
    yamlfile,
)
from iowatch.output.report import escape_markdown as markdown
from iowatch.site import system_file

NoticeKind = Literal["finding", "session", "overdue", "digest"]


@dataclass(frozen=True)
class Notice:
    """One event to report; its texts have no control and no invisible characters.

    Attributes:
        key: identity of the notice; a key is sent once.
        title: one line, complete in itself.
        lines: text below the title in a chat.
        details: more for mails and issues, laid out for a fixed-width font.
        link: page of the dashboard, or None.
        facts: plain JSON for programs.
        made_at: epoch seconds UTC.
    """

    kind: NoticeKind
    key: str
    system: str
    title: str
    lines: tuple[str, ...]
    details: tuple[str, ...]
    link: str | None
    facts: Mapping[str, Any]
    made_at: int

    def __post_init__(self) -> None:
        for name in ("key", "system", "title"):
            object.__setattr__(self, name, escape_line(getattr(self, name)))
        for name in ("lines", "details", "facts"):
            object.__setattr__(self, name, escape_texts(getattr(self, name)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Notice:
        """Create a notice from the output of `to_json`."""
        rows = {name: tuple(document[name]) for name in ("lines", "details")}
        return cls(**{**document, **rows})


class Secret(yamlfile.ClosedModel):
    """Location of a secret: `environment: NAME` or `file: PATH`; never the secret itself."""

    environment: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Secret:
        if (self.environment is None) == (self.file is None):
            raise ValueError("expected one of 'environment: NAME' and 'file: PATH'")
        return self

    def read(self) -> str:
        """Read the secret, without surrounding blanks and line ends.

        Raises:
            InputError: the secret is missing or empty, or other users could read or change it.
        """
        if self.environment is not None:
            text, where = os.environ.get(self.environment, ""), f"environment variable {self.environment}"
        else:
            text, where = _read_secret_file(Path(self.file or "").expanduser()), f"file {self.file}"
        if not text.strip():
            raise InputError(f"the secret of {where} is not set", hint="docs/notices.md.")
        return text.strip()


def _read_secret_file(path: Path) -> str:
    # The opened file is checked, not its name, so that it cannot be replaced in between.
    try:
        with path.open(encoding="utf-8") as stream:
            facts = os.fstat(stream.fileno())
            mode = stat.S_IMODE(facts.st_mode)
            if mode & 0o077 or facts.st_uid != os.geteuid():
                raise InputError(
                    f"{path} has mode {mode:03o} and owner {facts.st_uid}; a secret must be readable by its owner only",
                    hint=f"chmod 600 {path}, and change the secret: others may have read it.",
                )
            return stream.read(65536)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"cannot read the secret in {path}: {reason}") from None


ChannelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
# Blanks and line ends could turn one address into several, or into a header.
MailAddress = Annotated[str, StringConstraints(pattern=r"^[^\s@<>,]+@[^\s@<>,]+$")]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "never"]


class ChannelBase(yamlfile.ClosedModel):
    """Common fields of all channels: a unique name, and the kinds of notices to send."""

    name: ChannelName
    send: tuple[NoticeKind, ...] = get_args(NoticeKind)


class WebhookChannel(ChannelBase):
    """A web address that accepts JSON. Knowledge of the address permits posting, so it is a secret, too."""

    kind: Literal["webhook", "slack", "mattermost"]
    url: Secret
    token: Secret | None = None


class MailChannel(ChannelBase):
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
    def _whole(self) -> MailChannel:
        if (self.user is None) != (self.password is None):
            raise ValueError("'user' and 'password' go together")
        if self.password is not None and self.security == "none":
            raise ValueError("a password is not sent without encryption: 'security: starttls' or 'tls'")
        return self


class IssueChannel(ChannelBase):
    """One Markdown file per notice: text of a GitLab or GitHub issue, for a job that opens the issue."""

    kind: Literal["issue"]
    directory: str


Channel = Annotated[WebhookChannel | MailChannel | IssueChannel, Field(discriminator="kind")]


class NotifySettings(yamlfile.ClosedModel):
    """Content of `notify.yaml`.

    Attributes:
        dashboard: address of the published site, for links.
        digest: day of the weekly digest in the zone of the system, or `never`.
        overdue_hours: hours after the last session from which the next one is overdue.
        suspected: also report suspected findings.
    """

    docs = "docs/notices.md#notices"
    quoted = False
    dashboard: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None
    digest: Weekday = "monday"
    overdue_hours: PositiveFloat = 26.0
    suspected: bool = False
    channels: tuple[Channel, ...]

    @model_validator(mode="after")
    def _names_differ(self) -> NotifySettings:
        names = [channel.name for channel in self.channels]
        if len(set(names)) < len(names):
            raise ValueError(f"names of channels must differ: {', '.join(names)}")
        return self

    def page_link(self, page: str) -> str | None:
        """Address of a page of the published site."""
        return f"{self.dashboard.rstrip('/')}/{page}" if self.dashboard else None


def load_notify_settings(system: str) -> NotifySettings | None:
    """Settings of a system, of its `notify.yaml` or else of `notify` in `site.yaml`; None without both.

    Raises:
        UsageError: unknown system.
        InputError: the file is invalid; all faults with file, line and field.
    """
    path = system_file(system, "notify")
    if path.exists():
        return yamlfile.read_model(path, NotifySettings)
    if settings.site_settings().notify is None:
        return None
    return yamlfile.read_model(settings.site_root() / roots.SITE_FILE, NotifySettings, ("notify",))


# Below the limits of the servers (Slack truncates at 40,000 characters, Mattermost rejects more than 16,383).
_CHAT_CHARACTERS = 12_000
_SUBJECT_CHARACTERS = 120


_escape_slack = partial(html, quote=False)


def slack_message(notice: Notice) -> dict[str, Any]:
    """Slack's mrkdwn; `&`, `<`, `>` are escaped as Slack specifies, so text cannot notify a channel or hide a link."""
    link = f"\n<{_escape_slack(notice.link)}|Dashboard>" if notice.link else ""
    body = "\n".join(_escape_slack(line) for line in notice.lines)
    return {"text": f"*{_escape_slack(notice.title)}*\n{body}"[:_CHAT_CHARACTERS] + link}


def mattermost_message(notice: Notice) -> dict[str, Any]:
    """Mattermost's Markdown."""
    link = f"\n\n[Dashboard]({notice.link})" if notice.link else ""
    body = "\n".join(f"- {markdown(line)}" for line in notice.lines)
    return {"text": f"**{markdown(notice.title)}**\n\n{body}"[:_CHAT_CHARACTERS] + link}


def issue_text(notice: Notice) -> str:
    """Title as a heading, then the body, in the Markdown that GitLab and GitHub share."""
    parts = [f"# {markdown(notice.title)}", "\n".join(f"- {markdown(line)}" for line in notice.lines)]
    if notice.details:
        # The fence is longer than any in the lines. Indented code is not possible: after a list it continues the list.
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", "\n".join(notice.details))), default=0))
        parts.append("\n".join([f"{fence}text", *notice.details, fence]))
    if notice.link:
        parts.append(f"[Dashboard]({notice.link})")
    return "\n\n".join(parts) + "\n"


def mail_subject(notice: Notice) -> str:
    """The first two parts of the title: mail programs show 60 to 120 characters, and the text has the others."""
    # `=?` would begin an encoded word, which may contain line ends (RFC 2047).
    subject = "; ".join(re.split(r"; |\. ", f"iowatch: {notice.title}".replace("=?", "= ?"))[:2])
    return textwrap.wrap(subject, _SUBJECT_CHARACTERS - 1)[0] + "…" if len(subject) > _SUBJECT_CHARACTERS else subject


def mail_message(notice: Notice, channel: MailChannel) -> EmailMessage:
    """Text with an HTML alternative; equal notices have equal Message-IDs, so a repeated mail is recognised."""
    message = EmailMessage()
    message["Subject"] = mail_subject(notice)
    message["From"] = channel.sender
    message["To"] = ", ".join(channel.to)
    digest = hashlib.sha256(f"{notice.key} {channel.name}".encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{digest}@{channel.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic replies
    text = [notice.title, "", *notice.lines, *([notice.link] if notice.link else [])]
    text += ["", *notice.details] if notice.details else []
    message.set_content("\n".join(text) + "\n")
    message.add_alternative(_mail_html(notice), subtype="html")
    return message


# Mail programs ignore style sheets, so styles are inline; a style that a program ignores is not essential.
_BODY = "font-family: sans-serif; font-size: 15px; line-height: 1.45; max-width: 70em"
_PRE = "font-size: 13px; line-height: 1.4; overflow-x: auto; background: #f6f8fa; color: #1b1f24; padding: 10px"


def _mail_html(notice: Notice) -> str:
    """Title, lines and link to the dashboard; then the details in a fixed-width font."""
    lines = "".join(f"<li>{html(line)}</li>" for line in notice.lines)
    link = f'<p><a href="{html(notice.link)}">Look at it on the dashboard</a></p>' if notice.link else ""
    details = "\n".join(html(line) for line in notice.details)
    block = f'<pre style="{_PRE}">{details}</pre>' if details else ""
    head = f'<head><title>{html(notice.title)}</title></head><body style="{_BODY}">'
    title = f'<h1 style="font-size: 18px">{html(notice.title)}</h1>'
    return f'<html lang="en">{head}{title}<ul>{lines}</ul>{link}{block}</body></html>\n'


TIMEOUT_S = 10.0
RETRY_DELAYS_S = (2.0, 8.0)  # between three attempts
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_HOOKS: dict[str, Callable[[Notice], dict[str, Any]]] = {
    # `version` changes when a field changes its meaning.
    "webhook": lambda notice: {"version": 1, **notice.to_json()},
    "slack": slack_message,
    "mattermost": mattermost_message,
}


class UndeliveredError(MachineError):
    """A notice could not be delivered; `passing`: a retry may succeed."""

    def __init__(self, message: str, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Reject redirects, which would send the token to another host, and turn a POST into a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def deliver_notice(
    channel: Channel,
    notice: Notice,
    *,
    timeout_s: float = TIMEOUT_S,
    pauses_s: tuple[float, ...] = RETRY_DELAYS_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Deliver a notice, with one attempt more than there are pauses.

    Raises:
        InputError: a secret is missing or not safe.
        UndeliveredError: all attempts failed, or one failed for a permanent reason.
        MachineError: the file of an issue cannot be written.
    """
    for pause in (*pauses_s, None):
        try:
            _deliver_once(channel, notice, timeout_s)
            return
        except UndeliveredError as error:
            if pause is None or not error.passing:
                raise
            sleep(pause)


def _deliver_once(channel: Channel, notice: Notice, timeout_s: float) -> None:
    if isinstance(channel, WebhookChannel):
        token = channel.token.read() if channel.token else None
        _post_json(channel.url.read(), _HOOKS[channel.kind](notice), token, timeout_s)
    elif isinstance(channel, MailChannel):
        _send_mail(channel, notice, timeout_s)
    else:
        # A relative directory is one in var/.
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", notice.key).strip("-.")[:120]
        directory = settings.var_directory() / Path(channel.directory).expanduser()
        write_atomically(directory / f"{name}.md", issue_text(notice))


# Reasons are written here, because those of the libraries may contain the address, which is a secret.


def _post_json(url: str, document: dict[str, Any], token: str | None, timeout_s: float) -> None:
    try:
        parts = urlsplit(url)
        is_local, scheme = parts.hostname in _LOOPBACK, parts.scheme
    except ValueError:
        is_local, scheme = False, ""
    if scheme != "https" and (scheme != "http" or not is_local):
        raise UndeliveredError("its address must begin with https:// (http:// only on this machine)", False)
    headers = {"Content-Type": "application/json", "User-Agent": f"iowatch/{__version__}"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    # A proxy would receive requests to this machine unencrypted; those by https pass it as a tunnel.
    handlers = [_NoRedirect(), *([urllib.request.ProxyHandler({})] if is_local else [])]
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310  # scheme checked
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s):
            return
    except urllib.error.HTTPError as error:
        code = error.code
        error.close()
        raise UndeliveredError(f"the server answered {code}", code == 429 or code >= 500) from None
    except (OSError, http.client.HTTPException) as error:
        raise _connection_error(error, "server") from None
    except ValueError:
        raise UndeliveredError("its address or token is not well-formed", False) from None


# By OpenSSL's X509_V_ERR_*; OpenSSL's own messages may contain the host name, which may be secret.
_CERTIFICATE_ERRORS = {
    10: "it has expired",
    18: "it is self-signed",
    19: "its certificate authority is unknown",
    20: "its certificate authority is unknown",
    62: "it was issued for another host",
    64: "it was issued for another host",
}


def _connection_error(error: Exception, server: str) -> UndeliveredError:
    """Error with the reason of a failed connection; permanent if the certificate is not accepted."""
    reason = getattr(error, "reason", error)
    inner = reason if isinstance(reason, BaseException) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        why = _CERTIFICATE_ERRORS.get(inner.verify_code, f"OpenSSL's reason {inner.verify_code}")
        return UndeliveredError(f"the server's certificate is not accepted: {why}", False)
    why = (inner.strerror if isinstance(inner, OSError) else None) or type(inner).__name__
    return UndeliveredError(f"the {server} cannot be reached: {why}", True)


def _send_mail(channel: MailChannel, notice: Notice, timeout_s: float) -> None:
    message = mail_message(notice, channel)
    message["Date"] = formatdate(localtime=False)
    try:
        context = ssl.create_default_context()
        connect = partial(smtplib.SMTP_SSL, context=context) if channel.security == "tls" else smtplib.SMTP
        # No quit() at the end: the mail is delivered, and if the server drops the connection it must not be repeated.
        with closing(connect(channel.host, channel.port, timeout=timeout_s)) as server:
            if channel.security == "starttls":
                server.starttls(context=context)
            if channel.user is not None and channel.password is not None:
                server.login(channel.user, channel.password.read())
            server.send_message(message)
    except (smtplib.SMTPException, OSError) as error:
        raise _smtp_refusal(error) from None


def _smtp_refusal(error: Exception) -> UndeliveredError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _connection_error(error, "mail server")
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [int(code) for code, _ in error.recipients.values()]
        return UndeliveredError(f"the mail server refused all recipients ({codes[0]})", all(c < 500 for c in codes))
    if isinstance(error, smtplib.SMTPResponseException):
        return UndeliveredError(f"the mail server answered {error.smtp_code}", error.smtp_code < 500)
    if isinstance(error, (smtplib.SMTPNotSupportedError, ssl.SSLError)):
        reason = type(error).__name__
        return UndeliveredError(f"the mail server does not support the configured security: {reason}", False)
    return _connection_error(error, "mail server")
