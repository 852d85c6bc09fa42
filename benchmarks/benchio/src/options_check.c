#include <inttypes.h>
#include <string.h>

#include "backend.h"
#include "options_table.h"

/* Options that belong to another pattern. */
static bool check_pattern(const struct options *o, int argc, char **argv, struct refusal *refusal) {
    static const char *const of_block3d[] = {"local", "global"}, *const of_streams[] = {"block", "segments",
                                                                                        "row"};
    bool block3d = o->pattern == PATTERN_BLOCK3D;
    const char *const *foreign = block3d ? of_streams : of_block3d;
    for (size_t i = 0; i < (block3d ? 3u : 2u); i++)
        if (option_given(argc, argv, foreign[i]))
            return refuse(refusal, "--%s has no meaning for --pattern %s", foreign[i],
                          pattern_names[o->pattern]);
    if (!block3d) {
        if (o->segments == 0 || o->block == 0 || o->transfer == 0)
            return refuse(refusal, "--transfer, --block and --segments must be at least 1");
        if (o->transfer > o->block)
            return refuse(refusal,
                          "--transfer (%" PRIu64 " bytes) is larger than --block (%" PRIu64 " bytes)",
                          o->transfer, o->block);
        return true;
    }
    if (option_given(argc, argv, "local") && option_given(argc, argv, "global"))
        return refuse(refusal, "--local and --global exclude each other");
    const struct sizes *sizes = o->global.n > 0 ? &o->global : &o->local;
    if (sizes->n != 3)
        return refuse(refusal, "--%s needs three sizes: NXxNYxNZ", o->global.n > 0 ? "global" : "local");
    if (o->global.n > 0 && o->file == FILE_PER_NODE)
        return refuse(
            refusal,
            "--global with --file per-node: the blocks of a node form no box in general; use --local");
    return true;
}

static bool check_layout(const struct options *o, struct refusal *refusal) {
    const struct backend *backend = backends[o->api].backend;
    const char *api = backend->name;
    int dimensions = o->pattern == PATTERN_BLOCK3D ? 3 : o->row > 0 ? 2 : 1;
    if (!backend->has_layout && (o->row > 0 || o->unlimited || o->fill || o->align > 0))
        return refuse(
            refusal,
            "--row, --unlimited, --fill and --align are for libraries that know dimensions; %s does not",
            api);
    if (!backend->has_chunks && o->chunk.n > 0)
        return refuse(refusal, "--chunk: %s has no chunked storage", api);
    if (o->chunk.n > 0 && o->chunk.n != dimensions)
        return refuse(refusal, "--chunk has %d sizes, the data have %d dimensions", o->chunk.n, dimensions);
    if (o->row > 0 && (o->row % o->transfer != 0 || o->block % o->transfer != 0))
        return refuse(refusal,
                      "--row and --block must be multiples of --transfer, so that a transfer stays in a row");
    if (o->byte_order != BYTE_ORDER_NATIVE && (!backend->has_chunks || o->pattern != PATTERN_BLOCK3D))
        return refuse(refusal, "--byte-order is a choice of hdf5 and netcdf4, with --pattern block3d: bytes "
                               "have no order");
    if (o->unlimited && o->access == ACCESS_INDEPENDENT)
        return refuse(refusal, "--unlimited needs --access collective: extending is a collective operation");
    return true;
}

static bool check_chunks(const struct options *o, struct refusal *refusal) {
    bool chunked = o->chunk.n > 0;
    if (!chunked && (o->filter != FILTER_NONE || o->chunk_cache > 0))
        return refuse(refusal, "--filter and --chunk-cache need --chunk");
    if (o->filter != FILTER_NONE && o->access == ACCESS_INDEPENDENT)
        return refuse(refusal, "--filter needs --access collective: ranks share compressed chunks");
    if (o->filter == FILTER_SZIP && (o->pattern != PATTERN_BLOCK3D || o->chunk.size[0] < 32))
        return refuse(refusal,
                      "--filter szip needs --pattern block3d and chunks of at least 32 elements in x: "
                      "HDF5 1.10.8 reads back other bytes of 8-bit data that szip cannot compress");
    uint64_t most = o->filter == FILTER_DEFLATE ? 9 : o->filter == FILTER_ZSTD ? 22 : 0;
    if (o->filter_level > most)
        return refuse(refusal, "--filter-level %" PRIu64 ": --filter %s has levels up to %" PRIu64,
                      o->filter_level, filter_names[o->filter], most);
    return true;
}

/* Subfiles are opened by threads of the library: no MPI-IO hint reaches them, and benchio cannot drop them
 * from the page cache. */
static bool check_driver(const struct options *o, struct refusal *refusal) {
    if (o->driver == DRIVER_MPIO)
        return true;
    if (strcmp(backends[o->api].backend->name, "hdf5") != 0)
        return refuse(refusal, "--vfd is a choice of hdf5 only");
    if (o->access == ACCESS_COLLECTIVE || o->filter != FILTER_NONE || o->collective_metadata)
        return refuse(refusal, "--vfd subfiling needs --access independent, without --filter and "
                               "--collective-metadata");
    if (o->hints.n > 0 || o->stripe_count > 0 || o->stripe_size > 0 || o->cache != CACHE_KEEP)
        return refuse(refusal, "--vfd subfiling: no --hint, no --stripe-* and only --cache keep");
    return true;
}

