#include <mpi.h>
#include <netcdf.h>
#include <netcdf_meta.h>
/* Before 4.6.2 there is one macro for both formats. */
#ifndef NC_HAS_PARALLEL4
#define NC_HAS_PARALLEL4 NC_HAS_PARALLEL
#endif
#if !NC_HAS_PARALLEL4
#error "benchio: this netcdf-c was built without parallel NetCDF-4"
#endif
#include <netcdf_par.h>
int main(void) {
    int file;
    return nc_create_par("x", NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file);
}
