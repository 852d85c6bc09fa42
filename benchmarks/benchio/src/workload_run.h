/* The run of a workload: repetitions of its phases, and what they took. */
#ifndef BENCHIO_WORKLOAD_RUN_H
#define BENCHIO_WORKLOAD_RUN_H

#include "results.h"
#include "workload.h"

/* What a rank's time in a phase is made of. */
#define BENCHIO_PARTS(X)                                                                                     \
    X(PART_OPEN, "open")                                                                                     \
    X(PART_READ, "read")                                                                                     \
    X(PART_WRITE, "write")                                                                                   \
    X(PART_SYNC, "sync")                                                                                     \
    X(PART_CLOSE, "close")                                                                                   \
    X(PART_METADATA, "metadata")                                                                             \
    X(PART_BARRIER, "barrier")                                                                               \
    X(PART_COMPUTE, "compute")                                                                               \
    X(PART_VERIFY, "verify")
enum part { BENCHIO_PARTS(BENCHIO_ENUM) PART_N };
extern const char *const part_names[];

/* One phase of one repetition; seconds. */
struct phase_time {
    double started;    /* seconds since 1970, UTC */
    double seconds;    /* latest end - earliest start over all ranks */
    double io_seconds; /* the same without what the slowest rank computed, slept or verified */
    double resident; /* before: largest share of a file in the page cache; -1: unknown, or nothing is read */
    struct spread part[PART_N];
};

/* On rank 0 complete: `n` repetitions of all phases, time[repetition * phases + phase]. */
struct workload_report {
    size_t n;
    struct phase_time *time;
};

/* Collective; ends the run where something fails. */
void workload_run(struct workload *workload, const struct context *context, const struct placement *placement,
                  struct results *results);
void workload_report_free(struct workload_report *report);

struct json;
/* Members `workload`, `phases` and `total` of an open object of the record. */
void workload_json(const struct results *results, struct json *json);
/* For people. */
void workload_table(const struct context *context, const struct placement *placement,
                    const struct results *results);
/* What `--check` prints. */
void workload_print(const struct workload *workload, int ranks);

#endif
