/* An end to waiting for a library that never returns: Open MPI's MPI_File_open waits for ever on all ranks
 * where the file opens on some of them only. */
#ifndef BENCHIO_WATCHDOG_H
#define BENCHIO_WATCHDOG_H

#include "context.h"

/* The run fails unless watchdog_stop() is called within `--timeout`. `path` must live until then. */
void watchdog_start(const struct context *context, const char *operation, const char *path);
/* Around the open of `path`: the run also fails, within about ten seconds, if this rank cannot open the file
 * while another one can. */
void watchdog_opening(const struct context *context);
void watchdog_opened(const struct context *context);
void watchdog_stop(void);

#endif
