/* What is refused of a description, with line and field, and that nothing crashes or hangs: DIRECTORY is
 * where descriptions are written. Without files; run on any number of ranks. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "workload.h"
#include "workload_data.h"

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                        \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                    \
        }                                                                                                    \
    } while (0)

/* Lines that the cases below replace. */
static const char *const valid[] = {
    "name: test",
    "parameters: {n: 4, api: mpiio}",
    "variables: {mine: rank * n}",
    "files:",
    "  a: {api: $api, bytes: ranks * n * 10}",
    "  b: {api: posix, layout: per-process, count: 2, bytes: 100}",
    "phases:",
    "  - name: one",
    "    actions:",
    "      - {create: a}",
    "      - {write: a, offset: mine, size: n, count: 2, stride: ranks * n}",
    "      - {close: a}",
    "      - {repeat: 2, index: i, actions: [{create: b, number: i}, {close: b, number: i}]}",
    "      - barrier",
};
#define LINES (sizeof valid / sizeof *valid)

/* A line that is replaced, and words of the refusal; "": it is valid. */
static const struct {
    int line;
    const char *text, *words;
} cases[] = {
    {1, "name: test", ""},
    {1, "name: Test", "line 1, name: expected a name"},
    {1, "name: test\nranks: 4096", "line 2, ranks: the workload is described for 4096 ranks only"},
    {1, "name: test\nranks: 0", "line 2, ranks: the workload is described for 0 ranks only"},
    {1, "name: test\nranks: ranks", ""},
    {1, "name: test\nranks: ranks - 1", "ranks only: it cannot run on"},
    {1, "name: test\nranks: rank", "line 2, ranks: unknown name 'rank'"},
    {1, "nam: test", "line 1, nam: unknown member; expected one of name, description"},
    {1, "name: test\nmemory: {read: new, write: reused}", ""},
    {1, "name: test\nmemory: {read: $api}",
     "line 2, memory.read: 'mpiio': expected one of rotating, reused, new, a number of bytes"},
    {1, "name: test\nmemory: {read: 3 * 2^20}", ""},
    {1, "name: test\nmemory: {read: 0}", "line 2, memory.read: expected 1 to 2^40 bytes"},
    {1, "name: test\nmemory: {read: 2^40 + 1}", "line 2, memory.read: expected 1 to 2^40 bytes"},
    {1, "name: test\nmemory: {read: 16M}", "line 2, memory.read: "},
    {1, "name: test\nmemory: {read: a number of bytes}", "line 2, memory.read: "},
    {1, "name: test\nmemory: {write: 4096}",
     "line 2, memory.write: '4096': expected one of rotating, reused"},
    {1, "name: test\nmemory: {write: new}", "line 2, memory.write: 'new': expected one of rotating, reused"},
    {1, "name: test\nmemory: {halo: ranks > 0}", ""},
    {1, "name: test\nmemory: {halo: 2}", "line 2, memory.halo: expected true or false"},
    {1, "name: test\nmemory: {halo: new}", "line 2, memory.halo: unknown name 'new'"},
    {1, "name: test\nmemory: {reads: new}",
     "line 2, memory.reads: unknown member; expected one of read, write, halo"},
    {1, "name: test\nmemory: new", "line 2, memory: expected members"},
    {2, "parameters: {n: 4, api: posx}", "line 5, files.a.api: 'posx': expected one of posix, mpiio"},
    {2, "parameters: {n: 4, rank: 3, api: mpiio}", "line 2, parameters.rank: expected a name"},
    {2, "parameters: {n: 4", "line 3, column 10: did not find expected"},
    {2, "parameters: {n: m, api: mpiio}", "line 3, variables.mine: 'n' is a text, not a number"},
    {2, "parameters: {n: 1 / 0, api: mpiio}", "line 2, parameters.n: division by zero"},
    {2, "parameters: {n: 4, api: mpiio, both: n == 4 and api == mpiio}", ""},
    {3, "variables: {mine: rank * n * (api != posix)}", ""},
    {3, "variables: {mine: rank * n * api}", "line 3, variables.mine: 'api' is a text, not a number"},
    {3, "variables: {mine: rank * n, hdf5: api == 2}",
     "line 3, variables.hdf5: expected a word with which 'api' is compared"},
    {3, "variables: {mine: rank * m}", "line 3, variables.mine: unknown name 'm'"},
    {3, "variables: {mine: (rank + 1) * 2^62 * 4}", "line 3, variables.mine: the value does not fit 64 bits"},
    {5, "  a: {api: $ap, bytes: 1}", "line 5, files.a.api: '$ap': there is no such parameter"},
    {5, "  a: {api: mpiio}", "line 5, files.a: 'bytes' is missing"},
    {5, "  a: {api: mpiio, bytes: 10, datasets: {d: {type: int, shape: [1]}}}",
     "a file of mpiio has no such member"},
    {5, "  a: {api: mpiio, bytes: -1}", "line 5, files.a.bytes: it is -1; expected 0 to"},
    {5, "  a: {api: mpiio, bytes: ranks * 40, group: 0 - 1}", "line 5, files.a.group: it is -1"},
    {5, "  a: {api: mpiio, bytes: ranks * 40, group: 0, layout: shared}",
     "'group' has the place of 'layout'"},
    {5, "  a: {api: mpiio, bytes: ranks * 40, ranks: [99999]}",
     "line 5, files.a.ranks[0]: there is no rank 99999"},
    {5, "  a: {api: posix, bytes: 8 * ranks * n, hints: {cb_nodes: 1}}",
     "files.a.hints: a file of posix has no such"},
    {6, "  b: {api: posix, bytes: 100, count: 2000000}",
     "line 6, files.b.count: it is 2000000; expected 0 to 1048576"},
    {10, "      - {create: c}",
     "line 10, phases[0].actions[0].create: expected the name of one of the files"},
    {10, "      - {open: a}", "line 11, phases[0].actions[1]: 'a' number 0 is not open for writing"},
    {10, "      - {open: a, mode: read-write}", "line 5, files.a: number 0 is opened and never created"},
    {10, "      - {create: a, mode: read}", "a new file has nothing to read"},
    {10, "      - {crate: a}", "line 10, phases[0].actions[0]: expected barrier, or an action with create"},
    {11, "      - {write: a, offset: mine, size: n, cuont: 2}", "phases[0].actions[1].cuont: unknown member"},
    {11, "      - {write: a, size: n}", "line 11, phases[0].actions[1]: 'offset' is missing"},
    {11, "      - {write: a, offset: mine, size: n, number: 1}", "number is 1, there are 1 files 'a'"},
    {11, "      - {write: a, offset: ranks * n * 10, size: 1}", "is outside of the file, which has"},
    {11, "      - {write: a, offset: 0, size: 1, count: 2, stride: 0 - 1}",
     "offset -1 with 1 bytes is outside"},
    {11, "      - {write: a, offset: 2^62, size: 1, count: 3, stride: 2^62}",
     "the offsets do not fit 64 bits"},
    {11, "      - {write: a, offset: 0, size: 0, count: 2^24, stride: 0}", "more than 10000000 operations"},
    {11, "      - {write: a, offset: 0, size: 2^31}", "at most 2 GiB - 1 in one operation"},
    {11, "      - {write: a, list: [[0, 1], [2]]}",
     "line 11, phases[0].actions[1].list[1]: expected [offset, size]"},
    {11, "      - {write: a, list: [[0, 1], [2, 3]], collective: true}", ""},
    {11, "      - {write: a, list: [[0, 1], [2, 3]], count: 2}",
     "'list' has the place of offset, size, count and stride"},
    {11, "      - {write: a, offset: mine, size: n, view: true, collective: true}", ""},
    {11, "      - {write: a, offset: mine, size: n, count: 2, stride: n, view: false}", ""},
    {11,
     "      - {write: a, list: [[rank, 1], [ranks * 2, n], [ranks * 2 + n, 0]], view: true, collective: "
     "true}",
     ""},
    {11, "      - {write: a, offset: mine, size: n, view: true}",
     "actions[1].view: only a collective operation of mpiio has a view"},
    {11, "      - {write: a, offset: mine, size: n, count: 2, view: true, collective: true}",
     "actions[1].view: 'view' is one operation, without shape, count and stride"},
    {11, "      - {write: a, list: [[4, 4], [7, 1]], view: true, collective: true}",
     "offset 7 of a view is before the end of the part before it, 8"},
    {11, "      - {write: a, list: [[0, 1], [ranks * 40, 1]], view: true, collective: true}",
     "is outside of the file"},
    {11, "      - {write: a, list: [[0, 1], [1, -1]], view: true, collective: true}",
     "size is -1 and count 1"},
    {11, "      - {write: a, offset: mine, size: n, view: rank, collective: true}", "unknown name 'rank'"},
    {11, "      - {write: a, offset: mine, size: n, short: true}",
     "actions[1].short: unknown member; expected"},
    {11, "      - {flush: a, size: n}", "actions[1].size: unknown member; expected"},
    {11, "      - {write: a, offset: 0, shape: [4, 8], start: [0, 2], count: [4, 2], collective: true}", ""},
    {11, "      - {write: a, offset: 0, shape: [4, 8], start: [0, 8], count: [4, 0], collective: true}", ""},
    {11, "      - {write: a, offset: 0, shape: [4, 8], start: [0, 2], count: [4, 2]}",
     "actions[1].shape: only a collective operation of mpiio has a shape"},
    {11, "      - {write: a, offset: 0, size: 1, shape: [4], start: [0], count: [4], collective: true}",
     "'shape' has the place of size, stride and list"},
    {11, "      - {write: a, shape: [4], start: [0], count: [4], collective: true}", "'offset' is missing"},
    {11, "      - {write: a, offset: 0, shape: [4], count: [4], collective: true}", "'start' is missing"},
    {11, "      - {write: a, offset: 0, start: [0], count: [4], collective: true}", "'shape' is missing"},
    {11, "      - {write: a, offset: 0, shape: [4, 8], start: [0], count: [4, 2], collective: true}",
     "actions[1].start: 1 values for 2 dimensions"},
    {11, "      - {write: a, offset: 0, shape: [4, 8], start: [0, 7], count: [4, 2], collective: true}",
     "actions[1].start[1]: 2 elements from 7 on are outside of the dimension, which has 8"},
    {11, "      - {write: a, offset: 0, shape: [0, 8], start: [0, 0], count: [0, 2], collective: true}",
     "actions[1].shape[0]: it is 0; expected 1 to 2147483647"},
    {11,
     "      - {write: a, offset: 9, shape: [ranks * n, 10], start: [0, 0], count: [1, 2], collective: true}",
     "offset 9 with the array is outside of the file"},
    {11,
     "      - {write: a, offset: 0, shape: [2^30, 2^30, 2^30], start: [0, 0, 0], count: [1, 1, 1], "
     "collective: true}",
     "offset 0 with the array is outside of the file"},
    {11, "      - {write: a, offset: 0, size: 1, collective: i}", "actions[1].collective: unknown name 'i'"},
    {11, "      - {write: a, offset: 0, size: 1, dataset: d}", "actions[1].dataset: unknown member"},
    {11, "      - {write: a, offset: 0.5, size: 1}", "actions[1].offset: not a whole number"},
    {11, "      - {read: a, offset: 0, size: 1}", "is not open for reading"},
    {11, "      - {create: a}", "'a' number 0 is open already"},
    {12, "      - {remove: a}", "'a' number 0 is open"},
    {12, "      - {flush: a}", "line 5, files.a: number 0 is open at the end"},
    {13, "      - {repeat: 0 - 2, actions: [barrier]}", "line 13, phases[0].actions[3].repeat: it is -2"},
    {13, "      - {repeat: 2^40, actions: [barrier]}", "more than 10000000 operations"},
    {13, "      - {repeat: 2^40, actions: [{repeat: 0, actions: [barrier]}]}",
     "more than 10000000 operations"},
    {13, "      - {repeat: 2, index: n, actions: [barrier]}", "actions[3].index: 'n' has a meaning already"},
    {13, "      - {repeat: 2}", "line 13, phases[0].actions[3]: 'actions' is missing"},
    {14, "      - {compute: 0 - 1}", "line 14, phases[0].actions[4]: it is -1; expected 0 to"},
    {14, "      - {compute: 0.5 * n}", ""},
    {14, "  - {name: one, actions: [barrier]}", "line 14, phases[1]: a second phase 'one'"},
};

