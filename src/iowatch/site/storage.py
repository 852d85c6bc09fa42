"""File systems of this machine: mounts, striping, and scratch directories of sessions.

Striping applies to Lustre; elsewhere cases that differ only in their striping are one case. Scratch directories are
named after their session, so that leftovers can be found and removed.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import platform
import re
import secrets
import shlex
import shutil
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from iowatch.benchmarks import hints
from iowatch.benchmarks.suites import SuiteCase
from iowatch.core import MachineError, Scalar, file_system_type, files, format_size, mount_types, settings
from iowatch.site.file_system import FileSystemIdentity
from iowatch.site.lustre import RemainingQuota, parse_quota, parse_striping
from iowatch.site.machine import query_command

_LOG = logging.getLogger(__name__)

TECHNOLOGY_BY_TYPE = {
    "lustre": "Lustre",
    "gpfs": "GPFS",
    "beegfs": "BeeGFS",
    "beegfs_nodev": "BeeGFS",
    "panfs": "Panasas",
    "ceph": "CephFS",
    "wekafs": "WEKA",
    "pvfs2": "OrangeFS",
    "fuse.glusterfs": "GlusterFS",
    "nfs": "NFS",
    "nfs4": "NFS",
    "ext4": "ext4",
    "xfs": "xfs",
    "btrfs": "btrfs",
    "zfs": "ZFS",
    "overlay": "overlay",
    "tmpfs": "tmpfs",
}
PARALLEL_TECHNOLOGIES = ("Lustre", "GPFS", "BeeGFS", "Panasas", "CephFS", "WEKA", "OrangeFS", "GlusterFS")
_KERNEL = ("/proc", "/sys", "/run")
TIMEOUT_S = 5.0
# As long as an automatic mount may take.
RESPONSE_S = 30.0


@dataclass(frozen=True)
class Mount:
    """One mounted file system.

    Attributes:
        mount: directory.
        technology: a value of `TECHNOLOGY_BY_TYPE`.
        size_bytes, free_bytes: capacity, and space that users may still write; None if it does not respond.
        writable: whether this user may write to the mount point itself, or to a directory on it that suites measure.
        targets, stripe_count, stripe_bytes: for Lustre, as printed by `lfs`; otherwise None. The last two are None also
            where the striping depends on the offset in the file.
        layout: for Lustre, the default layout in words.
    """

    mount: str
    technology: str
    size_bytes: int | None = None
    free_bytes: int | None = None
    writable: bool = False
    targets: int | None = None
    stripe_count: int | None = None
    stripe_bytes: int | None = None
    layout: str | None = None


def _statvfs(path: str) -> os.statvfs_result | None:
    """Call `statvfs` with a time limit, so that an unresponsive server does not block the command."""
    answers: list[os.statvfs_result] = []

    def stat() -> None:
        with suppress(OSError):
            answers.append(os.statvfs(path))

    _ends_in_time(stat, TIMEOUT_S)
    return answers[0] if answers else None


def _ends_in_time(call: Callable[[], object], limit_s: float) -> bool:
    """Whether a call, which must not raise, ends within a time limit; otherwise it is left behind in its thread."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(limit_s)
    return not thread.is_alive()


def _lustre_facts(mount: str) -> dict[str, int | str | None]:
    """Return OST count and default layout of a Lustre file system, as the fields of `Mount`."""
    layout = parse_striping(query_command("lfs", "getstripe", "-d", mount, timeout_s=TIMEOUT_S) or "")
    return {
        "targets": lustre_targets(mount),
        "stripe_count": layout.plain.stripe_count if layout.plain else None,
        "stripe_bytes": layout.plain.stripe_bytes if layout.plain else None,
        "layout": layout.text,
    }


def lustre_targets(mount: str) -> int | None:
    """Return the number of active OSTs of a Lustre file system, from `lfs osts`; None if it prints none."""
    osts = re.findall(r"(?m)^\d+: \S+ ACTIVE", query_command("lfs", "osts", mount, timeout_s=TIMEOUT_S) or "")
    return len(osts) or None


def _describe_mount(mount_point: str, technology: str) -> Mount | None:
    """Return the facts of a mounted file system; None if only a file is mounted there.

    Containers mount files over /etc/hosts and others.
    """
    mount = Mount(mount_point, technology)
    facts = _statvfs(mount_point)
    if facts is not None and not Path(mount_point).is_dir():
        return None
    if facts is not None:
        mount = replace(
            mount,
            size_bytes=facts.f_frsize * facts.f_blocks,
            free_bytes=facts.f_frsize * facts.f_bavail,
            writable=os.access(mount_point, os.W_OK),
        )
    if technology == "Lustre":
        facts_of_lustre: dict[str, Any] = dict(_lustre_facts(mount_point))
        mount = replace(mount, **facts_of_lustre)
    return mount


