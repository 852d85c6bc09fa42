"""What halving and doubling each constant of the detection does, on small, fixed data.

    python bench/statistics/constants.py list [PATTERN]
        the constants, and the tables that score them
    python bench/statistics/constants.py run RESULTS [PATTERN] [--seconds 200]
        score the constants whose name contains PATTERN with half and with double their value; those in RESULTS are done
        already. Ends after some seconds, and continues with the next call.
    python bench/statistics/constants.py table RESULTS
        the results as a table of docs/detection-scores.md, those without any effect first
    python bench/statistics/constants.py score TABLES
        the scores of tables (with commas between them) with the code as it is

A constant is a number, or an element of a tuple of numbers, that a module of `MODULES` assigns to an upper-case name,
or a setting of the detector. A trial multiplies it in the source while the module is imported, so that whatever is
computed from it changes as well. Counts are rounded down; a share above a half goes half of the way to 1 instead of
beyond it. Later tables are left out once one has changed: they are needed only to find what has no effect at all.

Tables (`TABLES`): `series`, `online`: a part of tests/data/changes.tar.xz; `year`: changes in the year of Edison;
`steps`: staircases and controls of staircases.py; `panels`: a part of tests/data/panels.tar.xz, the newest sessions
alone; `patterns`: patterns.py; `moving`: worlds.py; `chart`: losses in a world; `findings`: the year of Edison at once.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# For `tests`, and for the modules beside this file.
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from tests.datasets import unpacked  # noqa: E402

STEPS = ("series", "year", "steps", "online")
NEWEST = ("panels", "findings")
MODULES: Mapping[str, tuple[str, ...]] = {
    "iowatch.statistics.constants": ("patterns", "moving", "chart"),
    "iowatch.statistics.method": STEPS,
    "iowatch.statistics.steps": STEPS,
    "iowatch.statistics.detection": ("findings",),
    "iowatch.statistics.patterns": ("patterns", "findings"),
    "iowatch.statistics.wandering": ("moving",),
    "iowatch.statistics.moving_level": ("moving",),
    "iowatch.statistics.control_chart": ("chart", "findings"),
    "iowatch.statistics.panel": NEWEST,
    "iowatch.statistics.panel_candidates": NEWEST,
    "iowatch.statistics.panel_models": NEWEST,
    "iowatch.statistics.panel_table": NEWEST,
    "iowatch.findings.finding": ("findings",),
    "iowatch.findings.grouping": ("findings",),
    "iowatch.findings.losses": ("findings",),
    "iowatch.findings.moving_levels": ("findings",),
    "iowatch.findings.newest": ("findings",),
    "iowatch.findings.patterns": ("findings",),
    "iowatch.findings.resolution": ("findings",),
    "iowatch.findings.series": ("findings",),
    "iowatch.findings.spells": ("findings",),
    "iowatch.findings.state": ("findings",),
    "iowatch.findings.trends": ("findings",),
}
"""Modules with constants of the detection, and the tables that score them, in this order."""

SETTINGS = "DetectorSettings"
NATURE = ("DAY_S", "MAD_TO_SD")
"""Constants that nobody chose."""
FACTORS = (0.5, 2.0)


@dataclass(frozen=True)
class Constant:
    """One number in the source of a module.

    Attributes:
        module, name: `name` has the position in square brackets if it is an element.
        text: its source.
    """

    module: str
    name: str
    text: str

    @property
    def full_name(self) -> str:
        """With the last part of the module."""
        return f"{self.module.rpartition('.')[2]}.{self.name}"


# The source


def assigned_values(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of the constants of a module, and of the settings of the detector."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef) and statement.name == SETTINGS:
            for field in statement.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None:
                    yield f"{SETTINGS}.{field.target.id}", field.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value
        elif isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Name):
                yield target.id, value
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for name, element in zip(target.elts, value.elts, strict=True):
                    if isinstance(name, ast.Name):
                        yield name.id, element


def number_nodes(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The numbers that a value consists of, with their names: those of tuples, records and dictionaries one by one."""
    if isinstance(value, ast.Tuple):
        for position, element in enumerate(value.elts):
            yield from number_nodes(f"{name}[{position}]", element)
    elif isinstance(value, ast.Dict):
        for key, element in zip(value.keys, value.values, strict=True):
            if key is not None:
                yield from number_nodes(f"{name}[{ast.unparse(key)}]", element)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id.strip("_")[:1].isupper():
        for position, element in enumerate(value.args):
            yield from number_nodes(f"{name}[{position}]", element)
        for keyword in value.keywords:
            yield from number_nodes(f"{name}.{keyword.arg}", keyword.value)
    elif isinstance(value, ast.BinOp) and isinstance(value.left, ast.Tuple):
        yield from number_nodes(name, value.left)
    elif _has_number(value):
        yield name, value


