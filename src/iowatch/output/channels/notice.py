"""What a notice and a channel are. Plugins of a site define channels of their own with these classes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints, model_validator

from iowatch.core import InputError, MachineError, escape_line, escape_texts, yamlfile

NoticeKind = Literal["finding", "session", "overdue", "digest", "pulse", "decision"]
# Decisions are made by the people who get the notices: only tickets need them.
_USUAL_KINDS: tuple[NoticeKind, ...] = ("finding", "session", "overdue", "digest", "pulse")


@dataclass(frozen=True)
class Notice:
    """One event to report; its texts have no control and no invisible characters.

    Attributes:
        key: identity of the notice; a key is sent once.
        title: one line, complete in itself.
        lines: text below the title in a chat.
        details: more for mails and issues, laid out for a fixed-width font.
        link: page of the dashboard, or None.
        facts: plain JSON for programs.
        made_at: epoch seconds UTC.
        recipients: of a mail that some recipients have already; empty for all of the channel.
    """

    kind: NoticeKind
    key: str
    system: str
    title: str
    lines: tuple[str, ...]
    details: tuple[str, ...]
    link: str | None
    facts: Mapping[str, Any]
    made_at: int
    recipients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("key", "system", "title"):
            object.__setattr__(self, name, escape_line(getattr(self, name)))
        for name in ("lines", "details", "facts"):
            object.__setattr__(self, name, escape_texts(getattr(self, name)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Notice:
        """Create a notice from the output of `to_json`."""
        rows = {name: tuple(document.get(name, ())) for name in ("lines", "details", "recipients")}
        return cls(**{**document, **rows})


class Secret(yamlfile.ClosedModel):
    """Location of a secret: `environment: NAME` or `file: PATH`; never the secret itself."""

    environment: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _has_one_location(self) -> Secret:
        if (self.environment is None) == (self.file is None):
            raise ValueError("expected one of 'environment: NAME' and 'file: PATH'")
        return self

    def read(self) -> str:
        """Read the secret, without surrounding blanks and line ends.

        Raises:
            InputError: the secret is missing or empty, or other users could read or change it.
        """
        if self.environment is not None:
            source = f"environment variable {self.environment}"
            secret = os.environ.get(self.environment, "").strip()
        else:
            source = f"file {self.file}"
            secret = _read_secret_file(Path(self.file or "").expanduser()).strip()
        if not secret:
            raise InputError(f"the secret of {source} is not set", hint="docs/notices.md.")
        return secret


def _read_secret_file(path: Path) -> str:
    # The opened file is checked, not its name, so that it cannot be replaced in between.
    try:
        with path.open(encoding="utf-8") as stream:
            status = os.fstat(stream.fileno())
            mode = stat.S_IMODE(status.st_mode)
            if mode & 0o077 or status.st_uid != os.geteuid():
                raise InputError(
                    f"{path} has mode {mode:03o} and owner {status.st_uid}; secrets must be readable by its owner only",
                    hint=f"chmod 600 {path}, and change the secret: others may have read it.",
                )
            return stream.read(65536)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"cannot read the secret in {path}: {reason}") from None


class UndeliveredError(MachineError):
    """A notice could not be delivered. Its message has no address, token or password."""


class PartlyDeliveredError(UndeliveredError):
    """A part of a notice was delivered; the others of its channel need not wait for the rest.

    Attributes:
        refused: addresses of the recipients of a mail that were refused; empty for a ticket that has its comment but
            could not be closed or reopened.
    """

    def __init__(self, message: str, refused: Sequence[str]) -> None:
        super().__init__(message)
        self.refused = tuple(refused)


ChannelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ChannelSettings(yamlfile.ClosedModel):
    """An entry of `channels` in `notify.yaml`; each channel adds its fields, and the values of `kind`.

    Attributes:
        name: unique.
        kind: the `NoticeChannel`; in subclasses a `Literal`.
        send: kinds of notices to send, at least one.
    """

    name: ChannelName
    kind: str
    send: Annotated[tuple[NoticeKind, ...], Field(min_length=1)] = _USUAL_KINDS


@dataclass(frozen=True)
class NoticeChannel:
    """A way to deliver notices.

    Attributes:
        name: `kind` of its entries in `notify.yaml`.
        settings: fields of such an entry; the name is a value of its `kind`.
        deliver: delivers a notice as an entry says, in one attempt; raises `UndeliveredError` if it was refused.
    """

    name: str
    settings: type[ChannelSettings]
    deliver: Callable[[Any, Notice], None]

    def __post_init__(self) -> None:
        """Raises ValueError where no entry of `notify.yaml` could select the channel."""
        if self.name not in get_args(self.settings.model_fields["kind"].annotation):
            raise ValueError(f"channel '{self.name}': expected `kind: Literal[\"{self.name}\"]` in its settings")
