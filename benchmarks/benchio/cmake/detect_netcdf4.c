#include <mpi.h>
#include <netcdf.h>
#include <netcdf_meta.h>
#if !defined(NC_HAS_PARALLEL4) || !NC_HAS_PARALLEL4
#error "benchio: this netcdf-c was built without parallel NetCDF-4"
#endif
#include <netcdf_par.h>
int main(void) {
    int file;
    return nc_create_par("x", NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file);
}
