# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405 - recipes import Spack's vocabulary as a whole
from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class Iowatch(PythonPackage):
    """Regression and performance monitoring for parallel I/O on HPC systems: runs benchmarks by ReFrame on stacks
    of Spack, keeps every repetition, and reports what changed, since when, and what the changes have in common."""

    # The clone that holds this recipe: its commits, not its changed files.
    git = f"file://{Path(__file__).resolve().parents[5]}"

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("pages", default=True, description="Read Darshan traces, and draw them on pages")
    variant("postgresql", default=False, description="Keep the history in PostgreSQL")
    variant("parquet", default=False, description="Export to Parquet")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-hatchling@1.27:", type="build")
    depends_on("py-hatch-vcs@0.5:", type="build")
    depends_on("git", type="build")

    with default_args(type=("build", "run")):
        depends_on("py-alembic@1.13:")
        depends_on("py-cffi@1.15:")
        depends_on("py-click@8.1:")
        depends_on("py-clustershell@1.9:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-jsonschema@4.21:")
        depends_on("py-junitparser@5.0:")
        depends_on("py-markdown-it-py@3.0:")
        depends_on("py-numpy@1.26:")
        depends_on("py-prometheus-client@0.20:")
        depends_on("py-pydantic@2.6:")
        depends_on("py-pyyaml@6.0:")
        depends_on("py-reframe-hpc@4.10.4:")
        depends_on("py-rich@13.7:")
        depends_on("py-ruamel-yaml@0.18:")
        depends_on("py-scipy@1.12:")
        depends_on("py-sqlalchemy@2.0.29:")
        depends_on("py-tzdata@2024.1:")
        # Spack has PyDarshan with all that it requires: without it Darshan traces are kept and not read.
        depends_on("py-darshan@3.4.7:", when="+pages")
        depends_on("py-mako@1.3:", when="+pages")
        depends_on("py-matplotlib@3.8:", when="+pages")
        depends_on("py-pandas@2.1:", when="+pages")
        depends_on("py-psycopg@3.1:", when="+postgresql")
        depends_on("py-pyarrow@15:", when="+parquet")

    # Builds benchio with the MPI of each stack.
    depends_on("cmake@3.18:", type="run")

    def test_version(self):
        """the command starts, and its data are complete"""
        iowatch = which(self.prefix.bin.iowatch, required=True)
        assert "iowatch" in iowatch("--version", output=str.split, error=str.split)
        assert "smoke" in iowatch("run", "--help", output=str.split, error=str.split)