# A smaller file system in memory is not meant for data.
_SMALLEST_TMPFS_BYTES = 2**26


def _can_hold_data(mount: Mount) -> bool:
    if mount.technology != "tmpfs":
        return True
    return mount.writable and (mount.size_bytes or 0) >= _SMALLEST_TMPFS_BYTES


def list_mounts(table: Path = Path("/proc/self/mounts")) -> list[Mount]:
    """Return mounted file systems that can hold data, parallel ones first; pseudo and tiny ones are omitted.

    Args:
        table: the kernel's list of mounts.
    """
    mounts: list[Mount] = []
    for mount_point, kernel_type in mount_types(table):
        if kernel_type not in TECHNOLOGY_BY_TYPE or mount_point.startswith(_KERNEL):
            continue
        mount = _describe_mount(mount_point, TECHNOLOGY_BY_TYPE[kernel_type])
        if mount is not None:
            mounts.append(mount)
    return sorted(filter(_can_hold_data, mounts), key=_mount_order)


def _mount_order(mount: Mount) -> tuple[bool, bool, str]:
    """Sort key: parallel file systems first, memory last."""
    return mount.technology not in PARALLEL_TECHNOLOGIES, mount.technology == "tmpfs", mount.mount


STRIPING_OPTIONS = ("stripe-count", "stripe-size")


def file_system_without_striping(directory: Path) -> str | None:
    """Return the file system type of a directory (which may not exist yet) without striping; None on Lustre."""
    kernel_type = file_system_type(os.path.realpath(directory))
    technology = TECHNOLOGY_BY_TYPE.get(kernel_type, kernel_type)
    return None if technology == "Lustre" else technology


def find_duplicate_cases(cases: Sequence[SuiteCase], directory: Path) -> dict[str, str]:
    """Return runs that would repeat another run of their suite in this directory, and the reason.

    Returns:
        `<benchmark>:<case>` -> reason, for all but the first of the cases that differ only in their striping;
        empty on Lustre.
    """
    technology = file_system_without_striping(directory)
    if technology is None:
        return {}
    reason = f"no striping on {technology}: duplicates another case of the suite"
    seen: set[tuple[object, ...]] = set()
    duplicates = {}
    for case in cases:
        key = _identity_without_striping(case)
        if key in seen:
            duplicates[case.run_name] = reason
        seen.add(key)
    return duplicates


def _identity_without_striping(case: SuiteCase) -> tuple[object, ...]:
    """Return what is equal for cases that differ only in their striping: options, also in hints of MPI-IO."""
    options: Mapping[str, Scalar] = case.options
    if hints.OPTION in options:
        options = hints.without_striping(case.options)
    others = [(name, str(value)) for name, value in options.items() if name not in STRIPING_OPTIONS]
    return (case.suite, case.benchmark, *sorted(others))


_PREFIX = "iowatch-"
_RESERVE = 1.1  # for metadata and partial stripes: a file system that is exactly full fails


def session_directory(base: str | Path, session: str | None = None) -> Path:
    """Return the directory below `base` for all scratch data of one session (default: this plain ReFrame run)."""
    return Path(base) / f"{_PREFIX}{session or _reframe_session_name()}"


def _reframe_session_name(process: int | None = None) -> str:
    """Return the session name of a plain ReFrame run: host and process show whether it still runs."""
    return f"reframe-{platform.node()}-{process or os.getpid()}"


def case_directory(base: str | Path, test: str, environment: str, session: str | None = None) -> Path:
    """Return the directory of one case; short and without special characters."""
    digest = hashlib.sha256(f"{test}\0{environment}".encode()).hexdigest()[:12]
    return session_directory(base, session) / digest


def find_identity(directory: Path) -> FileSystemIdentity | None:
    """Return the file system that an existing directory is on; None if the kernel does not show it.

    The id of the mount is that of the opened directory, so that symbolic links, automatic mounts and mounts above
    others are followed. `identity_commands` do the same in a job.

    Raises:
        OSError: no directory, or it cannot be opened.
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        facts = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    finally:
        os.close(descriptor)
    mount_id = re.search(r"(?m)^mnt_id:\s*(\d+)$", facts)
    if mount_id is None:
        return None
    row = re.search(rf"(?m)^{mount_id[1]} \S+ \S+ \S+ (\S+) .* - (\S+) (\S*)", table)
    if row is None:
        return None
    return parse_identity(" ".join(row.groups()))


def parse_identity(line: str) -> FileSystemIdentity | None:
    """Return the file system of a line `MOUNT TYPE SOURCE` with the kernel's octal escapes; None if it is none."""
    words = [files.unescape_octal(word) or None for word in line.strip("\n").split(" ")]
    if len(words) != 3:
        return None
    mount, kernel_type, source = words
    return FileSystemIdentity(mount=mount, type=kernel_type, source=source)


