"""The conventions of `shell_blocks`: what is a command, what is its output, what a page may leave out."""

from __future__ import annotations

import pytest

from tests.docs.shell_blocks import Command, pattern_of, shell_blocks, words_of

DOCUMENT = """
Text.

    iowatch doctor            # a comment
    iowatch findings list     # exit code 1: a finding is open

Not a command:

    var/iowatch.db     the history

<!-- setup: mkdir x -->
<!-- not run: needs a cluster -->

```console
$ iowatch run \\
    --suite tiny
tiny: OK
…
$ cd x
```

- An item

      $ iowatch event list
"""


def test_blocks_of_a_document() -> None:
    plain, marked, item = shell_blocks(DOCUMENT)
    assert plain.commands == (
        Command(4, "iowatch doctor            # a comment"),
        Command(5, "iowatch findings list     # exit code 1: a finding is open", exit_code=1),
    )
    assert plain.marks == ()
    assert marked.commands == (Command(15, "iowatch run --suite tiny", "tiny: OK\n…"), Command(19, "cd x"))
    assert (marked.mark("setup"), marked.mark("not run"), marked.mark("needs")) == ("mkdir x", "needs a cluster", None)
    assert [one.text for one in item.commands] == ["iowatch event list"]


@pytest.mark.parametrize(
    ("shown", "output", "agree"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "a\nc\n", False),
        ("a\nb", "a\nb\nc\n", False),
        ("a … c", "a b c\n", True),
        ("a … c", "a b d\n", False),
        ("a\n…", "a\nb\nc\n", True),
        ("…\nc", "a\nb\nc\n", True),
        ("…\nc", "a\nb\n", False),
        ("a  b", "a b\n", False),
    ],
)
def test_output_is_compared_with_what_is_shown(shown: str, output: str, agree: bool) -> None:
    assert bool(pattern_of(shown).fullmatch(output)) == agree


def test_only_plain_commands_run_without_a_shell() -> None:
    assert words_of(".venv/bin/iowatch run --case 'a b'  # why") == ["run", "--case", "a b"]
    assert words_of("iowatch findings list | head") is None
    assert words_of("iowatch dashboard build && ls") is None
    assert words_of("make docs") is None
