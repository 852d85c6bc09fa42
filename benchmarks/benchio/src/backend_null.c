/* No I/O: what remains is the cost of benchio itself. */
#include "backend.h"

#include <stdio.h>

static void version(char *text, size_t n) {
    snprintf(text, n, "%s", "");
}
static void nothing(struct file *file) {
    (void)file;
}
static void transfer(struct file *file, const struct slab *slab) {
    (void)file;
    (void)slab;
}

static const char *refuse(const struct options *o) {
    return o->verify || o->op != OP_WRITE || o->keep
               ? "--api null keeps no data: only --op write without --verify and --keep"
               : NULL;
}

const struct backend backend_null = {
    .name = "null",
    .has_access = true,
    .version = version,
    .refuse = refuse,
    .open = nothing,
    .transfer = transfer,
    .sync = nothing,
    .close = nothing,
};
