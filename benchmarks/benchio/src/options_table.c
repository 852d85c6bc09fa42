#include "options_table.h"

#include <string.h>

#define NAME_OF(symbol, text) text,
const char *const file_names[] = {BENCHIO_FILES(NAME_OF) NULL};
const char *const pattern_names[] = {BENCHIO_PATTERNS(NAME_OF) NULL};
const char *const op_names[] = {BENCHIO_OPS(NAME_OF) NULL};
const char *const cache_names[] = {BENCHIO_CACHES(NAME_OF) NULL};
const char *const sync_names[] = {BENCHIO_SYNCS(NAME_OF) NULL};
const char *const access_names[] = {BENCHIO_ACCESSES(NAME_OF) NULL};
const char *const filter_names[] = {BENCHIO_FILTERS(NAME_OF) NULL};
const char *const driver_names[] = {BENCHIO_DRIVERS(NAME_OF) NULL};
const char *const byte_order_names[] = {BENCHIO_BYTE_ORDERS(NAME_OF) NULL};

const struct entry option_table[OPTION_N] = {
#define AT(member) offsetof(struct options, member)
    {"api", T_API, AT(api), "NAME", "mpiio", NULL, NULL, true, "interface that is measured"},
    {"file", T_CHOICE, AT(file), "LAYOUT", "shared", file_names, NULL, true, "files over processes"},
    {"instances", T_COUNT, AT(instances), "K", "1", NULL, NULL, true,
     "split the ranks into K groups that use their own files at the same time"},
    {"pattern", T_CHOICE, AT(pattern), "NAME", "block3d", pattern_names, NULL, true,
     "block3d: 3-D blocks of doubles with halos of one cell that stay out of the file; disjoint: one "
     "contiguous region of SEGMENTS x BLOCK bytes per rank; interleaved: in each of SEGMENTS rounds BLOCK "
     "bytes of each rank, by rank"},
    {"op", T_CHOICE, AT(op), "OP", "write", op_names, NULL, true, "what is timed"},
    {"local", T_SIZES, AT(local), "NXxNYxNZ", "128x128x128", NULL, NULL, true,
     "block3d: elements per rank, x fastest (weak scaling)"},
    {"global", T_SIZES, AT(global), "NXxNYxNZ", "", NULL, NULL, true,
     "block3d: elements of an instance, divided over its ranks (strong scaling)"},
    {"transfer", T_SIZE, AT(transfer), "SIZE", "", NULL, NULL, true,
     "bytes of one call; block3d: at most, in whole planes (default: all in one call), otherwise default 1m"},
    {"block", T_SIZE, AT(block), "SIZE", "", NULL, NULL, true,
     "disjoint, interleaved: bytes that are contiguous in the file (default: 16m, interleaved: one "
     "transfer)"},
    {"segments", T_COUNT, AT(segments), "N", "", NULL, NULL, true,
     "disjoint, interleaved: blocks of each rank (default: 1, interleaved: 16)"},
    {"row", T_SIZE, AT(row), "SIZE", "0", NULL, NULL, true,
     "disjoint, interleaved with a library: two-dimensional data with rows of SIZE bytes; 0: "
     "one-dimensional"},
    {"access", T_CHOICE, AT(access), "HOW", "collective", access_names, NULL, true,
     "calls of MPI-IO and of the libraries"},
    {"cache", T_CHOICE, AT(cache), "POLICY", "keep", cache_names, NULL, true,
     "page cache. drop: fsync and POSIX_FADV_DONTNEED before each read; direct: O_DIRECT (posix only)"},
    {"sync", T_CHOICE, AT(sync), "WHEN", "none", sync_names, "end", true,
     "flush to the storage inside the time measured: at the end, or after each transfer; --sync alone means "
     "end"},
    {"shift", T_SHIFT, AT(shift), "N", "auto", NULL, NULL, true,
     "rank r reads what rank r + N wrote; auto: the ranks of a node, so that no node reads what it wrote (1 "
     "on a "
     "single node); 0: its own"},
    {"chunk", T_SIZES, AT(chunk), "SIZES", "", NULL, NULL, true,
     "hdf5, netcdf4: chunked storage, elements of a chunk in each dimension, the fastest varying first: "
     "64x64x64, 1m, 1mx1"},
    {"filter", T_CHOICE, AT(filter), "NAME", "none", filter_names, NULL, true,
     "hdf5, netcdf4: compress each chunk; needs --chunk and --access collective"},
    {"filter-level", T_COUNT, AT(filter_level), "N", "0", NULL, NULL, true,
     "level of deflate (1 to 9) or zstd (1 to 22); 0: 4 and 3"},
    {"chunk-cache", T_SIZE, AT(chunk_cache), "SIZE", "0", NULL, NULL, true,
     "hdf5, netcdf4: cache of chunks of each rank; 0: as the library has it"},
    {"vfd", T_CHOICE, AT(driver), "DRIVER", "mpio", driver_names, NULL, true,
     "hdf5: how a file is stored; subfiling (HDF5 1.14) needs --access independent"},
    {"byte-order", T_CHOICE, AT(byte_order), "ORDER", "native", byte_order_names, NULL, true,
     "hdf5, netcdf4: of doubles in the file; the library converts what is not native; needs --pattern "
     "block3d"},
    {"unlimited", T_SWITCH, AT(unlimited), NULL, "no", NULL, NULL, true,
     "slowest varying dimension unlimited, extended as the data grow"},
    {"fill", T_SWITCH, AT(fill), NULL, "no", NULL, NULL, true, "libraries write fill values first"},
    {"align", T_SIZE, AT(align), "SIZE", "0", NULL, NULL, true,
     "libraries align objects of at least SIZE bytes to multiples of SIZE"},
    {"collective-metadata", T_SWITCH, AT(collective_metadata), NULL, "no", NULL, NULL, true,
     "hdf5: read and write metadata collectively (netcdf4 always does)"},
    {"hint", T_HINT, AT(hints), "KEY=VALUE", "", NULL, NULL, true, "MPI-IO or PnetCDF hint; may be repeated"},
    {"hints-file", T_TEXT, AT(hints_file), "FILE", "", NULL, NULL, false,
     "hints, one KEY=VALUE per line, # starts a comment; --hint takes precedence"},
    {"workload", T_TEXT, AT(workload), "FILE", "", NULL, NULL, false,
     "run the I/O of an application as this description (YAML) has it, in the place of a pattern"},
    {"set", T_HINT, AT(sets), "NAME=VALUE", "", NULL, NULL, false,
     "value of a parameter of the description; may be repeated"},
    {"check", T_FLAG, AT(check), NULL, "no", NULL, NULL, false,
     "check the description for these ranks, print what it would do, and exit"},
    {"stripe-count", T_COUNT, AT(stripe_count), "N", "0", NULL, NULL, true,
     "striping_factor of new files (Lustre); 0: as the directory has it"},
    {"stripe-size", T_SIZE, AT(stripe_size), "SIZE", "0", NULL, NULL, true,
     "striping_unit of new files (Lustre); 0: as the directory has it"},
    {"repeat", T_COUNT, AT(repeat), "N", "10", NULL, NULL, true, "repetitions, at least"},
    {"min-time", T_SECONDS, AT(min_time), "SECONDS", "0", NULL, NULL, true,
     "repeat until the repetitions took this long together"},
    {"timeout", T_COUNT, AT(timeout), "SECONDS", "900", NULL, NULL, false,
     "end the run when one repetition takes longer; 0: no limit"},
    {"verify", T_SWITCH, AT(verify), NULL, "no", NULL, NULL, true,
     "check every byte that was written or read; the time that this takes inside the measured interval is "
     "reported as phase `verify`"},
    {"seed", T_COUNT, AT(seed), "N", "1", NULL, NULL, false, "of the data"},
    {"dir", T_TEXT, AT(dir), "DIR", ".", NULL, NULL, false, "existing directory; scratch goes into DIR/NAME"},
    {"name", T_TEXT, AT(name), "NAME", "", NULL, NULL, false,
     "directory made inside DIR (default: benchio- with time and process)"},
    {"keep", T_SWITCH, AT(keep), NULL, "no", NULL, NULL, false,
     "leave the files of the last repetition, with data that --existing --verify can check"},
    {"existing", T_SWITCH, AT(existing), NULL, "no", NULL, NULL, false,
     "read the files that --keep left under --name, with the same options"},
    {"json", T_TEXT, AT(json), "FILE", "", NULL, NULL, false,
     "write the record there, complete and at the end; an older file is removed at the start"},
    {"run-id", T_TEXT, AT(run_id), "TEXT", "", NULL, NULL, false,
     "kept in the record, so that whoever started the run recognises it"},
    {"quiet", T_SWITCH, AT(quiet), NULL, "no", NULL, NULL, false, "no progress on stderr"},
    {"help", T_FLAG, AT(help), NULL, "no", NULL, NULL, false, "print this and exit"},
    {"version", T_FLAG, AT(version), NULL, "no", NULL, NULL, false,
     "print versions of all libraries and exit"},
};

bool option_given(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--", 2) == 0 && strcspn(argv[i] + 2, "=") == strlen(name) &&
            strncmp(argv[i] + 2, name, strlen(name)) == 0)
            return true;
    return false;
}
