"""Any program as a benchmark: its wall time, and numbers in its output (docs/commands.md).

A suite of this benchmark defines commands (`command_definition`). The job prints a record after the program's output
(`command_record`), in which the parser searches the numbers (`command_metrics`).
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from iowatch.benchmarks import benchmark, parsing
from iowatch.benchmarks.command_definition import RUN_OPERATION, Command, CommandFields
from iowatch.benchmarks.command_metrics import MetricSearch, ValueMissingError, metric_of_unit, read_value
from iowatch.benchmarks.command_record import (
    DEFINITION_FILE,
    FORMAT,
    SCRIPT,
    SCRIPT_FILE,
    TEXT_BYTES,
    CommandRecord,
    RecordError,
    RecordLines,
    parse_record,
)
from iowatch.benchmarks.options import (
    NODES,
    RANKS,
    Option,
    OptionError,
    Options,
    OptionType,
    declare_options,
    repeat_option,
)
from iowatch.core import Scalar, parse_size, suggest_name

_COMMAND = Option("command", OptionType.TEXT, "name of one of the suite's `commands`; unset: the only one")
_SET = Option("set", OptionType.TEXT, "values of its parameters: NAME=VALUE, joined by +")
_OPTIONS = declare_options(_COMMAND, _SET, repeat_option(3, "number of starts; one sample per start"), RANKS, NODES)
_TIME = "time"


def find_command(options: Options) -> Command:
    """Return the command of a case, with the values of its parameters.

    Raises:
        OptionError: the suite defines no such command, or the command has no such parameter.
    """
    commands: Mapping[str, CommandFields] = options.definitions.entries
    names = list(commands)
    if _COMMAND.name in options:
        name = options.text(_COMMAND.name)
    elif len(names) == 1:
        name = names[0]
    else:
        raise OptionError(_COMMAND.name, f"expected the name of a command. {suggest_name('', names)}")
    if name not in commands:
        raise OptionError(_COMMAND.name, f"the suite defines no command '{name}'. {suggest_name(name, names)}")
    fields = commands[name]
    return Command(name, fields, options.definitions.directory, {**fields.parameters, **_set_values(options, fields)})


def _set_values(options: Options, fields: CommandFields) -> dict[str, str]:
    """Return the values of parameters that the case sets: `level=6+chunk=64`.

    Raises:
        OptionError: not in that form, no such parameter, or one that is set twice.
    """
    values: dict[str, str] = {}
    if _SET.name not in options:
        return values
    for assignment in options.text(_SET.name).split("+"):
        name, equals, value = assignment.partition("=")
        if not equals or name not in fields.parameters:
            expected = f"expected NAME=VALUE of a parameter of the command ({', '.join(fields.parameters) or 'none'})"
            raise OptionError(_SET.name, f"'{assignment}': {expected}")
        if name in values:
            raise OptionError(_SET.name, f"parameter '{name}' is set twice; expected once")
        values[name] = value
    return values


# --- before the run --------------------------------------------------------------------------------------------------


def _program(options: Options) -> str:
    command = find_command(options)
    return command.filled(command.fields.program, "")


def _arguments(options: Options, scratch: str) -> list[str]:
    command = find_command(options)
    return command.filled_words(command.fields.arguments, scratch)


def _wrapper(options: Options, scratch: str) -> list[str]:
    """Return the words that start the program: the script measures its time, and prints the record."""
    command = find_command(options)
    file = "" if command.fields.output_file is None else command.filled(command.fields.output_file, scratch)
    return ["bash", SCRIPT_FILE, "run", command.name, file]


def _environment(options: Options) -> dict[str, str]:
    command = find_command(options)
    return {name: command.filled(text, "") for name, text in command.fields.environment.items()}


def _prepare(options: Options, scratch: str) -> list[list[str]]:
    """Return the commands that make the input, once; on several ranks only the first one executes them."""
    command = find_command(options)
    is_alone = options.number("ranks") == 1
    commands: list[list[str]] = []
    for texts in command.fields.prepare:
        words = command.filled_words(texts, scratch)
        commands.append(words if is_alone else ["bash", SCRIPT_FILE, "prepare", *words])
    return commands


def _before(options: Options, scratch: str) -> str:
    """Return the shell command before each start: files of the start before are removed, inputs leave the cache."""
    command = find_command(options)
    commands: list[str] = []
    if command.fields.remove:
        paths = command.filled_words(command.fields.remove, scratch)
        _require_within(scratch, paths)
        commands.append(shlex.join(["rm", "-rf", "--", *paths]))
    for path in command.filled_words(command.fields.drop_cache, scratch):
        commands.append(benchmark.drop_cache_command(path))
    return "; ".join(commands)


def _require_within(scratch: str, paths: Iterable[str]) -> None:
    """Require that paths are in the scratch directory, also after parameters were put into them.

    Raises:
        OptionError: one is not.
    """
    directory = Path(os.path.normpath(scratch))
    for path in paths:
        if directory not in Path(os.path.normpath(path)).parents:
            raise OptionError(_SET.name, f"'remove': {path} is not in the scratch directory")


def _case(options: Options) -> dict[str, Scalar]:
    """Return the case parameters: the command, what it executes, and how the case changes it."""
    command = find_command(options)
    case: dict[str, Scalar] = {
        "command": command.name,
        "definition": command.digest(),
        "ranks": options.number("ranks"),
        "nodes": options.number("nodes"),
    }
    if _SET.name in options:
        case["set"] = options.text(_SET.name)
    if command.fields.drop_cache:
        case["cache"] = "drop"
    return case


def _searches(command: Command) -> list[MetricSearch]:
    searches: list[MetricSearch] = []
    for name, fields in command.fields.metrics.items():
        metric = metric_of_unit(fields.unit, fields.direction).name
        searches.append(MetricSearch(name, metric, fields.unit, fields.pattern, fields.json_path, fields.take))
    return searches


def _record_definition(options: Options) -> dict[str, Any]:
    """Return what the record of a run repeats: all that its output is read by."""
    command = find_command(options)
    metrics: list[dict[str, Any]] = []
    for search in _searches(command):
        metrics.append(
            {
                "name": search.name,
                "metric": search.metric,
                "unit": search.unit,
                "pattern": search.pattern,
                "json": search.path,
                "take": search.take,
            }
        )
    return {
        "case": _case(options),
        "program": _program(options),
        "arguments": command.fields.arguments,
        "exit_status": command.fields.exit_status,
        "time": command.fields.time,
        "has_output_file": command.fields.output_file is not None,
        "metrics": metrics,
    }


def _configuration(options: Options) -> dict[str, str]:
    """Return the files of the job: the definition on one line, and the script."""
    return {DEFINITION_FILE: json.dumps(_record_definition(options), sort_keys=True) + "\n", SCRIPT_FILE: SCRIPT}


def _expects(options: Options) -> tuple[tuple[str, str], ...]:
    command = find_command(options)
    results = [(search.name, search.metric) for search in _searches(command)]
    if command.fields.time:
        results.append((RUN_OPERATION, _TIME))
    return tuple(results)


# --- after the run ---------------------------------------------------------------------------------------------------


def parse_command(builder: parsing.OutputBuilder, lines: parsing.CleanLines, context: parsing.RunContext) -> None:
    """Parse the output of a command: numbers and time in its record."""
    record_lines = RecordLines()
    for line in lines:
        record_lines.add(line)
        lines.decided = record_lines.heads > 1
    builder.recognised = record_lines.heads > 0
    if record_lines.heads > 1:
        builder.add_failure("output of more than one run of a command")
        return
    if not record_lines.is_complete or not lines.ended:
        builder.add_truncation(f"the output ends before its record (`{FORMAT}`): the program or its job did not end")
        return
    try:
        record = parse_record(record_lines.record)
        _add_results(builder, record, context)
    except RecordError as error:
        builder.add_truncation(str(error))
    except (KeyError, TypeError) as error:
        builder.add_truncation(f"the definition in the record lacks something: {error}")


def _add_results(builder: parsing.OutputBuilder, record: CommandRecord, context: parsing.RunContext) -> None:
    """Add the results of a record to the builder; a number that is missing is a failure, and then there are none.

    Raises:
        KeyError, TypeError: the definition is of another form.
    """
    definition = record.definition
    case: dict[str, Scalar] = definition["case"]
    mismatch = context.rank_mismatch_reason(case["ranks"], "the command")
    if mismatch is not None:
        builder.add_failure(mismatch)
        return
    if record.seconds is None:
        builder.add_failure(
            f"the program '{definition['program']}' is not on the PATH of the stack; expected in one of "
            f"{record.search_path}: install it, or add its directory to the stack"
        )
        return
    builder.facts["exit_status"] = record.status
    if record.status != definition["exit_status"]:
        builder.add_failure(_wrong_status(record))
        return
    values: list[tuple[MetricSearch, float]] = []
    for row in definition["metrics"]:
        search = MetricSearch(row["name"], row["metric"], row["unit"], row["pattern"], row["json"], row["take"])
        try:
            values.append((search, _read(record, search)))
        except ValueMissingError as error:
            builder.add_failure(str(error))
    # A run without one of its numbers is not the run that was asked for.
    if not builder.has_no_problem:
        return
    for search, value in values:
        builder.add_samples(search.name, search.metric, [value], case)
    if definition["time"]:
        builder.add_samples(RUN_OPERATION, _TIME, [record.seconds], case)


def _read(record: CommandRecord, search: MetricSearch) -> float:
    """Return the number of one metric.

    Raises:
        ValueMissingError: it is not there, or not usable.
    """
    names: tuple[str, ...]
    if record.definition["has_output_file"]:
        lines_text = json_text = record.texts["file"].text
        names = ("file",)
    else:
        json_text = record.texts["stdout"].text
        lines_text = f"{json_text}\n{record.texts['stderr'].text}"
        names = ("stdout", "stderr")
    try:
        return read_value(search, lines_text, json_text)
    except ValueMissingError as error:
        longer = [name for name in names if record.texts[name].size_bytes > TEXT_BYTES]
        if longer:
            raise ValueMissingError(f"{error}; only the last {TEXT_BYTES} bytes of {longer[0]} are searched") from None
        raise


def _wrong_status(record: CommandRecord) -> str:
    """Return the reason for another exit status than the expected one, with the end of what the program printed."""
    expected = record.definition["exit_status"]
    printed = record.texts["stderr"].text.strip() or record.texts["stdout"].text.strip()
    last_line = printed.splitlines()[-1][:200] if printed else "nothing"
    return f"the program ended with exit status {record.status}, expected {expected}; its last line is '{last_line}'"


COMMAND = benchmark.Benchmark(
    name="command",
    title="Command",
    check="CommandCheck",
    parse=parse_command,
    banner=rf"^{FORMAT} \S",
    options=_OPTIONS,
    definition_fields=CommandFields,
    program=_program,
    arguments=_arguments,
    wrapper=_wrapper,
    requires=lambda options: ("mpi", *find_command(options).fields.requires),
    expects=_expects,
    samples=benchmark.repetitions,
    runs=benchmark.repetitions,
    shows=_case,
    case=_case,
    configuration=_configuration,
    environment=_environment,
    prepare=_prepare,
    before=_before,
    file_bytes=lambda options: parse_size(find_command(options).fields.scratch_bytes),
    volume_bytes=lambda options: parse_size(find_command(options).fields.volume_bytes) * benchmark.repetitions(options),
    can_be_traced=False,
)