_BLANKS = re.compile(r"[ \t\n\\]")


def identity_commands(directory: Path, file: str, expected: FileSystemIdentity) -> list[str]:
    """Return shell commands that write the identity of an existing directory to a file, for `parse_identity`.

    They end the job with an error if it is not the expected one.
    """
    fields = r"[^ ]+ [^ ]+ [^ ]+ ([^ ]+) .* - ([^ ]+) ([^ ]*) .*/\1 \2 \3/p"
    mount_id = "id=$(sed -n 's/^mnt_id:[[:space:]]*//p' /proc/self/fdinfo/3)"
    opened = f"3< {shlex.quote(str(directory))} > {file}"
    write_identity = f'{{ {mount_id}; sed -nE "s/^$id {fields}" /proc/self/mountinfo; }} {opened}'
    if not expected.declared:
        return [write_identity]
    # A pattern of the shell's `case`: a field that is not declared can have any value.
    pattern = "' '".join(_shell_pattern(expected.declared.get(name)) for name in ("mount", "type", "source"))
    reason = shlex.quote(f"iowatch: scratch is on another file system: expected {expected}; found mount, type, source:")
    check = f'case "$(cat {file})" in {pattern}) ;; *) echo {reason} "$(cat {file})" >&2; exit 1;; esac'
    return [write_identity, check]


def _shell_pattern(value: str | None) -> str:
    """Return the pattern of a field of /proc/self/mountinfo, where the kernel escapes blanks in octal."""
    if not value:
        return "*"
    return shlex.quote(_BLANKS.sub(lambda blank: f"\\{ord(blank[0]):03o}", value))


# Fact of a run that was not on the default file system, and attribute of a session: the names.
FILE_SYSTEM_FACT = "file_system"
# Attribute of a session (this host) and fact of a run (its node): the declared fields of an identity.
IDENTITY_FACT = "scratch_file_system"


def examine_scratch(base: Path, expected: FileSystemIdentity) -> FileSystemIdentity | None:
    """Return what a scratch directory is on, or will be on once it is created; nothing is created.

    Raises:
        MachineError: neither it nor its parent directory exists, it is on another file system than expected, or this
            does not respond.
    """
    if not _ends_in_time(partial(os.path.exists, base), RESPONSE_S):
        raise MachineError(
            f"the scratch directory {base} cannot be used: its file system does not respond in {RESPONSE_S:.0f} s",
            hint="Is its server available?",
        )
    try:
        identity = find_identity(_existing_directory(base))
    except OSError as error:
        raise _unusable_scratch(base, error) from error
    difference = expected.difference(identity)
    if difference:
        raise MachineError(f"the scratch directory {base} is on another file system: {difference}", hint=_MOUNT_HINT)
    return identity


def _existing_directory(base: Path) -> Path:
    """Return the directory in which a scratch directory is or will be created (`prepare_scratch`)."""
    if base.exists():
        return base
    if _is_below_var(base):
        return next(parent for parent in base.parents if parent.exists())
    return base.parent


def prepare_scratch(base: Path, expected: FileSystemIdentity) -> FileSystemIdentity | None:
    """Create a scratch directory, if it will be on the expected file system; return what it is on.

    Its parents are never created, except below `var/`: below a missing mount point, or with a misspelt path, the
    benchmarks would measure the root disk.

    Raises:
        MachineError: as `examine_scratch`, it cannot be created, or another account put it into a public directory.
    """
    identity = examine_scratch(base, expected)
    _refuse_foreign_directory(base)
    try:
        base.mkdir(parents=_is_below_var(base), exist_ok=True)
    except OSError as error:
        raise _unusable_scratch(base, error) from error
    return identity


def _refuse_foreign_directory(base: Path) -> None:
    """Refuse a directory or link that another account made in a directory that every account can write.

    Whoever guesses the name of the next scratch directory in `/dev/shm` could read and replace what is measured there.
    """
    try:
        status, parent_status = base.lstat(), base.parent.stat()
    except OSError:
        return  # it does not exist, or cannot be used for a reason that is reported next
    is_public = bool(parent_status.st_mode & stat.S_IWOTH)
    if is_public and status.st_uid not in (0, os.geteuid()):
        raise MachineError(
            f"the scratch directory {base} belongs to another account (uid {status.st_uid}), and every account may "
            f"write in {base.parent}",
            hint="Remove it, or name another directory with --scratch or IOWATCH_SCRATCH.",
        )


def _is_below_var(base: Path) -> bool:
    return base.is_relative_to(settings.var_directory().absolute())


def _unusable_scratch(base: Path, error: OSError) -> MachineError:
    return MachineError(
        f"the scratch directory {base} cannot be used: {error.strerror}: {error.filename}",
        hint="Is its file system mounted, and its path correct? Its parent directory must exist; name another "
        "directory with --scratch or IOWATCH_SCRATCH.",
    )


