#include "results.h"

#include <stdlib.h>

#define NAME_OF(symbol, text) text,
const char *const phase_names[] = {BENCHIO_PHASES(NAME_OF) NULL};

double bandwidth(uint64_t bytes, double seconds) {
    return seconds > 0 ? (double)bytes / seconds : 0;
}

void results_free(struct results *r) {
    for (int i = 0; i < r->series_n; i++) {
        for (size_t k = 0; k < r->series[i].n; k++) {
            free(r->series[i].item[k].instance_seconds);
            free(r->series[i].item[k].node);
        }
        free(r->series[i].item);
        free(r->series[i].node_bytes);
    }
    for (size_t i = 0; i < r->hints.n; i++) {
        free(r->hints.item[i].key);
        free(r->hints.item[i].value);
    }
    free(r->hints.item);
    free(r->instance_bytes);
}
