/* One repetition: open, transfer, sync, close, and what is checked around it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "clock.h"
#include "fail.h"
#include "generator.h"
#include "scratch.h"
#include "visibility.h"
#include "watchdog.h"

struct side bench_side(const struct bench *b, bool writing) {
    const struct placement *p = b->placement;
    struct side side = {.role = writing ? &p->write : &p->read,
                        .geometry = writing ? &p->write_geometry : &p->read_geometry,
                        .comm = writing ? p->write_comm : p->read_comm};
    side.key = generator_key(b->context->options->seed, (uint64_t)side.role->file);
    scratch_path(b->context, side.role->file, b->repetition, side.path);
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
    latencies_clear(b->latencies);
    /* A transfer begins where the one before ended: one look at the clock each. */
    double begun = clock_now();
    for (uint64_t step = 0; step < s->geometry->steps; step++) {
        struct slab slab = geometry_step(s->geometry, step, b->array);
        if (stream_data && f->writing) {
            phase[PHASE_VERIFY] += step_data(b, s, &slab, true);
            begun = clock_now();
        }
        b->backend->transfer(f, &slab);
        double ended = clock_now();
        latencies_add(b->latencies, ended - begun);
        begun = ended;
        if (stream_data && !f->writing) {
            phase[PHASE_VERIFY] += step_data(b, s, &slab, false);
            begun = clock_now();
        }
        if (sync_each) {
            double from = clock_now();
            b->backend->sync(f);
            begun = clock_now();
            phase[PHASE_SYNC] += begun - from;
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
    watchdog_opening(b->context);
    b->backend->open(f);
    watchdog_opened(b->context);
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

/* Compressed data may be smaller, and subfiles are other files: of these only the library's report is known.
 */
static bool has_plain_data(const struct options *o) {
    return o->filter == FILTER_NONE && o->driver == DRIVER_MPIO;
}

/* Where the file lacks data that the library reported as written; UINT64_MAX: nowhere. */
static uint64_t lost_at(const struct bench *b, const struct file *f, const struct side *s) {
    struct stat status;
    const struct context *c = b->context;
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
    close(fd);
    bool lost =
        known ? hole < from + n : hole < (uint64_t)status.st_size && (uint64_t)status.st_blocks * 512 < n;
    return lost ? hole : UINT64_MAX;
}

/* The library reported success; the file must agree. Open MPI's MPI-IO reports success on a full disk. File
 * systems that count blocks when they reach the storage (ZFS, Lustre's servers) are asked again after a
 * flush. */
static void check_file(const struct bench *b, const struct file *f, const struct side *s) {
    const struct context *c = b->context;
    if (!b->backend->has_files || !has_plain_data(c->options))
        return;
    int suspect = s->role->rank == 0 && lost_at(b, f, s) != UINT64_MAX;
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(&suspect, 1, MPI_INT, 0, s->comm));
    if (!suspect)
        return;
    int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* what it could not write is missing below */
        close(fd);
    }
    CHECK_MPI(c, "", "MPI_Barrier", MPI_Barrier(s->comm));
    uint64_t lost = s->role->rank == 0 ? lost_at(b, f, s) : UINT64_MAX;
    if (lost != UINT64_MAX)
        fail(c, EXIT_BROKEN, PLACE(s->path, "check after writing"),
             "nothing was written at offset %" PRIu64 " although the library reported success (%" PRIu64
             " bytes free on the file system)",
             lost, b->results->filesystem.free_bytes);
}

void bench_barrier(const struct bench *b) {
    CHECK_MPI(b->context, "", "MPI_Barrier", MPI_Barrier(b->context->world));
}

static void remove_file(const struct bench *b, const struct side *s) {
    if (s->role->rank != 0 || !b->backend->has_files)
        return;
    CHECK_POSIX(b->context, s->path, "unlink", unlink(s->path) == 0 || errno == ENOENT);
    if (b->context->options->driver == DRIVER_MPIO)
        return;
    char pattern[PATH_MAX + 16]; /* H5FDsubfiling.h: FILE.subfile_INODE_1_of_2, FILE.subfile_INODE.config */
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.subfile_*", s->path);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
    globfree(&found);
}

/* Removes the files of the repetition before. Those of the next one get other names, except subfiles that are
 * kept: their configuration has the name of the file, so that it cannot be renamed. */
static void begin_repetition(struct bench *b) {
    const struct options *o = b->context->options;
    struct side side = bench_side(b, true);
    if (b->written)
        remove_file(b, &side);
    if (b->written && !(o->keep && o->driver != DRIVER_MPIO))
        b->repetition++;
    b->written = true;
}

void name_kept_files(struct bench *b) {
    struct side written = bench_side(b, true);
    b->repetition = 0;
    struct side kept = bench_side(b, true);
    if (written.role->rank == 0 && b->backend->has_files && strcmp(written.path, kept.path) != 0)
        CHECK_POSIX(b->context, written.path, "rename", rename(written.path, kept.path) == 0);
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
    if (r->hints.repeats)
        r->hints_source = "file handle of an MPI that repeats any hint, known or not";
}

/* Several nodes wrote parts of a file: each knows what it wrote itself, the one with the last part the size.
 */
static void share_sizes(struct bench *b, const struct side *s) {
    const struct context *c = b->context;
    if (b->placement->nodes == 1 || !b->backend->has_files)
        return;
    memset(b->file_sizes, 0, (size_t)b->placement->files * sizeof *b->file_sizes);
    b->file_sizes[s->role->file] = visible_size(s->path);
    CHECK_MPI(
        c, "", "MPI_Allreduce",
        MPI_Allreduce(MPI_IN_PLACE, b->file_sizes, b->placement->files, MPI_UINT64_T, MPI_MAX, c->world));
    visible_size_wait(c, s->path, b->file_sizes[s->role->file]);
}

struct times write_once(struct bench *b) {
    const struct options *o = b->context->options;
    begin_repetition(b);
    struct side side = bench_side(b, true);
    if (side.geometry->pattern == PATTERN_BLOCK3D)
        generator_fill_box(side.geometry, side.key, b->array, false);
    else
        generator_fill_bytes(side.key, 0, side.geometry->transfer, b->array);
    struct file file = file_of(b, &side, true);
    file.hints = wanted_hints(b);
    watchdog_start(b->context, "writing", side.path);
    bench_barrier(b);
    struct times times =
        run_file(b, &file, &side, o->verify || o->keep); /* what is kept can be checked later */
    bench_barrier(b);
    watchdog_stop();
    share_sizes(b, &side);
    check_file(b, &file, &side);
    note_hints(b, &side);
    return times;
}

/* Reads into poisoned memory, so that a read that moves nothing is seen. */
struct times read_once(struct bench *b, bool verify) {
    struct side side = bench_side(b, false);
    bool box = side.geometry->pattern == PATTERN_BLOCK3D;
    if (box)
        generator_fill_box(side.geometry, side.key, b->array, true);
    else
        memset(b->array, 0, side.geometry->transfer);
    struct file file = file_of(b, &side, false);
    file.hints = wanted_hints(b);
    if (b->written && b->backend->has_files)
        visible_size_wait(b->context, side.path, b->file_sizes[side.role->file]);
    watchdog_start(b->context, "reading", side.path);
    bench_barrier(b);
    struct times times = run_file(b, &file, &side, verify);
    bench_barrier(b);
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
