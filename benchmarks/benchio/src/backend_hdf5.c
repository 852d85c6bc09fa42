/* Parallel HDF5: one data set `data` in one file. */
#include "backend.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "workload_data.h"

struct state {
    hid_t file, set, space, transfer;
    hsize_t extent; /* of the first dimension, where it is unlimited */
    hid_t memory;   /* the memory of the latest transfer; most have the same shape */
    uint64_t memory_count[3];
};

static void version(char *text, size_t n) {
    unsigned major, minor, release;
    H5get_libversion(&major, &minor, &release);
    snprintf(text, n, "HDF5 %u.%u.%u", major, minor, release);
}

struct stack_text {
    char *text;
    size_t n;
};

static herr_t append_error(unsigned depth, const H5E_error2_t *error, void *target) {
    struct stack_text *stack = target;
    size_t used = strlen(stack->text);
    if (error->desc != NULL && error->desc[0] != '\0')
        snprintf(stack->text + used, stack->n - used, "%s%s", depth > 0 ? ": " : "", error->desc);
    return 0;
}

static noreturn void fail_hdf5(const struct file *f, struct place place) {
    char text[1024] = "";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, append_error, &(struct stack_text){text, sizeof text});
    fail(f->context, EXIT_BROKEN, place, "%s", text);
}

#define CHECK_HDF5(f, operation, condition)                                                                  \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail_hdf5((f), PLACE((f)->path, (operation)));                                                   \
    } while (0)

static hid_t memory_type(const struct geometry *g) {
    return g->element == 1 ? H5T_NATIVE_UCHAR : H5T_NATIVE_DOUBLE;
}

static hid_t file_type(const struct file *f) {
    return f->context->options->byte_order == BYTE_ORDER_BIG ? H5T_IEEE_F64BE : memory_type(f->geometry);
}

static hid_t access_properties(const struct file *f) {
    const struct options *o = f->context->options;
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
#ifdef H5_HAVE_SUBFILING_VFD
    if (o->driver == DRIVER_SUBFILING)
        CHECK_HDF5(f, "H5Pset_fapl_subfiling",
                   list >= 0 && H5Pset_mpi_params(list, f->comm, f->info) >= 0 &&
                       H5Pset_fapl_subfiling(list, NULL) >= 0);
    else
#endif
        CHECK_HDF5(f, "H5Pset_fapl_mpio", list >= 0 && H5Pset_fapl_mpio(list, f->comm, f->info) >= 0);
    if (o->align > 0)
        CHECK_HDF5(f, "H5Pset_alignment", H5Pset_alignment(list, o->align, o->align) >= 0);
#if H5_VERSION_GE(1, 10, 0)
    if (o->collective_metadata) {
        CHECK_HDF5(f, "H5Pset_all_coll_metadata_ops", H5Pset_all_coll_metadata_ops(list, 1) >= 0);
        CHECK_HDF5(f, "H5Pset_coll_metadata_write", H5Pset_coll_metadata_write(list, 1) >= 0);
    }
#endif
    return list;
}

#define FILTER_ID_ZSTD 32015 /* registered by The HDF Group; a plugin in HDF5_PLUGIN_PATH */
#define SZIP_PIXELS 32

static const char *refuse(const struct options *o) {
    static const H5Z_filter_t ids[] = {[FILTER_NONE] = H5Z_FILTER_NONE,
                                       [FILTER_DEFLATE] = H5Z_FILTER_DEFLATE,
                                       [FILTER_SZIP] = H5Z_FILTER_SZIP,
                                       [FILTER_ZSTD] = FILTER_ID_ZSTD};
#if !H5_VERSION_GE(1, 10, 0)
    if (o->collective_metadata)
        return "--collective-metadata: this HDF5 has no H5Pset_coll_metadata_write (it came with 1.10.0)";
#endif
#if !H5_VERSION_GE(1, 10, 2)
    if (o->filter != FILTER_NONE)
        return "--filter: this HDF5 has no filters in parallel (they came with 1.10.2)";
#endif
#ifndef H5_HAVE_SUBFILING_VFD
    if (o->driver == DRIVER_SUBFILING)
        return "--vfd subfiling: this HDF5 was built without it (1.14: HDF5_ENABLE_SUBFILING_VFD)";
#endif
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (o->filter != FILTER_NONE && H5Zfilter_avail(ids[o->filter]) <= 0)
        return "--filter: this HDF5 has no such filter (a plugin is found by HDF5_PLUGIN_PATH)";
    return NULL;
}

