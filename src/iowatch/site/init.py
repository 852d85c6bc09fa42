"""`iowatch system init`: writes systems/<name>/ from the facts that this machine reports, and from a few answers.

Each answer is verified at once: a file in the scratch directory, a job in each partition. Missing and unverified facts
are listed in comments of the files and in the output of the command; no value is invented.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from iowatch.core import MachineError, UsageError, escape_line, file_system_type, settings, suggest_name, units, utc_now
from iowatch.site import file_system, machine, repository, schedulers, storage, system, trial

_LOG = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SETTINGS = re.compile(r"(?<=# settings: begin\n).*(?=# settings: end\n)", re.DOTALL)


# Ask a question (text, default) and return the answer.
AskCallback = Callable[[str, str], str]


@dataclass(frozen=True)
class Answers:
    """What a person decides about a system; None and empty: as detected.

    Attributes:
        scratch: directory of the benchmarks; may contain environment variables.
        account: account of the jobs, or options of the scheduler that begin with a dash.
        partitions: the scheduler's names of the partitions to measure.
        timezone: IANA name.
        title: shown on pages.
    """

    scratch: str | None = None
    account: str | None = None
    partitions: tuple[str, ...] = ()
    timezone: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class InitResult:
    """The files that `write_system` wrote, and what is known about their content.

    Attributes:
        gaps: missing facts.
        verified, unverified: what was tried with success and without, or not at all.
        refused: whether an answer that was given as an option failed its trial.
        commands: what to run next, with its purpose.
        recipes: files for schedulers that name this system now.
    """

    name: str
    files: tuple[str, ...]
    gaps: tuple[str, ...]
    verified: tuple[str, ...]
    unverified: tuple[str, ...]
    refused: bool
    commands: tuple[tuple[str, str], ...]
    recipes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "commands": [command for command, _ in self.commands]}


@dataclass(frozen=True)
class MachineFacts:
    """Detected facts that are used in several places."""

    host: str
    scheduler: str
    partitions: tuple[machine.QueueInfo, ...]
    cores: int
    launchers: tuple[str, ...]
    mounts: tuple[storage.Mount, ...]
    mpi_types: Mapping[str, str] | None = None


def detect_machine(scheduler: str | None = None) -> MachineFacts:
    """Examine this machine.

    Args:
        scheduler: use this one instead of detecting it.

    Raises:
        UsageError: unknown scheduler.
    """
    if scheduler is None:
        scheduler = machine.detect_scheduler().name
    elif scheduler not in schedulers.SCHEDULER_OPTIONS:
        hint = suggest_name(scheduler, list(schedulers.SCHEDULER_OPTIONS))
        raise UsageError(f"no scheduler '{scheduler}'", hint=hint)
    mpi_types: Mapping[str, str] | None = {}
    if machine.is_slurm(scheduler):
        mpi_types = machine.slurm_mpi_types()
    return MachineFacts(
        host=socket.gethostname(),
        scheduler=scheduler,
        partitions=tuple(machine.detect_partitions(scheduler)),
        cores=os.cpu_count() or 1,
        launchers=tuple(machine.detect_launchers()),
        mounts=tuple(storage.list_mounts()),
        mpi_types=mpi_types,
    )


def missing_facts(facts: MachineFacts) -> tuple[str, ...]:
    """Describe the facts that the administrator has to add."""
    gaps = ["interconnect", "theoretical peak bandwidths of the file systems"]
    if facts.scheduler != "local" and not facts.partitions:
        gaps.append(f"queues of {facts.scheduler}: no answer")
    if facts.scheduler != "local" and any(partition.cores is None for partition in facts.partitions):
        gaps.append("cores of the compute nodes: ranks_per_node is the number of cores of this login node")
    if facts.mpi_types is None:
        gaps.append("PMI type for srun (MpiDefault): see MPI_TYPES in reframe.py")
    if not any(mount.technology in storage.PARALLEL_TECHNOLOGIES for mount in facts.mounts):
        gaps.append("parallel file system: none is mounted here")
    if not facts.launchers:
        gaps.append("MPI launcher: load the MPI module first; until then ReFrame has no environment")
    return tuple(gaps)


def _writable_directory(mount: storage.Mount) -> Path | None:
    """Return where a user can write on a file system: a directory of their name, else its root; None if nowhere."""
    user_directory = Path(mount.mount, os.environ.get("USER", ""))
    # A server that does not respond would block this command.
    responds = mount.size_bytes is not None or mount.writable
    if responds and os.access(user_directory, os.W_OK | os.X_OK):
        return user_directory
    if mount.writable:
        return Path(mount.mount)
    return None


@dataclass(frozen=True)
class ScratchCandidate:
    """A possible scratch directory.

    Attributes:
        directory: its path, in which variables may stand.
        reason: why it is proposed.
    """

    directory: str
    reason: str


@dataclass(frozen=True)
class ScratchProposal:
    """The possible scratch directories of a machine, the best first.

    Attributes:
        is_evident: whether the first needs no question: a variable names it, or it is on the only parallel file system.
    """

    candidates: tuple[ScratchCandidate, ...]
    is_evident: bool


def propose_scratch(facts: MachineFacts) -> ScratchProposal:
    """Return the possible scratch directories; there is at least one, below the directory of iowatch's own files."""
    named_by_variable = [
        ScratchCandidate(f"${{{variable}}}/iowatch", f"{variable} is set on this machine")
        for variable in ("SCRATCH", "WORK")
        if os.environ.get(variable)
    ]
    # Directories on the mounted file systems, those of parallel ones first.
    parallel: list[ScratchCandidate] = []
    others: list[ScratchCandidate] = []
    for mount in facts.mounts:
        directory = _writable_directory(mount)
        if directory is None or mount.mount == "/" or mount.technology in ("tmpfs", "overlay"):
            continue
        reason = mount.technology
        if mount.free_bytes is not None:
            reason += f", {units.format_size(mount.free_bytes)} free"
        reason += f", writable for {os.environ.get('USER', 'you')}"
        candidate = ScratchCandidate(f"{directory}/iowatch", reason)
        if mount.technology in storage.PARALLEL_TECHNOLOGIES:
            parallel.append(candidate)
        else:
            others.append(candidate)
    # The directory of iowatch's own files is possible everywhere.
    var_type = file_system_type(str(settings.var_directory().absolute()))
    below_var = ScratchCandidate(
        "${IOWATCH_VAR}/scratch", f"{var_type}, not parallel; of a cluster, name a directory of the one to measure"
    )
    is_evident = bool(named_by_variable) or len(parallel) == 1
    return ScratchProposal((*named_by_variable, *parallel, below_var, *others), is_evident)


