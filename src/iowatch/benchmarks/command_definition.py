"""The commands that a suite defines: program, arguments, and what is read from the output (docs/commands.md).

    commands:
      compress:
        program: nccopy
        arguments: [-d, "{level}", "{scratch}/in.nc", "{scratch}/out.nc"]
        parameters: {level: 1}
        metrics:
          rate: {pattern: '([0-9.]+) MB/s', unit: MB/s}

`{scratch}` is the directory of the case, `{directory}` that of the suite's file, `{level}` a parameter.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from iowatch.benchmarks.command_metrics import PathError, compiled_pattern, metric_of_unit, parsed_path
from iowatch.benchmarks.options import DEFINITION_NAME
from iowatch.core import canonical_json, parse_size, suggest_name, to_stored_unit
from iowatch.core.yamlfile import CheckedModel, reported_as_field_fault

# The result with the wall time of the program.
RUN_OPERATION = "run"
# Placeholders that every command has.
_SCRATCH, _DIRECTORY = "scratch", "directory"
_PLACEHOLDER = re.compile(r"\{\{([a-z]\w*)\}\}|\{([a-z]\w*)\}")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
# Digits of the SHA-256 that identifies a definition in case parameters, as for workloads.
_DIGEST_DIGITS = 8
_NOT_EXECUTED = {"metrics", "time", "exit_status", "requires", "scratch_bytes", "volume_bytes"}
# A larger input file is part of the identity by its size only: the digest is computed for every case.
_LARGEST_DIGESTED_BYTES = 16 << 20


def _check_name(name: str) -> str:
    if not DEFINITION_NAME.fullmatch(name):
        raise ValueError("expected a name of at most 40 small letters, digits, - and _ that begins with a letter")
    return name


def _check_result_name(name: str) -> str:
    if name == RUN_OPERATION:
        raise ValueError(f"'{RUN_OPERATION}' is the result with the program's wall time; expected another name")
    return _check_name(name)


def _check_program(text: str) -> str:
    if not text.strip():
        raise ValueError("expected the name of a program on the PATH of the stack, or its path")
    if f"{{{_SCRATCH}}}" in text:
        raise ValueError("the scratch directory has no program before the run; expected a name, or '{directory}/NAME'")
    return text


def _check_pattern(text: str) -> str:
    try:
        compiled_pattern(text)
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        raise ValueError(f"not a regular expression: {error.msg}{where}; expected one of Python's re") from None
    except PathError as error:
        raise ValueError(str(error)) from None
    return text


def _check_json_path(text: str) -> str:
    try:
        parsed_path(text)
    except PathError as error:
        raise ValueError(str(error)) from None
    return text


def _check_unit(unit: str) -> str:
    with reported_as_field_fault():
        to_stored_unit(1.0, unit)
    return unit


def _check_size(text: str) -> str:
    with reported_as_field_fault():
        parse_size(text)
    return text


def _check_scratch_path(text: str) -> str:
    if not text.startswith("{scratch}/") or ".." in Path(text).parts:
        raise ValueError("expected a path in the scratch directory, '{scratch}/NAME'")
    return text


def _check_variable_value(text: str) -> str:
    # Variables are set for the whole job, before its directory has a name.
    if f"{{{_SCRATCH}}}" in text:
        raise ValueError("a variable cannot name the scratch directory; expected it in 'arguments'")
    return text


def _check_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("expected the name of a variable")
    return name


def _number_as_text(value: object) -> object:
    """A number as the text that a program is given; `true` and other values are left to the check of the type."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


_Name = Annotated[str, AfterValidator(_check_name)]
_ResultName = Annotated[str, AfterValidator(_check_result_name)]
_Word = Annotated[str, BeforeValidator(_number_as_text)]
_Size = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_check_size)]
_ScratchPath = Annotated[str, AfterValidator(_check_scratch_path)]
_VariableValue = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_check_variable_value)]
_Variable = Annotated[str, AfterValidator(_check_variable)]


class MetricFields(CheckedModel):
    """One number in the output of a command."""

    docs = "docs/commands.md#fields"
    pattern: Annotated[str, AfterValidator(_check_pattern)] | None = None
    json_path: Annotated[str, AfterValidator(_check_json_path)] | None = Field(default=None, alias="json")
    unit: Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_check_unit)]
    direction: Literal["higher", "lower"] | None = None
    take: Literal["first", "last", "least", "largest", "median", "sum"] | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> MetricFields:
        if (self.pattern is None) == (self.json_path is None):
            raise ValueError("expected one of 'pattern' and 'json'")
        with reported_as_field_fault():
            metric_of_unit(self.unit, self.direction)
        return self


