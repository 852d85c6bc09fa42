"""Systems: facts of machines (`systems/<name>/system.yaml`) and how to describe a new one."""

from iowatch.systems.load import load, names
from iowatch.systems.model import FileSystem, Limits, Peak, System

__all__ = ["FileSystem", "Limits", "Peak", "System", "load", "names"]