/* With two ranks or more. */
static const struct {
    int line;
    const char *text, *words;
} of_ranks[] = {
    {5, "  a: {api: mpiio, bytes: 1000 + rank}",
     "line 5, files.a: ranks that share the file have other values for it"},
    {11, "      - {write: a, offset: 0, size: 1, collective: true, ranks: rank == 0}",
     "its ranks make other collective"},
    {5, "  a: {api: mpiio, bytes: 100, ranks: rank == 0}", ""},
    {12, "      - {close: a, ranks: rank < 1}", "its ranks make other collective"},
    {14, "      - {repeat: rank, actions: [barrier]}", "line 8, phases: ranks make other barriers"},
};

struct setting {
    struct context context;
    struct options options;
    struct placement placement;
    char path[PATH_MAX];
    int failures;
};

/* Read, resolve and check a text; the message of the lowest rank that has one. Returns whether it is valid.
 */
static bool accepted(struct setting *s, const char *text, size_t length, char *message, size_t n) {
    struct context *c = &s->context;
    FILE *file = c->rank == 0 ? fopen(s->path, "w") : NULL;
    if (file != NULL) {
        fwrite(text, 1, length, file);
        fclose(file);
    }
    struct workload *w = workload_read(c, &s->placement, message, n);
    int fine = w != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &fine, 1, MPI_INT, MPI_LAND, c->world);
    fine = fine && workload_resolve(w, c, message, n) && workload_check(w, c, message, n);
    workload_free(w);
    int reporter = message[0] != '\0' ? c->rank : c->size;
    MPI_Allreduce(MPI_IN_PLACE, &reporter, 1, MPI_INT, MPI_MIN, c->world);
    CHECK(fine == (reporter == c->size));
    if (!fine)
        MPI_Bcast(message, (int)n, MPI_CHAR, reporter, c->world);
    return fine;
}

