"""Case parameters of storage benchmarks: their prior costs as common factors, their words, and the names of cases.

The statistics know no parameter by name; `CASE_PARAMETERS` is the vocabulary that they are given.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from iowatch.core import HINTS, MIB, Scalar, describe_hints, format_size, split_hints
from iowatch.statistics import ParameterVocabulary

Parameters = Mapping[str, Scalar]

# HDF5, NetCDF-4 and PnetCDF write a shared file through MPI-IO.
_OVER_MPIIO = {"HDF5", "NETCDF4", "PNETCDF"}

# Prior cost in bits of a condition on each parameter. Interfaces, file layout and alignment are code paths of a file
# system; the name of a benchmark or a size is hardly ever a cause by itself.
_PRIOR_COST_BITS: dict[str, float] = {
    "mpiio": 1.0,
    "file": 1.1,
    "operation": 1.2,
    "aligned": 1.2,
    "file_system": 1.2,
    "stack": 1.3,
    "partition": 1.3,
    "api": 1.5,
    "stripe_count": 1.6,
    "collective": 1.6,
    "cb": 1.6,
    "ds": 2.0,
    "pattern": 2.0,
    "nodes": 2.2,
    "layout": 2.2,
    "ranks": 2.5,
    "transfer_bytes": 2.5,
    "benchmark": 2.6,
    "total_bytes": 5.0,
    "block_bytes": 5.0,
    "segments": 5.0,
    "local_size": 5.0,
    "global_size": 5.0,
}
# Prior cost of every other parameter.
_DEFAULT_PRIOR_COST_BITS = 3.5
# `POSIX` or `file per process` is more specific than `not MPI-IO`.
_VALUE_BITS: dict[tuple[str, Scalar], float] = {("mpiio", False): 0.6}
_SIZES = (
    *("transfer_bytes", "block_bytes", "total_bytes", "stripe_bytes", "alignment_bytes"),
    *(name for name, hint in HINTS.items() if hint.is_size),
)

# Order of the conditions in text: "unaligned MPI-IO shared file reads".
_TEXT_ORDER = ("file_system", "partition", "stack", "benchmark", "aligned", "mpiio", "api", "file", "operation")


def _hint_labels() -> dict[tuple[str, Scalar], str]:
    """Words for the values of MPI-IO hints that are words."""
    labels: dict[tuple[str, Scalar], str] = {}
    for name, hint in HINTS.items():
        for value in hint.values or ():
            labels[name, value] = describe_hints(f"{name}={value}")
    return labels


_VALUE_LABELS: dict[tuple[str, Scalar], str] = {
    ("mpiio", True): "MPI-IO",
    ("mpiio", False): "not MPI-IO",
    ("api", "MPIIO"): "MPI-IO",
    ("api", "NETCDF4"): "NetCDF-4",
    ("api", "PNETCDF"): "PnetCDF",
    ("file", "shared"): "shared file",
    ("file", "per-process"): "file per process",
    ("file", "per-node"): "file per node",
    ("aligned", True): "aligned",
    ("aligned", False): "unaligned",
    ("collective", True): "collective",
    ("collective", False): "independent",
    ("stripe_count", -1): "full striping",
    ("stripe_count", 0): "default striping",
    ("operation", "write"): "writes",
    ("operation", "read"): "reads",
    **_hint_labels(),
}
_BARE = ("operation", "api", "benchmark", "stack", "partition", "file_system", "pattern", "hints", "layout")
# Stripe counts that mean "the default" and "all targets".
_SPECIAL_NUMBERS = {"stripe_count": frozenset({-1, 0})}
# Each concept is named once: MPI-IO and `api != POSIX` mean the same.
_CONCEPTS = {"mpiio": "interface", "api": "interface", "transfer_bytes": "transfer", "aligned": "transfer"}
# Parameters that may name a control group.
_CONTROL_PARAMETERS = ("api", "file", "aligned", "operation", "collective", "file_system", "partition", "stack")


# Smallest unit of a page cache; a smaller transfer reads a page in order to write it.
_PAGE_BYTES = 4096


def derive_parameters(parameters: Parameters) -> dict[str, Scalar]:
    """Parameters, and those derived from them that matter to a file system.

    `aligned`: transfers of whole MiB, or that divide it and are whole pages (Lustre's and GPFS's blocks are multiples
    of 2^20 bytes, or divide it): no transfer touches a part of a page, or two stripes where one would do;
    `mpiio`: the file is reached through MPI-IO, directly or below HDF5, NetCDF-4, PnetCDF; each of the `hints`.
    """
    derived = dict(parameters)
    for name, value in split_hints(str(derived.pop("hints", ""))).items():
        derived.setdefault(name, int(value) if value.isdecimal() else value)
    transfer = parameters.get("transfer_bytes")
    if isinstance(transfer, int) and transfer > 0:
        derived["aligned"] = transfer % MIB == 0 or (MIB % transfer == 0 and transfer >= _PAGE_BYTES)
    api = parameters.get("api")
    if isinstance(api, str):
        derived["mpiio"] = api == "MPIIO" or (api in _OVER_MPIIO and parameters.get("file") == "shared")
    return derived


def format_parameter_value(parameter: str, value: Scalar) -> str:
    """The value of a parameter as text: `1 MiB`, `1,000,000 B`, `shared file`."""
    if (parameter, value) in _VALUE_LABELS:
        return _VALUE_LABELS[parameter, value]
    if parameter == "hints":
        return describe_hints(str(value))
    if parameter in _SIZES and isinstance(value, int):
        return format_size(value) if value % 1024 == 0 else f"{value:,} B"
    return str(value).lower() if isinstance(value, bool) else str(value)


_ALWAYS_NAMED = ("benchmark", "operation", "api", "file")
_HIDDEN = ("aligned", "mpiio", *_ALWAYS_NAMED)


# A case with more differing parameters than this is named without those that have their usual value.
_MAX_NAMED = 4


def short_case_names(cases: Sequence[Parameters]) -> list[str]:
    """One name per case: benchmark, operation, api, file layout, and other parameters that differ in the benchmark.

    Where these are many, those with the usual value of such cases are left out, unless two cases would get one name.

    Args:
        cases: parameters with `benchmark` among them.
    """
    groups: dict[str, list[Parameters]] = defaultdict(list)
    alike: dict[str, list[Parameters]] = defaultdict(list)
    heads = [_format_head(case) for case in cases]
    for case, head in zip(cases, heads, strict=True):
        groups[str(case.get("benchmark"))].append(case)
        alike[head].append(case)
    differing = {name: _differing_parameters(group) for name, group in groups.items()}
    usual = {head: _usual_values(group) for head, group in alike.items()}
    full_names: list[str] = []
    short_names: list[str] = []
    for case, head in zip(cases, heads, strict=True):
        present = [key for key in differing[str(case.get("benchmark"))] if key in case]
        full_names.append(_format_name(head, case, present))
        unusual = present
        if len(present) > _MAX_NAMED:
            unusual = [key for key in present if (case[key] or None) != usual[head][key]]
        short_names.append(_format_name(head, case, unusual))
    # A short name that two cases share tells them apart no more. Several series may have one case.
    different_cases = set(zip(short_names, full_names, strict=True))
    cases_of_short_name = Counter(short_name for short_name, _ in different_cases)
    names: list[str] = []
    for short_name, full_name in zip(short_names, full_names, strict=True):
        is_unique = cases_of_short_name[short_name] == 1
        names.append(short_name if is_unique else full_name)
    return names


def _format_name(head: str, case: Parameters, keys: Sequence[str]) -> str:
    return " ".join([head, *(_format_parameter(key, case[key]) for key in keys)])


def _format_head(case: Parameters) -> str:
    """The parameters that every name has: `ior read MPI-IO shared file`."""
    words: list[str] = []
    for key in _ALWAYS_NAMED:
        if key in case:
            value = case[key]
            words.append(str(value) if key == "operation" else format_parameter_value(key, value))
    return " ".join(words)


def _usual_values(alike: Sequence[Parameters]) -> dict[str, Scalar | None]:
    """The most common value of each parameter; None (absent, false or 0) where it is not set in some of the cases."""
    usual: dict[str, Scalar | None] = {}
    for key in _all_keys(alike):
        counts = Counter(case.get(key) or None for case in alike)
        usual[key] = None if None in counts else counts.most_common(1)[0][0]
    return usual


def _all_keys(cases: Sequence[Parameters]) -> set[str]:
    """Names of all parameters of some cases."""
    keys: set[str] = set()
    for case in cases:
        keys.update(case)
    return keys


def _differing_parameters(inside: Sequence[Parameters]) -> list[str]:
    shown = _all_keys(inside) - set(_HIDDEN)
    keys = sorted(shown, key=lambda key: (CASE_PARAMETERS.prior_cost_bits(key), key))
    kept: dict[tuple[int, ...], str] = {}
    for key in keys:
        order: dict[str, int] = {}
        # Two parameters that vary together (transfer and block of IOR) are one difference.
        kept.setdefault(tuple(order.setdefault(str(case.get(key)), len(order)) for case in inside), key)
    return [key for pattern, key in kept.items() if any(pattern)]


def _format_parameter(key: str, value: Scalar) -> str:
    """Text of a parameter: `scratch1`, `full striping`, or with the name of the parameter (`cache drop`, `ranks 4`)."""
    text = format_parameter_value(key, value)
    has_label = text != str(value).lower() and text != value and not key.endswith("_bytes")
    return text if key in _BARE or has_label else f"{key.removesuffix('_bytes')} {text}"


CASE_PARAMETERS = ParameterVocabulary(
    derive=derive_parameters,
    cost_bits=_PRIOR_COST_BITS,
    default_cost_bits=_DEFAULT_PRIOR_COST_BITS,
    value_cost_bits=_VALUE_BITS,
    special_numbers=_SPECIAL_NUMBERS,
    concepts=_CONCEPTS,
    control_parameters=_CONTROL_PARAMETERS,
    labels=_VALUE_LABELS,
    format_value=format_parameter_value,
    named_by_value=frozenset(_BARE),
    text_order=_TEXT_ORDER,
    name_cases=short_case_names,
)
