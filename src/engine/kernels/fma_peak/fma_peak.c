/* SPDX-License-Identifier: MIT
 *
 * fma_peak.c - measures the time of the kernel of fma_peak.h.
 */
#include "kernels/fma_peak/fma_peak.h"

#include "base/clock.h"
#include "base/parallel.h"

typedef struct race {
    const attn__fma_peak_kernel *kernel;
    int64_t rounds;
    double operations;
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

double attn__fma_peak_gflops(attn__isa isa, int threads, int repeats)
{
    race r = {.kernel = attn__fma_peak_for(isa),
              .rounds = 1 << 19}; /* each run is short, so that at least one is undisturbed */
    double best = 0;
    for (int repeat = 0; repeat < (repeats > 0 ? repeats : 12); repeat++) {
        double start = attn__now();
        attn__parallel_items(threads, threads, run_item, &r);
        double took = attn__seconds_since(start), rate = took > 0 ? r.operations * threads / took * 1e-9 : 0;
        best = rate > best ? rate : best;
    }
    return best;
}
