"""The ReFrame driver: reads the ReFrame configuration of a system, starts ReFrame and reads its log and report.

Only this module depends on the form of `systems/<name>/reframe.py`, and of ReFrame's command line and report.
"""

from __future__ import annotations

import ast
import ctypes
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from iowatch import checks
from iowatch.benchmarks import registry
from iowatch.core import InputError, MachineError, plugins, settings
from iowatch.site import NO_PARTITION_LIMITS, PartitionLimits, is_slurm, machine, partition_limits, schedulers

_LOG = logging.getLogger(__name__)
_POLL_S = 0.1
# Signals that end ReFrame, and seconds before the next one. SIGINT is first: ReFrame turns SIGTERM into an ordinary
# exception, which a check may catch and drop, and then ignores further ones.
_TERMINATION_STEPS = ((signal.SIGINT, 10), (signal.SIGTERM, 10))
_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
# Lines of ReFrame's log that say why it ran nothing; the last one of a Python error.
_MESSAGE = re.compile(r"ERROR|WARNING|\w+(?:Error|Exception): ")
_LOG_FILE, _REPORT_FILE = "reframe.log", "report.json"
_SETTINGS = Path(__file__).with_name("reframe_settings.yaml")


@dataclass(frozen=True)
class ReframePartition:
    """A ReFrame partition.

    Attributes:
        stacks: their names.
        scratch: directory for scratch files, or None.
        access: scheduler options of its jobs.
        limits: what one job can have on it.
    """

    name: str
    scheduler: str
    stacks: tuple[str, ...]
    scratch: Path | None
    access: tuple[str, ...] = ()
    limits: PartitionLimits = NO_PARTITION_LIMITS

    @property
    def queue(self) -> str | None:
        """The queue that its jobs request; None if the scheduler chooses."""
        match = re.search(r"(?:^|\s)(?:--partition[= ]|-p\s*|-q\s*)(\S+)", " ".join(self.access))
        return match.group(1) if match else None


@dataclass(frozen=True)
class ReframeSite:
    """A system as its ReFrame configuration describes it.

    Attributes:
        features: features of each stack.
        environments: ReFrame environment by stack, for stacks whose names ReFrame does not accept.
        unanswered: of each stack, features that it may have, and why that is not known.
    """

    system: str
    configuration: Path
    partitions: tuple[ReframePartition, ...]
    features: dict[str, frozenset[str]]
    environments: dict[str, str] = field(default_factory=dict)
    unanswered: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def environment_of(self, stack: str) -> str:
        """Name of a stack in ReFrame."""
        return self.environments.get(stack, stack)

    def stack_of(self, environment: str) -> str:
        """The stack that has this name in ReFrame."""
        for stack, name in self.environments.items():
            if name == environment:
                return stack
        return environment


def load_site(system: str) -> ReframeSite:
    """Load the ReFrame configuration of a system, checked by ReFrame, and read partitions and environments.

    Raises:
        InputError: the file is missing, fails, or ReFrame refuses it.
        IowatchError: reported by the configuration itself (no stack on this machine, …).
    """
    from iowatch.site import reframe_config  # ReFrame takes 0.7 s to import; most commands do not need it

    loaded = reframe_config.load_configuration(system)
    path, configuration = loaded.path, loaded.site_configuration
    described = next(entry for entry in configuration["systems"] if entry["name"] == system)
    # A stack whose name ReFrame does not accept is an environment with another name.
    stacks: dict[str, str] = {}
    features: dict[str, frozenset[str]] = {}
    unanswered: dict[str, Mapping[str, str]] = {}
    for environment in configuration["environments"]:
        name = environment["name"]
        extras = environment.get("extras", {})
        stack = extras.get("stack", name)
        unanswered[stack] = extras.get("unanswered", {})
        stacks[name] = stack
        features[stack] = frozenset(environment.get("features", ()))
    return ReframeSite(
        system,
        path,
        tuple(_make_partition(entry, stacks) for entry in described["partitions"]),
        features,
        {stack: name for name, stack in stacks.items() if stack != name},
        unanswered,
    )


def _make_partition(entry: dict[str, Any], stacks: Mapping[str, str]) -> ReframePartition:
    """Make a partition from its entry in the configuration.

    Args:
        stacks: environment -> stack.
    """
    extras = entry.get("extras", {})
    scratch = extras.get("scratch")
    return ReframePartition(
        name=entry["name"],
        scheduler=entry["scheduler"],
        stacks=tuple(stacks[environment] for environment in entry["environs"]),
        scratch=Path(scratch) if scratch else None,
        access=tuple(entry.get("access", ())),
        limits=partition_limits(entry["scheduler"], extras.get("nodes"), entry.get("processor", {}).get("num_cpus")),
    )


