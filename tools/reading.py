"""Draw functions for a reading test: does somebody who has never seen the project understand them at once?

    python tools/reading.py SEED [--count 5] > functions.md

Each function is printed alone, as it stands in its file. A reader explains each in two sentences after one reading; a
second person compares the explanations with what the functions do.
"""

from __future__ import annotations

import argparse
import ast
import random
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "iowatch"
# Rooms; a name with several packages is one room.
ROOMS = (
    ("core",),
    ("statistics",),
    ("benchmarks",),
    ("site",),
    ("checks",),
    ("darshan",),
    ("reference",),
    ("store",),
    ("findings", "comparison"),
    ("session", "demo"),
    ("output", "cli"),
    ("experiments", "applications"),
)
_FEWEST_LINES = 9


def functions_of(room: tuple[str, ...]) -> list[tuple[str, str]]:
    """Functions and methods of a room with more than eight lines: (file and line, text)."""
    functions: list[tuple[str, str]] = []
    for package in room:
        for path in sorted((SOURCE / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
                if len(lines) >= _FEWEST_LINES:
                    where = f"{path.relative_to(SOURCE)}:{node.lineno}"
                    functions.append((where, "\n".join(lines)))
    return functions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=5, help="functions of each room")
    options = parser.parse_args()
    generator = random.Random(options.seed)  # noqa: S311 - a sample, no secret
    number = 0
    for room in ROOMS:
        for where, text in generator.sample(functions_of(room), options.count):
            number += 1
            print(f"## {number}. {where}\n\n```python\n{text}\n```\n")


if __name__ == "__main__":
    main()
