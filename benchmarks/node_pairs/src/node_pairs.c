/* Messages between all pairs of nodes: in each round of a tournament every node has one partner.

     mpirun -n NODES --map-by node node_pairs [TRANSFER_BYTES [REPETITIONS]]

   One rank on each node. Rank 0 prints one line per pair and repetition: latency (s) and bandwidth (bytes/s),
   each the median of some round trips, halved. docs/benchmarks.md describes the output. */
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 1
#define LATENCY_BYTES 8
#define MAX_BYTES (1L << 30)
#define MAX_REPETITIONS 1000
#define MAX_TRIPS 200
#define MAX_LINE (MPI_MAX_LIBRARY_VERSION_STRING + 100)

/* Round trips with one size of messages; the time limit ends them on a slow link, after a measured one. */
struct exchange {
    int bytes, unmeasured, measured;
    double limit_s;
};

struct result {
    double partner, latency_s, bytes_per_s; /* partner -1: no partner, or it was the one that measured */
};

static void fail(const char *message, const char *value) {
    fprintf(stderr, "node_pairs: error: %s%s%s\n", message, value != NULL ? ": " : "",
            value != NULL ? value : "");
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* The partner of a node in a round, by the circle method; -1 if it has none, because their number is odd. The
   last seat of the circle is fixed, the others turn by one per round. */
static int partner_in_round(int node, int round, int nodes) {
    int seats = nodes + nodes % 2, turning = seats - 1, partner;
    if (node == turning)
        partner = (int)((long)round * (seats / 2) % turning);
    else
        partner = ((round - node) % turning + turning) % turning;
    if (partner == node)
        partner = turning;
    return partner < nodes ? partner : -1;
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Seconds of one way: half of the median round trip. The first byte of a message says whether it is the last
 * one. */
static double measure(struct exchange exchange, int partner, char *buffer) {
    double seconds[MAX_TRIPS];
    int measured = 0;
    double began = MPI_Wtime();
    for (int trip = 0;; trip++) {
        bool is_measured = trip >= exchange.unmeasured;
        double start = MPI_Wtime();
        bool is_last = trip + 1 == exchange.unmeasured + exchange.measured;
        is_last = is_last || (is_measured && start - began > exchange.limit_s);
        buffer[0] = is_last;
        MPI_Send(buffer, exchange.bytes, MPI_CHAR, partner, 0, MPI_COMM_WORLD);
        MPI_Recv(buffer, exchange.bytes, MPI_CHAR, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (is_measured)
            seconds[measured++] = MPI_Wtime() - start;
        if (is_last)
            break;
    }
    qsort(seconds, (size_t)measured, sizeof *seconds, ascending);
    return seconds[measured / 2] / 2;
}

static void answer(struct exchange exchange, int partner, char *buffer) {
    do {
        MPI_Recv(buffer, exchange.bytes, MPI_CHAR, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, exchange.bytes, MPI_CHAR, partner, 0, MPI_COMM_WORLD);
    } while (!buffer[0]);
}

static struct result run_pair(int rank, int partner, int bytes, char *buffer) {
    struct exchange small = {LATENCY_BYTES, 10, MAX_TRIPS, 0.1}, large = {bytes, 2, 20, 0.3};
    struct result result = {-1, 0, 0};
    if (partner >= 0 && rank < partner) {
        result.partner = partner;
        result.latency_s = measure(small, partner, buffer);
        result.bytes_per_s = bytes / measure(large, partner, buffer);
    } else if (partner >= 0) {
        answer(small, partner, buffer);
        answer(large, partner, buffer);
    }
    return result;
}

static long number(const char *text, long least, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value < least || value > most)
        fail("expected a number of bytes, and of repetitions", text);
    return value;
}

/* CRC-32 of all lines that were printed, as zlib has it: figures of a line have nothing else to check them
 * by. */
static uint32_t checksum = 0xffffffff;

static void print_line(const char *format, ...) {
    char line[MAX_LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    puts(line);
    for (const char *c = line; *c != '\0'; c++) {
        checksum ^= (unsigned char)*c;
        for (int bit = 0; bit < 8; bit++)
            checksum = checksum >> 1 ^ (0xedb88320 & -(checksum & 1));
    }
}

static void print_head(int nodes, int bytes, int repetitions) {
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\r\n")] = '\0';
    print_line("node_pairs %d", FORMAT);
    print_line("mpi %s", library);
    print_line("nodes %d", nodes);
    print_line("latency %d bytes", LATENCY_BYTES);
    print_line("bandwidth %d bytes", bytes);
    print_line("repetitions %d", repetitions);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("node_pairs %d\n", FORMAT);
        return 0;
    }
    int rank, nodes, length, node_ranks;
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nodes);
    MPI_Get_processor_name(name, &length);
    int bytes = (int)(argc > 1 ? number(argv[1], LATENCY_BYTES, MAX_BYTES) : 1 << 20);
    int repetitions = (int)(argc > 2 ? number(argv[2], 1, MAX_REPETITIONS) : 3);

    /* Ranks on one node exchange messages through its memory, which says nothing about links. */
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &node_ranks);
    if (nodes < 2)
        fail("there is one rank: no pair of nodes", NULL);
    if (node_ranks > 1)
        fail("expected one rank on each node, there are several on", name);

    char *buffer = calloc(1, (size_t)bytes);
    char *names = rank == 0 ? calloc((size_t)nodes, sizeof name) : NULL;
    struct result *results = rank == 0 ? calloc((size_t)nodes, sizeof *results) : NULL;
    if (buffer == NULL || (rank == 0 && (names == NULL || results == NULL)))
        fail("out of memory on", name);
    MPI_Gather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        print_head(nodes, bytes, repetitions);
        for (int other = 0; other < nodes; other++)
            print_line("node %d %s", other, names + (size_t)other * sizeof name);
    }

    long printed = 0;
    int rounds = nodes + nodes % 2 - 1;
    for (int repetition = 1; repetition <= repetitions; repetition++)
        for (int round = 0; round < rounds; round++) {
            /* The pairs of a round begin together, when the slowest pair of the round before has ended. */
            MPI_Barrier(MPI_COMM_WORLD);
            struct result result = run_pair(rank, partner_in_round(rank, round, nodes), bytes, buffer);
            MPI_Gather(&result, 3, MPI_DOUBLE, results, 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            for (int first = 0; rank == 0 && first < nodes; first++)
                if (results[first].partner >= 0) {
                    print_line("pair %d %d %d %.5g %.6g", repetition, first, (int)results[first].partner,
                               results[first].latency_s, results[first].bytes_per_s);
                    printed++;
                }
            fflush(stdout);
        }
    if (rank == 0)
        printf("end %ld %08x\n", printed, (unsigned)~checksum);
    free(results);
    free(names);
    free(buffer);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
