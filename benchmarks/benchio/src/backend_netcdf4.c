/* NetCDF-4 (parallel HDF5 underneath): one variable `data` in one file. Memory must be contiguous: blocks are
 * packed. */
#include "backend.h"

#include <netcdf.h>
#include <netcdf_meta.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "workload.h"

/* Of releases that do not define them */
#ifndef NC_HAS_SZIP_WRITE
#define NC_HAS_SZIP_WRITE 0
#endif
#ifndef NC_HAS_ZSTD
#define NC_HAS_ZSTD 0
#endif
#ifndef NC_HAS_PAR_FILTERS
#define NC_HAS_PAR_FILTERS 0
#endif
#if NC_HAS_ZSTD
#include <netcdf_filter.h>
#endif

struct state {
    int file, variable;
};

#define CHECK_NETCDF(f, operation, call)                                                                     \
    do {                                                                                                     \
        int status_ = (call);                                                                                \
        if (status_ != NC_NOERR)                                                                             \
            fail((f)->context, EXIT_BROKEN, PLACE((f)->path, (operation)), "%s", nc_strerror(status_));      \
    } while (0)

static void version(char *text, size_t n) {
    snprintf(text, n, "netCDF %.*s", (int)strcspn(nc_inq_libvers(), " "), nc_inq_libvers());
}

static const char *refuse(const struct options *o) {
    if (o->filter != FILTER_NONE && !NC_HAS_PAR_FILTERS)
        return "--filter: this netcdf-c has no filters in parallel (they came with 4.7.4, on HDF5 1.10.3)";
    if ((o->filter == FILTER_SZIP && !NC_HAS_SZIP_WRITE) || (o->filter == FILTER_ZSTD && !NC_HAS_ZSTD))
        return "--filter: this netcdf-c was built without it";
#ifndef BENCHIO_NC_ALIGNMENT
    if (o->align > 0)
        return "--align: this netcdf-c has no nc_set_alignment (it came with 4.9.0)";
#endif
    return o->align > INT32_MAX ? "--align: nc_set_alignment takes at most 2^31 - 1 bytes" : NULL;
}

static size_t buffer_bytes(const struct options *o, const struct geometry *g) {
    (void)o;
    return g->pattern == PATTERN_BLOCK3D ? (size_t)(g->planes * g->count[1] * g->count[2] * g->element) : 0;
}

static void set_filter(const struct file *f) {
    const struct state *s = f->state;
    const struct options *o = f->context->options;
    int level = (int)o->filter_level;
    if (o->filter == FILTER_DEFLATE)
        CHECK_NETCDF(f, "nc_def_var_deflate",
                     nc_def_var_deflate(s->file, s->variable, 0, 1, level > 0 ? level : 4));
#if NC_HAS_SZIP_WRITE
    if (o->filter == FILTER_SZIP)
        CHECK_NETCDF(f, "nc_def_var_szip", nc_def_var_szip(s->file, s->variable, 32, 32)); /* NN; pixels */
#endif
#if NC_HAS_ZSTD
    if (o->filter == FILTER_ZSTD)
        CHECK_NETCDF(f, "nc_def_var_zstandard",
                     nc_def_var_zstandard(s->file, s->variable, level > 0 ? level : 3));
#endif
}

static void define(struct file *f) {
    struct state *s = f->state;
    const struct geometry *g = f->geometry;
    const struct options *o = f->context->options;
    static const char *const names[3][3] = {{"x", "", ""}, {"y", "x", ""}, {"z", "y", "x"}};
    int dimension[3];
    size_t chunk[3] = {g->chunk[0], g->chunk[1], g->chunk[2]};
    for (int d = 0; d < g->ndims; d++)
        CHECK_NETCDF(f, "nc_def_dim",
                     nc_def_dim(s->file, names[g->ndims - 1][d],
                                d == 0 && o->unlimited ? NC_UNLIMITED : g->dims[d], &dimension[d]));
    CHECK_NETCDF(f, "nc_def_var",
                 nc_def_var(s->file, "data", g->element == 1 ? NC_UBYTE : NC_DOUBLE, g->ndims, dimension,
                            &s->variable));
    if (o->byte_order == BYTE_ORDER_BIG)
        CHECK_NETCDF(f, "nc_def_var_endian", nc_def_var_endian(s->file, s->variable, NC_ENDIAN_BIG));
    CHECK_NETCDF(f, "nc_def_var_chunking",
                 nc_def_var_chunking(s->file, s->variable, chunk[0] > 0 ? NC_CHUNKED : NC_CONTIGUOUS,
                                     chunk[0] > 0 ? chunk : NULL));
    set_filter(f);
    CHECK_NETCDF(f, "nc_def_var_fill",
                 nc_def_var_fill(s->file, s->variable, o->fill ? NC_FILL : NC_NOFILL, NULL));
    CHECK_NETCDF(f, "nc_enddef", nc_enddef(s->file));
}

