#include "latency.h"

#include <math.h>
#include <string.h>

void latencies_clear(struct latencies *l) {
    memset(l, 0, sizeof *l);
}

static int bin_of(double seconds) {
    int exponent;
    if (!(seconds > 0))
        return 0;
    /* seconds = fraction * 2^exponent, 0.5 <= fraction < 1 */
    double fraction = frexp(seconds, &exponent);
    int octave = exponent - 1 - LATENCY_FIRST;
    if (octave < 0)
        return 0;
    if (octave >= LATENCY_OCTAVES)
        return LATENCY_BINS - 1;
    return octave * LATENCY_PER_OCTAVE + (int)((2 * fraction - 1) * LATENCY_PER_OCTAVE);
}

static double middle_of(int bin) {
    int octave = bin / LATENCY_PER_OCTAVE;
    double within = (bin % LATENCY_PER_OCTAVE + 0.5) / LATENCY_PER_OCTAVE;
    return ldexp(1 + within, octave + LATENCY_FIRST);
}

void latencies_add(struct latencies *l, double seconds) {
    l->count[bin_of(seconds)]++;
    l->longest = seconds > l->longest ? seconds : l->longest;
}

/* The time that at least `share` of the transfers did not exceed. */
static double quantile(const struct latencies *l, uint64_t count, double share) {
    uint64_t needed = (uint64_t)ceil(share * (double)count), seen = 0;
    for (int bin = 0; bin < LATENCY_BINS; bin++) {
        seen += l->count[bin];
        if (seen >= needed)
            return fmin(middle_of(bin), l->longest);
    }
    return l->longest;
}

struct transfer_times latencies_summary(const struct latencies *l) {
    uint64_t count = 0;
    for (int bin = 0; bin < LATENCY_BINS; bin++)
        count += l->count[bin];
    if (count == 0)
        return (struct transfer_times){0};
    return (struct transfer_times){.count = count,
                                   .median = quantile(l, count, 0.5),
                                   .p99 = quantile(l, count, 0.99),
                                   .longest = l->longest};
}
