"""A directory of its own for every case, removed afterwards; the next run removes those of killed runs.

It is below the directory of the case's file system: for the default one that of the order, `IOWATCH_SCRATCH`, the extra
`scratch` of ReFrame's partition, or ReFrame's stage directory.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
from functools import cache
from pathlib import Path
from typing import Any

from iowatch.benchmarks.benchmark import RESIDENT_FILE, is_cache_dropped, striping_parameters
from iowatch.benchmarks.suites import SuiteCase
from iowatch.checks.machine import machine_facts
from iowatch.checks.order import RunOrder
from iowatch.checks.run import CheckedRun, JobScript
from iowatch.core import Scalar, UsageError, format_size, settings
from iowatch.site import (
    FileSystemIdentity,
    MeasuredFileSystem,
    SystemLimits,
    file_system_without_striping,
    load_system,
    lustre,
    storage,
    system_names,
)

# In the stage directory: the file system of scratch on the job's node, before and after the run.
_BEFORE, _AFTER = "iowatch.mount.before", "iowatch.mount.after"
# There if the requested striping is in force; next to it the errors of `lfs`.
_STRIPED, _REFUSED = "iowatch.striped", "iowatch.striped.err"


def scratch_base(order: RunOrder, case: SuiteCase, system: str, partition_scratch: str | None, stage: Path) -> Path:
    """Return the directory below which a case and other sessions write.

    Args:
        partition_scratch: extra `scratch` of the partition.
        stage: ReFrame's stage directory.
    """
    if case.file_system is not None:
        locked = order.file_system(case.file_system)
        return locked.directory if locked else load_system(system).measured(case.file_system).path()
    return Path(order.scratch or os.environ.get(settings.SCRATCH_VARIABLE) or partition_scratch or stage)


@cache
def remove_ended_scratch(base: Path, session: str | None) -> None:
    """Once per process: remove directories of ended ones, and at exit the directory of this one, empty by then."""
    storage.remove_ended_scratch(base)
    atexit.register(_remove_empty, storage.session_directory(base, session))


def _remove_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


_spent_bytes = 0


def _spend(volume_bytes: int, budget_bytes: int) -> None:
    """Count the bytes that this ReFrame process writes and reads."""
    global _spent_bytes
    if _spent_bytes + volume_bytes > budget_bytes:
        raise UsageError(
            f"this case writes and reads {format_size(volume_bytes)}, those before it "
            f"{format_size(_spent_bytes)}; the system's byte budget is {format_size(budget_bytes)} per session",
            hint="Choose fewer cases, or raise limits.total_bytes in its system.yaml.",
        )
    _spent_bytes += volume_bytes


def measured_file_system(case: SuiteCase, system: str) -> MeasuredFileSystem | None:
    """Return the file system of a case as system.yaml describes it; None if it does not."""
    if system not in system_names():
        return None
    for file_system in load_system(system).measured_file_systems:
        if file_system.parameter == case.file_system:
            return file_system
    return None


def is_node_local(case: SuiteCase, system: str) -> bool:
    """Whether only the nodes of jobs have the file system of a case; this process can neither see nor prepare it."""
    file_system = measured_file_system(case, system)
    return file_system is not None and file_system.node_local


def system_limits(case: SuiteCase, system: str) -> SystemLimits | None:
    """Return what a system allows a case; None where ReFrame's configuration is of an unknown system."""
    if system not in system_names():
        return None
    return load_system(system).limits_on(case.file_system)


def expected_file_system(run: CheckedRun, partition: str) -> FileSystemIdentity:
    """Return what scratch must be on: as the session determined, or as declared in system.yaml.

    Args:
        partition: "" for the host of ReFrame.
    """
    if run.order.file_systems is not None:
        locked = run.order.file_system(run.case.file_system)
        return locked.identity_at(partition) if locked else FileSystemIdentity()
    file_system = measured_file_system(run.case, run.system)
    return file_system.declared if file_system else FileSystemIdentity()


def check_space(run: CheckedRun) -> None:
    """Refuse to write where there is no space, by bytes, files, quota and the system's byte budget.

    Raises:
        MachineError: the directory cannot be used, or there is no space.
        UsageError: the cases of this plain ReFrame run exceed the byte budget.
    """
    tool, options, limits = run.case.tool, run.case.options, system_limits(run.case, run.system)
    reserve = (limits.free_bytes if limits else None) or 0
    if not is_node_local(run.case, run.system):
        storage.prepare_scratch(run.scratch_base, expected_file_system(run, ""))
        storage.check_scratch_space(run.scratch_base, tool.file_bytes(options) + reserve, tool.inodes(options))
    # A session has counted the bytes of all its runs before.
    if limits and limits.total_bytes and run.order.session is None:
        _spend(tool.volume_bytes(options), limits.total_bytes)


