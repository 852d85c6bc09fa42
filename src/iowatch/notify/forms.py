"""The forms of a notice: JSON for programs, chats, mail as text and HTML, text of an issue. Pure functions."""

from __future__ import annotations

import hashlib
from email.message import EmailMessage
from html import escape as html
from typing import Any

from iowatch.notify.config import Mail
from iowatch.notify.notice import Notice
from iowatch.report.markdown import escape as markdown

# Below what the servers take (Slack cuts at 40,000 characters, Mattermost refuses above 16,383).
_CHAT_CHARACTERS = 12_000
_SUBJECT_CHARACTERS = 180


def generic(notice: Notice) -> dict[str, Any]:
    """The whole notice; `version` changes when a field changes its meaning."""
    return {"version": 1, **notice.to_json()}


def slack(notice: Notice) -> dict[str, Any]:
    """Slack's mrkdwn: `&`, `<`, `>` escaped as Slack asks, so no text calls a channel or hides a link."""
    link = f"\n<{_slack(notice.link)}|Dashboard>" if notice.link else ""
    body = "\n".join(_slack(line) for line in notice.lines)
    return {"text": f"*{_slack(notice.title)}*\n{body}"[:_CHAT_CHARACTERS] + link}


def _slack(text: str) -> str:
    return html(text, quote=False)


def mattermost(notice: Notice) -> dict[str, Any]:
    """Mattermost's Markdown."""
    link = f"\n\n[Dashboard]({notice.link})" if notice.link else ""
    body = "\n".join(f"- {markdown(line)}" for line in notice.lines)
    return {"text": f"**{markdown(notice.title)}**\n\n{body}"[:_CHAT_CHARACTERS] + link}


def issue(notice: Notice) -> str:
    """Title as a heading, then the body, in the Markdown that GitLab and GitHub share."""
    parts = [f"# {markdown(notice.title)}", "\n".join(f"- {markdown(line)}" for line in notice.lines)]
    if notice.details:
        # Indented, so that nothing in it can end the block.
        parts.append("\n".join(f"    {line}" for line in notice.details))
    if notice.link:
        parts.append(f"[Dashboard]({notice.link})")
    return "\n\n".join(parts) + "\n"


def mail(notice: Notice, channel: Mail) -> EmailMessage:
    """Text with an HTML alternative; the same notice has the same Message-ID, so a repeat is recognised."""
    message = EmailMessage()
    message["Subject"] = " ".join(f"iowatch: {notice.title}".split())[:_SUBJECT_CHARACTERS]
    message["From"] = channel.sender
    message["To"] = ", ".join(channel.to)
    digest = hashlib.sha256(f"{notice.key} {channel.name}".encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{digest}@{channel.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no holiday answers
    text = [notice.title, "", *notice.lines, "", *notice.details, *([notice.link] if notice.link else [])]
    message.set_content("\n".join(text) + "\n")
    message.add_alternative(_html(notice), subtype="html")
    return message


def _html(notice: Notice) -> str:
    lines = "".join(f"<p>{html(line)}</p>" for line in notice.lines)
    details = "\n".join(html(line) for line in notice.details)
    block = f"<pre>{details}</pre>" if details else ""
    link = f'<p><a href="{html(notice.link)}">Dashboard</a></p>' if notice.link else ""
    return f"<html><body><h2>{html(notice.title)}</h2>{lines}{block}{link}</body></html>\n"
