"""Descriptions of workloads (docs/workloads.md) without running them: their expressions, and what each rank does.

benchio itself reads descriptions in C and refuses wrong ones; this module is for those who need to know what one means:
plans, pages, tests.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from iowatch.core import InputError, format_count, settings
from iowatch.core.yamlfile import read_mapping

_LIMIT = 1 << 63
_MAX_LENGTH = 65_536
_TYPE_BYTES = {"byte": 1, "int": 4, "long": 8, "float": 4, "double": 8}
Number = int | float
Names = Mapping[str, Number | str]

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def evaluate(expression: Any, names: Names, real: bool = False) -> Number:
    """Return the value of an expression of a description.

    Args:
        expression: a number, or a text.
        names: values of the names in it; a text can only be compared with a word.
        real: divisions keep their fraction, and decimals are allowed.

    Raises:
        InputError: not an expression, an unknown name, overflow of 64 bits, or division by zero.
    """
    if isinstance(expression, bool):
        return int(expression)
    if isinstance(expression, int) or (real and isinstance(expression, float)):
        return expression
    if not isinstance(expression, str) or len(expression) > _MAX_LENGTH:
        raise InputError(f"'{str(expression)[:80]}' is not an expression")
    try:
        return _value(_parse(expression), names, real)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"'{expression[:80]}' is not an expression") from error
    except ZeroDivisionError as error:
        raise InputError(f"'{expression[:80]}' divides by zero") from error
    except OverflowError as error:
        raise InputError(f"'{expression[:80]}' passes 64 bits") from error


@lru_cache(maxsize=4096)
def _parse(expression: str) -> ast.expr:
    return ast.parse(expression.strip().replace("^", "**"), mode="eval").body


def _value(node: ast.expr, names: Names, real: bool) -> Number:
    return _checked(_raw_value(node, names, real))


def _checked(value: Number) -> Number:
    if not -_LIMIT <= value < _LIMIT or (isinstance(value, float) and not math.isfinite(value)):
        raise OverflowError
    return value


def _raw_value(node: ast.expr, names: Names, real: bool) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if real or isinstance(number, int):
            return int(number) if isinstance(number, bool) else number
        case ast.Name(id="true" | "false" as word):
            return int(word == "true")
        case ast.Name(id=name):
            if name not in names:
                raise InputError(f"unknown name '{name}'; known: {', '.join(sorted(names))}")
            value = names[name]
            if isinstance(value, str):
                raise InputError(f"'{name}' is a text, not a number")
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names, real)
        case ast.BinOp():
            return _chain(node, names, real)
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Eq() | ast.NotEq() as op], comparators=[ast.Name(id=word)]
        ) if isinstance(names.get(name), str):
            return int((names[name] == word) == isinstance(op, ast.Eq))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return int(_COMPARE[type(op)](_value(left, names, real), _value(right, names, real)))
        case ast.BoolOp(op=op, values=values):
            truths = (_value(value, names, real) != 0 for value in values)
            return int(all(truths) if isinstance(op, ast.And) else any(truths))
        case ast.Call(func=ast.Name(id="min"), args=[left, right], keywords=[]):
            return min(_value(left, names, real), _value(right, names, real))
        case ast.Call(func=ast.Name(id="max"), args=[left, right], keywords=[]):
            return max(_value(left, names, real), _value(right, names, real))
    raise ValueError(ast.dump(node)[:80])


def _chain(node: ast.expr, names: Names, real: bool) -> Number:
    """The value of `a + b + c …`: sums over ranks have more terms than Python's recursion may be deep."""
    terms: list[ast.BinOp] = []
    while isinstance(node, ast.BinOp):
        terms.append(node)
        node = node.left
    value = _value(node, names, real)
    for term in reversed(terms):
        value = _checked(_binary(term.op, value, _value(term.right, names, real), real))
    return value


