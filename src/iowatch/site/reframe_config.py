"""ReFrame configuration: environments of stacks, launchers, retired systems, and runs inside an allocation.

`systems/<name>/reframe.py` calls `system_configuration`. `published_configuration` describes machines that are only
known from publications, for dry runs and imports. `iowatch run --ab` writes a configuration that calls
`allocation_configuration`: all cases run on the same nodes of the allocation, one after the other, without a queue;
only scheduler and launcher differ from the system's own `reframe.py`.

ReFrame 4.10 can submit to Flux, but its backend requests one task whatever the test requests. A Flux machine is
therefore measured in an allocation (`flux alloc -N4 --exclusive iowatch run …`), where ReFrame runs locally and
`flux run` distributes the ranks.
"""

from __future__ import annotations

import math
import os
import re
import runpy
import shlex
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reframe.core import config
from reframe.core.backends import register_launcher
from reframe.core.exceptions import ReframeError
from reframe.core.launchers import JobLauncher
from reframe.core.systems import System as ReframeSystem
from reframe.utility.typecheck import Duration

from iowatch.core import InputError, IowatchError, MachineError, roots, settings, suggest_name
from iowatch.site import Stack, discover_stacks, load_system, read_stack_json, write_stack_files
from iowatch.site.schedulers import BLOCKED_REASONS, SCHEDULER_OPTIONS, access_options, with_mpi_types
from iowatch.site.stack.probe import features_of_stack


@dataclass(frozen=True)
class ReframeConfiguration:
    """The configuration of ReFrame for a system.

    Attributes:
        path: of `reframe.py`.
        site_configuration: the dictionary that it defines.
    """

    path: Path
    site_configuration: dict[str, Any]


def load_configuration(system: str) -> ReframeConfiguration:
    """Execute `systems/<system>/reframe.py` and let ReFrame check it, as at the start of a session.

    Raises:
        InputError: the file is missing, fails, or ReFrame refuses it.
        IowatchError: reported by the configuration itself (no stack on this machine, …).
    """
    path = settings.find_file("reframe", system)
    untrusted_reason = roots.untrusted_reason(path) if path.exists() else None
    if untrusted_reason:
        raise InputError(untrusted_reason)
    try:
        configuration = runpy.run_path(str(path)).get("site_configuration")
        if not isinstance(configuration, dict):
            raise ValueError("it does not define the dictionary 'site_configuration'")
        _check_configuration(path, system, configuration)
    except IowatchError:
        raise
    except (Exception, SystemExit) as error:  # a configuration is a program and may raise anything
        raise InputError(
            f"{path} is not a valid ReFrame configuration: {_error_text(path, error)}",
            hint="docs/systems.md lists schedulers and launchers; ReFrame's configuration reference lists all fields.",
        ) from error
    return ReframeConfiguration(path, configuration)


def _check_configuration(path: Path, system: str, configuration: dict[str, Any]) -> None:
    """Create the system and its partitions in ReFrame: this finds unknown schedulers, launchers and module systems."""
    loaded = config.load_config()
    loaded.update_config(configuration, str(path))
    loaded.validate()
    loaded.select_subconfig(system)
    for partition in ReframeSystem.create(loaded).partitions:
        if partition.time_limit is not None:  # ReFrame reads it only in a test that has no time limit of its own
            try:
                Duration(partition.time_limit)
            except ValueError:
                raise ValueError(
                    f"partition '{partition.name}': time_limit {partition.time_limit!r}, expected for example '1h30m'"
                ) from None
        names = [environment["name"] for environment in configuration["environments"]]
        for environment in partition.environs:  # ReFrame's own `builtin` belongs to no stack
            if environment.name not in names:
                raise InputError(
                    f"{path}: no environment is called '{environment.name}'", hint=suggest_name(environment.name, names)
                )


def _error_text(path: Path, error: BaseException) -> str:
    """Return what an exception and its cause say, in one line, with the line of the configuration that raised it."""
    cause: Any = error.__cause__
    if hasattr(cause, "absolute_path"):  # of jsonschema; ReFrame's own text only names the file
        words = ["/".join(map(str, cause.absolute_path)), cause.message]
    elif isinstance(error, SyntaxError):
        words = [f"line {error.lineno}", error.msg]
    else:
        words = []
        frames = traceback.extract_tb(error.__traceback__)
        configuration_lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        if configuration_lines:
            words.append(f"line {configuration_lines[-1]}")
        # The text of other exceptions is often only a name: KeyError: 'x'.
        if not isinstance(error, ReframeError | ValueError):
            words.append(type(error).__name__)
        words.append(str(error))
        if cause is not None and str(cause) not in str(error):
            words.append(str(cause))
    return textwrap.shorten(": ".join(words), 300, placeholder=" …")


