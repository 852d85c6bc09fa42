/* A file system and a library that report wrong results, for tests. Preloaded, with BENCHIO_LIE=blocks a
 * file has no blocks until a process that only reads it flushes it, as on ZFS (libraries may flush what they
 * write); with BENCHIO_LIE=read H5Dread reports success and moves nothing; with BENCHIO_LIE=metadata HDF5
 * refuses collective operations on metadata; with BENCHIO_LIE=entries a name that this process has opened
 * stays that of the removed file when another process has made the file again, as where a client remembers
 * entries of directories (GlusterFS, NFS); with BENCHIO_LIE=absent all ranks but the first find no data file;
 * with BENCHIO_LIE=slow each flush takes 100 ms longer on a node with the name n2;
 * with BENCHIO_LIE=memory and BENCHIO_LIE_CALL=N there is no
 * memory for benchio's own Nth call of realloc or strdup. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* as benchio: `fstat` may have another name then */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int H5Dread(int64_t set, int64_t type, int64_t memory, int64_t file, int64_t transfer, void *data);
int H5Pset_coll_metadata_write(int64_t list, bool is_collective);

static bool flushed;
static long memory_calls;

static bool lies(const char *about) {
    const char *lie = getenv("BENCHIO_LIE");
    return lie != NULL && strcmp(lie, about) == 0;
}

static bool is_second_node(void) {
    char name[64] = "";
    return gethostname(name, sizeof name - 1) == 0 && strcmp(name, "n2") == 0;
}

int fsync(int descriptor) {
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    if (lies("slow") && is_second_node())
        usleep(100000);
    flushed = flushed || (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY;
    return real(descriptor);
}

int fstat(int descriptor, struct stat *status) {
    int (*real)(int, struct stat *);
    *(void **)&real = dlsym(RTLD_NEXT, "fstat");
    int result = real(descriptor, status);
    if (lies("blocks") && !flushed)
        status->st_blocks = 0;
    return result;
}

/* Names of data files that this process has opened, with the file behind them. */
static struct {
    char path[PATH_MAX];
    ino_t file;
} entries[64];

static bool is_first_rank(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank == NULL)
        rank = getenv("PMI_RANK");
    return rank == NULL || strcmp(rank, "0") == 0;
}

/* True: the name belongs to a file that another process has removed. */
static bool is_old_entry(const char *path) {
    struct stat status;
    if (lies("absent") && strstr(path, "/data.") != NULL)
        return !is_first_rank();
    if (!lies("entries") || strstr(path, "/data.") == NULL || stat(path, &status) != 0)
        return false;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].path, path) == 0)
            return entries[i].file != status.st_ino;
    return false;
}

static void remember_entry(const char *path) {
    struct stat status;
    size_t i = 0;
    if (!lies("entries") || strstr(path, "/data.") == NULL || stat(path, &status) != 0)
        return;
    while (i < sizeof entries / sizeof *entries - 1 && entries[i].path[0] != '\0' &&
           strcmp(entries[i].path, path) != 0)
        i++;
    snprintf(entries[i].path, PATH_MAX, "%s", path);
    entries[i].file = status.st_ino;
}

static int open_with_entries(const char *name, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, ...);
    *(void **)&real = dlsym(RTLD_NEXT, name);
    if (is_old_entry(path)) {
        errno = ENOENT;
        return -1;
    }
    int descriptor = real(path, flags, mode);
    if (descriptor >= 0)
        remember_entry(path);
    return descriptor;
}

/* fcntl.h gives open() the name open64 here; libraries use both. */
int open_without_64(const char *path, int flags, ...) __asm__("open");

static mode_t mode_of(int flags, va_list arguments) {
    return (flags & O_CREAT) != 0 ? (mode_t)va_arg(arguments, int) : 0;
}

int open_without_64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_with_entries("open", path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_with_entries("open64", path, flags, mode);
}

/* A process knows what it removed itself. */
int unlink(const char *path) {
    int (*real)(const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "unlink");
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].path, path) == 0)
            entries[i].path[0] = ' ';
    return real(path);
}

int H5Dread(int64_t set, int64_t type, int64_t memory, int64_t file, int64_t transfer, void *data) {
    int (*real)(int64_t, int64_t, int64_t, int64_t, int64_t, void *);
    *(void **)&real = dlsym(RTLD_NEXT, "H5Dread");
    return lies("read") ? 0 : real(set, type, memory, file, transfer, data);
}

int H5Pset_coll_metadata_write(int64_t list, bool is_collective) {
    int (*real)(int64_t, bool);
    *(void **)&real = dlsym(RTLD_NEXT, "H5Pset_coll_metadata_write");
    return lies("metadata") ? -1 : real(list, is_collective);
}

/* Whether the call of a function for memory that returns to `caller` shall fail. Libraries get theirs. */
static bool lies_about_memory(const void *caller) {
    Dl_info origin;
    if (!lies("memory") || dladdr(caller, &origin) == 0)
        return false;
    const char *slash = strrchr(origin.dli_fname, '/');
    if (strcmp(slash != NULL ? slash + 1 : origin.dli_fname, "benchio") != 0)
        return false;
    const char *call = getenv("BENCHIO_LIE_CALL");
    memory_calls++;
    return call != NULL && memory_calls == atol(call);
}

void *realloc(void *memory, size_t bytes) {
    /* Once: with dlsym() in each call, programs with UCX crashed when they were loaded (reason unknown). */
    static void *(*real)(void *, size_t);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "realloc");
    return lies_about_memory(__builtin_return_address(0)) ? NULL : real(memory, bytes);
}

char *strdup(const char *text) {
    static char *(*real)(const char *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "strdup");
    return lies_about_memory(__builtin_return_address(0)) ? NULL : real(text);
}
