/* SHA-256 (FIPS 180-4), for the effective options and the record. */
#ifndef BENCHIO_SHA256_H
#define BENCHIO_SHA256_H

#include <stddef.h>

/* The digest of `n` bytes as 64 hexadecimal digits. */
void sha256_hex(const void *data, size_t n, char hex[65]);

#endif
