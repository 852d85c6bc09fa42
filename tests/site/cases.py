"""The cases that ReFrame generates on every system, from one process: all systems as partitions of one.

`python -m tests.site.cases` rewrites `cases.txt`, the list that the tests compare them with.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from reframe.core.config import load_config

from iowatch.benchmarks.registry import BENCHMARKS
from iowatch.site import reframe_config
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack.probe import FEATURE_OF_PART, FEATURE_VARIANTS
from iowatch.site.stack.records import StackPart
from iowatch.site.system import system_names
from tests.builders import build_stack

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("cases.txt")
_HEADER = """\
# The cases of every suite, by the environments (system+environment) that have what they need. On systems whose
# stacks depend on the machine, `full` stands for a stack with everything and `bare` for one with MPI alone.
# A change here is a change of what runs every night. Written by: python -m tests.site.cases
"""
_LINE = re.compile(r"^\s*- (?P<check>\w+Check) %entry=(?P<entry>.+?) /\w+ @\S+:\S+\+(?P<environment>\S+)")
_BETWEEN = "--"  # of system and environment; ReFrame takes no dots and colons in names
_FEATURES = {*FEATURE_OF_PART.values(), *(benchmark.name for benchmark in BENCHMARKS.values() if benchmark.probe)}
_FEATURES |= {variant for variants in FEATURE_VARIANTS.values() for variant in variants}
_STACKS = [
    # With an MPI whose MPI-IO is ROMIO, which understands every hint.
    build_stack(StackPart("mpich", "4"), name="full", system="any", kind="system", features=tuple(sorted(_FEATURES))),
    build_stack(name="bare", system="any", kind="system", features=("openmpi",)),
]
Case = tuple[str, str, str]


def load_configuration(path: Path) -> Any:
    """`load_config` of ReFrame without the module that it keeps of an earlier load, with other stacks perhaps."""
    folder = str(ROOT / "systems")
    with mock.patch.dict(sys.modules):
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(folder):
                del sys.modules[name]
        return load_config(str(path))


def configuration(name: str) -> dict[str, Any]:
    """`site_configuration` of one system, with stacks that do not depend on this machine."""
    with (
        mock.patch.object(reframe_config, "discover_stacks", return_value=_STACKS),
        mock.patch.object(stack_probe, "find_compiler_library", return_value="libyaml.so"),
    ):
        site = load_configuration(ROOT / "systems" / name / "reframe.py")
        site.select_subconfig(name)
    system = next(entry for entry in site["systems"] if entry["name"] == name)
    chosen = {name for partition in system["partitions"] for name in partition["environs"]}
    return {
        "partitions": system["partitions"],
        "environments": [entry for entry in site["environments"] if entry["name"] in chosen],
    }


def committed() -> list[str]:
    """Systems of the list; a site's own systems need not be in it."""
    found = re.findall(r"^@ ([^+\s]+)\+", GOLDEN.read_text(encoding="utf-8"), re.MULTILINE)
    return sorted(set(found))


def merged(systems: list[str]) -> dict[str, Any]:
    """One system with the partitions and environments of all given systems."""
    partitions, environments = [], []
    for name in systems:
        one = configuration(name)
        own = f"{name}{_BETWEEN}"
        for partition in one["partitions"]:
            renamed = [own + environment for environment in partition["environs"]]
            partitions.append({**partition, "name": own + partition["name"], "environs": renamed})
        environments += [{**entry, "name": own + entry["name"]} for entry in one["environments"]]
    system = {"name": "all", "hostnames": [".*"], "modules_system": "nomod", "partitions": partitions}
    return {"systems": [system], "environments": environments}


def listed(settings: Path, system: str) -> set[Case]:
    """(benchmark, suite and case, environment) as ReFrame itself lists them, with warnings as errors.

    Raises:
        AssertionError: ReFrame failed or warned.
    """
    reframe = Path(sys.executable).parent / "reframe"
    words = [reframe, "-C", settings, "--system", system, "-c", ROOT / "reframe_tests", "-R", "-lC"]
    environment = {**os.environ, "PYTHONWARNINGS": "error", "RFM_COLORIZE": "no"}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout, done.stdout[:2000]
    matches = filter(None, (_LINE.match(line) for line in done.stdout.splitlines()))
    names = {one.check: one.name for one in BENCHMARKS.values()}
    return {(names[m["check"]], m["entry"], m["environment"].replace(_BETWEEN, "+", 1)) for m in matches}


def generated(place: Path, systems: list[str]) -> set[Case]:
    """The cases of all given systems."""
    place.joinpath("settings.yaml").write_text(json.dumps(merged(systems)), encoding="utf-8")
    return listed(place / "settings.yaml", "all")


def text(cases: set[Case]) -> str:
    """Cases with the same environments under one heading, sorted."""
    where: dict[tuple[str, str], set[str]] = defaultdict(set)
    for benchmark, entry, environment in cases:
        where[(benchmark, entry)].add(environment)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for (benchmark, entry), environments in where.items():
        groups[tuple(sorted(environments))].append(f"{benchmark} {entry}")
    blocks = [
        "\n".join([*(f"@ {environment}" for environment in group), *(f"  {case}" for case in sorted(groups[group]))])
        for group in sorted(groups)
    ]
    return _HEADER + "\n" + "\n\n".join(blocks) + "\n"


def main() -> None:
    """Rewrite the list."""
    with TemporaryDirectory() as place:
        os.environ["IOWATCH_VAR"] = place
        GOLDEN.write_text(text(generated(Path(place), system_names())), encoding="utf-8")
    sys.stdout.write(f"wrote {GOLDEN}\n")


if __name__ == "__main__":
    main()
