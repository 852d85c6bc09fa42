# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405 - recipes import Spack's vocabulary as a whole
from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyReframeHpc(PythonPackage):
    """ReFrame as a Python package that others import; Spack's `reframe` is a directory with its command."""

    homepage = "https://reframe-hpc.readthedocs.io"
    pypi = "reframe-hpc/reframe_hpc-4.10.4.tar.gz"

    license("BSD-3-Clause")

    version("4.10.4", sha256="0d3b0246664fa5b98dc50deed239282300fd74684c607f6b23b5484b924e988b")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-hatchling@1.27:", type="build")

    # Without polars, which only its own store of results needs.
    with default_args(type=("build", "run")):
        depends_on("py-archspec@0.2.4:")
        depends_on("py-argcomplete@3.6:3")
        depends_on("py-clustershell@1.9:1")
        depends_on("py-fasteners@0.18:0")
        depends_on("py-jinja2@3.1:3")
        depends_on("py-jsonschema@4.19:4")
        depends_on("py-lxml@5:6")
        depends_on("py-pyyaml@6")
        depends_on("py-requests@2.32:2")
        depends_on("py-semver@3")
        depends_on("py-tabulate@0.9:0")
