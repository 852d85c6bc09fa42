/* Closes an HDF5 file that is larger than its content: a data set is written and then deleted, so that H5Fclose shortens
 * the file by MPI_File_set_size, which calls ftruncate ([lawrence2017], section 6). */
#include <hdf5.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hsize_t n = 1 << 20;
    char *data = calloc(n, 1);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access), space = H5Screate_simple(1, &n, NULL);
    hid_t set = H5Dcreate2(file, "data", H5T_NATIVE_CHAR, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_CHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    H5Dclose(set);
    H5Ldelete(file, "data", H5P_DEFAULT);
    H5Fclose(file);
    MPI_Finalize();
    return 0;
}