class Interview:
    """The questions of `iowatch system init`: only what is not found, each with its reason, and verified at once.

    Attributes:
        verified, unverified: what was tried: subject (`scratch`, `partition NAME`) to what was found.
    """

    def __init__(self, facts: MachineFacts, given: Answers, ask: AskCallback | None, submit: bool) -> None:
        """Prepare the questions.

        Args:
            given: answers that are not asked for.
            ask: None for no questions; then only given answers are verified.
            submit: whether jobs may be submitted.
        """
        self._facts, self._given, self._ask = facts, given, ask
        self._submit = submit and schedulers.SCHEDULER_OPTIONS[facts.scheduler].scheduler != "local"
        self.verified: dict[str, str] = {}
        self.unverified: dict[str, str] = {}

    def conduct(self) -> Answers:
        """Ask and verify; return the answers, complete except for what is as detected.

        Raises:
            UsageError: a given answer is impossible: an unknown partition, a time zone or a relative path.
        """
        self._require_possible()
        given = self._given
        scratch = self._choose_scratch()
        partitions, timezone = self._choose_partitions(), self._choose_zone()
        answers = replace(given, scratch=scratch, partitions=partitions, timezone=timezone)
        if self._submit and (self._ask or given.account or given.partitions):
            answers = self._try_jobs(answers)
        elif self._facts.scheduler not in ("local", "flux"):
            self.unverified["partitions"] = "no job was submitted"
        return answers

    def _require_possible(self) -> None:
        """Reject given answers before any question.

        Raises:
            UsageError: see `conduct`.
        """
        names = [queue.name for queue in self._facts.partitions]
        for name in self._given.partitions:
            if name not in names:
                raise UsageError(f"no partition '{name}'", hint=suggest_name(name, names))
        if self._given.timezone:
            units.find_time_zone(self._given.timezone)
        if self._given.scratch is not None:
            file_system.expand_scratch(self._given.scratch, "--scratch")
        access_of(self._given, self._facts)

    def _choose_scratch(self) -> str:
        proposal = propose_scratch(self._facts)
        if self._given.scratch is None and not proposal.is_evident and self._ask:
            return self._ask_scratch("Benchmarks write to this directory, and measure its file system.")
        scratch = self._given.scratch or proposal.candidates[0].directory
        if self._ask is None and self._given.scratch is None:
            self.unverified["scratch"] = "not tried"
            return scratch
        fault = self._try_scratch(scratch)
        if fault and self._ask:
            return self._ask_scratch(fault)
        return scratch

    def _ask_scratch(self, reason: str) -> str:
        assert self._ask
        candidates = propose_scratch(self._facts).candidates
        _LOG.info("%s", reason)
        for number, candidate in enumerate(candidates, 1):
            _LOG.info("  %s  %s  (%s)", number, candidate.directory, candidate.reason)
        while True:
            scratch = self._ask("Scratch directory (a number or a path)", "1").strip()
            if scratch.isdecimal() and 1 <= int(scratch) <= len(candidates):
                scratch = candidates[int(scratch) - 1].directory
            fault = self._try_scratch(scratch)
            if fault is None:
                return scratch
            _LOG.info("%s", fault)

    def _try_scratch(self, scratch: str) -> str | None:
        """Return what is wrong with a scratch directory, and what to do, or None."""
        try:
            directory = file_system.expand_scratch(scratch, "scratch")
            identity = trial.try_scratch(directory)
        except (UsageError, MachineError) as error:
            self.unverified["scratch"] = error.message
            return f"{error.message}\n  Its parent directory must exist and be writable, here and on the nodes of jobs."
        self.unverified.pop("scratch", None)
        self.verified["scratch"] = f"a file was written to {directory} and removed ({identity or 'unknown mount'})"
        _LOG.info("scratch: %s", self.verified["scratch"])
        return None

    def _choose_partitions(self) -> tuple[str, ...]:
        names = [queue.name for queue in self._facts.partitions]
        if self._given.partitions or len(names) < 2 or self._ask is None:
            return self._given.partitions or tuple(names)
        _LOG.info("Each partition is measured on its own; one of those that see the scratch directory is enough.")
        for queue in self._facts.partitions:
            _LOG.info("  %s", _queue_line(queue))
        default = next((queue.name for queue in self._facts.partitions if queue.default), names[0])
        while True:
            answer = self._ask("Partitions (names separated by commas, or all)", default).strip()
            if answer == "all":
                return tuple(names)
            partitions = [word.strip() for word in answer.split(",") if word.strip()]
            unknown = [name for name in partitions if name not in names]
            if unknown:
                _LOG.info("no partition '%s': %s", unknown[0], suggest_name(unknown[0], names))
            elif partitions:
                return tuple(partitions)
            else:
                _LOG.info("Name one partition.")

    def _choose_zone(self) -> str | None:
        if self._given.timezone:
            return self._given.timezone
        if settings.site_settings().timezone != "UTC":
            return None  # of site.yaml
        detected = machine.detect_time_zone()
        if detected:
            _LOG.info("time zone: %s (from %s; another one with --timezone)", detected.name, detected.source)
            return detected.name
        if self._ask is None:
            return None
        _LOG.info("Times are shown, and blackouts are read, in the time zone of the site; this machine names none.")
        while True:
            zone = self._ask("Time zone, for example Europe/Berlin", "UTC")
            try:
                units.find_time_zone(zone)
            except UsageError as error:
                _LOG.info("%s", error)
            else:
                return zone

    def _try_jobs(self, answers: Answers) -> Answers:
        """Submit a job to each partition until all ran, or until the person keeps those that did not."""
        while True:
            refused, no_scratch = self._submit_jobs(answers, answers.partitions or (None,))
            if not self._ask or not (refused or no_scratch):
                return answers
            if no_scratch:
                answers = replace(answers, scratch=self._ask_scratch("The nodes of jobs must see the directory, too."))
                continue
            account = self._ask_account(answers)
            if account == _DROP and len(refused) < len(answers.partitions):
                for name in refused:
                    del self.unverified[f"partition {name}"]
                accepted = tuple(name for name in answers.partitions if name not in refused)
                return replace(answers, partitions=accepted)
            if account in ("", _DROP):
                return answers
            answers = replace(answers, account=account)

    def _ask_account(self, answers: Answers) -> str:
        assert self._ask
        accounts: list[str] = []
        if machine.is_slurm(self._facts.scheduler):
            accounts = machine.slurm_accounts()
        account_list = ""
        if accounts:
            account_list = f"Your accounts: {', '.join(accounts)}. "
        _LOG.info(
            "Jobs need an account or another option here, or the partition is not for you. %s'%s' leaves "
            "refused partitions out; without an answer they stay in the files, marked as not verified.",
            account_list,
            _DROP,
        )
        # Not the account that was just refused.
        default = next((name for name in accounts if name != answers.account), "")
        return self._ask("Account, or options that begin with '-' (--qos=short)", default).strip()

    def _submit_jobs(self, answers: Answers, names: Sequence[str | None]) -> tuple[list[str], bool]:
        """Return the names of refused partitions, and whether a job could not write to the scratch directory."""
        partition_list = ", ".join(name or "–" for name in names)
        _LOG.info("submitting one job per partition (1 node, less than a minute): %s", partition_list)
        scratch = file_system.expand_scratch(answers.scratch or "", "scratch")
        try:
            trials = trial.try_partitions(self._facts.scheduler, names, access_of(answers, self._facts), scratch)
        except MachineError as error:
            _LOG.info("%s", error)
            self.unverified.update({f"partition {name or 'default'}": error.message for name in names})
            return [], False
        for job in trials:
            subject = f"partition {job.partition}"
            self.unverified.pop(subject, None)
            if job.status == "ran":
                self.verified[subject] = f"a job ran with {job.submitted}"
                _LOG.info("%s: a job ran, and wrote and removed a file in %s", subject, scratch)
            else:
                self.verified.pop(subject, None)
                self.unverified[subject] = job.answer
                _LOG.info("%s: %s\n  submitted: %s\n  answer: %s", subject, job.status, job.submitted, job.answer)
        refused = [job.partition for job in trials if job.status == "refused"]
        return refused, any(job.status == "no scratch" for job in trials)


