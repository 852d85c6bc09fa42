#include <hdf5.h>
#ifndef H5_HAVE_PARALLEL
#error "benchio: this HDF5 was built without parallel support"
#endif
int main(void) {
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    return H5Pset_fapl_mpio(list, MPI_COMM_WORLD, MPI_INFO_NULL) < 0;
}
