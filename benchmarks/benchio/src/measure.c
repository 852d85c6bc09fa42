#define _GNU_SOURCE
#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"
#include "cache.h"
#include "clock.h"
#include "fail.h"
#include "scratch.h"

/* A file of which more than this share stays in memory was not dropped (tmpfs has nowhere to drop it to). */
#define MOSTLY_DROPPED 0.01

/* As the policy wants; returns the largest share of a file that is still in the page cache of a reading node.
 */
static double prepare_cache(struct bench *b) {
    const struct context *c = b->context;
    struct side written = bench_side(b, true), side = bench_side(b, false);
    bench_barrier(b);
    if (c->options->cache != CACHE_KEEP && b->backend->has_files) {
        int status = cache_drop(written.path);
        if (status != 0)
            fail(c, EXIT_BROKEN, PLACE(written.path, "dropping the page cache"), "%s", strerror(status));
        bench_barrier(b);
        status = cache_drop(side.path); /* the node that reads may hold pages, too */
        if (status != 0)
            fail(c, EXIT_BROKEN, PLACE(side.path, "dropping the page cache"), "%s", strerror(status));
    }
    bench_barrier(b);
    double resident = side.role->rank == 0 && b->backend->has_files ? cache_resident(side.path) : -1;
    CHECK_MPI(c, "", "MPI_Allreduce",
              MPI_Allreduce(MPI_IN_PLACE, &resident, 1, MPI_DOUBLE, MPI_MAX, c->world));
    return resident;
}

static void progress(const struct bench *b, const struct series *s, double *last) {
    const struct options *o = b->context->options;
    if (b->context->rank != 0 || o->quiet || clock_now() - *last < 1)
        return;
    const struct repetition *r = &s->item[s->n - 1];
    double left = s->n < o->repeat ? r->seconds * (double)(o->repeat - s->n) : 0;
    fprintf(stderr, "benchio: %s %zu of %" PRIu64 ": %.4g s, %.4g MiB/s, about %.0f s left\n",
            op_names[s->op], s->n, o->repeat, r->seconds,
            bandwidth(b->results->bytes, r->seconds) / (1 << 20), left);
    *last = clock_now();
}

/* Both conditions of the end, decided by rank 0. */
static bool enough(const struct bench *b, uint64_t done, double begun) {
    const struct options *o = b->context->options;
    int finished = done >= o->repeat && clock_now() - begun >= o->min_time;
    CHECK_MPI(b->context, "", "MPI_Bcast", MPI_Bcast(&finished, 1, MPI_INT, 0, b->context->world));
    return finished;
}

static void repetitions(struct bench *b) {
    const struct options *o = b->context->options;
    struct results *results = b->results;
    struct series *write = NULL, *read = NULL;
    if (o->op != OP_READ)
        (write = &results->series[results->series_n++])->op = OP_WRITE;
    if (o->op != OP_WRITE)
        (read = &results->series[results->series_n++])->op = OP_READ;
    for (int s = 0; s < results->series_n; s++)
        collect_node_bytes(b, &results->series[s]);
    if (o->op == OP_READ && !o->existing)
        write_once(b);
    double begun = clock_now(), last = begun;
    for (uint64_t done = 0; !enough(b, done, begun); done++) {
        b->offset = clock_offset(b->context, b->placement);
        if (write != NULL) {
            double started = utc_now();
            collect(b, write, write_once(b), started, -1);
            progress(b, write, &last);
        }
        if (write != NULL && read == NULL && o->verify)
            read_once(b, true);
        if (read != NULL) {
            double resident = prepare_cache(b), started = utc_now();
            if (o->cache != CACHE_KEEP && resident > MOSTLY_DROPPED)
                b->results->cache_achieved = cache_names[CACHE_KEEP];
            collect(b, read, read_once(b, o->verify), started, resident);
            progress(b, read, &last);
        }
    }
}

MPI_Info measure_info(const struct context *c) {
    const struct options *o = c->options;
    MPI_Info info = MPI_INFO_NULL;
    char text[32];
    bool align = o->align > 0 && strcmp(backends[o->api].name, "pnetcdf") == 0;
    if (o->hints.n == 0 && o->stripe_count == 0 && o->stripe_size == 0 && !align)
        return info;
    CHECK_MPI(c, "", "MPI_Info_create", MPI_Info_create(&info));
    CHECK_MPI(c, UNKNOWN_HINT, "MPI_Info_set", MPI_Info_set(info, UNKNOWN_HINT, "1"));
    const struct {
        bool given;
        const char *key;
        uint64_t value;
    } numbers[] = {{o->stripe_count > 0, "striping_factor", o->stripe_count},
                   {o->stripe_size > 0, "striping_unit", o->stripe_size},
                   {align, "nc_var_align_size", o->align}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(text, sizeof text, "%" PRIu64, numbers[i].value);
        if (numbers[i].given)
            CHECK_MPI(c, numbers[i].key, "MPI_Info_set", MPI_Info_set(info, numbers[i].key, text));
    }
    for (size_t i = 0; i < o->hints.n; i++)
        CHECK_MPI(c, o->hints.item[i].key, "MPI_Info_set",
                  MPI_Info_set(info, o->hints.item[i].key, o->hints.item[i].value));
    return info;
}