static void expect(struct setting *s, int line, const char *text, const char *words) {
    char whole[4096] = "", message[1024];
    for (size_t i = 0; i < LINES; i++)
        strcat(strcat(whole, (int)i + 1 == line ? text : valid[i]), "\n");
    bool fine = accepted(s, whole, strlen(whole), message, sizeof message);
    if (fine != (words[0] == '\0') || (!fine && strstr(message, words) == NULL)) {
        fprintf(stderr, "line %d '%s': expected '%s', found '%s'\n", line, text, words, message);
        s->failures++;
    }
}

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

/* Seeded damage: bytes, lines and words that belong elsewhere. Refused with a line, or valid. */
static void damaged(struct setting *s, uint64_t seed) {
    static const char *const words[] = {
        "ranks", "-1", "{", "}", "[", "]",    ": ", "2^63", "*x", "&x ", "rank", "0",   "\n", "- ", "repeat",
        "all",   "n",  "'", "|", "%", "hdf5", "i",  "!!",   "\t", "\0x", "é",    "1.5", "#",  ",",  "posix"};
    static const char viewed[] =
        "      - {write: a, list: [[mine, n], [ranks * n + mine, n]], view: true, collective: true}";
    char text[8192] = "", message[1024];
    uint64_t state = seed;
    for (size_t i = 0; i < LINES; i++) {
        size_t line = draw(&state, 20) == 0 ? draw(&state, LINES) : i;
        strcat(strcat(text, line == 10 && seed % 2 != 0 ? viewed : valid[line]), "\n");
    }
    size_t n = strlen(text);
    for (uint64_t k = 0, times = 1 + draw(&state, 4); k < times; k++) {
        const char *word = words[draw(&state, sizeof words / sizeof *words)];
        size_t at = draw(&state, n), length = word[0] == '\0' ? 1 : strlen(word), removed = draw(&state, 6);
        removed = removed < n - at ? removed : n - at;
        memmove(text + at + length, text + at + removed, n - at - removed);
        memcpy(text + at, word, length);
        n += length - removed;
    }
    if (accepted(s, text, n, message, sizeof message))
        return;
    if (strstr(message, "line ") == NULL && strstr(message, "empty") == NULL) {
        fprintf(stderr, "seed %llu: a refusal without line: %s\n", (unsigned long long)seed, message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Page faults of eight transfers of 1 MiB that go around in 4 MiB, which are new once if they are kept. */
static long faults(const struct context *c, enum memory kind) {
    size_t mib = (size_t)1 << 20;
    struct ring ring = {.memory = ring_map(c, 4 * mib), .bytes = 4 * mib, .kind = kind};
    struct rusage before, after;
    memset(ring.memory, 1, ring.bytes);
    ring_begin(&ring);
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 8; i++) {
        unsigned char *memory = ring_next(&ring, mib);
        CHECK(memory == ring.memory + (kind == MEMORY_REUSED ? 0 : (size_t)i % 4 * mib));
        memset(memory, 2, mib);
    }
    getrusage(RUSAGE_SELF, &after);
    munmap(ring.memory, ring.bytes);
    return after.ru_minflt - before.ru_minflt;
}

int main(int argc, char **argv) {
    struct setting s = {.options = {.timeout = 0}};
    struct context *c = &s.context;
    CHECK(argc == 2);
    MPI_Init(&argc, &argv);
    alarm(240); /* nothing may hang */
    MPI_Comm_dup(MPI_COMM_WORLD, &c->world);
    MPI_Comm_rank(c->world, &c->rank);
    MPI_Comm_size(c->world, &c->size);
    c->options = &s.options;
    snprintf(s.path, sizeof s.path, "%s/workload-test-%d.yaml", argv[1], c->size);
    s.options.workload = s.path;
    s.placement.nodes = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(&s, cases[i].line, cases[i].text, cases[i].words);
    for (size_t i = 0; i < sizeof of_ranks / sizeof *of_ranks && c->size > 1; i++)
        expect(&s, of_ranks[i].line, of_ranks[i].text, of_ranks[i].words);
    CHECK(s.failures == 0);
    long pages = 8 * ((long)1 << 20) / sysconf(_SC_PAGESIZE);
    CHECK(faults(c, MEMORY_NEW) >= pages);
    CHECK(faults(c, MEMORY_KEPT) >= pages / 2 && faults(c, MEMORY_KEPT) < pages * 3 / 4);
    CHECK(faults(c, MEMORY_ROTATING) < pages / 4 && faults(c, MEMORY_REUSED) < pages / 4);
    for (uint64_t seed = 0; seed < 500 && c->size == 1; seed++)
        damaged(&s, seed);
    if (c->rank == 0) {
        remove(s.path);
        puts("workload: all fine");
    }
    MPI_Comm_free(&c->world);
    MPI_Finalize();
    return 0;
}
