#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "size.h"

#define NAME_OF(symbol, text) text,
const char *const file_names[] = {BENCHIO_FILES(NAME_OF) NULL};
const char *const pattern_names[] = {BENCHIO_PATTERNS(NAME_OF) NULL};
const char *const op_names[] = {BENCHIO_OPS(NAME_OF) NULL};
const char *const cache_names[] = {BENCHIO_CACHES(NAME_OF) NULL};
const char *const sync_names[] = {BENCHIO_SYNCS(NAME_OF) NULL};
const char *const access_names[] = {BENCHIO_ACCESSES(NAME_OF) NULL};

enum type { T_CHOICE, T_API, T_SIZE, T_COUNT, T_SHIFT, T_SIZES, T_SECONDS, T_SWITCH, T_FLAG, T_TEXT, T_HINT };

/* identity: part of the hash (what is measured, not where or how it is reported).
 * bare: for T_CHOICE, the value of the option without `=VALUE`; otherwise unused. */
static const struct entry {
    const char *name;
    enum type type;
    size_t target;
    const char *metavar, *initial;
    const char *const *choices;
    const char *bare;
    bool identity;
    const char *help;
} table[] = {
#define AT(member) offsetof(struct options, member)
    {"api", T_API, AT(api), "NAME", "mpiio", NULL, NULL, true, "interface that is measured"},
    {"file", T_CHOICE, AT(file), "LAYOUT", "shared", file_names, NULL, true, "files over processes"},
    {"instances", T_COUNT, AT(instances), "K", "1", NULL, NULL, true,
     "split the ranks into K groups that use their own files at the same time"},
    {"pattern", T_CHOICE, AT(pattern), "NAME", "block3d", pattern_names, NULL, true,
     "block3d: 3-D blocks of doubles with halos of one cell that stay out of the file; disjoint: one "
     "contiguous "
     "region of SEGMENTS x BLOCK bytes a rank; interleaved: in each of SEGMENTS rounds every rank in turn "
     "has BLOCK "
     "bytes"},
    {"op", T_CHOICE, AT(op), "OP", "write", op_names, NULL, true, "what is timed"},
    {"local", T_SIZES, AT(local), "NXxNYxNZ", "128x128x128", NULL, NULL, true,
     "block3d: elements a rank, x fastest (weak scaling)"},
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
     "hdf5, netcdf4: chunked storage, elements a chunk in each dimension, the fastest varying first: "
     "64x64x64, 1m, "
     "1mx1"},
    {"unlimited", T_SWITCH, AT(unlimited), NULL, "no", NULL, NULL, true,
     "slowest varying dimension unlimited, extended as the data grow"},
    {"fill", T_SWITCH, AT(fill), NULL, "no", NULL, NULL, true, "libraries write fill values first"},
    {"align", T_SIZE, AT(align), "SIZE", "0", NULL, NULL, true,
     "libraries align objects of at least SIZE bytes to multiples of SIZE"},
    {"collective-metadata", T_SWITCH, AT(collective_metadata), NULL, "no", NULL, NULL, true,
     "hdf5: read and write metadata collectively (netcdf4 always does)"},
    {"hint", T_HINT, AT(hints), "KEY=VALUE", "", NULL, NULL, true, "MPI-IO or PnetCDF hint; may be repeated"},
    {"hints-file", T_TEXT, AT(hints_file), "FILE", "", NULL, NULL, false,
     "hints, one KEY=VALUE a line, # starts a comment; --hint takes precedence"},
    {"stripe-count", T_COUNT, AT(stripe_count), "N", "0", NULL, NULL, true,
     "striping_factor of new files (Lustre); 0: as the directory has it"},
    {"stripe-size", T_SIZE, AT(stripe_size), "SIZE", "0", NULL, NULL, true,
     "striping_unit of new files (Lustre); 0: as the directory has it"},
    {"repeat", T_COUNT, AT(repeat), "N", "10", NULL, NULL, true, "repetitions, at least"},
    {"min-time", T_SECONDS, AT(min_time), "SECONDS", "0", NULL, NULL, true,
     "repeat until the repetitions took this long together"},
    {"timeout", T_COUNT, AT(timeout), "SECONDS", "900", NULL, NULL, false,
     "end the run when one repetition takes longer; 0: wait for ever"},
    {"verify", T_SWITCH, AT(verify), NULL, "no", NULL, NULL, true,
     "check every byte that was written or read; the time that this takes inside the measured interval is "
     "reported as phase `verify`"},
    {"seed", T_COUNT, AT(seed), "N", "1", NULL, NULL, false, "of the data"},
    {"dir", T_TEXT, AT(dir), "DIR", ".", NULL, NULL, false, "existing directory; scratch goes into DIR/NAME"},
    {"name", T_TEXT, AT(name), "NAME", "", NULL, NULL, false,
     "directory made inside DIR (default: benchio- with time and process)"},
    {"keep", T_SWITCH, AT(keep), NULL, "no", NULL, NULL, false, "leave the files of the last repetition, with data that --existing --verify can check"},
    {"existing", T_SWITCH, AT(existing), NULL, "no", NULL, NULL, false,
     "read the files that --keep left under --name, with the same options"},
    {"json", T_TEXT, AT(json), "FILE", "", NULL, NULL, false,
     "write the record there, whole and at the end; an older file is removed at the start"},
    {"quiet", T_SWITCH, AT(quiet), NULL, "no", NULL, NULL, false, "no progress on stderr"},
    {"help", T_FLAG, AT(help), NULL, "no", NULL, NULL, false, "print this and exit"},
    {"version", T_FLAG, AT(version), NULL, "no", NULL, NULL, false,
     "print versions of all libraries and exit"},
};

