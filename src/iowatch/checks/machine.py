"""Environment of a run on its node: kernel, CPU vulnerabilities, Lustre's client, mount and striping of scratch.

A maintenance may change these without an announcement; findings list those that differ between both sides of a change.
"""

from __future__ import annotations

import re
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from iowatch.core import format_time
from iowatch.site import compared_facts, storage

# In the stage directory: lines `fact=value`.
_FACTS_FILE = "iowatch.machine"
# One file per known flaw of processors; its mitigation costs system calls and copies time.
_VULNERABILITIES = "/sys/devices/system/cpu/vulnerabilities/"
_UNAFFECTED = "all: Not affected"
# Command of a POSIX shell that prints each fact; `$1` is the case's directory, `$2` the launcher. Facts that are not
# available are left out. Those that the session compares with earlier ones are in `site/compared_facts.py`.
_COMMANDS = {
    **compared_facts.node_commands(),
    "mount": 'findmnt -n -o FSTYPE,SOURCE,OPTIONS --target "$1"',
    "requeued": "printenv SLURM_RESTART_COUNT",  # how often Slurm started the job again; absent in the first start
}
# Their facts are mappings.
_LISTING_COMMANDS = compared_facts.listing_commands()


def machine_facts(stage: Path) -> dict[str, dict[str, Any]]:
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


def environment_commands(directory: str, launcher: str = "") -> list[str]:
    """Return the lines of a job's script that collect the facts, before anything is measured.

    A command that fails or hangs (a stuck mount) costs ten seconds at most.

    Args:
        directory: the scratch directory of the case.
        launcher: command line of the launcher; empty if the job starts the program itself.
    """
    launcher_name = launcher.partition(" ")[0]
    lines = [
        f"_iowatch_directory={shlex.quote(directory)}",
        f'_iowatch_launcher=$(readlink -f "$(command -v {shlex.quote(launcher_name)})" 2> /dev/null)',
        "{",
    ]
    for fact, command in _COMMANDS.items():
        limited = f'timeout 10 sh -c {shlex.quote(command)} sh "$_iowatch_directory" "$_iowatch_launcher" 2> /dev/null'
        if fact in _LISTING_COMMANDS:
            # The line without an item is there although the command lists nothing.
            lines += [f"echo {fact}:=", f"{limited} | sed 's/^/{fact}:/'"]
        else:
            lines.append(f"echo \"{fact}=$({limited} | tr -s '[:space:]' ' ')\"")
    return [*lines, f"}} > {_FACTS_FILE}"]


def parse_facts(text: str) -> dict[str, Any]:
    """Return the facts of `fact=value` and `fact:item=value` lines, without what differs from start to start."""
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        fact, _, item = name.partition(":")
        if fact in _LISTING_COMMANDS and ":" in name:
            values = facts.setdefault(fact, {})
            if item:
                values[item] = " ".join(value.split())
        elif name in _COMMANDS and value.strip():
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