# The answer that leaves refused partitions out.
_DROP = "drop"


def _queue_line(queue: machine.QueueInfo) -> str:
    """Return `normal  (12 nodes, the default)`."""
    facts = []
    if queue.nodes is not None:
        facts.append(units.format_count(queue.nodes, "node"))
    if queue.default:
        facts.append("the default")
    if not facts:
        return queue.name
    return f"{queue.name}  ({', '.join(facts)})"


def access_of(answers: Answers, facts: MachineFacts) -> list[str]:
    """Return the additional options of each job.

    Raises:
        UsageError: an account for a scheduler without accounts.
    """
    if not answers.account:
        return []
    if answers.account.startswith("-"):
        return shlex.split(answers.account)
    option = schedulers.SCHEDULER_OPTIONS[facts.scheduler].account
    if not option:
        raise UsageError(f"scheduler '{facts.scheduler}' has no accounts", hint="Leave out --account.")
    return [option.format(answers.account)]


def _yaml_text(value: str) -> str:
    """Return a YAML scalar that parses to the same text."""
    return json.dumps(value, ensure_ascii=False)


def _yaml_list_item(**fields: object) -> list[str]:
    """Return one YAML list item; fields without a value are omitted."""
    lines: list[str] = []
    for name, value in fields.items():
        if value is None:
            continue
        indent = "  " if lines else "- "
        text = _yaml_text(value) if isinstance(value, str) else value
        lines.append(f"{indent}{name}: {text}")
    return lines


