/* Before anything is written: the files of each rank, and every operation that it will do. */
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "workload_data.h"
#include "workload_walk.h"

static bool all_fine(const struct context *c, bool fine) {
    int both = fine;
    CHECK_MPI(c, "", "MPI_Allreduce", MPI_Allreduce(MPI_IN_PLACE, &both, 1, MPI_INT, MPI_LAND, c->world));
    return both;
}

/* The color of this rank in a file: ranks with the same one share it; -1: no part in it. */
static bool color_of(struct complaint *complaint, const struct workload *w, struct workload_file *f) {
    const struct scope *s = &w->scope;
    const struct workload_file *stored = workload_stored_file(w, f);
    int64_t group = stored->layout == FILE_PER_PROCESS ? s->slot[SLOT_RANK].integer
                    : stored->layout == FILE_PER_NODE  ? s->slot[SLOT_NODE].integer
                                                       : 0;
    if (!selection_has(complaint, &f->ranks, s, &f->member) ||
        !field_value(complaint, &stored->group, s, group, &group))
        return false;
    f->color = f->member ? (int)group : -1;
    return (group >= 0 && group <= INT32_MAX) ||
           complain_at(complaint, stored->group.place, "it is %lld; expected 0 or more", (long long)group);
}

static void split(const struct context *c, struct workload_file *f) {
    CHECK_MPI(c, f->name, "MPI_Comm_split",
              MPI_Comm_split(c->world, f->member ? f->color : MPI_UNDEFINED, c->rank, &f->comm));
    if (f->comm == MPI_COMM_NULL)
        return;
    MPI_Comm_set_errhandler(f->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(f->comm, &f->comm_rank);
    MPI_Comm_size(f->comm, &f->comm_ranks);
}

/* A value from `least` to `most`. */
static bool bounded(struct complaint *complaint, const struct field *f, const struct scope *s,
                    int64_t otherwise, int64_t least, int64_t most, int64_t *value) {
    if (!field_value(complaint, f, s, otherwise, value))
        return false;
    return (*value >= least && *value <= most) ||
           complain_at(complaint, f->place, "it is %lld; expected %lld to %lld", (long long)*value,
                       (long long)least, (long long)most);
}

static bool dataset_values(struct complaint *complaint, const struct scope *s, struct dataset *d) {
    d->bytes = element_bytes[d->type];
    for (int i = 0; i < d->ndims; i++) {
        if (!bounded(complaint, &d->shape[i], s, 1, 1, INT64_MAX, &d->dims[i]))
            return false;
        if (d->chunk_ndims > 0 && !bounded(complaint, &d->chunk[i], s, 1, 1, d->dims[i], &d->chunk_dims[i]))
            return false;
        if (!size_multiply(d->bytes, (uint64_t)d->dims[i], &d->bytes))
            return complain_at(complaint, d->place, "it is larger than 2^63 bytes");
    }
    return bounded(complaint, &d->count, s, 1, 0, WORKLOAD_COUNT, &d->copies) &&
           bounded(complaint, &d->fill, s, 0, 0, 1, &d->filled);
}

static bool file_values(struct complaint *complaint, const struct workload *w, struct workload_file *f) {
    const struct scope *s = &w->scope;
    const struct workload_file *stored = workload_stored_file(w, f);
    for (int i = 0; i < f->dataset_n; i++)
        if (!dataset_values(complaint, s, &f->dataset[i]))
            return false;
    return bounded(complaint, &stored->count, s, 1, 0, WORKLOAD_COUNT, &f->copies) &&
           bounded(complaint, &f->bytes, s, 0, 0, INT64_MAX, &f->limit) &&
           bounded(complaint, &f->input, s, 0, 0, 1, &f->is_input) &&
           bounded(complaint, &f->attributes, s, 0, 0, 1 << 20, &f->attribute_bytes) &&
           bounded(complaint, &f->align, s, 0, 0, INT32_MAX, &f->alignment) &&
           bounded(complaint, &f->collective_metadata, s, 0, 0, 1, &f->metadata);
}

/* A digest of all that ranks with the same file must agree about. */
static uint64_t digest(uint64_t hash, int64_t value) {
    return (hash ^ (uint64_t)value) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

static uint64_t digest_of_file(const struct workload_file *f) {
    const int64_t values[] = {f->copies,          f->limit,     f->is_input,
                              f->attribute_bytes, f->alignment, f->metadata};
    uint64_t hash = 1;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        hash = digest(hash, values[i]);
    for (int i = 0; i < f->dataset_n; i++) {
        const struct dataset *d = &f->dataset[i];
        hash = digest(digest(hash, d->copies), d->filled);
        for (int k = 0; k < d->ndims; k++)
            hash = digest(digest(hash, d->dims[k]), d->chunk_ndims > 0 ? d->chunk_dims[k] : 0);
    }
    return hash;
}

static bool same_on_all(const struct context *c, const struct workload_file *f, uint64_t value) {
    uint64_t ends[2] = {value, ~value};
    if (f->comm == MPI_COMM_NULL)
        return true;
    CHECK_MPI(c, f->name, "MPI_Allreduce",
              MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_UINT64_T, MPI_MAX, f->comm));
    return ends[0] == ~ends[1];
}

/* Bytes of all files that this rank stands for: those in which it is the first. */
static bool needed(struct complaint *complaint, const struct workload_file *f, uint64_t *bytes) {
    uint64_t one = (uint64_t)f->limit + (uint64_t)f->attribute_bytes, sum;
    for (int i = 0; i < f->dataset_n; i++) {
        if (!size_multiply(f->dataset[i].bytes, (uint64_t)f->dataset[i].copies, &sum) ||
            sum > INT64_MAX - one)
            return complain_at(complaint, f->place, "a file is larger than 2^63 bytes");
        one += sum;
    }
    if (!size_multiply(one, (uint64_t)f->copies, &sum) || sum > INT64_MAX - *bytes)
        return complain_at(complaint, f->place, "its files are larger than 2^63 bytes together");
    *bytes += f->comm_rank == 0 ? sum : 0;
    return true;
}

bool workload_resolve(struct workload *w, const struct context *c, char *message, size_t n) {
    struct complaint complaint = {w->path, message, n};
    bool fine = true;
    for (int i = 0; i < w->file_n && fine; i++)
        fine = color_of(&complaint, w, &w->file[i]);
    if (!all_fine(c, fine))
        return false;
    for (int i = 0; i < w->file_n; i++) {
        struct workload_file *f = &w->file[i];
        split(c, f);
        scope_set(&w->scope, SLOT_FILE_RANKS, f->comm_ranks);
        scope_set(&w->scope, SLOT_FILE_RANK, f->comm_rank);
        if (fine && f->member)
            fine = file_values(&complaint, w, f);
        if (!same_on_all(c, f, fine ? digest_of_file(f) : 0) && fine)
            fine = complain_at(&complaint, f->place, "ranks that share the file have other values for it");
        if (fine && f->member && f->same_as < 0)
            fine = needed(&complaint, f, &w->needed_bytes);
        w->files += f->member && f->same_as < 0 && f->comm_rank == 0 ? (uint64_t)f->copies : 0;
    }
    double sum = (double)w->needed_bytes;
    CHECK_MPI(c, "", "MPI_Allreduce", MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, c->world));
    if (fine && sum > (double)INT64_MAX)
        fine = complain_at(&complaint, w->tree, "all files together are larger than 2^63 bytes");
    uint64_t totals[2] = {w->needed_bytes, w->files};
    CHECK_MPI(c, "", "MPI_Allreduce",
              MPI_Allreduce(MPI_IN_PLACE, totals, 2, MPI_UINT64_T, MPI_SUM, c->world));
    w->needed_bytes = totals[0];
    w->files = totals[1];
    return all_fine(c, fine);
}

