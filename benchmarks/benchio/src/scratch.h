/* The directory DIR/NAME that belongs to this run, and its removal whatever happens to the run. */
#ifndef BENCHIO_SCRATCH_H
#define BENCHIO_SCRATCH_H

#include "context.h"

/* A child process that outlives a killed run and removes the directory, and drafts of the record. It is
 * started before MPI_Init, because afterwards fork() is not safe everywhere; it holds nothing but one end of
 * a pipe, and needs no signal handler. */
struct guard {
    int pipe; /* -1: none */
    int pid;
};

struct guard guard_start(void);
/* The directory to remove when this process dies. */
void guard_directory(const struct guard *guard, const char *directory);
/* The record whose drafts (record.h) to remove then. */
void guard_record(const struct guard *guard, const char *record);
/* End the guard without removing anything. */
void guard_stop(struct guard *guard);

/* Collective: rank 0 makes the directory (or finds it, with --existing); all fail together if it cannot. */
void scratch_make(struct context *context);
/* `text` = path of file number `file` in the repetition that wrote it: nodes that remember an old entry of a
 * name (FUSE, NFS) find no new file behind it, so that each repetition has names of its own. */
void scratch_path(const struct context *context, int file, unsigned repetition, char text[PATH_MAX]);
/* Remove the directory and everything in it, unless --keep or --existing. For one rank. */
void scratch_remove(const struct context *context);

#endif
