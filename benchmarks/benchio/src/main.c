#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "measure.h"
#include "record.h"
#include "scratch.h"
#include "table.h"
#include "visibility.h"
#include "workload_run.h"

/* The rank from the variables that launchers set, so that --help is printed once without MPI_Init. */
static bool first_process(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID",
                                        "PALS_RANKID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank != NULL)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

static void print_version(void) {
    char name[128], version[128];
    mpi_identity(name, sizeof name, version, sizeof version);
    printf("benchio %s\nrecord %s\ncompiler %s\nMPI %s %s\n", BENCHIO_VERSION, BENCHIO_SCHEMA,
           BENCHIO_COMPILER, name, version);
    for (int i = 0; i < backend_count; i++) {
        if (backends[i].backend == NULL) {
            printf("%s: not built: %s\n", backends[i].name, backends[i].absent);
            continue;
        }
        backends[i].backend->version(version, sizeof version);
        printf("%s%s%s\n", backends[i].name, version[0] != '\0' ? ": " : "", version);
    }
    printf("workloads: %s\n", tree_library());
}

static void run(struct context *c, const struct placement *placement, struct workload *workload,
                struct guard *guard) {
    struct results results;
    scratch_make(c);
    if (workload != NULL || backends[c->options->api].backend->has_files)
        visibility_check(c, placement);
    if (c->rank == 0 && !c->options->keep && !c->options->existing)
        guard_directory(guard, c->directory);
    if (workload != NULL)
        workload_run(workload, c, placement, &results);
    else
        measure(c, placement, &results);
    MPI_Barrier(c->world);
    if (c->rank == 0) {
        workload != NULL ? workload_table(c, placement, &results) : table_print(c, placement, &results);
        if (fflush(stdout) != 0 || ferror(stdout))
            fail(c, EXIT_BROKEN, PLACE("stdout", "printing the table"), "cannot write");
        scratch_remove(c);
        record_write(c, placement, &results);
    }
    workload_report_free(results.report);
    results_free(&results);
}

/* On the rank that fails. */
static void end_failed_run(const struct context *c, const struct failure *failure) {
    record_write_failed(c, failure);
    scratch_remove(c);
}

static struct context context_make(const struct options *options) {
    struct context c = {.options = options, .started = utc_now(), .end_failed_run = end_failed_run};
    int length;
    MPI_Comm_dup(MPI_COMM_WORLD, &c.world);
    MPI_Comm_set_errhandler(c.world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(c.world, &c.rank);
    MPI_Comm_size(c.world, &c.size);
    MPI_Get_processor_name(c.host, &length);
    return c;
}

/* The lowest rank that has a reason prints it; ranks without one print nothing. */
static int impossible(const struct context *c, const char *reason) {
    int reporter = reason[0] != '\0' ? c->rank : c->size;
    MPI_Allreduce(MPI_IN_PLACE, &reporter, 1, MPI_INT, MPI_MIN, c->world);
    if (reporter == c->rank)
        fprintf(stderr, "benchio: %s\n", reason);
    MPI_Finalize();
    return EXIT_USAGE;
}

/* Collective: the workload after all checks, or NULL and on some rank the reason. */
static struct workload *workload_make(const struct context *c, const struct placement *p, char *message,
                                      size_t n) {
    struct workload *w = workload_read(c, p, message, n);
    int fine = w != NULL;
    CHECK_MPI(c, "", "MPI_Allreduce", MPI_Allreduce(MPI_IN_PLACE, &fine, 1, MPI_INT, MPI_LAND, c->world));
    if (fine && workload_resolve(w, c, message, n) && workload_check(w, c, message, n))
        return w;
    workload_free(w);
    return NULL;
}

int main(int argc, char **argv) {
    struct options options;
    struct placement placement;
    char message[1024];
    bool understood = options_parse(&options, argc, argv, message, sizeof message);
    if (understood && (options.help || options.version)) {
        if (first_process())
            options.help ? options_help() : print_version();
        return EXIT_FINE;
    }
    if (!understood) { /* the same on all processes: no need of MPI to end together */
        if (first_process())
            fprintf(stderr, "benchio: %s\n", message);
        return EXIT_USAGE;
    }
    /* A write beyond `ulimit -f` then fails and is reported, instead of killing the rank. */
    signal(SIGXFSZ, SIG_IGN);
    struct guard guard = guard_start();
    /* Subfiling serves writes in threads; anything else is measured without the locks of threads. */
    int wanted = options.driver == DRIVER_SUBFILING ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    struct context c = context_make(&options);
    if (c.rank != 0)
        guard_stop(&guard);
    if (provided < wanted)
        return impossible(&c, "--vfd subfiling: this MPI has no MPI_THREAD_MULTIPLE");
    if (!options_check_ranks(&options, c.size, message, sizeof message))
        return impossible(&c, message);
    const char *reason = placement_make(&placement, &c);
    if (reason != NULL)
        return impossible(&c, reason);
    struct workload *workload = NULL;
    message[0] = '\0';
    if (options.workload != NULL &&
        (workload = workload_make(&c, &placement, message, sizeof message)) == NULL)
        return impossible(&c, message);
    if (options.check && c.rank == 0)
        workload_print(workload, c.size);
    if (c.rank == 0 && !options.check)
        record_prepare(&c);
    if (c.rank == 0 && options.json != NULL)
        guard_record(&guard, options.json);
    if (!options.check)
        run(&c, &placement, workload, &guard);
    workload_free(workload);
    placement_free(&placement);
    options_free(&options);
    guard_stop(&guard);
    MPI_Comm_free(&c.world);
    MPI_Finalize();
    return EXIT_FINE;
}
