#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"
#include "options.h"

/* Remove a flat directory; true when it no longer exists. */
static bool remove_directory(const char *path) {
    DIR *directory = opendir(path);
    if (directory == NULL)
        return errno == ENOENT;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    return rmdir(path) == 0 || errno == ENOENT;
}

/* Nothing that the parent has open may stay open here: launchers wait for the end of stdout. */
static void close_all_but(int kept) {
    DIR *open_files = opendir("/proc/self/fd");
    if (open_files == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(open_files)) != NULL;) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != kept && fd != dirfd(open_files))
            close(fd);
    }
    closedir(open_files);
}

/* Remove what ranks that died while they wrote the record RECORD left: RECORD.<rank>.tmp. */
static void remove_drafts(const char *record) {
    const char *slash = strrchr(record, '/'), *name = slash != NULL ? slash + 1 : record;
    char place[PATH_MAX + 1];
    snprintf(place, sizeof place, "%.*s", slash != NULL ? (int)(name - record) : 1,
             slash != NULL ? record : ".");
    DIR *directory = opendir(place);
    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t n = strlen(name);
        if (strncmp(entry->d_name, name, n) != 0 || entry->d_name[n] != '.')
            continue;
        const char *rank = entry->d_name + n + 1;
        size_t digits = strspn(rank, "0123456789");
        if (digits > 0 && strcmp(rank + digits, ".tmp") == 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    }
    closedir(directory);
}

/* Messages of the parent until it died: `+directory\0`, `=record\0`. Returns false where it stopped the guard
 * by `-`. */
static bool receive(int pipe, char directory[PATH_MAX + 1], char record[PATH_MAX + 1]) {
    char byte, *path = NULL;
    size_t length = 0;
    for (ssize_t n; (n = read(pipe, &byte, 1)) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false; /* not the end of the parent */
        if (path == NULL && byte == '-')
            return false;
        if (path == NULL)
            path = byte == '+' ? directory : record, length = 0;
        else if (length < PATH_MAX)
            path[length++] = byte, path = byte == '\0' ? NULL : path;
    }
    return true;
}

static void guard_main(int pipe) {
    char directory[PATH_MAX + 1] = "", record[PATH_MAX + 1] = "";
    if (!receive(pipe, directory, record))
        _exit(0);
    const struct timespec pause = {0, 50 * 1000 * 1000};
    nanosleep(&pause, NULL); /* ranks that still die may still create files */
    for (int i = 0; directory[0] != '\0' && !remove_directory(directory) && i < 200; i++)
        nanosleep(&pause, NULL);
    if (record[0] != '\0')
        remove_drafts(record);
    _exit(0);
}

struct guard guard_start(void) {
    int ends[2];
    if (pipe(ends) != 0)
        return (struct guard){-1, -1};
    pid_t child = fork();
    if (child == 0) {
        const int ignored[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2};
        for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
            signal(ignored[i], SIG_IGN);
        setsid();
        close_all_but(ends[0]);
        guard_main(ends[0]);
    }
    close(ends[0]);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    if (child < 0)
        close(ends[1]);
    return child < 0 ? (struct guard){-1, -1} : (struct guard){ends[1], child};
}

static void send_to_guard(const struct guard *guard, const char *text, size_t n) {
    if (guard->pipe >= 0 && write(guard->pipe, text, n) != (ssize_t)n)
        fprintf(stderr, "benchio: warning: scratch files stay if this run is killed: %s\n", strerror(errno));
}

void guard_directory(const struct guard *guard, const char *directory) {
    send_to_guard(guard, "+", 1);
    send_to_guard(guard, directory, strlen(directory) + 1);
}

void guard_record(const struct guard *guard, const char *record) {
    send_to_guard(guard, "=", 1);
    send_to_guard(guard, record, strlen(record) + 1);
}

void guard_stop(struct guard *guard) {
    if (guard->pipe < 0)
        return;
    send_to_guard(guard, "-", 1);
    close(guard->pipe);
    waitpid(guard->pid, NULL, 0);
    guard->pipe = -1;
}

/* errno of making or finding the directory, 0 if fine. */
static int make_on_rank_0(struct context *c) {
    const struct options *o = c->options;
    char name[256], resolved[PATH_MAX];
    struct stat status;
    if (o->name != NULL)
        snprintf(name, sizeof name, "%s", o->name);
    else
        snprintf(name, sizeof name, "benchio-%.0f-%d", c->started, (int)getpid());
    if (realpath(o->dir, resolved) == NULL) {
        snprintf(c->directory, PATH_MAX, "%s", o->dir);
        return errno;
    }
    if (snprintf(c->directory, PATH_MAX, "%s/%s", resolved, name) >= PATH_MAX - 48)
        return ENAMETOOLONG;
    if (o->existing)
        return stat(c->directory, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
    return mkdir(c->directory, 0777) != 0 ? errno : 0;
}

void scratch_make(struct context *c) {
    char directory[PATH_MAX];
    int status = c->rank == 0 ? make_on_rank_0(c) : 0;
    memcpy(directory, c->directory, PATH_MAX);
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(&status, 1, MPI_INT, 0, c->world));
    CHECK_MPI(c, "", "MPI_Bcast", MPI_Bcast(directory, PATH_MAX, MPI_CHAR, 0, c->world));
    if (status != 0) {
        c->directory[0] = '\0'; /* not ours: nothing to remove */
        if (c->rank == 0)
            fail(c, EXIT_BROKEN,
                 PLACE(directory, c->options->existing ? "finding" : "making the scratch directory"), "%s",
                 strerror(status));
        MPI_Barrier(c->world); /* until rank 0 ends the run */
    }
    memcpy(c->directory, directory, PATH_MAX);
}

void scratch_path(const struct context *c, int file, unsigned repetition, char text[PATH_MAX]) {
    int n = snprintf(text, PATH_MAX, "%.*s/data.%06d", PATH_MAX - 48, c->directory, file);
    if (repetition > 0)
        snprintf(text + n, (size_t)(PATH_MAX - n), ".%u", repetition);
}

void scratch_remove(const struct context *c) {
    if (c->directory[0] != '\0' && !c->options->keep && !c->options->existing)
        remove_directory(c->directory);
}
