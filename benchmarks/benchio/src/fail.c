#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

noreturn void fail(const struct context *c, int code, struct place place, const char *format, ...) {
    char text[2048], message[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    bool has_path = place.path != NULL && place.path[0] != '\0';
    snprintf(message, sizeof message, "rank %d on %s: %s%s%s: %s", c->rank, c->host, place.operation,
             has_path ? " of " : "", has_path ? place.path : "", text);
    fprintf(stderr, "benchio: %s (%s:%d)\n", message, place.file, place.line);
    fflush(stderr);
    if (c->end_failed_run != NULL)
        c->end_failed_run(c, &(struct failure){.place = place, .text = text, .message = message});
    MPI_Abort(c->world, code);
    _Exit(code);
}

/* The reason is in the last line of what MPICH says, after "Other I/O error, error stack:". */
noreturn void fail_mpi(const struct context *c, int status, struct place place) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(status, text, &length);
    for (char *newline = strchr(text, '\n'); newline != NULL; newline = strchr(newline, '\n'))
        *newline = newline[1] == '\0' ? '\0' : ' ';
    fail(c, EXIT_BROKEN, place, "%s", text);
}

static noreturn void fail_without_memory(const struct context *c, size_t n, const char *purpose) {
    fail(c, EXIT_BROKEN, PLACE("", purpose), "no memory for %zu bytes", n);
}

void *allocate(const struct context *c, size_t n, const char *purpose) {
    void *memory = NULL;
    n = n == 0 ? 1 : n;
    if (posix_memalign(&memory, 4096, n) != 0)
        fail_without_memory(c, n, purpose);
    memset(memory, 0, n);
    return memory;
}

void *reallocate(const struct context *c, void *memory, size_t n, const char *purpose) {
    void *larger = realloc(memory, n);
    if (larger == NULL)
        fail_without_memory(c, n, purpose);
    return larger;
}

char *copy_text(const struct context *c, const char *text, const char *purpose) {
    char *copy = strdup(text);
    if (copy == NULL)
        fail_without_memory(c, strlen(text) + 1, purpose);
    return copy;
}
