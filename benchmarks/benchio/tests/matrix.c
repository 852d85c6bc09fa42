/* Every backend x file x pattern x op (x access, layouts, odd sizes), verified, in one MPI job: starting a
 * job for each would take most of the time. Any difference or error ends the job with a message; what is run
 * is printed by rank 0.
 *
 * Usage: matrix DIR [full]. Without `full`: one op (`both`, which writes, reads and checks) for every
 * combination. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "measure.h"
#include "scratch.h"

enum { MOST = 40 };

struct words {
    const char *word[MOST];
    int n;
};

/* Append the blank-separated words of `text`, which must live as long as `words`. */
static void add(struct words *words, char *text) {
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save))
        words->word[words->n++] = word;
}

static void end_failed_run(const struct context *c, const struct failure *failure) {
    (void)failure;
    scratch_remove(c);
}

static struct context make_context(const struct options *options) {
    struct context c = {.options = options, .started = utc_now(), .end_failed_run = end_failed_run};
    int length;
    MPI_Comm_dup(MPI_COMM_WORLD, &c.world);
    MPI_Comm_set_errhandler(c.world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(c.world, &c.rank);
    MPI_Comm_size(c.world, &c.size);
    MPI_Get_processor_name(c.host, &length);
    return c;
}

/* What the checks of a run prove, from the arithmetic of the options alone. */
static uint64_t expected_bytes(const struct options *o, const struct placement *p, const struct context *c) {
    uint64_t bytes;
    if (o->pattern != PATTERN_BLOCK3D)
        bytes = o->block * o->segments * (uint64_t)c->size;
    else if (o->global.n > 0)
        bytes = o->global.size[0] * o->global.size[1] * o->global.size[2] * 8 * (uint64_t)p->instances;
    else
        bytes = o->local.size[0] * o->local.size[1] * o->local.size[2] * 8 * (uint64_t)c->size;
    return bytes;
}

/* How many combinations ran, and how many this number of ranks cannot form. */
struct tally {
    int ran;
    int impossible;
};

static struct tally tally;

/* Only a division of ranks or cells may be impossible; anything else that is refused was forgotten here. */
static void count_impossible(const char *text, const char *message, int rank) {
    if (strstr(text, "--instances") == NULL && strstr(text, "--global") == NULL) {
        fprintf(stderr, "matrix: %s: refused: %s\n", text, message);
        MPI_Abort(MPI_COMM_WORLD, EXIT_BROKEN);
    }
    tally.impossible++;
    if (rank == 0)
        printf("not with so many ranks: %s: %s\n", text, message);
}

static void run(const char *dir, const char *text) {
    char copy[512], message[1024];
    struct words words = {{"matrix", "--verify", "--quiet", "--dir", dir, "--repeat", "2"}, 7};
    struct options options;
    struct placement placement;
    struct results results;
    int rank;
    snprintf(copy, sizeof copy, "%s", text);
    add(&words, copy);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!options_parse(&options, words.n, (char **)(uintptr_t)words.word, message, sizeof message)) {
        fprintf(stderr, "matrix: %s: %s\n", text, message);
        MPI_Abort(MPI_COMM_WORLD, EXIT_USAGE);
    }
    struct context c = make_context(&options);
    const char *reason = options_check_ranks(&options, c.size, message, sizeof message)
                             ? placement_make(&placement, &c)
                             : message;
    if (reason != NULL) {
        count_impossible(text, reason, rank);
    } else {
        tally.ran++;
        if (rank == 0)
            printf("%s\n", text), fflush(stdout);
        scratch_make(&c);
        measure(&c, &placement, &results);
        MPI_Barrier(c.world);
        uint64_t once = expected_bytes(&options, &placement, &c);
        if (results.bytes != once || results.verified_bytes != 2 * once) {
            fprintf(stderr,
                    "matrix: %s: %" PRIu64 " bytes moved, %" PRIu64 " checked, expected %" PRIu64
                    " and %" PRIu64 "\n",
                    text, results.bytes, results.verified_bytes, once, 2 * once);
            MPI_Abort(MPI_COMM_WORLD, EXIT_BROKEN);
        }
        if (rank == 0)
            scratch_remove(&c);
        results_free(&results);
        placement_free(&placement);
    }
    options_free(&options);
    MPI_Comm_free(&c.world);
}

/* What a library may be built without: refused with the reason. */
static void run_if_available(const char *dir, const char *text) {
    char copy[512], message[1024];
    struct words words = {{"matrix"}, 1};
    struct options options;
    int rank;
    snprintf(copy, sizeof copy, "%s", text);
    add(&words, copy);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bool available =
        options_parse(&options, words.n, (char **)(uintptr_t)words.word, message, sizeof message);
    if (available)
        options_free(&options);
    if (available)
        run(dir, text);
    else if (rank == 0)
        printf("not available: %s: %s\n", text, message);
}

/* Sizes that divide nothing: odd boxes, blocks that are no multiple of the transfer, words that begin inside.
 */
