"""IOR (https://github.com/hpc/ior): options and command line of 3.3.0 and 4.x, output of 3.0 to 4.1.

Parses the default text (also with `-v`), JSON and CSV. Options are named as in IOR's user guide.
"""

from __future__ import annotations

from typing import Any

from iowatch.benchmarks import benchmark, hints, ior_output, ior_validation, parsing
from iowatch.core import Scalar

SUMMARY_FILE = "ior.json"

_OPTIONS = {
    "api": "posix, mpiio, hdf5 or ncmpi",
    "file": "shared or per-process (-F)",
    "op": "write; read (of a file written before and dropped from the page cache); both (several nodes only)",
    "transfer": "transfer size (-t)",
    "block": "block size (-b)",
    "segments": "segments (-s): more than one interleaves the ranks' blocks",
    "repeat": "repetitions (-i)",
    "collective": "collective transfers (-c)",
    "sync": "fsync inside the timed part (-e); false leaves it out",
    "reorder": "read what another node wrote (-C); false leaves it out",
    "direct": "O_DIRECT, POSIX only",
    "verify": "compare the data: writes are read back (-W), reads compare while they read (-R): their own case",
    hints.OPTION: hints.DESCRIPTION,
    "stripe-count": "Lustre stripe count of the directory, -1 for all",
    "stripe-size": "Lustre stripe size of the directory in bytes",
    "ranks": "MPI processes",
    "nodes": "nodes",
}

