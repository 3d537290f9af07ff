/* SPDX-License-Identifier: MIT
 * Seconds for speeds, progress and benchmarks. */
#include "command.h"

#include <time.h>

/* What waits for a time to pass must come to its end: where the system's clock has gone backwards, or stands, a reading
 * counts as a microsecond. */
double cli_seconds(void)
{
    static const double LEAST = 1e-6;
    static double before, passed;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    passed += now - before > LEAST ? now - before : LEAST;
    before = now;
    return passed;
}
