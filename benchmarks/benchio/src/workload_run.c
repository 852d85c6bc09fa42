#include "workload_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "clock.h"
#include "fail.h"
#include "measure.h"
#include "scratch.h"
#include "watchdog.h"
#include "workload_data.h"
#include "workload_walk.h"

/* As in measure.c: a file of which more than this share stays in memory was not dropped. */
#define MOSTLY_DROPPED 0.01

#define NAME_OF(symbol, text) text,
const char *const part_names[] = {BENCHIO_PARTS(NAME_OF) NULL};

struct run {
    const struct context *context;
    const struct placement *placement;
    struct workload *workload;
    struct results *results;
    struct file ***open; /* of each file: by number, NULL where it is not open */
    MPI_Info *info;      /* of each file */
    unsigned char *memory;
    size_t memory_bytes;
    struct ring reading, writing; /* in that memory, or in new one */
    double offset;                /* of clocks */
    double part[PART_N];
};

static void path_of(const struct run *r, const struct workload_file *f, int64_t number, char path[PATH_MAX]) {
    const char *name = workload_stored_file(r->workload, f)->name;
    snprintf(path, PATH_MAX, "%.*s/data.%s.%" PRId64 ".%d", PATH_MAX - 128, r->context->directory, name,
             number, f->color);
}

static uint64_t key_of(const struct run *r, const struct workload_file *f, const struct event *e) {
    const struct workload_file *stored = workload_stored_file(r->workload, f);
    return data_key(r->context->options->seed, (int)(stored - r->workload->file), e->number, f->color,
                    e->action->dataset, e->copy);
}

static struct file *file_handle(struct run *r, struct workload_file *f, int64_t number) {
    struct file *file = allocate(r->context, sizeof *file + PATH_MAX, "a file");
    char *path = (char *)(file + 1);
    path_of(r, f, number, path);
    *file = (struct file){.context = r->context,
                          .path = path,
                          .comm = f->comm,
                          .info = r->info[f - r->workload->file],
                          .workload = f};
    return file;
}

static const struct workload_io *io_of(const struct workload_file *f) {
    return backends[f->api].backend->workload;
}

static void open_file(struct run *r, const struct event *e) {
    struct file *file = file_handle(r, e->file, e->number);
    file->creating = e->action->verb == DO_CREATE;
    file->writing = e->action->mode != MODE_READ;
    file->reading = e->action->mode != MODE_WRITE;
    file->collective = e->file->collective;
    io_of(e->file)->open(file);
    r->open[e->file - r->workload->file][e->number] = file;
}

static noreturn void fail_different(const struct run *r, const struct file *file,
                                    const struct difference *d) {
    fail(r->context, EXIT_DIFFERENT, PLACE(file->path, "verification"),
         "at byte %" PRIu64 " of the data: expected 0x%02" PRIx64 ", found 0x%02" PRIx64 "; %" PRIu64
         " bytes differ",
         d->offset, d->expected, d->found, d->count);
}

static void verify(struct run *r, const struct event *e, const struct file *file, const struct piece *p,
                   bool fill) {
    double from = clock_now();
    struct difference d = {0};
    uint64_t key = key_of(r, e->file, e);
    if (fill)
        data_fill(key, p);
    else
        d = data_check(key, p);
    if (d.count > 0)
        fail_different(r, file, &d);
    r->results->verified_bytes += fill ? 0 : p->bytes;
    r->part[PART_VERIFY] += clock_now() - from;
}

static void move_one(struct run *r, const struct event *e, struct file *file, struct piece *p) {
    const struct options *o = r->context->options;
    if (file->writing && (o->verify || o->keep))
        verify(r, e, file, p, true);
    if (!file->writing && o->verify)
        memset(p->memory, 0, piece_memory_bytes(p));
    io_of(e->file)->move(file, p);
    if (!file->writing && o->verify && !p->is_short)
        verify(r, e, file, p, false);
}

/* To give memory back is no I/O. */
static void *next_memory(struct run *r, struct ring *ring, uint64_t bytes) {
    double from = clock_now();
    void *memory = ring_next(ring, bytes);
    if (ring->kind == MEMORY_NEW)
        r->part[PART_COMPUTE] += clock_now() - from;
    return memory;
}