_API = {"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "ncmpi": "NCMPI"}
_CASE_API = {**_API, "ncmpi": "PNETCDF"}
_FEATURE = {"hdf5": "hdf5", "ncmpi": "pnetcdf"}


# phase -> the option that verifies its data
_CHECKS = {"-w": "-W", "-r": "-R"}


def _common_arguments(options: benchmark.BenchmarkOptions, place: str) -> list[str]:
    words = ["-a", _API[str(options.get("api", "posix"))]]
    transfer, block = benchmark.size_option(options, "transfer", "1m"), benchmark.size_option(options, "block", "16m")
    words += ["-t", str(transfer), "-b", str(block)]
    words += ["-s", str(benchmark.integer_option(options, "segments", 1))]
    # Without -e and -C, reads are served from the page cache of the writing node; both are on by default.
    flags = {
        "-F": options.get("file") == "per-process",
        "-c": bool(options.get("collective", False)),
        "-e": bool(options.get("sync", True)),
        "-C": bool(options.get("reorder", True)),
        "--posix.odirect": bool(options.get("direct", False)),
    }
    if options.get("verify"):
        words += ["-G", "1"]  # fixed data pattern, which a later start can verify
    return [*words, *(flag for flag, wanted in flags.items() if wanted), "-o", f"{place}/ior"]


def _arguments(options: benchmark.BenchmarkOptions, place: str) -> list[str]:
    op = str(options.get("op", "write"))
    phases = {"both": ["-w", "-r"], "write": ["-w"], "read": ["-r", "-k"]}
    repeat = 1 if op == "read" else benchmark.integer_option(options, "repeat", 10)
    summary = ["-O", f"summaryFile={SUMMARY_FILE},summaryFormat=JSON"]
    checks = [flag for phase, flag in _CHECKS.items() if phase in phases[op] and options.get("verify")]
    return [*_common_arguments(options, place), *phases[op], *checks, "-i", str(repeat), *summary]


def _prepare(options: benchmark.BenchmarkOptions, place: str) -> list[list[str]]:
    """Return the commands that write the file for a read, with the same number of ranks and the same pattern."""
    return [["ior", *_common_arguments(options, place), "-w", "-k"]] if options.get("op") == "read" else []


def _drop_cache_commands(options: benchmark.BenchmarkOptions, place: str) -> str:
    """Drop the file from the page cache of every node: readers are not always placed as -C intends."""
    return benchmark.drop_cache_command(f"{place}/ior") if options.get("op") == "read" else ""


def _case(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    """Return parameters that IOR does not print: cache policy of reads, requested striping, hints."""
    return {**_read_policy(options), **benchmark.striping_parameters(options), **hints.hint_parameter(options)}


def _environment(options: benchmark.BenchmarkOptions) -> dict[str, str]:
    """Return variables of the job: IOR reads hints from them in every version (`SetHints` in `utilities.c`)."""
    passed = {f"IOR_HINT__MPI__{key}": value for key, value in hints.mpi_info(options).items()}
    return {**hints.job_environment(options), **passed}


def _read_policy(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    return {"cache": "drop"} if options.get("op") == "read" else {}


def _printed_parameters(options: benchmark.BenchmarkOptions) -> dict[str, Scalar]:
    return {
        "api": _CASE_API[str(options.get("api", "posix"))],
        "file": "per-process" if options.get("file") == "per-process" else "shared",
        "collective": bool(options.get("collective", False)),
        "transfer_bytes": benchmark.size_option(options, "transfer", "1m"),
        "block_bytes": benchmark.size_option(options, "block", "16m"),
        "segments": benchmark.integer_option(options, "segments", 1),
        "total_bytes": _file_bytes(options),
        "ranks": benchmark.integer_option(options, "ranks", 1),
        "nodes": benchmark.integer_option(options, "nodes", 1),
        "sync": bool(options.get("sync", True)),
        "reorder": "constant" if options.get("reorder", True) else "none",
        **({"verify": True} if options.get("verify") else {}),
        **({"cache": "direct"} if options.get("direct") else {}),
        **_read_policy(options),
        **hints.hint_parameter(options),
    }


def _requires(options: benchmark.BenchmarkOptions) -> tuple[str, ...]:
    library = _FEATURE.get(str(options.get("api")))
    return ("mpi", "ior", *((library,) if library else ()), *hints.required_features(options))


def _file_bytes(options: benchmark.BenchmarkOptions) -> int:
    per_rank = benchmark.size_option(options, "block", "16m") * benchmark.integer_option(options, "segments", 1)
    return per_rank * benchmark.integer_option(options, "ranks", 1)


def _volume_bytes(options: benchmark.BenchmarkOptions) -> int:
    transfers = benchmark.integer_option(options, "repeat", 10) * len(benchmark.requested_operations(options))
    if options.get("verify") and options.get("op") != "read":
        transfers += benchmark.integer_option(options, "repeat", 10)
    return _file_bytes(options) * (transfers + (options.get("op") == "read"))


_SIGNATURES = (
    parsing.FailureSignature(r"[Ii]ncorrect data on", "data check errors"),
    parsing.FailureSignature(
        r"WARNING: (?:write|read|pwrite|pread|fsync|close|lseek)\(.*(?:failed|returned EOF)", "I/O calls failed"
    ),
    parsing.FailureSignature(r"WARNING: .*partial (?:write|read)\(\)", "I/O calls failed"),
    parsing.FailureSignature(r"(?:^|ior )ERROR[: ]|ERROR in aiori", "IOR reports an error"),
    parsing.FailureSignature(r"FAILED in TestIoSys|FAILED comparison", "IOR reports an error"),
    parsing.FailureSignature(r"[Ii]nvalid (?:option|argument)|[Uu]nrecognized|Error invalid", "wrong use of IOR"),
)
# Lines that occur in only one output format.
_TITLES = ("IOR-", "access,bw(MiB/s)", '  "Version"', '"Version"')
_JSON_STARTS = ("{", '"Version"', '"Began"', '"tests"')
_TEXT_STARTS = (
    *("IOR-", "Began", "Command line", "Machine", "Options:"),
    *("access    bw", "TestID", "Summary", "Writing output"),
)


def _detect_ior_format(line: str) -> str | None:
    """Return the output format that a line belongs to; None if the line does not determine it."""
    text = line.lstrip()
    if text.startswith("access,bw(MiB/s)"):
        return "csv"
    if text == "{" or text.startswith(_JSON_STARTS[1:]):
        return "json"
    return "text" if line.startswith(_TEXT_STARTS) else None


def _reader(form: str, run: ior_output.IorRun) -> Any:
    if form == "csv":  # loaded on demand: no session writes CSV
        from iowatch.benchmarks.ior_csv import IorCsvReader

        return IorCsvReader(run)
    return ior_output.IorJsonReader(run) if form == "json" else ior_output.IorTextReader(run)


def parse_ior(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of IOR."""
    run = ior_output.IorRun()
    form: str | None = None
    reader: Any = None
    for line in lines:
        if run.titles > 1:
            lines.decided = True
        elif form is None:
            form = _detect_ior_format(line)
            reader = _reader(form, run) if form else None
        elif line == "{" and form == "text" and not run.tests and run.titles == 1:
            # version 3.2 prints its title before the JSON document
            form, reader = "json", ior_output.IorJsonReader(run)
        elif line.startswith(_TITLES) and _detect_ior_format(line.strip()) != form:
            builder.add_failure("outputs of different forms are mixed")
        if reader is not None:
            reader.read(line)
        elif "WARNING: " in line:  # about the options, before the title
            run.add_warning(line)
    if isinstance(reader, ior_output.IorJsonReader):
        reader.finish()
    if form == "csv":
        reader.check(builder, context, lines.ended)
    else:
        builder.recognised = bool(run.titles or run.tests or run.command or run.unassigned.count)
        ior_validation.check_ior_run(builder, run, context)


IOR = benchmark.Benchmark(
    name="ior",
    title="IOR",
    check="IorCheck",
    parse=parse_ior,
    signatures=_SIGNATURES,
    banner=r"MPI Coordinated Test of Parallel I/O",
    package="ior",
    # A run without I/O, because IOR prints its version only in a run.
    probe=benchmark.ProgramProbe(
        "ior", ("ior", "-a", "DUMMY", "-t", "1k", "-b", "1k"), r"IOR-(\S+?):", {"hdf5": "libhdf5", "ncmpi": "pnetcdf"}
    ),
    options=_OPTIONS,
    program=lambda _options: "ior",
    arguments=_arguments,
    requires=_requires,
    expects=lambda options: tuple((operation, "bandwidth") for operation in benchmark.requested_operations(options)),
    samples=lambda options: benchmark.integer_option(options, "repeat", 10),
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    results=(SUMMARY_FILE,),
    prepare=_prepare,
    runs=lambda options: benchmark.integer_option(options, "repeat", 10) if options.get("op") == "read" else 1,
    before=_drop_cache_commands,
    case=_case,
    environment=_environment,
    inodes=lambda options: benchmark.integer_option(options, "ranks", 1) if options.get("file") == "per-process" else 1,
)
