"""Spack environments that are made for one search or gate: resolved and built once, and kept up to a size.

Their packages are in a Spack store of their own, `var/build/spack/store`, on top of that of the account's Spack: what
is installed there is used and never changed, and removing an environment cannot remove a stack's package. The
environment, its lock and its `stack.json` are in `var/stacks/<system>/<name>/`, as those of other stacks.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from iowatch.core import MachineError, exclusive_file_lock, parse_size, settings, write_atomically
from iowatch.site.stack import install as stack_install
from iowatch.site.stack import probe as stack_probe
from iowatch.site.stack.load import read_stack_json
from iowatch.site.stack.records import Stack, read_lock, read_lock_parts, stack_directory, write_stack_files

_LOG = logging.getLogger(__name__)

# A search or gate that runs now may need an environment that was used within this time.
_KEPT_S = 86400.0
_USED = "used"


@dataclass(frozen=True)
class SpackEnvironment:
    """An environment without a folder in `stacks/`.

    Attributes:
        name: of its stack; contains a digest of everything that decides what is built.
        write: writes `spack.yaml` into a directory.
    """

    system: str
    name: str
    write: Callable[[Path], None]

    @property
    def _directory(self) -> Path:
        return stack_directory(self.system, self.name).absolute()

    def resolved(self) -> Stack:
        """The stack, `locked` or `installed`; broken, with Spack's reason, if there is no such combination.

        Raises:
            MachineError: there is no Spack.
        """
        installed = self._installed()
        if installed is not None:
            return installed
        lock = self._directory / "env" / "spack.lock"
        if not lock.is_file():
            printed: list[str] = []
            try:
                self._resolve(_spack(), lock.parent, printed)
            except MachineError:
                if not printed:  # no Spack
                    raise
                return self._broken(f"Spack cannot resolve it: {_reason(printed)}")
        parts = read_lock_parts(lock)
        features = stack_probe.features_of_parts(parts)
        return Stack(self.name, self.system, "spack", "locked", parts, features, note="not built yet")

    def stack(self) -> Stack:
        """The installed stack; broken, with the reason, if it cannot be resolved or built."""
        resolved = self.resolved()
        if resolved.status != "locked":
            return resolved
        spack = _spack()
        try:
            stack = self._build(spack)
        except MachineError as error:
            return self._broken(f"Spack cannot build it: {_reason(error.message.splitlines())}")
        write_stack_files(stack)
        self._mark_used()
        _limit_size(spack)
        return stack

    def _installed(self) -> Stack | None:
        """The stack that was built earlier, None if it is not complete; its use is noted, so that it is not removed."""
        path = self._directory / "stack.json"
        if not path.is_file():
            return None
        stack = read_stack_json(path)
        for part in stack.parts:
            if not all(Path(file).exists() for file in part.files):
                return None
        self._mark_used()
        return stack

    def _resolve(self, spack: list[str], target: Path, printed: list[str]) -> None:
        command = [*spack, "--color", "never", "-e", str(target), "concretize", "--force"]
        target.mkdir(parents=True, exist_ok=True)
        self.write(target)
        _LOG.info("%s: resolving", self.name)
        for line in stack_install.stream_lines(command):
            printed.append(line)
        self._mark_used()

    def _build(self, spack: list[str]) -> Stack:
        target = self._directory / "env"
        stack_install.build_environment(spack, target, self.name, None, rebuild_own=False)
        prefixes = stack_install.installed_prefixes(spack, target)
        return stack_install.describe_installed_stack(self.name, self.system, target, prefixes)

    def _broken(self, note: str) -> Stack:
        return Stack(self.name, self.system, "spack", "broken", (), note=note)

    def _mark_used(self) -> None:
        (self._directory / _USED).touch()


def content_digest(document: Mapping[str, Any], files: Iterable[Path]) -> str:
    """Return a digest of an environment, the content of the files that it includes, and the Spack that resolves it."""
    text = [yaml.safe_dump(document), *(path.read_text(encoding="utf-8") for path in files)]
    return hashlib.sha256("\0".join([*text, str(stack_install.spack_version())]).encode()).hexdigest()[:8]


def write_environment(target: Path, document: Mapping[str, Any]) -> None:
    """Write `spack.yaml`."""
    write_atomically(target / "spack.yaml", yaml.safe_dump(document, sort_keys=False))


def _reason(printed: Iterable[str]) -> str:
    """What Spack says in one line: its first error, with the first of its reasons, or its last line."""
    lines = [line.strip() for line in printed if line.strip()]
    first = next((number for number, line in enumerate(lines) if "Error:" in line), len(lines) - 1)
    reason = lines[first]
    # A line that ends with a colon announces its reasons.
    if reason.endswith(":") and first + 1 < len(lines):
        reason += f" {lines[first + 1]}"
    return reason.removeprefix("==> ").removeprefix("Error: ")


def _cache_directory() -> Path:
    return settings.var_directory().absolute() / "build" / "spack"


def _spack() -> list[str]:
    """Spack's command with the store of the cache, on top of the account's own store.

    Raises:
        MachineError: there is no Spack, or it fails.
    """
    program = stack_install.require_spack(bootstrap=False)
    scope = _cache_directory() / "scope"
    if not (scope / "upstreams.yaml").is_file():
        script = "import spack.store; print(spack.store.STORE.root)"
        *_, account_store = stack_install.stream_lines([program, "python", "-c", script])
        store = _cache_directory() / "store"
        config = {"config": {"install_tree": {"root": str(store)}}}
        upstreams = {"upstreams": {"account": {"install_tree": account_store}}}
        write_atomically(scope / "config.yaml", yaml.safe_dump(config))
        write_atomically(scope / "upstreams.yaml", yaml.safe_dump(upstreams))
    return [program, "-C", str(scope)]


def _limit_size(spack: Sequence[str]) -> None:
    """Remove the environments that were not used for longest, and their packages, beyond the size of the cache.

    Args:
        spack: Spack's command, as `_spack` makes it.
    """
    limit_bytes = parse_size(settings.site_settings().build_cache_size)
    with exclusive_file_lock(_cache_directory() / "packages"):
        packages = _cached_packages(_cache_directory() / "store")
        markers = sorted((settings.var_directory() / "stacks").glob(f"*/*/{_USED}"), key=_last_use)
        kept_packages: set[str] = set()
        total_bytes = 0
        # The newest first; a package counts once, also if several environments need it.
        for marker in reversed(markers):
            lock = read_lock(marker.parent / "env" / "spack.lock")
            needed = packages.keys() & set(lock["concrete_specs"])
            added_bytes = sum(_directory_bytes(packages[package_hash]) for package_hash in needed - kept_packages)
            if total_bytes + added_bytes > limit_bytes and time.time() - _last_use(marker) > _KEPT_S:
                shutil.rmtree(marker.parent)
            else:
                total_bytes += added_bytes
                kept_packages |= needed
        unused = sorted(packages.keys() - kept_packages)
        if unused:
            command = [*spack, "--color", "never", "uninstall", "--yes-to-all", "--force"]
            for _ in stack_install.stream_lines([*command, *(f"/{package_hash}" for package_hash in unused)]):
                pass


def _last_use(marker: Path) -> float:
    return marker.stat().st_mtime


def _cached_packages(store: Path) -> dict[str, Path]:
    """Directories of the packages of the cache by hash: their names end with it."""
    directories = [path.parent for path in store.glob("*/*/.spack")]
    return {directory.name.rpartition("-")[2]: directory for directory in directories}


def _directory_bytes(path: Path) -> int:
    return sum(entry.lstat().st_size for entry in path.rglob("*") if entry.is_file())
