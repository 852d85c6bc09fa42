/* Times of single transfers as counts in bins, so that quantiles over all ranks need no list of times. */
#ifndef BENCHIO_LATENCY_H
#define BENCHIO_LATENCY_H

#include <stdint.h>

#include "results.h"

/* Each octave from 2^LATENCY_FIRST s (0.9 ns) has bins of equal width, the widest 1/32 of its time. */
enum { LATENCY_FIRST = -30, LATENCY_OCTAVES = 44, LATENCY_PER_OCTAVE = 32 };
enum { LATENCY_BINS = LATENCY_OCTAVES * LATENCY_PER_OCTAVE };

struct latencies {
    uint64_t count[LATENCY_BINS];
    double longest; /* seconds, exact */
};

void latencies_clear(struct latencies *latencies);

/* What is shorter or longer than all bins is counted in the first or last one. */
void latencies_add(struct latencies *latencies, double seconds);

/* Median, 99th percentile (the middle of their bins, not above the longest) and longest; zeros if empty. */
struct transfer_times latencies_summary(const struct latencies *latencies);

#endif