static void move(struct run *r, const struct event *e) {
    const struct action *a = e->action;
    struct file *file = r->open[e->file - r->workload->file][e->number];
    struct piece p = {.bytes = (uint64_t)e->size,
                      .dataset = a->dataset,
                      .copy = e->copy,
                      .part = e->part,
                      .part_n = e->part_n,
                      .ndims = e->ndims,
                      .element = e->element,
                      .dims = e->dims,
                      .start = e->start,
                      .extent = e->extent,
                      .is_short = a->is_short,
                      .halo = workload_has_halo(r->workload, e)};
    file->writing = a->verb == DO_WRITE;
    file->collective = a->collective;
    if (e->ndims > 0)
        p.bytes = e->element;
    for (int d = 0; d < e->ndims; d++)
        p.bytes *= (uint64_t)e->extent[d];
    for (size_t i = 0; i < e->part_n; i++)
        p.bytes += (uint64_t)e->part[2 * i + 1];
    double from = clock_now(), aside = r->part[PART_VERIFY] + r->part[PART_COMPUTE];
    for (int64_t i = 0; i < e->count; i++) {
        p.memory = next_memory(r, file->writing ? &r->writing : &r->reading, piece_memory_bytes(&p));
        p.offset = (uint64_t)(e->offset + i * e->stride);
        move_one(r, e, file, &p);
    }
    aside = r->part[PART_VERIFY] + r->part[PART_COMPUTE] - aside;
    r->part[file->writing ? PART_WRITE : PART_READ] += clock_now() - from - aside;
}

