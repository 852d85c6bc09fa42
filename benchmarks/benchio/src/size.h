/* Strict sizes: a size is a whole number of bytes or it is refused. */
#ifndef BENCHIO_SIZE_H
#define BENCHIO_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of `4096`, `1m` or `1MiB` (2^20), `1mb` (10^6), `1.5g` (exact). Returns NULL, or the reason of a
 * refusal. */
const char *size_parse(const char *text, uint64_t *bytes);

/* A whole number without suffix. Returns NULL, or the reason of a refusal. */
const char *count_parse(const char *text, uint64_t *count);

/* Up to three sizes > 0 joined by `x`: `128x128x64`, `1mx1`. Returns NULL, or the reason of a refusal. */
const char *sizes_parse(const char *text, uint64_t sizes[3], int *n);

/* a * b in *product; false where it does not fit 63 bits. */
bool size_multiply(uint64_t a, uint64_t b, uint64_t *product);

#endif