def _format_size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else units.format_size(size_bytes)


def _nodes(facts: MachineFacts, day: str) -> list[str]:
    """Return the nodes of each partition, and the one that this command runs on."""
    lines: list[str] = []
    for queue in facts.partitions:
        lines += _yaml_list_item(
            name=queue.name, count=queue.nodes, cores=queue.cores, source=f"{facts.scheduler}, {day}"
        )
    processor = machine.detect_processor()
    lines += _yaml_list_item(
        name="this node" if facts.scheduler == "local" else "login",
        sockets=processor.sockets,
        cores=facts.cores,
        processor=processor.model,
        memory=_format_size(machine.detect_memory_bytes()),
        source=f"/proc/cpuinfo and /proc/meminfo of {facts.host}, {day}",
    )
    return lines


def _file_systems(facts: MachineFacts, day: str) -> list[str]:
    """Return the file systems with distinct names; the second `scratch` is named by its full path."""
    lines: list[str] = []
    used_names: set[str] = set()
    for mount in facts.mounts:
        directory_name = Path(mount.mount).name or "root"
        source = "/proc/self/mounts"
        if mount.technology == "Lustre":
            source += " and lfs"
        lines += _yaml_list_item(
            name=mount.mount if directory_name in used_names else directory_name,
            mount=mount.mount,
            technology=mount.technology,
            targets=mount.targets,
            capacity=_format_size(mount.size_bytes),
            source=f"{source}, {day}",
        )
        if mount.stripe_count is not None and mount.stripe_bytes is not None:
            lines.append(f"  striping: {{count: {mount.stripe_count}, bytes: {mount.stripe_bytes}}}")
        elif mount.layout is not None:
            lines.append(f"  # default layout: {mount.layout}")
        # What the administrator can add.
        lines.append('  # peaks: [{value: 30, unit: GB/s, of: file system, source: "document and page"}]')
        if mount.writable or mount.technology in storage.PARALLEL_TECHNOLOGIES:
            directory = _yaml_text(str(Path(mount.mount, "iowatch")))
            lines.append(f"  # directory: {directory}  # suites can measure it, too")
            lines.append("  # limits: {total_bytes: 100g, files: 10000}")
        used_names.add(directory_name)
    return lines


