#define _GNU_SOURCE
#include "workload_data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "fail.h"

#define LINE_BYTES ((size_t)64)

void workload_set_name(const struct dataset *d, int64_t copy, char name[WORKLOAD_SET_NAME]) {
    if (d->copies == 1)
        snprintf(name, WORKLOAD_SET_NAME, "%s", d->name);
    else
        snprintf(name, WORKLOAD_SET_NAME, "%s_%04" PRId64, d->name, copy);
}

size_t workload_set_index(const struct workload_file *f, const struct dataset *set, int64_t copy) {
    size_t n = (size_t)copy;
    for (const struct dataset *d = f->dataset; d < f->dataset + f->dataset_n && d != set; d++)
        n += (size_t)d->copies;
    return n;
}

uint64_t data_key(uint64_t seed, int file, int64_t number, int color, int dataset, int64_t copy) {
    uint64_t key =
        generator_key(generator_key(seed, (uint64_t)file), (uint64_t)number << 31 | (uint64_t)color);
    return dataset < 0 ? key : generator_key(key, (uint64_t)dataset << 20 | (uint64_t)copy);
}

#define ROW_HALO_BYTES 8

void piece_memory(const struct piece *p, uint64_t dims[WORKLOAD_DIMENSIONS],
                  uint64_t start[WORKLOAD_DIMENSIONS]) {
    for (int i = 0; i < p->ndims; i++) {
        start[i] = !p->halo ? 0 : p->element == 1 && i == p->ndims - 1 ? ROW_HALO_BYTES : 1;
        dims[i] = (uint64_t)p->extent[i] + 2 * start[i];
    }
}

uint64_t piece_memory_bytes(const struct piece *p) {
    uint64_t dims[WORKLOAD_DIMENSIONS], start[WORKLOAD_DIMENSIONS], bytes = p->element;
    if (!p->halo || p->bytes == 0)
        return p->bytes;
    piece_memory(p, dims, start);
    for (int i = 0; i < p->ndims; i++)
        if (!size_multiply(bytes, dims[i], &bytes))
            return UINT64_MAX;
    return bytes;
}

/* The parts of a piece that are contiguous in the file: (offset, bytes), and where they are in memory. */
struct rows {
    const struct piece *piece;
    int64_t at[WORKLOAD_DIMENSIONS]; /* of the row, relative to the start */
    uint64_t bytes, done, memory;
    size_t part; /* of a view: the next one */
};

static struct rows rows_of(const struct piece *p) {
    struct rows rows = {.piece = p, .bytes = p->bytes};
    if (p->ndims > 0)
        rows.bytes = p->element * (uint64_t)p->extent[p->ndims - 1];
    return rows;
}

/* Bytes from the beginning of the memory to the row. */
static uint64_t place_in_memory(const struct rows *r) {
    const struct piece *p = r->piece;
    uint64_t dims[WORKLOAD_DIMENSIONS], start[WORKLOAD_DIMENSIONS], place = 0;
    if (!p->halo)
        return r->done;
    piece_memory(p, dims, start);
    for (int i = 0; i < p->ndims; i++)
        place = place * dims[i] + start[i] + (uint64_t)r->at[i];
    return place * p->element;
}

/* False: there is none left. */
static bool next_row(struct rows *r, uint64_t *offset) {
    const struct piece *p = r->piece;
    if (r->done >= p->bytes)
        return false;
    r->memory = place_in_memory(r);
    if (p->part_n > 0) {
        const int64_t *part = &p->part[2 * r->part++];
        *offset = (uint64_t)part[0];
        r->bytes = (uint64_t)part[1];
        r->done += r->bytes;
        return true;
    }
    *offset = 0;
    for (int i = 0; i < p->ndims; i++)
        *offset = *offset * (uint64_t)p->dims[i] + (uint64_t)(p->start[i] + r->at[i]);
    *offset = p->offset + *offset * p->element;
    for (int i = p->ndims - 2; i >= 0 && ++r->at[i] == p->extent[i]; i--)
        r->at[i] = 0;
    r->done += r->bytes;
    return true;
}

void data_fill(uint64_t key, const struct piece *p) {
    struct rows rows = rows_of(p);
    for (uint64_t offset; next_row(&rows, &offset);)
        generator_fill_bytes(key, offset, rows.bytes, (unsigned char *)p->memory + rows.memory);
}

struct difference data_check(uint64_t key, const struct piece *p) {
    struct difference all = {0};
    struct rows rows = rows_of(p);
    for (uint64_t offset; next_row(&rows, &offset);) {
        struct difference d =
            generator_check_bytes(key, offset, rows.bytes, (const unsigned char *)p->memory + rows.memory);
        uint64_t count = all.count + d.count;
        if (all.count == 0)
            all = d;
        all.count = count;
    }
    return all;
}

unsigned char *ring_map(const struct context *c, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK_POSIX(c, "", "mmap", memory != MAP_FAILED);
    return memory;
}

/* The next access of a page maps it again. */
static void unmap_pages(const struct ring *ring) {
    madvise(ring->memory, ring->bytes, MADV_DONTNEED);
}

void ring_begin(struct ring *ring) {
    ring->next = 0;
    if (ring->kind == MEMORY_KEPT)
        unmap_pages(ring);
}

void *ring_next(struct ring *ring, uint64_t bytes) {
    if (bytes > ring->bytes - ring->next)
        ring->next = 0;
    unsigned char *memory = ring->memory + ring->next;
    if (ring->kind == MEMORY_NEW && ring->next == 0)
        unmap_pages(ring);
    size_t next = ring->next + (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    ring->next = next < ring->bytes && ring->kind != MEMORY_REUSED ? next : 0;
    return memory;
}
