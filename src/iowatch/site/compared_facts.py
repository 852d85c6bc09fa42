"""The facts of a run that stay the same from session to session: the registry of what is recorded and compared.

    job: commands ──> facts `machine`, `program`, `reframe` of the run ──> `read` ──> session/fact_comparison.py

A new fact is one entry of `COMPARED_FACTS`. `facts: {may_vary: […]}` of a system.yaml names those that may change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from iowatch.core import recorded_covariates

SubjectField = Literal["partition", "host", "stack", "program", "run", "file_system", "local_to", "boot"]
"""What a fact is about. `program`: benchmark with the versions of program, stack and iowatch; `local_to`: the host of a
file system that each node has of its own; `boot`: a start of the kernel, for file systems in memory."""

FactValues = Mapping[str, str]
"""Values of a fact by item; a fact without items has the item ""."""

# Longer texts are compared by their checksum.
_LONGEST_TEXT = 400


@dataclass(frozen=True)
class ComparedFact:
    """A fact of a run, and how it is compared.

    Attributes:
        name: in `system.yaml` and in decisions.
        label: in reports.
        subject: runs with the same partition, stack, … have the same value.
        read: values in the document of the facts of a run; None if they are not recorded there.
        commands: commands of a POSIX shell by the name under which a job records what they print (`machine`); `$1` is
            the directory of the case, `$2` the path of the launcher. One that lists several values prints `item=value`.
        lists_items: whether the commands print several values.
        varies_in_queue: whether the value may change where a queue chooses the nodes.
    """

    name: str
    label: str
    subject: tuple[SubjectField, ...]
    read: Callable[[Mapping[str, Any]], FactValues | None]
    commands: Mapping[str, str] = field(default_factory=dict)
    lists_items: bool = False
    varies_in_queue: bool = False


def section_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of the facts of a run; empty if it is absent or of another form."""
    section = document.get(name)
    return section if isinstance(section, Mapping) else {}


def _reader(section: str, name: str) -> Callable[[Mapping[str, Any]], FactValues | None]:
    """Return the reader of one value, or of a mapping with several, of a part of the facts."""

    def read(document: Mapping[str, Any]) -> FactValues | None:
        value = section_of(document, section).get(name)
        if isinstance(value, Mapping):
            return {str(item): _shortened(str(text)) for item, text in value.items()}
        if value in (None, ""):
            return None
        return {"": _shortened(str(value))}

    return read


def _shortened(text: str) -> str:
    """Return a text, or the beginning and the checksum of a long one."""
    if len(text) <= _LONGEST_TEXT:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
    return f"{text[: _LONGEST_TEXT // 4]}… (SHA-256 {digest}…)"


def _read_mitigations(document: Mapping[str, Any]) -> FactValues | None:
    """Mitigations of vulnerabilities of the processor, from `name: mitigation | name: mitigation`."""
    text = section_of(document, "machine").get("vulnerabilities")
    if not isinstance(text, str):
        return None
    mitigations: dict[str, str] = {}
    for row in text.split(" | "):
        vulnerability, _, mitigation = row.partition(": ")
        mitigations[vulnerability] = mitigation
    return mitigations


def _read_repetitions(document: Mapping[str, Any]) -> FactValues | None:
    repetitions = document.get("repetitions")
    return None if repetitions is None else {"": str(repetitions)}


_SETTING = "setting:"


def _read_settings(document: Mapping[str, Any]) -> FactValues | None:
    """Settings of the file system among the covariates: read-ahead, commit interval, settings of its client.

    None where a program did not answer: settings that could not be read have not been removed.
    """
    recorded = recorded_covariates(document, "before")
    missing = section_of(section_of(document, "covariates"), "missing")
    if not recorded or "before" in missing:
        return None
    settings: dict[str, str] = {}
    for name, value in recorded.items():
        if name.startswith(_SETTING):
            settings[name.removeprefix(_SETTING)] = str(value)
    return settings


def _file_system_type(document: Mapping[str, Any]) -> str:
    return str(section_of(document, "scratch_file_system").get("type") or "")