/* Of one file (one number of it), as the walk finds it. */
enum { IS_READ = 1, IS_WRITTEN = 2, WAS_MADE = 4, WAS_WANTED = 8 };

struct state {
    unsigned char **file; /* of each file: one byte per number */
    uint64_t *calls;      /* of each file: digest of collective calls */
    uint64_t world;       /* calls that all ranks make */
    const struct context *context;
    struct phase_of_workload *phase;
};

static bool wrong_state(struct walker *w, const struct event *e, const char *words) {
    return complain_at(&w->complaint, e->action->place, "'%s' number %lld %s", e->file->name,
                       (long long)e->number, words);
}

static bool check_open(struct walker *w, const struct event *e, unsigned char *state) {
    bool creates = e->action->verb == DO_CREATE;
    if ((*state & (IS_READ | IS_WRITTEN)) != 0)
        return wrong_state(w, e, "is open already");
    *state |= (e->action->mode != MODE_WRITE ? IS_READ : 0) |
              (e->action->mode != MODE_READ ? IS_WRITTEN : 0) | (creates ? WAS_MADE : WAS_WANTED);
    return true;
}

/* The first and the last of `count` operations. */
static bool check_bytes(struct walker *w, const struct event *e) {
    const struct action *a = e->action;
    int64_t last = 0, end = 0;
    if (e->size < 0 || (uint64_t)e->size > WORKLOAD_PIECE_BYTES || e->count < 0)
        return complain_at(
            &w->complaint, a->place,
            "size is %lld and count %lld; expected 0 or more, and at most 2 GiB - 1 in one operation",
            (long long)e->size, (long long)e->count);
    if (e->count > 0 && (__builtin_mul_overflow(e->count - 1, e->stride, &last) ||
                         __builtin_add_overflow(last, e->offset, &last)))
        return complain_at(&w->complaint, a->place, "the offsets do not fit 64 bits");
    int64_t low = last < e->offset && e->count > 0 ? last : e->offset,
            high = last > e->offset ? last : e->offset;
    if (low < 0 || __builtin_add_overflow(high, e->size, &end) || (e->count > 0 && end > e->file->limit))
        return complain_at(&w->complaint, a->place,
                           "offset %lld with %lld bytes is outside of the file, which has %lld bytes",
                           (long long)(low < 0 ? low : high), (long long)e->size, (long long)e->file->limit);
    return true;
}

