#define _GNU_SOURCE
#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "clock.h"
#include "fail.h"
#include "generator.h"
#include "scratch.h"
#include "watchdog.h"

#define NAME_OF(symbol, text) text,
const char *const phase_names[] = {BENCHIO_PHASES(NAME_OF) NULL};

/* What stays the same over all repetitions. */
struct bench {
    const struct context *context;
    const struct placement *placement;
    const struct backend *backend;
    struct results *results;
    MPI_Info info;
    void *array, *buffer;
    size_t buffer_bytes;
    bool direct;   /* O_DIRECT asked for and possible */
    double offset; /* of clocks */
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

double bandwidth(uint64_t bytes, double seconds) {
    return seconds > 0 ? (double)bytes / seconds : 0;
}

static struct side side_of(const struct bench *b, bool writing) {
    const struct placement *p = b->placement;
    struct side side = {.role = writing ? &p->write : &p->read,
                        .geometry = writing ? &p->write_geometry : &p->read_geometry,
                        .comm = writing ? p->write_comm : p->read_comm};
    side.key = generator_key(b->context->options->seed, (uint64_t)side.role->file);
    scratch_path(b->context, side.role->file, side.path);
    return side;
}

static noreturn void fail_different(const struct bench *b, const struct side *s, const struct difference *d) {
    bool box = s->geometry->pattern == PATTERN_BLOCK3D;
    if (d->offset == UINT64_MAX)
        fail(b->context, EXIT_DIFFERENT, PLACE(s->path, "verification"),
             "a halo cell was overwritten: expected 0x%016" PRIx64 ", found 0x%016" PRIx64, d->expected,
             d->found);
    fail(b->context, EXIT_DIFFERENT, PLACE(s->path, "verification"),
         "at byte %" PRIu64 " of the data: expected 0x%0*" PRIx64 ", found 0x%0*" PRIx64 "; %" PRIu64
         " %s differ",
         d->offset, box ? 16 : 2, d->expected, box ? 16 : 2, d->found, d->count, box ? "elements" : "bytes");
}

/* One transfer of a stream and the generation or check of its data. Returns seconds of the latter. */
static double step_data(const struct bench *b, const struct side *s, const struct slab *slab, bool writing) {
    double from = clock_now();
    if (writing) {
        generator_fill_bytes(s->key, slab->first, slab->elements, (unsigned char *)slab->memory);
        return clock_now() - from;
    }
    struct difference d =
        generator_check_bytes(s->key, slab->first, slab->elements, (unsigned char *)slab->memory);
    if (d.count > 0)
        fail_different(b, s, &d);
    return clock_now() - from;
}

static void transfer_all(const struct bench *b, struct file *f, const struct side *s, bool verify,
                         double phase[]) {
    const struct options *o = b->context->options;
    bool stream_data = verify && s->geometry->pattern != PATTERN_BLOCK3D;
    bool sync_each = f->writing && o->sync == SYNC_EACH;
    for (uint64_t step = 0; step < s->geometry->steps; step++) {
        struct slab slab = geometry_step(s->geometry, step, b->array);
        if (stream_data && f->writing)
            phase[PHASE_VERIFY] += step_data(b, s, &slab, true);
        b->backend->transfer(f, &slab);
        if (stream_data && !f->writing)
            phase[PHASE_VERIFY] += step_data(b, s, &slab, false);
        if (sync_each) {
            double from = clock_now();
            b->backend->sync(f);
            phase[PHASE_SYNC] += clock_now() - from;
        }
    }
}

static struct file file_of(const struct bench *b, const struct side *s, bool writing) {
    return (struct file){.context = b->context,
                         .geometry = s->geometry,
                         .path = s->path,
                         .comm = s->comm,
                         .info = b->info,
                         .writing = writing,
                         .collective =
                             b->backend->has_access && b->context->options->access == ACCESS_COLLECTIVE,
                         .direct = b->direct,
                         .buffer = b->buffer,
                         .buffer_bytes = b->buffer_bytes,
                         .data_offset = UNKNOWN_OFFSET};
}

/* One repetition of this rank, from before open to after close. */
static struct times run_file(const struct bench *b, struct file *f, const struct side *s, bool verify) {
    struct times t = {0};
    double transferred, now;
    t.start = clock_now();
    b->backend->open(f);
    now = clock_now();
    t.phase[PHASE_OPEN] = now - t.start;
    transferred = now;
    transfer_all(b, f, s, verify, t.phase);
    now = clock_now();
    t.phase[PHASE_TRANSFER] = now - transferred - t.phase[PHASE_VERIFY] - t.phase[PHASE_SYNC];
    if (f->hints != NULL && b->backend->describe != NULL)
        b->backend->describe(f);
    if (f->writing && b->context->options->sync == SYNC_END) {
        double from = clock_now();
        b->backend->sync(f);
        t.phase[PHASE_SYNC] = clock_now() - from;
    }
    now = clock_now();
    b->backend->close(f);
    t.end = clock_now();
    t.phase[PHASE_CLOSE] = t.end - now;
    return t;
}

/* The library said that all is well; the file must agree. Open MPI's MPI-IO says so on a full disk. */
static void check_file(const struct bench *b, const struct file *f, const struct side *s) {
    struct stat status;
    const struct context *c = b->context;
    if (s->role->rank != 0 || !b->backend->has_files)
        return;
    int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0)
        fail(c, EXIT_BROKEN, PLACE(s->path, "check after writing"), "%s", strerror(errno));
    bool known = f->data_offset != UNKNOWN_OFFSET;
    uint64_t from = known ? f->data_offset : 0, n = s->geometry->file_bytes;
    if ((uint64_t)status.st_size < from + n)
        fail(c, EXIT_BROKEN, PLACE(s->path, "check after writing"),
             "the file has %lld bytes, %" PRIu64 " were reported as written", (long long)status.st_size,
             from + n);
    uint64_t hole = first_hole(fd, from, known ? n : (uint64_t)status.st_size);
    bool lost =
        known ? hole < from + n : hole < (uint64_t)status.st_size && (uint64_t)status.st_blocks * 512 < n;
    if (lost)
        fail(c, EXIT_BROKEN, PLACE(s->path, "check after writing"),
             "nothing was written at offset %" PRIu64 " although the library reported success (%" PRIu64
             " bytes free on the file system)",
             hole, b->results->filesystem.free_bytes);
    close(fd);
}

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

