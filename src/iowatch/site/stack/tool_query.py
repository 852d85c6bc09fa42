"""Questions to installed tools: asked a second time if a tool does not answer in time, then answered as last time.

    tool ──answer──> this process (cache) ──keep_answers──> var/tool-answers.json
      └─no answer within 20 s, twice──> the kept answer of the same files, or "unanswered"

A login node under load is no reason to say that a library is absent. What an answer depends on is part of its name in
the file: the command, path, size and time of each file that it names, PATH and LD_LIBRARY_PATH.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from iowatch.core import IowatchError, settings, utc_now, write_atomically
from iowatch.site.machine import run_program

_LOG = logging.getLogger(__name__)

TIMEOUT_S = 20.0
_ATTEMPTS = 2
# Open MPI refuses to start as root without these variables; containers often have no other user.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_FORMAT = 1
# Newest answers that are kept, and the longest one, in characters: a stack has about forty, of 10 KB at most.
_MAX_ANSWERS, _MAX_CHARACTERS = 500, 65536


@dataclass(frozen=True)
class _Answer:
    """What a tool printed.

    Attributes:
        text: both streams; empty if the tool is absent or failed, or if it did not answer and no answer is kept.
        remark: why it did not answer; empty if it did.
    """

    text: str
    remark: str = ""

    @property
    def is_unknown(self) -> bool:
        """Whether the tool did not answer, and no answer is kept."""
        return bool(self.remark) and not self.text


@dataclass(frozen=True)
class _KeptAnswer:
    """An answer in the file, and its day."""

    text: str
    day: str


# Questions without an answer, of each open `unanswered_questions`.
_RECORDERS: list[list[str]] = []
# Answers of this process by question, that are to be kept.
_NEW_ANSWERS: dict[str, _KeptAnswer] = {}


def query_tool(*command: str, any_exit_code: bool = False) -> str:
    """Return the output of a program on both streams; empty if it is absent, fails or does not answer.

    Args:
        any_exit_code: a program that ends with another code than 0 has not failed: `ior -h` of 4.0 ends with 1.
    """
    answer = _ask_once(command, any_exit_code)
    if answer.is_unknown:
        for recorder in _RECORDERS:
            recorder.append(answer.remark)
    return answer.text


@contextmanager
def unanswered_questions() -> Iterator[list[str]]:
    """Yield a list, to which each question of the block is added that a tool did not answer: one sentence each."""
    recorder: list[str] = []
    _RECORDERS.append(recorder)
    try:
        yield recorder
    finally:
        _RECORDERS.remove(recorder)


def forget_answers() -> None:
    """Ask all tools again."""
    _ask_once.cache_clear()
    _NEW_ANSWERS.clear()


def keep_answers() -> None:
    """Keep the answers of this process for a time when a tool does not answer.

    Without the right to write they are not kept, which is no error: others may only look at stacks.
    """
    if not _NEW_ANSWERS:
        return
    kept = _read_kept_answers()
    if all(question in kept for question in _NEW_ANSWERS):
        return
    # In the order of writing: the oldest are dropped.
    merged = {question: answer for question, answer in kept.items() if question not in _NEW_ANSWERS}
    merged.update(_NEW_ANSWERS)
    answers: dict[str, dict[str, str]] = {}
    for question, answer in list(merged.items())[-_MAX_ANSWERS:]:
        answers[question] = {"text": answer.text, "day": answer.day}
    with suppress(OSError, IowatchError):
        _answers_file().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(_answers_file(), json.dumps({"format": _FORMAT, "answers": answers}))


@cache
def _ask_once(command: tuple[str, ...], any_exit_code: bool) -> _Answer:
    """Return the answer of a tool, or the kept one if it does not answer."""
    question = _question(command, any_exit_code)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            text = _run_tool(command, any_exit_code)
        except subprocess.TimeoutExpired:
            _LOG.info("%s did not answer within %.0f s (attempt %s)", shlex.join(command), TIMEOUT_S, attempt)
            continue
        if text and len(text) <= _MAX_CHARACTERS:
            _NEW_ANSWERS[question] = _KeptAnswer(text, utc_now().date().isoformat())
        return _Answer(text)
    remark = f"`{shlex.join(command)}` did not answer within {TIMEOUT_S:.0f} s, twice"
    kept = _read_kept_answers().get(question)
    if kept is None:
        _LOG.warning("%s", remark)
        return _Answer("", remark)
    _LOG.warning("%s: its answer of %s is used", remark, kept.day)
    return _Answer(kept.text, remark)


def _run_tool(command: tuple[str, ...], any_exit_code: bool) -> str:
    """Return the output of a program on both streams; empty if it is absent or fails.

    Raises:
        subprocess.TimeoutExpired: it does not end in time.
    """
    try:
        done = run_program(*command, timeout_s=TIMEOUT_S, LC_ALL="C", **AS_ROOT)
    except OSError:
        return ""
    if done.returncode != 0 and not any_exit_code:
        return ""
    return done.stdout + done.stderr


def _question(command: tuple[str, ...], any_exit_code: bool) -> str:
    """Return a digest of a command and of what its answer depends on."""
    files: list[list[object]] = []
    program = shutil.which(command[0]) or command[0]
    for path in (program, *command[1:]):
        with suppress(OSError, ValueError):
            status = Path(path).stat()
            files.append([os.path.realpath(path), status.st_size, status.st_mtime_ns])
    paths = [os.environ.get(name, "") for name in ("PATH", "LD_LIBRARY_PATH")]
    text = json.dumps([command, any_exit_code, files, paths])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _answers_file() -> Path:
    return settings.var_directory() / "tool-answers.json"


def _read_kept_answers() -> dict[str, _KeptAnswer]:
    """Return the kept answers by question; none if the file is absent, damaged or of another format."""
    try:
        document = json.loads(_answers_file().read_text(encoding="utf-8"))
        if document["format"] != _FORMAT:
            return {}
        answers: Mapping[str, Mapping[str, str]] = document["answers"]
        return {question: _KeptAnswer(answer["text"], answer["day"]) for question, answer in answers.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IowatchError):
        return {}
