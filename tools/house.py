"""Sizes of the source: files, lines, imports, functions, names (docs/architecture.md quotes them).

    .venv/bin/python tools/house.py [DIRECTORY]

DIRECTORY is a package, by default src/iowatch; any other, such as an installed ReFrame, gives figures to compare with.
Lines of code are lines without blank ones, comments and docstrings. An internal import is one `import` statement, at
any depth of the file, that names a module of the package. Complexity is McCabe's number
as the mccabe package counts it: branches, loops, handlers and comprehensions.
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.comprehension)
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, text and syntax tree."""

    name: str
    text: str
    tree: ast.Module


def read_package(package: Path) -> dict[str, Module]:
    """All modules of a package by dotted name."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        name = ".".join((package.name, *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, text, ast.parse(text))
    return modules


def docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node, clean=False):
            lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def code_lines(module: Module) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(module.tree))


def internal_imports(module: Module, modules: dict[str, Module]) -> list[set[str]]:
    """For each import statement that names the package: the modules that it names."""
    package = module.name.split(".")[0]
    found = []
    for node in ast.walk(module.tree):
        names: set[str] = set()
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names if alias.name.split(".")[0] == package}
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == package):
            base = node.module or ""
            if node.level:
                parents = module.name.split(".")
                base = ".".join([*parents[: len(parents) - node.level], *filter(None, [node.module])]) or package
            full = {f"{base}.{alias.name}" for alias in node.names}
            names = {name if name in modules else base for name in full}
        if names:
            found.append(names)
    return found


def complexity(function: ast.AST) -> int:
    return 1 + sum(isinstance(node, BRANCHES) for node in ast.walk(function))


def functions(modules: dict[str, Module]) -> list[tuple[int, int, str]]:
    """(lines, complexity, name) of every function, without its docstring."""
    found = []
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, FUNCTIONS):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                doc = node.body[0] if ast.get_docstring(node, clean=False) else None
                lines -= (doc.end_lineno or 0) - doc.lineno + 1 if doc else 0
                found.append((lines, complexity(node), f"{module.name}.{node.name}"))
    return found


def repeated_classes(modules: dict[str, Module]) -> dict[str, list[str]]:
    where = defaultdict(list)
    for module in modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                where[node.name].append(module.name)
    return {name: places for name, places in where.items() if len(places) > 1}


def package_cycles(edges: dict[str, set[str]]) -> list[str]:
    """Packages that import each other, directly or through others."""
    remaining = {name: set(used) for name, used in edges.items()}
    while free := [name for name, used in remaining.items() if not used & remaining.keys()]:
        for name in free:
            del remaining[name]
    return sorted(remaining)


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Names that say nothing of the thing, where the field has a noun.
GENERIC_NAMES = {"one", "found", "known", "own", "place", "part", "kind", "chosen", "wanted", "both", "side", "made"}


def assigned_names(tree: ast.Module) -> list[str]:
    """Names of the variables that are assigned, also by loops, `with`, and comprehensions."""
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def comment_lines(module: Module) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def density(modules: dict[str, Module]) -> dict[str, str]:
    """How much a reader meets at once: symptoms to compare with other projects, no limits."""
    nodes = statements = conditionals = comprehensions = lines = comments = 0
    names: Counter[str] = Counter()
    for module in modules.values():
        lines += len(module.text.splitlines())
        comments += comment_lines(module)
        names.update(assigned_names(module.tree))
        for node in ast.walk(module.tree):
            nodes += 1
            statements += isinstance(node, ast.stmt)
            conditionals += isinstance(node, ast.IfExp)
            comprehensions += isinstance(node, COMPREHENSIONS)
    generic = sum(count for name, count in names.items() if name in GENERIC_NAMES)
    return {
        "nodes of the syntax tree": f"{nodes:,}",
        "nodes per statement": f"{nodes / statements:.1f}",
        "conditional expressions per 1,000 lines": f"{1000 * conditionals / lines:.1f}",
        "comprehensions per 1,000 lines": f"{1000 * comprehensions / lines:.1f}",
        "comments, share of the lines": f"{100 * comments / lines:.1f} %",
        "generic names per 1,000 assignments": f"{1000 * generic / sum(names.values()):.0f}",
    }


def measure(package: Path) -> dict[str, str]:
    modules = read_package(package)
    lines = sum(len(module.text.splitlines()) for module in modules.values())
    code = sum(map(code_lines, modules.values()))
    imports = {name: internal_imports(module, modules) for name, module in modules.items()}
    statements = sum(map(len, imports.values()))
    importers: Counter[str] = Counter()
    edges: dict[str, set[str]] = defaultdict(set)
    for name, found in imports.items():
        used = set().union(*found) - {name}
        importers.update(used)
        room = [*name.split("."), ""][1]
        edges[room] |= {[*one.split("."), ""][1] for one in used} - {room, ""}
    sizes, complex_, _ = zip(*functions(modules), strict=True)
    longest = max(functions(modules))
    return {
        "Python files": f"{len(modules)}",
        "lines": f"{lines:,}",
        "lines of code": f"{code:,}",
        "internal imports per 1,000 lines": f"{1000 * statements / lines:.1f}",
        "modules with exactly one importer": f"{sum(count == 1 for count in importers.values())}",
        "packages in import cycles": ", ".join(package_cycles(edges)) or "none",
        "lines per function: median, 90 %, longest": (
            f"{statistics.median(sizes):.0f}, {statistics.quantiles(sizes, n=10)[8]:.0f}, "
            f"{longest[0]} ({longest[2].removeprefix(package.name + '.')})"
        ),
        "highest cyclomatic complexity": f"{max(complex_)}",
        "class names used twice": ", ".join(sorted(repeated_classes(modules))) or "none",
        **density(modules),
    }


def main() -> None:
    package = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "src" / "iowatch"
    for name, value in measure(package).items():
        print(f"{name:50} {value}")


if __name__ == "__main__":
    main()
