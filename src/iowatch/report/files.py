"""Reports as files: whole or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from iowatch.errors import MachineError


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Write beside and rename: who reads at that moment sees the old file or the new one, never half of it.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as stream:
            beside = Path(stream.name)
            try:
                stream.write(text)
                stream.flush()
                beside.chmod(mode)
                beside.replace(path)
            except BaseException:
                beside.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror}", hint="Name a file in a writable directory with room."
        ) from error