static void set_filter(const struct file *f, hid_t list) {
    const struct options *o = f->context->options;
    unsigned level = (unsigned)o->filter_level;
    if (o->filter == FILTER_DEFLATE)
        CHECK_HDF5(f, "H5Pset_deflate", H5Pset_deflate(list, level > 0 ? level : 4) >= 0);
    if (o->filter == FILTER_SZIP)
        CHECK_HDF5(f, "H5Pset_szip", H5Pset_szip(list, H5_SZIP_NN_OPTION_MASK, SZIP_PIXELS) >= 0);
    level = level > 0 ? level : 3;
    if (o->filter == FILTER_ZSTD)
        CHECK_HDF5(f, "H5Pset_filter",
                   H5Pset_filter(list, FILTER_ID_ZSTD, H5Z_FLAG_MANDATORY, 1, &level) >= 0);
}

/* Properties of access to the data set. */
static hid_t set_access(const struct file *f) {
    const struct options *o = f->context->options;
    if (o->chunk_cache == 0)
        return H5P_DEFAULT;
    hid_t list = H5Pcreate(H5P_DATASET_ACCESS);
    CHECK_HDF5(f, "H5Pset_chunk_cache",
               list >= 0 && H5Pset_chunk_cache(list, H5D_CHUNK_CACHE_NSLOTS_DEFAULT, o->chunk_cache,
                                               H5D_CHUNK_CACHE_W0_DEFAULT) >= 0);
    return list;
}

static void create_set(struct file *f) {
    struct state *s = f->state;
    const struct geometry *g = f->geometry;
    const struct options *o = f->context->options;
    hsize_t dims[3] = {g->dims[0], g->dims[1], g->dims[2]}, limit[3] = {g->dims[0], g->dims[1], g->dims[2]};
    hsize_t chunk[3] = {g->chunk[0], g->chunk[1], g->chunk[2]};
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    CHECK_HDF5(f, "H5Pset_fill_time",
               list >= 0 && H5Pset_fill_time(list, o->fill ? H5D_FILL_TIME_ALLOC : H5D_FILL_TIME_NEVER) >= 0);
    if (chunk[0] > 0)
        CHECK_HDF5(f, "H5Pset_chunk", H5Pset_chunk(list, g->ndims, chunk) >= 0);
    set_filter(f, list);
    if (o->unlimited) {
        dims[0] = s->extent = 1;
        limit[0] = H5S_UNLIMITED;
    }
    s->space = H5Screate_simple(g->ndims, dims, limit);
    CHECK_HDF5(f, "H5Screate_simple", s->space >= 0);
    hid_t access = set_access(f);
    s->set = H5Dcreate2(s->file, "data", file_type(f), s->space, H5P_DEFAULT, list, access);
    CHECK_HDF5(f, "H5Dcreate", s->set >= 0);
    H5Pclose(list);
    if (access != H5P_DEFAULT)
        H5Pclose(access);
}

static void open_set(struct file *f) {
    struct state *s = f->state;
    hsize_t dims[3] = {0};
    hid_t access = set_access(f);
    s->set = H5Dopen2(s->file, "data", access);
    CHECK_HDF5(f, "H5Dopen", s->set >= 0);
    if (access != H5P_DEFAULT)
        H5Pclose(access);
    s->space = H5Dget_space(s->set);
    CHECK_HDF5(f, "H5Dget_space", s->space >= 0);
    bool same = H5Sget_simple_extent_ndims(s->space) == f->geometry->ndims;
    if (same)
        H5Sget_simple_extent_dims(s->space, dims, NULL);
    for (int d = 0; d < f->geometry->ndims; d++)
        same = same && dims[d] == f->geometry->dims[d];
    if (!same)
        fail(f->context, EXIT_BROKEN, PLACE(f->path, "H5Dopen"),
             "the data set has another shape than these options give");
}

