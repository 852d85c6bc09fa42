"""The timed operations: a program that its parent can kill; it uses the standard library only.

    python probe_program.py pulse DIRECTORY NUMBER      time the operations in a fixed tree
    python probe_program.py make DIRECTORY              make the fixed tree, or complete it

Every line on stdout is an event, so that the parent knows what did not end when it kills this process:

    begin OPERATION
    end OPERATION NANOSECONDS
    failed OPERATION REASON
    no-tree REASON              the fixed tree is absent or incomplete; nothing more is timed
    done

Layout of the fixed tree in `DIRECTORY` (about 6 MiB in 576 files):

    tree/d00 … d31/f00 … f15    4 KiB each: opened, listed, looked up
    cold/c00 … c63              64 KiB each: read after the client dropped their pages
    new/                        files that a pulse creates and unlinks
    complete-1                  written last; the number changes with the layout
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OPERATIONS = ("stat", "open", "list", "create", "write", "unlink", "read")
"""In the order in which a round performs them."""

DIRECTORIES, FILES_PER_DIRECTORY, COLD_FILES = 32, 16, 64
SMALL_BYTES, COLD_BYTES = 4096, 65536
# A pulse repeats all operations so often, each time on other files: one slow server of many is met, too.
ROUNDS = 5
# No further round begins after this time, so that a slow file system is measured once and not cut off.
ROUNDS_S = 0.8
MARKER = "complete-1"


class _TreeError(Exception):
    """The fixed tree is absent or incomplete."""


def _say(*words: object) -> None:
    line = " ".join(str(word) for word in words).replace("\n", " ")
    os.write(1, f"{line}\n".encode())


@contextmanager
def _timed(operation: str) -> Iterator[None]:
    """Report begin and end of an operation; an error of the system is reported in place of its end."""
    _say("begin", operation)
    begin = time.perf_counter_ns()
    try:
        yield
    except FileNotFoundError as error:
        # A file of the tree was removed, for example by the purge of a scratch file system.
        raise _TreeError(str(error.filename)) from error
    except OSError as error:
        _say("failed", operation, error.strerror or type(error).__name__)
    else:
        _say("end", operation, time.perf_counter_ns() - begin)


def _small_file(tree: Path, directory: int, file: int) -> Path:
    return tree / f"d{directory % DIRECTORIES:02d}" / f"f{file % FILES_PER_DIRECTORY:02d}"


def _look_up(tree: Path, position: int) -> None:
    """Stat, open and list, each in another directory, so that none finds what the one before has cached."""
    with _timed("stat"):
        _small_file(tree, position, position).stat()
    with _timed("open"):
        os.close(os.open(_small_file(tree, position + 11, position), os.O_RDONLY))
    with _timed("list"):
        names = os.listdir(tree / f"d{(position + 22) % DIRECTORIES:02d}")  # noqa: PTH208  # one call, as `ls` makes it
    if len(names) < FILES_PER_DIRECTORY:
        raise _TreeError(f"{len(names)} of {FILES_PER_DIRECTORY} files in a directory")


def _write_file(path: Path) -> None:
    """Create a file, write 4 KiB to its server, and unlink it."""
    descriptor = -1
    with _timed("create"):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    if descriptor < 0:
        return
    try:
        with _timed("write"):
            os.write(descriptor, b"iowatch\n" * (SMALL_BYTES // 8))
            os.fsync(descriptor)
    finally:
        # Close reports what a write did not: it was synchronised, so nothing is left to report.
        with suppress(OSError):
            os.close(descriptor)
    with _timed("unlink"):
        path.unlink()


def _read_cold(path: Path) -> None:
    """Read a file whose pages this client has dropped; servers may still have them in their caches."""
    with _timed("read"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.read(descriptor, COLD_BYTES)
        finally:
            os.close(descriptor)


def pulse(directory: Path, number: int) -> None:
    """Time the operations.

    Args:
        directory: of the fixed tree.
        number: of this pulse, by which it chooses files that the pulses before did not touch.
    """
    start = time.perf_counter()
    prefix = f"{platform.node()}-"
    # The first contact with the file system is timed as well: where nothing answers, this is what hangs.
    with _timed("stat"):
        (directory / MARKER).stat()
    for turn in range(ROUNDS):
        position = number * ROUNDS + turn
        _look_up(directory / "tree", position)
        _write_file(directory / "new" / f"{prefix}{os.getpid()}-{turn}")
        _read_cold(directory / "cold" / f"c{position % COLD_FILES:02d}")
        if time.perf_counter() - start > ROUNDS_S:
            break
    # What a killed pulse of this node left.
    with suppress(OSError):
        for path in (directory / "new").glob(f"{prefix}*"):
            path.unlink(missing_ok=True)


def make(directory: Path) -> None:
    """Make the fixed tree; what exists with its size is kept."""
    sizes: dict[Path, int] = {}
    for number in range(DIRECTORIES):
        for file in range(FILES_PER_DIRECTORY):
            sizes[_small_file(directory / "tree", number, file)] = SMALL_BYTES
    for number in range(COLD_FILES):
        sizes[directory / "cold" / f"c{number:02d}"] = COLD_BYTES
    (directory / "new").mkdir(parents=True, exist_ok=True)
    for path, size in sizes.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size == size:
            continue
        # Not only zeros: some file systems store these without space.
        path.write_bytes(b"iowatch\n" * (size // 8))
    (directory / MARKER).write_bytes(b"made by `iowatch pulse`; it is made again if it is removed\n")


def main(words: list[str]) -> None:
    """Run what the command line names."""
    programs: dict[str, Callable[[], None]] = {
        "pulse": lambda: pulse(Path(words[1]), int(words[2])),
        "make": lambda: make(Path(words[1])),
    }
    try:
        programs[words[0]]()
    except _TreeError as error:
        _say("no-tree", error)
        return
    except OSError as error:
        _say("failed", words[0], error.strerror or type(error).__name__)
        return
    _say("done")


if __name__ == "__main__":
    main(sys.argv[1:])