# Ranks of the suite `smoke`. Without a scheduler an MPI can start more ranks than there are cores, so that a session is
# possible on a machine with two.
LEAST_RANKS = 4


def _ranks_per_node(facts: MachineFacts) -> int:
    if facts.scheduler == "local":
        return max(facts.cores, LEAST_RANKS)
    largest = max((partition.cores or 0 for partition in facts.partitions), default=0)
    return largest or facts.cores


def system_yaml_text(name: str, facts: MachineFacts, interview: Interview, answers: Answers) -> str:
    """Return the text of `system.yaml`."""
    day = utc_now().date().isoformat()
    has_batch_system = facts.scheduler != "local"
    lines = [
        f"# Facts of {name}: written by `iowatch system init` on {facts.host}, {day}.",
        "# `iowatch docs systems` lists all fields; `iowatch system show` checks them.",
        *(f"# Not found: {gap}." for gap in missing_facts(facts)),
        f"name: {name}",
        f"title: {_yaml_text(answers.title or name)}",
    ]
    if answers.timezone:
        lines.append(f"timezone: {answers.timezone}")
    lines.append("system_stacks: true")
    lines += _scratch_lines(facts, interview, answers)
    lines.append("limits:")
    if not has_batch_system:
        lines.append("  nodes: 1")
    lines += [
        f"  ranks_per_node: {_ranks_per_node(facts)}",
        "  free_bytes: 10g  # must stay free on scratch",
        "  minutes: 60  # longest job",
    ]
    if has_batch_system:
        lines.append("  queue_minutes: 240  # longest wait in the queue")
    lines += [
        "nodes:",
        *_nodes(facts, day),
        "# interconnect: [{name: InfiniBand HDR, topology: fat tree, source: document and page}]",
    ]
    if facts.mounts:
        lines += ["file_systems:", *_file_systems(facts, day)]
    else:
        lines.append("file_systems: []")
    return "\n".join(lines) + "\n"


def _scratch_lines(facts: MachineFacts, interview: Interview, answers: Answers) -> list[str]:
    """Return the scratch directory, after comments: why it is proposed, and whether a file was written there."""
    candidates = propose_scratch(facts).candidates
    directory = answers.scratch or candidates[0].directory
    lines: list[str] = []
    proposal_reasons = {candidate.directory: candidate.reason for candidate in candidates}
    if directory in proposal_reasons:
        lines.append(f"# {proposal_reasons[directory]}")
    trial_result = interview.verified.get("scratch") or f"Not verified: {interview.unverified['scratch']}"
    lines.append(f"# {escape_line(trial_result)}")
    lines.append(f"scratch: {_yaml_text(directory)}")
    return lines


def _partition_setting(partition: machine.QueueInfo | None, facts: MachineFacts, unverified: Mapping[str, str]) -> str:
    """Return one partition of `reframe.py`; None: the scheduler's default queue."""
    if partition is None:
        partition, queue = machine.QueueInfo("default"), "None"
    else:
        queue = json.dumps(partition.name)
    name = re.sub(r"[^\w.-]", "-", partition.name)
    # Cores of this login node are no limit of other nodes.
    cores = facts.cores if facts.scheduler == "local" else partition.cores
    minutes = min(partition.minutes or 60, 60)
    setting = f'    {{"name": "{name}", "queue": {queue}, "cores": {cores}, "time_limit": "{minutes}m"}},'
    fault = unverified.get(f"partition {partition.name}")
    if fault:
        setting += f"  # not verified: {escape_line(fault)}"
    return setting