/* The parts of a file view are in the order of the file, and together one operation. */
static bool check_parts(struct walker *w, const struct event *e, uint64_t *bytes) {
    int64_t end = 0;
    *bytes = 0;
    for (size_t i = 0; i < e->part_n; i++) {
        struct event part = {.action = e->action, .file = e->file, .offset = e->part[2 * i], .count = 1};
        part.size = e->part[2 * i + 1];
        if (!check_bytes(w, &part))
            return false;
        if (part.offset < end)
            return complain_at(&w->complaint, e->action->place,
                               "offset %lld of a view is before the end of the part before it, %lld",
                               (long long)part.offset, (long long)end);
        end = part.offset + part.size;
        *bytes += (uint64_t)part.size;
    }
    return *bytes <= WORKLOAD_PIECE_BYTES ||
           complain_at(&w->complaint, e->action->place, "more than 2 GiB - 1 bytes in one operation");
}

static bool check_copy(struct walker *w, const struct event *e) {
    int64_t copies = e->file->dataset[e->action->dataset].copies;
    return (e->copy >= 0 && e->copy < copies) ||
           complain_at(&w->complaint, e->action->place, "dataset_number is %lld, there are %lld",
                       (long long)e->copy, (long long)copies);
}

/* An array of bytes, whose dimensions MPI has as int. */
static bool check_array(struct walker *w, const struct event *e) {
    uint64_t bytes = 1;
    bool fits = true;
    for (int i = 0; i < e->ndims; i++) {
        if (e->dims[i] < 1 || e->dims[i] > INT32_MAX)
            return complain_at(&w->complaint, e->action->shape[i].place, "it is %lld; expected 1 to %d",
                               (long long)e->dims[i], INT32_MAX);
        fits = fits && size_multiply(bytes, (uint64_t)e->dims[i], &bytes);
    }
    return (fits && e->offset >= 0 && e->offset <= e->file->limit &&
            bytes <= (uint64_t)(e->file->limit - e->offset)) ||
           complain_at(&w->complaint, e->action->place,
                       "offset %lld with the array is outside of the file, which has %lld bytes",
                       (long long)e->offset, (long long)e->file->limit);
}

static bool check_box(struct walker *w, const struct event *e, uint64_t *bytes) {
    const struct action *a = e->action;
    if (a->dataset < 0 ? !check_array(w, e) : !check_copy(w, e))
        return false;
    *bytes = e->element;
    for (int i = 0; i < e->ndims; i++) {
        bool inside = e->start[i] >= 0 && e->extent[i] >= 0 && e->start[i] <= e->dims[i] &&
                      e->extent[i] <= e->dims[i] - e->start[i];
        if (!inside)
            return complain_at(&w->complaint, a->start[i].place,
                               "%lld elements from %lld on are outside of the dimension, which has %lld",
                               (long long)e->extent[i], (long long)e->start[i], (long long)e->dims[i]);
        if (!size_multiply(*bytes, (uint64_t)e->extent[i], bytes))
            *bytes = UINT64_MAX;
    }
    return *bytes <= WORKLOAD_PIECE_BYTES ||
           complain_at(&w->complaint, a->place, "more than 2 GiB - 1 bytes in one operation");
}

