"""Text from outside as text: characters that would turn or hide what stands beside them are shown as such."""

from __future__ import annotations

import re

# Overrides, embeddings and isolates turn the rest of a line around, words of the page among them; controls and
# separators are nothing that a page can show.
_TURNING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text with a visible sign in the place of every such character."""
    return _TURNING.sub("\N{REPLACEMENT CHARACTER}", text)


def shown(value: object) -> object:
    """What templates write: texts are plain, everything else (numbers, finished markup) is as it is."""
    return plain(value) if type(value) is str else value
