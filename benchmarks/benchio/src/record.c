#include "record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sha256.h"
#include "workload_run.h"

/* Implementations by the words that their description of themselves contains; the version follows `before`.
 */
static const struct {
    const char *word, *name, *before;
} implementations[] = {
    {"Open MPI", "Open MPI", "v"},     {"Intel(R) MPI", "Intel MPI", "Library "},
    {"MVAPICH", "MVAPICH", "Version"}, {"CRAY MPICH", "Cray MPICH", "version"},
    {"MPICH", "MPICH", "Version:"},
};

void mpi_identity(char *name, size_t name_n, char *version, size_t version_n) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    snprintf(name, name_n, "%.*s", (int)strcspn(text, "\n,"), text);
    snprintf(version, version_n, "%s", "");
    for (size_t i = 0; i < sizeof implementations / sizeof *implementations; i++) {
        const char *found = strstr(text, implementations[i].word);
        if (found == NULL)
            continue;
        const char *digits = strstr(found + (i == 0 ? strlen("Open MPI") : 0), implementations[i].before);
        digits = digits != NULL ? strpbrk(digits, "0123456789") : NULL;
        snprintf(name, name_n, "%s", implementations[i].name);
        if (digits != NULL)
            snprintf(version, version_n, "%.*s", (int)strcspn(digits, ", \t\n"), digits);
        return;
    }
}

static void write_hash(const struct options *o, struct json *json) {
    char *text = NULL, hex[65];
    size_t n = 0;
    FILE *memory = open_memstream(&text, &n);
    if (memory == NULL)
        return;
    struct json canonical = {.out = memory, .compact = true};
    json_open(&canonical, NULL, '{');
    options_json(o, &canonical, true);
    json_close(&canonical, '}');
    fclose(memory);
    sha256_hex(text, n, hex);
    json_string(json, "options_hash", hex);
    free(text);
}

static void write_libraries(const struct options *o, struct json *json) {
    char name[128], version[128];
    int major, minor, length;
    char full[MPI_MAX_LIBRARY_VERSION_STRING];
    mpi_identity(name, sizeof name, version, sizeof version);
    MPI_Get_version(&major, &minor);
    MPI_Get_library_version(full, &length);
    json_open(json, "mpi", '{');
    json_string(json, "implementation", name);
    json_string(json, "version", version);
    snprintf(version, sizeof version, "%d.%d", major, minor);
    json_string(json, "standard", version);
    json_string(json, "description", full);
    json_close(json, '}');
    json_open(json, "libraries", '{');
    for (int i = 0; i < backend_count; i++) {
        if (backends[i].backend == NULL)
            continue;
        backends[i].backend->version(version, sizeof version);
        if (version[0] != '\0')
            json_string(json, backends[i].name, strrchr(version, ' ') + 1);
    }
    json_string(
        json, "api_library",
        (backends[o->api].backend->version(version, sizeof version), version[0] != '\0' ? version : NULL));
    json_close(json, '}');
}

static void write_head(const struct context *c, struct json *json, const char *status, double finished) {
    char time[40];
    json_open(json, NULL, '{');
    json_string(json, "schema", BENCHIO_SCHEMA);
    json_open(json, "program", '{');
    json_string(json, "name", "benchio");
    json_string(json, "version", BENCHIO_VERSION);
    json_string(json, "compiler", BENCHIO_COMPILER);
    json_close(json, '}');
    json_string(json, "status", status);
    utc_text(c->started, time);
    json_string(json, "started", time);
    utc_text(finished, time);
    json_string(json, "finished", time);
    json_open(json, "options", '{');
    options_json(c->options, json, false);
    json_close(json, '}');
    write_hash(c->options, json);
    write_libraries(c->options, json);
}

static void write_hosts(const struct context *c, const struct placement *p, struct json *json) {
    struct utsname system;
    uname(&system);
    json_string(json, "kernel", system.release);
    json_open(json, "hosts", '[');
    int *first = allocate(c, (size_t)p->nodes * sizeof(int), "host names");
    for (int r = c->size - 1; r >= 0; r--)
        first[p->node_of[r]] = r;
    for (int node = 0; node < p->nodes; node++) {
        json_open(json, NULL, '{');
        json_string(json, "name", p->hosts + (size_t)first[node] * MPI_MAX_PROCESSOR_NAME);
        json_integer(json, "ranks", p->ranks_on[node]);
        json_integer(json, "first_rank", first[node]);
        json_close(json, '}');
    }
    json_close(json, ']');
    bool compact = json->compact;
    json_open(json, "node_of_rank", '[');
    json->compact = true; /* one line, however many ranks */
    for (int r = 0; r < c->size; r++)
        json_integer(json, NULL, p->node_of[r]);
    json_close(json, ']');
    json->compact = compact;
    free(first);
}

