/* SPDX-License-Identifier: MIT
 *
 * Returns the time, for speeds, progress and benchmarks.
 */
#include "command.h"

#include <time.h>

/* If the system's clock stops or is set back, each reading is a microsecond later than the last, so that a loop that
 * waits for a time always ends. */
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