static void sleep_for(double seconds) {
    struct timespec left = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

/* Multiplications and additions that depend on each other, so that none can be left out. */
static void work_for(double operations) {
    volatile double sink;
    double value = 1;
    for (double i = 0; i < operations; i += 2)
        value = value * 0.9999999 + 1e-7;
    sink = value;
    (void)sink;
}

static void metadata(struct run *r, const struct event *e) {
    char path[PATH_MAX];
    struct stat status;
    path_of(r, e->file, e->number, path);
    if (e->action->verb == DO_STAT)
        CHECK_POSIX(r->context, path, "stat", stat(path, &status) == 0);
    else
        CHECK_POSIX(r->context, path, "unlink", unlink(path) == 0);
}

static void close_file(struct run *r, const struct event *e) {
    struct file **file = &r->open[e->file - r->workload->file][e->number];
    (*file)->writing = true;
    io_of(e->file)->close(*file);
    free(*file);
    *file = NULL;
}

static enum part part_of(enum verb verb) {
    switch (verb) {
    case DO_CREATE:
    case DO_OPEN:
        return PART_OPEN;
    case DO_FLUSH:
        return PART_SYNC;
    case DO_CLOSE:
        return PART_CLOSE;
    case DO_STAT:
    case DO_REMOVE:
        return PART_METADATA;
    case DO_BARRIER:
        return PART_BARRIER;
    default:
        return PART_COMPUTE;
    }
}

static void barrier(const struct run *r) {
    CHECK_MPI(r->context, "", "MPI_Barrier", MPI_Barrier(r->context->world));
}

static bool run_event(struct walker *w, const struct event *e) {
    struct run *r = w->state;
    enum verb verb = e->action->verb;
    if (verb == DO_WRITE || verb == DO_READ) {
        move(r, e);
        return true;
    }
    double from = clock_now();
    if (verb == DO_CREATE || verb == DO_OPEN)
        open_file(r, e);
    else if (verb == DO_CLOSE)
        close_file(r, e);
    else if (verb == DO_FLUSH)
        io_of(e->file)->sync(r->open[e->file - r->workload->file][e->number]);
    else if (verb == DO_STAT || verb == DO_REMOVE)
        metadata(r, e);
    else if (verb == DO_BARRIER)
        barrier(r);
    else if (verb == DO_COMPUTE)
        sleep_for(e->amount);
    else
        work_for(e->amount);
    r->part[part_of(verb)] += clock_now() - from;
    return true;
}

/* Of one rank in one phase; sent to rank 0 as doubles. */
struct times {
    double start, end, part[PART_N];
};

static void spread_of(const struct times *all, int size, int part, struct spread *spread) {
    double sum = 0;
    *spread = (struct spread){.min = all[0].part[part], .max = all[0].part[part]};
    for (int rank = 0; rank < size; rank++) {
        double value = all[rank].part[part];
        sum += value;
        spread->min = value < spread->min ? value : spread->min;
        if (value > spread->max)
            spread->max = value, spread->slowest = rank;
    }
    spread->mean = sum / size;
}

static void summarise(const struct times *all, int size, struct phase_time *t) {
    double start = all[0].start, end = all[0].end;
    for (int rank = 0; rank < size; rank++) {
        start = all[rank].start < start ? all[rank].start : start;
        end = all[rank].end > end ? all[rank].end : end;
    }
    t->seconds = end - start;
    for (int rank = 0; rank < size; rank++) {
        double io = all[rank].end - start - all[rank].part[PART_COMPUTE] - all[rank].part[PART_VERIFY];
        t->io_seconds = io > t->io_seconds ? io : t->io_seconds;
    }
    for (int part = 0; part < PART_N; part++)
        spread_of(all, size, part, &t->part[part]);
}

static void gather(struct run *r, struct times times, struct phase_time *t) {
    const struct context *c = r->context;
    struct times *all = c->rank == 0 ? allocate(c, (size_t)c->size * sizeof *all, "results") : NULL;
    int n = (int)(sizeof times / sizeof(double));
    memcpy(times.part, r->part, sizeof times.part);
    CHECK_MPI(c, "", "MPI_Gather", MPI_Gather(&times, n, MPI_DOUBLE, all, n, MPI_DOUBLE, 0, c->world));
    if (c->rank == 0)
        summarise(all, c->size, t);
    free(all);
}

/* Does this rank stand for the file on its node, or in all? */
static bool first_on_node(const struct run *r, const struct workload_file *f, bool in_all) {
    if (!f->member || in_all)
        return f->member && f->comm_rank == 0;
    MPI_Group world, group;
    MPI_Comm_group(r->context->world, &world);
    MPI_Comm_group(f->comm, &group);
    bool first = true;
    for (int k = 0, other; k < f->comm_rank && first; k++) {
        MPI_Group_translate_ranks(group, 1, &k, world, &other);
        first = r->placement->node_of[other] != r->placement->node;
    }
    MPI_Group_free(&world);
    MPI_Group_free(&group);
    return first;
}

/* Drop the files from the page cache, or only ask how much of them is there; the largest share. */
static double cached(struct run *r, bool drop) {
    const struct context *c = r->context;
    char path[PATH_MAX];
    double most = -1;
    for (int i = 0; i < r->workload->file_n; i++) {
        const struct workload_file *f = &r->workload->file[i];
        bool first = f->same_as < 0 && first_on_node(r, f, false);
        for (int64_t number = 0; first && number < f->copies; number++) {
            path_of(r, f, number, path);
            int status = drop ? cache_drop(path) : 0;
            if (status != 0 && status != ENOENT)
                fail(c, EXIT_BROKEN, PLACE(path, "dropping the page cache"), "%s", strerror(status));
            double share = drop ? -1 : cache_resident(path);
            most = share > most ? share : most;
        }
    }
    CHECK_MPI(c, "", "MPI_Allreduce", MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, c->world));
    return most;
}

static double prepare_cache(struct run *r, const struct phase_of_workload *p) {
    bool drop = r->context->options->cache != CACHE_KEEP;
    if (p->bytes_read == 0)
        return -1;
    if (drop)
        cached(r, true);
    double resident = cached(r, false);
    if (drop && resident > MOSTLY_DROPPED)
        r->results->cache_achieved = cache_names[CACHE_KEEP];
    return resident;
}

