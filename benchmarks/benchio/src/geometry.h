/* Who moves which part of a file, as arithmetic: nothing is stored per transfer, so cost is flat in their
 * number. */
#ifndef BENCHIO_GEOMETRY_H
#define BENCHIO_GEOMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* The part of one rank in one file. Dimensions are in C order: the slowest varying first. */
struct geometry {
    int pattern;
    int ndims;
    uint64_t dims[3];                                   /* elements of the data set in the file */
    uint64_t chunk[3];                                  /* chunk[0] == 0: contiguous */
    size_t element;                                     /* bytes: 8 (double) or 1 */
    uint64_t rank, ranks;                               /* in this file */
    uint64_t grid[3];                                   /* block3d: processes in each dimension */
    uint64_t start[3], count[3];                        /* block3d: this rank's box */
    uint64_t planes;                                    /* block3d: planes a step */
    uint64_t transfer, block, segments, per_block, row; /* bytes; per_block: transfers a block */
    uint64_t steps;                                     /* transfers, the same on all ranks of the file */
    uint64_t bytes, file_bytes;                         /* user data of this rank, of the file */
    size_t array_bytes;                                 /* of the memory that slabs point into */
};

/* One transfer. The memory is a box `count` at `memory_start` inside an array `memory_dims` at `memory`. */
struct slab {
    int ndims;
    size_t element;
    uint64_t start[3], count[3]; /* in the data set, elements; count[0] == 0: nothing, but takes part */
    uint64_t memory_dims[3], memory_start[3];
    char *memory;
    uint64_t elements;
    uint64_t first;  /* offset of the first element in the data set, bytes */
    uint64_t extent; /* what the first dimension must hold after this step on all ranks, elements */
};

/* The geometry of `rank` of `ranks` in one file. `box_rank` of `box_ranks` divides --global (instance), which
 * differs from rank for per-process files. Returns NULL, or why it is impossible. */
const char *geometry_make(struct geometry *geometry, const struct options *options, uint64_t rank,
                          uint64_t ranks, uint64_t box_rank, uint64_t box_ranks);

/* Step `step` in `array`: block3d the whole local array with halos, otherwise one transfer. */
struct slab geometry_step(const struct geometry *geometry, uint64_t step, void *array);

/* The extent of contiguous runs of a block3d box in the file, in elements: a row, whole planes or the whole
 * box. */
uint64_t geometry_run(const struct geometry *geometry);

/* Copy between the slab's memory and `buffer`, elements [from, from + n) of the slab in its own order. */
void slab_pack(const struct slab *slab, uint64_t from, uint64_t n, char *buffer);
void slab_unpack(const struct slab *slab, uint64_t from, uint64_t n, const char *buffer);

/* Process grid of `n`, non-increasing (as MPI_Dims_create), so that the fastest dimension is split last. */
void grid_make(uint64_t n, uint64_t grid[3]);

#endif
