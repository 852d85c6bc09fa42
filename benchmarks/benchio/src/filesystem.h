/* Facts about the file system under a path, and what a benchmark must not take on trust. */
#ifndef BENCHIO_FILESYSTEM_H
#define BENCHIO_FILESYSTEM_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct filesystem {
    char type[64], mount[PATH_MAX], source[PATH_MAX]; /* as the kernel's list of mounts has them; "unknown" */
    uint64_t free_bytes;                              /* for this user */
    int64_t stripe_count; /* default layout of the directory; 0: not Lustre, or unknown */
    uint64_t stripe_size;
};

void filesystem_find(const char *directory, struct filesystem *filesystem);

/* The layout in the bytes of a Lustre `lustre.lov` attribute (lov_user_md of lustre_user.h); false if it is
 * none. */
bool lustre_layout(const unsigned char *bytes, int64_t n, int64_t *stripe_count, uint64_t *stripe_size);

/* The first hole of a file in [from, from + n); from + n if there is none or the file system cannot tell. */
uint64_t first_hole(int descriptor, uint64_t from, uint64_t n);

#endif
