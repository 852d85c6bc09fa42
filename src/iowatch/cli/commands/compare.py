"""`iowatch compare`: two stacks, two periods, two systems, a paper's tables."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache

import click

from iowatch.cli.common import cases_option, examples, history_options, print_report
from iowatch.comparison import ComparisonOptions, compare_sides, parse_side
from iowatch.core import UsageError, get_metric
from iowatch.output import comparison
from iowatch.statistics import ComparisonSettings
from iowatch.store import History

_SIDES = """
A side is stack:NAME, system:NAME, session:UUID, since:DATE..DATE, event:SYSTEM/DATE (before it on the left,
after it on the right), published:SOURCE/TABLE, or a file of `iowatch history export`; each may be narrowed by
,name=value.
"""


@click.command(epilog=examples("iowatch compare stack:netcdf-4.3.3.1 stack:netcdf-4.4.0,operation=write"))
@click.argument("left")
@click.argument("right", required=False)
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME",
    help="Metric (may be repeated) [default: the monitored metric of each case].",
)  # fmt: skip
@cases_option
@click.option(
    "--ignore", "ignored", multiple=True, metavar="NAME", help="Parameter or axis to pair across (may be repeated)."
)
@click.option(
    "--difference", type=click.FloatRange(0.1, 1000), default=10, show_default=True, metavar="PERCENT",
    help="Smallest difference to detect; `more runs` is computed for it.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(min=1), default=28, show_default=True, help="Days before and after an event."
)
@click.option(
    "--last", type=click.IntRange(min=1), default=100, show_default=True,
    help="Number of newest sessions of each case to use.",
)  # fmt: skip
@click.option("--samples", is_flag=True, help="Also print n, max, median, mean and min of each side.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Markdown for a ticket.")
@history_options
def command(
    left: str,
    right: str | None,
    metrics: tuple[str, ...],
    cases: tuple[str, ...],
    ignored: tuple[str, ...],
    difference: float,
    days: int,
    last: int,
    samples: bool,
    as_markdown: bool,
    db: str | None,
    as_json: bool,
) -> None:
    left_side, right_side = parse_side(left), parse_side(right or left)
    if right is None and left_side.kind != "event":
        raise UsageError("compare needs two sides", hint="Only event:SYSTEM/DATE is used without a second side.")
    metric_names = tuple(get_metric(name).name for name in metrics)
    options = ComparisonOptions(
        metric_names, ignored, days, last, ComparisonSettings(difference=difference / 100), cases
    )
    with ExitStack() as stack:
        # Files and papers need no history.
        open_history = cache(lambda: stack.enter_context(History.existing(db)))
        outcome = compare_sides(left_side, right_side, open_history, options)
    if as_markdown and not as_json:
        click.echo(comparison.comparison_markdown(outcome), nl=False)
        return
    document = comparison.comparison_document(outcome)
    print_report(as_json, document, lambda console: comparison.print_comparison(outcome, console, samples))


command.help = f"""Compare the same cases on two sides and report where RIGHT is faster or slower than LEFT.
{_SIDES.rstrip()}

Ratios are right / left; the intervals account for dependent samples within a session; the verdicts are
corrected for the number of cases (docs/comparison.md).
"""