def _binary(op: ast.operator, left: Number, right: Number, real: bool) -> Number:
    if isinstance(op, ast.Div):
        return left / right if real else left // right
    if isinstance(op, ast.Pow):
        if right < 0 or (abs(left) > 1 and right > 64):
            raise OverflowError
        return left**right
    if type(op) not in _BINARY:
        raise ValueError(type(op).__name__)
    return _BINARY[type(op)](left, right)


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that one rank does.

    Attributes:
        verb: `create`, `open`, `write`, `read`, `flush`, `close`, `stat`, `remove`, `barrier`, `compute` or `work`.
        file, number: which file; the number counts the files of one name that this rank has.
        owner: which of the files of that name and number: the lowest rank that shares it.
        offset, size: first byte in the file and number of bytes; with datasets as if these followed each other.
        span: bytes from the first to behind the last one; more than `size` if the part is not contiguous.
        parts: of a view: offset and size of each part.
        value: seconds of `compute`, number of `work`.
    """

    verb: str
    file: str = ""
    number: int = 0
    owner: int = 0
    offset: int = 0
    size: int = 0
    span: int = 0
    collective: bool = False
    value: float = 0.0
    parts: tuple[tuple[int, int], ...] = ()


@dataclass
class Workload:
    """A description with the values of its parameters, for so many ranks.

    Attributes:
        document: as in the file, valid against the schema.
        ranks, nodes: ranks are on nodes in blocks.
        changed: parameters with other values than those of the document.

    Raises:
        InputError: the document holds for another number of ranks only.
    """

    document: Mapping[str, Any]
    ranks: int
    nodes: int = 1
    changed: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (only := self.document.get("ranks", self.ranks)) != self.ranks:
            raise InputError(
                f"workload {self.document['name']} is described for {only} ranks only: it cannot run on {self.ranks}",
                hint="Trace the application on the ranks that you want, and describe that log.",
            )
        common: dict[str, Number | str] = {"ranks": self.ranks, "nodes": self.nodes}
        for name, value in self.document.get("parameters", {}).items():
            common[name] = _parameter(self.changed.get(name, value), common)
        self._texts = {name: value for name, value in common.items() if isinstance(value, str)}
        self._names = [self._rank_names(rank, common) for rank in range(self.ranks)]
        self._members: dict[str, dict[int, int]] = {}

    @property
    def phases(self) -> list[str]:
        """The names of the phases, in order."""
        return [phase["name"] for phase in self.document["phases"]]

    def text(self, value: Any) -> str:
        """Return a text, or that of the parameter `$name`."""
        if isinstance(value, str) and value.startswith("$"):
            return str(self._texts.get(value.removeprefix("$"), value))
        return str(value)

    def value(self, expression: Any, rank: int = 0, real: bool = False) -> Number:
        """Return the value of an expression on a rank."""
        return evaluate(expression, self._names[rank], real)

    def members(self, name: str) -> Mapping[int, int]:
        """Return each rank that has part in the files of a name, and the lowest rank that shares its file."""
        if name not in self._members:
            file = self.document["files"][name]
            # Where a file is says the one that it is the same as.
            stored = self.document["files"][file.get("same_as", name)]
            layout, group = self.text(stored.get("layout", "shared")), stored.get("group")
            lowest: dict[Number, int] = {}
            owners = {}
            for rank in range(self.ranks):
                if not self._takes_part(file.get("ranks"), rank, self._names[rank]):
                    continue
                # Ranks of the same group share a file.
                if group is not None:
                    group_number = self.value(group, rank)
                else:
                    groups: dict[str, Any] = {"shared": 0, "per-process": rank, "per-node": self._names[rank]["node"]}
                    group_number = groups[layout]
                owners[rank] = lowest.setdefault(group_number, rank)
            self._members[name] = owners
        return self._members[name]

    def operations(self, phase: int, rank: int) -> Iterator[Operation]:
        """Yield what one rank does in one phase, in order.

        Raises:
            InputError: an expression has no value.
        """
        yield from self._walk(self.document["phases"][phase]["actions"], rank, dict(self._names[rank]))

    def file_names(self, name: str, rank: int) -> dict[str, Number | str]:
        """Return what expressions of a file and of its actions know on a rank that has part in it."""
        owners = self.members(name)
        sharing = [member for member, owner in owners.items() if owner == owners[rank]]
        return {**self._names[rank], "file_ranks": len(sharing), "file_rank": sharing.index(rank)}

    def _rank_names(self, rank: int, common: Names) -> dict[str, Number | str]:
        names = {**common, "rank": rank, "node": rank * self.nodes // self.ranks}
        for name, expression in self.document.get("variables", {}).items():
            names[name] = evaluate(expression, names)
        return names

    def _takes_part(self, ranks: Any, rank: int, names: Names) -> bool:
        """Whether a rank is among those of an action: all, a list of numbers, or those that meet a condition."""
        if ranks is None or ranks == "all":
            return True
        if isinstance(ranks, list):
            return rank in [evaluate(expression, names) for expression in ranks]
        return evaluate(ranks, names) != 0

    def _walk(self, actions: Sequence[Any], rank: int, names: dict[str, Number | str]) -> Iterator[Operation]:
        for action in actions:
            if action == "barrier":
                yield Operation("barrier")
            elif "repeat" in action:
                if self._takes_part(action.get("ranks"), rank, names):
                    for turn in range(int(evaluate(action["repeat"], names))):
                        inner = {**names, action["index"]: turn} if "index" in action else names
                        yield from self._walk(action["actions"], rank, inner)
            elif "compute" in action or "work" in action:
                verb = next(verb for verb in ("compute", "work") if verb in action)
                if self._takes_part(action.get("ranks"), rank, names):
                    yield Operation(verb, value=float(evaluate(action[verb], names, real=True)))
            else:
                yield from self._file_operations(action, rank, names)

    def _file_operations(
        self, action: Mapping[str, Any], rank: int, names: dict[str, Number | str]
    ) -> Iterator[Operation]:
        verb, name = next(iter((verb, str(action[verb])) for verb in _FILE_VERBS if verb in action))
        owners = self.members(name)
        if rank not in owners:
            return
        names = {**names, **self.file_names(name, rank)}
        if not self._takes_part(action.get("ranks"), rank, names):
            return
        number = int(evaluate(action.get("number", 0), names))
        collective = bool(evaluate(action.get("collective", 0), names))
        if verb not in ("write", "read"):
            yield Operation(verb, name, number, owners[rank])
            return
        file = self.document["files"][name]
        parts = self._parts(action, file, names)
        if evaluate(action.get("view", 0), names):
            if not self._has_views(action, file, names):
                raise InputError(f"{_action_name(action)}: only a collective operation of mpiio has a view")
            viewed = tuple((offset, size) for offset, size, _ in parts)
            first, size, end = viewed[0][0], sum(size for _, size in viewed), sum(viewed[-1])
            yield Operation(verb, name, number, owners[rank], first, size, end - first, True, parts=viewed)
            return
        for offset, size, span in parts:
            yield Operation(verb, name, number, owners[rank], offset, size, span, collective)

    def _has_views(self, action: Mapping[str, Any], file: Mapping[str, Any], names: Names) -> bool:
        """Whether MPI-IO has a file view for it: one that all ranks of the file set together."""
        return bool(evaluate(action.get("collective", 0), names)) and self.text(file["api"]) == "mpiio"

    def _parts(
        self, action: Mapping[str, Any], file: Mapping[str, Any], names: Names
    ) -> Iterator[tuple[int, int, int]]:
        if "list" in action:
            for pair in action["list"]:
                offset, size = (int(evaluate(expression, names)) for expression in pair)
                yield offset, size, size
        elif "dataset" in action:
            yield self._dataset_part(action, file, names)
        elif "shape" in action:
            if not self._has_views(action, file, names):
                raise InputError(f"{_action_name(action)}: only a collective operation of mpiio has a shape")
            shape = [int(evaluate(n, names)) for n in action["shape"]]
            yield _box(action, shape, 1, int(evaluate(action["offset"], names)), names)
        else:
            offset, size, count = (int(evaluate(action.get(key, 1), names)) for key in ("offset", "size", "count"))
            stride = int(evaluate(action.get("stride", size), names))
            for turn in range(count):
                yield offset + turn * stride, size, size

    def _dataset_part(self, action: Mapping[str, Any], file: Mapping[str, Any], names: Names) -> tuple[int, int, int]:
        base = 0
        for name, dataset in file["datasets"].items():
            shape = [int(evaluate(n, names)) for n in dataset["shape"]]
            element = _TYPE_BYTES[dataset["type"]]
            whole = math.prod(shape) * element
            if name == action["dataset"]:
                base += whole * int(evaluate(action.get("dataset_number", 0), names))
                break
            base += whole * int(evaluate(dataset.get("count", 1), names))
        return _box(action, shape, element, base, names)


def _box(
    action: Mapping[str, Any], shape: Sequence[int], element: int, base: int, names: Names
) -> tuple[int, int, int]:
    """Offset, size and span of a part of an array that begins at `base`."""
    for key in ("start", "count"):
        if len(action[key]) != len(shape):
            raise InputError(
                f"{_action_name(action)}: {key} has {format_count(len(action[key]), 'value')}, expected {len(shape)}: "
                "one for each dimension"
            )
    start = [int(evaluate(expression, names)) for expression in action["start"]]
    count = [int(evaluate(expression, names)) for expression in action["count"]]
    # Bytes from one index of each dimension to the next: the last dimension is contiguous.
    strides = [math.prod(shape[dimension + 1 :]) * element for dimension in range(len(shape))]
    size = math.prod(count) * element
    first = base + sum(index * stride for index, stride in zip(start, strides, strict=True))
    if size == 0:
        return first, 0, 0
    last = sum((length - 1) * stride for length, stride in zip(count, strides, strict=True))
    return first, size, last + element


def _action_name(action: Mapping[str, Any]) -> str:
    """Return `write of DATASET of FILE`, for messages."""
    verb = next(verb for verb in _FILE_VERBS if verb in action)
    names = [str(action[key]) for key in ("dataset", verb) if key in action]
    return f"{verb} of {' of '.join(names)}"


_FILE_VERBS = ("create", "open", "write", "read", "flush", "close", "stat", "remove")


def _parameter(value: Any, names: Names) -> Number | str:
    """The value of a parameter: a number, an expression of those above, or a text."""
    if isinstance(value, float):
        return value
    try:
        return evaluate(value, names, real=False)
    except InputError:
        return str(value)


def data_bytes(workload: Workload, name: str) -> int:
    """Return the bytes of all files of a name together, without what libraries add; 0 if it is another file, too."""
    file = workload.document["files"][name]
    if "same_as" in file:
        return 0
    total = 0
    for rank in sorted(set(workload.members(name).values())):
        names = workload.file_names(name, rank)
        sizes = [int(evaluate(file.get(key, 0), names)) for key in ("bytes", "attributes")]
        for dataset in file.get("datasets", {}).values():
            shape = [int(evaluate(n, names)) for n in dataset["shape"]]
            copies = int(evaluate(dataset.get("count", 1), names))
            sizes.append(math.prod(shape) * _TYPE_BYTES[dataset["type"]] * copies)
        total += sum(sizes) * int(evaluate(file.get("count", 1), names))
    return total


def file_count(workload: Workload, name: str) -> int:
    """Return the number of all files of a name; 0 if it is another file, too."""
    if "same_as" in workload.document["files"][name]:
        return 0
    count = workload.document["files"][name].get("count", 1)
    owners = set(workload.members(name).values())
    return sum(int(evaluate(count, workload.file_names(name, rank))) for rank in owners)


def read_description(path: Path) -> dict[str, Any]:
    """Read a description, checked against the schema.

    Raises:
        InputError: not YAML, or against the schema (with file and field).
    """
    import jsonschema  # takes long to import, and few commands read a description

    document = read_mapping(path, "docs/workloads.md#description")
    schema = settings.product_root() / "benchmarks" / "benchio" / "schema" / "workload.json"
    checker = jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    fault = jsonschema.exceptions.best_match(checker.iter_errors(document))
    if fault:
        field = ".".join(map(str, fault.absolute_path)) or "the description"
        hint = "`benchio --workload FILE --check` names line and column; docs/workloads.md has the format."
        raise InputError(f"{path}: {field}: {fault.message[:200]}", hint=hint)
    return document


_MAX_DEFAULT_RANKS = 1 << 16


def default_ranks(document: Mapping[str, Any]) -> int:
    """Return the ranks that a workload was made from, or 4."""
    traced_ranks = document.get("parameters", {}).get("traced_ranks")
    if isinstance(traced_ranks, int) and 0 < traced_ranks <= _MAX_DEFAULT_RANKS:
        return traced_ranks
    return 4


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes an action or a file on one line; no aliases, which benchio refuses."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        """One line unless it has actions; a mapping of mappings is always a block."""
        nested = any(isinstance(value, dict) or key in ("phases", "actions") for key, value in dict(mapping).items())
        return super().represent_mapping(tag, mapping, flow_style=not nested and "name" not in mapping)

    def represent_list(self, data: Any) -> yaml.SequenceNode:
        """One line unless it is a list of actions."""
        plain = not any(isinstance(value, dict | str) for value in data) or all(isinstance(v, int | str) for v in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=plain)


_Dumper.add_representer(dict, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data))
_Dumper.add_representer(list, _Dumper.represent_list)


def format_description(document: Mapping[str, Any]) -> str:
    """Return the text of a description, one action per line."""
    return str(yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True))