static void run_phase(struct run *r, const struct phase_of_workload *p, struct phase_time *t) {
    struct walker walker = {
        .workload = r->workload, .scope = r->workload->scope, .visit = run_event, .state = r};
    char message[64] = "";
    walker.complaint = (struct complaint){r->workload->path, message, sizeof message};
    *t = (struct phase_time){.resident = prepare_cache(r, p)};
    memset(r->part, 0, sizeof r->part);
    watchdog_start(r->context, "phase", p->name);
    barrier(r);
    t->started = utc_now();
    struct times times = {.start = clock_now() + r->offset};
    bool fine = walk(&walker, p->action, p->n);
    times.end = clock_now() + r->offset;
    barrier(r);
    watchdog_stop();
    if (!fine)
        fail(r->context, EXIT_BROKEN, PLACE("", "phase"), "%s", message);
    gather(r, times, t);
}

/* What an earlier repetition left, except what the description takes as given. */
static void remove_files(struct run *r) {
    char path[PATH_MAX];
    for (int i = 0; i < r->workload->file_n; i++) {
        const struct workload_file *f = &r->workload->file[i];
        bool mine = f->member && f->comm_rank == 0 && !workload_stored_file(r->workload, f)->is_input;
        for (int64_t number = 0; mine && number < f->copies; number++) {
            path_of(r, f, number, path);
            CHECK_POSIX(r->context, path, "unlink", unlink(path) == 0 || errno == ENOENT);
        }
    }
    barrier(r);
}

/* A file of bytes that exists before the first phase, written by its first rank. */
static void write_input(struct run *r, struct workload_file *f, int64_t number) {
    char path[PATH_MAX];
    path_of(r, f, number, path);
    if (f->comm_rank != 0)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    CHECK_POSIX(r->context, path, "create", fd >= 0);
    uint64_t key = data_key(r->context->options->seed, (int)(f - r->workload->file), number, f->color, -1, 0);
    for (uint64_t at = 0; at < (uint64_t)f->limit;) {
        uint64_t left = (uint64_t)f->limit - at, n = left < r->memory_bytes ? left : r->memory_bytes;
        generator_fill_bytes(key, at, n, r->memory);
        ssize_t done = pwrite(fd, r->memory, n, (off_t)at);
        CHECK_POSIX(r->context, path, "write", done > 0);
        at += (uint64_t)done;
    }
    CHECK_POSIX(r->context, path, "close", close(fd) == 0);
}

/* A data set: each rank writes its share of the slowest dimension, all the same number of times. */
static void write_input_set(struct run *r, struct file *file, int dataset, int64_t copy, int64_t number) {
    struct workload_file *f = &r->workload->file[file->workload - r->workload->file];
    const struct dataset *d = &f->dataset[dataset];
    uint64_t row = d->bytes / (uint64_t)d->dims[0];
    int64_t rows = (int64_t)(r->memory_bytes / row), ranks = f->comm_ranks;
    int64_t share = (d->dims[0] + ranks - 1) / ranks, from = share * f->comm_rank;
    int64_t start[WORKLOAD_DIMENSIONS] = {0}, extent[WORKLOAD_DIMENSIONS];
    memcpy(extent, d->dims, sizeof extent);
    uint64_t key =
        data_key(r->context->options->seed, (int)(f - r->workload->file), number, f->color, dataset, copy);
    for (int64_t done = 0; done < share; done += rows) {
        int64_t left = share - done < d->dims[0] - from - done ? share - done : d->dims[0] - from - done;
        start[0] = left > 0 ? from + done : 0;
        extent[0] = left < 0 ? 0 : left < rows ? left : rows;
        struct piece p = {.memory = r->memory,
                          .bytes = row * (uint64_t)extent[0],
                          .dataset = dataset,
                          .copy = copy,
                          .ndims = d->ndims,
                          .element = element_bytes[d->type],
                          .dims = d->dims,
                          .start = start,
                          .extent = extent};
        data_fill(key, &p);
        io_of(f)->move(file, &p);
    }
}

static void write_input_sets(struct run *r, struct workload_file *f, int64_t number) {
    struct file *file = file_handle(r, f, number);
    file->creating = file->writing = true;
    file->collective = !f->moves || f->collective;
    io_of(f)->open(file);
    for (int i = 0; i < f->dataset_n; i++)
        for (int64_t copy = 0; copy < f->dataset[i].copies; copy++)
            write_input_set(r, file, i, copy, number);
    io_of(f)->close(file);
    free(file);
}