static void open_file(struct file *f) {
    struct state *s = f->state = allocate(f->context, sizeof *s, "netCDF state");
#ifdef BENCHIO_NC_ALIGNMENT
    int align = (int)f->context->options->align;
    if (align > 0)
        CHECK_NETCDF(f, "nc_set_alignment", nc_set_alignment(align, align));
#endif
    /* NC_MPIIO has no effect since 4.6.2; before, the calls refuse a mode without it. */
    if (f->writing) {
        CHECK_NETCDF(f, "nc_create_par",
                     nc_create_par(f->path, NC_NETCDF4 | NC_MPIIO | NC_CLOBBER, f->comm, f->info, &s->file));
        define(f);
    } else {
        CHECK_NETCDF(f, "nc_open_par",
                     nc_open_par(f->path, NC_MPIIO | NC_NOWRITE, f->comm, f->info, &s->file));
        CHECK_NETCDF(f, "nc_inq_varid", nc_inq_varid(s->file, "data", &s->variable));
    }
    if (f->context->options->chunk_cache > 0)
        CHECK_NETCDF(
            f, "nc_set_var_chunk_cache",
            nc_set_var_chunk_cache(s->file, s->variable, f->context->options->chunk_cache, 521, 0.75F));
    CHECK_NETCDF(f, "nc_var_par_access",
                 nc_var_par_access(s->file, s->variable, f->collective ? NC_COLLECTIVE : NC_INDEPENDENT));
    f->data_offset = UNKNOWN_OFFSET;
}

static void transfer(struct file *f, const struct slab *slab) {
    const struct state *s = f->state;
    size_t start[3], count[3];
    for (int d = 0; d < slab->ndims; d++)
        start[d] = slab->elements > 0 ? slab->start[d] : 0,
        count[d] = slab->elements > 0 ? slab->count[d] : 0;
    bool packs = slab->ndims == 3;
    void *memory = packs ? f->buffer : slab->memory;
    if (f->writing && packs)
        slab_pack(slab, 0, slab->elements, f->buffer);
    if (f->writing)
        CHECK_NETCDF(f, "nc_put_vara", nc_put_vara(s->file, s->variable, start, count, memory));
    else
        CHECK_NETCDF(f, "nc_get_vara", nc_get_vara(s->file, s->variable, start, count, memory));
    if (!f->writing && packs)
        slab_unpack(slab, 0, slab->elements, f->buffer);
}

static void sync_file(struct file *f) {
    const struct state *s = f->state;
    CHECK_NETCDF(f, "nc_sync", nc_sync(s->file));
}

static void close_file(struct file *f) {
    struct state *s = f->state;
    CHECK_NETCDF(f, "nc_close", nc_close(s->file));
    free(s);
}

/* A file of a workload. Variables have the numbers in the order of their definition. */
struct sets {
    int file;
    signed char *access; /* of each variable: NC_COLLECTIVE, NC_INDEPENDENT or -1 */
};

static const nc_type set_types[] = {NC_UBYTE, NC_INT, NC_INT64, NC_FLOAT, NC_DOUBLE};

/* Dimensions of the same length are one dimension. */
static int dimension_of(const struct file *f, int64_t length) {
    const struct sets *s = f->state;
    char name[32];
    int id;
    snprintf(name, sizeof name, "d%lld", (long long)length);
    if (nc_inq_dimid(s->file, name, &id) != NC_NOERR)
        CHECK_NETCDF(f, "nc_def_dim", nc_def_dim(s->file, name, (size_t)length, &id));
    return id;
}

