"""`iowatch compare`: two stacks, two periods, two systems, a paper's tables."""

from __future__ import annotations

import click

from iowatch.cli import options

_SIDES = """
A side is stack:NAME, system:NAME, session:UUID, since:DATE..DATE, event:SYSTEM/DATE (before it on the left,
after it on the right), published:SOURCE/TABLE, or a file of `iowatch history export`; each may be narrowed by
,name=value.
"""


@click.command(
    short_help="Two stacks, periods, systems or published tables: ratios with confidence intervals.",
    epilog="Example: iowatch compare stack:netcdf-4.3.3.1 stack:netcdf-4.4.0,operation=write",
)
@click.argument("left")
@click.argument("right", required=False)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Metric (may be repeated) [default: of each case the one that is watched].",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="NAME",
    help="Parameter or axis to pair across (may be repeated).",
)
@click.option(
    "--difference", type=click.FloatRange(0.1, 1000), default=10, show_default=True, metavar="PERCENT",
    help="Difference that should not be missed: `more runs` is about it.",
)  # fmt: skip
@click.option(
    "--days", type=click.IntRange(min=1), default=28, show_default=True, help="Days before and after an event."
)
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Newest runs of each case to use.",
)
@click.option("--samples", is_flag=True, help="Also n, max, median, mean and min of each side.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Markdown for a ticket.")
@options.database
@options.as_json
def command(
    left: str,
    right: str | None,
    metrics: tuple[str, ...],
    ignored: tuple[str, ...],
    difference: float,
    days: int,
    last: int,
    samples: bool,
    as_markdown: bool,
    db: str | None,
    as_json: bool,
) -> None:
    from contextlib import ExitStack
    from functools import cache

    from iowatch.cli.output import page, print_json
    from iowatch.compare import Settings
    from iowatch.errors import UsageError
    from iowatch.metrics import metric
    from iowatch.report import comparison as report
    from iowatch.sides import Options, compare_sides, parse_spec
    from iowatch.store import History

    specs = parse_spec(left), parse_spec(right or left)
    if right is None and specs[0].kind != "event":
        raise UsageError(
            "compare needs two sides", hint="Only event:SYSTEM/DATE stands alone: before against after."
        )
    wanted = tuple(metric(name).name for name in metrics)
    chosen = Options(wanted, ignored, days, last, Settings(difference=difference / 100))
    with ExitStack() as stack:
        opened = cache(lambda: stack.enter_context(History.existing(db)))
        outcome = compare_sides(*specs, opened, chosen)
    if as_json:
        print_json(report.document(outcome))
    elif as_markdown:
        click.echo(report.markdown(outcome), nl=False)
    else:
        report.print_comparison(outcome, page(), samples)


command.help = f"""Compare the same cases on two sides and say where RIGHT is faster or slower than LEFT.

Ratios are right / left; intervals respect that samples of one night are not independent; verdicts are
corrected for the number of cases (docs/comparison.md).
{_SIDES}"""