static void collect(struct bench *b, struct series *series, struct times times, double started,
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
    series->item = realloc(series->item, (series->n + 1) * sizeof r);
    series->item[series->n++] = r;
    free(all);
}

static void barrier(const struct bench *b) {
    CHECK_MPI(b->context, "", "MPI_Barrier", MPI_Barrier(b->context->world));
}

static void remove_file(const struct bench *b, const struct side *s) {
    if (s->role->rank == 0 && b->backend->has_files)
        CHECK_POSIX(b->context, s->path, "unlink", unlink(s->path) == 0 || errno == ENOENT);
}

static struct hints *wanted_hints(const struct bench *b) {
    return b->results->hints_source == NULL ? &b->results->hints : NULL;
}

/* netcdf-c keeps its handle to itself: ask MPI-IO what it makes of the same hints for the same file. Only
 * where hints were given, so that a trace of a plain run shows nothing but the library's own calls. */
static void probe_hints(const struct bench *b, const struct side *s) {
    MPI_File handle;
    MPI_Info info;
    const struct context *c = b->context;
    CHECK_MPI(c, s->path, "MPI_File_open",
              MPI_File_open(s->comm, s->path, MPI_MODE_RDONLY, b->info, &handle));
    CHECK_MPI(c, s->path, "MPI_File_get_info", MPI_File_get_info(handle, &info));
    backend_append_info(c, info, &b->results->hints);
    MPI_Info_free(&info);
    CHECK_MPI(c, s->path, "MPI_File_close", MPI_File_close(&handle));
}

static void note_hints(const struct bench *b, const struct side *s) {
    struct results *r = b->results;
    if (r->hints_source != NULL)
        return;
    r->hints_source = b->backend->describe != NULL ? "file handle" : "none";
    if (b->backend->describe == NULL && b->backend->has_hints && b->info != MPI_INFO_NULL) {
        r->hints_source = "the file opened again with MPI-IO";
        probe_hints(b, s);
    }
}

