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

void collect(const struct bench *b, struct series *series, struct times times, double started,
             double resident) {
    const struct context *c = b->context;
    struct times *all = c->rank == 0 ? allocate(c, (size_t)c->size * sizeof *all, "results") : NULL;
    times.start += b->offset;
    times.end += b->offset;
    int n = (int)(sizeof times / sizeof(double));
    CHECK_MPI(c, "", "MPI_Gather", MPI_Gather(&times, n, MPI_DOUBLE, all, n, MPI_DOUBLE, 0, c->world));
    if (c->rank != 0)
        return;
    struct repetition r = {.started = started, .resident = resident};
    for (int phase = 0; phase < PHASE_N; phase++)
        spread_of(all, c->size, phase, &r.phase[phase]);
    intervals(b, all, &r);
    series->item = reallocate(c, series->item, (series->n + 1) * sizeof r, "results");
    series->item[series->n++] = r;
    free(all);
}
