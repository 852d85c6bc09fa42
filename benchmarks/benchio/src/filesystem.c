#define _GNU_SOURCE
#include "filesystem.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* One line of /proc/self/mountinfo: `id parent major:minor root MOUNT options... - TYPE SOURCE options`. */
static bool mount_line(char *line, char **mount, char **type, char **source) {
    char *rest = strstr(line, " - "), *save = NULL;
    if (rest == NULL)
        return false;
    *rest = '\0';
    *type = strtok_r(rest + 3, " ", &save);
    *source = strtok_r(NULL, " ", &save);
    *mount = strtok_r(line, " ", &save);
    for (int field = 1; field < 5 && *mount != NULL; field++)
        *mount = strtok_r(NULL, " ", &save);
    return *type != NULL && *source != NULL && *mount != NULL;
}

/* The kernel writes blanks, line ends and backslashes of a path as backslash and three octal digits. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        bool escaped = *from == '\\' && strspn(from + 1, "01234567") >= 3;
        *to++ = escaped ? (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0')) : *from;
        from += escaped ? 3 : 0;
    }
    *to = '\0';
}

static void find_mount(const char *directory, struct filesystem *fs) {
    char line[3 * PATH_MAX];
    size_t longest = 0;
    FILE *mounts = fopen("/proc/self/mountinfo", "r");
    if (mounts == NULL)
        return;
    while (fgets(line, sizeof line, mounts) != NULL) {
        char *mount, *type, *source;
        if (!mount_line(line, &mount, &type, &source))
            continue;
        unescape(mount);
        unescape(source);
        size_t n = strcmp(mount, "/") == 0 ? 0 : strlen(mount);
        bool above = strncmp(directory, mount, n) == 0 && (directory[n] == '/' || directory[n] == '\0');
        if (!above || n < longest) /* of two mounts at one place the later one is on top */
            continue;
        longest = n;
        snprintf(fs->type, sizeof fs->type, "%s", type);
        snprintf(fs->mount, sizeof fs->mount, "%s", mount);
        snprintf(fs->source, sizeof fs->source, "%s", source);
    }
    fclose(mounts);
}

bool lustre_layout(const unsigned char *bytes, int64_t n, int64_t *stripe_count, uint64_t *stripe_size) {
    uint32_t magic, size;
    int16_t count;
    if (n < 32)
        return false;
    memcpy(&magic, bytes, 4); /* magic, pattern, object id (16), stripe_size, stripe_count */
    memcpy(&size, bytes + 24, 4);
    memcpy(&count, bytes + 28, 2);
    if (magic != 0x0BD10BD0u &&
        magic != 0x0BD30BD0u) /* LOV_USER_MAGIC_V1 and _V3; composite layouts have none */
        return false;
    *stripe_count = count;
    *stripe_size = size;
    return true;
}

void filesystem_find(const char *directory, struct filesystem *fs) {
    unsigned char layout[4096];
    struct statvfs status;
    *fs = (struct filesystem){
        .type = "unknown", .mount = "unknown", .source = "unknown", .free_bytes = UINT64_MAX};
    find_mount(directory, fs);
    if (statvfs(directory, &status) == 0)
        fs->free_bytes = (uint64_t)(geteuid() == 0 ? status.f_bfree : status.f_bavail) * status.f_frsize;
    lustre_layout(layout, getxattr(directory, "lustre.lov", layout, sizeof layout), &fs->stripe_count,
                  &fs->stripe_size);
}

uint64_t first_hole(int descriptor, uint64_t from, uint64_t n) {
    off_t hole = lseek(descriptor, (off_t)from, SEEK_HOLE);
    return hole < 0 || (uint64_t)hole >= from + n ? from + n : (uint64_t)hole;
}
