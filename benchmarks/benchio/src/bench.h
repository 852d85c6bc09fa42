/* What the files of the measurement share (measure.c, once.c, collect.c); nobody else includes it. */
#ifndef BENCHIO_BENCH_H
#define BENCHIO_BENCH_H

#include "backend.h"
#include "latency.h"
#include "placement.h"
#include "results.h"

/* What stays the same over all repetitions. */
struct bench {
    const struct context *context;
    const struct placement *placement;
    const struct backend *backend;
    struct results *results;
    MPI_Info info;
    void *array, *buffer;
    size_t buffer_bytes;
    struct latencies *latencies; /* of this rank's transfers in this repetition */
    bool direct;                 /* O_DIRECT asked for and possible */
    double offset;               /* of clocks */
    uint64_t
        *file_sizes; /* of each file after the last write, in bytes; known where there are several nodes */
    bool written;    /* by this run */
    unsigned repetition; /* that wrote the files, from 0; those of --existing are of number 0, too */
};

/* Of one rank in one repetition; sent to rank 0 as doubles. */
struct times {
    double start, end, phase[PHASE_N];
};

/* One direction: who does what with which file. */
struct side {
    const struct role *role;
    const struct geometry *geometry;
    MPI_Comm comm;
    uint64_t key;
    char path[PATH_MAX];
};

struct side bench_side(const struct bench *bench, bool writing);
void bench_barrier(const struct bench *bench);

/* Collective: one repetition with everything around it; returns this rank's times. write_once() removes the
 * files of the repetition before. */
struct times write_once(struct bench *bench);
struct times read_once(struct bench *bench, bool verify);
/* Collective, at the end: files that are kept get the names that --existing finds, those of repetition 0. */
void name_kept_files(struct bench *bench);

/* Collective, once: the bytes of each node in the direction of `series`. */
void collect_node_bytes(const struct bench *bench, struct series *series);
/* Collective: append one repetition to `series` on rank 0. */
void collect(const struct bench *bench, struct series *series, struct times times, double started,
             double resident);

#endif
