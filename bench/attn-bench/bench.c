/* SPDX-License-Identifier: MIT
 *
 * Computes medians, measures the machine's peak rate and parses thread counts for the benchmarks.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    if (n < 1)
        return 0;
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void bench_raise_peak(double *peak, attn_context *context, int threads, double seconds)
{
    if (seconds > 0 || !(*peak > 0))
        *peak = fmax(*peak, attn_machine_peak(context, ATTN_F32, threads));
}

int bench_thread_counts(const cli_call *cli, int counts[BENCH_MOST_THREADS], int *n)
{
    const char *text = cli_text(cli, "threads");
    *n = 0;
    if (!*text) {
        int all = attn_context_threads(cli->context);
        counts[(*n)++] = 1;
        if (all > 1)
            counts[(*n)++] = all;
        return CLI_OK;
    }
    for (const char *at = text;; at++) {
        char *end;
        long count = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || count < 1 || count > 1024 || *n == BENCH_MOST_THREADS)
            return cli_fail(CLI_BAD, "--threads: \"%s\" is not a list of 1 to %d numbers from 1 to 1024, as 1,2", text,
                            BENCH_MOST_THREADS);
        counts[(*n)++] = (int)count;
        at = end;
        if (!*at)
            return CLI_OK;
    }
}
