/* Everything that a user can choose. One table (options_table.c) holds name, type, default, help and target
 * of each. */
#ifndef BENCHIO_OPTIONS_H
#define BENCHIO_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"

#define BENCHIO_ENUM(symbol, text) symbol,

#define BENCHIO_FILES(X)                                                                                     \
    X(FILE_SHARED, "shared")                                                                                 \
    X(FILE_PER_PROCESS, "per-process")                                                                       \
    X(FILE_PER_NODE, "per-node")
#define BENCHIO_PATTERNS(X)                                                                                  \
    X(PATTERN_BLOCK3D, "block3d")                                                                            \
    X(PATTERN_DISJOINT, "disjoint")                                                                          \
    X(PATTERN_INTERLEAVED, "interleaved")
#define BENCHIO_OPS(X)                                                                                       \
    X(OP_WRITE, "write")                                                                                     \
    X(OP_READ, "read")                                                                                       \
    X(OP_BOTH, "both")
#define BENCHIO_CACHES(X)                                                                                    \
    X(CACHE_KEEP, "keep")                                                                                    \
    X(CACHE_DROP, "drop")                                                                                    \
    X(CACHE_DIRECT, "direct")
#define BENCHIO_SYNCS(X)                                                                                     \
    X(SYNC_NONE, "none")                                                                                     \
    X(SYNC_END, "end")                                                                                       \
    X(SYNC_EACH, "each")
#define BENCHIO_ACCESSES(X)                                                                                  \
    X(ACCESS_COLLECTIVE, "collective")                                                                       \
    X(ACCESS_INDEPENDENT, "independent")

#define BENCHIO_FILTERS(X)                                                                                   \
    X(FILTER_NONE, "none")                                                                                   \
    X(FILTER_DEFLATE, "deflate")                                                                             \
    X(FILTER_SZIP, "szip")                                                                                   \
    X(FILTER_ZSTD, "zstd")
#define BENCHIO_DRIVERS(X)                                                                                   \
    X(DRIVER_MPIO, "mpio")                                                                                   \
    X(DRIVER_SUBFILING, "subfiling")
#define BENCHIO_BYTE_ORDERS(X)                                                                               \
    X(BYTE_ORDER_NATIVE, "native")                                                                           \
    X(BYTE_ORDER_BIG, "big")

enum file_layout { BENCHIO_FILES(BENCHIO_ENUM) };
enum pattern { BENCHIO_PATTERNS(BENCHIO_ENUM) };
enum op { BENCHIO_OPS(BENCHIO_ENUM) };
enum cache_policy { BENCHIO_CACHES(BENCHIO_ENUM) };
enum sync_policy { BENCHIO_SYNCS(BENCHIO_ENUM) };
enum access { BENCHIO_ACCESSES(BENCHIO_ENUM) };
enum filter { BENCHIO_FILTERS(BENCHIO_ENUM) };
enum driver { BENCHIO_DRIVERS(BENCHIO_ENUM) };
enum byte_order { BENCHIO_BYTE_ORDERS(BENCHIO_ENUM) };

/* A list of sizes as the user wrote it, the fastest varying dimension first; n == 0: not given. */
struct sizes {
    uint64_t size[3];
    int n;
};

/* Hints of MPI-IO (and PnetCDF) as given on the command line and in the hints file, in order; or those in
 * force.
 */
struct hints {
    size_t n;
    bool repeats; /* in force: the library returns all hints that it got, so their effect is unknown */
    struct hint {
        char *key, *value;
    } * item;
};

#define SHIFT_AUTO UINT64_MAX

struct options {
    int api; /* index into backends[] */
    int file, pattern, op, cache, sync, access;
    uint64_t instances;
    struct sizes local, global; /* elements of block3d; exactly one is in force */
    uint64_t transfer, block, segments;
    uint64_t row; /* bytes of the second dimension, 0: one-dimensional */
    uint64_t shift;
    struct sizes chunk;
    int filter, driver, byte_order;
    uint64_t filter_level; /* 0: the default of FILTER */
    uint64_t chunk_cache;  /* bytes per data set, 0: that of the library */
    bool unlimited, fill, collective_metadata;
    uint64_t align;
    uint64_t stripe_count, stripe_size;
    struct hints hints;
    const char *hints_file;
    const char *workload; /* a description (docs/workloads.md); NULL: the patterns of these options */
    struct hints sets;    /* values of its parameters */
    bool check;
    uint64_t repeat, timeout;
    double min_time;
    bool verify, keep, existing, quiet;
    uint64_t seed;
    const char *dir, *name, *json, *run_id;
    bool help, version;
};

extern const char *const file_names[],
    *const pattern_names[], *const op_names[], *const cache_names[],
                                                   *const sync_names[], *const access_names[],
                                                                            *const filter_names[],
                                                                                *const driver_names[],
                                                                                    *const byte_order_names[];

/* Parse the command line, read the hints file, fill in what depends on other options, refuse what makes no
 * sense. Returns true, or false with a complete message in `message` (which holds `n` bytes). */
bool options_parse(struct options *options, int argc, char **argv, char *message, size_t n);

/* Refuse what makes no sense for `ranks` processes; as above. */
bool options_check_ranks(const struct options *options, int ranks, char *message, size_t n);

void options_free(struct options *options);

/* The text of --help. */
void options_help(void);

/* The effective options as members of an open JSON object. `identity` leaves out those that do not change
 * what is measured (directory, names, output). */
void options_json(const struct options *options, struct json *json, bool identity);

#endif
