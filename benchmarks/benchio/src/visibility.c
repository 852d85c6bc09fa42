#define _GNU_SOURCE
#include "visibility.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fail.h"
#include "filesystem.h"
#include "options.h"

/* A name that nobody has asked for before is not remembered as absent, so that it appears at once; ten
 * seconds are for clients that ask their server only now and then. */
#define APPEARS_WITHIN_S 10

/* True once the path is there. access() and mknod() are not in a Darshan trace, which is to show what is
 * measured. */
static bool appears(const char *path) {
    const struct timespec pause = {0, 20 * 1000 * 1000};
    double begun = clock_now();
    while (access(path, F_OK) != 0) {
        if ((errno != ENOENT && errno != ESTALE) || clock_now() - begun > APPEARS_WITHIN_S)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

uint64_t visible_size(const char *path) {
    struct statx status;
    /* Not in a Darshan trace either. */
    bool is_there = syscall(SYS_statx, AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_SIZE, &status) == 0;
    return is_there ? status.stx_size : 0;
}

void visible_size_wait(const struct context *c, const char *path, uint64_t bytes) {
    const struct timespec pause = {0, 20 * 1000 * 1000};
    double begun = clock_now();
    for (uint64_t size; (size = visible_size(path)) < bytes; nanosleep(&pause, NULL))
        if (clock_now() - begun > APPEARS_WITHIN_S)
            fail(c, EXIT_BROKEN, PLACE(path, "waiting for what other nodes wrote"),
                 "%s sees %" PRIu64 " of %" PRIu64 " bytes after %d s", c->host, size, bytes,
                 APPEARS_WITHIN_S);
}

static noreturn void fail_unseen(const struct context *c, const char *path, const char *maker) {
    struct filesystem fs;
    int reason = errno;
    filesystem_find(c->options->dir, &fs);
    fail(c, EXIT_BROKEN, PLACE(path, "checking that all nodes see the same files"),
         "%s made it, and %s does not see it within %d s (%s). On %s, %s is %s (%s), mounted with %s. "
         "Choose a directory that all nodes share, or mount options with which nodes see new files of others",
         maker, c->host, APPEARS_WITHIN_S, strerror(reason), c->host, fs.mount, fs.type, fs.source,
         fs.options);
}

static void marker_path(const struct context *c, int node, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%.*s/node.%06d", PATH_MAX - 48, c->directory, node);
}

static int first_rank_on(const struct placement *p, int node) {
    int rank = 0;
    while (p->node_of[rank] != node)
        rank++;
    return rank;
}

/* The name of the next node's host, which its first rank sends to that of the node before it. */
static void exchange_hosts(const struct context *c, const struct placement *p,
                           char next_host[MPI_MAX_PROCESSOR_NAME]) {
    int next = first_rank_on(p, (p->node + 1) % p->nodes);
    int previous = first_rank_on(p, (p->node + p->nodes - 1) % p->nodes);
    CHECK_MPI(c, "", "MPI_Sendrecv",
              MPI_Sendrecv(c->host, MPI_MAX_PROCESSOR_NAME, MPI_CHAR, previous, 0, next_host,
                           MPI_MAX_PROCESSOR_NAME, MPI_CHAR, next, 0, c->world, MPI_STATUS_IGNORE));
}

static void check_directory(const struct context *c) {
    char host[MPI_MAX_PROCESSOR_NAME];
    memcpy(host, c->host, sizeof host);
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(host, sizeof host, MPI_CHAR, 0, c->world));
    if (!appears(c->directory))
        fail_unseen(c, c->directory, host);
}

/* For the first rank of each node. */
static void check_markers(const struct context *c, const struct placement *p) {
    char path[PATH_MAX], next_path[PATH_MAX], next_host[MPI_MAX_PROCESSOR_NAME];
    marker_path(c, p->node, path);
    marker_path(c, (p->node + 1) % p->nodes, next_path);
    CHECK_POSIX(c, path, "mknod", mknod(path, S_IFREG | 0600, 0) == 0);
    exchange_hosts(c, p, next_host); /* the next node's file is made before its host's name arrives */
    if (!appears(next_path))
        fail_unseen(c, next_path, next_host);
}

void visibility_check(const struct context *c, const struct placement *p) {
    char path[PATH_MAX];
    bool makes_markers = p->node_rank == 0 && !c->options->existing;
    if (p->nodes == 1)
        return;
    check_directory(c);
    if (makes_markers)
        check_markers(c, p);
    /* No file is removed before the node before has seen it. */
    CHECK_MPI(c, "", "MPI_Barrier", MPI_Barrier(c->world));
    marker_path(c, p->node, path);
    if (makes_markers)
        CHECK_POSIX(c, path, "unlink", unlink(path) == 0);
}
