/* From the times of each rank to one repetition of the record. */
#include <stdlib.h>

#include "bench.h"
#include "fail.h"

static void spread_of(const struct times *all, int size, int phase, struct spread *spread) {
    double sum = 0;
    *spread = (struct spread){.min = all[0].phase[phase], .max = all[0].phase[phase]};
    for (int r = 0; r < size; r++) {
        double value = all[r].phase[phase];
        sum += value;
        spread->min = value < spread->min ? value : spread->min;
        if (value > spread->max)
            spread->max = value, spread->slowest = r;
    }
    spread->mean = sum / size;
}

/* latest end - earliest start of each instance, and of all. */
static void intervals(const struct bench *b, const struct times *all, struct repetition *r) {
    int n = b->placement->instances, size = b->context->size;
    double start = all[0].start, end = all[0].end;
    r->instance_seconds = allocate(b->context, (size_t)n * sizeof(double), "results");
    double *starts = allocate(b->context, (size_t)n * sizeof(double), "results");
    double *ends = allocate(b->context, (size_t)n * sizeof(double), "results");
    for (int rank = 0; rank < size; rank++) {
        int i = (int)((int64_t)rank * n / size);
        start = all[rank].start < start ? all[rank].start : start;
        end = all[rank].end > end ? all[rank].end : end;
        if (starts[i] == 0 || all[rank].start < starts[i])
            starts[i] = all[rank].start;
        ends[i] = all[rank].end > ends[i] ? all[rank].end : ends[i];
    }
    r->seconds = end - start;
    for (int i = 0; i < n; i++)
        r->instance_seconds[i] = ends[i] - starts[i];
    free(starts);
    free(ends);
}

/* Whether a rank ends a phase without waiting for others: only these phases show which rank or node is slow.
 * Opening, flushing and closing are collective in MPI-IO and in the libraries above it, transfers are where
 * they were asked for. With subfiling other ranks do the transfers. */
static bool is_own_phase(const struct bench *b, int phase) {
    const struct options *o = b->context->options;
    if (phase == PHASE_VERIFY)
        return false;
    if (!b->backend->has_access)
        return true;
    return phase == PHASE_TRANSFER && o->access != ACCESS_COLLECTIVE && o->driver == DRIVER_MPIO;
}

static void node_times(const struct bench *b, const struct times *all, struct repetition *r) {
    const struct placement *p = b->placement;
    int size = b->context->size;
    r->node = allocate(b->context, (size_t)p->nodes * sizeof *r->node, "results");
    double *starts = allocate(b->context, (size_t)p->nodes * sizeof(double), "results");
    double *ends = allocate(b->context, (size_t)p->nodes * sizeof(double), "results");
    for (int rank = 0; rank < size; rank++) {
        int node = p->node_of[rank];
        if (starts[node] == 0 || all[rank].start < starts[node])
            starts[node] = all[rank].start;
        ends[node] = all[rank].end > ends[node] ? all[rank].end : ends[node];
        for (int phase = 0; phase < PHASE_N; phase++)
            if (is_own_phase(b, phase))
                r->node[node].own_seconds += all[rank].phase[phase] / p->ranks_on[node];
    }
    for (int node = 0; node < p->nodes; node++)
        r->node[node].seconds = ends[node] - starts[node];
    free(starts);
    free(ends);
}

void collect_node_bytes(const struct bench *b, struct series *series) {
    const struct placement *p = b->placement;
    const struct geometry *g = series->op == OP_WRITE ? &p->write_geometry : &p->read_geometry;
    series->has_own_seconds = is_own_phase(b, PHASE_TRANSFER);
    series->node_bytes = allocate(b->context, (size_t)p->nodes * sizeof(uint64_t), "results");
    series->node_bytes[p->node] = g->bytes;
    CHECK_MPI(
        b->context, "", "MPI_Allreduce",
        MPI_Allreduce(MPI_IN_PLACE, series->node_bytes, p->nodes, MPI_UINT64_T, MPI_SUM, b->context->world));
}

void collect(const struct bench *b, struct series *series, struct times times, double started,
             double resident) {
    const struct context *c = b->context;
    struct latencies *transfers = allocate(c, sizeof *transfers, "times of transfers");
    CHECK_MPI(
        c, "", "MPI_Reduce",
        MPI_Reduce(b->latencies->count, transfers->count, LATENCY_BINS, MPI_UINT64_T, MPI_SUM, 0, c->world));
    CHECK_MPI(c, "", "MPI_Reduce",
              MPI_Reduce(&b->latencies->longest, &transfers->longest, 1, MPI_DOUBLE, MPI_MAX, 0, c->world));
    struct transfer_times transfer_times = latencies_summary(transfers);
    free(transfers);
    struct times *all = c->rank == 0 ? allocate(c, (size_t)c->size * sizeof *all, "results") : NULL;
    times.start += b->offset;
    times.end += b->offset;
    int n = (int)(sizeof times / sizeof(double));
    CHECK_MPI(c, "", "MPI_Gather", MPI_Gather(&times, n, MPI_DOUBLE, all, n, MPI_DOUBLE, 0, c->world));
    if (c->rank != 0)
        return;
    struct repetition r = {.started = started, .resident = resident, .transfers = transfer_times};
    for (int phase = 0; phase < PHASE_N; phase++)
        spread_of(all, c->size, phase, &r.phase[phase]);
    intervals(b, all, &r);
    node_times(b, all, &r);
    series->item = reallocate(c, series->item, (series->n + 1) * sizeof r, "results");
    series->item[series->n++] = r;
    free(all);
}