static void define_one(const struct file *f, const struct dataset *d, int64_t copy) {
    const struct sets *s = f->state;
    char name[WORKLOAD_SET_NAME];
    int dimension[WORKLOAD_DIMENSIONS], id;
    size_t chunk[WORKLOAD_DIMENSIONS];
    for (int i = 0; i < d->ndims; i++)
        dimension[i] = dimension_of(f, d->dims[i]), chunk[i] = (size_t)d->chunk_dims[i];
    workload_set_name(d, copy, name);
    CHECK_NETCDF(f, "nc_def_var", nc_def_var(s->file, name, set_types[d->type], d->ndims, dimension, &id));
    CHECK_NETCDF(f, "nc_def_var_chunking",
                 nc_def_var_chunking(s->file, id, d->chunk_ndims > 0 ? NC_CHUNKED : NC_CONTIGUOUS,
                                     d->chunk_ndims > 0 ? chunk : NULL));
    CHECK_NETCDF(f, "nc_def_var_fill", nc_def_var_fill(s->file, id, d->filled ? NC_FILL : NC_NOFILL, NULL));
}

static void define_sets(const struct file *f) {
    const struct sets *s = f->state;
    const struct workload_file *w = f->workload;
    for (int i = 0; i < w->dataset_n; i++)
        for (int64_t copy = 0; copy < w->dataset[i].copies; copy++)
            define_one(f, &w->dataset[i], copy);
    if (w->attribute_bytes > 0) {
        char *text = allocate(f->context, (size_t)w->attribute_bytes, "attributes");
        memset(text, '-', (size_t)w->attribute_bytes);
        CHECK_NETCDF(f, "nc_put_att_text",
                     nc_put_att_text(s->file, NC_GLOBAL, "attributes", (size_t)w->attribute_bytes, text));
        free(text);
    }
    CHECK_NETCDF(f, "nc_enddef", nc_enddef(s->file));
}

static void open_sets(struct file *f) {
    struct sets *s = f->state = allocate(f->context, sizeof *s, "netCDF state");
    size_t n = workload_set_index(f->workload, NULL, 0);
    s->access = allocate(f->context, n, "netCDF state");
    memset(s->access, -1, n);
    if (f->creating) {
        CHECK_NETCDF(f, "nc_create_par",
                     nc_create_par(f->path, NC_NETCDF4 | NC_MPIIO | NC_CLOBBER, f->comm, f->info, &s->file));
        define_sets(f);
        return;
    }
    CHECK_NETCDF(
        f, "nc_open_par",
        nc_open_par(f->path, NC_MPIIO | (f->writing ? NC_WRITE : NC_NOWRITE), f->comm, f->info, &s->file));
}

static void move_box(struct file *f, const struct piece *p) {
    const struct sets *s = f->state;
    const struct dataset *d = &f->workload->dataset[p->dataset];
    size_t start[WORKLOAD_DIMENSIONS], count[WORKLOAD_DIMENSIONS],
        id = workload_set_index(f->workload, d, p->copy);
    int access = f->collective ? NC_COLLECTIVE : NC_INDEPENDENT;
    for (int i = 0; i < d->ndims; i++)
        start[i] = p->bytes > 0 ? (size_t)p->start[i] : 0, count[i] = p->bytes > 0 ? (size_t)p->extent[i] : 0;
    if (s->access[id] != access)
        CHECK_NETCDF(f, "nc_var_par_access", nc_var_par_access(s->file, (int)id, access));
    s->access[id] = (signed char)access;
    if (f->writing)
        CHECK_NETCDF(f, "nc_put_vara", nc_put_vara(s->file, (int)id, start, count, p->memory));
    else
        CHECK_NETCDF(f, "nc_get_vara", nc_get_vara(s->file, (int)id, start, count, p->memory));
}

static void sync_sets(struct file *f) {
    const struct sets *s = f->state;
    CHECK_NETCDF(f, "nc_sync", nc_sync(s->file));
}

static void close_sets(struct file *f) {
    struct sets *s = f->state;
    CHECK_NETCDF(f, "nc_close", nc_close(s->file));
    free(s->access);
    free(s);
}

static const struct workload_io sets_io = {
    .open = open_sets, .move = move_box, .sync = sync_sets, .close = close_sets};

const struct backend backend_netcdf4 = {
    .name = "netcdf4",
    .has_access = true,
    .has_hints = true,
    .has_layout = true,
    .has_chunks = true,
    .has_files = true,
    .version = version,
    .refuse = refuse,
    .buffer_bytes = buffer_bytes,
    .open = open_file,
    .transfer = transfer,
    .sync = sync_file,
    .close = close_file,
    .workload = &sets_io,
};