def reframe_settings_text(facts: MachineFacts, interview: Interview, answers: Answers) -> str:
    """Return the settings of `reframe.py`, with comments for missing facts and for what was tried."""
    # Login nodes of a system differ in their number only.
    host_pattern = re.sub(r"\d+", r"\\d+", re.escape(facts.host).replace(r"\-", "-"))
    queues: list[machine.QueueInfo | None] = []
    queues += [queue for queue in facts.partitions if queue.name in answers.partitions]
    if not queues:
        queues = [None]
    partition_trials = [
        f"# Verified: {escape_line(subject)}: {escape_line(text)}."
        for subject, text in interview.verified.items()
        if subject.startswith("partition")
    ]
    if "partitions" in interview.unverified:
        partition_trials.append("# Not verified: no job was submitted.")
    launchers = ", ".join(facts.launchers) or "none"
    lines = [
        f"# Found: scheduler {facts.scheduler}; launchers on PATH: {launchers}.",
        f'SCHEDULER = "{facts.scheduler}"',
        "# What starts MPI programs. None: srun with Slurm, flux run with Flux, mpirun with the others.",
        "LAUNCHER = None",
        "# Without a scheduler: nodes on which mpirun starts programs by ssh; `ssh n1 true` must ask for nothing.",
        "HOSTS = []",
        "# srun's --mpi type for each MPI (`srun --mpi=list`) where Slurm's MpiDefault is none.",
        f"MPI_TYPES = {json.dumps(dict(facts.mpi_types or {}))}",
        "# Regular expressions of the login nodes' host names; ReFrame recognises the machine by them.",
        f'HOSTNAMES = [r"^{host_pattern}$"]',
        "# lmod, envmod, or nomod where there are no environment modules.",
        f'MODULES_SYSTEM = "{machine.detect_module_system() or "nomod"}"',
        '# More options of every job, for example ["--account=my-project"].',
        f"ACCESS = {json.dumps(access_of(answers, facts))}",
        "# Queues: name for ReFrame, name for the scheduler (None: its default), cores of a node, longest job.",
        "# Limits of cases are the cores (None: not known), and `count` of the nodes of that name in system.yaml.",
        *partition_trials,
        "PARTITIONS = [",
        *(_partition_setting(queue, facts, interview.unverified) for queue in queues),
        "]",
    ]
    return "\n".join(lines) + "\n"


def write_system(
    name: str,
    given: Answers = Answers(),
    *,
    scheduler: str | None = None,
    force: bool = False,
    ask: AskCallback | None = None,
    submit: bool = True,
) -> InitResult:
    """Describe this machine as `systems/<name>/`.

    Args:
        given: answers that are not asked for.
        ask: asks a question; None for no questions, then only given answers are verified.
        submit: whether jobs may be submitted to verify answers.

    Raises:
        UsageError: the name or a given answer is invalid, or the name exists and `force` is not set.
        InputError: the written files violate their own schema (a defect of iowatch).
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot name a system", hint="Use lower-case letters, digits and dashes.")
    directory = settings.site_file("system", name).parent
    if (directory / "system.yaml").exists() and not force:
        raise UsageError(f"systems/{name} already exists", hint="--force overwrites it.")
    facts = detect_machine(scheduler)
    interview = Interview(facts, given, ask, submit)
    answers = interview.conduct()
    directory.mkdir(parents=True, exist_ok=True)
    template = settings.find_file("reframe", system.TEMPLATE_NAME).read_text(encoding="utf-8")
    configuration = _SETTINGS.sub(lambda _: reframe_settings_text(facts, interview, answers), template)
    texts = {"system.yaml": system_yaml_text(name, facts, interview, answers), "reframe.py": configuration}
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8")
    system.read_system(directory / "system.yaml")
    unverified = tuple(f"{subject}: {why}" for subject, why in interview.unverified.items())
    # Without questions an answer cannot be corrected.
    has_given_answer = bool(given.scratch or given.account or given.partitions)
    return InitResult(
        name=name,
        files=tuple(str(directory / file) for file in texts),
        gaps=missing_facts(facts),
        verified=tuple(f"{subject}: {what}" for subject, what in interview.verified.items()),
        unverified=unverified,
        refused=ask is None and has_given_answer and bool(unverified),
        commands=_next_commands(name),
        recipes=tuple(map(str, repository.name_system_in_recipes(name))),
    )


def _next_commands(name: str) -> tuple[tuple[str, str], ...]:
    return (
        (f"iowatch doctor --system {name}", "what is missing, and the command that installs it"),
        (f"iowatch run --system {name} --suite tiny", "the first verdict, in some minutes"),
        (f"iowatch nightly --system {name} --suite nightly", "what cron runs every night; builds the pages"),
    )
