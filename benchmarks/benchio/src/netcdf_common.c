#include "netcdf_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For the numbers of types and errors, which are the same in both. */
#ifdef BENCHIO_NETCDF4
#include <netcdf.h>
#else
#include <pnetcdf.h>
#endif

static const int element_types[] = {[ELEMENT_BYTE] = NC_UBYTE,
                                    [ELEMENT_INT] = NC_INT,
                                    [ELEMENT_LONG] = NC_INT64,
                                    [ELEMENT_FLOAT] = NC_FLOAT,
                                    [ELEMENT_DOUBLE] = NC_DOUBLE};

noreturn void netcdf_fail(const struct file *f, struct place place, int status) {
    const struct netcdf_state *s = f->state;
    fail(f->context, EXIT_BROKEN, place, "%s", s->library->error_text(status));
}

/* As CHECK_NETCDF, for a function of `struct netcdf_library`: messages have the name that it has in its
 * library. */
#define CHECK_CALL(f, name, call) check_call((f), (name), __LINE__, (call))
static void check_call(const struct file *f, const char *name, int line, int status) {
    const struct netcdf_state *s = f->state;
    char operation[64];
    if (status == NC_NOERR)
        return;
    snprintf(operation, sizeof operation, "%s_%s", s->library->prefix, name);
    netcdf_fail(f, (struct place){.path = f->path, .operation = operation, .file = __FILE__, .line = line},
                status);
}

static struct netcdf_state *new_state(struct file *f, const struct netcdf_library *library) {
    struct netcdf_state *s = allocate(f->context, sizeof *s, library->state_name);
    s->library = library;
    f->state = s;
    return s;
}

/* The dimensions and the one variable of a measurement. */
static void define(struct file *f) {
    struct netcdf_state *s = f->state;
    const struct geometry *g = f->geometry;
    const struct options *o = f->context->options;
    static const char *const names[3][3] = {{"x", "", ""}, {"y", "x", ""}, {"z", "y", "x"}};
    int dimension[3];
    for (int d = 0; d < g->ndims; d++) {
        /* The first dimension is the one that varies slowest. */
        uint64_t length = d == 0 && o->unlimited ? NC_UNLIMITED : g->dims[d];
        CHECK_CALL(f, "def_dim", s->library->def_dim(s->file, names[g->ndims - 1][d], length, &dimension[d]));
    }
    int type = g->element == 1 ? NC_UBYTE : NC_DOUBLE;
    CHECK_CALL(f, "def_var", s->library->def_var(s->file, "data", type, g->ndims, dimension, &s->variable));
    s->library->set_storage(f, s->variable);
    CHECK_CALL(f, "enddef", s->library->enddef(s->file));
}

void netcdf_open(struct file *f, const struct netcdf_library *library) {
    struct netcdf_state *s = new_state(f, library);
    if (f->writing) {
        s->file = library->create_file(f);
        define(f);
    } else {
        s->file = library->open_file(f);
        CHECK_CALL(f, "inq_varid", library->inq_varid(s->file, "data", &s->variable));
    }
}

/* Dimensions of the same length are one dimension. */
static int dimension_of(const struct file *f, int64_t length) {
    const struct netcdf_state *s = f->state;
    char name[32];
    int id;
    snprintf(name, sizeof name, "d%lld", (long long)length);
    if (s->library->inq_dimid(s->file, name, &id) != NC_NOERR)
        CHECK_CALL(f, "def_dim", s->library->def_dim(s->file, name, (uint64_t)length, &id));
    return id;
}

static void define_dataset(const struct file *f, const struct dataset *d, int64_t copy) {
    const struct netcdf_state *s = f->state;
    char name[WORKLOAD_SET_NAME];
    int dimension[WORKLOAD_DIMENSIONS], variable;
    for (int i = 0; i < d->ndims; i++)
        dimension[i] = dimension_of(f, d->dims[i]);
    workload_set_name(d, copy, name);
    CHECK_CALL(f, "def_var",
               s->library->def_var(s->file, name, element_types[d->type], d->ndims, dimension, &variable));
    s->library->set_dataset_storage(f, variable, d);
}

static void define_datasets(const struct file *f) {
    const struct netcdf_state *s = f->state;
    const struct workload_file *w = f->workload;
    for (int i = 0; i < w->dataset_n; i++)
        for (int64_t copy = 0; copy < w->dataset[i].copies; copy++)
            define_dataset(f, &w->dataset[i], copy);
    /* Attributes are one text of as many bytes. */
    if (w->attribute_bytes > 0) {
        uint64_t bytes = (uint64_t)w->attribute_bytes;
        char *text = allocate(f->context, bytes, "attributes");
        memset(text, '-', bytes);
        CHECK_CALL(f, "put_att_text",
                   s->library->put_att_text(s->file, NC_GLOBAL, "attributes", bytes, text));
        free(text);
    }
    CHECK_CALL(f, "enddef", s->library->enddef(s->file));
}

void netcdf_open_datasets(struct file *f, const struct netcdf_library *library) {
    struct netcdf_state *s = new_state(f, library);
    if (f->creating) {
        s->file = library->create_file(f);
        define_datasets(f);
    } else {
        s->file = library->open_file(f);
    }
}

void netcdf_sync(struct file *f) {
    const struct netcdf_state *s = f->state;
    CHECK_CALL(f, "sync", s->library->sync(s->file));
}

void netcdf_close(struct file *f) {
    struct netcdf_state *s = f->state;
    CHECK_CALL(f, "close", s->library->close(s->file));
    free(s->access);
    free(s);
}
