/* What the backends netcdf4 and pnetcdf have in common: the data model of netCDF (dimensions, variables,
 * attributes), and functions that differ in their prefix only, nc_ or ncmpi_. */
#ifndef BENCHIO_NETCDF_COMMON_H
#define BENCHIO_NETCDF_COMMON_H

#include "backend.h"
#include "fail.h"
#include "workload.h"

/* One of the two libraries. */
struct netcdf_library {
    const char *prefix;     /* of the names of its functions, for messages */
    const char *state_name; /* what the memory of `struct netcdf_state` is for, for messages */
    const char *(*error_text)(int status);

    /* The functions of the library; they return NC_NOERR or the number of an error. */
    int (*inq_dimid)(int file, const char *name, int *dimension);
    int (*def_dim)(int file, const char *name, uint64_t length, int *dimension);
    int (*inq_varid)(int file, const char *name, int *variable);
    int (*def_var)(int file, const char *name, int type, int ndims, const int *dimensions, int *variable);
    int (*put_att_text)(int file, int variable, const char *name, uint64_t length, const char *text);
    int (*enddef)(int file);
    int (*sync)(int file);
    int (*close)(int file);

    /* What has another name or another meaning in each library; they return the file, and fail themselves. */
    int (*create_file)(const struct file *file);
    int (*open_file)(const struct file *file);
    /* How a variable is stored: fill values, chunks, filter. Called after its definition; `set_storage` for
     * the variable of a measurement, `set_dataset_storage` for one of a workload. */
    void (*set_storage)(const struct file *file, int variable);
    void (*set_dataset_storage)(const struct file *file, int variable, const struct dataset *dataset);
};

/* `state` of an open file. */
struct netcdf_state {
    const struct netcdf_library *library;
    int file;
    int variable; /* of a measurement; those of a workload have the numbers in the order of their definition
                   */
    signed char *access; /* of each variable of a workload, as the backend has it; NULL: it has none */
};

/* Fail with the text of the library. */
noreturn void netcdf_fail(const struct file *file, struct place place, int status);

#define CHECK_NETCDF(f, operation, call)                                                                     \
    do {                                                                                                     \
        int status_ = (call);                                                                                \
        if (status_ != NC_NOERR)                                                                             \
            netcdf_fail((f), PLACE((f)->path, (operation)), status_);                                        \
    } while (0)

/* Create a file with the variable `data` of a measurement, or open it. */
void netcdf_open(struct file *file, const struct netcdf_library *library);
/* Create or open a file of a workload. */
void netcdf_open_datasets(struct file *file, const struct netcdf_library *library);
void netcdf_sync(struct file *file);
void netcdf_close(struct file *file);

#endif
