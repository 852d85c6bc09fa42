# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405 - recipes import Spack's vocabulary as a whole
from pathlib import Path

from spack.package import *
from spack_repo.builtin.build_systems.cmake import CMakePackage


class Benchio(CMakePackage):
    """benchio of iowatch: a parallel I/O benchmark that writes and reads distributed arrays through POSIX,
    MPI-IO, HDF5, netCDF-4 and PnetCDF and keeps every repetition in a JSON record."""

    # The sources are those of the checkout that holds this recipe; there is nothing to download.
    has_code = False

    license("BSD-3-Clause")

    version("1.0.0")

    variant("hdf5", default=True, description="Build the interface HDF5")
    variant("netcdf", default=True, description="Build the interface netCDF-4")
    variant("pnetcdf", default=False, description="Build the interface PnetCDF")
    variant("workloads", default=True, description="Run descriptions of applications' I/O")

    depends_on("c", type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("mpi")
    depends_on("hdf5+mpi", when="+hdf5")
    depends_on("netcdf-c+mpi", when="+netcdf")
    depends_on("parallel-netcdf", when="+pnetcdf")
    depends_on("libyaml", when="+workloads")

    @property
    def root_cmakelists_dir(self):
        """benchmarks/benchio of the checkout."""
        return str(Path(__file__).resolve().parents[4] / "benchio")

    def _tool(self, package, name):
        """A wrapper or *-config of a dependency, or its directory; empty leaves the search to benchio's CMake."""
        path = Path(self.spec[package].prefix.bin) / name
        # Below /usr several MPIs can have one each; benchio's CMake finds the one that fits.
        if self.spec[package].external:
            return ""
        return str(path if path.exists() else path.parents[1])

    def cmake_args(self):
        spec = self.spec
        args = [
            self.define("CMAKE_C_COMPILER", spec["mpi"].mpicc),
            self.define("BENCHIO_WITH_HDF5", "ON" if "+hdf5" in spec else "OFF"),
            self.define("BENCHIO_WITH_NETCDF4", "ON" if "+netcdf" in spec else "OFF"),
            self.define("BENCHIO_WITH_PNETCDF", "ON" if "+pnetcdf" in spec else "OFF"),
            self.define("BENCHIO_WITH_YAML", "ON" if "+workloads" in spec else "OFF"),
        ]
        if "+hdf5" in spec:
            args.append(self.define("BENCHIO_H5PCC", self._tool("hdf5", "h5pcc")))
        if "+netcdf" in spec:
            args.append(self.define("BENCHIO_NC_CONFIG", self._tool("netcdf-c", "nc-config")))
        if "+pnetcdf" in spec:
            args.append(self.define("BENCHIO_PNETCDF_CONFIG", self._tool("parallel-netcdf", "pnetcdf-config")))
        return args

    def test_interfaces(self):
        """every interface that was asked for is built in"""
        benchio = which(self.prefix.bin.benchio, required=True)
        answer = benchio("--version", output=str.split, error=str.split)
        for variant, line in (
            ("hdf5", "hdf5: HDF5"),
            ("netcdf", "netcdf4: netCDF"),
            ("pnetcdf", "pnetcdf: PnetCDF"),
            ("workloads", "workloads: libyaml"),
        ):
            if f"+{variant}" in self.spec:
                assert line in answer, answer

    def test_write_posix(self):
        """one rank writes a small array"""
        benchio = which(self.prefix.bin.benchio, required=True)
        benchio(
            "--api", "posix", "--op", "write", "--local", "16x16x16", "--repeat", "2", "--json", "record.json"
        )
        assert '"status": "ok"' in Path("record.json").read_text()
