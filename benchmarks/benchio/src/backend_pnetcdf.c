/* PnetCDF: one variable `data` in one CDF-5 file. */
#include "backend.h"

#include <pnetcdf.h>
#include <stdio.h>
#include <string.h>

#include "netcdf_common.h"
#include "slabtype.h"
#include "workload_data.h"

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

static void set_storage(const struct file *f, int variable) {
    const struct netcdf_state *s = f->state;
    int no_fill = f->context->options->fill ? 0 : 1;
    CHECK_NETCDF(f, "ncmpi_def_var_fill", ncmpi_def_var_fill(s->file, variable, no_fill, NULL));
}

/* A file has no fill values unless a variable asks for them. */
static void set_dataset_storage(const struct file *f, int variable, const struct dataset *d) {
    const struct netcdf_state *s = f->state;
    if (d->filled)
        CHECK_NETCDF(f, "ncmpi_def_var_fill", ncmpi_def_var_fill(s->file, variable, 0, NULL));
}

static int create_file(const struct file *f) {
    int id;
    CHECK_NETCDF(f, "ncmpi_create", ncmpi_create(f->comm, f->path, NC_CLOBBER | NC_64BIT_DATA, f->info, &id));
    return id;
}

static int open_existing(const struct file *f) {
    int id, mode = f->writing ? NC_WRITE : NC_NOWRITE;
    CHECK_NETCDF(f, "ncmpi_open", ncmpi_open(f->comm, f->path, mode, f->info, &id));
    return id;
}

static int def_dim(int file, const char *name, uint64_t length, int *dimension) {
    return ncmpi_def_dim(file, name, (MPI_Offset)length, dimension);
}

static int put_att_text(int file, int variable, const char *name, uint64_t length, const char *text) {
    return ncmpi_put_att_text(file, variable, name, (MPI_Offset)length, text);
}

static const struct netcdf_library library = {
    .prefix = "ncmpi",
    .state_name = "PnetCDF state",
    .error_text = ncmpi_strerror,
    .inq_dimid = ncmpi_inq_dimid,
    .def_dim = def_dim,
    .inq_varid = ncmpi_inq_varid,
    .def_var = ncmpi_def_var,
    .put_att_text = put_att_text,
    .enddef = ncmpi_enddef,
    .sync = ncmpi_sync,
    .close = ncmpi_close,
    .create_file = create_file,
    .open_file = open_existing,
    .set_storage = set_storage,
    .set_dataset_storage = set_dataset_storage,
};

/* Records do not get their fill values from the definition but one by one. */
static void fill_records(struct file *f) {
    const struct netcdf_state *s = f->state;
    const struct options *o = f->context->options;
    if (!o->fill || !o->unlimited)
        return;
    for (uint64_t record = 0; record < f->geometry->dims[0]; record++)
        CHECK_NETCDF(f, "ncmpi_fill_var_rec", ncmpi_fill_var_rec(s->file, s->variable, (MPI_Offset)record));
}

/* Files are in the mode of collective transfers after they are opened. */
static void set_access(const struct file *f) {
    const struct netcdf_state *s = f->state;
    if (!f->collective)
        CHECK_NETCDF(f, "ncmpi_begin_indep_data", ncmpi_begin_indep_data(s->file));
}

static void open_file(struct file *f) {
    netcdf_open(f, &library);
    if (f->writing)
        fill_records(f);
    set_access(f);
    const struct netcdf_state *s = f->state;
    MPI_Offset offset = 0;
    CHECK_NETCDF(f, "ncmpi_inq_varoffset", ncmpi_inq_varoffset(s->file, s->variable, &offset));
    f->data_offset = (uint64_t)offset;
}

/* A file of a workload is in the mode of all its transfers. */
static void open_datasets(struct file *f) {
    netcdf_open_datasets(f, &library);
    set_access(f);
}

