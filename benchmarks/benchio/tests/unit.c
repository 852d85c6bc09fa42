/* Arithmetic without files and, but for linking, without MPI. Each check names its source of truth. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expression.h"
#include "filesystem.h"
#include "generator.h"
#include "geometry.h"
#include "json.h"
#include "latency.h"
#include "sha256.h"
#include "size.h"
#include "tree.h"

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static void sizes_are_strict(void) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},         {"1000000", 1000000}, {"1m", 1048576}, {"1MiB", 1048576},
                {"1mb", 1000000}, {"1.5g", 1610612736}, {"0.5k", 512},   {"2T", (uint64_t)2 << 40},
                {"7b", 7},        {"4kb", 4000},        {"0.001kb", 1}};
    static const char *const bad[] = {"",          "-1",   "1.5", "1.3k", "m",   "1mm", "1 m",
                                      "1mib2",     "1.",   ".5k", "1e6",  "0x1", "1.b", "9999999999999999999",
                                      "99999999p", "1kbb", "+1",  "1,5g"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t bytes = 1;
        CHECK(size_parse(good[i].text, &bytes) == NULL);
        CHECK(bytes == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bytes = 77;
        CHECK(size_parse(bad[i], &bytes) != NULL);
        CHECK(bytes == 77);
    }
}

static void lists_of_sizes(void) {
    uint64_t sizes[3];
    int n;
    CHECK(sizes_parse("128x64x1k", sizes, &n) == NULL && n == 3 && sizes[0] == 128 && sizes[2] == 1024);
    CHECK(sizes_parse("1m", sizes, &n) == NULL && n == 1);
    CHECK(sizes_parse("1x2x3x4", sizes, &n) != NULL);
    CHECK(sizes_parse("1x", sizes, &n) != NULL);
    CHECK(sizes_parse("0x2", sizes, &n) != NULL);
}

/* Values as Python has them with // for / and ** for ^. */
static void expressions_are_whole(void) {
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"1 + 2 * 3", 7},
                {"(1 + 2) * 3", 9},
                {"-7 / 2", -4},
                {"-7 % 2", 1},
                {"7 % -2", -1},
                {"2^10", 1024},
                {"-2^2", -4},
                {"2^3^2", 512},
                {"10 - 3 - 2", 5},
                {"3 < 4 and 4 <= 4", 1},
                {"1 > 2 or 0", 0},
                {"n % 4 == 3", 1},
                {"min(n, 3) + max(1,2)", 5},
                {"true + false", 1},
                {"0 and 1 / 0", 0},
                {"1 or 1 / 0", 1},
                {"  n*n ", 49},
                {"9223372036854775807", INT64_MAX},
                {"api == hdf5", 1},
                {"n == 7 and api != hdf5 or 2 * (api==hdf5) + (api == hdf) - 2", 0},
                {"(api != posix) * n", 7}};
    static const char *const bad[] = {
        "",          "1 +",    "(1",    "1)",  "1 2",
        "m",         "nn",     "0x10",  "010", "1_000",
        "1 < 2 < 3", "min(1)", "n = 3", "$n",  "9223372036854775808000000000000000000000000000000000000e999",
        "and",       "3k"};
    static const char *const no_comparison[] = {"api",         "n * api == hdf5",  "api == 5",
                                                "api <= hdf5", "api == hdf5 == 1", "api == hdf5+1",
                                                "api ==",      "hdf5 == api",      "n == hdf5"};
    static const char *const fail[] = {"1 / 0",
                                       "1 % (n - 7)",
                                       "2^63",
                                       "9223372036854775807 + 1",
                                       "2^-1",
                                       "0.5",
                                       "-9223372036854775807 - 2",
                                       "(-9223372036854775807 - 1) / -1"};
    struct scope scope = {0};
    char why[128];
    scope_set(&scope, scope_push(&scope, "n"), 7);
    scope.slot[scope_push(&scope, "api")].text = "hdf5";
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t value = 0;
        struct expression *e = expression_parse(good[i].text, &scope, why, sizeof why);
        CHECK(e != NULL && expression_integer(e, &scope, &value) == NULL && value == good[i].value);
        expression_free(e);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(expression_parse(bad[i], &scope, why, sizeof why) == NULL && why[0] != '\0');
    for (size_t i = 0; i < sizeof no_comparison / sizeof *no_comparison; i++)
        CHECK(expression_parse(no_comparison[i], &scope, why, sizeof why) == NULL && why[0] != '\0');
    for (size_t i = 0; i < sizeof fail / sizeof *fail; i++) {
        int64_t value;
        struct expression *e = expression_parse(fail[i], &scope, why, sizeof why);
        CHECK(e != NULL && expression_integer(e, &scope, &value) != NULL);
        expression_free(e);
    }
}

