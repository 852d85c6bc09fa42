"""IOR (https://github.com/hpc/ior): options and command line of 3.3.0 and 4.x, output of 3.0 to 4.1.

Parses the default text (also with `-v`), JSON and CSV. Options are named as in IOR's user guide.
"""

from __future__ import annotations

from typing import Any

from iowatch.benchmarks import benchmark, hints, ior_output, ior_validation, parsing
from iowatch.benchmarks.ior_ranks import IOR_RANK_TIMES
from iowatch.benchmarks.options import (
    NODES,
    RANKS,
    STRIPE_COUNT,
    STRIPE_SIZE,
    Option,
    Options,
    OptionType,
    declare_options,
    repeat_option,
)
from iowatch.core import Scalar

SUMMARY_FILE = "ior.json"

# Option `api` -> IOR's name of the interface (-a).
_API = {"posix": "POSIX", "mpiio": "MPIIO", "hdf5": "HDF5", "ncmpi": "NCMPI"}
# Option `api` -> case parameter.
_CASE_API = {**_API, "ncmpi": "PNETCDF"}
# Option `api` -> feature that the stack must have.
_FEATURE = {"hdf5": "hdf5", "ncmpi": "pnetcdf"}

_OPTIONS = declare_options(
    Option("api", OptionType.CHOICE, "interface (-a)", default="posix", choices=tuple(_API)),
    Option(
        "file",
        OptionType.CHOICE,
        "files over ranks; per-process: -F",
        default="shared",
        choices=("shared", "per-process"),
    ),
    Option(
        "op",
        OptionType.CHOICE,
        "what is timed; read: a file written before and dropped from the page cache; both: on several nodes only",
        default="write",
        choices=("write", "read", "both"),
    ),
    Option("transfer", OptionType.SIZE, "transfer size (-t)", default="1m", minimum=1),
    Option("block", OptionType.SIZE, "block size (-b)", default="16m", minimum=1),
    Option(
        "segments",
        OptionType.NUMBER,
        "segments (-s): more than one interleaves the ranks' blocks",
        default=1,
        minimum=1,
    ),
    repeat_option(10, "repetitions (-i); a read is started once for each"),
    Option("collective", OptionType.FLAG, "collective transfers (-c)", default=False),
    Option("sync", OptionType.FLAG, "fsync inside the timed part (-e)", default=True),
    Option("reorder", OptionType.FLAG, "read what another node wrote (-C)", default=True),
    Option("direct", OptionType.FLAG, "O_DIRECT, POSIX only", default=False),
    Option(
        "verify",
        OptionType.FLAG,
        "compare the data: writes are read back (-W), reads compare while they read (-R): their own case",
        default=False,
    ),
    hints.DECLARATION,
    STRIPE_COUNT,
    STRIPE_SIZE,
    RANKS,
    NODES,
)

# phase -> the option that verifies its data
_CHECKS = {"-w": "-W", "-r": "-R"}
# Option `op` -> phases. A read keeps the file for the next start.
_PHASES = {"both": ["-w", "-r"], "write": ["-w"], "read": ["-r", "-k"]}


def _common_arguments(options: Options, scratch: str) -> list[str]:
    """Return the arguments that a start and the start that writes its file have in common."""
    words = ["-a", _API[options.text("api")]]
    words += ["-t", str(options.number("transfer")), "-b", str(options.number("block"))]
    words += ["-s", str(options.number("segments"))]
    if options.flag("verify"):
        words += ["-G", "1"]  # fixed data pattern, which a later start can verify
    # Without -e and -C, reads are served from the page cache of the writing node; both are on by default.
    flags = {
        "-F": options.text("file") == "per-process",
        "-c": options.flag("collective"),
        "-e": options.flag("sync"),
        "-C": options.flag("reorder"),
        "--posix.odirect": options.flag("direct"),
    }
    words += [flag for flag, is_set in flags.items() if is_set]
    return [*words, "-o", f"{scratch}/ior"]


def _arguments(options: Options, scratch: str) -> list[str]:
    operation = options.text("op")
    words = _common_arguments(options, scratch)
    phases = _PHASES[operation]
    words += phases
    if options.flag("verify"):
        words += [check for phase, check in _CHECKS.items() if phase in phases]
    # A read is started once for each repetition (`_runs`).
    repetitions = 1 if operation == "read" else options.number("repeat")
    words += ["-i", str(repetitions)]
    # Names of files are not used again: nodes that remember an old entry find no new file behind it (docs/benchio.md).
    if options.number("nodes") > 1 and repetitions > 1:
        words.append("-m")
    return [*words, "-O", f"summaryFile={SUMMARY_FILE},summaryFormat=JSON"]


def _runs(options: Options) -> int:
    if options.text("op") == "read":
        return options.number("repeat")
    return 1


def _prepare(options: Options, scratch: str) -> list[list[str]]:
    """Return the commands that write the file for a read, with the same number of ranks and the same pattern."""
    if options.text("op") != "read":
        return []
    return [["ior", *_common_arguments(options, scratch), "-w", "-k"]]


def _drop_cache_commands(options: Options, scratch: str) -> str:
    """Drop the file from the page cache of every node: readers are not always placed as -C intends."""
    if options.text("op") != "read":
        return ""
    return benchmark.drop_cache_command(f"{scratch}/ior")


