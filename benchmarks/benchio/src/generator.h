/* The data: every element is a function of (seed, file, its place in the data set), so that checking needs no
 * second copy and a byte at a wrong place or of another file is seen. */
#ifndef BENCHIO_GENERATOR_H
#define BENCHIO_GENERATOR_H

#include <stdint.h>

#include "geometry.h"

/* Value of the halo cells, which must never reach a file nor be touched by a read. */
#define HALO_VALUE (-1.0)

/* The first difference found by a check. */
struct difference {
    uint64_t count;           /* elements (block3d) or bytes that differ; 0: none */
    uint64_t offset;          /* of the first, bytes into the data set; UINT64_MAX: a halo cell */
    uint64_t expected, found; /* bits of the element, or the byte */
};

uint64_t generator_key(uint64_t seed, uint64_t file);

/* block3d: fill the local array with data (`poison` false) or with a value that is never data, and the halos.
 */
void generator_fill_box(const struct geometry *geometry, uint64_t key, double *array, bool poison);
struct difference generator_check_box(const struct geometry *geometry, uint64_t key, const double *array);

/* The bytes [offset, offset + n) of a one- or two-dimensional data set. */
void generator_fill_bytes(uint64_t key, uint64_t offset, uint64_t n, unsigned char *bytes);
struct difference generator_check_bytes(uint64_t key, uint64_t offset, uint64_t n,
                                        const unsigned char *bytes);

#endif
