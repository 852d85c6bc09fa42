/* The one table of interfaces. A backend is one file that fills one `struct backend`; entries that it does
 * not support stay NULL. A backend keeps nothing but what hangs on its `struct file`. */
#ifndef BENCHIO_BACKEND_H
#define BENCHIO_BACKEND_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "context.h"
#include "geometry.h"
#include "options.h"

/* One file while it is open on the ranks of `comm`. */
struct file {
    const struct context *context;
    const struct geometry *geometry;
    const char *path;
    MPI_Comm comm; /* the ranks that share this file */
    MPI_Info info; /* hints asked for, or MPI_INFO_NULL */
    bool writing;  /* create and write, or open and read */
    bool collective;
    bool direct;  /* open with O_DIRECT */
    void *buffer; /* of buffer_bytes(), for backends that pack */
    size_t buffer_bytes;
    struct hints *hints; /* not NULL: describe() appends what is really in force */
    uint64_t
        data_offset; /* set by open: where the data begin in the file; UNKNOWN_OFFSET if not contiguous */
    void *state;     /* of the backend, between open and close */

    /* Of a workload only: what the file holds; `geometry` is NULL then. */
    const struct workload_file *workload;
    bool creating, reading; /* new; also or only for reading */
};

#define UNKNOWN_OFFSET UINT64_MAX

/* What one operation of a workload moves. */
struct piece {
    void *memory;
    uint64_t bytes, offset; /* offset: in a file of bytes */
    int dataset;            /* in a file with data sets */
    int64_t copy;
    const int64_t *part; /* of a file view of bytes: pairs of offset and size; the first is at `offset` */
    size_t part_n;       /* 0: no view */
    /* The box of a data set, or of an array of bytes that begins at `offset`; ndims 0: bytes in a row. */
    int ndims;
    unsigned element; /* bytes */
    const int64_t *dims, *start, *extent;
    bool is_short; /* a read that gets what there is before the end of the file */
    bool halo;     /* in memory the box is inside of a larger array: piece_memory() */
};

/* The file of a workload: any number of data sets, or bytes. `file->writing` and `collective` are those of
 * each move. */
struct workload_io {
    bool takes_halo; /* moves boxes with a halo */
    void (*open)(struct file *file);
    void (*move)(struct file *file, const struct piece *piece);
    void (*sync)(struct file *file);
    void (*close)(struct file *file);
};

struct backend {
    const char *name; /* of --api, and in records */
    bool has_access;  /* collective and independent transfers */
    bool has_hints;   /* MPI-IO hints */
    bool has_layout;  /* dimensions, fill values, alignment */
    bool has_chunks;  /* chunked storage */
    bool has_files;   /* leaves files behind (all but null) */

    /* Name and version of the library as "HDF5 1.10.8", or an empty text. */
    void (*version)(char *text, size_t n);
    /* NULL, or why these options make no sense for this backend. */
    const char *(*refuse)(const struct options *options);
    /* Bytes of the transfer buffer that it packs into; 0 or NULL: none. */
    size_t (*buffer_bytes)(const struct options *options, const struct geometry *geometry);
    void (*open)(struct file *file);
    void (*transfer)(struct file *file, const struct slab *slab);
    /* Flush written data to the storage. */
    void (*sync)(struct file *file);
    void (*close)(struct file *file);
    /* Append the hints in force to file->hints; called between open and close. */
    void (*describe)(struct file *file);
    const struct workload_io *workload; /* NULL: null */
};

struct backend_entry {
    const char *name;
    const struct backend *backend; /* NULL: not built */
    const char *absent;            /* why not */
};

extern const struct backend_entry backends[];
extern const int backend_count;
extern const struct backend backend_null, backend_posix, backend_mpiio, backend_hdf5, backend_netcdf4,
    backend_pnetcdf;

/* A key that no library knows, given along with hints: one that gives it back gives back everything. */
#define UNKNOWN_HINT "benchio_made_up"

/* Append all hints of `info` to `hints`. */
void backend_append_info(const struct context *context, MPI_Info info, struct hints *hints);

#endif
