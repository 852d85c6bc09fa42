"""What runs recorded of the machine around them, and what of it differs: kernel, mount, MPI, hints in force.

A stack says what a run was meant to use; this is what it met. A maintenance changes such things without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from iowatch.findings.records import Difference

_ABSENT = "absent"
# `machine` is what every job asks on its node (reframe_tests/mixins/machine.py); benchio's own record has some
# of it, too, for results that were made without iowatch's checks.
_MACHINE = {
    "kernel": "kernel",
    "lustre": "Lustre client",
    "mount": "mount of scratch",
    "striping": "default striping",
}
_FILE_SYSTEM = {
    "type": "file system",
    "mount": "mount of scratch",
    "source": "source of the mount",
    "directory_stripe_count": "default stripe count",
    "directory_stripe_bytes": "default stripe size",
    "directory_components": "default striping",
}


def surrounding_differences(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], *, programs: bool = True
) -> Iterable[Difference]:
    """What two runs of one case met that is not the same; nothing of what one of them did not record.

    Args:
        name: of the case, for people.
        before, after: facts of the runs.
        programs: also MPI and libraries as they were loaded; False where stacks are known to differ.
    """
    groups = {
        "compute node": _machine if "machine" in before and "machine" in after else _of_benchio,
        f"MPI-IO hints, {name}": _hints,
        **({"loaded": _programs} if programs else {}),
    }
    for where, group in groups.items():
        old, new = group(before), group(after)
        for what in sorted(old.keys() | new.keys()) if old and new else ():
            if old.get(what) != new.get(what):
                yield Difference(where, what, _told(old.get(what)), _told(new.get(what)))


def _machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    return _named(_part(facts, "machine"), _MACHINE)


def _of_benchio(facts: Mapping[str, Any]) -> dict[str, Any]:
    return _known({"kernel": facts.get("kernel")}) | _named(_part(facts, "filesystem"), _FILE_SYSTEM)


def _named(recorded: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return _known({name: recorded.get(key) for key, name in names.items()})


def _hints(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Hints in force; what an MPI only repeats tells nothing of what is in force."""
    effective = _part(facts, "hints").get("effective")
    return _known(effective) if isinstance(effective, Mapping) else {}


def _programs(facts: Mapping[str, Any]) -> dict[str, Any]:
    mpi = _part(facts, "mpi")
    return _known({"MPI": mpi.get("description") or mpi.get("version"), **_part(facts, "libraries")})


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = facts.get(name)
    return value if isinstance(value, Mapping) else {}


def _known(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value not in (None, "", "unknown")}


def _told(value: Any) -> str:
    if value is None:
        return _ABSENT
    return value if isinstance(value, str) else json.dumps(value)