#define TABLE_N (sizeof table / sizeof *table)
#define TARGET(options, entry, ctype) ((ctype *)(void *)((char *)(options) + (entry)->target))

/* Where a message of refusal goes. */
struct refusal {
    char *text;
    size_t n;
};

static bool refuse(struct refusal *refusal, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct refusal *refusal, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal->text, refusal->n, format, arguments);
    va_end(arguments);
    return false;
}

static bool parse_choice(const struct entry *entry, const char *const *choices, const char *value,
                         int *target, struct refusal *refusal) {
    char allowed[256] = "";
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], value) == 0) {
            *target = i;
            return true;
        }
        size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s%s", i > 0 ? ", " : "", choices[i]);
    }
    return refuse(refusal, "--%s %s: expected one of %s", entry->name, value, allowed);
}

static bool parse_api(const char *value, int *target, struct refusal *refusal) {
    char built[256] = "";
    for (int i = 0; i < BACKEND_N; i++) {
        size_t used = strlen(built);
        if (backends[i].backend != NULL && strcmp(backends[i].name, value) == 0) {
            *target = i;
            return true;
        }
        if (strcmp(backends[i].name, value) == 0)
            return refuse(refusal, "--api %s: this benchio was built without it (%s)", value,
                          backends[i].absent);
        if (backends[i].backend != NULL)
            snprintf(built + used, sizeof built - used, "%s%s", used > 0 ? ", " : "", backends[i].name);
    }
    return refuse(refusal, "--api %s: expected one of %s", value, built);
}

static bool parse_seconds(const char *value, double *seconds) {
    char *end;
    errno = 0;
    *seconds = strtod(value, &end);
    return isdigit((unsigned char)*value) && *end == '\0' && errno == 0 && isfinite(*seconds) &&
           *seconds >= 0;
}

/* Add `key=value`, both trimmed; a key given again replaces the older value. */
static bool add_hint(struct hints *hints, const char *text) {
    const char *equals = strchr(text, '=');
    char *copy = strdup(text);
    if (copy == NULL || equals == NULL || equals == text) {
        free(copy);
        return false;
    }
    char *key = copy, *key_end = copy + (equals - text);
    char *value = key_end + 1, *value_end = value + strlen(value);
    for (; isspace((unsigned char)*key); key++)
        ;
    for (; key_end > key && isspace((unsigned char)key_end[-1]); key_end--)
        ;
    for (; isspace((unsigned char)*value); value++)
        ;
    for (; value_end > value && isspace((unsigned char)value_end[-1]); value_end--)
        ;
    *key_end = *value_end = '\0';
    struct hint hint = {strdup(key), strdup(value)};
    free(copy);
    for (size_t i = 0; i < hints->n; i++) {
        if (strcmp(hints->item[i].key, hint.key) == 0) {
            free(hints->item[i].key);
            free(hints->item[i].value);
            hints->item[i] = hint;
            return true;
        }
    }
    hints->item = realloc(hints->item, (hints->n + 1) * sizeof *hints->item);
    hints->item[hints->n++] = hint;
    return hint.key[0] != '\0' && hint.value[0] != '\0';
}

