/* Preloaded into a program, makes each of its vectored or positioned writes and reads take longer: a stand-in for a
 * slow disk below a server (positioned calls) or for a client that got slower (calls on its connections).
 *
 *   DELAY_US: microseconds of each call. DELAY_CALLS: "disk" (p*), or "connection" (readv, writev). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static void wait_for(const char *calls) {
    const char *asked = getenv("DELAY_CALLS"), *delay = getenv("DELAY_US");
    if (asked != NULL && delay != NULL && strcmp(asked, calls) == 0)
        usleep((useconds_t)atoi(delay));
}

#define DELAYED(result, name, calls, parameters, arguments)                                                  \
    result name parameters {                                                                                 \
        static result(*next) parameters;                                                                     \
        if (next == NULL)                                                                                    \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                                       \
        wait_for(calls);                                                                                     \
        return next arguments;                                                                               \
    }

DELAYED(ssize_t, pwrite64, "disk", (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at))
DELAYED(ssize_t, pread64, "disk", (int fd, void *data, size_t n, off64_t at), (fd, data, n, at))
DELAYED(ssize_t, pwritev64, "disk", (int fd, const struct iovec *data, int n, off64_t at), (fd, data, n, at))
DELAYED(ssize_t, preadv64, "disk", (int fd, const struct iovec *data, int n, off64_t at), (fd, data, n, at))
DELAYED(ssize_t, pwritev, "disk", (int fd, const struct iovec *data, int n, off_t at), (fd, data, n, at))
DELAYED(ssize_t, preadv, "disk", (int fd, const struct iovec *data, int n, off_t at), (fd, data, n, at))
DELAYED(ssize_t, pwrite, "disk", (int fd, const void *data, size_t n, off_t at), (fd, data, n, at))
DELAYED(ssize_t, pread, "disk", (int fd, void *data, size_t n, off_t at), (fd, data, n, at))
DELAYED(ssize_t, writev, "connection", (int fd, const struct iovec *data, int n), (fd, data, n))
DELAYED(ssize_t, readv, "connection", (int fd, const struct iovec *data, int n), (fd, data, n))
