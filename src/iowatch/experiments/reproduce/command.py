"""`iowatch reproduce`: a finding or an A/B session measured again."""

from __future__ import annotations

from pathlib import Path

import click

from iowatch.cli import common
from iowatch.experiments.reproduce import report
from iowatch.experiments.reproduce.run import reproduce
from iowatch.store import History


@click.command(epilog=common.examples("iowatch reproduce local-20261123-down"))
@click.argument("what", metavar="ID|SESSION")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), default=15.0, show_default=True, help="End in this time."
)
@click.option("--seed", type=int, help="Seed of the execution order [default: random].")
@click.option("--scratch", type=common.ANY_PATH, help="Directory to write in [default: as recorded, or the system's].")
@common.history_options
def command(what: str, minutes: float, seed: int | None, scratch: Path | None, db: str | None, as_json: bool) -> int:
    """Measure both sides of a finding, or of a session of `run --ab` or `gate`, again from what was recorded.

    Exit code 0: reproduced. 1: not reproduced. 2: it cannot be measured again, with what is missing. 4: undecided.
    """
    with History.existing(db) as history:
        reproduction = reproduce(history, what, budget_s=60 * minutes, scratch=scratch, seed=seed)
    if as_json:
        common.print_json(report.reproduction_document(reproduction))
    else:
        common.print_lines(*report.reproduction_lines(reproduction))
    return {"reproduced": 0, "not reproduced": 1, "undecided": 4}[reproduction.answer]
