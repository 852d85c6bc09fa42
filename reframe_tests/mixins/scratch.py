"""A directory of its own for every case, removed afterwards; the next run removes those of killed runs."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import reframe as rfm
from reframe.core.builtins import run_after, run_before

from iowatch.benchmarks.benchmark import RESIDENT_FILE, is_cache_dropped, striping_parameters
from iowatch.core import Scalar, UsageError, format_size
from iowatch.site import (
    FileSystemIdentity,
    MeasuredFileSystem,
    file_system_without_striping,
    load_system,
    storage,
    system_names,
)

# In the stage directory: the file system of scratch on the job's node, before and after the run.
_BEFORE, _AFTER = "iowatch.mount.before", "iowatch.mount.after"
# There if the requested striping is in force; next to it the errors of `lfs`.
_STRIPED, _REFUSED = "iowatch.striped", "iowatch.striped.err"


@cache
def _sweep(base: Path) -> None:
    """Once per process: remove directories of ended ones, and at exit the directory of this one, empty by then."""
    storage.remove_ended_scratch(base)
    atexit.register(_remove_empty, storage.session_directory(base))


def _remove_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


_spent_bytes = 0


def _spend(volume_bytes: int, budget_bytes: int) -> None:
    """Count the bytes that this ReFrame process writes and reads."""
    global _spent_bytes
    if _spent_bytes + volume_bytes > budget_bytes:
        raise UsageError(
            f"this case writes and reads {format_size(volume_bytes)}, those before it "
            f"{format_size(_spent_bytes)}; the system's byte budget is {format_size(budget_bytes)} per session",
            hint="Choose fewer cases, or raise limits.total_bytes in its system.yaml.",
        )
    _spent_bytes += volume_bytes


class ScratchMixin(rfm.RegressionTestPlugin):
    """Creates the case's directory in the job, and removes it there: the ReFrame process may run elsewhere.

    `self.scratch_directory` is its path: below the directory of the case's file system, which is `IOWATCH_SCRATCH`, or
    the partition's extra `scratch`, or ReFrame's stage directory for the default one.
    """

    @run_after("setup")
    def choose_scratch(self) -> None:
        base = self.scratch_base()
        _sweep(base)
        self.scratch_directory = storage.case_directory(base, self.unique_name, self.current_environ.name)

    def scratch_base(self) -> Path:
        """The directory below which this and other sessions write."""
        if self.case.file_system is not None:
            place = self._of_session().get("directory")
            system = load_system(self.current_system.name)
            return Path(place) if place else system.measured(self.case.file_system).path()
        named = os.environ.get("IOWATCH_SCRATCH") or self.current_partition.extras.get("scratch")
        return Path(named or self.stagedir)

    def expected_file_system(self, place: str) -> FileSystemIdentity:
        """What scratch must be on, at a partition or "" for this host: as the session determined, or as declared."""
        if storage.FILE_SYSTEMS_VARIABLE in os.environ:
            return FileSystemIdentity(**self._of_session().get("places", {}).get(place, {}))
        found = self._measured()
        return found.declared if found else FileSystemIdentity()

    def _measured(self) -> MeasuredFileSystem | None:
        """The file system of the case as system.yaml describes it; None if it does not."""
        name = self.current_system.name
        known = load_system(name).measured_file_systems if name in system_names() else ()
        return next((one for one in known if one.parameter == self.case.file_system), None)

    def _is_node_local(self) -> bool:
        """Whether only the nodes of jobs have the file system; this process can neither see nor prepare it."""
        found = self._measured()
        return found is not None and found.node_local

    def _of_session(self) -> dict[str, Any]:
        """What the session determined about the file system of the case; empty for plain ReFrame."""
        found = json.loads(os.environ.get(storage.FILE_SYSTEMS_VARIABLE) or "{}").get(self.case.file_system or "", {})
        return dict(found)

    @run_before("run")
    def check_space(self) -> None:
        """Refuse to write where there is no space, by bytes, files, quota and the system's byte budget."""
        tool, options, limits = self.case.tool, self.case.options, self.limits()
        reserve = (limits.free_bytes if limits else None) or 0
        if not self._is_node_local():
            storage.prepare_scratch(self.scratch_base(), self.expected_file_system(""))
            storage.check_scratch_space(self.scratch_base(), tool.file_bytes(options) + reserve, tool.inodes(options))
        if limits and limits.total_bytes and "IOWATCH_SESSION" not in os.environ:  # `iowatch run` counted before
            _spend(tool.volume_bytes(options), limits.total_bytes)

    @run_before("run")
    def use_scratch(self) -> None:
        """Others may write to the base, too: they can neither plant nor read what is in the session's directory."""
        case, session = self.scratch_directory, self.scratch_directory.parent
        quoted, private = shlex.quote(str(case)), shlex.quote(str(session))
        expected, base = self.expected_file_system(self.current_partition.name), shlex.quote(str(session.parent))
        self.prerun_cmds = [
            *([f"[ -d {base} ] || mkdir {base} || exit 1"] if self._is_node_local() else []),
            *storage.identity_commands(session.parent, _BEFORE, expected),
            f"[ -O {private} -a -d {private} -a ! -L {private} ] || mkdir -m 700 {private} || exit 1",
            # However the job's shell ends, except by a kill; the next run removes the directory then.
            f"trap {shlex.quote(f'rm -rf {quoted}')} EXIT",
            f"rm -rf {quoted}; mkdir -m 700 {quoted} || exit 1",
            *self._striping(quoted),
            *self.prerun_cmds,
        ]
        after = storage.identity_commands(session.parent, _AFTER, FileSystemIdentity())
        self.postrun_cmds = [*self.postrun_cmds, *after]

    def scratch_facts(self) -> dict[str, Any]:
        """The file system of scratch on the job's node, if the job started; its name unless the default."""
        found, named = self._identity(_BEFORE), self.case.file_system
        return {
            **({storage.IDENTITY_FACT: found.declared} if found else {}),
            **({storage.FILE_SYSTEM_FACT: named} if named else {}),
        }

    def scratch_failure(self) -> str | None:
        """The reason if scratch was on another file system than expected, before or after the run."""
        expected, before = self.expected_file_system(self.current_partition.name), self._identity(_BEFORE)
        wrong = expected.difference(before) or (before or expected).difference(self._identity(_AFTER))
        return f"the scratch directory {self.scratch_base()} is on another file system: {wrong}" if wrong else None

    def _identity(self, file: str) -> FileSystemIdentity | None:
        try:
            return storage.parse_identity((Path(self.stagedir) / file).read_text(errors="replace"))
        except OSError:
            return None

    def _striping(self, quoted: str) -> list[str]:
        """Lustre striping of the directory, where the case requests it and `lfs` is available; reported otherwise."""
        options = self.case.options
        wanted = {"-c": options.get("stripe-count"), "-S": options.get("stripe-size")}
        words = " ".join(f"{flag} {shlex.quote(str(value))}" for flag, value in wanted.items() if value is not None)
        if not words:
            return []
        # On another file system `lfs` fails or is absent: the case continues, and its result records it.
        return [
            f"if lfs setstripe {words} {quoted} 2> {_REFUSED}; then : > {_STRIPED}; "
            "else echo 'iowatch: striping not applicable' >&2; fi"
        ]

    def cache_not_dropped(self) -> dict[str, Scalar]:
        """The case parameter of reads whose file was still in the page cache of a node when they started."""
        if self.case.tool.case(self.case.options).get("cache") != "drop":
            return {}
        found, resident = self._identity(_BEFORE), Path(self.stagedir) / RESIDENT_FILE
        text = resident.read_text(errors="replace") if resident.is_file() else ""
        return {} if is_cache_dropped(text, found.type if found else None) else {"cache": "keep"}

    def striping_that_failed(self) -> dict[str, Scalar]:
        """Case parameters of a striping that was requested and is not in force."""
        return {} if (Path(self.stagedir) / _STRIPED).is_file() else striping_parameters(self.case.options)

    def striping_facts(self) -> dict[str, str]:
        """The note about a striping that does not apply here."""
        where = file_system_without_striping(self.scratch_base()) if self.striping_that_failed() else None
        return {"striping": f"not applicable on {where}"} if where else {}

    def striping_failure(self) -> str | None:
        """On Lustre a striping that could not be set is a failure: the result is of another case."""
        if not self.striping_that_failed():
            return self._other_striping()
        if file_system_without_striping(self.scratch_base()):
            return None
        errors = Path(self.stagedir) / _REFUSED
        words = errors.read_text(errors="replace").strip() if errors.is_file() else ""
        return f"the striping could not be set: {words or 'lfs setstripe failed'}"

    def _other_striping(self) -> str | None:
        """The reason if the directory has another striping than requested, or the file system fewer OSTs."""
        if not (asked := striping_parameters(self.case.options)):
            return None
        found = storage.parse_striping(self.machine_facts().get("machine", {}).get("striping", ""))
        targets = storage.lustre_facts(str(self.scratch_base()))["targets"]
        if targets is not None and int(asked.get("stripe_count") or 0) > targets:
            found["stripe_count"] = targets
        wrong = [name for name, value in asked.items() if value != 0 and found.get(name, value) != value]
        reasons = (f"{name} is {found[name]} in scratch, the suite asks for {asked[name]}" for name in wrong)
        return "; ".join(reasons) or None
