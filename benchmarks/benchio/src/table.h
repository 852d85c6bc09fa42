/* The table for people on stdout. */
#ifndef BENCHIO_TABLE_H
#define BENCHIO_TABLE_H

#include "placement.h"
#include "results.h"

void table_print(const struct context *context, const struct placement *placement,
                 const struct results *results);

#endif
