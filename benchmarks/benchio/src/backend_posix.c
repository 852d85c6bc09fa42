/* open, pwrite/pread, fsync, close. Blocks with halos are packed; what is contiguous in the file goes in one
 * call. */
#define _GNU_SOURCE
#include "backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail.h"

/* Larger than any sensible request size of a file system's client, small enough to stay in a core's cache. */
#define PACK_BYTES ((uint64_t)1 << 20)

static void version(char *text, size_t n) {
    snprintf(text, n, "%s", "");
}

static size_t buffer_bytes(const struct options *o, const struct geometry *g) {
    if (g->pattern != PATTERN_BLOCK3D)
        return 0;
    uint64_t limit = o->transfer > 0 && o->transfer < PACK_BYTES ? o->transfer : PACK_BYTES;
    return (size_t)(g->bytes < limit ? g->bytes : limit);
}

/* The descriptor lives in file->state itself: nothing to allocate, nothing to free. */
static int descriptor(const struct file *f) {
    return (int)(intptr_t)f->state;
}

static void open_file(struct file *f) {
    int flags = (f->writing ? O_WRONLY | O_CREAT : O_RDONLY) | O_CLOEXEC | (f->direct ? O_DIRECT : 0);
    int fd = open(f->path, flags, 0666);
    /* GlusterFS answers so if another node makes the file in the same moment. */
    if (fd < 0 && errno == EEXIST)
        fd = open(f->path, flags & ~O_CREAT);
    CHECK_POSIX(f->context, f->path, f->writing ? "open for writing" : "open for reading", fd >= 0);
    f->state = (void *)(intptr_t)fd;
    f->data_offset = 0;
}

/* All `n` bytes, in as many calls as the kernel wants. */
static void move(const struct file *f, char *memory, uint64_t n, uint64_t offset) {
    while (n > 0) {
        ssize_t done = f->writing ? pwrite(descriptor(f), memory, n, (off_t)offset)
                                  : pread(descriptor(f), memory, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            fail(f->context, EXIT_BROKEN, PLACE(f->path, f->writing ? "write" : "read"),
                 "%s (%llu bytes at offset %llu)",
                 done < 0     ? strerror(errno)
                 : f->writing ? "nothing written"
                              : "end of file",
                 (unsigned long long)n, (unsigned long long)offset);
        memory += done;
        offset += (uint64_t)done;
        n -= (uint64_t)done;
    }
}

static uint64_t offset_of(const struct geometry *g, const struct slab *s, uint64_t element) {
    uint64_t row = element / s->count[2], x = element % s->count[2];
    uint64_t z = s->start[0] + row / s->count[1], y = s->start[1] + row % s->count[1];
    return ((z * g->dims[1] + y) * g->dims[2] + s->start[2] + x) * s->element;
}

static void transfer(struct file *f, const struct slab *s) {
    if (s->ndims < 3) {
        move(f, s->memory, s->elements * s->element, s->first);
        return;
    }
    uint64_t run = geometry_run(f->geometry), room = f->buffer_bytes / s->element;
    for (uint64_t from = 0; from < s->elements;) {
        uint64_t n = run - from % run; /* to the end of what is contiguous in the file */
        n = n < room ? n : room;
        n = n < s->elements - from ? n : s->elements - from;
        if (f->writing)
            slab_pack(s, from, n, f->buffer);
        move(f, f->buffer, n * s->element, offset_of(f->geometry, s, from));
        if (!f->writing)
            slab_unpack(s, from, n, f->buffer);
        from += n;
    }
}

static void sync_file(struct file *f) {
    CHECK_POSIX(f->context, f->path, "fsync", fsync(descriptor(f)) == 0);
}

static void close_file(struct file *f) {
    CHECK_POSIX(f->context, f->path, "close", close(descriptor(f)) == 0);
}

/* Without O_TRUNC: a rank that is late would empty what the others wrote. */
static void open_bytes(struct file *f) {
    int flags =
        (f->writing ? (f->reading ? O_RDWR : O_WRONLY) : O_RDONLY) | (f->creating ? O_CREAT : 0) | O_CLOEXEC;
    int fd = open(f->path, flags, 0666);
    if (fd < 0 && errno == EEXIST) /* as in open_file() */
        fd = open(f->path, flags & ~O_CREAT);
    CHECK_POSIX(f->context, f->path, f->creating ? "create" : "open", fd >= 0);
    f->state = (void *)(intptr_t)fd;
}

static void move_bytes(struct file *f, const struct piece *p) {
    move(f, p->memory, p->bytes, p->offset);
}

static const struct workload_io bytes_io = {
    .open = open_bytes, .move = move_bytes, .sync = sync_file, .close = close_file};

const struct backend backend_posix = {
    .name = "posix",
    .has_files = true,
    .version = version,
    .buffer_bytes = buffer_bytes,
    .open = open_file,
    .transfer = transfer,
    .sync = sync_file,
    .close = close_file,
    .workload = &bytes_io,
};
