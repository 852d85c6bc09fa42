"""Settings, and the places of files: the product's own, those of the site's repository, and what runs write.

The product's files (systems, suites, published tables, templates, benchio) are in the clone or in the installed wheel.
A site's files are in its own repository. Reading looks there first; what people write always goes there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, create_model

from iowatch.core import plugins
from iowatch.core.errors import UsageError
from iowatch.core.roots import SITE_FILE, product_root, site_root
from iowatch.core.text import hide_passwords
from iowatch.core.yamlfile import ClosedModel, YamlDocument, ZoneName, describe_fault

# Directory of the default file system, for a session and for plain ReFrame.
SCRATCH_VARIABLE = "IOWATCH_SCRATCH"
_HINT = "docs/settings.md lists the settings; `iowatch config` shows those in force."


class Thresholds(ClosedModel):
    """Thresholds of systems that have none of their own in `system.yaml`.

    Attributes:
        suspected_probability: a suspected finding that lasts with at least this probability counts as a finding.
        smallest_loss: share of the performance from which on the loss of a calm series in one session is worth a
            message; a noisy series needs more, by its own past.
        slow_loss: share of the performance from which on a slow loss without a step is a finding.
    """

    suspected_probability: Annotated[float, Field(gt=0, le=0.9)] = 0.5
    smallest_loss: Annotated[float, Field(ge=0.03, le=0.9)] = 0.2
    slow_loss: Annotated[float, Field(ge=0.03, le=0.9)] = 0.1


class Prices(ClosedModel):
    """Hours that people lose; `iowatch findings cost` adds them up.

    Attributes:
        half_speed_day_hours: of all users of a file system together, in a day in which it has half of its performance.
            Assumed, because no published figure was found: 100 jobs a day, each of which waits 6 minutes longer.
        false_message_minutes: of the administrator, for a message about something that does not last. Assumed: ten
            minutes to look at the page, and twenty until the person is back at the interrupted work.

    Only the quotient of both decides which threshold is the cheapest one.
    """

    half_speed_day_hours: Annotated[float, Field(gt=0, le=100_000)] = 10.0
    false_message_minutes: Annotated[float, Field(gt=0, le=10_000)] = 30.0


class SiteSettings(ClosedModel):
    """Content of `site.yaml`; the environment variable of a field (`ENVIRONMENT`) has precedence over the file."""

    docs = "docs/settings.md"
    quoted = False  # it may contain the password of the database
    title: Annotated[str, Field(min_length=1, max_length=120, description="title of the pages")] = "iowatch"
    timezone: Annotated[ZoneName, Field(description="IANA name of the zone of all times that people type or read")] = (
        "UTC"
    )
    database: Annotated[str | None, Field(description="the history: a path, or the URL of PostgreSQL")] = None
    var: Annotated[str, Field(description="directory of all files that runs write")] = "var"
    darshan_privacy: Annotated[
        Literal["keep", "hash", "drop"], Field(description="what happens to Darshan logs, which contain user names")
    ] = "keep"
    keep_days: Annotated[float | None, Field(ge=0, description="age in days of the oldest files to keep")] = None
    keep_size: Annotated[str | None, Field(description="total size of files to keep, for example 50g")] = None
    build_cache_size: Annotated[
        str, Field(description="total size of builds of `iowatch bisect` and `iowatch gate` to keep")
    ] = "5g"
    thresholds: Annotated[Thresholds, Field(description="of systems that have none in `system.yaml`")] = Thresholds()
    prices: Annotated[Prices, Field(description="hours that a slow day and a false message cost")] = Prices()
    notify: Annotated[Any, Field(description="notices of systems without a `notify.yaml`, in the same form")] = None


@dataclass(frozen=True)
class EnvironmentSetting:
    """A variable of the environment that people set.

    Attributes:
        field: the field of `site.yaml` that it has precedence over; None for variables without one.
        option: the option of commands that has precedence over both.
    """

    variable: str
    field: str | None = None
    option: str | None = None
    description: str = ""


ENVIRONMENT = (
    EnvironmentSetting(
        "IOWATCH_SITE", None, None, "the site's repository, instead of the nearest parent with site.yaml"
    ),
    EnvironmentSetting("IOWATCH_TIMEZONE", "timezone"),
    EnvironmentSetting("IOWATCH_DB", "database", "--db"),
    EnvironmentSetting("IOWATCH_VAR", "var"),
    EnvironmentSetting("IOWATCH_DARSHAN_PRIVACY", "darshan_privacy"),
    EnvironmentSetting("IOWATCH_KEEP_DAYS", "keep_days"),
    EnvironmentSetting("IOWATCH_KEEP_SIZE", "keep_size"),
    EnvironmentSetting("IOWATCH_BUILD_CACHE_SIZE", "build_cache_size"),
    EnvironmentSetting(SCRATCH_VARIABLE, None, "--scratch", "where `iowatch run` and plain `reframe` write"),
    EnvironmentSetting("IOWATCH_TRUSTED_SITE", None, None, "a site's repository of other accounts whose code may run"),
    EnvironmentSetting("IOWATCH_UMASK", None, None, "umask of all that iowatch writes, octal"),
    EnvironmentSetting("IOWATCH_ALLOW_NETWORK_SQLITE", None, None, "1: allow SQLite on a network file system"),
    EnvironmentSetting("IOWATCH_WRONG_CLOCK", None, None, "UUIDs of sessions whose clock was wrong"),
    EnvironmentSetting("IOWATCH_NOW", None, None, "time at which a command begins, for trials and tests"),
    EnvironmentSetting("IOWATCH_OVERHEAD_CASE", None, None, "case whose Darshan overhead plain `reframe` measures"),
    EnvironmentSetting("IOWATCH_ROOT", None, None, "a clone whose files are used instead of the installed ones"),
)


@cache
def capability_settings() -> tuple[plugins.CapabilitySetting, ...]:
    """Return the settings that only capabilities read, in the order of the capabilities."""
    declared: list[plugins.CapabilitySetting] = []
    for module in plugins.capability_modules(""):
        for value in vars(module).values():
            if isinstance(value, plugins.CapabilitySetting):
                declared.append(value)
    return tuple(declared)


@cache
def settings_model() -> type[SiteSettings]:
    """Return the content of `site.yaml` with the settings of capabilities."""
    fields: dict[str, Any] = {}
    for setting in capability_settings():
        default = setting.values[0]
        fields[setting.name] = (Literal[setting.values], Field(default, description=setting.description))
    return create_model("SiteSettings", __base__=SiteSettings, **fields)


def environment_settings() -> tuple[EnvironmentSetting, ...]:
    """Return all variables of the environment that people set: those of the suite, then those of capabilities."""
    of_capabilities = [EnvironmentSetting(setting.variable, setting.name) for setting in capability_settings()]
    return (*ENVIRONMENT, *of_capabilities)


@dataclass(frozen=True)
class EffectiveSetting:
    """A setting in force: its value, and where it comes from (a variable, a file with line, or `default`)."""

    name: str
    value: Any
    origin: str
    variable: str | None
    option: str | None
    description: str


def effective_settings() -> list[EffectiveSetting]:
    """Return all settings of `site.yaml`, then the variables without a field there, with values and origins.

    Raises:
        InputError: `site.yaml` is invalid. UsageError: a variable is.
    """
    document, values = _site_document(), site_settings().model_dump()
    values |= {"database": hide_passwords(database_place()), "var": str(var_directory())}
    for group in ("thresholds", "prices"):
        values[group] = ", ".join(f"{name} {value}" for name, value in values[group].items())
    setting_by_field = {setting.field: setting for setting in environment_settings() if setting.field}
    effective: list[EffectiveSetting] = []
    for name, field in settings_model().model_fields.items():
        setting = setting_by_field.get(name, EnvironmentSetting(""))
        # A variable has precedence over the file.
        origin = "default"
        if document and name in (document.data or {}):
            origin = document.where([name])
        if os.environ.get(setting.variable):
            origin = setting.variable
        variable = setting.variable or None
        effective.append(
            EffectiveSetting(name, values[name], origin, variable, setting.option, field.description or "")
        )
    for setting in environment_settings():
        if setting.field is None:
            name = setting.variable.removeprefix("IOWATCH_").lower()
            value = hide_passwords(os.environ.get(setting.variable, "")) or None
            origin = setting.variable if value else "default"
            effective.append(
                EffectiveSetting(name, value, origin, setting.variable, setting.option, setting.description)
            )
    return effective


def site_settings() -> SiteSettings:
    """Return the settings of the site: of `site.yaml`, with those of the environment.

    Raises:
        InputError: `site.yaml` is invalid. UsageError: a variable is.
    """
    path = site_root() / SITE_FILE
    changed = path.stat().st_mtime_ns if path.is_file() else 0
    of_environment: list[tuple[str, str]] = []
    for setting in environment_settings():
        value = os.environ.get(setting.variable)
        if setting.field and value:
            of_environment.append((setting.field, value))
    return _read_settings(path, changed, tuple(of_environment))


def stated_settings() -> SiteSettings:
    """Return the settings of `site.yaml` alone, as a process without variables of the environment has them.

    Raises:
        InputError: `site.yaml` is invalid.
    """
    document = _site_document()
    model = settings_model()
    return document.validated(model) if document and document.data is not None else model()


@cache
def _read_settings(path: Path, changed_ns: int, of_environment: tuple[tuple[str, str], ...]) -> SiteSettings:
    stated = stated_settings()
    try:
        return settings_model().model_validate({**stated.model_dump(), **dict(of_environment)})
    except ValidationError as error:
        fault = error.errors()[0]
        variable = next(row.variable for row in environment_settings() if row.field == fault["loc"][0])
        raise UsageError(f"{variable} is '{fault['input']}': {describe_fault(fault)}", hint=_HINT) from error


def capability_setting(name: str) -> str:
    """Return the setting of a capability.

    Raises:
        InputError: `site.yaml` is invalid. UsageError: a variable is.
    """
    return str(getattr(site_settings(), name))


def stated_timezone() -> str | None:
    """Return the setting `timezone` if the site states it; None if it has only the default."""
    if named := os.environ.get("IOWATCH_TIMEZONE"):
        return named
    document = _site_document()
    return site_settings().timezone if document and "timezone" in (document.data or {}) else None


def _site_document() -> YamlDocument | None:
    path = site_root() / SITE_FILE
    return YamlDocument(path, SiteSettings.docs, quote=SiteSettings.quoted) if path.is_file() else None


def var_directory() -> Path:
    """Return the directory for all files that runs write: the setting `var`, relative to the site's repository."""
    named = os.environ.get("IOWATCH_VAR")  # relative to the working directory
    return Path(named) if named else site_root() / _expand(site_settings().var)


