/* SPDX-License-Identifier: MIT
 *
 * peak.c - times the peak kernel.
 */
#include "kernels/peak/peak.h"

#include "base/parallel.h"

#include <time.h>

#define KERNEL_TYPE attn__peak_kernel
#define KERNEL_OF(set) attn__peak_##set
#include "kernels/choice_tmpl.h"

typedef struct race {
    const attn__peak_kernel *kernel;
    int64_t rounds;
    double operations; /* of one item */
    float sinks[ATTN__MAX_THREADS];
} race;

static void run_item(void *user, int64_t item, int thread)
{
    race *r = user;
    (void)thread;
    double operations = r->kernel->run(r->rounds, &r->sinks[item]);
    if (item == 0)
        r->operations = operations;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double attn__peak_gflops(attn__isa isa, int threads, int repeats)
{
    race r = {.kernel = choose(isa), .rounds = 1 << 19}; /* short: a window that nothing disturbs is found soon */
    double best = 0;
    for (int repeat = 0; repeat < (repeats > 0 ? repeats : 12); repeat++) {
        double start = seconds();
        attn__parallel_items(threads, threads, run_item, &r);
        double rate = r.operations * threads / (seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}
