/* Preloaded into target_probe, makes writes, reads and flushes of files below a directory take longer: a
 * stand-in for a slow target.
 *
 *   SLOW_PATH: part of the paths of these files. SLOW_US: microseconds of each of these calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void wait_if_slow(int descriptor) {
    const char *slow = getenv("SLOW_PATH"), *delay = getenv("SLOW_US");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (slow == NULL || delay == NULL || length < 0)
        return;
    path[length] = '\0';
    if (strstr(path, slow) != NULL)
        usleep((useconds_t)atoi(delay));
}

#define SLOW(result, name, parameters, arguments)                                                            \
    result name parameters {                                                                                 \
        static result(*next) parameters;                                                                     \
        if (next == NULL)                                                                                    \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                                       \
        wait_if_slow(fd);                                                                                    \
        return next arguments;                                                                               \
    }

SLOW(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at))
SLOW(ssize_t, pread, (int fd, void *data, size_t n, off_t at), (fd, data, n, at))
SLOW(int, fsync, (int fd), (fd))