@dataclass(frozen=True)
class ReframeFailure:
    """A test that ReFrame could not complete.

    Attributes:
        phase: of ReFrame's pipeline (`setup`, `run`, `sanity`, `performance`…), or `start` and `stack` of iowatch.
        reason: class of the exception, in words, and its message.
        error: class name of the exception that ended the phase, or empty; `PerformanceError` is a value outside
            its reference.
        message: of the exception; empty if ReFrame did not record one.
    """

    test: str
    stack: str
    phase: str
    reason: str
    error: str = ""
    message: str = ""

    def with_remark(self, remark: str) -> ReframeFailure:
        """The failure with a remark at the end of its texts."""
        message = f"{self.message} ({remark})" if self.message else ""
        return replace(self, reason=f"{self.reason} ({remark})", message=message)


def check_path(name: str) -> Path:
    """Return the file with the check of a benchmark.

    Raises:
        InputError: it is missing or not Python, or does not define the check class of the benchmark. ReFrame would
            run nothing, or report failures of a class that no case has.
    """
    expected_class = registry.get_benchmark(name).check
    plugin = registry.BENCHMARKS.plugin_of(name)
    root = plugin.path.parent if plugin else settings.product_root()
    path = root / "reframe_tests" / f"{name}.py"
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(
            f"{path}: cannot read the check of {name}: {error}",
            hint=plugins.PLUGIN_HINT if plugin else "README.md, 'Where to add', lists its files.",
        ) from error
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if expected_class not in classes:
        raise InputError(
            f"{path}: no class '{expected_class}'; it defines {', '.join(classes) or 'none'}",
            hint=f"Rename the class, or correct `check` of {name} in {plugin.path if plugin else 'its entry'}.",
        )
    return path


def reframe_command(site: ReframeSite, order: checks.RunOrder, directory: Path) -> list[str]:
    """ReFrame command line for the runs of an order; `directory` receives all files that ReFrame writes."""
    keys = [run.key for run in order.runs or ()]
    benchmarks = sorted({key.run.partition(":")[0] for key in keys})
    stacks = sorted({key.stack for key in keys})
    words = [machine.reframe_program()]
    words += ["-C", str(_SETTINGS), "-C", str(site.configuration), "--system", site.system]
    for benchmark in benchmarks:
        words += ["-c", str(check_path(benchmark))]
    # Tags and environments restrict what ReFrame generates; the checks skip what is not ordered.
    words += ["-t", f"^{order.suite}$"]
    for stack in stacks:
        words += ["-p", f"^{site.environment_of(stack)}$"]
    words += ["--exec-policy", "serial", "--nocolor"]
    words += ["--prefix", str(directory / "reframe"), "--report-file", str(directory / _REPORT_FILE), "-r"]
    return words


def execute_order(
    site: ReframeSite,
    order: checks.RunOrder,
    directory: Path,
    each_poll: Callable[[], None],
    environment: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Execute the runs of an order in one start of ReFrame (see `run_reframe`).

    Args:
        directory: receives the order and all files that ReFrame writes.
        environment: variables for the launchers of the ReFrame configuration.
    """
    variables: dict[str, str | None] = {**environment, **write_check_order(directory, order)}
    # Jobs that are submitted from within a job are jobs of their own.
    if any(is_slurm(partition.scheduler) for partition in site.partitions):
        variables.update(dict.fromkeys(schedulers.job_variables(os.environ)))
    run_reframe(reframe_command(site, order, directory), directory, variables, each_poll)


def write_check_order(directory: Path, order: checks.RunOrder) -> dict[str, str]:
    """Write an order to a directory; return the variables that the checks in ReFrame need."""
    return {
        "IOWATCH_SITE": str(settings.site_root()),
        "IOWATCH_VAR": str(settings.var_directory().absolute()),
        **checks.write_order(directory, order),
    }


def run_reframe(
    arguments: list[str], directory: Path, environment: Mapping[str, str | None], each_poll: Callable[[], None]
) -> int:
    """Run ReFrame to its end, calling `each_poll` every 0.1 s and once afterwards; returns its exit code.

    Args:
        environment: variables that are set, or removed where the value is None.

    Raises:
        MachineError: ReFrame cannot be started.
    """
    with started_reframe(arguments, directory, environment) as process:
        while process.poll() is None:
            each_poll()
            time.sleep(_POLL_S)
    each_poll()
    return int(process.returncode)


@contextmanager
def started_reframe(
    arguments: list[str], directory: Path, environment: Mapping[str, str | None]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ReFrame during the block; it and its jobs are ended at the end of the block.

    If this process is terminated or interrupted, it ends ReFrame and its jobs first.

    Raises:
        MachineError: ReFrame cannot be started.
    """
    (directory / _REPORT_FILE).unlink(missing_ok=True)  # of an earlier start
    _LOG.debug("starts: %s; its output: %s", shlex.join(arguments), directory / _LOG_FILE)
    with (directory / _LOG_FILE).open("wb") as stream:
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={name: value for name, value in {**os.environ, **environment}.items() if value is not None},
                preexec_fn=_prepare_child_signals,
                start_new_session=True,
            )
        except OSError as error:
            raise MachineError(f"cannot start ReFrame: {error}") from error
        with _terminated_on_exit(process):
            yield process