static void write_layout(const struct layout *layout, struct json *json) {
    if (layout->n == 1) {
        json_integer(json, "directory_stripe_count", layout->component[0].count);
        json_unsigned(json, "directory_stripe_bytes", layout->component[0].size);
        return;
    }
    json_null(json, "directory_stripe_count");
    json_null(json, "directory_stripe_bytes");
    if (layout->n == 0)
        return;
    json_open(json, "directory_components", '[');
    for (int i = 0; i < layout->n; i++) {
        json_open(json, NULL, '{');
        if (layout->component[i].end == UINT64_MAX)
            json_null(json, "end_bytes");
        else
            json_unsigned(json, "end_bytes", layout->component[i].end);
        json_integer(json, "stripe_count", layout->component[i].count);
        json_unsigned(json, "stripe_bytes", layout->component[i].size);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_filesystem(const struct context *c, const struct filesystem *fs, struct json *json) {
    json_open(json, "filesystem", '{');
    json_string(json, "directory", c->directory);
    json_string(json, "type", fs->type);
    json_string(json, "mount", fs->mount);
    json_string(json, "source", fs->source);
    if (fs->free_bytes == UINT64_MAX)
        json_null(json, "free_bytes");
    else
        json_unsigned(json, "free_bytes", fs->free_bytes);
    write_layout(&fs->layout, json);
    json_close(json, '}');
}

static void write_vector(struct json *json, const char *key, const uint64_t value[], int n) {
    bool compact = json->compact;
    json_open(json, key, '[');
    json->compact = true;
    for (int i = 0; i < n; i++)
        json_unsigned(json, NULL, value[i]);
    json_close(json, ']');
    json->compact = compact;
}

/* Of a workload: what there is of a geometry. */
static void write_size(const struct context *c, const struct placement *p, const struct results *r,
                       struct json *json) {
    json_open(json, "geometry", '{');
    json_integer(json, "ranks", c->size);
    json_integer(json, "nodes", p->nodes);
    json_integer(json, "instances", p->instances);
    json_unsigned(json, "files", r->workload->files);
    json_unsigned(json, "bytes_per_repetition", r->bytes);
    json_close(json, '}');
}

static void write_geometry(const struct context *c, const struct placement *p, const struct results *r,
                           struct json *json) {
    const struct geometry *g = &p->write_geometry;
    json_open(json, "geometry", '{');
    json_integer(json, "ranks", c->size);
    json_integer(json, "nodes", p->nodes);
    json_integer(json, "instances", p->instances);
    json_integer(json, "files", p->files);
    json_unsigned(json, "bytes_per_repetition", r->bytes);
    json_unsigned(json, "bytes_of_first_file", g->file_bytes);
    json_unsigned(json, "element_bytes", g->element);
    write_vector(json, "first_file_dims", g->dims, g->ndims);
    if (g->pattern == PATTERN_BLOCK3D)
        write_vector(json, "first_file_process_grid", g->grid, 3);
    if (g->chunk[0] > 0)
        write_vector(json, "chunk", g->chunk, g->ndims);
    json_unsigned(json, "transfers_per_rank", g->steps);
    json_integer(json, "read_shift", p->shift);
    json_close(json, '}');
}

static void write_spread(struct json *json, const char *key, const struct spread *spread) {
    json_open(json, key, '{');
    json_number(json, "min", spread->min);
    json_number(json, "mean", spread->mean);
    json_number(json, "max", spread->max);
    json_integer(json, "slowest_rank", spread->slowest);
    json_close(json, '}');
}

/* Columns, each on one line, however many nodes and repetitions. */
static void write_nodes(struct json *json, const struct series *series, const struct repetition *item,
                        int nodes) {
    bool compact = json->compact;
    json_open(json, "nodes", '{');
    json_open(json, "seconds", '[');
    json->compact = true;
    for (int node = 0; node < nodes; node++)
        json_rounded(json, NULL, item->node[node].seconds);
    json_close(json, ']');
    json->compact = compact;
    if (series->has_own_seconds) {
        json_open(json, "own_seconds", '[');
        json->compact = true;
        for (int node = 0; node < nodes; node++)
            json_rounded(json, NULL, item->node[node].own_seconds);
        json_close(json, ']');
        json->compact = compact;
    } else {
        json_null(json, "own_seconds");
    }
    json_close(json, '}');
}

static void write_transfers(struct json *json, const struct transfer_times *transfers) {
    json_open(json, "transfers", '{');
    json_unsigned(json, "count", transfers->count);
    json_rounded(json, "median_seconds", transfers->median);
    json_rounded(json, "p99_seconds", transfers->p99);
    json_rounded(json, "max_seconds", transfers->longest);
    json_close(json, '}');
}

static void write_bandwidth(struct json *json, bool has_files, uint64_t bytes, double seconds) {
    if (has_files)
        json_number(json, "bandwidth_bytes_per_second", bandwidth(bytes, seconds));
    else
        json_null(json, "bandwidth_bytes_per_second");
}

static void write_repetition(struct json *json, const struct placement *p, const struct results *r,
                             const struct series *series, const struct repetition *item, bool has_files) {
    char time[40];
    utc_text(item->started, time);
    json_open(json, NULL, '{');
    json_string(json, "started", time);
    json_number(json, "seconds", item->seconds);
    write_bandwidth(json, has_files, r->bytes, item->seconds);
    json_open(json, "phases", '{');
    for (int phase = 0; phase < PHASE_N; phase++)
        write_spread(json, phase_names[phase], &item->phase[phase]);
    json_close(json, '}');
    write_transfers(json, &item->transfers);
    if (item->resident < 0)
        json_null(json, "resident_before");
    else
        json_number(json, "resident_before", item->resident);
    write_nodes(json, series, item, p->nodes);
    json_open(json, "instances", '[');
    for (int i = 0; i < p->instances; i++) {
        json_open(json, NULL, '{');
        json_unsigned(json, "bytes", r->instance_bytes[i]);
        json_number(json, "seconds", item->instance_seconds[i]);
        write_bandwidth(json, has_files, r->instance_bytes[i], item->instance_seconds[i]);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

static void write_series(const struct context *c, const struct placement *p, const struct results *r,
                         struct json *json) {
    json_open(json, "operations", '[');
    for (int s = 0; s < r->series_n; s++) {
        json_open(json, NULL, '{');
        json_string(json, "operation", op_names[r->series[s].op]);
        json_unsigned(json, "bytes", r->bytes);
        write_vector(json, "node_bytes", r->series[s].node_bytes, p->nodes);
        json_open(json, "repetitions", '[');
        for (size_t i = 0; i < r->series[s].n; i++)
            write_repetition(json, p, r, &r->series[s], &r->series[s].item[i],
                             backends[c->options->api].backend->has_files);
        json_close(json, ']');
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_rest(const struct context *c, const struct results *r, struct json *json) {
    json_open(json, "hints", '{');
    json_string(json, "source", r->hints_source);
    json_open(json, "effective", '{');
    for (size_t i = 0; i < r->hints.n; i++)
        json_string(json, r->hints.item[i].key, r->hints.item[i].value);
    json_close(json, '}');
    json_close(json, '}');
    json_open(json, "cache", '{');
    json_string(json, "asked", cache_names[c->options->cache]);
    json_string(json, "achieved", r->cache_achieved);
    json_close(json, '}');
    json_open(json, "verification", '{');
    json_bool(json, "asked", c->options->verify);
    json_unsigned(json, "bytes_checked", r->verified_bytes);
    json_unsigned(json, "bytes_different", 0);
    json_close(json, '}');
    json_open(json, "memory", '{');
    json_unsigned(json, "array_bytes", r->array_bytes);
    json_unsigned(json, "buffer_bytes", r->buffer_bytes);
    json_unsigned(json, "peak_bytes", r->peak_bytes);
    json_close(json, '}');
}

static void temporary_name(const struct context *c, char text[PATH_MAX]) {
    snprintf(text, PATH_MAX, "%.*s.%d.tmp", PATH_MAX - 32, c->options->json, c->rank);
}

/* Nothing, or a file: a record takes the place of what it finds, which must not be a device such as
 * /dev/null. */
static bool replaceable(const char *path) {
    struct stat status;
    return stat(path, &status) != 0 || S_ISREG(status.st_mode);
}

void record_prepare(const struct context *c) {
    char name[PATH_MAX];
    if (c->options->json == NULL)
        return;
    if (!replaceable(c->options->json))
        fail(c, EXIT_BROKEN, PLACE(c->options->json, "writing the record"),
             "it is no regular file, and the record would take its place");
    CHECK_POSIX(c, c->options->json, "removing an older record",
                unlink(c->options->json) == 0 || errno == ENOENT);
    temporary_name(c, name);
    FILE *file = fopen(name, "w");
    CHECK_POSIX(c, name, "writing the record", file != NULL);
    fclose(file);
    unlink(name);
}

/* Flush, sync and rename; returns errno. */
static int publish(FILE *file, const char *temporary, const char *final) {
    int status =
        ferror(file) || fflush(file) != 0 || fsync(fileno(file)) != 0 ? (errno != 0 ? errno : EIO) : 0;
    if (fclose(file) != 0 && status == 0)
        status = errno;
    if (status == 0 && rename(temporary, final) != 0)
        status = errno;
    if (status != 0)
        unlink(temporary);
    return status;
}

/* A record in memory: its digest needs the text. */
struct draft {
    char *text;
    size_t n;
    struct json json;
};

static bool draft_open(struct draft *draft) {
    *draft = (struct draft){.json = {.out = open_memstream(&draft->text, &draft->n)}};
    return draft->json.out != NULL;
}

/* Close the record with the number of repetitions and the SHA-256 of the text so far; returns errno. */
static int draft_close(struct draft *draft, uint64_t repetitions) {
    char hex[65];
    struct json *json = &draft->json;
    if (fflush(json->out) == 0)
        sha256_hex(draft->text, draft->n, hex);
    else
        hex[0] = '\0';
    json_open(json, "integrity", '{');
    json_unsigned(json, "repetitions", repetitions);
    json_string(json, "sha256", hex);
    json_close(json, '}');
    json_close(json, '}');
    bool incomplete = ferror(json->out) != 0;
    return fclose(json->out) != 0 || incomplete ? ENOMEM : 0;
}

/* Write the record to its file; returns errno. */
static int draft_publish(struct draft *draft, uint64_t repetitions, const char *temporary,
                         const char *final) {
    int status = draft_close(draft, repetitions);
    FILE *file = status == 0 ? fopen(temporary, "w") : NULL;
    if (status == 0 && file == NULL)
        status = errno;
    if (file != NULL) {
        fwrite(draft->text, 1, draft->n, file);
        status = publish(file, temporary, final);
    }
    free(draft->text);
    return status;
}

static uint64_t repetitions_of(const struct results *r) {
    uint64_t n = r->report != NULL ? r->report->n : 0;
    for (int s = 0; s < r->series_n; s++)
        n += r->series[s].n;
    return n;
}

void record_write(const struct context *c, const struct placement *p, const struct results *r) {
    char name[PATH_MAX];
    struct draft draft;
    if (c->options->json == NULL)
        return;
    temporary_name(c, name);
    CHECK_POSIX(c, c->options->json, "writing the record", draft_open(&draft));
    struct json *json = &draft.json;
    write_head(c, json, "ok", r->finished);
    json_null(json, "failure");
    write_hosts(c, p, json);
    write_filesystem(c, &r->filesystem, json);
    if (r->workload != NULL) {
        write_size(c, p, r, json);
        workload_json(r, json);
    } else {
        write_geometry(c, p, r, json);
    }
    write_series(c, p, r, json);
    write_rest(c, r, json);
    int status = draft_publish(&draft, repetitions_of(r), name, c->options->json);
    errno = status;
    CHECK_POSIX(c, c->options->json, "writing the record", status == 0);
}

void record_write_failed(const struct context *c, const struct failure *failure) {
    char name[PATH_MAX];
    struct draft draft;
    if (c->options == NULL || c->options->json == NULL || !replaceable(c->options->json))
        return;
    temporary_name(c, name);
    if (!draft_open(&draft))
        return;
    struct json *json = &draft.json;
    write_head(c, json, "failed", utc_now());
    json_open(json, "failure", '{');
    json_string(json, "message", failure->message);
    json_integer(json, "rank", c->rank);
    json_string(json, "host", c->host);
    json_string(json, "operation", failure->place.operation);
    json_string(json, "path", failure->place.path);
    json_string(json, "text", failure->text);
    json_close(json, '}');
    json_open(json, "operations", '[');
    json_close(json, ']');
    draft_publish(&draft, 0, name, c->options->json);
}
