/* The measurement: repetitions of open, transfer, sync, close. */
#ifndef BENCHIO_MEASURE_H
#define BENCHIO_MEASURE_H

#include "backend.h"
#include "placement.h"
#include "results.h"

/* Collective; ends the run where something fails. */
void measure(const struct context *context, const struct placement *placement, struct results *results);

/* Hints and striping of the options; MPI_INFO_NULL where there are none. */
MPI_Info measure_info(const struct context *context);

#endif
