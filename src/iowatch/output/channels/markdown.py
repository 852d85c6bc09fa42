"""A notice as Markdown, in the form that GitLab and GitHub share."""

from __future__ import annotations

import re

from iowatch.output.channels.notice import Notice
from iowatch.output.report import escape_markdown


def issue_text(notice: Notice) -> str:
    """Title as a heading, then the body."""
    return f"# {escape_markdown(notice.title)}\n\n{issue_body(notice)}\n"


def comment_text(notice: Notice) -> str:
    """Title in bold, then the body."""
    return f"**{escape_markdown(notice.title)}**\n\n{issue_body(notice)}"


def issue_body(notice: Notice) -> str:
    """Lines, details in a block, link to the dashboard."""
    paragraphs = ["\n".join(f"- {escape_markdown(line)}" for line in notice.lines)]
    if notice.details:
        # The fence is longer than any in the lines. Indented code is not possible: after a list it continues the list.
        backticks = re.findall("`+", "\n".join(notice.details))
        longest = max(map(len, backticks), default=0)
        fence = "`" * max(3, longest + 1)
        paragraphs.append("\n".join([f"{fence}text", *notice.details, fence]))
    if notice.link is not None:
        paragraphs.append(f"[Dashboard]({notice.link})")
    return "\n\n".join(paragraphs)
