/* An end to waiting for a library that never returns: Open MPI's MPI_File_open waits for ever on all ranks
 * where the file opens on some of them only. */
#ifndef BENCHIO_WATCHDOG_H
#define BENCHIO_WATCHDOG_H

#include "context.h"

/* The run fails unless watchdog_stop() is called within `--timeout`. `path` must live until then. */
void watchdog_start(const struct context *context, const char *operation, const char *path);
void watchdog_stop(void);

#endif