def _has_number(value: ast.expr) -> bool:
    """Whether an expression has a number, which is not a position in something."""
    for node in ast.walk(value):
        if isinstance(node, ast.Lambda | ast.Subscript | ast.JoinedStr):
            return False
    numbers = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
    return any(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)


def source_of(module: str) -> str:
    """Source of a module of the package."""
    return (ROOT / "src" / (module.replace(".", "/") + ".py")).read_text()


def list_constants(pattern: str = "") -> list[Constant]:
    """All constants whose full name contains a pattern."""
    constants: list[Constant] = []
    for module in MODULES:
        for name, value in assigned_values(ast.parse(source_of(module))):
            last = name.rpartition(".")[2]
            is_constant = last.isupper() and name not in NATURE
            if not is_constant and not name.startswith(SETTINGS):
                continue
            for element_name, node in number_nodes(name, value):
                constants.append(Constant(module, element_name, ast.unparse(node)))
    return [constant for constant in constants if pattern in constant.full_name]


def scaled(value: Any, factor: float) -> Any:
    """A number, or an array, with a factor."""
    if isinstance(value, int):
        return int(value * factor)
    if isinstance(value, float) and 0.5 < value < 1 and factor > 1:
        return (1 + value) / 2
    return value * factor


class ScaledLoader(SourceFileLoader):
    """Loads a module with one of its constants scaled."""

    constant: str
    factor: float

    def get_code(self, fullname: str) -> CodeType:
        """Code of the changed source; never from the cache."""
        tree = ast.parse(self.get_data(self.path))
        for name, value in assigned_values(tree):
            for element_name, node in number_nodes(name, value):
                if element_name == self.constant:
                    _scale_node(tree, node, self.factor)
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


def _scale_node(tree: ast.Module, node: ast.expr, factor: float) -> None:
    """Replace a number in a tree by a call of `scaled`, which the importing process has as a built-in name."""

    class Replacement(ast.NodeTransformer):
        def visit(self, visited: ast.AST) -> Any:
            if visited is node:
                return ast.parse(f"__scaled__({ast.unparse(node)}, {factor})", mode="eval").body
            return self.generic_visit(visited)

    Replacement().visit(tree)