static void open_file(struct file *f) {
    struct state *s = f->state = allocate(f->context, sizeof *s, "HDF5 state");
    s->memory = H5I_INVALID_HID;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t list = access_properties(f);
    s->file = f->writing ? H5Fcreate(f->path, H5F_ACC_TRUNC, H5P_DEFAULT, list)
                         : H5Fopen(f->path, H5F_ACC_RDONLY, list);
    CHECK_HDF5(f, f->writing ? "H5Fcreate" : "H5Fopen", s->file >= 0);
    H5Pclose(list);
    if (f->writing)
        create_set(f);
    else
        open_set(f);
    s->transfer = H5Pcreate(H5P_DATASET_XFER);
    CHECK_HDF5(f, "H5Pset_dxpl_mpio",
               s->transfer >= 0 && H5Pset_dxpl_mpio(s->transfer, f->collective ? H5FD_MPIO_COLLECTIVE
                                                                               : H5FD_MPIO_INDEPENDENT) >= 0);
    haddr_t address = f->geometry->chunk[0] == 0 ? H5Dget_offset(s->set) : HADDR_UNDEF;
    f->data_offset = address == HADDR_UNDEF ? UNKNOWN_OFFSET : address;
}

/* The unlimited dimension grows as the data come; the same calls on every rank. */
static void extend(struct file *f, const struct slab *slab) {
    struct state *s = f->state;
    if (!f->writing || !f->context->options->unlimited || slab->extent <= s->extent)
        return;
    hsize_t dims[3] = {slab->extent, f->geometry->dims[1], f->geometry->dims[2]};
    CHECK_HDF5(f, "H5Dset_extent", H5Dset_extent(s->set, dims) >= 0);
    s->extent = slab->extent;
    H5Sclose(s->space);
    s->space = H5Dget_space(s->set);
    CHECK_HDF5(f, "H5Dget_space", s->space >= 0);
}

static hid_t select_memory(struct file *f, const struct slab *slab) {
    struct state *s = f->state;
    if (s->memory >= 0 && memcmp(s->memory_count, slab->count, sizeof s->memory_count) == 0)
        return s->memory;
    if (s->memory >= 0)
        H5Sclose(s->memory);
    memcpy(s->memory_count, slab->count, sizeof s->memory_count);
    hsize_t dims[3], start[3], count[3];
    for (int d = 0; d < slab->ndims; d++) {
        dims[d] = slab->memory_dims[d] > 0 ? slab->memory_dims[d] : 1;
        start[d] = slab->memory_start[d];
        count[d] = slab->count[d];
    }
    hid_t space = H5Screate_simple(slab->ndims, dims, NULL);
    CHECK_HDF5(f, "H5Screate_simple", space >= 0);
    herr_t status = slab->elements == 0 ? H5Sselect_none(space)
                    : slab->ndims == 3  ? H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL)
                                        : 0;
    CHECK_HDF5(f, "H5Sselect_hyperslab", status >= 0);
    return s->memory = space;
}

/* Independent writes of a box with halos would be one call of MPI-IO a row, even where rows are contiguous in
 * the file: packed, they are one. Collective writes hand both shapes to MPI-IO at once and need no copy. */
static size_t buffer_bytes(const struct options *o, const struct geometry *g) {
    bool packs = g->pattern == PATTERN_BLOCK3D && o->access == ACCESS_INDEPENDENT;
    return packs ? (size_t)(g->planes * g->count[1] * g->count[2] * g->element) : 0;
}

