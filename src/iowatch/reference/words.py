"""The words that entries of reference files may use, and what a misspelt one probably meant.

ReFrame finds no reference where a word is misspelt, and says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

from iowatch.reference.bandwidth import Entry

# docs/architecture.md, "Case parameters", has what they mean; a test holds both together.
PARAMETERS = (
    "alignment_bytes", "api", "arrays", "block_bytes", "branches", "cache", "chunk", "collective",
    "collective_metadata", "columns", "compressed", "depth", "dimensions", "directories", "distribution",
    "fair", "file", "file_system", "files", "files_per_directory", "fill", "global_size", "hints",
    "instances", "layout", "local_size", "memory", "mode", "nodes", "particles", "pattern", "ranks",
    "read_bytes", "reorder", "row_bytes", "rows", "scaling", "segments", "steps", "stonewall_s",
    "stripe_bytes", "stripe_count", "striping", "sync", "total_bytes", "transfer_bytes", "unlimited",
    "verify", "write_bytes",
)  # fmt: skip
# As the names of performance variables have them: `_` for every blank and hyphen.
OPERATIONS = (
    "write", "read", "append", "overwrite", "modify", "run",
    "create", "stat", "remove", "rename", "directory_create", "directory_stat", "directory_remove",
    "directory_rename", "tree_create", "tree_remove",
)  # fmt: skip


def strange(
    entries: Iterable[Entry], parameters: Collection[str] = (), operations: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """(where, what) of each word that no case and no operation has.

    Args:
        parameters, operations: words that were seen in a run or in the history besides.
    """
    known_parameters = sorted({*PARAMETERS, *parameters})
    known_operations = list(dict.fromkeys((*OPERATIONS, *operations)))
    for entry in entries:
        for name in sorted(pair.partition("=")[0] for pair in entry.parameters):
            if name not in known_parameters:
                hint = _meant(name, known_parameters)
                yield entry.where, f"no case has a parameter '{name}' (in {entry.case}). {hint}"
        if entry.operation not in known_operations:
            hint = _meant(entry.operation, known_operations)
            yield entry.where, f"there is no operation '{entry.operation}' (in {entry.variable}). {hint}"


def _meant(word: str, known: list[str]) -> str:
    """The likeliest word; all of them would be too many to read."""
    guess = get_close_matches(word, known, n=1)
    listed = "docs/architecture.md has the words; new ones: reference/words.py."
    return f"Did you mean '{guess[0]}'?" if guess else listed