/* The memory of an operation of so many bytes. */
static bool check_memory(struct walker *w, const struct event *e, uint64_t bytes) {
    struct piece piece = {.bytes = bytes,
                          .ndims = e->ndims,
                          .element = e->element,
                          .extent = e->extent,
                          .halo = workload_has_halo(w->workload, e)};
    bytes = piece_memory_bytes(&piece);
    w->workload->piece_bytes = bytes > w->workload->piece_bytes ? bytes : w->workload->piece_bytes;
    return bytes <= WORKLOAD_PIECE_BYTES ||
           complain_at(&w->complaint, e->action->place,
                       "more than 2 GiB - 1 bytes of memory in one operation, with the halo");
}

static bool check_transfer(struct walker *w, const struct event *e, unsigned char state) {
    struct state *s = w->state;
    bool writes = e->action->verb == DO_WRITE;
    uint64_t bytes = (uint64_t)e->size, count = (uint64_t)e->count;
    if ((state & (writes ? IS_WRITTEN : IS_READ)) == 0)
        return wrong_state(w, e, writes ? "is not open for writing" : "is not open for reading");
    if (e->part_n > 0  ? !check_parts(w, e, &bytes)
        : e->ndims > 0 ? !check_box(w, e, &bytes)
                       : !check_bytes(w, e))
        return false;
    if (!e->action->is_short) /* how much such a read gets is not known */
        *(writes ? &s->phase->bytes_written : &s->phase->bytes_read) += bytes * count;
    s->phase->operations += count;
    return check_memory(w, e, bytes);
}

/* What all ranks of the file must do together, in the same order as what all ranks of the run do. */
static bool is_collective(const struct event *e) {
    enum verb v = e->action->verb;
    if (v == DO_WRITE || v == DO_READ)
        return e->action->collective;
    return v != DO_STAT && v != DO_REMOVE && backends[e->file->api].backend->has_access;
}

