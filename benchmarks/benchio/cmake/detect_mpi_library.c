#include <mpi.h>
int main(int argc, char **argv) {
    return MPI_Init(&argc, &argv);
}
