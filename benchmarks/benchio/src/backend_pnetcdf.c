/* PnetCDF: one variable `data` in one CDF-5 file. */
#include "backend.h"

#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "slabtype.h"
#include "workload_data.h"

struct state {
    int file, variable;
};

#define CHECK_PNETCDF(f, operation, call)                                                                    \
    do {                                                                                                     \
        int status_ = (call);                                                                                \
        if (status_ != NC_NOERR)                                                                             \
            fail((f)->context, EXIT_BROKEN, PLACE((f)->path, (operation)), "%s", ncmpi_strerror(status_));   \
    } while (0)

static void version(char *text, size_t n) {
    const char *full =
        ncmpi_inq_libvers(); /* "PnetCDF Version: 1.12.3 of 21 Feb 2022", older: "1.12.3 of ..." */
    const char *digits = strpbrk(full, "0123456789");
    snprintf(text, n, "PnetCDF %.*s", digits != NULL ? (int)strcspn(digits, " ") : 0,
             digits != NULL ? digits : "");
}

static const char *refuse(const struct options *o) {
    return o->unlimited && o->pattern != PATTERN_BLOCK3D && o->row == 0
               ? "--unlimited: records of one byte are not what pnetcdf is for; give --row"
               : NULL;
}

static void define(struct file *f) {
    struct state *s = f->state;
    const struct geometry *g = f->geometry;
    const struct options *o = f->context->options;
    static const char *const names[3][3] = {{"x", "", ""}, {"y", "x", ""}, {"z", "y", "x"}};
    int dimension[3];
    for (int d = 0; d < g->ndims; d++)
        CHECK_PNETCDF(f, "ncmpi_def_dim",
                      ncmpi_def_dim(s->file, names[g->ndims - 1][d],
                                    d == 0 && o->unlimited ? NC_UNLIMITED : (MPI_Offset)g->dims[d],
                                    &dimension[d]));
    CHECK_PNETCDF(f, "ncmpi_def_var",
                  ncmpi_def_var(s->file, "data", g->element == 1 ? NC_UBYTE : NC_DOUBLE, g->ndims, dimension,
                                &s->variable));
    CHECK_PNETCDF(f, "ncmpi_def_var_fill", ncmpi_def_var_fill(s->file, s->variable, o->fill ? 0 : 1, NULL));
    CHECK_PNETCDF(f, "ncmpi_enddef", ncmpi_enddef(s->file));
}

/* Records do not get their fill values from the definition but one by one. */
static void fill_records(struct file *f) {
    struct state *s = f->state;
    const struct options *o = f->context->options;
    if (!o->fill || !o->unlimited)
        return;
    for (uint64_t record = 0; record < f->geometry->dims[0]; record++)
        CHECK_PNETCDF(f, "ncmpi_fill_var_rec", ncmpi_fill_var_rec(s->file, s->variable, (MPI_Offset)record));
}

static void open_file(struct file *f) {
    struct state *s = f->state = allocate(f->context, sizeof *s, "PnetCDF state");
    if (f->writing) {
        CHECK_PNETCDF(f, "ncmpi_create",
                      ncmpi_create(f->comm, f->path, NC_CLOBBER | NC_64BIT_DATA, f->info, &s->file));
        define(f);
        fill_records(f);
    } else {
        CHECK_PNETCDF(f, "ncmpi_open", ncmpi_open(f->comm, f->path, NC_NOWRITE, f->info, &s->file));
        CHECK_PNETCDF(f, "ncmpi_inq_varid", ncmpi_inq_varid(s->file, "data", &s->variable));
    }
    if (!f->collective)
        CHECK_PNETCDF(f, "ncmpi_begin_indep_data", ncmpi_begin_indep_data(s->file));
    MPI_Offset offset = 0;
    CHECK_PNETCDF(f, "ncmpi_inq_varoffset", ncmpi_inq_varoffset(s->file, s->variable, &offset));
    f->data_offset = (uint64_t)offset;
}