static bool parse_value(struct options *options, const struct entry *entry, const char *value,
                        struct refusal *refusal) {
    const char *reason = NULL;
    switch (entry->type) {
    case T_CHOICE:
        return parse_choice(entry, entry->choices, value, TARGET(options, entry, int), refusal);
    case T_API:
        return parse_api(value, TARGET(options, entry, int), refusal);
    case T_SIZE:
        reason = size_parse(value, TARGET(options, entry, uint64_t));
        break;
    case T_COUNT:
        reason = count_parse(value, TARGET(options, entry, uint64_t));
        break;
    case T_SHIFT:
        if (strcmp(value, "auto") == 0)
            *TARGET(options, entry, uint64_t) = SHIFT_AUTO;
        else
            reason = count_parse(value, TARGET(options, entry, uint64_t));
        break;
    case T_SIZES:
        reason = sizes_parse(value, TARGET(options, entry, struct sizes)->size,
                             &TARGET(options, entry, struct sizes)->n);
        break;
    case T_SECONDS:
        reason = parse_seconds(value, TARGET(options, entry, double)) ? NULL : "expected seconds, 0 or more";
        break;
    case T_SWITCH:
    case T_FLAG:
        *TARGET(options, entry, bool) = strcmp(value, "yes") == 0;
        reason = *TARGET(options, entry, bool) || strcmp(value, "no") == 0 ? NULL : "expected yes or no";
        break;
    case T_TEXT:
        *TARGET(options, entry, const char *) = value;
        reason = *value == '\0' ? "expected some text" : NULL;
        break;
    case T_HINT:
        reason = add_hint(&options->hints, value) ? NULL : "expected KEY=VALUE";
        break;
    }
    return reason == NULL || refuse(refusal, "--%s %s: %s", entry->name, value, reason);
}

static const struct entry *find(const char *name, size_t length) {
    for (size_t i = 0; i < TABLE_N; i++)
        if (strlen(table[i].name) == length && strncmp(table[i].name, name, length) == 0)
            return &table[i];
    return NULL;
}

/* The option whose name shares the longest beginning with `name`, or NULL. */
static const char *near_miss(const char *name) {
    const char *best = NULL;
    size_t longest = 2;
    for (size_t i = 0; i < TABLE_N; i++) {
        size_t common = 0;
        while (name[common] != '\0' && name[common] == table[i].name[common])
            common++;
        if (common >= longest) {
            longest = common + 1;
            best = table[i].name;
        }
    }
    return best;
}

static bool parse_arguments(struct options *options, int argc, char **argv, struct refusal *refusal) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + 2;
        if (strcmp(argv[i], "-h") == 0)
            name = "help";
        else if (strncmp(argv[i], "--", 2) != 0)
            return refuse(refusal, "'%s' is not an option; benchio --help lists them", argv[i]);
        size_t length = strcspn(name, "=");
        const struct entry *entry = find(name, length);
        if (entry == NULL) {
            const char *near = near_miss(name);
            return refuse(refusal, "unknown option '%s'%s%s; benchio --help lists them", argv[i],
                          near != NULL ? ", did you mean --" : "", near != NULL ? near : "");
        }
        const char *value = name[length] == '=' ? name + length + 1 : NULL;
        bool is_switch = entry->type == T_SWITCH || entry->type == T_FLAG;
        if (value == NULL && is_switch)
            value = "yes";
        if (value == NULL && entry->bare != NULL)
            value = entry->bare;
        if (value == NULL && ++i == argc)
            return refuse(refusal, "--%s needs a value: --%s %s", entry->name, entry->name, entry->metavar);
        if (!parse_value(options, entry, value != NULL ? value : argv[i], refusal))
            return false;
    }
    return true;
}

/* Hints of the file come first in the list, so that those of the command line replace them. */
static bool read_hints_file(struct options *options, struct refusal *refusal) {
    char line[1024];
    struct hints given = options->hints;
    FILE *file = fopen(options->hints_file, "r");
    if (file == NULL)
        return refuse(refusal, "--hints-file %s: %s", options->hints_file, strerror(errno));
    options->hints = (struct hints){0};
    bool fine = true;
    for (int number = 1; fine && fgets(line, sizeof line, file) != NULL; number++) {
        line[strcspn(line, "#\n")] = '\0';
        if (line[strspn(line, " \t\r")] != '\0' && !add_hint(&options->hints, line))
            fine =
                refuse(refusal, "--hints-file %s, line %d: expected KEY=VALUE", options->hints_file, number);
    }
    fclose(file);
    for (size_t i = 0; i < given.n; i++) {
        char both[2048];
        snprintf(both, sizeof both, "%s=%s", given.item[i].key, given.item[i].value);
        add_hint(&options->hints, both);
        free(given.item[i].key);
        free(given.item[i].value);
    }
    free(given.item);
    return fine;
}