/* The slab as it lies in the transfer buffer. */
static struct slab packed(const struct file *f, const struct slab *slab) {
    struct slab copy = *slab;
    copy.memory = f->buffer;
    for (int d = 0; d < 3; d++)
        copy.memory_dims[d] = copy.count[d], copy.memory_start[d] = 0;
    return copy;
}

static void transfer(struct file *f, const struct slab *slab) {
    struct state *s = f->state;
    extend(f, slab);
    bool packs = f->buffer_bytes > 0;
    struct slab copy = packs ? packed(f, slab) : *slab;
    hsize_t start[3], count[3];
    for (int d = 0; d < slab->ndims; d++)
        start[d] = slab->start[d], count[d] = slab->count[d];
    CHECK_HDF5(f, "H5Sselect_hyperslab",
               (slab->elements == 0
                    ? H5Sselect_none(s->space)
                    : H5Sselect_hyperslab(s->space, H5S_SELECT_SET, start, NULL, count, NULL)) >= 0);
    hid_t memory = select_memory(f, &copy), type = memory_type(f->geometry);
    if (f->writing && packs)
        slab_pack(slab, 0, slab->elements, f->buffer);
    if (f->writing)
        CHECK_HDF5(f, "H5Dwrite", H5Dwrite(s->set, type, memory, s->space, s->transfer, copy.memory) >= 0);
    else
        CHECK_HDF5(f, "H5Dread", H5Dread(s->set, type, memory, s->space, s->transfer, copy.memory) >= 0);
    if (!f->writing && packs)
        slab_unpack(slab, 0, slab->elements, f->buffer);
}

static void sync_file(struct file *f) {
    const struct state *s = f->state;
    CHECK_HDF5(f, "H5Fflush", H5Fflush(s->file, H5F_SCOPE_LOCAL) >= 0);
}

static void close_file(struct file *f) {
    struct state *s = f->state;
    if (s->memory >= 0)
        H5Sclose(s->memory);
    CHECK_HDF5(f, "H5Dclose", H5Pclose(s->transfer) >= 0 && H5Sclose(s->space) >= 0 && H5Dclose(s->set) >= 0);
    CHECK_HDF5(f, "H5Fclose", H5Fclose(s->file) >= 0);
    free(s);
}

static void describe(struct file *f) {
    const struct state *s = f->state;
    MPI_File *handle = NULL;
    MPI_Info info;
    if (f->context->options->driver != DRIVER_MPIO) /* no file of MPI-IO */
        return;
    hid_t list = H5Fget_access_plist(s->file);
    CHECK_HDF5(f, "H5Fget_vfd_handle", H5Fget_vfd_handle(s->file, list, (void **)&handle) >= 0);
    CHECK_MPI(f->context, f->path, "MPI_File_get_info", MPI_File_get_info(*handle, &info));
    backend_append_info(f->context, info, f->hints);
    MPI_Info_free(&info);
    H5Pclose(list);
}

/* A file of a workload. Data sets are made with the file, and opened when they are needed first. */
struct sets {
    hid_t file, folder; /* where the data sets are: the file, or a group */
    hid_t transfer[2];  /* independent, collective */
    hid_t *set;         /* H5I_INVALID_HID: not open */
    size_t n;
};

static hid_t set_type(const struct dataset *d) {
    switch (d->type) {
    case ELEMENT_BYTE:
        return H5T_NATIVE_UCHAR;
    case ELEMENT_INT:
        return H5T_NATIVE_INT32;
    case ELEMENT_LONG:
        return H5T_NATIVE_INT64;
    case ELEMENT_FLOAT:
        return H5T_NATIVE_FLOAT;
    default:
        return H5T_NATIVE_DOUBLE;
    }
}

