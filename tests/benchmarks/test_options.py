"""Options of benchmarks: the declaration of each, and what a suite may write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iowatch.benchmarks.benchio import BENCHIO
from iowatch.benchmarks.benchmark import Benchmark
from iowatch.benchmarks.options import (
    NO_DEFINITIONS,
    NODES,
    RANKS,
    Option,
    OptionError,
    Options,
    OptionType,
    SuiteDefinitions,
    declare_options,
)
from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.core import InputError, Scalar
from tests.benchmarks import options_table
from tests.conftest import ROOT

DECLARED = declare_options(
    RANKS,
    Option("size", OptionType.SIZE, "size of a file", default="1m", minimum=1, maximum=1 << 30),
    Option("verify", OptionType.FLAG, "compare the data", default=False),
    Option("sync", OptionType.CHOICE, "when to flush", default="none", choices=(True, "each", "none")),
    Option("points", OptionType.SHAPE, "points", default="2x3", minimum=1, dimensions=(2, 3)),
    Option("chunk", OptionType.SIZES, "chunk; unset: contiguous", minimum=1),
    Option("delay", OptionType.NUMBER, "delay; unset: none", unit="ms", minimum=0),
)


def read(**given: Scalar) -> Options:
    return Options("any", DECLARED, given)


def test_readers_fill_in_defaults_and_the_mapping_has_what_is_set() -> None:
    options = read(ranks=4)
    assert dict(options) == {"ranks": 4}
    assert "size" not in options
    assert (options.number("ranks"), options.number("size"), options.flag("verify")) == (4, 1 << 20, False)
    assert (options.text("sync"), options.shape("points")) == ("none", (2, 3))
    assert options.declares("chunk")
    assert not options.declares("nodes")


def test_values_of_a_suite_have_the_declared_type() -> None:
    options = read(size=4096, verify=True, sync=True, points="4x5x6", chunk="1kx2")
    assert (options.number("size"), options.flag("verify"), options.text("sync")) == (4096, True, "true")
    assert (options.shape("points"), options.shape("chunk")) == ((4, 5, 6), (1024, 2))
    changed = options.with_values({"verify": False})
    assert (changed.flag("verify"), changed.number("size"), options.flag("verify")) == (False, 4096, True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": 4}, "any has no option 'rank'. Did you mean 'ranks'? Known: ranks, size, "),
        ({"ranks": 0}, "option 'ranks' of any (MPI processes): expected a whole number of at least 1 (found '0')"),
        ({"ranks": "4 "}, "expected a whole number of at least 1 (found '4 ')"),
        ({"ranks": True}, "expected a whole number of at least 1 (found 'true')"),
        ({"ranks": 1.5}, "expected a whole number of at least 1 (found '1.5')"),
        ({"delay": -1}, "option 'delay' of any (delay; unset: none): expected a whole number of at least 0 ms"),
        ({"size": "2g"}, "expected a size such as 4096, 64k or 1m from 1 to 1073741824 (found '2g')"),
        ({"size": "many"}, "'many' is not a size"),
        ({"verify": "yes"}, "expected true or false (found 'yes')"),
        ({"verify": 1}, "expected true or false (found '1')"),
        ({"sync": "eech"}, "expected true, each or none (found 'eech'). Did you mean 'each'?"),
        ({"sync": 1}, "expected true, each or none (found '1')"),
        ({"points": "4"}, "expected whole numbers joined by x, such as 64x64x64 (2 or 3 of them) of at least 1"),
        ({"points": "4x0"}, "(found '4x0')"),
        ({"points": "1kx4"}, "(found '1kx4')"),
        ({"chunk": "4x"}, "expected sizes joined by x, such as 64x64x64 or 1mx1 of at least 1 (found '4x')"),
    ],
)
def test_wrong_value_is_refused_with_what_is_expected(given: dict[str, Scalar], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        read(**given)
    assert message in refused.value.message
    assert refused.value.option == next(iter(given))


@pytest.mark.parametrize(
    ("reader", "name", "error"),
    [("flag", "ranks", TypeError), ("number", "verify", TypeError), ("number", "nodes", KeyError)],
)
def test_reader_that_contradicts_the_declaration_is_a_fault_of_the_benchmark(
    reader: str, name: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(read(), reader)(name)


def test_option_without_a_default_has_no_value_unless_it_is_set() -> None:
    with pytest.raises(KeyError, match="is not set and has no default"):
        read().shape("chunk")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"type": OptionType.NUMBER, "default": "1x"}, "default of option 'a': expected a whole number"),
        ({"type": OptionType.NUMBER, "default": 0, "minimum": 1}, "default of option 'a': expected"),
        ({"type": OptionType.CHOICE, "default": "b"}, "a choice has choices"),
        ({"type": OptionType.TEXT, "choices": ("b",)}, "a choice has choices"),
    ],
)
def test_declaration_that_contradicts_itself_is_refused(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Option("a", help="any", **declared)


def test_option_is_declared_once() -> None:
    with pytest.raises(ValueError, match="option 'nodes' is declared twice"):
        declare_options(NODES, RANKS, NODES)


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=lambda benchmark: benchmark.name)
def test_every_benchmark_can_be_run_with_its_defaults(benchmark: Benchmark) -> None:
    """No default is out of bounds, and all together fit; a benchmark whose suites define what runs has one entry."""
    definitions = NO_DEFINITIONS
    if benchmark.definition_fields is not None:
        definitions = SuiteDefinitions({"any": benchmark.definition_fields(program="cat")}, Path())
    options = benchmark.read_options({}, definitions)
    assert benchmark.expects(options)
    assert benchmark.samples(options) >= options.number("repeat")
    assert (benchmark.volume_bytes(options), benchmark.file_bytes(options)) >= (0, 0)
    for option in benchmark.options.values():
        assert option.help
        assert option.default is not None or "unset" in option.help or option.name in ("global", "workload", "set")


def test_defaults_of_benchio_are_those_of_the_program() -> None:
    """Of `src/options_table.c`, where a default does not depend on other options."""
    text = (ROOT / "benchmarks" / "benchio" / "src" / "options_table.c").read_text()
    compared = []
    for entry in text.split('{.name = "')[1:]:
        name = entry.partition('"')[0]
        initial = entry.partition('.initial = "')[2].partition('"')[0]
        option = BENCHIO.options.get(name)
        if option is None or option.default is None or not initial:
            continue
        of_program: Scalar = initial == "yes" if option.type is OptionType.FLAG else initial
        assert option.value_of(option.default) == option.value_of(of_program), name
        compared.append(name)
    assert {"api", "op", "local", "repeat", "cache", "verify", "filter-level"} <= {*compared}


def test_hints_are_checked_by_their_declaration() -> None:
    with pytest.raises(InputError, match=r"option 'hints' of benchio \(MPI-IO hints, .*hint 'cb' cannot be 'maybe'"):
        BENCHIO.read_options({"api": "mpiio", "hints": "cb=maybe"})


def test_documentation_has_the_declared_options() -> None:
    """Rewritten by `python -m tests.benchmarks.options_table`."""
    assert options_table.written() == options_table.tables()