def database_place() -> str:
    """Return the setting `database`: a path or URL, by default `iowatch.db` in `var`."""
    if named := os.environ.get("IOWATCH_DB"):
        return named
    stated = site_settings().database
    if stated is None:
        return str(var_directory() / "iowatch.db")
    return stated if "://" in stated else str(site_root() / _expand(stated))


def _expand(path: str) -> str:
    return os.path.expandvars(Path(path).expanduser())


@dataclass(frozen=True)
class Kind:
    """Files of one kind: their patterns in the product and in a site's repository; each `*` is a part of the name.

    Entries of the same name replace one another, or are read together if they are `merged`.
    """

    name: str
    product: str
    site: str
    merged: bool = False

    def pattern(self, root: Path) -> str:
        """Pattern in a directory; a clone without `site.yaml` keeps the site's files in the product's layout."""
        return self.product if _same(root, product_root()) else self.site


def _same(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve()


_ROWS = (
    Kind("system", "systems/*/system.yaml", "systems/*/system.yaml"),
    Kind("reframe", "systems/*/reframe.py", "systems/*/reframe.py"),
    Kind("externals", "systems/*/externals.yaml", "systems/*/externals.yaml"),
    Kind("notify", "systems/*/notify.yaml", "systems/*/notify.yaml"),
    Kind("stack", "systems/*/stacks/*", "systems/*/stacks/*"),
    Kind("shared_stack", "", "stacks/*"),
    Kind("suite", "benchmarks/*/suites/*.yaml", "suites/*/*.yaml"),
    Kind("workload", "benchmarks/benchio/workloads/*.yaml", "workloads/*.yaml"),
    Kind("bandwidth", "reference/bandwidth/*.yaml", "reference/bandwidth/*.yaml"),
    Kind("published", "reference/published/*/source.yaml", "reference/published/*/source.yaml"),
    Kind("map", "", "maps/*.yaml"),
    Kind("events", "reference/events/*.yaml", "events/*.yaml", merged=True),
    Kind("reviews", "reference/reviews/*.yaml", "reviews/*.yaml"),
    Kind("comparisons", "dashboards/comparisons.yaml", "comparisons.yaml"),
)
KINDS: Mapping[str, Kind] = {row.name: row for row in _ROWS}


def roots() -> list[Path]:
    """Return the directories that are searched for files, in their order: the site's, and the product's if another."""
    site, product = site_root(), product_root()
    return [site] if _same(site, product) else [site, product]


def list_files(kind: str) -> dict[tuple[str, ...], Path]:
    """Return all files of a kind by the parts of their names that stand for the `*` of its pattern, sorted.

    A file of the site replaces one of the product with the same name. Hidden names are left out.

    Args:
        kind: name of one of `KINDS`.
    """
    paths: dict[tuple[str, ...], Path] = {}
    # The product first: what the site has then replaces it.
    for root in reversed(roots()):
        pattern = KINDS[kind].pattern(root)
        # The product has no files of some kinds, for example no maps.
        if not pattern:
            continue
        expression = re.compile(re.escape(pattern).replace(r"\*", "([^/]+)"))
        for path in sorted(root.glob(pattern)):
            matched = expression.fullmatch(path.relative_to(root).as_posix())
            if matched and not any(name.startswith(".") for name in matched.groups()):
                paths[matched.groups()] = path
    return dict(sorted(paths.items()))


def all_files(kind: str, *names: str) -> list[Path]:
    """Return the paths of a file of the site and of the product, which need not exist."""
    return [root / _fill(KINDS[kind].pattern(root), names) for root in roots()]


def find_file(kind: str, *names: str) -> Path:
    """Return the path of a file, which need not exist: of the site, or of the product where the site has none."""
    paths = all_files(kind, *names)
    return next((path for path in paths if path.exists()), paths[0])


def site_file(kind: str, *names: str) -> Path:
    """Return the path of a file of the site's repository, which need not exist, to write it."""
    root = site_root()
    return root / _fill(KINDS[kind].pattern(root), names)


def _fill(pattern: str, names: tuple[str, ...]) -> str:
    """Put names into a pattern. One that would lead out of a directory is quoted as in an address.

    An older version may have stored such a name; an error would make the findings of all systems fail.
    """
    quoted = [re.sub(r"^\.|[/%\0]", lambda match: f"%{ord(match[0]):02X}", name) for name in names]
    following = iter(quoted)
    return re.sub(r"\*", lambda _: next(following), pattern)


@dataclass(frozen=True)
class OverriddenFile:
    """A file of the site that replaces a file of the product."""

    of_site: Path
    of_product: Path


def overridden_files() -> list[OverriddenFile]:
    """Return the files of the site that replace a file of the product."""
    if len(roots()) == 1:
        return []
    product = product_root()
    overridden: list[OverriddenFile] = []
    for kind in KINDS.values():
        if kind.merged:
            continue
        for names, path in list_files(kind.name).items():
            replaced = product / _fill(kind.product, names)
            if path != replaced and replaced.exists():
                overridden.append(OverriddenFile(path, replaced))
    return overridden
