"""What a run met on its node: the kernel, Lustre's client, the mount of scratch and its default striping.

A maintenance changes these without a word; findings tell which of them differ on both sides of a change.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import run_before

# In the stage directory: lines `fact=value`.
_ANSWERS = "iowatch.machine"
# What each fact is asked with; `{}` is the case's directory. What is absent is left out.
_QUESTIONS = {
    "kernel": "uname -r",
    "lustre": "cat /sys/fs/lustre/version",
    "mount": "findmnt -n -o FSTYPE,SOURCE,OPTIONS --target {}",
    "striping": "lfs getstripe -d {}",
}


class MachineMixin(rfm.RegressionTestPlugin):
    """Asks in the job, on its first node, before anything is measured."""

    @run_before("run")
    def ask_machine(self) -> None:
        self.prerun_cmds = [*self.prerun_cmds, *questions(str(self.scratch_directory))]

    def machine_facts(self) -> dict[str, dict[str, str]]:
        """The fact `machine`; empty if the job did not start."""
        try:
            found = answers((Path(self.stagedir) / _ANSWERS).read_text(errors="replace"))
        except OSError:
            return {}
        return {"machine": found}


def questions(directory: str) -> list[str]:
    """Lines of the job's script. A question that fails or hangs (a stuck mount) costs ten seconds at most."""
    one_line = "2> /dev/null | tr -s '[:space:]' ' '"
    place = shlex.quote(directory)
    asked = [f'echo "{fact}=$(timeout 10 {q.format(place)} {one_line})"' for fact, q in _QUESTIONS.items()]
    return ["{", *asked, f"}} > {_ANSWERS}"]


def answers(text: str) -> dict[str, str]:
    """The facts of `fact=value` lines, without what differs from node to node or from start to start."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    found = {fact: " ".join(value.split()) for fact, value in pairs if fact in _QUESTIONS and value.strip()}
    if "mount" in found:
        found["mount"] = _mount(found["mount"])
    if "lustre" in found:
        found["lustre"] = found["lustre"].split()[-1]  # `lustre: 2.12.8` before 2.13
    if "striping" in found:  # begins with the directory, which is the session's own
        found["striping"] = re.sub(r"^/\S* ", "", found["striping"])
    return found


def _mount(line: str) -> str:
    """Type, source and options: NFS names this client, a container its layers."""
    kind, source, *options = line.split()
    if kind == "overlay":
        return kind
    kept = [one for one in ",".join(options).split(",") if not one.startswith(("clientaddr=", "addr="))]
    return " ".join([kind, source, ",".join(kept)])