static struct times write_once(struct bench *b) {
    const struct options *o = b->context->options;
    struct side side = side_of(b, true);
    remove_file(b, &side);
    if (side.geometry->pattern == PATTERN_BLOCK3D)
        generator_fill_box(side.geometry, side.key, b->array, false);
    else
        generator_fill_bytes(side.key, 0, side.geometry->transfer, b->array);
    struct file file = file_of(b, &side, true);
    file.hints = wanted_hints(b);
    watchdog_start(b->context, "writing", side.path);
    barrier(b);
    struct times times = run_file(b, &file, &side, o->verify || o->keep); /* what is kept can be checked later */
    barrier(b);
    watchdog_stop();
    check_file(b, &file, &side);
    note_hints(b, &side);
    return times;
}

/* Reads into poisoned memory, so that a read that moves nothing is seen. */
static struct times read_once(struct bench *b, bool verify) {
    struct side side = side_of(b, false);
    bool box = side.geometry->pattern == PATTERN_BLOCK3D;
    if (box)
        generator_fill_box(side.geometry, side.key, b->array, true);
    struct file file = file_of(b, &side, false);
    file.hints = wanted_hints(b);
    watchdog_start(b->context, "reading", side.path);
    barrier(b);
    struct times times = run_file(b, &file, &side, verify);
    barrier(b);
    watchdog_stop();
    note_hints(b, &side);
    if (verify && box) {
        struct difference d = generator_check_box(side.geometry, side.key, b->array);
        if (d.count > 0)
            fail_different(b, &side, &d);
    }
    b->results->verified_bytes += verify ? side.geometry->bytes : 0;
    return times;
}

/* As the policy wants; returns the largest share of a file that is still in the page cache of a reading node.
 */
static double prepare_cache(struct bench *b) {
    const struct context *c = b->context;
    struct side written = side_of(b, true), side = side_of(b, false);
    barrier(b);
    if (c->options->cache != CACHE_KEEP && b->backend->has_files) {
        int status = cache_drop(written.path);
        if (status != 0)
            fail(c, EXIT_BROKEN, PLACE(written.path, "dropping the page cache"), "%s", strerror(status));
        barrier(b);
        status = cache_drop(side.path); /* the node that reads may hold pages, too */
        if (status != 0)
            fail(c, EXIT_BROKEN, PLACE(side.path, "dropping the page cache"), "%s", strerror(status));
    }
    barrier(b);
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
            collect(b, read, read_once(b, o->verify), started, resident);
            progress(b, read, &last);
        }
    }
}

static MPI_Info make_info(const struct context *c) {
    const struct options *o = c->options;
    MPI_Info info = MPI_INFO_NULL;
    char text[32];
    bool align = o->align > 0 && strcmp(backends[o->api].name, "pnetcdf") == 0;
    if (o->hints.n == 0 && o->stripe_count == 0 && o->stripe_size == 0 && !align)
        return info;
    CHECK_MPI(c, "", "MPI_Info_create", MPI_Info_create(&info));
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

/* Refuse before the first byte what cannot fit. */
static void check_space(const struct bench *b) {
    const struct context *c = b->context;
    const struct filesystem *fs = &b->results->filesystem;
    if (c->rank == 0 && b->backend->has_files && !c->options->existing && fs->free_bytes < b->results->bytes)
        fail(c, EXIT_BROKEN, PLACE(c->directory, "checking free space"),
             "%" PRIu64 " bytes are needed, %" PRIu64 " are free (%s)", b->results->bytes, fs->free_bytes,
             fs->type);
    barrier(b);
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
    b.info = make_info(c);
    repetitions(&b);
    getrusage(RUSAGE_SELF, &usage);
    results->peak_bytes = total(c, (uint64_t)usage.ru_maxrss * 1024, MPI_MAX);
    results->verified_bytes = total(c, results->verified_bytes, MPI_SUM);
    results->finished = utc_now();
    if (b.info != MPI_INFO_NULL)
        MPI_Info_free(&b.info);
    free(b.array);
    free(b.buffer);
}

void results_free(struct results *r) {
    for (int i = 0; i < r->series_n; i++) {
        for (size_t k = 0; k < r->series[i].n; k++)
            free(r->series[i].item[k].instance_seconds);
        free(r->series[i].item);
    }
    for (size_t i = 0; i < r->hints.n; i++) {
        free(r->hints.item[i].key);
        free(r->hints.item[i].value);
    }
    free(r->hints.item);
    free(r->instance_bytes);
}