def reframe_environment_name(stack: str) -> str:
    """Return ReFrame's name of a stack: only letters, digits, `-` and `_`, and no leading digit."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", stack)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def reframe_environment(stack: Stack) -> dict[str, Any]:
    """Return ReFrame's description of one installed stack.

    Its `prepare_cmds` source `activate.sh` in every job and build; `extras` name the files of the stack and the
    versions of its parts.
    """
    directory = write_stack_files(stack)
    return {
        "name": reframe_environment_name(stack.name),
        "cc": "mpicc",
        "cxx": "mpicxx",
        "ftn": "mpifort",
        "prepare_cmds": [f". {shlex.quote(str(directory / 'activate.sh'))}"],
        "features": features_of_stack(stack),
        "extras": {
            "stack": stack.name,
            "activate": str(directory / "activate.sh"),
            "stack_json": str(directory / "stack.json"),
            "versions": {part.name: part.version for part in stack.parts},
            "unanswered": dict(stack.unanswered),
        },
    }


def reframe_environments(system: str) -> list[dict[str, Any]]:
    """Return ReFrame's `environments` of all usable stacks of a system.

    Raises:
        MachineError: no usable stack.
        InputError: two stacks would have the same name in ReFrame (`a.1` and `a_1`).
    """
    usable = [stack for stack in discover_stacks(system) if stack.status == "installed"]
    if not usable:
        raise MachineError(
            f"system '{system}' has no usable stack",
            hint=f"`iowatch stack list --system {system}` shows why; `iowatch doctor` shows what to install.",
        )
    stack_names: dict[str, str] = {}
    for stack in usable:
        other = stack_names.setdefault(reframe_environment_name(stack.name), stack.name)
        if other != stack.name:
            raise InputError(
                f"the stacks '{other}' and '{stack.name}' of '{system}' have the same name in ReFrame",
                hint="Rename one of them: ReFrame knows letters, digits, - and _ only.",
            )
    return [reframe_environment(stack) for stack in usable]


def system_configuration(
    path: str,
    *,
    scheduler: str,
    launcher: str | None,
    mpi_types: Mapping[str, str],
    hostnames: Sequence[str],
    modules_system: str,
    access: Sequence[str],
    partitions: Sequence[Mapping[str, Any]],
    hosts: Sequence[str] = (),
) -> dict[str, Any]:
    """Return ReFrame's `site_configuration` of a system from the settings of `systems/_template/reframe.py`.

    Args:
        path: of the system's `reframe.py`; the name of its folder is that of the system.
        launcher: None for that of the scheduler.
        mpi_types: srun's `--mpi` type for each MPI.
        access: additional options of every job.
        partitions: queues with `name`, `queue` (None: the scheduler's default), `cores` per node (None: not known) and
            `time_limit`. The nodes of a queue are those of the same name in system.yaml.
        hosts: nodes of a system without a scheduler, on which `mpirun` starts programs by ssh.

    Raises:
        InputError: hosts and a scheduler.
    """
    if hosts and scheduler != "local":
        raise InputError(f"{path}: HOSTS are for SCHEDULER = 'local'; the nodes of jobs are those of {scheduler}")
    system = load_system(Path(path).resolve().parent.name)
    environments = with_mpi_types(reframe_environments(system.name), mpi_types)
    options = SCHEDULER_OPTIONS[scheduler]
    node_counts = system.node_counts
    if hosts:
        launcher, access = "mpirun-on-hosts", [*access, _HOSTS_OPTION + ",".join(hosts)]
    described = [
        {
            "name": queue["name"],
            "scheduler": options.scheduler,
            "launcher": launcher or options.launcher,
            "access": access_options(scheduler, queue["queue"], access),
            "environs": [environment["name"] for environment in environments],
            "sched_options": {"slurm_job_cancel_reasons": BLOCKED_REASONS},
            "max_jobs": 1,  # one job at a time, so that benchmarks do not disturb each other
            "time_limit": queue["time_limit"],
            "processor": _processor(options.scheduler, queue["cores"]),
            "extras": {
                "scratch": str(system.scratch_directory()),
                "queue_minutes": system.limits.queue_minutes,
                "nodes": len(hosts) or node_counts.get(queue["queue"]),
            },
        }
        for queue in partitions
    ]
    configured = {
        "name": system.name,
        "descr": system.title,
        "hostnames": list(hostnames),
        "modules_system": modules_system,
        "prefix": str(settings.var_directory() / "reframe"),
        "max_local_jobs": 1,
        "partitions": described,
    }
    return {"systems": [configured], "environments": environments}


def _processor(scheduler: str, cores: int | None) -> dict[str, int]:
    """Return ReFrame's `processor` of a partition; without it ReFrame examines this machine."""
    if cores is None and scheduler == "local":
        cores = os.cpu_count()
    return {} if cores is None else {"num_cpus": cores}


def published_configuration(name: str, *, scheduler: str, launcher: str, features: Sequence[str]) -> dict[str, Any]:
    """Return ReFrame's `site_configuration` of a retired system: one partition, one environment `published`.

    No host name matches: ReFrame selects the system only by name (`--system`), never by the host.

    Args:
        name: the system.
        scheduler, launcher: as stated in its sources; otherwise `local` and `mpirun`.
        features: features of the published measurements, as in `Stack.features`.
    """
    system = load_system(name)
    node = system.nodes[0]
    processor = {"num_cpus": node.cores, "num_sockets": node.sockets}
    partition = {
        "name": "default",
        "scheduler": scheduler,
        "launcher": launcher,
        "environs": ["published"],
        "processor": {name: value for name, value in processor.items() if value is not None},
        "extras": {"scratch": f"/retired/{name}"},
    }
    described = {
        "name": name,
        "descr": system.title,
        "hostnames": ["^$"],
        "modules_system": "nomod",
        "prefix": str(settings.var_directory() / "reframe"),
        "partitions": [partition],
    }
    extras = {"stack": "published", "versions": {}}
    # benchio of a dry run is built as everywhere, with libyaml.
    environment = {"name": "published", "features": ["mpi", "libyaml", *features], "extras": extras}
    return {"systems": [described], "environments": [environment]}


@register_launcher("flux-run")
class FluxRunLauncher(JobLauncher):  # type: ignore[misc]
    """`flux run -n <ranks> [-N <nodes>] --exclusive`."""

    def command(self, job: Any) -> list[str]:
        """Return the launcher's command line for one ReFrame job."""
        tasks = job.num_tasks or 1
        words = ["flux", "run", "-n", str(tasks)]
        if job.num_tasks_per_node:
            words += ["-N", str(math.ceil(tasks / job.num_tasks_per_node)), "--exclusive"]
        return words


# Names of the allocation's nodes, separated by commas.
NODES_VARIABLE = "IOWATCH_NODES"


class AllocationLauncher(JobLauncher):  # type: ignore[misc]
    """Starts a case on the first nodes of the allocation, as many as it requests."""

    def all_nodes(self, job: Any) -> list[str]:
        """Return the nodes that cases can use."""
        return os.environ[NODES_VARIABLE].split(",")

    def case_nodes(self, job: Any) -> list[str]:
        """Return the nodes of a case."""
        tasks = job.num_tasks or 1
        tasks_per_node = job.num_tasks_per_node or tasks
        return self.all_nodes(job)[: math.ceil(tasks / tasks_per_node)]


@register_launcher("srun-within")
class SrunInAllocation(AllocationLauncher):
    """`srun` with size and nodes of the case, because the allocation may be larger."""

    def command(self, job: Any) -> list[str]:
        """Return the launcher's command line for one ReFrame job."""
        nodes = self.case_nodes(job)
        words = ["srun", f"--ntasks={job.num_tasks or 1}", f"--nodes={len(nodes)}"]
        if job.num_tasks_per_node:
            words.append(f"--ntasks-per-node={job.num_tasks_per_node}")
        words.append(f"--nodelist={','.join(nodes)}")
        return words


@register_launcher("mpirun-within")
class MpirunInAllocation(AllocationLauncher):
    """`mpirun` with a host file that lists each host once per rank; Open MPI and Hydra both accept this form."""

    def command(self, job: Any) -> list[str]:
        """Return the launcher's command line for one ReFrame job; write the host file next to the job script."""
        host_file = Path(job.workdir).absolute() / "hosts"
        _write_host_file(host_file, self.case_nodes(job), job)
        return ["mpirun", "-np", str(job.num_tasks or 1), "-machinefile", str(host_file)]


def _write_host_file(path: Path, nodes: Sequence[str], job: Any) -> None:
    """Write each node once per rank."""
    tasks = job.num_tasks or 1
    lines: list[str] = []
    for node in nodes:
        lines += [f"{node}\n"] * (job.num_tasks_per_node or tasks)
    # The last node can have fewer ranks.
    path.write_text("".join(lines[:tasks]), encoding="utf-8")


# In `access` of a partition without a scheduler, which only the launcher reads.
_HOSTS_OPTION = "--hosts="
# ssh does not hand variables over: a rank takes those of the job's shell, for example the paths of a stack's libraries.
_WITH_VARIABLES = ("bash", "-c", """'eval "$1"; shift; exec "$@"'""", "bash", '"$(export -p)"')


@register_launcher("mpirun-on-hosts")
class MpirunOnHosts(AllocationLauncher):
    """`mpirun` on hosts that ssh reaches, without a batch system."""

    def all_nodes(self, job: Any) -> list[str]:
        """Return the hosts of the partition."""
        for option in job.sched_access:
            if option.startswith(_HOSTS_OPTION):
                return str(option).removeprefix(_HOSTS_OPTION).split(",")
        raise ValueError(f"a partition with the launcher mpirun-on-hosts has no {_HOSTS_OPTION}… in `access`")

    def command(self, job: Any) -> list[str]:
        """Return the launcher's words, as the job's shell reads them; write the host file next to the job script."""
        _write_host_file(Path(job.workdir) / "hosts", self.case_nodes(job), job)
        # A relative path, because the command is compared from session to session.
        return ["mpirun", "-np", str(job.num_tasks or 1), "-machinefile", "hosts", *_WITH_VARIABLES]


# Others (aprun, jsrun, …) detect their allocation and fill its nodes from the first.
_LAUNCHERS = {
    **dict.fromkeys(("srun", "srunalloc"), "srun-within"),
    **dict.fromkeys(("mpirun", "mpiexec", "mpirun-openmpi", "mpirun-intelmpi"), "mpirun-within"),
}


def configuration_with_stacks(path: str, system: str, like: str, files: Sequence[str]) -> dict[str, Any]:
    """Return ReFrame's configuration of a system with further stacks wherever one of its stacks is.

    Args:
        path: path of the system's `reframe.py`.
        like: the stack whose partitions and launcher options they have.
        files: their `stack.json`.
    """
    configuration: dict[str, Any] = runpy.run_path(path)["site_configuration"]
    # The environments of the further stacks are as that of the stack `like`, but for their files.
    model = next(entry for entry in configuration["environments"] if _stack_of_environment(entry) == like)
    added = [{**model, **reframe_environment(read_stack_json(Path(file)))} for file in files]
    added_names = [environment["name"] for environment in added]
    # They are used by the partitions that have the stack `like`.
    systems = []
    for entry in configuration["systems"]:
        if entry["name"] != system:
            systems.append(entry)
            continue
        partitions = []
        for partition in entry["partitions"]:
            if model["name"] in partition["environs"]:
                partition = {**partition, "environs": [*partition["environs"], *added_names]}
            partitions.append(partition)
        systems.append({**entry, "partitions": partitions})
    return {**configuration, "systems": systems, "environments": [*configuration["environments"], *added]}


def _stack_of_environment(environment: Mapping[str, Any]) -> str:
    """Return the name of the stack of a ReFrame environment; its own name if it has none."""
    extras: Mapping[str, str] = environment.get("extras", {})
    return extras.get("stack", environment["name"])


def allocation_configuration(path: str, system: str, partition: str) -> dict[str, Any]:
    """Return ReFrame's configuration for one partition of a system, for use in an allocation of it.

    Args:
        path: path of the system's `reframe.py`.
    """
    configuration: dict[str, Any] = runpy.run_path(path)["site_configuration"]
    described = next(entry for entry in configuration["systems"] if entry["name"] == system)
    in_queue = next(entry for entry in described["partitions"] if entry["name"] == partition)
    # In the allocation there is no queue: cases start at once, one after the other.
    in_allocation = {name: value for name, value in in_queue.items() if name not in ("access", "sched_options")}
    launcher = in_queue["launcher"]
    in_allocation |= {"scheduler": "local", "launcher": _LAUNCHERS.get(launcher, launcher), "max_jobs": 1}
    return {**configuration, "systems": [{**described, "partitions": [in_allocation], "max_local_jobs": 1}]}
