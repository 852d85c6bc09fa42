"""`iowatch history check, backup, restore, copy, vacuum, prune`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from iowatch.cli import options


@click.command("check", epilog="Example: iowatch history check")
@options.database
@options.as_json
def check(db: str | None, as_json: bool) -> int:
    """Look for damage; exit code 1 where there is some."""
    from iowatch.cli.output import page, print_json
    from iowatch.store import History, care
    from iowatch.units import counted, format_size

    with History.existing(db) as history:
        found = care.check(history)
    if as_json:
        print_json(asdict(found))
    else:
        numbers = (found.sessions, found.runs, found.results)
        told = ", ".join(counted(n, w) for n, w in zip(numbers, ("session", "run", "result"), strict=True))
        judged = counted(len(found.faults), "fault") if found.faults else "no fault"
        lines = [f"{told}, {format_size(found.size_bytes)}: {judged}."]
        lines += [f"  fault: {text}" for text in found.faults] + [f"  note: {text}" for text in found.notes]
        page().print("\n".join(lines), markup=False, soft_wrap=True)
    return 1 if found.faults else 0


@click.command("backup", epilog="Example: iowatch history backup /backup/iowatch-2026-11-21.db")
@click.argument("file", type=click.Path(path_type=Path))
@options.database
def backup(file: Path, db: str | None) -> None:
    """Write the whole history into a new SQLite FILE, while others go on using it."""
    from iowatch.cli.output import messages
    from iowatch.store import History, care
    from iowatch.units import format_size

    with History.existing(db) as history:
        size = care.backup(history, file)
    messages().print(f"{file}: {format_size(size)}", markup=False, soft_wrap=True)


@click.command("restore", epilog="Example: iowatch history restore /backup/iowatch-2026-11-21.db --replace")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="SQLite: instead of what is there, which is kept beside it.")
@options.database
def restore(file: Path, replace: bool, db: str | None) -> None:
    """Put the backup FILE into the history. No run may go on meanwhile, and none can start."""
    from iowatch.cli.output import messages
    from iowatch.runner.alone import alone
    from iowatch.store import care

    with alone():
        kept = care.restore(file, db, replace)
    told = f"; what was there is kept in {kept}" if kept else ""
    messages().print(f"restored from {file}{told}", markup=False, soft_wrap=True)


@click.command("copy", epilog="Example: iowatch history copy var/iowatch.db postgresql://iowatch@db/iowatch")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@options.system()
@options.as_json
def copy(source: str, target: str, system: str | None, as_json: bool) -> None:
    """Copy what TO lacks of FROM; each is a path or a URL. Twice is the same as once."""
    from iowatch.cli.output import messages, print_json
    from iowatch.store import History
    from iowatch.store.copy import copy as copy_history
    from iowatch.units import counted

    console = messages()
    with History.existing(source) as left, History.open(target) as right:
        done = copy_history(left, right, system, lambda text: console.print(text, markup=False))
    if as_json:
        print_json(asdict(done))
    else:
        numbers = (done.runs, done.results, done.findings)
        new = ", ".join(counted(n, w) for n, w in zip(numbers, ("run", "result", "finding"), strict=True))
        console.print(f"{counted(done.sessions, 'session')} compared; new: {new}")


@click.command("vacuum", epilog="Example: iowatch history vacuum")
@options.database
def vacuum(db: str | None) -> None:
    """Give room back to the file system and refresh statistics."""
    from iowatch.cli.output import messages
    from iowatch.store import History, care
    from iowatch.units import format_size

    with History.existing(db) as history:
        before, after = care.vacuum(history)
    messages().print(f"{format_size(before)} before, {format_size(after)} after")


@click.command("prune", epilog="Example: iowatch history prune --days 400 --size 50g --dry-run")
@click.option("--days", type=click.FloatRange(min=0), help="Remove files that were kept longer ago.")
@click.option("--size", help="Then the oldest, until the rest is within this size (50g, 1t).")
@click.option(
    "--forget", is_flag=True, help="Also forget their names and SHA-256, which keeps the history small."
)
@click.option("--dry-run", is_flag=True, help="Say what would go; remove nothing.")
@options.database
@options.as_json
def prune(
    days: float | None, size: str | None, forget: bool, dry_run: bool, db: str | None, as_json: bool
) -> None:
    """Remove old outputs and Darshan logs from var/artefacts, and old sessions' ReFrame files from var/runs.

    Every result stays in the history, and so do the files on both sides of every finding. var/runs goes by
    --days only.
    """
    from iowatch import artefacts
    from iowatch.cli.output import messages, print_json
    from iowatch.runner import session
    from iowatch.store import History, care
    from iowatch.units import counted, format_size, parse_size

    if days is None and size is None:
        raise click.UsageError("say how much may stay: --days, --size, or both")
    with History.existing(db) as history:
        done = artefacts.prune(
            max_age_s=None if days is None else days * 86400,
            max_bytes=None if size is None else parse_size(size),
            protected=care.protected(history),
            rehearse=dry_run,
        )
        if forget and not dry_run:
            care.forget(history, done.removed)
    swept = [] if days is None else session.sweep(days * 86400, rehearse=dry_run)
    if as_json:
        print_json({**asdict(done), "sessions": swept})
        return
    verb = "would go" if dry_run else "removed"
    over = f"; {format_size(done.over_bytes)} above the limit belong to findings" if done.over_bytes else ""
    told = (
        f"{counted(len(done.removed), 'file')} ({format_size(done.freed_bytes)}) and the logs of "
        f"{counted(len(swept), 'session')} {verb}"
    )
    messages().print(f"{told}; {format_size(done.kept_bytes)} stay{over}", soft_wrap=True)


COMMANDS = (check, backup, restore, copy, vacuum, prune)
