"""All benchmarks, and the parsers of their outputs.

To add a benchmark, write a module with a `Benchmark` and add it to `BENCHMARKS`; its check belongs in
`reframe_tests/<name>.py`, its suites in `benchmarks/<name>/suites/`. A site adds one as a plugin (docs/plugins.md).
Stacks, doctor, references, help texts and the session use the lists of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from iowatch.benchmarks.benchio import BENCHIO
from iowatch.benchmarks.benchmark import Benchmark
from iowatch.benchmarks.fio import FIO
from iowatch.benchmarks.h5bench import H5BENCH
from iowatch.benchmarks.hdf5_iotest import HDF5_IOTEST
from iowatch.benchmarks.hpcc import HPCC
from iowatch.benchmarks.ior import IOR
from iowatch.benchmarks.mdtest import MDTEST
from iowatch.benchmarks.parsing import FailureSignature, OutputBuilder, OutputSource, RunContext
from iowatch.benchmarks.pnetcdf_kernels import FLASH_IO, S3D_IO
from iowatch.core import InputError, Output, UsageError, plugins, suggest_name

BENCHMARKS = plugins.Registry(Benchmark, (BENCHIO, IOR, MDTEST, H5BENCH, HDF5_IOTEST, FIO, HPCC, S3D_IO, FLASH_IO))

# Prefix of the reason if a parser itself failed; such outputs should be reported as bugs.
PARSER_ERROR = "parse error"
# Never raises for the content of an output, but for the errors of `parse_output`.
OutputParser = Callable[[OutputSource, RunContext], Output]


def benchmark_names() -> list[str]:
    """Return the names of all benchmarks."""
    return list(BENCHMARKS)


def get_benchmark(name: str) -> Benchmark:
    """Return the benchmark with this name.

    Raises:
        UsageError: unknown benchmark.
    """
    if name not in BENCHMARKS:
        raise UsageError(f"no benchmark '{name}'", hint=suggest_name(name, benchmark_names()))
    return BENCHMARKS[name]


def parse_output(tool: str, source: OutputSource, context: RunContext, parser: OutputParser | None = None) -> Output:
    """Return the results of one output; never raises because of the content of the output.

    Parse errors mark the output incomplete and are reported: one unforeseen output must not end a session.

    Args:
        tool: name of a benchmark.
        source: the output as text, bytes, or a binary stream (read once, in constant memory).
        parser: of a tool that is not a benchmark; None: that of the benchmark `tool`.

    Raises:
        UsageError: no such benchmark.
    """
    try:
        return parser(source, context) if parser else _parse_benchmark(get_benchmark(tool), source, context)
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError) as error:
        reason = plugins.fault_of_plugin(error) or f"{type(error).__name__}: {error}"
        return Output(tool, None, "incomplete", f"{PARSER_ERROR}: {reason}"[:300], ())


def _parse_benchmark(benchmark: Benchmark, source: OutputSource, context: RunContext) -> Output:
    builder = OutputBuilder(benchmark.name, failure_signatures(benchmark))
    lines = builder.lines(source)
    benchmark.parse(builder, lines, context)
    return builder.to_output(context, lines)


def parse_output_file(
    tool: str,
    path: Path,
    *,
    stderr: Path | None = None,
    rc: int | None = None,
    ranks: int | None = None,
    log: Path | None = None,
    parser: OutputParser | None = None,
    fresh: bool = False,
) -> Output:
    """As `parse_output`, for files; reads IOR's results from a separate file in the same directory, if there is one.

    Args:
        log: what the program printed, where `path` is a file of results that it wrote.
        parser: as of `parse_output`.
        fresh: as of `RunContext`.

    Raises:
        UsageError: no such benchmark.
        InputError: a file that cannot be read.
    """
    context = RunContext(None, rc, ranks, fresh=fresh)
    try:
        output = _parse_opened_file(tool, path, stderr, log, context, parser)
        written_to = path.with_name(Path(str(output.facts.get("written_to", ""))).name or path.name)
        if not output.results and written_to != path and written_to.is_file():
            return _parse_opened_file(tool, written_to, stderr, path, context, parser)
        return output
    except OSError as error:
        raise InputError(
            f"{error.filename or path}: {error.strerror or error}", hint="Expected a file that can be read."
        ) from error


def _parse_opened_file(
    tool: str, path: Path, stderr: Path | None, log: Path | None, context: RunContext, parser: OutputParser | None
) -> Output:
    with ExitStack() as files:
        source = files.enter_context(path.open("rb"))
        others = [files.enter_context(other.open("rb")) if other else None for other in (stderr, log)]
        return parse_output(tool, source, replace(context, stderr=others[0], log=others[1]), parser)


def failure_signatures(benchmark: Benchmark) -> tuple[FailureSignature, ...]:
    """Return the failure signatures of one benchmark; the beginning of another benchmark's output is one of them."""
    others = (
        FailureSignature(other.banner, f"{other.name} also wrote into this output")
        for other in BENCHMARKS.values()
        if other.banner and other.name != benchmark.name
    )
    return (*benchmark.signatures, *others)
