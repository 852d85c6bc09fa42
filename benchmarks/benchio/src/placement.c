#include "placement.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "options.h"
#include "size.h"

/* Nodes are counted in the order of their first rank. */
static void find_nodes(struct placement *p, const struct context *c) {
    MPI_Comm node;
    int first = c->rank;
    int *leader = allocate(c, (size_t)c->size * sizeof(int), "placement");
    p->node_of = allocate(c, (size_t)c->size * sizeof(int), "placement");
    p->ranks_on = allocate(c, (size_t)c->size * sizeof(int), "placement");
    CHECK_MPI(c, "", "MPI_Comm_split_type",
              MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &node));
    CHECK_MPI(c, "", "MPI_Comm_rank", MPI_Comm_rank(node, &p->node_rank));
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(&first, 1, MPI_INT, 0, node));
    CHECK_MPI(c, "", "MPI_Allgather", MPI_Allgather(&first, 1, MPI_INT, leader, 1, MPI_INT, c->world));
    for (int r = 0; r < c->size; r++) {
        p->node_of[r] = leader[r] == r ? p->nodes++ : p->node_of[leader[r]];
        p->ranks_on[p->node_of[r]]++;
    }
    p->node = p->node_of[c->rank];
    MPI_Comm_free(&node);
    free(leader);
}

static int instance_of(const struct context *c, int rank) {
    return (int)((int64_t)rank * (int64_t)c->options->instances / c->size);
}

/* Roles of all ranks, in one pass; instances are contiguous ranges of ranks. */
static struct role *all_roles(struct placement *p, const struct context *c) {
    struct role *roles = allocate(c, (size_t)c->size * sizeof *roles, "placement");
    int *members = allocate(c, (size_t)c->size * sizeof(int), "placement"); /* of a file */
    int *file_of_node = allocate(c, (size_t)c->size * sizeof(int), "placement");
    int *instance_ranks = allocate(c, (size_t)c->size * sizeof(int), "placement");
    for (int r = 0; r < c->size; r++) {
        struct role *role = &roles[r];
        role->instance = instance_of(c, r);
        role->box_rank = instance_ranks[role->instance]++;
        if (role->box_rank == 0)
            for (int node = 0; node < p->nodes; node++)
                file_of_node[node] = -1;
        int *of_node = &file_of_node[p->node_of[r]];
        if (c->options->file == FILE_SHARED)
            role->file = role->instance;
        else if (c->options->file == FILE_PER_PROCESS)
            role->file = r;
        else
            role->file = *of_node < 0 ? (*of_node = p->files) : *of_node;
        role->rank = members[role->file]++;
        p->files = role->file >= p->files ? role->file + 1 : p->files;
    }
    for (int r = 0; r < c->size; r++) {
        roles[r].ranks = members[roles[r].file];
        roles[r].box_ranks = instance_ranks[roles[r].instance];
    }
    free(members);
    free(file_of_node);
    free(instance_ranks);
    return roles;
}

static int effective_shift(const struct placement *p, const struct context *c) {
    if (c->options->shift != SHIFT_AUTO)
        return (int)(c->options->shift % (uint64_t)c->size);
    int most = 0;
    for (int node = 0; node < p->nodes; node++)
        most = p->ranks_on[node] > most ? p->ranks_on[node] : most;
    return most < c->size ? most : c->size > 1 ? 1 : 0;
}

static const char *role_geometry(const struct context *c, const struct role *role,
                                 struct geometry *geometry) {
    return geometry_make(geometry, c->options, (uint64_t)role->rank, (uint64_t)role->ranks,
                         (uint64_t)role->box_rank, (uint64_t)role->box_ranks);
}

const char *placement_make(struct placement *p, const struct context *c) {
    *p = (struct placement){
        .instances = (int)c->options->instances, .write_comm = MPI_COMM_NULL, .read_comm = MPI_COMM_NULL};
    find_nodes(p, c);
    p->hosts = c->rank == 0 ? allocate(c, (size_t)c->size * MPI_MAX_PROCESSOR_NAME, "host names") : NULL;
    CHECK_MPI(c, "", "MPI_Gather",
              MPI_Gather(c->host, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, p->hosts, MPI_MAX_PROCESSOR_NAME,
                         MPI_CHAR, 0, c->world));
    struct role *roles = all_roles(p, c);
    p->shift = effective_shift(p, c);
    p->write = roles[c->rank];
    p->read = roles[(c->rank + p->shift) % c->size];
    free(roles);
    const char *reason = role_geometry(c, &p->write, &p->write_geometry);
    uint64_t all_bytes;
    if (reason == NULL && !size_multiply(p->write_geometry.bytes, (uint64_t)c->size, &all_bytes))
        reason = "all files together are too large";
    int fine = reason == NULL;
    CHECK_MPI(c, "", "MPI_Allreduce", MPI_Allreduce(MPI_IN_PLACE, &fine, 1, MPI_INT, MPI_MIN, c->world));
    if (!fine)
        return reason != NULL ? reason : "";
    role_geometry(c, &p->read, &p->read_geometry);
    CHECK_MPI(c, "", "MPI_Comm_split",
              MPI_Comm_split(c->world, p->write.file, p->write.rank, &p->write_comm));
    CHECK_MPI(c, "", "MPI_Comm_split", MPI_Comm_split(c->world, p->read.file, p->read.rank, &p->read_comm));
    return NULL;
}

void placement_free(struct placement *p) {
    free(p->node_of);
    free(p->ranks_on);
    free(p->hosts);
    if (p->write_comm != MPI_COMM_NULL)
        MPI_Comm_free(&p->write_comm);
    if (p->read_comm != MPI_COMM_NULL)
        MPI_Comm_free(&p->read_comm);
}
