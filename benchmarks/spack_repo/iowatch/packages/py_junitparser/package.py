# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405 - recipes import Spack's vocabulary as a whole
from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyJunitparser(PythonPackage):
    """Reads and writes JUnit XML."""

    homepage = "https://github.com/weiwei/junitparser"
    pypi = "junitparser/junitparser-5.0.3.tar.gz"

    license("Apache-2.0")

    version("5.0.3", sha256="f824ec1b7afbf2fd3b6813b87967b02fcda750e135d27be17cae497147419a04")

    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools", type="build")