/* Make the files that are given and not there (or no longer). */
static void prepare_input(struct run *r) {
    char path[PATH_MAX];
    for (int i = 0; i < r->workload->file_n; i++) {
        struct workload_file *f = &r->workload->file[i];
        for (int64_t number = 0; f->member && f->is_input && number < f->copies; number++) {
            path_of(r, f, number, path);
            int exists = f->comm_rank == 0 && access(path, F_OK) == 0;
            CHECK_MPI(r->context, path, "MPI_Bcast", MPI_Bcast(&exists, 1, MPI_INT, 0, f->comm));
            if (!exists && f->dataset_n > 0)
                write_input_sets(r, f, number);
            else if (!exists)
                write_input(r, f, number);
        }
    }
    barrier(r);
}

static void progress(const struct run *r, const struct phase_time *t, double *last) {
    const struct options *o = r->context->options;
    size_t n = r->results->report->n;
    double seconds = 0;
    if (r->context->rank != 0 || o->quiet || clock_now() - *last < 1)
        return;
    for (int i = 0; i < r->workload->phase_n; i++)
        seconds += t[i].seconds;
    double left = n < o->repeat ? seconds * (double)(o->repeat - n) : 0;
    fprintf(stderr, "benchio: %s %zu of %" PRIu64 ": %.4g s, about %.0f s left\n", r->workload->name, n,
            o->repeat, seconds, left);
    *last = clock_now();
}

static void repetition(struct run *r, double *last) {
    struct workload_report *report = r->results->report;
    size_t phases = (size_t)r->workload->phase_n;
    size_t bytes = (report->n + 1) * phases * sizeof *report->time;
    report->time = reallocate(r->context, report->time, bytes, "results");
    struct phase_time *t = &report->time[report->n * phases];
    r->offset = clock_offset(r->context, r->placement);
    remove_files(r);
    prepare_input(r);
    ring_begin(&r->reading);
    for (size_t i = 0; i < phases; i++)
        run_phase(r, &r->workload->phase[i], &t[i]);
    report->n++;
    progress(r, t, last);
}

static bool enough(const struct run *r, double begun) {
    const struct options *o = r->context->options;
    int finished = r->results->report->n >= o->repeat && clock_now() - begun >= o->min_time;
    CHECK_MPI(r->context, "", "MPI_Bcast", MPI_Bcast(&finished, 1, MPI_INT, 0, r->context->world));
    return finished;
}

/* The hints of the options, and those of the file. */
static MPI_Info info_of(const struct run *r, const struct workload_file *f) {
    MPI_Info info = backends[f->api].backend->has_hints ? measure_info(r->context) : MPI_INFO_NULL;
    for (size_t i = 0; f->hints != NULL && i < f->hints->n; i++) {
        const struct tree *hint = f->hints->item[i];
        const struct scope *constants = &r->workload->constants;
        const char *value = hint->text;
        if (value[0] == '$')
            value = r->workload->text[scope_find(constants, value + 1, strlen(value + 1))];
        if (info == MPI_INFO_NULL)
            CHECK_MPI(r->context, hint->key, "MPI_Info_create", MPI_Info_create(&info));
        CHECK_MPI(r->context, hint->key, "MPI_Info_set", MPI_Info_set(info, hint->key, value));
    }
    return info;
}

/* Refuse before the first byte what cannot fit. */
static void check_space(const struct run *r) {
    const struct context *c = r->context;
    const struct filesystem *fs = &r->results->filesystem;
    struct rlimit limit;
    for (int i = 0; i < r->workload->file_n; i++) {
        const struct workload_file *f = &r->workload->file[i];
        uint64_t bytes = (uint64_t)f->limit;
        for (int k = 0; k < f->dataset_n; k++)
            bytes += f->dataset[k].bytes * (uint64_t)f->dataset[k].copies;
        if (f->member && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
            limit.rlim_cur < bytes)
            fail(c, EXIT_BROKEN, PLACE(f->name, "checking the limit of file sizes"),
                 "%" PRIu64 " bytes are needed, %llu are allowed (ulimit -f)", bytes,
                 (unsigned long long)limit.rlim_cur);
    }
    if (c->rank == 0 && fs->free_bytes < r->workload->needed_bytes)
        fail(c, EXIT_BROKEN, PLACE(c->directory, "checking free space"),
             "%" PRIu64 " bytes are needed, %" PRIu64 " are free (%s)", r->workload->needed_bytes,
             fs->free_bytes, fs->type);
    barrier(r);
}

