"""What iowatch knows of each benchmark before it runs: its command line, needs, results and volume.

One module a benchmark, each with one `Tool`; the suites give options, ReFrame runs the command line, the
expected set comes from `expects`. To add a benchmark, add a module and a row here.
"""

from __future__ import annotations

from iowatch.errors import UsageError, near_miss
from iowatch.tools.benchio import BENCHIO
from iowatch.tools.h5bench import H5BENCH
from iowatch.tools.ior import IOR
from iowatch.tools.mdtest import MDTEST
from iowatch.tools.tool import Options, Tool

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (BENCHIO, IOR, MDTEST, H5BENCH)}


def tool(name: str) -> Tool:
    """The tool of that name.

    Raises:
        UsageError: no such tool.
    """
    try:
        return TOOLS[name]
    except KeyError:
        raise UsageError(f"no benchmark '{name}'", hint=near_miss(name, list(TOOLS))) from None


__all__ = ["TOOLS", "Options", "Tool", "tool"]
