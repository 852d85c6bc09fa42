/* State of the whole run; made once in main(), passed everywhere. */
#ifndef BENCHIO_CONTEXT_H
#define BENCHIO_CONTEXT_H

#include <limits.h>
#include <mpi.h>
#include <stdbool.h>

struct failure;
struct options;

struct context {
    MPI_Comm world;
    int rank, size;
    const struct options *options;
    char host[MPI_MAX_PROCESSOR_NAME];
    char directory[PATH_MAX]; /* DIR/NAME, this run's own; empty before it is made */
    double started;           /* seconds since 1970, UTC */
    /* What a run that fails still has to do before MPI_Abort; NULL: nothing. main() sets it: record and
     * scratch files are above fail.c, which must not include them. */
    void (*end_failed_run)(const struct context *context, const struct failure *failure);
};

/* Seconds since 1970, UTC. */
double utc_now(void);
/* `2026-11-21T01:18:34.123456Z` */
void utc_text(double seconds, char text[40]);

#endif