/* O_DIRECT, or the next best thing where the file system has none. */
static void decide_cache(struct bench *b) {
    const struct context *c = b->context;
    int fine = 1;
    char path[PATH_MAX];
    b->results->cache_achieved = cache_names[c->options->cache];
    if (c->options->cache != CACHE_DIRECT)
        return;
    if (c->rank == 0) {
        snprintf(path, sizeof path, "%.*s/direct", PATH_MAX - 32, c->directory);
        int fd = open(path, O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0666);
        fine = fd >= 0;
        if (fd >= 0)
            close(fd);
        else
            fprintf(stderr, "benchio: warning: no O_DIRECT in %s (%s): using --cache drop\n", c->directory,
                    strerror(errno));
        unlink(path);
    }
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(&fine, 1, MPI_INT, 0, c->world));
    b->direct = fine;
    if (!fine)
        b->results->cache_achieved = cache_names[CACHE_DROP];
}

static uint64_t total(const struct context *c, uint64_t value, MPI_Op operation) {
    CHECK_MPI(c, "", "MPI_Allreduce",
              MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, operation, c->world));
    return value;
}

/* A write beyond `ulimit -f` fails on one rank only, and a library whose other ranks then wait for it never
 * returns: HDF5 1.10 under netCDF did not. */
static void check_file_limit(const struct bench *b) {
    const struct context *c = b->context;
    struct side side = bench_side(b, true);
    struct rlimit limit;
    if (side.role->rank == 0 && b->backend->has_files && !c->options->existing &&
        getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < side.geometry->file_bytes)
        fail(c, EXIT_BROKEN, PLACE(side.path, "checking the limit of file sizes"),
             "%" PRIu64 " bytes are needed, %llu are allowed (ulimit -f)", side.geometry->file_bytes,
             (unsigned long long)limit.rlim_cur);
}

/* Refuse before the first byte what cannot fit. */
static void check_space(const struct bench *b) {
    const struct context *c = b->context;
    const struct filesystem *fs = &b->results->filesystem;
    check_file_limit(b);
    if (c->rank == 0 && b->backend->has_files && !c->options->existing && fs->free_bytes < b->results->bytes)
        fail(c, EXIT_BROKEN, PLACE(c->directory, "checking free space"),
             "%" PRIu64 " bytes are needed, %" PRIu64 " are free (%s)", b->results->bytes, fs->free_bytes,
             fs->type);
    bench_barrier(b);
}

static void size_up(struct bench *b) {
    const struct context *c = b->context;
    const struct placement *p = b->placement;
    struct results *r = b->results;
    size_t n = (size_t)p->instances;
    const struct geometry *g[2] = {&p->write_geometry, &p->read_geometry};
    for (int i = 0; i < 2; i++) {
        size_t buffer = b->backend->buffer_bytes != NULL ? b->backend->buffer_bytes(c->options, g[i]) : 0;
        b->buffer_bytes = buffer > b->buffer_bytes ? buffer : b->buffer_bytes;
        r->array_bytes = g[i]->array_bytes > r->array_bytes ? g[i]->array_bytes : r->array_bytes;
    }
    b->array = allocate(c, r->array_bytes, "the local array");
    b->buffer = allocate(c, b->buffer_bytes, "the transfer buffer");
    b->latencies = allocate(c, sizeof *b->latencies, "times of transfers");
    b->file_sizes = allocate(c, (size_t)p->files * sizeof *b->file_sizes, "sizes of files");
    r->instance_bytes = allocate(c, n * sizeof(uint64_t), "results");
    r->instance_bytes[p->write.instance] = p->write_geometry.bytes;
    CHECK_MPI(c, "", "MPI_Allreduce",
              MPI_Allreduce(MPI_IN_PLACE, r->instance_bytes, (int)n, MPI_UINT64_T, MPI_SUM, c->world));
    for (size_t i = 0; i < n; i++)
        r->bytes += r->instance_bytes[i];
    r->array_bytes = total(c, r->array_bytes, MPI_MAX);
    r->buffer_bytes = total(c, b->buffer_bytes, MPI_MAX);
}

void measure(const struct context *c, const struct placement *p, struct results *results) {
    struct bench b = {
        .context = c, .placement = p, .backend = backends[c->options->api].backend, .results = results};
    struct rusage usage;
    *results = (struct results){0};
    size_up(&b);
    filesystem_find(c->directory, &results->filesystem);
    check_space(&b);
    decide_cache(&b);
    b.info = measure_info(c);
    repetitions(&b);
    if (c->options->keep)
        name_kept_files(&b);
    getrusage(RUSAGE_SELF, &usage);
    results->peak_bytes = total(c, (uint64_t)usage.ru_maxrss * 1024, MPI_MAX);
    results->verified_bytes = total(c, results->verified_bytes, MPI_SUM);
    results->finished = utc_now();
    if (b.info != MPI_INFO_NULL)
        MPI_Info_free(&b.info);
    free(b.file_sizes);
    free(b.latencies);
    free(b.array);
    free(b.buffer);
}
