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
};
