/* The data of a workload's files: a function of file, data set and position. The memory of its transfers. */
#ifndef BENCHIO_WORKLOAD_DATA_H
#define BENCHIO_WORKLOAD_DATA_H

#include "generator.h"
#include "workload.h"

/* Of one file, or of one copy of one of its data sets (-1: bytes). */
uint64_t data_key(uint64_t seed, int file, int64_t number, int color, int dataset, int64_t copy);

/* The array in memory that holds the box of a piece, and where the box begins in it. A halo is one element on
 * each side of each dimension, as the ghost cells of an application; 8 bytes at the ends of rows of bytes. */
void piece_memory(const struct piece *piece, uint64_t dims[WORKLOAD_DIMENSIONS],
                  uint64_t start[WORKLOAD_DIMENSIONS]);
/* Of that array; UINT64_MAX: too many. */
uint64_t piece_memory_bytes(const struct piece *piece);

/* The bytes of `piece`, or the elements of its box. */
void data_fill(uint64_t key, const struct piece *piece);
struct difference data_check(uint64_t key, const struct piece *piece);

/* An application's data are seldom in the nearest caches of the processor: transfers go around in so many
 * bytes. */
#define RING_BYTES ((size_t)16 << 20)

struct ring {
    unsigned char *memory;
    size_t bytes, next;
    enum memory kind;
};
/* New memory, of which no page is mapped yet; munmap() returns it. */
unsigned char *ring_map(const struct context *context, size_t bytes);
/* A repetition begins as the program did: with memory that it has not touched yet, if it was so. */
void ring_begin(struct ring *ring);
/* The memory of the next transfer, of at most `bytes` of the ring. */
void *ring_next(struct ring *ring, uint64_t bytes);

#endif