/* Values that follow from others, so that the record shows what was in force. */
static void resolve(struct options *options) {
    if (options->pattern == PATTERN_BLOCK3D) {
        if (options->global.n > 0)
            options->local.n = 0;
        return;
    }
    bool interleaved = options->pattern == PATTERN_INTERLEAVED;
    options->local.n = 0;
    if (options->transfer == 0)
        options->transfer = options->block != 0 && options->block < (1 << 20) ? options->block : 1 << 20;
    if (options->block == 0)
        options->block = interleaved || options->transfer > (16 << 20) ? options->transfer : 16 << 20;
    if (options->segments == 0)
        options->segments = interleaved ? 16 : 1;
}

static bool given(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--", 2) == 0 && strcspn(argv[i] + 2, "=") == strlen(name) &&
            strncmp(argv[i] + 2, name, strlen(name)) == 0)
            return true;
    return false;
}

/* Options that belong to another pattern. */
static bool check_pattern(const struct options *o, int argc, char **argv, struct refusal *refusal) {
    static const char *const of_block3d[] = {"local", "global"}, *const of_streams[] = {"block", "segments",
                                                                                        "row"};
    bool block3d = o->pattern == PATTERN_BLOCK3D;
    const char *const *foreign = block3d ? of_streams : of_block3d;
    for (size_t i = 0; i < (block3d ? 3u : 2u); i++)
        if (given(argc, argv, foreign[i]))
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
    if (given(argc, argv, "local") && given(argc, argv, "global"))
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
    if (o->unlimited && o->access == ACCESS_INDEPENDENT)
        return refuse(refusal, "--unlimited needs --access collective: extending is a collective operation");
    return true;
}

static bool check_api(const struct options *o, struct refusal *refusal) {
    const struct backend *backend = backends[o->api].backend;
    const char *api = backend->name;
    if (!backend->has_hints && (o->hints.n > 0 || o->stripe_count > 0 || o->stripe_size > 0))
        return refuse(
            refusal,
            "--hint and --stripe-*: %s takes no MPI-IO hints; set the layout of the directory instead", api);
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

bool options_parse(struct options *options, int argc, char **argv, char *message, size_t n) {
    struct refusal refusal = {message, n};
    *options = (struct options){0};
    for (size_t i = 0; i < TABLE_N; i++)
        if (table[i].initial[0] != '\0' && !parse_value(options, &table[i], table[i].initial, &refusal))
            return false;
    if (!parse_arguments(options, argc, argv, &refusal))
        return false;
    if (options->help || options->version)
        return true;
    if (options->hints_file != NULL && !read_hints_file(options, &refusal))
        return false;
    if (given(argc, argv, "segments") && options->segments == 0)
        return refuse(&refusal, "--segments must be at least 1");
    resolve(options);
    return check_run(options, &refusal) && check_pattern(options, argc, argv, &refusal) &&
           check_layout(options, &refusal) && check_api(options, &refusal);
}

bool options_check_ranks(const struct options *options, int ranks, char *message, size_t n) {
    struct refusal refusal = {message, n};
    if (options->instances > (uint64_t)ranks)
        return refuse(&refusal, "--instances %" PRIu64 ": there are only %d ranks", options->instances,
                      ranks);
    return true;
}

void options_free(struct options *options) {
    for (size_t i = 0; i < options->hints.n; i++) {
        free(options->hints.item[i].key);
        free(options->hints.item[i].value);
    }
    free(options->hints.item);
    options->hints = (struct hints){0};
}

/* `text` in lines of at most 110 columns, indented by 30. */
static void print_wrapped(const char *text) {
    const size_t indent = 30, width = 80;
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > 0 && column + 1 + word > width) {
            printf("\n%*s", (int)indent, "");
            column = 0;
        }
        printf("%s%.*s", column > 0 ? " " : "", (int)word, text);
        column += word + (column > 0);
        text += word + (text[word] == ' ');
    }
    putchar('\n');
}

