/* The JSON record (schema/record.schema.json): rank 0 writes it completely at the end, or a rank that fails
 * writes one with status `failed`. It appears by rename() of a draft RECORD.<rank>.tmp, so that half a record
 * never has its name. Its last member, `integrity`, holds the number of repetitions and the SHA-256 of the
 * text before the comma in front of that member. */
#ifndef BENCHIO_RECORD_H
#define BENCHIO_RECORD_H

#include <stddef.h>

#include "fail.h"
#include "placement.h"
#include "results.h"

#define BENCHIO_SCHEMA "benchio-record/3"

/* Rank 0, before anything is measured: remove an older record and make sure that a new one can be written. */
void record_prepare(const struct context *context);
/* Rank 0, at the end. */
void record_write(const struct context *context, const struct placement *placement,
                  const struct results *results);
/* Any rank; never fails itself. */
void record_write_failed(const struct context *context, const struct failure *failure);

/* Name and version of the MPI library, from its own description: "Open MPI", "4.1.4". */
void mpi_identity(char *name, size_t name_n, char *version, size_t version_n);

#endif
