"""Commands in the code blocks of documents, with the output shown for them, and how to run them.

A block is fenced, or indented by four or more columns behind a blank line. If a line of it begins with `$ `, such lines
are commands and the lines after each are its output; else, if its first word is a program, all its lines are commands.
A comment `exit code N` behind a command states its exit code. Before a block, comments of Markdown, which no reader
sees (`$CLONE` is the clone):

    <!-- setup: COMMAND -->      is run before the block
    <!-- not run: REASON -->     the block is not run, and is listed with its reason
    <!-- needs: PROGRAM -->      the block is not run where this program is absent
    <!-- output varies -->       the output shown is an example

In the output shown, `…` stands for anything within a line, and a line of `…` for any number of lines.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

_PROGRAM = re.compile(
    r"(?:[\w.]+/)*(?:iowatch|make|nightly|setup|reframe|spack|cmake|git|cp|cat|mkdir|echo|cd|ssh|sbatch|mpirun|pip|pipx|"
    r"python3?|export|configure|man|psql|systemctl|crontab|podman|apt-get|eval)(?= |$)"
)
_MARK = re.compile(r"<!-- (setup|not run|needs|output varies)(?:: (.*?))? -->")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")


@dataclass(frozen=True)
class Command:
    """A command of a document, as typed.

    Attributes:
        output: the lines shown for it; None if none are shown, or they only are an example.
        exit_code: the one that its comment states, else 0.
    """

    line: int
    text: str
    output: str | None = None
    exit_code: int = 0


@dataclass(frozen=True)
class Block:
    """A block of commands; `marks` holds (mark, text) of the comments before it."""

    line: int
    commands: tuple[Command, ...]
    marks: tuple[tuple[str, str], ...]

    def mark(self, name: str) -> str | None:
        """The text of a mark, or None without it."""
        return next((text for mark, text in self.marks if mark == name), None)


def shell_blocks(text: str) -> Iterator[Block]:
    """All blocks of a document that contain commands, in their order."""
    marks: list[tuple[str, str]] = []
    for number, lines in _paragraphs_and_blocks(text):
        if isinstance(lines, str):
            found = [(name, words or "") for name, words in _MARK.findall(lines)]
            marks = [*marks, *found] if found or not lines.strip() else []
            continue
        example = any(name == "output varies" for name, _ in marks)
        if commands := tuple(_commands(number, lines, example)):
            yield Block(number, commands, tuple(marks))
        marks = []


def _paragraphs_and_blocks(text: str) -> Iterator[tuple[int, str | list[str]]]:
    """Each line outside of code blocks, and each block as its dedented lines, with the number of the (first) line."""
    lines = text.splitlines()
    number, blank, item = 0, True, 0
    while number < len(lines):
        line, start = lines[number], number + 1
        indent = len(line) - len(line.lstrip())
        if fence := re.match(r"\s*(```+)", line):
            end = next(n for n in range(start, len(lines)) if lines[n].strip() == fence[1])
            yield start + 1, textwrap.dedent("\n".join(lines[start:end])).splitlines()
            number = end + 1
            continue
        if blank and line.strip() and indent >= 4 + item:
            end = number
            while end < len(lines) and (
                not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) >= 4 + item
            ):
                end += 1
            yield start, textwrap.dedent("\n".join(lines[number:end])).rstrip().splitlines()
            number, blank = end, False
            continue
        # Within an item of a list, a block is indented by four columns more than its text.
        item = len(found[0]) if (found := _ITEM.match(line)) else item if indent or not line.strip() else 0
        yield start, line
        number, blank = number + 1, not line.strip()


def _commands(start: int, lines: list[str], example: bool) -> Iterator[Command]:
    prompts = any(line.startswith("$ ") for line in lines)
    if not prompts and not (lines and _PROGRAM.match(lines[0])):
        return
    number = 0
    while number < len(lines):
        first, line = number, lines[number].removeprefix("$ ")
        is_command = lines[number].startswith("$ ") if prompts else bool(line.strip()) and not line.startswith("#")
        number += 1
        if not is_command:
            continue
        while line.endswith("\\"):
            line, number = line[:-1] + lines[number].strip(), number + 1
        end = (
            next((n for n in range(number, len(lines)) if lines[n].startswith("$ ")), len(lines)) if prompts else number
        )
        shown = "\n".join(lines[number:end]).strip("\n")
        code = re.search(r"#.*\bexit code (\d)", line)
        output = shown if shown and not example else None
        yield Command(start + first, line, output, int(code[1]) if code else 0)
        number = end


def words_of(text: str) -> list[str] | None:
    """The words of `iowatch …`, or None for what a shell has to run: other programs, pipes, substitutions."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return None
    if not words or words[0].rpartition("/")[2] != "iowatch" or re.search(r"[|&;<>`~*$]|\$\(", " ".join(words)):
        return None
    return words[1:]


def pattern_of(shown: str) -> re.Pattern[str]:
    """The expression for an output that is shown with `…`."""
    lines = []
    for line in shown.splitlines():
        if line.strip() in ("…", "..."):
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(r".*".join(map(re.escape, line.rstrip().split("…"))) + r"[ \t]*\n")
    return re.compile(r"\s*" + "".join(lines) + r"\s*")


def fault_of(page: str, command: Command, code: int, output: str) -> str | None:
    """Why a command did not do what its page shows, or None."""
    where = f"{page}:{command.line}: {command.text}\n"
    if code != command.exit_code:
        return f"{where}exit code {code}, expected {command.exit_code}:\n{output}"
    if command.output is not None and not pattern_of(command.output).fullmatch(output + "\n"):
        return f"{where}printed:\n{output}\nthe page shows:\n{command.output}"
    return None
