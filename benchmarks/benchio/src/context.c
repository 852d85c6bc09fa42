#include "context.h"

#include <stdio.h>
#include <time.h>

double utc_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void utc_text(double seconds, char text[40]) {
    time_t whole = (time_t)seconds;
    struct tm parts;
    char day[32];
    gmtime_r(&whole, &parts);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, 40, "%s.%06dZ", day, (int)((seconds - (double)whole) * 1e6));
}