class ScaledFinder(MetaPathFinder):
    """Finds the module that has the scaled constant."""

    def __init__(self, module: str, constant: str, factor: float) -> None:
        self.module, self.constant, self.factor = module, constant, factor

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of the module, with the loader that scales."""
        if fullname != self.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:
            raise SystemExit(f"module {fullname} has no source")
        loader = ScaledLoader(fullname, spec.origin)
        loader.constant, loader.factor = self.constant, self.factor
        spec.loader = loader
        return spec


# Tables: figures by name. Whatever a constant changes must show in them, also where it is too small for the scores.


def score_series() -> dict[str, float]:
    """Scores of the whole series of the development set."""
    import detect

    scorer = detect.load_scorer()
    cases = json.loads((detect.DATA / "cases_shown.json").read_text())
    truth = json.loads((detect.DATA / "truth_shown.json").read_text())
    scores = scorer.score(truth, detect._detect(cases))
    names = ("f1", "precision", "recall", "recall_detectable", "fa_per_series_year", "temp_flagged")
    figures = {name: scores[name] for name in names}
    figures["drift_reports"] = scores["drift_reports_per_series"]
    return figures


def score_online() -> dict[str, float]:
    """Scores of every eighth series of the development set that is assessed at every prefix."""
    import detect

    scorer = detect.load_scorer()
    truth = json.loads((detect.DATA / "truth_online_shown.json").read_text())
    part = {name: truth[name] for name in sorted(truth)[::8]}
    online = json.loads((detect.DATA / "online_shown.json").read_text())
    online["cases"] = [case for case in online["cases"] if case["id"] in part]
    scores = scorer.online(part, detect._detect(scorer.expand(online, part)))
    names = ("delay_median", "never", "online_fa_per_series_year")
    return {name: scores[name] for name in names}


def score_year() -> dict[str, float]:
    """Counts of the year of Edison, and sums that show a change of any date, size or confidence."""
    import detect_edison

    counts: dict[str, float] = dict.fromkeys(("changes", "suspected", "transients", "drifts", "dates", "confidence"), 0)
    for series in detect_edison.year():
        for name in ("changes", "suspected", "transients", "drifts"):
            counts[name] += len(getattr(series.found, name))
        counts["dates"] += sum(step.index for step in series.found.steps)
        counts["confidence"] += sum(step.confidence for step in series.found.steps)
    return counts


def score_steps() -> dict[str, float]:
    """Staircases found, steps beside short ends, and false changes of controls."""
    import numpy as np
    import staircases

    hits = steps = 0.0
    for shape in staircases.SHAPES:
        for length in (4, 5, 8, 13):
            for size in (4.0, 6.0, 12.0):
                hits += float(staircases.found_staircases(shape, length, size, 1))
                steps += 1
    figures = {"staircases": hits / steps}
    ends = [float(staircases.found_doublings(lengths, 0.03, 5)) for lengths in ((4, 40), (40, 4), (40, 7))]
    figures["short ends"] = sum(ends)
    rng = np.random.default_rng(68)
    for name, draw in staircases.CONTROLS.items():
        drawn, dates = [], []
        for size in (4.0, 8.0):
            for _ in range(8):
                logs, date = draw(rng, size)
                drawn.append(0.03 * logs)
                dates.append(date)
        figures[name] = staircases.per_hundred(staircases.detected_steps(drawn), dates)
    return figures


def score_panels() -> dict[str, float]:
    """Reports, false reports and probabilities of the newest sessions of five panels, on four mornings each."""
    import numpy as np

    from iowatch.findings import CASE_PARAMETERS
    from iowatch.statistics.panel import assess_panel
    from iowatch.statistics.panel_table import PanelSeries

    folder = unpacked("panels")
    truth = json.loads((folder / "truth.json").read_text())
    figures: dict[str, float] = dict.fromkeys(
        ("reported", "false", "open", "members", "real", "lasting", "unusual", "similar", "measured"), 0
    )
    for number, name in enumerate(sorted(truth)[: 5 * 4 : 4]):
        panel = json.loads((folder / "panels" / f"{name}.json").read_text())
        first_night = truth[name].get("first_night") or 0
        reported: list[tuple[int, Any]] = []
        mornings = panel["mornings"]
        for moment in [mornings[position] for position in (3, 4, 6, 10) if position < len(mornings)]:
            series = []
            for observed in panel["series"]:
                points = [point for point in observed["points"] if point[0] <= moment]
                times, values = np.array([time for time, _ in points]), np.array([value for _, value in points])
                series.append(PanelSeries(times, np.log(values), observed["case"]))
            # Every other system has had events, so that they correct the base rate.
            report = assess_panel(series, reported, 3 * (number % 2), number % 2, vocabulary=CASE_PARAMETERS)
            reported = []
            figures["unusual"] += len(report.unusual)
            figures["measured"] += report.measured
            for event in report.events:
                reported += [(event.first_after, group.direction) for group in event.groups]
                is_planted = abs(event.first_after - first_night) <= 2.5 * 86400
                figures["reported" if is_planted else "false"] += 1
                figures["open"] += event.is_open
                figures["members"] += sum(len(group.members) for group in event.groups)
                figures["real"] += event.probability_real
                figures["lasting"] += sum(group.probability_lasting for group in event.groups)
                figures["similar"] += event.similar + 0.001 * event.over_next
    return figures


def score_patterns() -> dict[str, float]:
    """Planted patterns found, their dates, and reports in noise."""
    import math

    import numpy as np
    import patterns

    figures: dict[str, float] = {}
    finders: dict[str, tuple[Callable[..., Any], list[tuple[Any, int]]]] = {
        "noise": (patterns.find_noise_increase, [(patterns.more_noise(size), 30) for size in (3.0, 5.0, 10.0)]),
        "alternating": (
            patterns.find_alternation,
            [
                (patterns.bad_sessions(0.5, 0.3), 15),
                (patterns.bad_sessions(0.33, 0.3), 30),
                (patterns.bad_sessions(0.2, 0.6), 60),
                (patterns.bad_sessions(0.9, 0.5), 60),
            ],
        ),
    }
    for name, (find, plants) in finders.items():
        hits = dates = chances = 0.0
        for plant, since in plants:
            for seed in range(40):
                stream = np.random.default_rng([66, seed])
                noise = patterns.draw_noise(stream, patterns.BEFORE + since)
                pattern = find(plant(stream, noise))
                if pattern is not None:
                    hits += 1
                    dates += pattern.index
                    chances += math.log10(max(pattern.chance, 1e-300))
        reports, mornings = patterns.count_reports(find, True, 4)
        figures |= {f"{name} found": hits, f"{name} dates": dates, f"{name} chance": chances}
        figures |= {f"{name} in noise": reports, f"{name} mornings": mornings}
    return figures


def score_moving() -> dict[str, float]:
    """Steps that the movement of a level explains, by world, and its size and probability."""
    import math

    import numpy as np
    import worlds

    cases = worlds.make_cases()
    members: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        members.setdefault(case.file_system, []).append(number)
    figures: dict[str, float] = {}
    for world in ("common", "wander"):
        explained = usual = probability = sessions = 0.0
        for seed in range(1000, 1003):
            logs = np.log(worlds.make_world(world, seed, 300, cases)).T
            stream = np.random.default_rng(seed)
            for size in (1.0, 0.97, 0.92):
                changed = members["scratch1"][:6]
                night = int(stream.integers(40, 290))
                stepped = logs.copy()
                stepped[changed, night:] += math.log(size)
                movement = worlds.assess_shift(stepped[changed], [stepped[m] for m in members.values()], night)
                if movement is not None:
                    explained += 1
                    usual += movement.usual
                    probability += movement.probability
                    sessions += movement.sessions
        figures |= {f"{world} explained": explained, f"{world} size": usual, f"{world} probability": probability}
        figures[f"{world} sessions"] = sessions
    return figures


def score_chart() -> dict[str, float]:
    """Messages of the control chart in a world, and falls that it reports on their first and fourth night."""
    import math

    import cost
    import numpy as np
    import worlds

    cases = worlds.make_cases()
    logs = np.log(worlds.make_world("own", 5, 200, cases))
    groups = [case.file_system for case in cases]
    begun = cost.messages_of_chart(logs, groups, 0.2)
    figures = {"messages": float(begun.sum()), "first night": 0.0, "fourth night": 0.0}
    stream = np.random.default_rng(5)
    for factor in (0.8, 0.8, 0.6, 0.3):
        night = int(stream.integers(60, 190))
        for members in (
            [int(stream.integers(len(cases)))],
            [n for n, group in enumerate(groups) if group == "scratch1"],
        ):
            fallen = logs[: night + 4].copy()
            fallen[night:, members] += math.log(factor)
            more = cost.messages_of_chart(fallen, groups, 0.2)[night:] > begun[night : night + 4]
            figures["first night"] += bool(more[0])
            figures["fourth night"] += bool(more.any())
    return figures


def record_year(database: Path) -> None:
    """Record the year of Edison in a history."""
    from detect_edison import DATA

    from iowatch.session.imports import import_files
    from iowatch.store import History

    # Under another name until it is complete: a process that ended before would leave a part of the year.
    incomplete = database.with_suffix(f".{os.getpid()}")
    with History.open(str(incomplete)) as history:
        import_files(history, "tokio", [DATA], system="edison")
    incomplete.replace(database)


def score_findings() -> dict[str, float]:
    """Findings of the year of Edison, whose mornings were not assessed before."""
    from datetime import UTC, datetime

    from iowatch.findings import update_findings
    from iowatch.store import History

    figures: dict[str, float] = dict.fromkeys(
        ("findings", "members", "dates", "sizes", "open", "resolved", "compared"), 0.0
    )
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "history.db"
        shutil.copy(YEAR, database)
        with History.open(str(database)) as history:
            for finding in update_findings(history, "edison", datetime(2018, 3, 1, tzinfo=UTC)):
                figures["findings"] += 1
                figures["members"] += len(finding.members)
                figures["dates"] += finding.first_after / 86400 % 1000
                figures["sizes"] += finding.size
                figures["open"] += finding.state == "open"
                figures["resolved"] += finding.resolution is not None
                figures["compared"] += len(finding.compared)
    return figures


YEAR = Path(tempfile.gettempdir()) / "iowatch-constants-edison.db"
"""History of the year of Edison that the trials copy."""

TABLES: Mapping[str, Callable[[], dict[str, float]]] = {
    "series": score_series,
    "online": score_online,
    "year": score_year,
    "steps": score_steps,
    "panels": score_panels,
    "patterns": score_patterns,
    "moving": score_moving,
    "chart": score_chart,
    "findings": score_findings,
}


# Trials


def run_trial(
    path: Path, tables: Sequence[str], constant: Constant | None = None, factor: float = 1.0
) -> dict[str, dict[str, float]]:
    """Scores of some tables in a process of its own; the error in place of those of a table that cannot be scored.

    Args:
        path: results, with the scores of the code as it is.
    """
    base = base_of(read_results(path))
    # A forked process has imported what does not change, and nothing of iowatch.
    with get_context("fork").Pool(1) as pool:
        return pool.apply(score_tables, (base, tables, constant, factor))


def score_tables(
    base: Mapping[str, Mapping[str, float]], tables: Sequence[str], constant: Constant | None, factor: float
) -> dict[str, dict[str, float]]:
    """Score tables with one constant scaled, up to the first that differs from the scores of the code as it is."""
    if constant is not None:
        builtins.__scaled__ = scaled  # type: ignore[attr-defined]
        sys.meta_path.insert(0, ScaledFinder(constant.module, constant.name, factor))
    scores: dict[str, dict[str, float]] = {}
    for table in tables:
        try:
            figures = TABLES[table]()
        except Exception as error:
            # Whatever a nonsensical constant causes is its effect; without one it is a fault of this script.
            if constant is None and not base:
                raise
            return {table: {f"error: {type(error).__name__}": 1.0}}
        scores[table] = {figure: round(float(value or 0), 4) for figure, value in figures.items()}
        if table in base and scores[table] != base[table]:
            break
    return scores


def read_results(path: Path) -> dict[str, Any]:
    """Results by name of the constant and factor; those of the code as it is are under ``."""
    results: dict[str, Any] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            document = json.loads(line)
            results[document["name"]] = document["scores"]
    return results


def run(path: Path, pattern: str, seconds: float) -> None:
    """Score constants until the time is over."""
    end = time.monotonic() + seconds
    for library in ("numpy", "scipy.special", "pydantic", "sqlalchemy"):
        import_module(library)
    # Unpacked once, and not by every trial.
    for data in ("changes", "panels"):
        unpacked(data)
    for constant in list_constants(pattern):
        for factor in FACTORS:
            results = read_results(path)
            name = f"{constant.full_name} x{factor:g}"
            if name in results:
                continue
            # What is begun is finished.
            if time.monotonic() > end:
                print("not complete")
                return
            tables = MODULES[constant.module]
            if "findings" in tables and not YEAR.exists():
                with get_context("fork").Pool(1) as pool:
                    pool.apply(record_year, (YEAR,))
            for table in tables:
                if f"as it is {table}" not in results:
                    append(path, f"as it is {table}", score_as_it_is(path, table))
            append(path, name, run_trial(path, tables, constant, factor))
    print("complete")


def score_as_it_is(path: Path, table: str) -> dict[str, dict[str, float]]:
    """Scores of the code as it is.

    Raises:
        SystemExit: the table cannot be scored.
    """
    scores = run_trial(path, [table])
    if any(figure.startswith("error") for figure in scores[table]):
        raise SystemExit(f"{table}: {', '.join(scores[table])}; `score {table}` shows where")
    return scores


def append(path: Path, name: str, scores: Mapping[str, Any]) -> None:
    """Add a result to a file."""
    with path.open("a") as stream:
        stream.write(json.dumps({"name": name, "scores": scores}) + "\n")


def base_of(results: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Scores of the code as it is, by table."""
    base: dict[str, dict[str, float]] = {}
    for name, scores in results.items():
        if name.startswith("as it is "):
            base |= scores
    return base


