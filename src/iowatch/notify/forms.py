"""The forms of a notice: JSON for programs, chats, mail as text and HTML, text of an issue. Pure functions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
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
        parts.append(_block(notice.details))
    if notice.link:
        parts.append(f"[Dashboard]({notice.link})")
    return "\n\n".join(parts) + "\n"


def _block(lines: Sequence[str]) -> str:
    """Lines as they are, whatever they hold. Indentation would not do: after a list it continues the list."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])


def mail(notice: Notice, channel: Mail) -> EmailMessage:
    """Text with an HTML alternative; the same notice has the same Message-ID, so a repeat is recognised."""
    message = EmailMessage()
    message["Subject"] = " ".join(f"iowatch: {notice.title}".split())[:_SUBJECT_CHARACTERS]
    message["From"] = channel.sender
    message["To"] = ", ".join(channel.to)
    digest = hashlib.sha256(f"{notice.key} {channel.name}".encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{digest}@{channel.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no holiday answers
    link = [notice.link] if notice.link else []
    text = [notice.title, "", *notice.lines, *link, *(["", *notice.details] if notice.details else [])]
    message.set_content("\n".join(text) + "\n")
    message.add_alternative(_html(notice), subtype="html")
    return message


# Mail programs know no style sheets; what they leave out of these costs nothing.
_BODY = "font-family: sans-serif; font-size: 15px; line-height: 1.45; max-width: 70em"
_PRE = "font-size: 13px; line-height: 1.4; overflow-x: auto; background: #f6f8fa; color: #1b1f24; padding: 10px"


def _html(notice: Notice) -> str:
    """The answer, what to do, the way to the dashboard; then the details, which need a fixed-width font."""
    lines = "".join(f"<li>{html(line)}</li>" for line in notice.lines)
    link = f'<p><a href="{html(notice.link)}">Look at it on the dashboard</a></p>' if notice.link else ""
    details = "\n".join(html(line) for line in notice.details)
    block = f'<pre style="{_PRE}">{details}</pre>' if details else ""
    head = f'<head><title>{html(notice.title)}</title></head><body style="{_BODY}">'
    title = f'<h1 style="font-size: 18px">{html(notice.title)}</h1>'
    return f'<html lang="en">{head}{title}<ul>{lines}</ul>{link}{block}</body></html>\n'