IN_MEMORY = ("tmpfs", "ramfs")
SHARED_BY_NODES = ("nfs", "nfs4", "ceph")
"""File systems with an identity that all nodes see; others that have one are disks or memory of a node."""
# File systems whose id of statfs(2) is made of their UUID; that of others is a device number, which a restart changes.
_WITH_ID = ("ext2", "ext3", "ext4", "btrfs", "zfs", "ceph", *IN_MEMORY)
# File systems whose size only a person changes; others report used and available space of a pool.
_WITH_SIZE = ("ext2", "ext3", "ext4", "xfs", "btrfs", "overlay", *IN_MEMORY)


def _read_file_system_id(document: Mapping[str, Any]) -> FactValues | None:
    """The identity of the file system of scratch that survives restarts and differs between file systems.

    XFS: its UUID; NFS: the id that the server gives; others the id of statfs(2), where that is such an identity.
    """
    machine, kernel_type = section_of(document, "machine"), _file_system_type(document)
    if kernel_type in _WITH_ID:
        statfs_id = str(machine.get("statfs") or "").partition(" ")[0]
        # The kernel has no id for some of these file systems in some releases.
        return {"": statfs_id} if statfs_id.strip("0") else None
    if kernel_type == "xfs" and machine.get("file_system_uuid"):
        return {"": str(machine["file_system_uuid"])}
    if kernel_type in ("nfs", "nfs4") and machine.get("nfs_volume"):
        return {"": str(machine["nfs_volume"])}
    return None


def _read_file_system_size(document: Mapping[str, Any]) -> FactValues | None:
    words = str(section_of(document, "machine").get("statfs") or "").split()
    is_complete = len(words) == 3 and words[1].isdecimal() and words[2].isdecimal()
    if not is_complete or _file_system_type(document) not in _WITH_SIZE:
        return None
    return {"": f"{int(words[1]) * int(words[2])} bytes"}


# Options that contain this client, this mount or this user.
_OPTIONS_OF_CLIENT = ("clientaddr", "addr", "mountaddr", "mountport", "port", "fd", "user_id", "group_id")
_LAYERS = ("lowerdir", "upperdir", "workdir")


def _read_mount_options(document: Mapping[str, Any]) -> FactValues | None:
    """Options of the mount and of the file system, each an item; a flag has the value `set`."""
    mount_point, _, text = str(section_of(document, "machine").get("mount_options") or "").partition(" ")
    return _split_mount_options(mount_point, text) if text else None


def comparable_mount_options(mount_point: str, text: str) -> str:
    """Return the options of a mount without those that contain the client, the mount or the user."""
    options: list[str] = []
    for name, value in _split_mount_options(mount_point, text).items():
        options.append(name if value == "set" else f"{name}={value}")
    return ",".join(options)


def _split_mount_options(mount_point: str, text: str) -> dict[str, str]:
    left_out = [*_OPTIONS_OF_CLIENT]
    # The root of a container: each container has layers of its own.
    if mount_point == "/":
        left_out += _LAYERS
    options: dict[str, str] = {}
    for option in text.split(","):
        name, separator, value = option.partition("=")
        if name and name not in left_out:
            options[name] = value if separator else "set"
    return options


def _read_program(document: Mapping[str, Any]) -> FactValues | None:
    program = section_of(document, "program")
    if not program.get("path"):
        return None
    return {"path": str(program["path"]), "SHA-256": str(program.get("sha256") or "not recorded")}


