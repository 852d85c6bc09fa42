"""All benchmarks, and the parsers of their outputs.

To add a benchmark, write a module with a `Benchmark` and add it to `_suite_benchmarks`; its check belongs in
`reframe_tests/<name>.py`, its suites in `benchmarks/<name>/suites/`. A site adds one as a plugin (docs/plugins.md).
Stacks, doctor, references, help texts and the session use the lists of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from iowatch.benchmarks.benchmark import Benchmark
from iowatch.benchmarks.parsing import FailureSignature, OutputBuilder, OutputSource, RunContext
from iowatch.benchmarks.time_limit import TimeLimitError, limited_time
from iowatch.core import InputError, Output, UsageError, plugins, suggest_name


def _suite_benchmarks() -> tuple[Benchmark, ...]:
    """The product's benchmarks, in the order of lists; commands that use none do not import their parsers."""
    from iowatch.benchmarks.benchio import BENCHIO
    from iowatch.benchmarks.command import COMMAND
    from iowatch.benchmarks.fio import FIO
    from iowatch.benchmarks.h5bench import H5BENCH
    from iowatch.benchmarks.hdf5_iotest import HDF5_IOTEST
    from iowatch.benchmarks.hpcc import HPCC
    from iowatch.benchmarks.ior import IOR
    from iowatch.benchmarks.mdtest import MDTEST
    from iowatch.benchmarks.node_pairs import NODE_PAIRS
    from iowatch.benchmarks.pnetcdf_kernels import FLASH_IO, S3D_IO
    from iowatch.benchmarks.target_probe import TARGET_PROBE

    return (BENCHIO, IOR, MDTEST, H5BENCH, HDF5_IOTEST, FIO, HPCC, NODE_PAIRS, TARGET_PROBE, S3D_IO, FLASH_IO, COMMAND)


BENCHMARKS = plugins.Registry(Benchmark, _suite_benchmarks)

# Prefix of the reason if a parser itself failed; such outputs should be reported as bugs.
PARSER_ERROR = "parse error"
# Processor time for one output, in every session and command. An output of 100 MB takes some seconds.
PARSING_LIMIT_S = 60.0
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
        with limited_time(PARSING_LIMIT_S):
            if parser is not None:
                return parser(source, context)
            return _parse_benchmark(get_benchmark(tool), source, context)
    except TimeLimitError:
        reason = f"it was not read within {PARSING_LIMIT_S:.0f} s of processor time: too long, or damaged"
        return Output(tool, None, "incomplete", f"{PARSER_ERROR}: {reason}", ())
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
    context = RunContext(rc=rc, ranks=ranks, fresh=fresh)
    try:
        output = _parse_opened_file(_OutputFiles(path, stderr, log), tool, context, parser)
        # IOR names the file of results that it wrote; then this one is what it printed.
        results_name = Path(str(output.facts.get("written_to", ""))).name
        results_path = path.with_name(results_name or path.name)
        if not output.results and results_path != path and results_path.is_file():
            return _parse_opened_file(_OutputFiles(results_path, stderr, path), tool, context, parser)
        return output
    except OSError as error:
        raise InputError(
            f"{error.filename or path}: {error.strerror or error}", hint="Expected a file that can be read."
        ) from error


@dataclass(frozen=True)
class _OutputFiles:
    """Files of one run: the output, and if there are any its stderr and what the program printed beside it."""

    output: Path
    stderr: Path | None
    log: Path | None


def _parse_opened_file(paths: _OutputFiles, tool: str, context: RunContext, parser: OutputParser | None) -> Output:
    with ExitStack() as opened:
        source = opened.enter_context(paths.output.open("rb"))
        stderr = opened.enter_context(paths.stderr.open("rb")) if paths.stderr else None
        log = opened.enter_context(paths.log.open("rb")) if paths.log else None
        return parse_output(tool, source, replace(context, stderr=stderr, log=log), parser)


def failure_signatures(benchmark: Benchmark) -> tuple[FailureSignature, ...]:
    """Return the failure signatures of one benchmark; the beginning of another benchmark's output is one of them.

    Programs that a suite defines may be any, also those of other benchmarks.
    """
    if benchmark.definition_fields is not None:
        return benchmark.signatures
    others = (
        FailureSignature(other.banner, f"{other.name} also wrote into this output")
        for other in BENCHMARKS.values()
        if other.banner and other.name != benchmark.name
    )
    return (*benchmark.signatures, *others)