/* Of a hint and an option with the same effect, one would silently take precedence, and the record would name
 * the other. */
static bool check_given_once(const struct options *o, const char *key, struct refusal *refusal) {
    const struct {
        bool given;
        const char *option, *key;
    } same[] = {{o->stripe_count > 0, "stripe-count", "striping_factor"},
                {o->stripe_size > 0, "stripe-size", "striping_unit"},
                {o->align > 0, "align", "nc_var_align_size"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (same[i].given && strcmp(key, same[i].key) == 0)
            return refuse(refusal, "--%s and --hint %s have the same effect: leave one out", same[i].option,
                          key);
    return true;
}

/* Before MPI is asked: it would abort with the scratch directory already made. */
static bool check_hints(const struct options *o, struct refusal *refusal) {
    for (size_t i = 0; i < o->hints.n; i++) {
        const struct hint *hint = &o->hints.item[i];
        if (!check_given_once(o, hint->key, refusal))
            return false;
        if (strlen(hint->key) >= MPI_MAX_INFO_KEY)
            return refuse(refusal, "--hint %.32s...: this MPI takes keys of at most %d characters", hint->key,
                          MPI_MAX_INFO_KEY - 1);
        if (strlen(hint->value) >= MPI_MAX_INFO_VAL)
            return refuse(refusal, "--hint %.64s: this MPI takes values of at most %d characters, not %zu",
                          hint->key, MPI_MAX_INFO_VAL - 1, strlen(hint->value));
    }
    return true;
}

static bool check_api(const struct options *o, int argc, char **argv, struct refusal *refusal) {
    const struct backend *backend = backends[o->api].backend;
    const char *api = backend->name;
    if (!backend->has_hints && (o->hints.n > 0 || o->stripe_count > 0 || o->stripe_size > 0))
        return refuse(
            refusal,
            "--hint and --stripe-*: %s takes no MPI-IO hints; set the layout of the directory instead", api);
    if (!backend->has_access && o->access == ACCESS_COLLECTIVE && option_given(argc, argv, "access"))
        return refuse(refusal, "--access collective: %s has no collective transfers", api);
    if (o->collective_metadata && strcmp(api, "hdf5") != 0)
        return refuse(refusal, "--collective-metadata is a choice of hdf5 only");
    if (o->cache == CACHE_DIRECT && strcmp(api, "posix") != 0)
        return refuse(refusal, "--cache direct: only posix opens its files itself; use --cache drop");
    if (o->cache == CACHE_DIRECT && o->pattern != PATTERN_BLOCK3D &&
        (o->transfer % 4096 != 0 || o->block % 4096 != 0))
        return refuse(refusal, "--cache direct: --transfer and --block must be multiples of 4096 bytes");
    if (o->transfer > INT32_MAX && o->pattern != PATTERN_BLOCK3D && backend->has_hints)
        return refuse(refusal, "--transfer: MPI counts reach 2^31 - 1 bytes");
    const char *reason = backend->refuse != NULL ? backend->refuse(o) : NULL;
    return reason == NULL || refuse(refusal, "%s", reason);
}

static bool check_run(const struct options *o, struct refusal *refusal) {
    if (o->repeat == 0 || o->instances == 0)
        return refuse(refusal, "--%s must be at least 1", o->repeat == 0 ? "repeat" : "instances");
    if (o->timeout > 1000000)
        return refuse(refusal, "--timeout: at most 1000000 s");
    if (o->existing && (o->op != OP_READ || o->name == NULL))
        return refuse(refusal, "--existing needs --op read and the --name that --keep was used with");
    if (o->sync != SYNC_NONE && o->op == OP_READ)
        return refuse(refusal, "--sync: a read has nothing to flush");
    if (o->name != NULL && (strchr(o->name, '/') != NULL || o->name[0] == '.'))
        return refuse(refusal, "--name %s: expected a plain name", o->name);
    return true;
}

/* A description has the place of the options of patterns and interfaces. */
static bool check_workload(const struct options *o, int argc, char **argv, struct refusal *refusal) {
    for (size_t i = 0; i < option_count; i++) {
        const struct entry *entry = &option_table[i];
        if (!entry->with_workload && option_given(argc, argv, entry->name))
            return refuse(refusal, "--%s has no meaning with --workload, whose description has it",
                          entry->name);
    }
    if (o->cache == CACHE_DIRECT)
        return refuse(refusal, "--cache direct has no meaning with --workload; use --cache drop");
    return check_run(o, refusal) && check_hints(o, refusal);
}

bool options_check(const struct options *options, int argc, char **argv, struct refusal *refusal) {
    if (options->workload != NULL)
        return check_workload(options, argc, argv, refusal);
    if (options->sets.n > 0 || options->check)
        return refuse(refusal, "--%s needs --workload", options->check ? "check" : "set");
    return check_run(options, refusal) && check_pattern(options, argc, argv, refusal) &&
           check_layout(options, refusal) && check_chunks(options, refusal) &&
           check_driver(options, refusal) && check_api(options, argc, argv, refusal) &&
           check_hints(options, refusal);
}

bool options_check_ranks(const struct options *options, int ranks, char *message, size_t n) {
    struct refusal refusal = {message, n};
    if (options->instances > (uint64_t)ranks)
        return refuse(&refusal, "--instances %" PRIu64 ": there are only %d ranks", options->instances,
                      ranks);
    return true;
}