def _case(options: Options) -> dict[str, Scalar]:
    """Return parameters that IOR does not print: cache policy of reads, requested striping, hints."""
    return {**_read_policy(options), **benchmark.striping_parameters(options), **hints.hint_parameter(options)}


def _environment(options: Options) -> dict[str, str]:
    """Return variables of the job: IOR reads hints from them in every version (`SetHints` in `utilities.c`)."""
    variables = hints.job_environment(options)
    for key, value in hints.mpi_info(options).items():
        variables[f"IOR_HINT__MPI__{key}"] = value
    return variables


def _read_policy(options: Options) -> dict[str, Scalar]:
    return {"cache": "drop"} if options.text("op") == "read" else {}


def _printed_parameters(options: Options) -> dict[str, Scalar]:
    parameters: dict[str, Scalar] = {
        "api": _CASE_API[options.text("api")],
        "file": options.text("file"),
        "collective": options.flag("collective"),
        "transfer_bytes": options.number("transfer"),
        "block_bytes": options.number("block"),
        "segments": options.number("segments"),
        "total_bytes": _file_bytes(options),
        "ranks": options.number("ranks"),
        "nodes": options.number("nodes"),
        "sync": options.flag("sync"),
        "reorder": "constant" if options.flag("reorder") else "none",
    }
    if options.flag("verify"):
        parameters["verify"] = True
    if options.flag("direct"):
        parameters["cache"] = "direct"
    return {**parameters, **_read_policy(options), **hints.hint_parameter(options)}


def _requires(options: Options) -> tuple[str, ...]:
    features = ["mpi", "ior"]
    api = options.text("api")
    if api in _FEATURE:
        features.append(_FEATURE[api])
    return (*features, *hints.required_features(options))


_INTERFACES = (
    benchmark.ProgramInterface("posix", "POSIX interface", listed="POSIX"),
    benchmark.ProgramInterface("mpiio", "MPI-IO interface", listed="MPIIO"),
    benchmark.ProgramInterface("hdf5", "HDF5 interface", listed="HDF5", library="libhdf5"),
    benchmark.ProgramInterface("ncmpi", "PnetCDF interface", listed="NCMPI", library="pnetcdf"),
)
# What `ior -h` and `mdtest -h` print since 3.2: `-a=POSIX    API for I/O [POSIX|DUMMY|MPIIO]`. Earlier releases print
# the same names whatever was built (`-a S  api --  API for I/O [POSIX|MPIIO|HDF5|NCMPI]`), which does not match.
LISTED_INTERFACES = r"-a=\S+\s+API for I/O \[([^\]]+)\]"


def _expects(options: Options) -> tuple[tuple[str, str], ...]:
    return tuple((operation, "bandwidth") for operation in benchmark.requested_operations(options))


def _file_bytes(options: Options) -> int:
    return options.number("block") * options.number("segments") * options.number("ranks")


def _volume_bytes(options: Options) -> int:
    repetitions, is_read = options.number("repeat"), options.text("op") == "read"
    transfers = repetitions * len(benchmark.requested_operations(options))
    # A verified write reads everything back; a read compares what it reads anyway.
    if options.flag("verify") and not is_read:
        transfers += repetitions
    # The file that is read is written once.
    if is_read:
        transfers += 1
    return _file_bytes(options) * transfers


def _inodes(options: Options) -> int:
    if options.text("file") == "per-process":
        return options.number("ranks")
    return 1


_SIGNATURES = (
    parsing.FailureSignature(r"[Ii]ncorrect data on", "data check errors"),
    parsing.FailureSignature(
        r"WARNING: (?:write|read|pwrite|pread|fsync|close|lseek)\(.{0,200}(?:failed|returned EOF)", "I/O calls failed"
    ),
    # IOR repeats a transfer until it is whole, or aborts.
    parsing.FailureSignature(
        r"WARNING: .{0,200}partial (?:write|read)\(\)", "transfers were moved in parts", fatal=False
    ),
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
    if form == "json":
        return ior_output.IorJsonReader(run)
    return ior_output.IorTextReader(run)


def parse_ior(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse an output of IOR."""
    run = ior_output.IorRun()
    form: str | None = None
    reader: Any = None
    for line in lines:
        if run.titles > 1:
            # Two runs wrote to one output: no later line can make it valid.
            lines.decided = True
        elif form is None:
            form = _detect_ior_format(line)
            if form is not None:
                reader = _reader(form, run)
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
        run.is_whole_text = form == "text" and lines.ended
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
        "ior",
        ("ior", "-a", "DUMMY", "-t", "1k", "-b", "1k"),
        r"IOR-(\S+?):",
        interfaces_command=("ior", "-h"),
        interfaces_pattern=LISTED_INTERFACES,
    ),
    interfaces=_INTERFACES,
    uses=lambda options: (options.text("api"),),
    options=_OPTIONS,
    program=lambda _options: "ior",
    arguments=_arguments,
    requires=_requires,
    expects=_expects,
    samples=benchmark.repetitions,
    shows=_printed_parameters,
    file_bytes=_file_bytes,
    volume_bytes=_volume_bytes,
    results=(SUMMARY_FILE,),
    prepare=_prepare,
    runs=_runs,
    before=_drop_cache_commands,
    case=_case,
    environment=_environment,
    inodes=_inodes,
    rank_times=IOR_RANK_TIMES,
)
