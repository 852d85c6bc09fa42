"""The schema of `systems/<name>/notify.yaml`: who is told what, and how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, StringConstraints, model_validator

from iowatch.notify.notice import Kind
from iowatch.notify.secret import Secret
from iowatch.systems.load import directory
from iowatch.yamlfile import Closed, read_document, validated

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
# Blanks and line ends would let one address become several, or a header of its own.
Address = Annotated[str, StringConstraints(pattern=r"^[^\s@<>,]+@[^\s@<>,]+$")]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "never"]


class Told(Closed):
    """What every channel has: a name of its own, and what it is told of."""

    name: Word
    tell: tuple[Kind, ...] = ("finding", "silence", "digest")


class Hook(Told):
    """A web address that takes JSON. Whoever knows it can write there, so it is a secret, too."""

    kind: Literal["webhook", "slack", "mattermost"]
    url: Secret
    token: Secret | None = None


class Mail(Told):
    """Mail through an SMTP server; port 587 with STARTTLS unless told otherwise."""

    kind: Literal["mail"]
    host: Annotated[str, StringConstraints(pattern=r"^\S+$")]
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: Address
    to: Annotated[tuple[Address, ...], Field(min_length=1)]
    user: str | None = None
    password: Secret | None = None

    @model_validator(mode="after")
    def _whole(self) -> Mail:
        if (self.user is None) != (self.password is None):
            raise ValueError("'user' and 'password' go together")
        if self.password is not None and self.security == "none":
            raise ValueError("a password is not sent without encryption: 'security: starttls' or 'tls'")
        return self


class Issue(Told):
    """One Markdown file a notice: text of a GitLab or GitHub issue, for a job that opens it."""

    kind: Literal["issue"]
    directory: str


Channel = Annotated[Hook | Mail | Issue, Field(discriminator="kind")]


class Settings(Closed):
    """The whole file.

    Attributes:
        dashboard: address of the published site, for links.
        digest: day of the weekly digest (UTC), or `never`.
        silence_hours: so long after the last session, nothing ran.
        suspected: tell of what the newest one or two nights alone suggest.
    """

    dashboard: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None
    digest: Weekday = "monday"
    silence_hours: PositiveFloat = 26.0
    suspected: bool = False
    channels: tuple[Channel, ...]

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        names = [channel.name for channel in self.channels]
        if len(set(names)) < len(names):
            raise ValueError(f"names of channels must differ: {', '.join(names)}")
        return self


def load(system: str) -> Settings | None:
    """Settings of a system, or None where it has none.

    Raises:
        UsageError: no such system.
        InputError: the file is damaged; every fault with file, line and field.
    """
    path = directory(system) / "notify.yaml"
    document = read_document(path)
    if document is None and not path.exists():
        return None
    return validated(path, document, Settings, "docs/operations.md lists the fields.", quote=False)
