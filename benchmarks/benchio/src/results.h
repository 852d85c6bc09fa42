/* What a run measured: written by the measurement and by a workload, read by the table and the record. */
#ifndef BENCHIO_RESULTS_H
#define BENCHIO_RESULTS_H

#include "filesystem.h"
#include "options.h"

#define BENCHIO_PHASES(X)                                                                                    \
    X(PHASE_OPEN, "open")                                                                                    \
    X(PHASE_TRANSFER, "transfer")                                                                            \
    X(PHASE_SYNC, "sync")                                                                                    \
    X(PHASE_CLOSE, "close")                                                                                  \
    X(PHASE_VERIFY, "verify")
enum phase { BENCHIO_PHASES(BENCHIO_ENUM) PHASE_N };
extern const char *const phase_names[];

/* Over all ranks, seconds. */
struct spread {
    double min, mean, max;
    int slowest; /* rank */
};

/* Of the ranks of one node in one repetition. */
struct node_time {
    double seconds;     /* latest end - earliest start */
    double own_seconds; /* mean of the ranks: in calls that do not wait for other ranks */
};

/* Over all ranks of one repetition, seconds. */
struct transfer_times {
    uint64_t count;
    double median, p99, longest;
};

struct repetition {
    double started; /* seconds since 1970, UTC */
    double seconds; /* latest end - earliest start over all ranks */
    struct spread phase[PHASE_N];
    struct transfer_times transfers;
    double *instance_seconds; /* as `seconds`, per instance */
    struct node_time *node;   /* in the order of placement.node_of */
    double resident;          /* before a read: largest share of a file in a page cache; -1: unknown */
};

struct series {
    int op;               /* OP_WRITE or OP_READ */
    bool has_own_seconds; /* of nodes: false where every call waits for other ranks */
    uint64_t *node_bytes; /* user data of one repetition, per node */
    size_t n;
    struct repetition *item;
};

/* What the whole run measured; complete on rank 0 only. */
struct results {
    struct series series[2];
    int series_n;
    uint64_t bytes; /* user data of one repetition over all ranks */
    uint64_t *instance_bytes;
    uint64_t verified_bytes; /* over all repetitions */
    struct hints hints;      /* in force */
    const char *hints_source;
    const char *cache_achieved;
    struct filesystem filesystem;
    const struct workload *workload; /* NULL: a plain pattern; then `report` is not */
    struct workload_report *report;
    uint64_t array_bytes, buffer_bytes, peak_bytes; /* memory: largest of all ranks; peak: whole process */
    double finished;
};

/* All but `report`, which belongs to workload_run.h. */
void results_free(struct results *results);

double bandwidth(uint64_t bytes, double seconds);

#endif
