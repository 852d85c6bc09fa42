# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405 - recipes import Spack's vocabulary as a whole
from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyPsycopg(PythonPackage):
    """The driver of PostgreSQL, psycopg 3, which loads libpq when it is imported."""

    homepage = "https://www.psycopg.org"
    pypi = "psycopg/psycopg-3.3.9.tar.gz"

    license("LGPL-3.0-only")

    version("3.3.9", sha256="87c1d85c3e0e88e811d3c0b3808f947bd967c6faf34af6cd86fd021f77793d6c")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@80.3.1:", type="build")
    depends_on("py-typing-extensions@4.6:", type=("build", "run"), when="^python@:3.12")
    depends_on("postgresql", type="run")

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        """ctypes finds libpq by this variable."""
        env.prepend_path("LD_LIBRARY_PATH", self.spec["postgresql"].prefix.lib)
