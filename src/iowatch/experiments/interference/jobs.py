"""Aggressors: independent jobs that start a benchmark again and again while another job, the victim, is measured.

Files in the directory of the aggressors; the jobs and the session may be on different hosts:

    control             `SERIAL LEVEL STARTS`: aggressors 1 to LEVEL run now, at most STARTS starts each
    start.sh            the job: one aggressor per task of a Slurm array, else all of them as processes
    job-<n>/            aggressor n, and the working directory of its starts
      aggressor.sh      its loop; `errors` has its messages
      job               process, nodes (as Slurm lists them, else the host), and job of Slurm or task of its array (the
                        last task has the job id of the whole array)
      running           SERIAL of its newest start
      idle              SERIAL for which it stopped
      starts            one line per finished start: SERIAL NUMBER BEGIN END EXIT_CODE (epoch s)
      start-<number>.*  outputs

An aggressor ends when the control file is removed, or was not renewed for some minutes: the session was killed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iowatch.core import write_atomically
from iowatch.site import schedulers

CONTROL, START = "control", "start.sh"
RENEW_S = 10.0
_SILENT_MINUTES = 5
# Idle jobs share the node with the victim of level 0: one small process per half a second, and seldom another one.
_POLL_S, _POLLS_PER_LOOK = 0.5, 60

_START = """\
if [ -n "${{SLURM_ARRAY_TASK_ID:-}}" ]; then set -- "$SLURM_ARRAY_TASK_ID"; else set -- {numbers}; fi
for number; do sh {base}/job-$number/aggressor.sh 2> {base}/job-$number/errors & done
wait
"""
_LOOP = """\
cd {job} || exit 1
put() {{ echo "$2" > "$1.new" && mv "$1.new" "$1"; }}
{identity}
mkdir -m 700 {private} 2> /dev/null
[ -O {private} -a -d {private} -a ! -L {private} ] || exit 1
trap {cleanup} EXIT
trap 'exit 143' HUP INT TERM
{exports}
slurm_job=${{SLURM_ARRAY_JOB_ID:-${{SLURM_JOB_ID:-}}}}${{SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}}
put job "$$ ${{SLURM_JOB_NODELIST:-$(uname -n)}} $slurm_job"
known='' stopped='' number=0 count=0 polls=0
while read -r serial level most < {control}; do
  [ $((polls % {polls})) != 0 ] || [ -n "$(find {control} -mmin -{minutes})" ] || exit 1
  [ "$serial" = "$known" ] || {{ known=$serial; count=0; }}
  if [ "$level" -lt {index} ] || [ "$count" -ge "$most" ]; then
    [ "$serial" = "$stopped" ] || {{ put idle "$serial"; stopped=$serial; }}
    polls=$((polls + 1))
    sleep {poll}
    continue
  fi
  polls=0
  count=$((count + 1)) number=$((number + 1)) began=$(date +%s.%N)
  rm -rf {scratch}; mkdir -m 700 {scratch} || exit 1
  put running "$serial"
  {command} > start-$number.out 2> start-$number.err
  code=$?
  for name in {results}; do [ ! -e "$name" ] || mv "$name" "start-$number.$name"; done
  echo "$serial $number $began $(date +%s.%N) $code" >> starts
  [ $code = 0 ] || exit $code