# Lines of a shell: the id of the mount of `$1` in `$id`, as in `storage.identity_commands`.
_MOUNT_ID = 'exec 3< "$1"; id=$(sed -n "s/^mnt_id:[[:space:]]*//p" /proc/self/fdinfo/3)'
# Mount point and options, of the mount and of the file system; the fields of mountinfo are in proc(5).
_MOUNT_OPTIONS = (
    f"{_MOUNT_ID}; "
    'sed -nE "s/^$id [^ ]+ [^ ]+ [^ ]+ ([^ ]+) ([^ ]+) (.* )?- [^ ]+ [^ ]* (.*)/\\1 \\2,\\4/p" /proc/self/mountinfo'
)
# The server's id of the volume, by the device number of its mount.
_NFS_VOLUME = (
    f"{_MOUNT_ID}; "
    'mounted=$(sed -nE "s/^$id [^ ]+ ([^ ]+) .*/\\1/p" /proc/self/mountinfo); '
    'while read -r _ _ _ device volume _; do [ "$device" != "$mounted" ] || echo "$volume"; done '
    "< /proc/fs/nfsfs/volumes"
)
# The smallest processor time that this process and what it is part of may use: quota and period in microseconds.
_PROCESSOR_QUOTA = (
    'group=/sys/fs/cgroup$(sed -n "s/^0:://p" /proc/self/cgroup); '
    'while [ "${group#/sys/fs/cgroup}" != "$group" ]; do cat "$group/cpu.max"; group=${group%/*}; done '
    '| grep -v "^max" | sort -n | { read -r quota && echo "$quota" || echo none; }'
)
_PRELOADED = (
    'for library in $(echo "$LD_PRELOAD" | tr : " ") $(cat /etc/ld.so.preload); do '
    'echo "$library=$(sha256sum < "$library" | cut -d " " -f 1)"; done'
)
# Effective lines of the files that Open MPI, PRRTE, PMIx, ROMIO and UCX read, without comments.
_CONFIGURATION_FILES = (
    'etc=$(dirname "$(dirname "$2")")/etc; '
    'for file in "$HOME"/.openmpi/mca-params.conf "$HOME"/.prte/mca-params.conf "$HOME"/.pmix/mca-params.conf '
    '"$HOME"/ucx.conf '
    '"$etc"/openmpi-mca-params.conf "$etc"/prte-mca-params.conf "$etc"/pmix-mca-params.conf '
    "/etc/openmpi/openmpi-mca-params.conf /etc/prte/prte-mca-params.conf /etc/pmix/pmix-mca-params.conf "
    "/etc/ucx/ucx.conf /etc/romio-hints "
    '"$ROMIO_HINTS" $(echo "$OMPI_MCA_mca_base_param_files" | tr ":," "  "); do '
    '[ -f "$file" ] || continue; '
    'lines=$(sed -e "s/[[:space:]]*#.*//" -e "/^[[:space:]]*$/d" "$file" | head -c 65536 | paste -s -d ";" -); '
    # The home directory by its short name: other accounts have the same file elsewhere.
    'case "$file" in "$HOME"/*) file="~${file#"$HOME"}";; esac; '
    '[ -z "$lines" ] || echo "$file=$lines"; done'
)

_NODE: tuple[SubjectField, ...] = ("partition", "host")
_STACK: tuple[SubjectField, ...] = ("partition", "stack")
# Programs and files of a node: nodes are upgraded one after the other.
_STACK_ON_NODE: tuple[SubjectField, ...] = ("partition", "host", "stack")


def _machine_fact(
    name: str, label: str, subject: tuple[SubjectField, ...], command: str, *, lists_items: bool = False
) -> ComparedFact:
    """Return a fact that one command of the job prints."""
    return ComparedFact(name, label, subject, _reader("machine", name), {name: command}, lists_items)


