#include <pnetcdf.h>
int main(void) {
    int file;
    return ncmpi_create(MPI_COMM_WORLD, "x", NC_64BIT_DATA, MPI_INFO_NULL, &file);
}
