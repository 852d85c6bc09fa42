/* NetCDF-4 (parallel HDF5 underneath): one variable `data` in one file. Memory must be contiguous: blocks are
 * packed. */
#include "backend.h"

#include <netcdf.h>
#include <netcdf_meta.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <string.h>

#include "netcdf_common.h"

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

static void set_filter(const struct file *f, int variable) {
    const struct netcdf_state *s = f->state;
    const struct options *o = f->context->options;
    int level = (int)o->filter_level;
    if (o->filter == FILTER_DEFLATE)
        CHECK_NETCDF(f, "nc_def_var_deflate",
                     nc_def_var_deflate(s->file, variable, 0, 1, level > 0 ? level : 4));
#if NC_HAS_SZIP_WRITE
    if (o->filter == FILTER_SZIP)
        CHECK_NETCDF(f, "nc_def_var_szip", nc_def_var_szip(s->file, variable, 32, 32)); /* NN; pixels */
#endif
#if NC_HAS_ZSTD
    if (o->filter == FILTER_ZSTD)
        CHECK_NETCDF(f, "nc_def_var_zstandard",
                     nc_def_var_zstandard(s->file, variable, level > 0 ? level : 3));
#endif
}

/* `chunk` NULL: contiguous. */
static void set_chunks(const struct file *f, int variable, const size_t *chunk) {
    const struct netcdf_state *s = f->state;
    CHECK_NETCDF(f, "nc_def_var_chunking",
                 nc_def_var_chunking(s->file, variable, chunk != NULL ? NC_CHUNKED : NC_CONTIGUOUS, chunk));
}

static void set_fill(const struct file *f, int variable, bool filled) {
    const struct netcdf_state *s = f->state;
    CHECK_NETCDF(f, "nc_def_var_fill",
                 nc_def_var_fill(s->file, variable, filled ? NC_FILL : NC_NOFILL, NULL));
}

static void set_storage(const struct file *f, int variable) {
    const struct netcdf_state *s = f->state;
    const struct geometry *g = f->geometry;
    const struct options *o = f->context->options;
    const size_t chunk[3] = {g->chunk[0], g->chunk[1], g->chunk[2]};
    if (o->byte_order == BYTE_ORDER_BIG)
        CHECK_NETCDF(f, "nc_def_var_endian", nc_def_var_endian(s->file, variable, NC_ENDIAN_BIG));
    set_chunks(f, variable, chunk[0] > 0 ? chunk : NULL);
    set_filter(f, variable);
    set_fill(f, variable, o->fill);
}

static void set_dataset_storage(const struct file *f, int variable, const struct dataset *d) {
    size_t chunk[WORKLOAD_DIMENSIONS];
    for (int i = 0; i < d->ndims; i++)
        chunk[i] = (size_t)d->chunk_dims[i];
    set_chunks(f, variable, d->chunk_ndims > 0 ? chunk : NULL);
    set_fill(f, variable, d->filled != 0);
}

/* Of all files that are opened after it. refuse() has refused --align without it. */
static void set_alignment(const struct file *f) {
#ifdef BENCHIO_NC_ALIGNMENT
    int align = (int)f->context->options->align;
    if (align > 0)
        CHECK_NETCDF(f, "nc_set_alignment", nc_set_alignment(align, align));
#else
    (void)f;
#endif
}

/* NC_MPIIO has no effect since 4.6.2; before, the calls refuse a mode without it. */
static int create_file(const struct file *f) {
    int id;
    set_alignment(f);
    CHECK_NETCDF(f, "nc_create_par",
                 nc_create_par(f->path, NC_NETCDF4 | NC_MPIIO | NC_CLOBBER, f->comm, f->info, &id));
    return id;
}

static int open_existing(const struct file *f) {
    int id, mode = NC_MPIIO | (f->writing ? NC_WRITE : NC_NOWRITE);
    set_alignment(f);
    CHECK_NETCDF(f, "nc_open_par", nc_open_par(f->path, mode, f->comm, f->info, &id));
    return id;
}

static int def_dim(int file, const char *name, uint64_t length, int *dimension) {
    return nc_def_dim(file, name, (size_t)length, dimension);
}

static int put_att_text(int file, int variable, const char *name, uint64_t length, const char *text) {
    return nc_put_att_text(file, variable, name, (size_t)length, text);
}

static const struct netcdf_library library = {
    .prefix = "nc",
    .state_name = "netCDF state",
    .error_text = nc_strerror,
    .inq_dimid = nc_inq_dimid,
    .def_dim = def_dim,
    .inq_varid = nc_inq_varid,
    .def_var = nc_def_var,
    .put_att_text = put_att_text,
    .enddef = nc_enddef,
    .sync = nc_sync,
    .close = nc_close,
    .create_file = create_file,
    .open_file = open_existing,
    .set_storage = set_storage,
    .set_dataset_storage = set_dataset_storage,
};

static void open_file(struct file *f) {
    const struct options *o = f->context->options;
    netcdf_open(f, &library);
    const struct netcdf_state *s = f->state;
    if (o->chunk_cache > 0)
        CHECK_NETCDF(f, "nc_set_var_chunk_cache",
                     nc_set_var_chunk_cache(s->file, s->variable, o->chunk_cache, 521, 0.75F));
    CHECK_NETCDF(f, "nc_var_par_access",
                 nc_var_par_access(s->file, s->variable, f->collective ? NC_COLLECTIVE : NC_INDEPENDENT));
    f->data_offset = UNKNOWN_OFFSET;
}

static void transfer(struct file *f, const struct slab *slab) {
    const struct netcdf_state *s = f->state;
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

/* The access of each variable is NC_COLLECTIVE, NC_INDEPENDENT, or -1 before the first transfer. */
static void open_datasets(struct file *f) {
    netcdf_open_datasets(f, &library);
    struct netcdf_state *s = f->state;
    size_t n = workload_set_index(f->workload, NULL, 0);
    s->access = allocate(f->context, n, library.state_name);
    memset(s->access, -1, n);
}

static void move_box(struct file *f, const struct piece *p) {
    const struct netcdf_state *s = f->state;
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

static const struct workload_io sets_io = {
    .open = open_datasets, .move = move_box, .sync = netcdf_sync, .close = netcdf_close};

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
    .sync = netcdf_sync,
    .close = netcdf_close,
    .workload = &sets_io,
};
