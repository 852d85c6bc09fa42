"""The tables of options in docs/benchmarks.md, made from the declarations.

`python -m tests.benchmarks.options_table` rewrites them.
"""

from __future__ import annotations

import sys

from iowatch.benchmarks.benchmark import Benchmark
from iowatch.benchmarks.options import Option, OptionType
from iowatch.benchmarks.registry import BENCHMARKS
from tests.conftest import ROOT

DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN = "<!-- options: made from the declarations by `python -m tests.benchmarks.options_table` -->\n"
END = "<!-- end of options -->\n"


def tables() -> str:
    """The tables of all benchmarks of the product."""
    own = [benchmark for benchmark in BENCHMARKS.values() if BENCHMARKS.plugin_of(benchmark.name) is None]
    return BEGIN + "\n" + "\n".join(_table(benchmark) for benchmark in own) + END


def _table(benchmark: Benchmark) -> str:
    rows = [f"**{benchmark.title}** (`{benchmark.name}`)\n", "| option | value | default | |", "|---|---|---|---|"]
    rows += [_row(option) for option in benchmark.options.values()]
    return "\n".join(rows) + "\n"


def _row(option: Option) -> str:
    default = "" if option.default is None else f"`{str(option.default).lower()}`"
    return f"| `{option.name}` | {_value(option)} | {default} | {option.help} |"


def _value(option: Option) -> str:
    if option.type is OptionType.CHOICE:
        return option.expected
    words = {
        OptionType.NUMBER: "number",
        OptionType.SIZE: "size",
        OptionType.FLAG: "true or false",
        OptionType.TEXT: "text",
        OptionType.SHAPE: "numbers joined by x",
        OptionType.SIZES: "sizes joined by x",
    }[option.type]
    if option.unit:
        words += f" in {option.unit}"
    if option.minimum not in (None, 0, 1):
        words += f", at least {option.minimum}"
    if option.maximum is not None:
        words += f", at most {option.maximum}"
    return words


def written() -> str:
    """The tables as the document has them."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def main() -> None:
    """Rewrite the tables."""
    text = DOCUMENT.read_text(encoding="utf-8").replace(written(), tables())
    DOCUMENT.write_text(text, encoding="utf-8")
    sys.stdout.write(f"wrote {DOCUMENT}\n")


if __name__ == "__main__":
    main()