/* A box of a variable in the file, and the `n` elements of `type` in memory that belong there. */
struct section {
    int variable;
    const MPI_Offset *start, *count;
    void *memory;
    MPI_Offset n;
    MPI_Datatype type;
};

static void move_section(const struct file *f, const struct section *section) {
    const struct netcdf_state *s = f->state;
    int status;
    if (f->writing && f->collective)
        status = ncmpi_put_vara_all(s->file, section->variable, section->start, section->count,
                                    section->memory, section->n, section->type);
    else if (f->writing)
        status = ncmpi_put_vara(s->file, section->variable, section->start, section->count, section->memory,
                                section->n, section->type);
    else if (f->collective)
        status = ncmpi_get_vara_all(s->file, section->variable, section->start, section->count,
                                    section->memory, section->n, section->type);
    else
        status = ncmpi_get_vara(s->file, section->variable, section->start, section->count, section->memory,
                                section->n, section->type);
    CHECK_NETCDF(f, f->writing ? "ncmpi_put_vara" : "ncmpi_get_vara", status);
}

static void transfer(struct file *f, const struct slab *slab) {
    const struct netcdf_state *s = f->state;
    MPI_Offset start[3], count[3];
    for (int d = 0; d < slab->ndims; d++) {
        start[d] = slab->elements > 0 ? (MPI_Offset)slab->start[d] : 0;
        count[d] = slab->elements > 0 ? (MPI_Offset)slab->count[d] : 0;
    }
    struct section section = {
        .variable = s->variable, .start = start, .count = count, .memory = slab->memory};
    if (slab->ndims < 3 || slab->elements == 0) {
        section.n = (MPI_Offset)slab->elements;
        section.type = slab->element == 1 ? MPI_UNSIGNED_CHAR : MPI_DOUBLE;
        move_section(f, &section);
        return;
    }
    /* A block with a halo around it is one element of a type of its own. */
    section.n = 1;
    section.type = slab_memory_type(f, slab);
    move_section(f, &section);
    MPI_Type_free(&section.type);
}

static void describe(struct file *f) {
    const struct netcdf_state *s = f->state;
    MPI_Info info;
    CHECK_NETCDF(f, "ncmpi_inq_file_info", ncmpi_inq_file_info(s->file, &info));
    backend_append_info(f->context, info, f->hints);
    MPI_Info_free(&info);
}

static void move_box(struct file *f, const struct piece *p) {
    const MPI_Datatype types[] = {[ELEMENT_BYTE] = MPI_UNSIGNED_CHAR,
                                  [ELEMENT_INT] = MPI_INT,
                                  [ELEMENT_LONG] = MPI_INT64_T,
                                  [ELEMENT_FLOAT] = MPI_FLOAT,
                                  [ELEMENT_DOUBLE] = MPI_DOUBLE};
    const struct dataset *d = &f->workload->dataset[p->dataset];
    MPI_Offset start[WORKLOAD_DIMENSIONS], count[WORKLOAD_DIMENSIONS];
    for (int i = 0; i < d->ndims; i++) {
        start[i] = p->bytes > 0 ? p->start[i] : 0;
        count[i] = p->bytes > 0 ? p->extent[i] : 0;
    }
    struct section section = {.variable = (int)workload_set_index(f->workload, d, p->copy),
                              .start = start,
                              .count = count,
                              .memory = p->memory};
    if (!p->halo || p->bytes == 0) {
        section.n = (MPI_Offset)(p->bytes / element_bytes[d->type]);
        section.type = types[d->type];
        move_section(f, &section);
        return;
    }
    section.n = 1;
    section.type = slab_halo_type(f, p, types[d->type]);
    move_section(f, &section);
    MPI_Type_free(&section.type);
}

static const struct workload_io sets_io = {
    .takes_halo = true, .open = open_datasets, .move = move_box, .sync = netcdf_sync, .close = netcdf_close};

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
    .sync = netcdf_sync,
    .close = netcdf_close,
    .describe = describe,
    .workload = &sets_io,
};
