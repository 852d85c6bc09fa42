"""A launcher for Flux: `flux run` inside an allocation.

ReFrame 4.10 can submit to Flux, but its backend asks for one task whatever the test says. So a Flux machine is
measured from inside an allocation (`flux alloc -N4 --exclusive iowatch run …`), where ReFrame runs locally and
this launcher spreads the ranks.
"""

from __future__ import annotations

import math
from typing import Any

from reframe.core.backends import register_launcher
from reframe.core.launchers import JobLauncher


@register_launcher("flux-run")
class FluxRunLauncher(JobLauncher):  # type: ignore[misc]
    """`flux run -n <ranks> [-N <nodes>] --exclusive`."""

    def command(self, job: Any) -> list[str]:
        """The launcher's command line for one job of ReFrame."""
        tasks = job.num_tasks or 1
        words = ["flux", "run", "-n", str(tasks)]
        if job.num_tasks_per_node:
            words += ["-N", str(math.ceil(tasks / job.num_tasks_per_node)), "--exclusive"]
        return words
