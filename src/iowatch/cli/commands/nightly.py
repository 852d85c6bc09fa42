"""`iowatch nightly`: one nightly session; replaces itself by the script that schedulers and clones also call."""

from __future__ import annotations

import os
import sys

import click

from iowatch.cli.common import examples
from iowatch.core import settings


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog=examples("iowatch nightly --system local --suite nightly"),
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing if the night is in order, else everything (cron).")
@click.pass_context
def command(context: click.Context, quiet: bool) -> None:
    """Run a nightly session, build the dashboard and send notices. For schedulers; takes the options of `iowatch run`.

    Exit codes are those of `iowatch run`. Away from a terminal the output is also written to
    `log/nightly-<day>.log` in the setting `var`.
    """
    chosen = settings.site_settings()
    variables = {
        "IOWATCH_NIGHTLY_PYTHON": sys.executable,
        "IOWATCH_SITE": str(settings.site_root()),
        "IOWATCH_VAR": str(settings.var_directory().absolute()),
        "IOWATCH_DB": settings.database_place(),
        "IOWATCH_KEEP_DAYS": "" if chosen.keep_days is None else f"{chosen.keep_days:g}",
        "IOWATCH_KEEP_SIZE": chosen.keep_size or "",
    }
    settings.site_root().mkdir(parents=True, exist_ok=True)
    script = str(settings.product_root() / "ci" / "nightly")
    words = ["bash", script, *context.args]
    if quiet:
        words.append("--quiet")
    os.execvpe("bash", words, {**os.environ, **variables})  # noqa: S606  # nosec B606
