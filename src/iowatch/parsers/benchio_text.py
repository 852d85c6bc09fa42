"""The tables of the original benchio: 2018 (MiB/s, repetitions) and 2024 (GiB/s, one write a line).

Time x rate must be the total to the last digit, minimum and average must be those of the rows, and the
decomposition must add up.
"""

from __future__ import annotations

import math
import re

from iowatch.model import Scalar
from iowatch.parsers.benchio_table import BACKENDS, SHAPES, STRIPINGS, Block, Table
from iowatch.parsers.draft import Draft, Evidence
from iowatch.parsers.lines import readable

_STEM = re.compile(rf"({'|'.join(BACKENDS)})\d*(?:\.dat|\.nc|\.bp)?", re.ASCII)
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)
_ELEMENT_BYTES = 8
_SUM_TOLERANCE = 1e-11

Case = dict[str, Scalar | None]


def judge(draft: Draft, table: Table, evidence: Evidence) -> None:
    """Judge a table and keep its samples."""
    if table.titles > 1 or table.ends > 1:
        draft.fail("more than one benchio wrote into this output")
        return
    if table.titles == 0:
        draft.cut("this is no output of benchio")
    if table.ends == 0:
        draft.cut("the output ends before 'Finished'")
    if table.damaged:
        draft.cut(f"{table.damaged} damaged or misplaced rows")
    case = _case(table)
    if case is None:
        draft.cut("sizes and ranks are not printed whole, or contradict each other")
        return
    if others := evidence.other_ranks(case["ranks"], "benchio"):
        draft.fail(others)
        return
    draft.facts["generation"] = "2024" if table.recent else "2018"
    for block in _recent_blocks(draft, table) if table.recent else _old_blocks(draft, table):
        _keep(draft, block, case)


def _case(table: Table) -> Case | None:
    """The parameters that all rows share, where everything printed about them agrees."""
    grid, local, whole = (table.shapes.get(name) for name in SHAPES)
    ranks, nodes = table.counts.get("proc"), table.counts.get("node")
    if table.contradicts or not (grid and local and whole and ranks and table.total_bytes):
        return None
    total = math.prod(whole) * _ELEMENT_BYTES
    agree = (
        tuple(g * n for g, n in zip(grid, local, strict=True)) == whole,
        math.prod(grid) == ranks,
        math.isclose(total, table.total_bytes, rel_tol=1e-4),
        not table.recent or (len(table.per_node) == nodes and sum(table.per_node) == ranks),
    )
    if not all(agree):
        return None
    return {
        "ranks": ranks,
        "nodes": nodes,
        "pattern": "block3d",
        "local_size": "x".join(map(str, local)),
        "global_size": "x".join(map(str, whole)),
        "total_bytes": total,
    }


def _keep(draft: Draft, block: Block, case: Case) -> None:
    directory, _, name = block.path.rpartition("/")
    stem = _STEM.fullmatch(name)
    if stem is None:
        draft.cut(f"'Writing to {readable(block.path)}' names no file of benchio")
        return
    api, layout = BACKENDS[stem[1]]
    striping = directory if directory in STRIPINGS else None
    full: Case = {**case, "api": api, "file": layout, "striping": striping}
    draft.keep("write", "bandwidth", block.rates, full)
    draft.keep("write", "time", block.times, full)


def _recent_blocks(draft: Draft, table: Table) -> list[Block]:
    """2024: one row a file, files in the order announced."""
    expected = [f"{s}/{m}" for m in table.lists.get("methods", []) for s in table.lists.get("stripings", [])]
    places = [_place(expected, block.path) for block in table.blocks]
    if not expected or -1 in places or places != sorted(set(places)):
        draft.cut("files, methods and stripings are not printed whole, or not in the order announced")
        return []
    # A row before a gap may belong to one of the files that are missing.
    last = len(expected) if table.ends else max(places, default=0) + 1
    sure = zip(table.blocks, places, [*places[1:], last][: len(places)], strict=True)
    good = [block for block, place, after in sure if len(block.times) == 1 and after == place + 1]
    if len(good) < len(expected):
        draft.cut(f"{len(good)} of {len(expected)} files were printed whole")
    return good


def _place(expected: list[str], path: str) -> int:
    return next((i for i, name in enumerate(expected) if path.startswith(name)), -1)


def _old_blocks(draft: Draft, table: Table) -> list[Block]:
    """2018: repetitions with their minimum and average; the last file may be cut off in a run that was."""
    deletes = any(block.deleted for block in table.blocks)
    directories = {block.path.rpartition("/")[0] for block in table.blocks}
    known = len(directories) == 1 or (directories <= set(STRIPINGS) and (deletes or _in_order(table.blocks)))
    good = []
    for block in table.blocks:
        where = f"of '{readable(block.path)}'"
        whole = table.ends > 0 or block is not table.blocks[-1]
        if whole and deletes and block.deleted != block.path:
            draft.cut(f"the end {where} is damaged")
        elif (
            not (known or deletes)
            or not _PLAIN.fullmatch(block.path)
            or [b.path for b in table.blocks].count(block.path) > 1
        ):
            draft.cut(f"the name {where} is damaged or doubled")
        elif not whole and not block.checks and not table.damaged:
            good.append(block)
        elif not _averages_fit(block):
            draft.cut(f"rows {where} do not agree with their minimum and average")
        else:
            good.append(block)
    if not table.blocks:
        draft.cut("no file was written")
    return good


def _in_order(blocks: list[Block]) -> bool:
    """2018's file per process writes one file a striping, in this order, and deletes none."""
    places = [STRIPINGS.index(block.path.rpartition("/")[0]) for block in blocks]
    return places == sorted(set(places))


def _averages_fit(block: Block) -> bool:
    if set(block.checks) != {"min", "avg"} or not block.times:
        return False
    n = len(block.times)
    expected = (min(block.times), max(block.rates), sum(block.times) / n, sum(block.rates) / n)
    printed = (*block.checks["min"], *block.checks["avg"])
    return all(math.isclose(e, p, rel_tol=_SUM_TOLERANCE) for e, p in zip(expected, printed, strict=True))
