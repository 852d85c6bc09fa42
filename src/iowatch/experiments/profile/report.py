"""The report of `iowatch profile`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from iowatch.experiments.profile.profiler import format_profile


def print_profiles(document: Mapping[str, Any], console: Console) -> None:
    """Print the profiles of a session (`run_profile`)."""
    for run in document["runs"]:
        state = run["reason"] or run["status"]
        console.print(f"{run['name']} on {run['stack']}: {state}", markup=False, soft_wrap=True)
        if run["profile"]:
            for line in format_profile(run["profile"]):
                console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print(f"Session {document['session']}; its page shows the profile, too.", markup=False)
