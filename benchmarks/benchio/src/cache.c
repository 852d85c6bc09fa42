#define _GNU_SOURCE
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int cache_drop(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int status = fsync(fd) != 0 ? errno : posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return status;
}

/* Resident pages of [from, from + n), or -1. */
static int64_t resident_pages(int fd, uint64_t from, size_t n, unsigned char *pages, size_t page) {
    int64_t resident = 0;
    void *map = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, (off_t)from);
    if (map == MAP_FAILED)
        return -1;
    int status = mincore(map, n, pages);
    munmap(map, n);
    for (size_t i = 0; status == 0 && i < (n + page - 1) / page; i++)
        resident += pages[i] & 1;
    return status == 0 ? resident : -1;
}

double cache_resident(const char *path) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), window = page << 16;
    unsigned char *pages = malloc(window / page);
    struct stat status;
    int64_t total = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool fine = pages != NULL && fd >= 0 && fstat(fd, &status) == 0 && status.st_size > 0;
    for (uint64_t from = 0; fine && from < (uint64_t)status.st_size; from += window) {
        uint64_t rest = (uint64_t)status.st_size - from;
        int64_t resident = resident_pages(fd, from, rest < window ? (size_t)rest : window, pages, page);
        fine = resident >= 0;
        total += resident;
    }
    if (fd >= 0)
        close(fd);
    free(pages);
    return fine ? (double)total / (double)(((uint64_t)status.st_size + page - 1) / page) : -1;
}
