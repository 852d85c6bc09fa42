"""Environment of a run on its node: kernel, CPU vulnerabilities, Lustre's client, mount and striping of scratch.

A maintenance may change these without an announcement; findings list those that differ between both sides of a change.
"""

from __future__ import annotations

import re
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path

from iowatch.core import format_time
from iowatch.site import storage

# In the stage directory: lines `fact=value`.
_FACTS_FILE = "iowatch.machine"
# One file per known flaw of processors; its mitigation costs system calls and copies time.
_VULNERABILITIES = "/sys/devices/system/cpu/vulnerabilities/"
_UNAFFECTED = "all: Not affected"
# Command that prints each fact; `{}` is the case's directory. Facts that are not available are left out.
_COMMANDS = {
    "kernel": "uname -r",
    "vulnerabilities": f"grep -s . {_VULNERABILITIES}*",
    "lustre": "cat /sys/fs/lustre/version",
    "mount": "findmnt -n -o FSTYPE,SOURCE,OPTIONS --target {}",
    "striping": "lfs getstripe -d {}",
    "requeued": "printenv SLURM_RESTART_COUNT",  # how often Slurm started the job again; absent in the first start
}


def machine_facts(stage: Path) -> dict[str, dict[str, str]]:
    """Return the fact `machine` of a finished job; empty if it did not start."""
    try:
        text = (stage / _FACTS_FILE).read_text(errors="replace")
    except OSError:
        return {}
    return {"machine": parse_facts(text)}


def clock_failure(submitted: float, started: float | None) -> str | None:
    """Return the reason if the clock of the job's node is not that of this host; results are ordered by their start.

    Args:
        submitted: when the job was submitted, by this host's clock, epoch seconds.
        started: start of the program by the node's clock, epoch seconds; None if it did not start.
    """
    earliest = submitted - storage.CLOCK_TOLERANCE_S
    latest = time.time() + storage.CLOCK_TOLERANCE_S
    if started is None or earliest <= started <= latest:
        return None
    node_time, host_time = (format_time(datetime.fromtimestamp(moment, UTC)) for moment in (started, submitted))
    return (
        f"the clock of the node is wrong: it started the program at {node_time}, the job was submitted at {host_time}"
    )


def environment_commands(directory: str) -> list[str]:
    """Return the lines of a job's script that collect the facts, before anything is measured.

    A command that fails or hangs (a stuck mount) costs ten seconds at most.

    Args:
        directory: the scratch directory of the case.
    """
    one_line = "2> /dev/null | tr -s '[:space:]' ' '"
    quoted = shlex.quote(directory)
    commands = [
        f'echo "{fact}=$(timeout 10 {command.format(quoted)} {one_line})"' for fact, command in _COMMANDS.items()
    ]
    return ["{", *commands, f"}} > {_FACTS_FILE}"]


def parse_facts(text: str) -> dict[str, str]:
    """Return the facts of `fact=value` lines, without what differs from node to node or from start to start."""
    facts = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name in _COMMANDS and value.strip():
            facts[name] = " ".join(value.split())
    if "mount" in facts:
        facts["mount"] = _mount(facts["mount"])
    if "lustre" in facts:
        facts["lustre"] = facts["lustre"].split()[-1]  # `lustre: 2.12.8` before 2.13
    if "vulnerabilities" in facts:
        facts["vulnerabilities"] = _vulnerabilities(facts["vulnerabilities"])
    if "striping" in facts:  # begins with the directory, which is the session's own
        facts["striping"] = re.sub(r"^/\S* ", "", facts["striping"])
    return facts


def _vulnerabilities(line: str) -> str:
    """`spectre_v2: Mitigation: Retpolines | …`: the flaws that concern the processor; `all: Not affected` for none."""
    affected = []
    for row in line.split(_VULNERABILITIES)[1:]:
        flaw = row.strip().replace(":", ": ", 1)
        # A row with several parts may end with one that is not affected.
        if not flaw.endswith(": Not affected") or flaw.count(": ") > 1:
            affected.append(flaw)
    return " | ".join(affected) or _UNAFFECTED


def _mount(line: str) -> str:
    """Type, source and options: those of NFS contain this client, those of a container its layers."""
    file_system_type, source, *options = line.split()
    if file_system_type == "overlay":
        return file_system_type
    kept = [option for option in ",".join(options).split(",") if not option.startswith(("clientaddr=", "addr="))]
    return " ".join([file_system_type, source, ",".join(kept)])
