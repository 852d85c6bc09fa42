#include "generator.h"

#include <string.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* The output function of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits. */
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t generator_key(uint64_t seed, uint64_t file) {
    return mix(mix(seed + GOLDEN) + (file + 1) * GOLDEN);
}

static uint64_t word(uint64_t key, uint64_t index) {
    return mix(key + (index + 1) * GOLDEN);
}

/* A double in [1, 2) with 52 random bits: finite, exact, never equal to the halo value or to zero. */
static double element(uint64_t key, uint64_t index) {
    uint64_t bits = word(key, index) >> 12 | UINT64_C(0x3ff) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void generator_fill_box(const struct geometry *g, uint64_t key, double *array, bool poison) {
    for (uint64_t z = 0; z < g->count[0] + 2; z++) {
        for (uint64_t y = 0; y < g->count[1] + 2; y++) {
            double *row = array + (z * (g->count[1] + 2) + y) * (g->count[2] + 2);
            bool halo = z == 0 || z > g->count[0] || y == 0 || y > g->count[1];
            uint64_t index =
                ((g->start[0] + z - 1) * g->dims[1] + g->start[1] + y - 1) * g->dims[2] + g->start[2] - 1;
            for (uint64_t x = 0; x < g->count[2] + 2; x++)
                row[x] = halo || x == 0 || x > g->count[2] ? HALO_VALUE
                         : poison                          ? 0.0
                                                           : element(key, index + x);
        }
    }
}

static void note(struct difference *difference, uint64_t offset, uint64_t expected, uint64_t found) {
    if (difference->count++ == 0) {
        difference->offset = offset;
        difference->expected = expected;
        difference->found = found;
    }
}

struct difference generator_check_box(const struct geometry *g, uint64_t key, const double *array) {
    struct difference difference = {0};
    for (uint64_t z = 0; z < g->count[0] + 2; z++) {
        for (uint64_t y = 0; y < g->count[1] + 2; y++) {
            const double *row = array + (z * (g->count[1] + 2) + y) * (g->count[2] + 2);
            bool halo_row = z == 0 || z > g->count[0] || y == 0 || y > g->count[1];
            uint64_t index =
                ((g->start[0] + z - 1) * g->dims[1] + g->start[1] + y - 1) * g->dims[2] + g->start[2] - 1;
            for (uint64_t x = 0; x < g->count[2] + 2; x++) {
                bool halo = halo_row || x == 0 || x > g->count[2];
                uint64_t expected = bits_of(halo ? HALO_VALUE : element(key, index + x)),
                         found = bits_of(row[x]);
                if (expected != found)
                    note(&difference, halo ? UINT64_MAX : (index + x) * sizeof(double), expected, found);
            }
        }
    }
    return difference;
}

static unsigned char byte(uint64_t key, uint64_t offset) {
    return (unsigned char)(word(key, offset / 8) >> offset % 8 * 8);
}

/* Bytes before the first whole word, words, bytes after: little-endian order of bytes() whatever the machine.
 */
void generator_fill_bytes(uint64_t key, uint64_t offset, uint64_t n, unsigned char *bytes) {
    uint64_t i = 0;
    for (; i < n && (offset + i) % 8 != 0; i++)
        bytes[i] = byte(key, offset + i);
    for (; i + 8 <= n; i += 8) {
        uint64_t value = word(key, (offset + i) / 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        value = __builtin_bswap64(value);
#endif
        memcpy(bytes + i, &value, sizeof value);
    }
    for (; i < n; i++)
        bytes[i] = byte(key, offset + i);
}

struct difference generator_check_bytes(uint64_t key, uint64_t offset, uint64_t n,
                                        const unsigned char *bytes) {
    struct difference difference = {0};
    unsigned char expected[4096];
    for (uint64_t from = 0; from < n; from += sizeof expected) {
        uint64_t length = n - from < sizeof expected ? n - from : sizeof expected;
        generator_fill_bytes(key, offset + from, length, expected);
        if (memcmp(expected, bytes + from, length) == 0)
            continue;
        for (uint64_t i = 0; i < length; i++)
            if (expected[i] != bytes[from + i])
                note(&difference, offset + from + i, expected[i], bytes[from + i]);
    }
    return difference;
}
