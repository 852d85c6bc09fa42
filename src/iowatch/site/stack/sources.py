"""Parts of a Spack stack that are built from a source directory: `develop:` of its `spack.yaml`.

Spack's hash of such a part contains the path and not the content. The commit of the directory is therefore recorded
when the stack is installed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from iowatch.core import InputError, yamlfile
from iowatch.site.machine import query_command
from iowatch.site.stack.records import SPACK_DOCS, StackPart, parse_pinned_spec, read_lock

_GIT_TIMEOUT_S = 60.0


def develop_entries(manifest: Path) -> dict[str, dict[str, str]]:
    """Return `develop:` of a `spack.yaml` by package, with `spec` and the absolute `path` of an existing directory.

    A relative path starts at the folder of the file; `~` and environment variables are expanded. The path that is not
    given is the name of the package, as in Spack.

    Raises:
        InputError: entries without `spec`, or with a source directory that is missing or empty.
    """
    document = yamlfile.read_mapping(manifest, SPACK_DOCS)["spack"].get("develop") or {}
    entries: dict[str, dict[str, str]] = {}
    faults = []
    for name, entry in document.items():
        fields = entry if isinstance(entry, Mapping) else {}
        written_path = Path(os.path.expandvars(str(fields.get("path", name)))).expanduser()
        path = (manifest.parent / written_path).resolve()
        entries[name] = {"spec": str(fields.get("spec", "")), "path": str(path)}
        if not fields.get("spec"):
            faults.append(f"spack.develop.{name} has no 'spec'")
        if not path.is_dir() or not any(path.iterdir()):
            faults.append(f"spack.develop.{name}.path: no sources in {path}")
    if faults:
        hint = f"Put the sources there (git clone), or correct 'path'; a relative path starts at {manifest.parent}."
        raise InputError(f"{manifest}: {'; '.join(faults)}", hint=hint)
    return entries


def lock_differences(lock: Path, entries: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the packages that a lock builds from another place than `develop:` names.

    Args:
        entries: as returned by `develop_entries`.

    Raises:
        InputError: not a lock file.
    """
    versions = {name: parse_pinned_spec(entry["spec"]).version for name, entry in entries.items()}
    for node in read_lock(lock)["concrete_specs"].values():
        name = node["name"]
        declared_source = "an archive"
        if name in entries and versions[name] in (None, str(node["version"])):
            declared_source = entries[name]["path"]
        locked_source = "an archive"
        directory = node["parameters"].get("dev_path")
        if directory:
            locked_source = str(Path(directory).resolve())
        if locked_source != declared_source:
            yield f"{name} from {locked_source}, spack.yaml from {declared_source}"


def record_commit(part: StackPart) -> StackPart:
    """Return a part with the commit of its source directory as variant `commit`, if it is built from one.

    The variant is absent if the directory is not a git work tree. Changes of tracked files, also by patches of Spack's
    recipe, are recorded as `<commit>+<digest of the changes>`.
    """
    directory = part.variants.get("dev_path")
    if directory is None:
        return part
    git = ("git", "-C", directory, "--no-optional-locks")
    # The prefix is not empty below the top of a work tree, which then belongs to something else.
    prefix, commit, *_ = [*(query_command(*git, "rev-parse", "--show-prefix", "HEAD") or "").split("\n"), "", ""]
    changes = query_command(*git, "diff", "--no-ext-diff", "--no-textconv", "HEAD", timeout_s=_GIT_TIMEOUT_S)
    if prefix or not commit or changes is None:
        return part
    if changes:
        commit += f"+{hashlib.sha256(changes.encode()).hexdigest()[:12]}"
    return replace(part, variants={**part.variants, "commit": commit})