done
"""


@dataclass(frozen=True)
class AggressorCommands:
    """What one aggressor runs, as words of a shell.

    Attributes:
        identity: lines that end the job if scratch is on another file system than expected.
        directory: of its own in scratch, created anew for every start.
        variables: of its environment.
        command: preparation and program, joined by `&&`; its output is that of the program.
        files: input files of the working directory, name to content.
        results: names of the files that the program writes to the working directory.
    """

    identity: Sequence[str]
    directory: Path
    variables: Mapping[str, str]
    command: str
    files: Mapping[str, str]
    results: Sequence[str]


def write_aggressor_files(base: Path, jobs: Sequence[AggressorCommands]) -> None:
    """Write the scripts of all aggressors and `start.sh`, which starts them."""
    for index, job in enumerate(jobs, 1):
        job_directory = base / f"job-{index}"
        job_directory.mkdir(parents=True, exist_ok=True)
        # The input files of the program are in its working directory, beside its script.
        for name, content in job.files.items():
            write_atomically(job_directory / name, content)
        write_atomically(job_directory / "aggressor.sh", _loop_script(base, index, job))
    numbers = " ".join(map(str, range(1, len(jobs) + 1)))
    write_atomically(base / START, _START.format(base=shlex.quote(str(base)), numbers=numbers))


def _loop_script(base: Path, index: int, job: AggressorCommands) -> str:
    """The script of aggressor `index`, which starts its program again and again."""
    scratch = shlex.quote(str(job.directory))
    exports = [f"export {name}={shlex.quote(value)}" for name, value in job.variables.items()]
    return _LOOP.format(
        index=index,
        job=shlex.quote(str(base / f"job-{index}")),
        identity="\n".join(job.identity),
        exports="\n".join(exports),
        private=shlex.quote(str(job.directory.parent)),
        scratch=scratch,
        cleanup=shlex.quote(f"rm -rf {scratch}"),
        control=shlex.quote(str(base / CONTROL)),
        minutes=_SILENT_MINUTES,
        poll=_POLL_S,
        polls=_POLLS_PER_LOOK,
        command=f"{{ {job.command}; }}",
        results=shlex.join(job.results) or "''",
    )


@dataclass(frozen=True)
class AggressorStart:
    """One finished start of an aggressor: serial number of its turn, number of the start, begin and end (epoch s)."""

    serial: int
    number: int
    begin: float
    end: float
    exit_code: int


@dataclass(frozen=True)
class AggressorJob:
    """One aggressor as its files show it.

    Attributes:
        directory: `job-<n>`.
    """

    directory: Path

    @property
    def started(self) -> bool:
        """Whether its job runs, or has run."""
        return (self.directory / "job").is_file()

    @property
    def running(self) -> int:
        """Serial number of its newest start; 0 before the first one."""
        return self._number("running")

    @property
    def idle(self) -> int:
        """Serial number for which it stopped."""
        return self._number("idle")

    @property
    def nodes(self) -> list[str]:
        """Names of its nodes; empty before its start."""
        _, node_list, *_ = [*self._words("job"), "", ""]
        if "[" in node_list or "," in node_list:
            return schedulers.expand_slurm_nodes(node_list)
        return node_list.split()

    def starts(self) -> list[AggressorStart]:
        """Its finished starts; a line that is not complete yet is left out."""
        try:
            text = (self.directory / "starts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        starts = []
        complete_lines, _, _ = text.rpartition("\n")
        for line in complete_lines.splitlines():
            serial, number, begin, end, exit_code = line.split()
            starts.append(AggressorStart(int(serial), int(number), float(begin), float(end), int(exit_code)))
        return starts

    def end_reason(self) -> str | None:
        """Why it has ended, from its exit code, its process on this host, or its job in Slurm; None while it runs."""
        for start in self.starts():
            if start.exit_code != 0:
                message = self._message(f"start-{start.number}.err")
                return f"its start {start.number} ended with exit code {start.exit_code}{message}"
        process, _, job = [*self._words("job"), "", "", ""][:3]
        if job:
            state = schedulers.query_job("squeue", job).get("state", "RUNNING")
            if state in ("RUNNING", "SUSPENDED"):
                return None
            return f"its job {job} is {state}"
        if not process:
            # Its job has not started, or its script ended with an error at once.
            return self._message("errors").removeprefix(": ") or None
        if Path("/proc", process).exists():
            return None
        return f"its process {process} was ended"

    def _message(self, name: str) -> str:
        """The first line of a file, after a colon."""
        path = self.directory / name
        lines = path.read_text(errors="replace").split("\n") if path.is_file() else []
        message = next((line.strip() for line in lines if any(map(str.isalnum, line))), "")
        return f": {message[:200]}" if message else ""

    def _number(self, name: str) -> int:
        words = self._words(name)
        return int(words[0]) if words else 0

    def _words(self, name: str) -> list[str]:
        try:
            return (self.directory / name).read_text(encoding="utf-8").split()
        except OSError:
            return []


def covered_share(starts: Sequence[AggressorStart], begin: float, end: float) -> float:
    """Share of the time from begin to end (epoch s) in which these starts of one aggressor were running."""
    if end <= begin:
        return 0.0
    covered_s = sum(max(0.0, min(start.end, end) - max(start.begin, begin)) for start in starts)
    return covered_s / (end - begin)


@dataclass(frozen=True)
class JobSize:
    """What a job needs."""

    ranks: int
    nodes: int


def most_aggressors(queue: str | None, victim: JobSize, aggressor: JobSize, exclusive: bool) -> int | None:
    """Largest number of aggressors that Slurm can run at the same time as the victim; None if it does not report it.

    Args:
        queue: Slurm's partition, or None for its default.
        exclusive: whether jobs have whole nodes.
    """
    capacity = schedulers.partition_capacity(queue)
    if capacity is None:
        return None
    if exclusive:
        return max(0, (capacity.nodes - victim.nodes) // aggressor.nodes)
    return max(0, (capacity.processors - victim.ranks) // aggressor.ranks)
