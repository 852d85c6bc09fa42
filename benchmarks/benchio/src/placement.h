/* Which rank is where, and which part of which file is its. */
#ifndef BENCHIO_PLACEMENT_H
#define BENCHIO_PLACEMENT_H

#include "context.h"
#include "geometry.h"

/* What a rank does in one direction; reading, it takes the role of another rank. */
struct role {
    int instance, file;      /* file: counted over all instances */
    int rank, ranks;         /* in the file */
    int box_rank, box_ranks; /* in the instance */
};

struct placement {
    int nodes, files, instances;
    int node, node_rank; /* of this rank; node_rank: among the ranks of its node */
    int shift;           /* effective */
    int *node_of;        /* world rank -> node */
    int *ranks_on;       /* node -> ranks */
    char *hosts;         /* on rank 0: world rank -> MPI_MAX_PROCESSOR_NAME bytes */
    struct role write, read;
    MPI_Comm write_comm, read_comm; /* the ranks with the same file, in the order of role.rank */
    struct geometry write_geometry, read_geometry;
};

/* Collective. Returns NULL on all ranks, or on all ranks why the geometry is impossible (empty: another rank
 * knows). */
const char *placement_make(struct placement *placement, const struct context *context);
void placement_free(struct placement *placement);

#endif
