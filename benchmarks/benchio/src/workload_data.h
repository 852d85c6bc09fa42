/* The data of a workload's files: a function of file, data set and position. */
#ifndef BENCHIO_WORKLOAD_DATA_H
#define BENCHIO_WORKLOAD_DATA_H

#include "generator.h"
#include "workload.h"

/* Of one file, or of one copy of one of its data sets (-1: bytes). */
uint64_t data_key(uint64_t seed, int file, int64_t number, int color, int dataset, int64_t copy);

/* The bytes of `piece`, or the elements of its box. */
void data_fill(uint64_t key, const struct piece *piece);
struct difference data_check(uint64_t key, const struct piece *piece);

#endif
