"""Secrets: named in the settings, kept in the environment or in a file that nobody else may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pydantic import model_validator

from iowatch.errors import InputError
from iowatch.yamlfile import Closed


class Secret(Closed):
    """Where a secret is: `environment: NAME` or `file: PATH`; never the secret itself."""

    environment: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Secret:
        if (self.environment is None) == (self.file is None):
            raise ValueError("expected one of 'environment: NAME' and 'file: PATH'")
        return self

    def read(self) -> str:
        """The secret, without the line end.

        Raises:
            InputError: it is not there, empty, or others could read or change it.
        """
        if self.environment is not None:
            text, where = os.environ.get(self.environment, ""), f"environment variable {self.environment}"
        else:
            text, where = _of_file(Path(self.file or "").expanduser()), f"file {self.file}"
        if not text.strip():
            raise InputError(f"the secret of {where} is not set", hint='docs/operations.md, "Notices".')
        return text.strip()


def _of_file(path: Path) -> str:
    # The opened file is judged, not its name: nobody can exchange it in between.
    try:
        with path.open(encoding="utf-8") as stream:
            facts = os.fstat(stream.fileno())
            mode = stat.S_IMODE(facts.st_mode)
            if mode & 0o077 or facts.st_uid != os.geteuid():
                raise InputError(
                    f"{path} has mode {mode:03o} and owner {facts.st_uid}; a secret must be its owner's alone",
                    hint=f"chmod 600 {path}, and change the secret: others may have read it.",
                )
            return stream.read(65536)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"cannot read the secret in {path}: {reason}") from None