def print_table(path: Path) -> None:
    """One line per constant: its value, and what changes with half and with double of it."""
    results = read_results(path)
    base = base_of(results)
    rows: list[tuple[bool, str]] = []
    for constant in list_constants():
        effects: list[str] = []
        for factor in FACTORS:
            scores = results.get(f"{constant.full_name} x{factor:g}")
            effects.append("not tried" if scores is None else describe(scores, base))
        has_effect = effects != ["none", "none"]
        rows.append((has_effect, f"| `{constant.full_name}` | {constant.text} | {effects[0]} | {effects[1]} |"))
    print("| constant | value | half | double |\n|---|---|---|---|")
    for _, line in sorted(rows, key=lambda row: row[0]):
        print(line)
    print(f"{len(rows)} constants, {sum(not has_effect for has_effect, _ in rows)} without any effect")


def describe(scores: Mapping[str, Mapping[str, float]], base: Mapping[str, Mapping[str, float]]) -> str:
    """The figures that differ in the first table that differs, at most three."""
    for table, figures in scores.items():
        usual = base.get(table, {})
        changed = [name for name, value in figures.items() if usual.get(name) != value]
        if changed and changed[0].startswith("error"):
            return changed[0].removeprefix("error: ")
        if changed:
            parts = [f"{name} {usual.get(name, 0):g} → {figures[name]:g}" for name in changed[:3]]
            return f"{table}: {', '.join(parts)}"
    return "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list")
    listing.add_argument("pattern", nargs="?", default="")
    running = commands.add_parser("run")
    running.add_argument("results", type=Path)
    running.add_argument("pattern", nargs="?", default="")
    running.add_argument("--seconds", type=float, default=200)
    table = commands.add_parser("table")
    table.add_argument("results", type=Path)
    score = commands.add_parser("score")
    score.add_argument("tables", type=lambda text: text.split(","))
    options = parser.parse_args()
    if options.command == "list":
        for constant in list_constants(options.pattern):
            print(f"{constant.full_name:60} {constant.text:30} {', '.join(MODULES[constant.module])}")
    elif options.command == "run":
        run(options.results, options.pattern, options.seconds)
    elif options.command == "table":
        print_table(options.results)
    else:
        print(json.dumps(score_tables({}, options.tables, None, 1.0), indent=4))


if __name__ == "__main__":
    main()
