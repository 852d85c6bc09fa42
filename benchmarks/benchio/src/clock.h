/* Times that can be compared between ranks. MPI_Wtime cannot: Open MPI counts from each process' own start.
 */
#ifndef BENCHIO_CLOCK_H
#define BENCHIO_CLOCK_H

#include "placement.h"

/* Seconds of this node's monotonic clock. */
double clock_now(void);

/* Collective. What to add to this rank's clock_now() to get rank 0's; 0 on the node of rank 0. Each other
 * node measures it once, by the exchange of messages with the shortest round trip of several (Cristian 1989).
 */
double clock_offset(const struct context *context, const struct placement *placement);

#endif