static void note_call(struct state *s, const struct walker *w, const struct event *e) {
    ptrdiff_t file = e->file - w->workload->file;
    int64_t values[] = {(int64_t)s->world, e->action->verb, e->action->dataset, e->number,
                        e->copy,           e->count,        e->ndims,           e->part_n > 0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        s->calls[file] = digest(s->calls[file], values[i]);
    if (e->file->comm_ranks == s->context->size)
        s->world = digest(s->world, file + 1);
}

static bool check_file_event(struct walker *w, const struct event *e) {
    struct state *s = w->state;
    if (e->number < 0 || e->number >= e->file->copies)
        return complain_at(&w->complaint, e->action->place, "number is %lld, there are %lld files '%s'",
                           (long long)e->number, (long long)e->file->copies, e->file->name);
    unsigned char *state = &s->file[e->file - w->workload->file][e->number];
    bool is_open = (*state & (IS_READ | IS_WRITTEN)) != 0;
    if (is_collective(e))
        note_call(s, w, e);
    switch (e->action->verb) {
    case DO_CREATE:
    case DO_OPEN:
        return check_open(w, e, state);
    case DO_WRITE:
    case DO_READ:
        return check_transfer(w, e, *state);
    case DO_FLUSH:
    case DO_CLOSE:
        if (e->action->verb == DO_CLOSE)
            *state &= (unsigned char)~(IS_READ | IS_WRITTEN);
        return is_open || wrong_state(w, e, "is not open");
    default:
        *state |= WAS_WANTED;
        return !is_open || wrong_state(w, e, "is open");
    }
}

static bool check_event(struct walker *w, const struct event *e) {
    struct state *s = w->state;
    if (e->file != NULL)
        return check_file_event(w, e);
    if (e->action->verb == DO_BARRIER)
        s->world = digest(s->world, -1);
    double most = e->action->verb == DO_COMPUTE ? 1e6 : 1e15;
    return (e->amount >= 0 && e->amount <= most) ||
           complain_at(&w->complaint, e->action->place, "it is %g; expected 0 to %g", e->amount, most);
}

/* Whether some rank made a file of this name, or it is given: through either interface, if it has two. */
static bool is_made(const struct workload *w, const struct state *s, const struct workload_file *f) {
    const struct workload_file *stored = workload_stored_file(w, f);
    int made = stored->is_input != 0;
    for (int i = 0; i < w->file_n; i++)
        for (int64_t k = 0; workload_stored_file(w, &w->file[i]) == stored && k < w->file[i].copies; k++)
            made = made || (s->file[i][k] & WAS_MADE) != 0;
    CHECK_MPI(s->context, f->name, "MPI_Allreduce",
              MPI_Allreduce(MPI_IN_PLACE, &made, 1, MPI_INT, MPI_LOR, s->context->world));
    return made;
}

static bool has_two_interfaces(const struct workload *w, int file) {
    bool has = w->file[file].same_as >= 0;
    for (int i = 0; i < w->file_n; i++)
        has = has || w->file[i].same_as == file;
    return has;
}

/* After all phases: what was opened was made by somebody, and nothing is open. */
static bool check_end(struct complaint *complaint, const struct state *s, struct workload_file *f,
                      size_t file, bool was_made) {
    unsigned char *made = s->file[file];
    int64_t open = -1, missing = -1;
    for (int64_t i = 0; i < f->copies; i++)
        open = (made[i] & (IS_READ | IS_WRITTEN)) != 0 ? i : open;
    unsigned char *all = allocate(s->context, (size_t)f->copies, "the check");
    CHECK_MPI(s->context, f->name, "MPI_Allreduce",
              MPI_Allreduce(made, all, (int)f->copies, MPI_UNSIGNED_CHAR, MPI_BOR, f->comm));
    for (int64_t i = 0; i < f->copies; i++)
        missing = (made[i] & WAS_WANTED) != 0 && (all[i] & WAS_MADE) == 0 && !was_made ? i : missing;
    free(all);
    if (open >= 0)
        return complain_at(complaint, f->place, "number %lld is open at the end: 'close' is missing",
                           (long long)open);
    return missing < 0 ||
           complain_at(complaint, f->place,
                       "number %lld is opened and never created: 'create' or 'input: true' is missing",
                       (long long)missing);
}

static bool check_phases(struct walker *w, struct state *s) {
    bool fine = true;
    for (int i = 0; i < w->workload->phase_n && fine; i++) {
        s->phase = &w->workload->phase[i];
        s->world = digest(s->world, -2);
        fine = walk(w, s->phase->action, s->phase->n);
    }
    return fine;
}

static bool check_files(struct walker *w, struct state *s) {
    bool fine = true;
    for (int i = 0; i < w->workload->file_n; i++) {
        struct workload_file *f = &w->workload->file[i];
        if (!same_on_all(s->context, f, s->calls[i]) && fine)
            fine =
                complain_at(&w->complaint, f->place,
                            "its ranks make other collective calls, or in another order: each of them must "
                            "make all (create, open, flush and close are collective, too, but for posix)");
        bool was_made = has_two_interfaces(w->workload, i) ? is_made(w->workload, s, f) : f->is_input != 0;
        if (f->comm != MPI_COMM_NULL && !check_end(&w->complaint, s, f, (size_t)i, was_made))
            fine = false;
    }
    uint64_t ends[2] = {s->world, ~s->world};
    CHECK_MPI(s->context, "", "MPI_Allreduce",
              MPI_Allreduce(MPI_IN_PLACE, ends, 2, MPI_UINT64_T, MPI_MAX, s->context->world));
    if (fine && ends[0] != ~ends[1])
        fine = complain_at(&w->complaint, tree_find(w->workload->tree, "phases"),
                           "ranks make other barriers, or in another place of the order of collective calls");
    return fine;
}

static void sum_phases(struct workload *w, const struct context *c) {
    for (int i = 0; i < w->phase_n; i++) {
        struct phase_of_workload *p = &w->phase[i];
        uint64_t sums[3] = {p->bytes_read, p->bytes_written, p->operations};
        CHECK_MPI(c, "", "MPI_Allreduce",
                  MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_UINT64_T, MPI_SUM, c->world));
        p->bytes_read = sums[0], p->bytes_written = sums[1], p->operations = sums[2];
    }
}

bool workload_check(struct workload *w, const struct context *c, char *message, size_t n) {
    size_t files = (size_t)w->file_n;
    struct state s = {.context = c};
    struct walker walker = {.workload = w,
                            .scope = w->scope,
                            .complaint = {w->path, message, n},
                            .visit = check_event,
                            .state = &s};
    s.calls = allocate(c, files * sizeof *s.calls, "the check");
    s.file = allocate(c, files * sizeof *s.file, "the check");
    for (size_t i = 0; i < files; i++)
        s.file[i] = allocate(c, (size_t)w->file[i].copies, "the check");
    bool fine = all_fine(c, check_phases(&walker, &s));
    if (fine)
        fine = all_fine(c, check_files(&walker, &s));
    if (fine)
        sum_phases(w, c);
    for (size_t i = 0; i < files; i++)
        free(s.file[i]);
    free(s.file);
    free(s.calls);
    return fine;
}
