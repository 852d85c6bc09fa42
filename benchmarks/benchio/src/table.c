#include "table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "fail.h"

#define MIB 1048576.0

static void print_head(const struct context *c, const struct placement *p, const struct results *r) {
    const struct options *o = c->options;
    const struct geometry *g = &p->write_geometry;
    const struct backend *backend = backends[o->api].backend;
    printf("benchio %s: %s, %s, %s%s%s\n", BENCHIO_VERSION, backend->name, file_names[o->file],
           pattern_names[o->pattern], backend->has_access ? ", " : "",
           backend->has_access ? access_names[o->access] : "");
    printf("%d ranks on %d node%s, %d file%s, %.6g MiB per repetition, %" PRIu64 " transfers per rank\n",
           c->size, p->nodes, p->nodes > 1 ? "s" : "", p->files, p->files > 1 ? "s" : "",
           (double)r->bytes / MIB, g->steps);
    printf("%s (%s); page cache: %s%s%s; sync: %s\n", c->directory, r->filesystem.type, cache_names[o->cache],
           r->cache_achieved != cache_names[o->cache] ? ", achieved: " : "",
           r->cache_achieved != cache_names[o->cache] ? r->cache_achieved : "", sync_names[o->sync]);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_summary(const struct series *s, uint64_t bytes, double *rates) {
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        rates[i] = bandwidth(bytes, s->item[i].seconds) / MIB;
        sum += rates[i];
    }
    qsort(rates, s->n, sizeof *rates, ascending);
    double median = (rates[(s->n - 1) / 2] + rates[s->n / 2]) / 2;
    printf("%s MiB/s: max %.2f, median %.2f, min %.2f, mean %.2f (n %zu)\n", op_names[s->op], rates[s->n - 1],
           median, rates[0], sum / (double)s->n, s->n);
}

/* Phases of the slowest rank in each, so they may add up to more than the whole. */
static void print_series(const struct placement *p, const struct results *r, const struct series *s,
                         bool has_files) {
    printf("\n%-5s %4s %12s", op_names[s->op], "", has_files ? "MiB/s" : "");
    printf(" %11s", "seconds");
    for (int phase = 0; phase < PHASE_N; phase++)
        printf(" %11s", phase_names[phase]);
    printf("%s\n", s->op == OP_READ ? "      cached" : "");
    for (size_t i = 0; i < s->n; i++) {
        const struct repetition *item = &s->item[i];
        printf("      %4zu ", i + 1);
        if (has_files)
            printf("%12.2f", bandwidth(r->bytes, item->seconds) / MIB);
        else
            printf("%12s", "");
        printf(" %11.6f", item->seconds);
        for (int phase = 0; phase < PHASE_N; phase++)
            printf(" %11.6f", item->phase[phase].max);
        if (s->op == OP_READ && item->resident >= 0)
            printf(" %10.1f%%", 100 * item->resident);
        putchar('\n');
        for (int k = 0; has_files && p->instances > 1 && k < p->instances; k++)
            printf("      %4s %12.2f %11.6f  instance %d\n", "",
                   bandwidth(r->instance_bytes[k], item->instance_seconds[k]) / MIB,
                   item->instance_seconds[k], k);
    }
}

void table_print(const struct context *c, const struct placement *p, const struct results *r) {
    bool has_files = backends[c->options->api].backend->has_files;
    print_head(c, p, r);
    for (int i = 0; i < r->series_n; i++)
        print_series(p, r, &r->series[i], has_files);
    putchar('\n');
    for (int i = 0; i < r->series_n && has_files; i++) {
        double *rates = allocate(c, r->series[i].n * sizeof *rates, "the table");
        print_summary(&r->series[i], r->bytes, rates);
        free(rates);
    }
    if (c->options->verify)
        printf("verified: %" PRIu64 " bytes, all as written\n", r->verified_bytes);
}