static int call(const struct file *f, const MPI_Offset *start, const MPI_Offset *count, void *memory,
                MPI_Offset n, MPI_Datatype type) {
    const struct state *s = f->state;
    if (f->writing)
        return f->collective ? ncmpi_put_vara_all(s->file, s->variable, start, count, memory, n, type)
                             : ncmpi_put_vara(s->file, s->variable, start, count, memory, n, type);
    return f->collective ? ncmpi_get_vara_all(s->file, s->variable, start, count, memory, n, type)
                         : ncmpi_get_vara(s->file, s->variable, start, count, memory, n, type);
}

static void transfer(struct file *f, const struct slab *slab) {
    MPI_Offset start[3], count[3];
    const char *operation = f->writing ? "ncmpi_put_vara" : "ncmpi_get_vara";
    for (int d = 0; d < slab->ndims; d++) {
        start[d] = slab->elements > 0 ? (MPI_Offset)slab->start[d] : 0;
        count[d] = slab->elements > 0 ? (MPI_Offset)slab->count[d] : 0;
    }
    if (slab->ndims < 3 || slab->elements == 0) {
        CHECK_PNETCDF(f, operation,
                      call(f, start, count, slab->memory, (MPI_Offset)slab->elements,
                           slab->element == 1 ? MPI_UNSIGNED_CHAR : MPI_DOUBLE));
        return;
    }
    MPI_Datatype type = slab_memory_type(f, slab);
    CHECK_PNETCDF(f, operation, call(f, start, count, slab->memory, 1, type));
    MPI_Type_free(&type);
}

static void sync_file(struct file *f) {
    const struct state *s = f->state;
    CHECK_PNETCDF(f, "ncmpi_sync", ncmpi_sync(s->file));
}

static void close_file(struct file *f) {
    struct state *s = f->state;
    CHECK_PNETCDF(f, "ncmpi_close", ncmpi_close(s->file));
    free(s);
}

static void describe(struct file *f) {
    const struct state *s = f->state;
    MPI_Info info;
    CHECK_PNETCDF(f, "ncmpi_inq_file_info", ncmpi_inq_file_info(s->file, &info));
    backend_append_info(f->context, info, f->hints);
    MPI_Info_free(&info);
}

/* A file of a workload, in the mode of all its transfers. Variables have the numbers in the order of their
 * definition. */
struct sets {
    int file;
};

static const nc_type set_types[] = {NC_UBYTE, NC_INT, NC_INT64, NC_FLOAT, NC_DOUBLE};

/* Dimensions of the same length are one dimension. */
static int dimension_of(const struct file *f, int64_t length) {
    const struct sets *s = f->state;
    char name[32];
    int id;
    snprintf(name, sizeof name, "d%lld", (long long)length);
    if (ncmpi_inq_dimid(s->file, name, &id) != NC_NOERR)
        CHECK_PNETCDF(f, "ncmpi_def_dim", ncmpi_def_dim(s->file, name, (MPI_Offset)length, &id));
    return id;
}

static void define_one(const struct file *f, const struct dataset *d, int64_t copy) {
    const struct sets *s = f->state;
    char name[WORKLOAD_SET_NAME];
    int dimension[WORKLOAD_DIMENSIONS], id;
    for (int i = 0; i < d->ndims; i++)
        dimension[i] = dimension_of(f, d->dims[i]);
    workload_set_name(d, copy, name);
    CHECK_PNETCDF(f, "ncmpi_def_var",
                  ncmpi_def_var(s->file, name, set_types[d->type], d->ndims, dimension, &id));
    if (d->filled)
        CHECK_PNETCDF(f, "ncmpi_def_var_fill", ncmpi_def_var_fill(s->file, id, 0, NULL));
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
        CHECK_PNETCDF(
            f, "ncmpi_put_att_text",
            ncmpi_put_att_text(s->file, NC_GLOBAL, "attributes", (MPI_Offset)w->attribute_bytes, text));
        free(text);
    }
    CHECK_PNETCDF(f, "ncmpi_enddef", ncmpi_enddef(s->file));
}