def _prepare_child_signals() -> None:
    # Benchmarks of a killed `iowatch run` must not continue and disturb the next session.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    # Shells start background processes with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def end_signals_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block when this process is to end, so that the session is closed."""
    # A hangup is ignored where `nohup` started iowatch.
    ignores_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    previous_handlers: dict[signal.Signals, Any] = {}
    for number in _END_SIGNALS:
        if number != signal.SIGHUP or not ignores_hangup:
            previous_handlers[number] = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


@contextmanager
def _terminated_on_exit(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Terminate ReFrame at the end of the block, also after an exception."""
    try:
        with end_signals_interrupt():
            yield
    finally:
        _terminate_process(process)


def _terminate_process(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in _TERMINATION_STEPS:
        if process.poll() is None:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def startup_failure_reason(directory: Path) -> str | None:
    """Reason from its log why ReFrame ended without a report (invalid configuration, …); None if it wrote one."""
    if (directory / _REPORT_FILE).exists():
        return None
    lines = _read_log(directory).splitlines()
    message = next((line for line in reversed(lines) if _MESSAGE.match(line)), "no message in its log")
    return f"ReFrame ended without a report: {message} ({directory / _LOG_FILE})"


def _read_log(directory: Path) -> str:
    """The log of ReFrame; empty without one."""
    try:
        return (directory / _LOG_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _abort_reason(directory: Path) -> str | None:
    """Reason why ReFrame stopped early, with the output of the failed command; None if it did not."""
    pattern = r"^ERROR: (run session stopped: .*?)^Log file"
    match = re.search(pattern, _read_log(directory), re.MULTILINE | re.DOTALL)
    if match is None:
        return None
    text = re.sub(r"--- std(?:out|err) ---", "", match.group(1))
    return " ".join(text.split())


def _fail_reason(case: Mapping[str, Any]) -> str:
    """ReFrame's reason in one line; of a job that it cancelled in the queue (PBS, Flux), who limits the time."""
    reason = " ".join(str(case.get("fail_reason") or "").split())
    return reason.replace(
        "maximum pending time exceeded", "cancelled by iowatch: it waited longer in the queue than queue_minutes allows"
    )


def read_failures(directory: Path, site: ReframeSite) -> list[ReframeFailure]:
    """Failed tests of the ReFrame report; without a report, one failure of ReFrame itself."""
    startup_reason = startup_failure_reason(directory)
    if startup_reason is not None:
        return [ReframeFailure("ReFrame", "", "start", startup_reason)]
    try:
        report = json.loads((directory / _REPORT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    failures: list[ReframeFailure] = []
    abort_reason = _abort_reason(directory)
    if abort_reason is not None:
        failures.append(ReframeFailure("ReFrame", "", "run", abort_reason))
    for run in report.get("runs", []):
        for case in run.get("testcases", []):
            if case.get("result") == "fail":
                failures.append(_make_failure(case, site))
    return failures


def _make_failure(case: Mapping[str, Any], site: ReframeSite) -> ReframeFailure:
    """The failure of a test case of ReFrame's report."""
    exception = case.get("fail_info") or {}
    return ReframeFailure(
        test=str(case.get("display_name") or case.get("name")),
        stack=site.stack_of(str(case.get("environ"))),
        phase=str(case.get("fail_phase")),
        reason=_fail_reason(case),
        error=str(exception.get("exc_type") or ""),
        message=" ".join(str(exception.get("exc_value") or "").split()),
    )