/* Memory for everything, filled once: what is in it matters only where it is verified. New memory is not
 * filled. */
static void prepare(struct run *r) {
    struct workload *w = r->workload;
    const struct context *c = r->context;
    r->memory_bytes = w->piece_bytes > RING_BYTES ? w->piece_bytes : RING_BYTES;
    r->open = allocate(c, (size_t)w->file_n * sizeof *r->open, "files");
    r->info = allocate(c, (size_t)w->file_n * sizeof *r->info, "files");
    for (int i = 0; i < w->file_n; i++) {
        struct workload_file *f = &w->file[i];
        r->open[i] = allocate(c, (size_t)f->copies * sizeof **r->open, "files");
        r->info[i] = info_of(r, f);
        for (int k = 0; k < f->dataset_n && f->is_input; k++) {
            uint64_t row = f->dataset[k].bytes / (uint64_t)f->dataset[k].dims[0];
            r->memory_bytes = row > r->memory_bytes ? row : r->memory_bytes;
        }
    }
    r->memory = allocate(c, r->memory_bytes, "the buffer");
    generator_fill_bytes(1, 0, r->memory_bytes, r->memory);
    r->reading = r->writing =
        (struct ring){.memory = r->memory, .bytes = r->memory_bytes, .kind = w->write_memory};
    r->reading.kind = w->read_memory;
    if (w->read_memory == MEMORY_KEPT)
        r->reading.bytes = w->piece_bytes > w->kept_bytes ? w->piece_bytes : w->kept_bytes;
    if (w->read_memory == MEMORY_NEW || w->read_memory == MEMORY_KEPT)
        r->reading.memory = ring_map(c, r->reading.bytes);
}

static uint64_t total(const struct context *c, uint64_t value, MPI_Op operation) {
    CHECK_MPI(c, "", "MPI_Allreduce",
              MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, operation, c->world));
    return value;
}

static void finish(struct run *r) {
    struct rusage usage;
    struct results *results = r->results;
    getrusage(RUSAGE_SELF, &usage);
    uint64_t bytes = r->memory_bytes + (r->reading.memory != r->memory ? r->reading.bytes : 0);
    results->array_bytes = total(r->context, bytes, MPI_MAX);
    results->peak_bytes = total(r->context, (uint64_t)usage.ru_maxrss * 1024, MPI_MAX);
    results->verified_bytes = total(r->context, results->verified_bytes, MPI_SUM);
    results->finished = utc_now();
    for (int i = 0; i < r->workload->file_n; i++) {
        free(r->open[i]);
        if (r->info[i] != MPI_INFO_NULL)
            MPI_Info_free(&r->info[i]);
    }
    free(r->open);
    free(r->info);
    if (r->reading.memory != r->memory)
        munmap(r->reading.memory, r->reading.bytes);
    free(r->memory);
}

void workload_run(struct workload *w, const struct context *c, const struct placement *p,
                  struct results *results) {
    struct run r = {.context = c, .placement = p, .workload = w, .results = results};
    *results = (struct results){.workload = w};
    results->report = allocate(c, sizeof *results->report, "results");
    results->cache_achieved = cache_names[c->options->cache];
    filesystem_find(c->directory, &results->filesystem);
    check_space(&r);
    prepare(&r);
    for (int i = 0; i < w->phase_n; i++)
        results->bytes += w->phase[i].bytes_read + w->phase[i].bytes_written;
    double begun = clock_now(), last = begun;
    while (!enough(&r, begun))
        repetition(&r, &last);
    finish(&r);
}

void workload_report_free(struct workload_report *report) {
    if (report != NULL)
        free(report->time);
    free(report);
}