static void open_sets(struct file *f) {
    struct sets *s = f->state = allocate(f->context, sizeof *s, "PnetCDF state");
    if (f->creating) {
        CHECK_PNETCDF(f, "ncmpi_create",
                      ncmpi_create(f->comm, f->path, NC_CLOBBER | NC_64BIT_DATA, f->info, &s->file));
        define_sets(f);
    } else {
        CHECK_PNETCDF(f, "ncmpi_open",
                      ncmpi_open(f->comm, f->path, f->writing ? NC_WRITE : NC_NOWRITE, f->info, &s->file));
    }
    if (!f->collective)
        CHECK_PNETCDF(f, "ncmpi_begin_indep_data", ncmpi_begin_indep_data(s->file));
}

static int move_call(const struct file *f, int id, const MPI_Offset *start, const MPI_Offset *count,
                     const struct piece *p, MPI_Offset n, MPI_Datatype type) {
    const struct sets *s = f->state;
    if (f->writing)
        return f->collective ? ncmpi_put_vara_all(s->file, id, start, count, p->memory, n, type)
                             : ncmpi_put_vara(s->file, id, start, count, p->memory, n, type);
    return f->collective ? ncmpi_get_vara_all(s->file, id, start, count, p->memory, n, type)
                         : ncmpi_get_vara(s->file, id, start, count, p->memory, n, type);
}

static void move_box(struct file *f, const struct piece *p) {
    const MPI_Datatype types[] = {[ELEMENT_BYTE] = MPI_UNSIGNED_CHAR,
                                  [ELEMENT_INT] = MPI_INT,
                                  [ELEMENT_LONG] = MPI_INT64_T,
                                  [ELEMENT_FLOAT] = MPI_FLOAT,
                                  [ELEMENT_DOUBLE] = MPI_DOUBLE};
    const struct dataset *d = &f->workload->dataset[p->dataset];
    MPI_Offset start[WORKLOAD_DIMENSIONS], count[WORKLOAD_DIMENSIONS];
    for (int i = 0; i < d->ndims; i++)
        start[i] = p->bytes > 0 ? p->start[i] : 0, count[i] = p->bytes > 0 ? p->extent[i] : 0;
    bool gathered = p->halo && p->bytes > 0;
    MPI_Datatype type = gathered ? slab_halo_type(f, p, types[d->type]) : types[d->type];
    CHECK_PNETCDF(f, f->writing ? "ncmpi_put_vara" : "ncmpi_get_vara",
                  move_call(f, (int)workload_set_index(f->workload, d, p->copy), start, count, p,
                            gathered ? 1 : (MPI_Offset)(p->bytes / element_bytes[d->type]), type));
    if (gathered)
        MPI_Type_free(&type);
}

static void sync_sets(struct file *f) {
    const struct sets *s = f->state;
    CHECK_PNETCDF(f, "ncmpi_sync", ncmpi_sync(s->file));
}

static void close_sets(struct file *f) {
    struct sets *s = f->state;
    CHECK_PNETCDF(f, "ncmpi_close", ncmpi_close(s->file));
    free(s);
}

static const struct workload_io sets_io = {
    .takes_halo = true, .open = open_sets, .move = move_box, .sync = sync_sets, .close = close_sets};

const struct backend backend_pnetcdf = {
    .name = "pnetcdf",
    .has_access = true,
    .has_hints = true,
    .has_layout = true,
    .has_files = true,
    .version = version,
    .refuse = refuse,
    .open = open_file,
    .transfer = transfer,
    .sync = sync_file,
    .close = close_file,
    .describe = describe,
    .workload = &sets_io,
};
