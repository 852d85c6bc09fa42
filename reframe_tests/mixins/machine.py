"""Environment of a run on its node: kernel, Lustre client, mount of scratch and its default striping.

A maintenance may change these without notice; findings report which of them differ between both sides of a change.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import run_before

# In the stage directory: lines `fact=value`.
_ANSWERS = "iowatch.machine"
# Command for each fact; `{}` is the directory of the case. Facts without output are left out.
_QUESTIONS = {
    "kernel": "uname -r",
    "lustre": "cat /sys/fs/lustre/version",
    "mount": "findmnt -n -o FSTYPE,SOURCE,OPTIONS --target {}",
    "striping": "lfs getstripe -d {}",
}


class MachineMixin(rfm.RegressionTestPlugin):
    """Collects the facts in the job, on its first node, before the measurement."""

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
    """Lines of the job script; a command that fails or hangs (a stuck mount) takes at most ten seconds."""
    one_line = "2> /dev/null | tr -s '[:space:]' ' '"
    place = shlex.quote(directory)
    asked = [f'echo "{fact}=$(timeout 10 {q.format(place)} {one_line})"' for fact, q in _QUESTIONS.items()]
    return ["{", *asked, f"}} > {_ANSWERS}"]


def answers(text: str) -> dict[str, str]:
    """Facts from `fact=value` lines, without parts that differ between nodes or sessions."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    found = {fact: " ".join(value.split()) for fact, value in pairs if fact in _QUESTIONS and value.strip()}
    if "mount" in found:
        found["mount"] = _mount(found["mount"])
    if "lustre" in found:
        found["lustre"] = found["lustre"].split()[-1]  # `lustre: 2.12.8` before 2.13
    if "striping" in found:  # starts with the directory, which differs per session
        found["striping"] = re.sub(r"^/\S* ", "", found["striping"])
    return found


def _mount(line: str) -> str:
    """Type, source and options of a mount, without the client address of NFS and the layers of a container."""
    kind, source, *options = line.split()
    if kind == "overlay":
        return kind
    kept = [one for one in ",".join(options).split(",") if not one.startswith(("clientaddr=", "addr="))]
    return " ".join([kind, source, ",".join(kept)])