class CommandFields(CheckedModel):
    """One command of a suite."""

    docs = "docs/commands.md#fields"
    program: Annotated[str, AfterValidator(_check_program)]
    arguments: list[_Word] = Field(default_factory=list)
    parameters: dict[_Name, _Word] = Field(default_factory=dict)
    prepare: list[Annotated[list[_Word], Field(min_length=1)]] = Field(default_factory=list)
    remove: list[_ScratchPath] = Field(default_factory=list)
    drop_cache: list[_ScratchPath] = Field(default_factory=list)
    environment: dict[_Variable, _VariableValue] = Field(default_factory=dict)
    requires: list[str] = Field(default_factory=list)
    output_file: str | None = None
    exit_status: Annotated[int, Field(ge=0, le=125)] = 0
    time: bool = True
    scratch_bytes: _Size = "0"
    volume_bytes: _Size = "0"
    metrics: dict[_ResultName, MetricFields] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_fields(self) -> CommandFields:
        if not self.time and not self.metrics:
            raise ValueError("nothing is measured: expected 'metrics', or no 'time: false'")
        for reserved in (_SCRATCH, _DIRECTORY):
            if reserved in self.parameters:
                raise ValueError(f"parameter '{reserved}': the name has a meaning of its own; expected another name")
        for text in self.filled_texts():
            for match in _PLACEHOLDER.finditer(text):
                name = match[2]
                if name is not None and name not in self.placeholders:
                    hint = suggest_name(name, self.placeholders)
                    raise ValueError(f"'{text}': no parameter '{name}'. {hint} {{{{{name}}}}} is the text {{{name}}}.")
        return self

    @property
    def placeholders(self) -> list[str]:
        """Names that texts may have in braces."""
        return [_SCRATCH, _DIRECTORY, *self.parameters]

    def filled_texts(self) -> list[str]:
        """All texts in which placeholders are replaced."""
        texts = [self.program, *self.arguments, *self.environment.values(), *self.remove, *self.drop_cache]
        for words in self.prepare:
            texts += words
        if self.output_file is not None:
            texts.append(self.output_file)
        return texts


@dataclass(frozen=True)
class Command:
    """A command of a suite with the values of its parameters.

    Attributes:
        name: by which the suite names it.
        fields: as the suite's file has them.
        directory: of the suite's file.
        values: of its parameters.
    """

    name: str
    fields: CommandFields
    directory: Path
    values: Mapping[str, str]

    def filled(self, text: str, scratch: str) -> str:
        """Return a text of the definition with its placeholders replaced.

        Args:
            scratch: directory of the case.
        """
        values = {**self.values, _SCRATCH: scratch, _DIRECTORY: str(self.directory)}

        def replacement(match: re.Match[str]) -> str:
            return f"{{{match[1]}}}" if match[1] is not None else values[match[2]]

        return _PLACEHOLDER.sub(replacement, text)

    def filled_words(self, texts: Iterable[str], scratch: str) -> list[str]:
        """Return several texts with their placeholders replaced."""
        return [self.filled(text, scratch) for text in texts]

    def digest(self) -> str:
        """Return digits that identify what is executed; another definition, or other input files, give others.

        Left out is what changes only which numbers are read, and where and whether the case is run.
        """
        document = self.fields.model_dump(mode="json", exclude=_NOT_EXECUTED)
        document["files"] = self._file_digests()
        return hashlib.sha256(canonical_json(document).encode()).hexdigest()[:_DIGEST_DIGITS]

    def _file_digests(self) -> dict[str, str]:
        """SHA-256, or the size, of each file of the suite's directory that the definition names."""
        digests: dict[str, str] = {}
        for text in self.fields.filled_texts():
            if f"{{{_DIRECTORY}}}" not in text:
                continue
            path = Path(self.filled(text, ""))
            if not path.is_file():
                continue
            size = path.stat().st_size
            if size > _LARGEST_DIGESTED_BYTES:
                digests[text] = f"{size} bytes"
            else:
                digests[text] = hashlib.sha256(path.read_bytes()).hexdigest()
        return digests