static void help_entry(const struct entry *entry) {
    char left[64], right[1024];
    bool is_switch = entry->type == T_SWITCH || entry->type == T_FLAG;
    snprintf(left, sizeof left, "  --%s%s%s", entry->name,
             entry->bare != NULL ? "="
             : is_switch         ? ""
                                 : " ",
             is_switch ? "" : entry->metavar);
    snprintf(right, sizeof right, "%s", entry->help);
    const char *separator = ": ";
    for (int i = 0;
         entry->type == T_API ? i < BACKEND_N : entry->choices != NULL && entry->choices[i] != NULL; i++) {
        size_t used = strlen(right);
        bool absent = entry->type == T_API && backends[i].backend == NULL;
        snprintf(right + used, sizeof right - used, "%s%s%s", separator,
                 entry->type == T_API ? backends[i].name : entry->choices[i], absent ? " (not built)" : "");
        separator = ", ";
    }
    size_t used = strlen(right);
    if (!is_switch && entry->initial[0] != '\0')
        snprintf(right + used, sizeof right - used, " [%s]", entry->initial);
    if (strlen(left) < 30)
        printf("%-30s", left);
    else
        printf("%s\n%30s", left, "");
    print_wrapped(right);
}

void options_help(void) {
    puts("Usage: mpirun -n RANKS benchio [OPTION]...\n"
         "Measure the bandwidth of parallel reads and writes through one of several interfaces.\n\n"
         "Options (--name VALUE or --name=VALUE; defaults in brackets):");
    for (size_t i = 0; i < TABLE_N; i++)
        help_entry(&table[i]);
    puts("\nSizes: 1000000, 1m or 1MiB (2^20 bytes), 1mb (10^6 bytes), 1.5g; a fraction of a byte is "
         "refused.\n"
         "Exit codes: 0 fine, 1 data differ from what was written, 2 wrong use, 3 something broke.\n\n"
         "Examples:\n"
         "  mpirun -n 24 benchio --api hdf5 --sync --dir /lustre/scratch --json hdf5.json\n"
         "      24 blocks of 128^3 doubles into one HDF5 file, flushed, ten times\n"
         "  mpirun -n 10 benchio --api netcdf4 --pattern interleaved --transfer 1m --segments 20480 --op "
         "both \\\n"
         "      --cache drop --align 1m\n"
         "      round robin in units of 1 MiB, written and read back from the storage by other ranks\n"
         "  mpirun -n 64 benchio --api posix --file per-process --pattern disjoint --transfer 1000000 \\\n"
         "      --block 100000000 --verify\n"
         "  mpirun -n 48 benchio --instances 4 --hint romio_cb_write=enable --stripe-count 8 --stripe-size "
         "4m");
}

static void sizes_text(const struct sizes *sizes, char *text, size_t n) {
    text[0] = '\0';
    for (int i = 0; i < sizes->n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, n - used, "%s%" PRIu64, i > 0 ? "x" : "", sizes->size[i]);
    }
}

static void json_entry(const struct options *options, const struct entry *entry, struct json *json) {
    char text[80];
    uint64_t number = entry->type == T_SIZE || entry->type == T_COUNT || entry->type == T_SHIFT
                          ? *TARGET(options, entry, const uint64_t)
                          : 0;
    switch (entry->type) {
    case T_CHOICE:
        json_string(json, entry->name, entry->choices[*TARGET(options, entry, const int)]);
        break;
    case T_API:
        json_string(json, entry->name, backends[options->api].name);
        break;
    case T_SHIFT:
        if (number == SHIFT_AUTO)
            json_string(json, entry->name, "auto");
        else
            json_unsigned(json, entry->name, number);
        break;
    case T_SIZE:
    case T_COUNT:
        json_unsigned(json, entry->name, number);
        break;
    case T_SIZES:
        sizes_text(TARGET(options, entry, const struct sizes), text, sizeof text);
        json_string(json, entry->name, text[0] != '\0' ? text : NULL);
        break;
    case T_SECONDS:
        json_number(json, entry->name, *TARGET(options, entry, const double));
        break;
    case T_SWITCH:
        json_bool(json, entry->name, *TARGET(options, entry, const bool));
        break;
    case T_TEXT:
        json_string(json, entry->name, *TARGET(options, entry, const char *const));
        break;
    case T_HINT:
        json_open(json, entry->name, '{');
        for (size_t i = 0; i < options->hints.n; i++)
            json_string(json, options->hints.item[i].key, options->hints.item[i].value);
        json_close(json, '}');
        break;
    case T_FLAG:
        break;
    }
}

void options_json(const struct options *options, struct json *json, bool identity) {
    for (size_t i = 0; i < TABLE_N; i++)
        if (table[i].identity || !identity)
            json_entry(options, &table[i], json);
}