static const char *const shapes[] = {
    "--pattern block3d --local 5x4x7",
    "--pattern disjoint --transfer 1000 --block 2501 --segments 3",
    "--pattern interleaved --transfer 777 --block 1601 --segments 5",
};
static const char *const full_shapes[] = {
    "--pattern block3d --global 13x7x17",
    "--pattern block3d --local 9x5x11 --transfer 1000",
    "--pattern block3d --global 6x7x23 --transfer 3k",
    "--pattern interleaved --transfer 1m",
    "--pattern disjoint --transfer 1000000 --block 3000000",
    "--pattern block3d --local 64x64x64",
};
static const char *const layouts[] = {
    "--pattern block3d --local 5x4x7 --align 4096",
    "--pattern block3d --local 5x4x7 --fill",
    "--pattern block3d --local 9x5x11 --transfer 1000 --unlimited",
    "--pattern interleaved --transfer 512 --segments 4 --row 1024",
    "--pattern disjoint --transfer 512 --block 2048 --row 512 --unlimited",
    "--pattern interleaved --transfer 512 --segments 4 --row 1024 --fill --align 4096",
};
static const char *const chunked[] = {
    "--pattern block3d --local 5x4x7 --chunk 3x4x5",
    "--pattern block3d --local 9x5x11 --chunk 9x5x2 --unlimited --transfer 1000 --collective-metadata",
    "--pattern block3d --local 5x4x7 --chunk 3x4x5 --byte-order big",
    "--pattern block3d --local 5x4x7 --access independent --byte-order big",
    "--pattern disjoint --transfer 1000 --block 2500 --chunk 999 --fill",
    "--pattern interleaved --transfer 512 --segments 4 --row 1024 --chunk 512x1 --unlimited",
};
static const char *const filtered[] = {
    "--filter deflate --pattern block3d --local 5x4x7 --chunk 3x4x5",
    "--filter deflate --filter-level 9 --pattern disjoint --transfer 1000 --block 2500 --chunk 999",
    "--filter szip --pattern block3d --local 33x5x7 --chunk 32x3x4",
    "--chunk-cache 64k --pattern block3d --local 9x5x11 --chunk 9x5x2",
};
static const char *const others[] = {
    "--cache drop",
    "--sync=each",
    "--sync",
    "--shift 0",
    "--instances 2",
    "--instances 3 --shift 1",
    "--access independent --sync",
};
#define N_OF(list) (sizeof(list) / sizeof *(list))

static void each_file(const char *dir, const char *api, const char *shape, const char *more) {
    char text[512];
    for (int file = 0; file_names[file] != NULL; file++) {
        if (file == FILE_PER_NODE && strstr(shape, "--global") != NULL)
            continue;
        snprintf(text, sizeof text, "--api %s --file %s %s %s", api, file_names[file], shape, more);
        run(dir, text);
    }
}

static void each_op(const char *dir, const struct backend *backend, const char *shape, bool full) {
    char more[64], how[32] = "";
    for (int access = 0; access_names[access] != NULL && (access == 0 || backend->has_access); access++) {
        if (backend->has_access)
            snprintf(how, sizeof how, "--access %s", access_names[access]);
        snprintf(more, sizeof more, "--op both %s", how);
        each_file(dir, backend->name, shape, more);
        for (int op = 0; full && op < OP_BOTH; op++) {
            snprintf(more, sizeof more, "--op %s %s", op_names[op], how);
            each_file(dir, backend->name, shape, more);
        }
    }
}

static void each_layout(const char *dir, const struct backend *backend, bool full) {
    char text[512];
    for (size_t i = 0; i < N_OF(layouts) && backend->has_layout; i++) {
        snprintf(text, sizeof text, "--api %s --op both %s", backend->name, layouts[i]);
        run(dir, text);
    }
    for (size_t i = 0; i < N_OF(chunked) && backend->has_chunks; i++) {
        if (strcmp(backend->name, "hdf5") != 0 && strstr(chunked[i], "collective-metadata") != NULL)
            continue;
        snprintf(text, sizeof text, "--api %s --op both %s", backend->name, chunked[i]);
        run(dir, text);
    }
    for (size_t i = 0; i < N_OF(filtered) && backend->has_chunks; i++) {
        snprintf(text, sizeof text, "--api %s --op both %s", backend->name, filtered[i]);
        run_if_available(dir, text);
    }
    if (strcmp(backend->name, "hdf5") == 0)
        run_if_available(dir, "--api hdf5 --op both --local 5x4x7 --access independent --vfd subfiling");
    for (size_t i = 0; i < N_OF(others); i++) {
        snprintf(text, sizeof text, "--api %s --op both --local 5x4x7 %s", backend->name, others[i]);
        if (full || i < 2)
            run(dir, text);
    }
}

static void each_backend(const char *dir, bool full) {
    for (int api = 0; api < backend_count; api++) {
        const struct backend *backend = backends[api].backend;
        if (backend == NULL)
            printf("not built: %s\n", backends[api].name);
        if (backend == NULL || !backend->has_files)
            continue;
        for (size_t i = 0; i < N_OF(shapes); i++)
            each_op(dir, backend, shapes[i], full);
        for (size_t i = 0; full && i < N_OF(full_shapes); i++)
            each_op(dir, backend, full_shapes[i], false);
        each_layout(dir, backend, full);
    }
    run(dir, "--api posix --op both --pattern disjoint --transfer 64k --block 192k --cache direct");
}

int main(int argc, char **argv) {
    if (argc < 2)
        return EXIT_USAGE;
    int provided; /* subfiling needs threads */
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    each_backend(argv[1], argc > 2 && strcmp(argv[2], "full") == 0);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("matrix: all fine: %d runs, %d impossible\n", tally.ran, tally.impossible);
    MPI_Finalize();
    return EXIT_FINE;
}
