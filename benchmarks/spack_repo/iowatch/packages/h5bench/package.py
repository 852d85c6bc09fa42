# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405 - recipes import Spack's vocabulary as a whole
from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage


class H5bench(CMakePackage):
    """h5bench 1.6 with its basic patterns (write, read, append, overwrite) and the metadata benchmark.

    Spack's own recipe ends with 1.4, which requires HDF5 1.12; this release also builds with HDF5 1.10, which
    distributions still have. The archive has no submodules: AMReX, openPMD, E3SM-IO and MACSio are not built.
    """

    homepage = "https://github.com/hpc-io/h5bench"
    url = "https://github.com/hpc-io/h5bench/archive/refs/tags/1.6.tar.gz"
    git = "https://github.com/hpc-io/h5bench.git"

    license("BSD-3-Clause-LBNL")

    # The tag 1.6 is commit 675c86d11832c625f1d71e63d7626308170ba8c5.
    version("1.6", sha256="925140ae06e02a9042db7a320b45bf3c5724303860e957fd79b83d92741e5793")

    variant("metadata", default=True, description="Enables metadata benchmark")

    depends_on("c", type="build")
    depends_on("cxx", type="build")

    depends_on("cmake@3.10:", type="build")
    depends_on("mpi")
    depends_on("hdf5+mpi@1.10:1")
    depends_on("zlib-api")

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        env.set("HDF5_HOME", self.spec["hdf5"].prefix)

    def cmake_args(self):
        return [
            self.define_from_variant("H5BENCH_METADATA", "metadata"),
            # Below /usr several MPIs can have a compiler each.
            self.define("MPI_C_COMPILER", self.spec["mpi"].mpicc),
            self.define("HDF5_PREFER_PARALLEL", True),
        ]

    def test_help(self):
        """h5bench starts"""
        h5bench = which(self.prefix.bin.h5bench, required=True)
        h5bench("-h")