def in_scratch(run: CheckedRun, script: JobScript) -> JobScript:
    """Return the script with lines around it that create the directory of the case, and remove it.

    The job does it, because the ReFrame process may run elsewhere. Others may write to the base, too: they can neither
    plant nor read what is in the session's directory.
    """
    session = run.scratch.parent
    case, private, base = (shlex.quote(str(path)) for path in (run.scratch, session, session.parent))
    before = []
    if is_node_local(run.case, run.system):
        before.append(f"[ -d {base} ] || mkdir {base} || exit 1")
    before += [
        *storage.identity_commands(session.parent, _BEFORE, expected_file_system(run, run.key.partition)),
        f"[ -O {private} -a -d {private} -a ! -L {private} ] || mkdir -m 700 {private} || exit 1",
        # However the job's shell ends, except by a kill; the next run removes the directory then.
        f"trap {shlex.quote(f'rm -rf {case}')} EXIT",
        f"rm -rf {case}; mkdir -m 700 {case} || exit 1",
        *_striping_commands(run.case, case),
    ]
    after = storage.identity_commands(session.parent, _AFTER, FileSystemIdentity())
    return script.starting_with(before).ending_with(after)


def _striping_commands(case: SuiteCase, quoted: str) -> list[str]:
    """Lustre striping of the directory, where the case requests it and `lfs` is available; reported otherwise."""
    words = ""
    for flag, option in (("-c", "stripe-count"), ("-S", "stripe-size")):
        if (value := case.options.get(option)) is not None:
            words += f"{flag} {shlex.quote(str(value))} "
    if not words:
        return []
    # On another file system `lfs` fails or is absent: the case continues, and its result records it.
    return [
        f"if lfs setstripe {words}{quoted} 2> {_REFUSED}; then : > {_STRIPED}; "
        "else echo 'iowatch: striping not applicable' >&2; fi"
    ]


def scratch_facts(run: CheckedRun) -> dict[str, Any]:
    """Return the file system of scratch on the job's node, if the job started; its name unless the default."""
    facts: dict[str, Any] = {}
    if identity := _read_identity(run.stage / _BEFORE):
        facts[storage.IDENTITY_FACT] = identity.declared
    if run.case.file_system:
        facts[storage.FILE_SYSTEM_FACT] = run.case.file_system
    return facts


def scratch_failure(run: CheckedRun) -> str | None:
    """Return the reason if scratch was on another file system than expected, before or after the run."""
    expected = expected_file_system(run, run.key.partition)
    before, after = _read_identity(run.stage / _BEFORE), _read_identity(run.stage / _AFTER)
    difference = expected.difference(before) or (before or expected).difference(after)
    if not difference:
        return None
    return f"the scratch directory {run.scratch_base} is on another file system: {difference}"


def _read_identity(path: Path) -> FileSystemIdentity | None:
    """What a job wrote about its file system; None if it wrote nothing."""
    try:
        return storage.parse_identity(path.read_text(errors="replace"))
    except OSError:
        return None


def cache_not_dropped(case: SuiteCase, stage: Path) -> dict[str, Scalar]:
    """Return the case parameter of reads whose file was still in the page cache of a node when they started."""
    if case.tool.case(case.options).get("cache") != "drop":
        return {}
    identity, resident = _read_identity(stage / _BEFORE), stage / RESIDENT_FILE
    text = resident.read_text(errors="replace") if resident.is_file() else ""
    return {} if is_cache_dropped(text, identity.type if identity else None) else {"cache": "keep"}


def striping_that_failed(run: CheckedRun) -> dict[str, Scalar]:
    """Return the case parameters of a striping that was requested and is not in force."""
    return {} if (run.stage / _STRIPED).is_file() else striping_parameters(run.case.options)


def striping_facts(run: CheckedRun) -> dict[str, str]:
    """Return the note about a striping that does not apply here."""
    if not striping_that_failed(run):
        return {}
    technology = file_system_without_striping(run.scratch_base)
    return {"striping": f"not applicable on {technology}"} if technology else {}


def striping_failure(run: CheckedRun) -> str | None:
    """Return why the striping is another one than requested: on Lustre the result is of another case then."""
    if not striping_that_failed(run):
        return _other_striping(run)
    if file_system_without_striping(run.scratch_base):
        return None
    errors = run.stage / _REFUSED
    words = errors.read_text(errors="replace").strip() if errors.is_file() else ""
    return f"the striping could not be set: {words or 'lfs setstripe failed'}"


def _other_striping(run: CheckedRun) -> str | None:
    """The reason if the directory has another striping than requested, or the file system fewer OSTs."""
    requested = striping_parameters(run.case.options)
    if not requested:
        return None
    layout = lustre.parse_striping(machine_facts(run.stage).get("machine", {}).get("striping", ""))
    striping: dict[str, Scalar] = {}
    if layout.plain is not None:
        striping = {"stripe_count": layout.plain.stripe_count, "stripe_bytes": layout.plain.stripe_bytes}
    elif layout.components:
        return f"the layout of scratch is not one striping, as the suite asks for: {layout.text}"
    # A directory accepts more stripes than there are OSTs; its files then have fewer.
    targets = storage.lustre_targets(str(run.scratch_base))
    if targets is not None and int(requested.get("stripe_count") or 0) > targets:
        striping["stripe_count"] = targets
    reasons = []
    for name, value in requested.items():
        # A striping that `lfs` did not print is no reason. Requested is 0 for the default, which may be any.
        actual = striping.get(name, value)
        if value != 0 and actual != value:
            reasons.append(f"{name} is {actual} in scratch, the suite asks for {value}")
    return "; ".join(reasons) or None
