/* Facts about the file system under a path, and what a benchmark must not take on trust. */
#ifndef BENCHIO_FILESYSTEM_H
#define BENCHIO_FILESYSTEM_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* How Lustre spreads a file over its targets: one component for a plain layout, several for a progressive
 * one, each up to its end in the file. */
struct layout {
    int n; /* 0: not Lustre, or unknown */
    struct component {
        uint64_t end;  /* bytes; UINT64_MAX: to the end of the file */
        int64_t count; /* -1: all targets; 0: on the metadata server */
        uint64_t size;
    } component[16];
};

struct filesystem {
    /* As the kernel's list of mounts has them; "unknown". Options: of the mount, then of the file system. */
    char type[64], mount[PATH_MAX], source[PATH_MAX], options[2048];
    uint64_t free_bytes;  /* for this user */
    struct layout layout; /* default of the directory */
};

void filesystem_find(const char *directory, struct filesystem *filesystem);

/* The layout in the bytes of a Lustre `lustre.lov` attribute (lov_user_md and lov_comp_md_v1 of
 * lustre_user.h); n is 0 if it is none, is cut off, or has more components than fit. */
struct layout lustre_layout(const unsigned char *bytes, int64_t n);

/* The first hole of a file in [from, from + n); from + n if there is none or the file system cannot report
 * it. */
uint64_t first_hole(int descriptor, uint64_t from, uint64_t n);

#endif