_MOUNT_HINT = (
    "Mount it. If the file system was replaced, declare the new one in system.yaml: "
    "`{path: …, mount: …, type: …, source: …}` as `scratch` or `directory` (docs/systems.md)."
)


def _write_probe(base: Path) -> float:
    """Write and remove a new file; return its time of modification. Others may write to the directory, too."""
    directory = os.open(base, os.O_PATH | os.O_DIRECTORY)
    try:
        name = f"{_PREFIX}probe-{secrets.token_hex(8)}"
        probe = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=directory)
        try:
            os.write(probe, b"iowatch")
            os.fsync(probe)
            return os.fstat(probe).st_mtime
        finally:
            os.close(probe)
            os.unlink(name, dir_fd=directory)
    finally:
        os.close(directory)


def check_writable(base: Path) -> None:
    """Check that a scratch directory can be written, or created; a file is written and removed, no directory is made.

    Raises:
        MachineError: it cannot.
    """
    if base.is_dir():
        check_scratch_space(base, 0)
        return
    parent = _existing_directory(base)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise MachineError(
            f"the scratch directory {base} does not exist, and this account may not create it in {parent}",
            hint="Create it for this account, or name another with --scratch or IOWATCH_SCRATCH.",
        )


CLOCK_TOLERANCE_S = 300.0


def check_scratch_space(base: Path, needed_bytes: int, needed_inodes: int = 1) -> None:
    """Check that `base` is writable, has enough free space, and that its clock is that of this machine.

    Raises:
        MachineError: it cannot be written; less than 1.1 x the required bytes or inodes are free on the file system,
            or in the user's quota on Lustre; the clock of a file server differs by more than `CLOCK_TOLERANCE_S`.
    """
    try:
        ahead_s = time.time() - _write_probe(base)
        free = os.statvfs(base)
    except OSError as error:
        raise MachineError(
            f"the scratch directory {base} cannot be written: {error.strerror}",
            hint="Name another with --scratch or IOWATCH_SCRATCH.",
        ) from error
    if abs(ahead_s) > CLOCK_TOLERANCE_S:
        raise MachineError(
            f"the clock of this machine is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} that of the "
            f"file system of {base}; at most {CLOCK_TOLERANCE_S:.0f} s are accepted",
            hint="Set the clocks: results are ordered by time.",
        )
    free_inodes = free.f_favail if free.f_files else None  # some file systems do not count inodes
    quota = lustre_quota(base) or RemainingQuota()
    requirements = (
        ("the file system", needed_bytes, free.f_bavail * free.f_frsize, format_size),
        ("the file system", needed_inodes, free_inodes, _format_files),
        ("your quota", needed_bytes, quota.size_bytes, format_size),
        ("your quota", needed_inodes, quota.inodes, _format_files),
    )
    for limited_by, needed, available, format_amount in requirements:
        if available is not None and available < needed * _RESERVE:
            raise MachineError(
                f"the scratch directory {base} has {format_amount(available)} free in {limited_by}; the session needs "
                f"{format_amount(needed * _RESERVE)} at the same time",
                hint="Free space there, or choose another directory with --scratch or IOWATCH_SCRATCH.",
            )


def _format_files(number: float) -> str:
    return f"{number:,.0f} files"


def lustre_quota(base: Path) -> RemainingQuota | None:
    """Return what is left in the user's quota on a Lustre file system; None if there is no quota to query.

    An answer that is not exact, or not understood, is reported: the space is checked less well then.
    """
    answer = query_command("lfs", "quota", "-q", "-u", str(os.getuid()), str(base), timeout_s=30) or ""
    if not answer.strip():
        return None
    quota = parse_quota(answer)
    if quota is None:
        _LOG.warning("%s: the quota is not checked: 'lfs quota' answered '%s'", base, " ".join(answer.split())[:200])
    elif not quota.is_exact:
        _LOG.warning("%s: the quota is not exact, because a server did not answer 'lfs quota'; more may be used", base)
    return quota


def remove_ended_scratch(base: Path) -> int:
    """Remove directories of ended plain ReFrame runs of this host below `base`; return their number."""
    prefix = session_directory(base, _reframe_session_name()).name.removesuffix(str(os.getpid()))
    processes = [path.name.removeprefix(prefix) for path in base.glob(f"{glob.escape(prefix)}*")]
    ended = [process for process in processes if process.isdecimal() and not _is_process_running(int(process))]
    return remove_session_scratch(base, [_reframe_session_name(int(process)) for process in ended])


def _is_process_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def remove_session_scratch(base: Path, sessions: list[str]) -> int:
    """Remove directories of ended sessions below `base`; return their number."""
    removed = 0
    for session in sessions:
        leftover = session_directory(base, session)
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
            removed += 1
    return removed
