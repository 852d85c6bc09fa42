#include "geometry.h"

#include <string.h>

#include "size.h"

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static uint64_t divide_up(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

/* The most compact box of n processes; the slowest dimension gets the most, as with MPI_Dims_create. */
void grid_make(uint64_t n, uint64_t grid[3]) {
    uint64_t best = UINT64_MAX;
    for (uint64_t c = 1; c * c * c <= n; c++) {
        for (uint64_t b = c; n % c == 0 && b * b <= n / c; b++) {
            uint64_t a = n / c / b;
            if (n / c % b == 0 && a + b + c < best) {
                best = a + b + c;
                grid[0] = a, grid[1] = b, grid[2] = c;
            }
        }
    }
}

/* Where part `i` of `parts` begins in `n`: sizes differ by one at most. */
static uint64_t part_start(uint64_t n, uint64_t parts, uint64_t i) {
    return i * (n / parts) + least(i, n % parts);
}

/* O_DIRECT moves whole pages only: every contiguous run must begin and end on one. */
static bool on_pages(const struct geometry *g) {
    uint64_t run = geometry_run(g), plane = g->dims[1] * g->dims[2], first;
    uint64_t stride = run == g->count[2] ? g->dims[2] : run == g->count[1] * g->count[2] ? plane : 0;
    first = (g->start[0] * g->dims[1] + g->start[1]) * g->dims[2] + g->start[2];
    uint64_t step = g->steps > 1 ? g->count[1] * g->count[2] : 0;
    return (run | stride | plane | first | step) * g->element % 4096 == 0;
}

static const char *make_block3d(struct geometry *g, const struct options *o, uint64_t box_rank,
                                uint64_t box_ranks) {
    bool global = o->global.n > 0, own_file = g->ranks == 1;
    grid_make(global ? box_ranks : g->ranks, g->grid);
    uint64_t rank = global ? box_rank : g->rank;
    uint64_t coordinate[3] = {rank % g->grid[0], rank / g->grid[0] % g->grid[1],
                              rank / g->grid[0] / g->grid[1]};
    uint64_t largest[3], elements = 1;
    g->ndims = 3;
    g->element = sizeof(double);
    g->array_bytes = sizeof(double);
    for (int d = 0; d < 3; d++) {
        uint64_t n = global ? o->global.size[2 - d] : o->local.size[2 - d];
        if (!global && !size_multiply(n, g->grid[d], &n))
            return "the global size is too large";
        if (n < g->grid[d])
            return "--global has fewer elements in a dimension than there are processes";
        g->dims[d] = n;
        g->start[d] = part_start(n, g->grid[d], coordinate[d]);
        g->count[d] = part_start(n, g->grid[d], coordinate[d] + 1) - g->start[d];
        largest[d] = divide_up(n, g->grid[d]);
        if (n > INT32_MAX)
            return "a dimension is larger than 2^31 - 1, which MPI datatypes cannot hold";
        if (!size_multiply(elements, n, &elements) || elements > INT64_MAX / 16)
            return "the file is too large";
        g->array_bytes *= g->count[d] + 2;
    }
    if (own_file && g->ranks != box_ranks && global)
        for (int d = 0; d < 3; d++)
            g->dims[d] = largest[d] = g->count[d], g->start[d] = 0, g->grid[d] = 1;
    uint64_t plane = largest[1] * largest[2] * sizeof(double);
    g->planes = o->transfer == 0 ? largest[0] : least(o->transfer / plane, largest[0]);
    if (g->planes == 0)
        return "--transfer is smaller than one plane of a rank's block";
    g->steps = divide_up(largest[0], g->planes);
    g->bytes = g->count[0] * g->count[1] * g->count[2] * sizeof(double);
    g->file_bytes = g->dims[0] * g->dims[1] * g->dims[2] * sizeof(double);
    if (o->cache == CACHE_DIRECT && !on_pages(g))
        return "--cache direct: rows or planes that are contiguous in the file must be multiples of 4096 "
               "bytes";
    return NULL;
}

static const char *make_stream(struct geometry *g, const struct options *o) {
    g->element = 1;
    g->transfer = o->transfer;
    g->block = o->block;
    g->segments = o->segments;
    g->row = o->row;
    g->per_block = divide_up(o->block, o->transfer);
    g->array_bytes = o->transfer;
    if (!size_multiply(o->block, o->segments, &g->bytes) ||
        !size_multiply(g->bytes, g->ranks, &g->file_bytes) ||
        !size_multiply(g->per_block, o->segments, &g->steps))
        return "the file is too large";
    if (g->row > 0 && g->file_bytes % g->row != 0)
        return "--row does not divide the bytes of the file";
    g->ndims = g->row > 0 ? 2 : 1;
    g->dims[0] = g->row > 0 ? g->file_bytes / g->row : g->file_bytes;
    g->dims[1] = g->row;
    return NULL;
}

/* Chunks of hdf5 and netcdf4: as asked; else for unlimited data what one rank transfers at once. */
static const char *make_chunk(struct geometry *g, const struct options *o) {
    uint64_t bytes = g->element;
    for (int d = 0; d < g->ndims; d++) {
        if (o->chunk.n > 0)
            g->chunk[d] = o->chunk.size[g->ndims - 1 - d];
        else if (o->unlimited)
            g->chunk[d] = g->pattern == PATTERN_BLOCK3D
                              ? least(divide_up(g->dims[d], g->grid[d]), d > 0 ? 256 : 64)
                          : d == g->ndims - 1 ? least(g->transfer, 64 << 20)
                                              : 1;
        if (g->chunk[d] > g->dims[d])
            return "--chunk is larger than the data";
        if (g->chunk[d] > 0 && (!size_multiply(bytes, g->chunk[d], &bytes) || bytes >= UINT32_MAX))
            return "--chunk: a chunk must be smaller than 4 GiB";
    }
    return NULL;
}

const char *geometry_make(struct geometry *g, const struct options *o, uint64_t rank, uint64_t ranks,
                          uint64_t box_rank, uint64_t box_ranks) {
    *g = (struct geometry){.pattern = o->pattern, .rank = rank, .ranks = ranks};
    const char *reason =
        o->pattern == PATTERN_BLOCK3D ? make_block3d(g, o, box_rank, box_ranks) : make_stream(g, o);
    return reason != NULL ? reason : make_chunk(g, o);
}

static struct slab step_block3d(const struct geometry *g, uint64_t step, void *array) {
    uint64_t from = least(step * g->planes, g->count[0]), to = least(from + g->planes, g->count[0]);
    struct slab slab = {.ndims = 3, .element = g->element};
    for (int d = 0; d < 3; d++) {
        slab.start[d] = g->start[d];
        slab.count[d] = g->count[d];
        slab.memory_dims[d] = g->count[d] + 2;
        slab.memory_start[d] = 1;
    }
    uint64_t plane = slab.memory_dims[1] * slab.memory_dims[2] * g->element;
    slab.start[0] += from;
    slab.count[0] = slab.memory_dims[0] = to - from;
    slab.memory_start[0] = 0;
    slab.memory = (char *)array + (from + 1) * plane;
    slab.elements = slab.count[0] * slab.count[1] * slab.count[2];
    slab.first = ((slab.start[0] * g->dims[1] + slab.start[1]) * g->dims[2] + slab.start[2]) * g->element;
    uint64_t top = part_start(g->dims[0], g->grid[0], g->grid[0] - 1);
    slab.extent = least(top + (step + 1) * g->planes, g->dims[0]);
    return slab;
}

static uint64_t stream_offset(const struct geometry *g, uint64_t rank, uint64_t segment) {
    return g->pattern == PATTERN_INTERLEAVED ? (segment * g->ranks + rank) * g->block
                                             : (rank * g->segments + segment) * g->block;
}

static struct slab step_stream(const struct geometry *g, uint64_t step, void *array) {
    uint64_t segment = step / g->per_block, inside = step % g->per_block * g->transfer;
    uint64_t n = least(g->transfer, g->block - inside);
    struct slab slab = {.ndims = g->ndims, .element = 1, .memory = array, .elements = n};
    slab.first = stream_offset(g, g->rank, segment) + inside;
    uint64_t end = stream_offset(g, g->ranks - 1, segment) + inside + n;
    if (g->row > 0) {
        slab.start[0] = slab.first / g->row, slab.start[1] = slab.first % g->row;
        slab.count[0] = slab.memory_dims[0] = 1;
        slab.count[1] = slab.memory_dims[1] = n;
        slab.extent = divide_up(end, g->row);
    } else {
        slab.start[0] = slab.first;
        slab.count[0] = slab.memory_dims[0] = n;
        slab.extent = end;
    }
    return slab;
}

struct slab geometry_step(const struct geometry *g, uint64_t step, void *array) {
    return g->pattern == PATTERN_BLOCK3D ? step_block3d(g, step, array) : step_stream(g, step, array);
}

uint64_t geometry_run(const struct geometry *g) {
    uint64_t run = g->count[2];
    if (g->count[2] == g->dims[2])
        run *= g->count[1];
    if (g->count[2] == g->dims[2] && g->count[1] == g->dims[1])
        run *= g->count[0];
    return run;
}

static void copy(const struct slab *s, uint64_t from, uint64_t n, char *buffer, bool pack) {
    if (s->ndims < 3) {
        char *memory = s->memory + from * s->element;
        memcpy(pack ? buffer : memory, pack ? memory : buffer, n * s->element);
        return;
    }
    while (n > 0) {
        uint64_t row = from / s->count[2], x = from % s->count[2], length = least(s->count[2] - x, n);
        uint64_t z = row / s->count[1], y = row % s->count[1] + s->memory_start[1];
        char *memory =
            s->memory +
            ((z * s->memory_dims[1] + y) * s->memory_dims[2] + s->memory_start[2] + x) * s->element;
        memcpy(pack ? buffer : memory, pack ? memory : buffer, length * s->element);
        buffer += length * s->element;
        from += length;
        n -= length;
    }
}

void slab_pack(const struct slab *slab, uint64_t from, uint64_t n, char *buffer) {
    copy(slab, from, n, buffer, true);
}

void slab_unpack(const struct slab *slab, uint64_t from, uint64_t n, const char *buffer) {
    copy(slab, from, n, (char *)(uintptr_t)buffer, false);
}
