#include "clock.h"

#include <stdlib.h>
#include <time.h>

#include "fail.h"

enum { ROUNDS = 16, TAG = 1 };

double clock_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void send_times(const struct context *c, int rank) {
    for (int i = 0; i < ROUNDS; i++) {
        double now;
        MPI_Recv(&now, 1, MPI_DOUBLE, rank, TAG, c->world, MPI_STATUS_IGNORE);
        now = clock_now();
        MPI_Send(&now, 1, MPI_DOUBLE, rank, TAG, c->world);
    }
}

static double measure_offset(const struct context *c) {
    double offset = 0, shortest = 1e300;
    for (int i = 0; i < ROUNDS; i++) {
        double sent = clock_now(), theirs;
        MPI_Send(&sent, 1, MPI_DOUBLE, 0, TAG, c->world);
        MPI_Recv(&theirs, 1, MPI_DOUBLE, 0, TAG, c->world, MPI_STATUS_IGNORE);
        double received = clock_now();
        if (received - sent < shortest) {
            shortest = received - sent;
            offset = theirs - (sent + received) / 2;
        }
    }
    return offset;
}

double clock_offset(const struct context *c, const struct placement *p) {
    double offset = 0;
    if (p->nodes == 1)
        return 0;
    int *first = allocate(c, (size_t)p->nodes * sizeof(int), "clock");
    for (int r = c->size - 1; r >= 0; r--)
        first[p->node_of[r]] = r;
    for (int node = 1; node < p->nodes && c->rank == 0; node++)
        send_times(c, first[node]);
    if (c->rank != 0 && first[p->node] == c->rank)
        offset = measure_offset(c);
    MPI_Comm comm;
    CHECK_MPI(c, "", "MPI_Comm_split", MPI_Comm_split(c->world, p->node, c->rank, &comm));
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(&offset, 1, MPI_DOUBLE, 0, comm));
    MPI_Comm_free(&comm);
    free(first);
    return offset;
}
