/* The chain of [lawrence2017], section 6, without MPI and HDF5, whose start takes strace half a minute. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((noinline)) int PMPI_File_set_size(int file) {
    return ftruncate(file, 4096) + 1;
}

__attribute__((noinline)) int H5Fclose(int file) {
    return PMPI_File_set_size(file) + close(file);
}

int main(int argc, char **argv) {
    (void)argc;
    return H5Fclose(open(argv[1], O_RDWR | O_CREAT, 0600)) - 1;
}
