"""What goes on around a run, recorded on its first node before and after it: load, jobs, fill, counters, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import reframe as rfm
from reframe.core.builtins import run_before

from iowatch.site import CovariateSettings, covariates, load_system, system_names


class CovariatesMixin(rfm.RegressionTestPlugin):
    """Two snapshots around everything that a case does, preparation included; the samples mixin places them."""

    @run_before("run")
    def write_covariates_script(self) -> None:
        script = covariates.snapshot_script(self.covariate_settings())
        (Path(self.stagedir) / covariates.SCRIPT_NAME).write_text(script, encoding="utf-8")

    def covariate_settings(self) -> CovariateSettings:
        """Settings of the system; the usual covariates where ReFrame's configuration is of an unknown system."""
        name = self.current_system.name
        return load_system(name).covariates if name in system_names() else CovariateSettings()

    def covariates_command(self, side: covariates.Side) -> str:
        """The line of the job's script that records one side."""
        return covariates.snapshot_command(str(self.scratch_directory), side)

    def covariate_facts(self) -> dict[str, Any]:
        """The fact `covariates`: values before and after, why others are missing; empty if the job did not start."""
        return covariates.read_snapshots(Path(self.stagedir), self.covariate_settings())
