/* A known number of operations, for tests of what Darshan's logs say. Each rank writes a file of its own with
 * POSIX (rank + 1 times WRITE_BYTES, then reads the first READ_BYTES back) and all ranks write one file with
 * MPI-IO: COLLECTIVE collective writes, and rank 0 INDEPENDENT independent ones behind them. Rank 0 prints
 * the sums over all ranks as JSON.
 *
 *   mpicc.openmpi -O2 -o counted counted.c && mpirun -n 3 ./counted DIRECTORY > counted.json
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITE_BYTES = 3000, READ_BYTES = 500, COLLECTIVE = 5, COLLECTIVE_BYTES = 4096, INDEPENDENT = 2 };

static char buffer[COLLECTIVE_BYTES];

static void check(int fine, const char *what) {
    if (!fine) {
        perror(what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void write_own_file(const char *directory, int rank) {
    char path[4096];
    snprintf(path, sizeof path, "%s/own.%d", directory, rank);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    check(file >= 0, path);
    for (int i = 0; i <= rank; i++)
        check(write(file, buffer, WRITE_BYTES) == WRITE_BYTES, path);
    check(fsync(file) == 0, path);
    check(pread(file, buffer, READ_BYTES, 0) == READ_BYTES, path);
    check(close(file) == 0, path);
}

static void write_shared_file(const char *directory, int rank, int ranks) {
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/shared", directory);
    check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) == 0,
          path);
    for (int i = 0; i < COLLECTIVE; i++) {
        MPI_Offset at = (MPI_Offset)COLLECTIVE_BYTES * (i * ranks + rank);
        MPI_File_write_at_all(file, at, buffer, COLLECTIVE_BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    for (int i = 0; rank == 0 && i < INDEPENDENT; i++) {
        MPI_Offset at = (MPI_Offset)COLLECTIVE_BYTES * (COLLECTIVE * ranks + i);
        MPI_File_write_at(file, at, buffer, COLLECTIVE_BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    check(MPI_File_close(&file) == 0, path);
}

static void print_counts(int ranks) {
    int writes = ranks * (ranks + 1) / 2, shared = COLLECTIVE * ranks + INDEPENDENT;
    printf("{\n \"ranks\": %d,\n", ranks);
    printf(" \"own_files\": {\"POSIX_OPENS\": %d, \"POSIX_WRITES\": %d, \"POSIX_BYTES_WRITTEN\": %d, ", ranks,
           writes, writes * WRITE_BYTES);
    printf("\"POSIX_READS\": %d, \"POSIX_BYTES_READ\": %d, \"POSIX_FSYNCS\": %d},\n", ranks,
           ranks * READ_BYTES, ranks);
    printf(" \"shared_file\": {\"MPIIO_COLL_OPENS\": %d, \"MPIIO_COLL_WRITES\": %d, \"MPIIO_INDEP_WRITES\": "
           "%d, ",
           ranks, COLLECTIVE * ranks, INDEPENDENT);
    printf("\"MPIIO_BYTES_WRITTEN\": %d}\n}\n", shared * COLLECTIVE_BYTES);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check(argc == 2, "usage: counted DIRECTORY");
    write_own_file(argv[1], rank);
    write_shared_file(argv[1], rank, ranks);
    if (rank == 0)
        print_counts(ranks);
    MPI_Finalize();
    return 0;
}