COMPARED_FACTS: Mapping[str, ComparedFact] = {
    fact.name: fact
    for fact in (
        # The node.
        ComparedFact(
            "host", "host", ("partition",), _reader("machine", "host"), {"host": "uname -n"}, varies_in_queue=True
        ),
        _machine_fact("kernel", "kernel", _NODE, "uname -r"),
        ComparedFact(
            "mitigations",
            "mitigations of vulnerabilities of the processor",
            _NODE,
            _read_mitigations,
            {"vulnerabilities": "grep -s . /sys/devices/system/cpu/vulnerabilities/*"},
        ),
        _machine_fact("lustre", "Lustre client", _NODE, "cat /sys/fs/lustre/version"),
        _machine_fact(
            "writeback",
            "write-back settings of the kernel (vm.dirty_*)",
            _NODE,
            'grep -s . /proc/sys/vm/dirty_* | sed "s|^.*/||; s/:/=/"',
            lists_items=True,
        ),
        # What the job may use of it. `nproc` would otherwise answer with the number of threads that OpenMP may start.
        _machine_fact(
            "cores",
            "processors in the affinity mask",
            ("partition", "host", "run"),
            "env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc",
        ),
        _machine_fact("processor_quota", "processor time in µs per period", ("partition", "run"), _PROCESSOR_QUOTA),
        _machine_fact("nice", "nice value", ("partition",), "nice"),
        _machine_fact("io_priority", "I/O priority", ("partition",), 'ionice | sed "s/^none.*/none/"'),
        # Programs and their environment.
        _machine_fact(
            "launcher",
            "launcher",
            _STACK_ON_NODE,
            '[ -z "$2" ] || echo "$2, SHA-256 $(sha256sum < "$2" | cut -d " " -f 1)"',
        ),
        # The best of fewer repetitions is lower.
        ComparedFact("repetitions", "repetitions", (*_STACK, "run"), _read_repetitions),
        ComparedFact("launcher_command", "command of the launcher", (*_STACK, "run"), _reader("reframe", "launcher")),
        ComparedFact("program", "program", (*_STACK_ON_NODE, "program"), _read_program),
        ComparedFact("libraries", "libraries", (*_STACK_ON_NODE, "program"), _reader("program", "library_checksums")),
        _machine_fact("preload", "preloaded libraries", _STACK_ON_NODE, _PRELOADED, lists_items=True),
        ComparedFact("variables", "environment variables", _STACK, _reader("program", "variables")),
        _machine_fact(
            "configuration_files", "configuration files of MPI", _STACK_ON_NODE, _CONFIGURATION_FILES, lists_items=True
        ),
        ComparedFact("reframe", "settings in reframe.py", _STACK, _reader("reframe", "settings")),
        # The file system of scratch.
        ComparedFact(
            "file_system_id",
            "id of the file system of scratch",
            ("partition", "file_system", "local_to", "boot"),
            _read_file_system_id,
            {
                "statfs": 'stat -f -c "%i %b %S" "$1"',
                "file_system_uuid": 'findmnt -n -o UUID --target "$1" | tail -n 1',
                "nfs_volume": _NFS_VOLUME,
                "boot": "cat /proc/sys/kernel/random/boot_id",
            },
        ),
        ComparedFact(
            "file_system_size",
            "size of the file system of scratch",
            ("partition", "file_system", "local_to"),
            _read_file_system_size,
        ),
        ComparedFact(
            "mount_options",
            "mount options of scratch",
            ("partition", "host", "file_system"),
            _read_mount_options,
            {"mount_options": _MOUNT_OPTIONS},
        ),
        _machine_fact(
            "striping", "default striping of scratch", ("partition", "file_system", "run"), 'lfs getstripe -d "$1"'
        ),
        ComparedFact(
            "file_system_settings", "settings of the file system", ("partition", "host", "file_system"), _read_settings
        ),
    )
}
"""All compared facts by name."""


def node_commands() -> dict[str, str]:
    """Return the commands of all facts, by the name under which a job records what they print."""
    commands: dict[str, str] = {}
    for fact in COMPARED_FACTS.values():
        commands.update(fact.commands)
    return commands


def listing_commands() -> frozenset[str]:
    """Return the names of the commands that print several values, as lines `item=value`."""
    names: set[str] = set()
    for fact in COMPARED_FACTS.values():
        if fact.lists_items:
            names.update(fact.commands)
    return frozenset(names)


def may_vary_faults(entries: Iterable[str]) -> list[str]:
    """Return one sentence for each entry of `facts: {may_vary: …}` that names no fact."""
    names = ", ".join(COMPARED_FACTS)
    faults: list[str] = []
    for entry in entries:
        fact, _, pattern = entry.partition(":")
        if fact not in COMPARED_FACTS:
            faults.append(f"no fact of runs is called '{fact}'; expected one of {names}")
        elif ":" in entry and not pattern:
            faults.append(f"'{entry}' names no item; expected for example 'variables:UCX_*'")
    return faults
