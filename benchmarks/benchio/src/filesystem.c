#define _GNU_SOURCE
#include "filesystem.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

struct mount_line {
    char *mount, *options, *type, *source, *super_options;
};

/* One line of /proc/self/mountinfo: `id parent major:minor root MOUNT options... - TYPE SOURCE options`. */
static bool read_mount_line(char *line, struct mount_line *fields) {
    char *rest = strstr(line, " - "), *save = NULL;
    if (rest == NULL)
        return false;
    *rest = '\0';
    fields->type = strtok_r(rest + 3, " ", &save);
    fields->source = strtok_r(NULL, " ", &save);
    fields->super_options = strtok_r(NULL, " \n", &save);
    fields->mount = strtok_r(line, " ", &save);
    for (int field = 1; field < 5 && fields->mount != NULL; field++)
        fields->mount = strtok_r(NULL, " ", &save);
    fields->options = strtok_r(NULL, " ", &save);
    if (fields->super_options == NULL)
        fields->super_options = "";
    return fields->source != NULL && fields->options != NULL;
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
        struct mount_line fields;
        if (!read_mount_line(line, &fields))
            continue;
        unescape(fields.mount);
        unescape(fields.source);
        size_t n = strcmp(fields.mount, "/") == 0 ? 0 : strlen(fields.mount);
        bool above =
            strncmp(directory, fields.mount, n) == 0 && (directory[n] == '/' || directory[n] == '\0');
        if (!above || n < longest) /* of two mounts at one place the later one is on top */
            continue;
        longest = n;
        snprintf(fs->type, sizeof fs->type, "%s", fields.type);
        snprintf(fs->mount, sizeof fs->mount, "%s", fields.mount);
        snprintf(fs->source, sizeof fs->source, "%s", fields.source);
        snprintf(fs->options, sizeof fs->options, "%s,%s", fields.options, fields.super_options);
    }
    fclose(mounts);
}

static uint32_t u32(const unsigned char *bytes) {
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint16_t u16(const unsigned char *bytes) {
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* lov_user_md_v1 and _v3: magic, pattern, object id (16 bytes), stripe size, stripe count. */
static bool plain_layout(const unsigned char *bytes, int64_t n, struct component *component) {
    enum { PATTERN_MDT = 0x100 };
    if (n < 32 || (u32(bytes) != 0x0BD10BD0u && u32(bytes) != 0x0BD30BD0u))
        return false;
    *component = (struct component){UINT64_MAX, (u32(bytes + 4) & PATTERN_MDT) ? 0 : (int16_t)u16(bytes + 28),
                                    u32(bytes + 24)};
    return true;
}

struct layout lustre_layout(const unsigned char *bytes, int64_t n) {
    /* lov_comp_md_v1: magic, size, generation, flags, number of entries at 14; then the entries (id, flags,
     * start and end in the file at 8 and 16, place and size of a plain layout at 24 and 28), and those
     * layouts. */
    const struct layout unknown = {0};
    enum { HEADER = 32, ENTRY = 48, MOST = sizeof unknown.component / sizeof *unknown.component };
    struct layout layout = {.n = 1};
    if (n >= HEADER && u32(bytes) == 0x0BD60BD0u)
        layout.n = u16(bytes + 14);
    else
        return plain_layout(bytes, n, layout.component) ? layout : unknown;
    if (layout.n > MOST || HEADER + layout.n * ENTRY > n)
        return unknown;
    for (int i = 0; i < layout.n; i++) {
        const unsigned char *entry = bytes + HEADER + i * ENTRY;
        uint32_t at = u32(entry + 24), length = u32(entry + 28);
        if ((int64_t)at + length > n || !plain_layout(bytes + at, length, &layout.component[i]))
            return unknown;
        memcpy(&layout.component[i].end, entry + 16, sizeof layout.component[i].end);
    }
    return layout;
}

void filesystem_find(const char *directory, struct filesystem *fs) {
    unsigned char layout[4096];
    struct statvfs status;
    *fs = (struct filesystem){.type = "unknown",
                              .mount = "unknown",
                              .source = "unknown",
                              .options = "unknown",
                              .free_bytes = UINT64_MAX};
    find_mount(directory, fs);
    if (statvfs(directory, &status) == 0)
        fs->free_bytes = (uint64_t)(geteuid() == 0 ? status.f_bfree : status.f_bavail) * status.f_frsize;
    fs->layout = lustre_layout(layout, getxattr(directory, "lustre.lov", layout, sizeof layout));
}

uint64_t first_hole(int descriptor, uint64_t from, uint64_t n) {
    off_t hole = lseek(descriptor, (off_t)from, SEEK_HOLE);
    return hole < 0 || (uint64_t)hole >= from + n ? from + n : (uint64_t)hole;
}