static hid_t file_access(const struct file *f) {
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    hsize_t align = (hsize_t)f->workload->alignment;
    CHECK_HDF5(f, "H5Pset_fapl_mpio", list >= 0 && H5Pset_fapl_mpio(list, f->comm, f->info) >= 0);
    if (align > 0)
        CHECK_HDF5(f, "H5Pset_alignment", H5Pset_alignment(list, align, align) >= 0);
#if H5_VERSION_GE(1, 10, 0)
    if (f->workload->metadata) {
        CHECK_HDF5(f, "H5Pset_all_coll_metadata_ops", H5Pset_all_coll_metadata_ops(list, 1) >= 0);
        CHECK_HDF5(f, "H5Pset_coll_metadata_write", H5Pset_coll_metadata_write(list, 1) >= 0);
    }
#endif
    return list;
}

static void create_one(const struct file *f, const struct dataset *d, int64_t copy) {
    struct sets *s = f->state;
    char name[WORKLOAD_SET_NAME];
    hsize_t dims[WORKLOAD_DIMENSIONS], chunk[WORKLOAD_DIMENSIONS];
    for (int i = 0; i < d->ndims; i++)
        dims[i] = (hsize_t)d->dims[i], chunk[i] = (hsize_t)d->chunk_dims[i];
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(d->ndims, dims, NULL);
    CHECK_HDF5(f, "H5Screate_simple", list >= 0 && space >= 0);
    CHECK_HDF5(f, "H5Pset_fill_time",
               H5Pset_fill_time(list, d->filled ? H5D_FILL_TIME_ALLOC : H5D_FILL_TIME_NEVER) >= 0);
    if (d->chunk_ndims > 0)
        CHECK_HDF5(f, "H5Pset_chunk", H5Pset_chunk(list, d->ndims, chunk) >= 0);
    workload_set_name(d, copy, name);
    hid_t *set = &s->set[workload_set_index(f->workload, d, copy)];
    *set = H5Dcreate2(s->folder, name, set_type(d), space, H5P_DEFAULT, list, H5P_DEFAULT);
    CHECK_HDF5(f, "H5Dcreate", *set >= 0);
    H5Pclose(list);
    H5Sclose(space);
}

static void create_attributes(const struct file *f) {
    const struct sets *s = f->state;
    hsize_t n = (hsize_t)f->workload->attribute_bytes;
    if (n == 0)
        return;
    char *text = allocate(f->context, n, "attributes");
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t attribute = H5Acreate2(s->file, "attributes", H5T_NATIVE_UCHAR, space, H5P_DEFAULT, H5P_DEFAULT);
    CHECK_HDF5(f, "H5Awrite", attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_UCHAR, text) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    free(text);
}

static hid_t find_set(const struct file *f, const struct dataset *d, int64_t copy) {
    struct sets *s = f->state;
    hid_t *set = &s->set[workload_set_index(f->workload, d, copy)];
    char name[WORKLOAD_SET_NAME];
    if (*set >= 0)
        return *set;
    workload_set_name(d, copy, name);
    *set = H5Dopen2(s->folder, name, H5P_DEFAULT);
    CHECK_HDF5(f, "H5Dopen", *set >= 0);
    return *set;
}

static void open_folder(const struct file *f) {
    struct sets *s = f->state;
    const char *name = f->workload->folder;
    s->folder = name == NULL  ? s->file
                : f->creating ? H5Gcreate2(s->file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)
                              : H5Gopen2(s->file, name, H5P_DEFAULT);
    CHECK_HDF5(f, f->creating ? "H5Gcreate" : "H5Gopen", s->folder >= 0);
}