static void expressions_are_real(void) {
    struct scope scope = {0};
    char why[128], deep[1001];
    double value = 0;
    scope_set(&scope, scope_push(&scope, "n"), 4);
    struct expression *e = expression_parse("0.25 * n^0.5 + 1e-3 / n", &scope, why, sizeof why);
    CHECK(e != NULL && expression_real(e, &scope, &value) == NULL && value == 0.25 * 2 + 1e-3 / 4);
    expression_free(e);
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    CHECK(expression_parse(deep, &scope, why, sizeof why) == NULL && strstr(why, "deeper") != NULL);
    memset(deep, '-', sizeof deep - 1);
    CHECK(expression_parse(deep, &scope, why, sizeof why) == NULL && strstr(why, "deeper") != NULL);
}

static void trees_have_lines(void) {
    char why[256], place[256];
    const char *text = "a: 1\nb:\n  - x\n  - {c: [3, 'y']}\n";
    static const struct {
        const char *text, *words;
    } bad[] = {{"", "empty"},
               {"a: &x 1\nb: *x\n", "line 2, column 4: an alias is refused"},
               {"a: 1\na: 2\n", "line 2, column 1: 'a' is there twice"},
               {"a: 1\n--- \nb: 2\n", "second document"},
               {"a: [1\n", "line 2"},
               {"[a]: 1\n", "a key must be a word"}};
    struct tree *t = tree_read(text, strlen(text), why, sizeof why);
    CHECK((t != NULL) == (strncmp(tree_library(), "not built", 9) != 0));
    if (t == NULL)
        return;
    const struct tree *y = tree_find(tree_find(t, "b")->item[1], "c")->item[1];
    tree_place(y, place, sizeof place);
    CHECK(strcmp(place, "line 4, b[1].c[1]") == 0 && strcmp(y->text, "y") == 0);
    tree_free(t);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t = tree_read(bad[i].text, strlen(bad[i].text), why, sizeof why);
        CHECK(t == NULL && strstr(why, bad[i].words) != NULL);
    }
}

