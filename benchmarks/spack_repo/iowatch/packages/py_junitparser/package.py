# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405 - recipes import Spack's vocabulary as a whole
from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyJunitparser(PythonPackage):
    """Reads and writes JUnit XML."""

    homepage = "https://github.com/weiwei/junitparser"
    # The wheel, which is plain Python: the sources need a newer uv_build than Spack has.
    url = "https://files.pythonhosted.org/packages/py3/j/junitparser/junitparser-5.0.3-py3-none-any.whl"

    license("Apache-2.0")

    version("5.0.3", sha256="553535b8cd1672a9c8bd2c7326ae1ae69279267fbc562106b5aa44d3c5f769af", expand=False)

    depends_on("python@3.10:", type=("build", "run"))