static void open_sets(struct file *f) {
    const struct workload_file *w = f->workload;
    struct sets *s = f->state = allocate(f->context, sizeof *s, "HDF5 state");
    hid_t list = file_access(f);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    s->n = workload_set_index(w, NULL, 0);
    s->set = allocate(f->context, s->n * sizeof *s->set, "HDF5 state");
    for (size_t i = 0; i < s->n; i++)
        s->set[i] = H5I_INVALID_HID;
    s->file = f->creating ? H5Fcreate(f->path, H5F_ACC_TRUNC, H5P_DEFAULT, list)
                          : H5Fopen(f->path, f->writing ? H5F_ACC_RDWR : H5F_ACC_RDONLY, list);
    CHECK_HDF5(f, f->creating ? "H5Fcreate" : "H5Fopen", s->file >= 0);
    H5Pclose(list);
    open_folder(f);
    for (int i = 0; i < w->dataset_n && f->creating; i++)
        for (int64_t copy = 0; copy < w->dataset[i].copies; copy++)
            create_one(f, &w->dataset[i], copy);
    /* Collective metadata: all ranks open each data set, also those that have no part in it. */
    for (int i = 0; i < w->dataset_n && !f->creating && w->metadata; i++)
        for (int64_t copy = 0; copy < w->dataset[i].copies; copy++)
            find_set(f, &w->dataset[i], copy);
    if (f->creating)
        create_attributes(f);
    for (int i = 0; i < 2; i++) {
        s->transfer[i] = H5Pcreate(H5P_DATASET_XFER);
        CHECK_HDF5(f, "H5Pset_dxpl_mpio",
                   H5Pset_dxpl_mpio(s->transfer[i], i == 1 ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT) >=
                       0);
    }
}

static void move_box(struct file *f, const struct piece *p) {
    const struct sets *s = f->state;
    const struct dataset *d = &f->workload->dataset[p->dataset];
    hsize_t start[WORKLOAD_DIMENSIONS], count[WORKLOAD_DIMENSIONS], dims[WORKLOAD_DIMENSIONS],
        inside[WORKLOAD_DIMENSIONS];
    uint64_t memory_dims[WORKLOAD_DIMENSIONS], memory_start[WORKLOAD_DIMENSIONS];
    piece_memory(p, memory_dims, memory_start);
    for (int i = 0; i < d->ndims; i++) {
        start[i] = (hsize_t)p->start[i], count[i] = (hsize_t)p->extent[i];
        dims[i] = memory_dims[i], inside[i] = memory_start[i];
    }
    hid_t set = find_set(f, d, p->copy), space = H5Dget_space(set);
    hid_t memory = H5Screate_simple(d->ndims, dims, NULL), transfer = s->transfer[f->collective];
    CHECK_HDF5(f, "H5Screate_simple", memory >= 0 && space >= 0);
    bool selected = p->bytes == 0 ? H5Sselect_none(space) >= 0 && H5Sselect_none(memory) >= 0
                                  : H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0;
    if (p->halo && p->bytes > 0)
        selected = selected && H5Sselect_hyperslab(memory, H5S_SELECT_SET, inside, NULL, count, NULL) >= 0;
    CHECK_HDF5(f, "H5Sselect_hyperslab", selected);
    if (f->writing)
        CHECK_HDF5(f, "H5Dwrite", H5Dwrite(set, set_type(d), memory, space, transfer, p->memory) >= 0);
    else
        CHECK_HDF5(f, "H5Dread", H5Dread(set, set_type(d), memory, space, transfer, p->memory) >= 0);
    H5Sclose(memory);
    H5Sclose(space);
}

static void sync_sets(struct file *f) {
    const struct sets *s = f->state;
    CHECK_HDF5(f, "H5Fflush", H5Fflush(s->file, H5F_SCOPE_LOCAL) >= 0);
}

static void close_sets(struct file *f) {
    struct sets *s = f->state;
    for (size_t i = 0; i < s->n; i++)
        if (s->set[i] >= 0)
            CHECK_HDF5(f, "H5Dclose", H5Dclose(s->set[i]) >= 0);
    if (s->folder != s->file)
        CHECK_HDF5(f, "H5Gclose", H5Gclose(s->folder) >= 0);
    CHECK_HDF5(f, "H5Fclose",
               H5Pclose(s->transfer[0]) >= 0 && H5Pclose(s->transfer[1]) >= 0 && H5Fclose(s->file) >= 0);
    free(s->set);
    free(s);
}

static const struct workload_io sets_io = {
    .takes_halo = true, .open = open_sets, .move = move_box, .sync = sync_sets, .close = close_sets};

const struct backend backend_hdf5 = {
    .name = "hdf5",
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
    .describe = describe,
    .workload = &sets_io,
};