/* FIPS 180-4 examples, and one of two blocks (NIST CSRC). */
static void hash_is_sha256(void) {
    char hex[65];
    sha256_hex("abc", 3, hex);
    CHECK(strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0);
    sha256_hex("", 0, hex);
    CHECK(strcmp(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855") == 0);
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    sha256_hex(two, strlen(two), hex);
    CHECK(strcmp(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1") == 0);
}

static void json_is_escaped(void) {
    char *text = NULL;
    size_t n = 0;
    struct json json = {.out = open_memstream(&text, &n), .compact = true};
    json_open(&json, NULL, '{');
    json_string(&json, "a\"b", "c\\d\n\x01");
    json_number(&json, "x", 0.1);
    json_number(&json, "nan", strtod("nan", NULL));
    json_open(&json, "list", '[');
    json_unsigned(&json, NULL, UINT64_MAX);
    json_integer(&json, NULL, -1);
    json_close(&json, ']');
    json_close(&json, '}');
    fclose(json.out);
    CHECK(strcmp(text, "{\"a\\\"b\":\"c\\\\d\\u000a\\u0001\",\"x\":0.10000000000000001,\"nan\":null,"
                       "\"list\":[18446744073709551615,-1]}") == 0);
    free(text);
}

static void grids_are_compact(void) {
    static const uint64_t expected[][4] = {{1, 1, 1, 1}, {2, 2, 1, 1},  {4, 2, 2, 1},  {6, 3, 2, 1},
                                           {7, 7, 1, 1}, {24, 4, 3, 2}, {64, 4, 4, 4}, {4608, 18, 16, 16}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        uint64_t grid[3];
        grid_make(expected[i][0], grid);
        CHECK(memcmp(grid, expected[i] + 1, sizeof grid) == 0);
    }
}

/* Property: over all ranks and steps every byte of the file is moved exactly once. */
static void every_byte_once(const struct options *o, uint64_t ranks) {
    struct geometry g;
    unsigned char *seen = NULL;
    for (uint64_t rank = 0; rank < ranks; rank++) {
        CHECK(geometry_make(&g, o, rank, ranks, rank, ranks) == NULL);
        if (seen == NULL)
            seen = calloc(g.file_bytes, 1);
        uint64_t moved = 0;
        char *array = malloc(g.array_bytes);
        for (uint64_t step = 0; step < g.steps; step++) {
            struct slab s = geometry_step(&g, step, array);
            moved += s.elements * s.element;
            CHECK(s.elements == 0 || s.start[0] + s.count[0] <= s.extent);
            CHECK(s.extent <= g.dims[0]);
            for (uint64_t e = 0; e < s.elements; e++) {
                uint64_t at = s.first + e;
                if (s.ndims == 3) {
                    uint64_t x = e % s.count[2], y = e / s.count[2] % s.count[1],
                             z = e / s.count[2] / s.count[1];
                    at = (((s.start[0] + z) * g.dims[1] + s.start[1] + y) * g.dims[2] + s.start[2] + x) *
                         s.element;
                }
                for (size_t byte = 0; byte < s.element; byte++)
                    CHECK(at + byte < g.file_bytes && seen[at + byte]++ == 0);
            }
        }
        CHECK(moved == g.bytes);
        free(array);
    }
    for (uint64_t i = 0; i < g.file_bytes; i++)
        CHECK(seen[i] == 1);
    free(seen);
}

static void all_geometries(void) {
    static const struct options shapes[] = {
        {.pattern = PATTERN_BLOCK3D, .local = {{5, 4, 7}, 3}},
        {.pattern = PATTERN_BLOCK3D, .local = {{5, 4, 7}, 3}, .transfer = 400},
        {.pattern = PATTERN_BLOCK3D, .global = {{13, 11, 17}, 3}},
        {.pattern = PATTERN_BLOCK3D, .global = {{13, 11, 17}, 3}, .transfer = 3000},
        {.pattern = PATTERN_DISJOINT, .transfer = 100, .block = 251, .segments = 3},
        {.pattern = PATTERN_INTERLEAVED, .transfer = 100, .block = 251, .segments = 3},
        {.pattern = PATTERN_INTERLEAVED, .transfer = 64, .block = 128, .segments = 4, .row = 256},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint64_t ranks = 1; ranks <= 12; ranks++)
            every_byte_once(&shapes[i], ranks);
}

/* Steps are arithmetic: the last of a million segments is found at once, at the position that IOR defines. */
static void last_of_many(void) {
    const struct options o = {
        .pattern = PATTERN_INTERLEAVED, .transfer = 1 << 20, .block = 1 << 20, .segments = 1000000};
    struct geometry g;
    CHECK(geometry_make(&g, &o, 3, 8, 3, 8) == NULL);
    CHECK(g.steps == 1000000 && g.array_bytes == 1 << 20);
    CHECK(geometry_step(&g, 999999, NULL).first == (UINT64_C(999999) * 8 + 3) << 20);
}

static void packing_is_inverse(void) {
    const struct options o = {.pattern = PATTERN_BLOCK3D, .local = {{5, 4, 7}, 3}, .transfer = 700};
    struct geometry g;
    CHECK(geometry_make(&g, &o, 2, 6, 2, 6) == NULL);
    double *a = malloc(g.array_bytes), *b = malloc(g.array_bytes);
    char buffer[37 * 8];
    generator_fill_box(&g, generator_key(1, 0), a, false);
    generator_fill_box(&g, generator_key(1, 0), b, true);
    for (uint64_t step = 0; step < g.steps; step++) {
        struct slab from = geometry_step(&g, step, a), to = geometry_step(&g, step, b);
        for (uint64_t e = 0; e < from.elements; e += 37) {
            uint64_t n = from.elements - e < 37 ? from.elements - e : 37;
            slab_pack(&from, e, n, buffer);
            slab_unpack(&to, e, n, buffer);
        }
    }
    CHECK(memcmp(a, b, g.array_bytes) == 0);
    free(a);
    free(b);
}

/* Bytes depend on their place alone, and one wrong bit is found where it is. */
static void generator_finds_differences(void) {
    unsigned char whole[5000], part[5000];
    uint64_t key = generator_key(1, 0);
    generator_fill_bytes(key, 0, sizeof whole, whole);
    for (uint64_t from = 0; from < 40; from++) {
        generator_fill_bytes(key, from, 4900, part);
        CHECK(memcmp(part, whole + from, 4900) == 0);
    }
    CHECK(generator_check_bytes(key, 0, sizeof whole, whole).count == 0);
    for (uint64_t at = 0; at < sizeof whole; at += 97) {
        whole[at] ^= 0x40;
        struct difference d = generator_check_bytes(key, 0, sizeof whole, whole);
        CHECK(d.count == 1 && d.offset == at && (d.expected ^ d.found) == 0x40);
        whole[at] ^= 0x40;
    }
    CHECK(generator_check_bytes(generator_key(1, 1), 0, sizeof whole, whole).count > 4900);
    CHECK(generator_check_bytes(generator_key(2, 0), 0, sizeof whole, whole).count > 4900);
    CHECK(generator_check_bytes(key, 512, 4000, whole).count > 3900);
}

static void boxes_and_halos(void) {
    const struct options o = {.pattern = PATTERN_BLOCK3D, .local = {{5, 4, 7}, 3}};
    struct geometry g;
    CHECK(geometry_make(&g, &o, 1, 2, 1, 2) == NULL);
    double *array = malloc(g.array_bytes);
    uint64_t key = generator_key(1, 0);
    generator_fill_box(&g, key, array, true);
    CHECK(generator_check_box(&g, key, array).count == 5 * 4 * 7);
    generator_fill_box(&g, key, array, false);
    CHECK(generator_check_box(&g, key, array).count == 0);
    array[0] = 0;
    CHECK(generator_check_box(&g, key, array).offset == UINT64_MAX);
    array[0] = HALO_VALUE;
    array[(1 * 6 + 1) * 7 + 1] = 2.5; /* the first element inside the halo */
    CHECK(generator_check_box(&g, key, array).offset == g.start[0] * g.dims[1] * g.dims[2] * 8);
    free(array);
}

/* Bytes as `lustre_user.h` lays out lov_user_md_v1: magic, pattern, object (16), stripe size, stripe count,
 * offset. */
static void lustre_attribute(void) {
    unsigned char bytes[32] = {0xd0, 0x0b, 0xd1, 0x0b, 1};
    bytes[26] = 0x40; /* 0x00400000: 4 MiB */
    bytes[28] = 0xff, bytes[29] = 0xff;
    struct layout layout = lustre_layout(bytes, 32);
    CHECK(layout.n == 1 && layout.component[0].count == -1 && layout.component[0].size == 4 << 20);
    CHECK(layout.component[0].end == UINT64_MAX);
    CHECK(lustre_layout(bytes, 31).n == 0);
    bytes[0] = 0;
    CHECK(lustre_layout(bytes, 32).n == 0);
}

/* A progressive layout as `lfs setstripe -E 1m -L mdt -E 256m -c 1 -E eof -c -1 -S 4m` makes it (Lustre
 * manual, 19.5 and 20): lov_comp_md_v1 of 32 bytes, entries of 48, and a lov_user_md_v1 for each. */
static void lustre_composite_attribute(void) {
    static const struct component wanted[] = {
        {1 << 20, 0, 1 << 20}, {256 << 20, 1, 1 << 20}, {UINT64_MAX, -1, 4 << 20}};
    unsigned char bytes[32 + 3 * 48 + 3 * 32] = {0xd0, 0x0b, 0xd6, 0x0b};
    bytes[14] = 3;
    for (uint32_t i = 0; i < 3; i++) {
        unsigned char *entry = bytes + 32 + i * 48, *plain = bytes + 32 + 3 * 48 + i * 32;
        uint32_t at = (uint32_t)(plain - bytes), length = 32, size = (uint32_t)wanted[i].size;
        int16_t count = (int16_t)wanted[i].count;
        memcpy(entry + 16, &wanted[i].end, 8);
        memcpy(entry + 24, &at, 4), memcpy(entry + 28, &length, 4);
        memcpy(plain, (unsigned char[]){0xd0, 0x0b, 0xd1, 0x0b, 1}, 5);
        plain[5] = i == 0; /* LOV_PATTERN_MDT */
        memcpy(plain + 24, &size, 4), memcpy(plain + 28, &count, 2);
    }
    struct layout layout = lustre_layout(bytes, sizeof bytes);
    CHECK(layout.n == 3);
    for (int i = 0; i < 3; i++)
        CHECK(layout.component[i].end == wanted[i].end && layout.component[i].count == wanted[i].count &&
              layout.component[i].size == wanted[i].size);
    for (int64_t n = 0; n < (int64_t)sizeof bytes; n++)
        CHECK(lustre_layout(bytes, n).n == 0);
    bytes[14] = 17; /* more than fit */
    CHECK(lustre_layout(bytes, sizeof bytes).n == 0);
}

/* 1..1000 ms: the quantiles are 500 and 990 ms, a bin is at most 1/32 of its time wide. */
static void latencies_have_quantiles(void) {
    static struct latencies times;
    latencies_clear(&times);
    CHECK(latencies_summary(&times).count == 0 && latencies_summary(&times).longest == 0);
    for (int i = 1000; i >= 1; i--)
        latencies_add(&times, 1e-3 * i);
    struct transfer_times summary = latencies_summary(&times);
    CHECK(summary.count == 1000 && summary.longest == 1);
    CHECK(summary.median > 0.5 * (1 - 1. / 32) && summary.median < 0.5 * (1 + 1. / 32));
    CHECK(summary.p99 > 0.99 * (1 - 1. / 32) && summary.p99 <= 1);
    /* One of 101 is within the 99 % that are shorter, two of 101 are not. */
    latencies_clear(&times);
    for (int i = 0; i < 100; i++)
        latencies_add(&times, 1e-6);
    latencies_add(&times, 5);
    CHECK(latencies_summary(&times).p99 < 1.1e-6 && latencies_summary(&times).longest == 5);
    latencies_add(&times, 5);
    CHECK(latencies_summary(&times).p99 > 4.8);
    /* Outside of all bins. */
    latencies_clear(&times);
    latencies_add(&times, 0);
    latencies_add(&times, 1e9);
    summary = latencies_summary(&times);
    CHECK(summary.count == 2 && summary.median < 1e-8 && summary.longest == 1e9);
}

int main(void) {
    sizes_are_strict();
    lists_of_sizes();
    hash_is_sha256();
    json_is_escaped();
    latencies_have_quantiles();
    grids_are_compact();
    all_geometries();
    last_of_many();
    packing_is_inverse();
    generator_finds_differences();
    boxes_and_halos();
    lustre_attribute();
    lustre_composite_attribute();
    expressions_are_whole();
    expressions_are_real();
    trees_have_lines();
    puts("unit: all fine");
    return 0;
}
