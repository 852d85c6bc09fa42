"""`iowatch nightly`: one nightly session, by the script that schedulers and clones also call; or its supervision."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from iowatch.cli.common import database_option, examples, json_option, print_json, print_lines, system_option
from iowatch.core import UsageError, format_count, format_local_time, settings, utc_now

_HOUR_S = 3600
# As `overdue_hours` of notify.yaml, for systems without one.
_DEFAULT_HOURS = 26.0


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog=examples("iowatch nightly --system local --suite nightly", "iowatch nightly --check --system local"),
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing if the night is in order, else everything (cron).")
@click.option("--check", is_flag=True, help="Measure nothing: whether the last session in order is new enough.")
@click.option(
    "--hours", type=click.FloatRange(min=0, min_open=True), metavar="N",
    help="With --check: its highest age [default: overdue_hours of notify.yaml, or 26].",
)  # fmt: skip
@system_option()
@database_option
@json_option
@click.pass_context
def command(context: click.Context, /, quiet: bool, check: bool, hours: float | None, **given: Any) -> int:
    """Run a nightly session, build the dashboard and send notices. For schedulers; takes the options of `iowatch run`.

    Exit codes are those of `iowatch run`. Away from a terminal the output is also written to
    `log/nightly-<day>.log` in the setting `var`.

    --check is for a second scheduler, on a host that still works when the first one does not: exit code 1 if no session
    of a system was in order for so long.
    """
    if check:
        if context.args:
            raise UsageError(f"--check measures nothing: leave {' '.join(context.args)} out")
        return _check_age(given["system"], hours, given["db"], given["as_json"])
    if hours is not None:
        raise UsageError("--hours is for --check")
    words = [*context.args]
    for option, value in (("--system", given["system"]), ("--db", given["db"])):
        if value is not None:
            words += [option, value]
    if given["as_json"]:
        words.append("--json")
    if quiet:
        words.append("--quiet")
    _replace_by_script(words)
    return 0


def _replace_by_script(words: list[str]) -> None:
    """Replace this process by `ci/nightly` with these words."""
    site = settings.site_settings()
    variables = {
        "IOWATCH_NIGHTLY_PYTHON": sys.executable,
        "IOWATCH_SITE": str(settings.site_root()),
        "IOWATCH_VAR": str(settings.var_directory().absolute()),
        "IOWATCH_DB": settings.database_place(),
        "IOWATCH_KEEP_DAYS": "" if site.keep_days is None else f"{site.keep_days:g}",
        "IOWATCH_KEEP_SIZE": site.keep_size or "",
    }
    settings.site_root().mkdir(parents=True, exist_ok=True)
    script = str(settings.product_root() / "ci" / "nightly")
    os.execvpe("bash", ["bash", script, *words], {**os.environ, **variables})  # noqa: S606  # nosec B606


def _check_age(system: str | None, hours: float | None, database: str | None, as_json: bool) -> int:
    """Print the age of the last session in order of each system; exit code 1 if one is too old."""
    # Imported here: a nightly session needs none of it.
    from iowatch.session.last_sessions import last_in_order, own_sessions
    from iowatch.site import system_zone
    from iowatch.store import History

    now_s = utc_now().timestamp()
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    with History.existing(database) as history:
        systems = [system] if system else [name for name in history.systems() if any(own_sessions(history, name))]
        for name in systems:
            limit = hours if hours is not None else _overdue_hours(name)
            last = last_in_order(history, name)
            age_hours = None
            text = f"{name}: no session was ever in order"
            if last.session is not None:
                end_s = last.session.ended_at or last.session.started_at
                age_hours = (now_s - end_s) / _HOUR_S
                when = format_local_time(end_s, system_zone(name))
                text = f"{name}: the last session in order ended {age_hours:.0f} h ago ({when}, {last.session.suite})"
            if last.later:
                text += f"; {format_count(last.later, 'session')} after it had failed or missing runs, or problems"
            is_late = age_hours is None or age_hours > limit
            if is_late:
                text += f" – OVERDUE, expected within {limit:g} hours"
            lines.append(text)
            documents.append({"system": name, "age_hours": age_hours, "limit_hours": limit, "overdue": is_late})
    if not systems:
        lines.append("no system has sessions of its own")
    if as_json:
        print_json({"systems": documents})
    else:
        print_lines(*lines)
    # Without any system nothing is supervised.
    return 1 if not systems or any(document["overdue"] for document in documents) else 0


def _overdue_hours(system: str) -> float:
    """The limit of the notices of a system; a damaged or absent notify.yaml must not end the supervision."""
    from iowatch.core import IowatchError
    from iowatch.output.notice_channels import load_notify_settings

    try:
        notify = load_notify_settings(system)
    except IowatchError:
        notify = None
    return _DEFAULT_HOURS if notify is None else notify.overdue_hours
