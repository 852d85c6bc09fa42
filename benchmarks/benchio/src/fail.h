/* The end of a run that cannot go on: one line on stderr that names rank, operation, file and the library's
 * text, then end_failed_run() of the context (the record with status `failed`, scratch removed), MPI_Abort. A
 * rank never leaves alone. */
#ifndef BENCHIO_FAIL_H
#define BENCHIO_FAIL_H

#include <stddef.h>
#include <stdnoreturn.h>

#include "context.h"

enum { EXIT_FINE = 0, EXIT_DIFFERENT = 1, EXIT_USAGE = 2, EXIT_BROKEN = 3 };

struct place {
    const char *path, *operation, *file;
    int line;
};
#define PLACE(path, operation) ((struct place){(path), (operation), __FILE__, __LINE__})

/* What a failed run reports. */
struct failure {
    struct place place;
    const char *text;    /* of the library, or of errno */
    const char *message; /* the line on stderr, without the name of the program */
};

noreturn void fail(const struct context *context, int code, struct place place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
noreturn void fail_mpi(const struct context *context, int status, struct place place);

#define CHECK_MPI(context, path, operation, call)                                                            \
    do {                                                                                                     \
        int status_ = (call);                                                                                \
        if (status_ != MPI_SUCCESS)                                                                          \
            fail_mpi((context), status_, PLACE((path), (operation)));                                        \
    } while (0)

/* Fails with the text of errno unless `condition`. */
#define CHECK_POSIX(context, path, operation, condition)                                                     \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            fail((context), EXIT_BROKEN, PLACE((path), (operation)), "%s", strerror(errno));                 \
    } while (0)

/* Allocate `n` zeroed bytes aligned to pages, or fail. Free with free(). */
void *allocate(const struct context *context, size_t n, const char *purpose);
/* realloc() to `n` bytes, or fail. What is new is not zeroed. */
void *reallocate(const struct context *context, void *memory, size_t n, const char *purpose);
/* strdup(), or fail. */
char *copy_text(const struct context *context, const char *text, const char *purpose);

#endif
