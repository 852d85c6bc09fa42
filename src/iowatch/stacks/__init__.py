"""Stacks: which libraries an environment stands for, where they come from, and how a job gets them."""

from iowatch.stacks.discover import discover, load
from iowatch.stacks.model import Part, Stack

__all__ = ["Part", "Stack", "discover", "load"]
