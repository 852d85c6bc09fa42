/* One rank's way through the actions of a phase: what the check and the run have in common. */
#ifndef BENCHIO_WORKLOAD_WALK_H
#define BENCHIO_WORKLOAD_WALK_H

#include "workload.h"

/* One action with the values that its expressions have now. */
struct event {
    const struct action *action;
    struct workload_file *file; /* NULL: an action without file */
    int64_t number;
    int64_t offset, size, count, stride; /* of bytes */
    int64_t copy;                        /* of a data set */
    const int64_t *part;                 /* of a file view: pairs of offset and size */
    size_t part_n;                       /* 0: no view */
    int ndims;                           /* of a box; 0: none */
    unsigned element;                    /* bytes */
    int64_t dims[WORKLOAD_DIMENSIONS], start[WORKLOAD_DIMENSIONS], extent[WORKLOAD_DIMENSIONS];
    double amount; /* seconds or operations */
};

struct walker {
    struct workload *workload;
    struct scope scope;
    struct complaint complaint;
    /* False ends the walk. */
    bool (*visit)(struct walker *walker, const struct event *event);
    void *state;
    uint64_t actions;
};

/* Whether an operation moves a box that has a halo in memory. */
bool workload_has_halo(const struct workload *workload, const struct event *event);

bool walk(struct walker *walker, const struct action *action, size_t n);

#endif
