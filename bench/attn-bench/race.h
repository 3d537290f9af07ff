/* SPDX-License-Identifier: MIT
 *
 * race.h - runs the same work on each instruction set of the machine and on several kinds of input numbers. All
 * combinations run in turns, and the shortest time of each counts. If a set is slower than the next lower set, or
 * slower on some numbers than on others, an alarm is printed.
 */
#ifndef BENCH_RACE_H
#define BENCH_RACE_H

#include "bench.h"

enum { BENCH_MOST_SETS = 6, BENCH_MOST_KINDS = 5 };

/* The functions of one work item. Each returns the status of the context. `open` gets `size` bytes of zeroed memory,
 * and `close` is called whatever `open` returned. */
typedef struct bench_work {
    size_t size;
    attn_status (*open)(void *state, attn_context *context, const void *subject, int kind);
    attn_status (*run)(void *state);
    void (*close)(void *state);
    double (*flops)(const void *state);
    /* error of the last run, divided by the allowed error; NULL: the error is not known */
    double (*error)(const void *state);
} bench_work;

typedef struct bench_row {
    const char *part, *name, *type;
    const bench_work *work;
    const void *subject;
    attn_precision precision;
    const char *const *kinds;
    int nkinds;
} bench_row;

typedef struct bench_race {
    const cli_call *cli;
    const char *sets[BENCH_MOST_SETS];
    int nsets;
    int threads[BENCH_MOST_THREADS], nthreads;
    /* Highest peak measured so far. Other processes can only make a measured peak too low. */
    double peak[BENCH_MOST_THREADS][BENCH_MOST_SETS];
    /* only rows of this type run; NULL: rows of all types run, except fma */
    const char *type;
    double seconds;
    double sets_limit, numbers_limit; /* limits for the ratios of times, above which an alarm is printed */
    bool quick, rates;                /* rates: true if the table shows GFLOP/s instead of ms */
    int rows, alarms;
    attn_json json;
} bench_race;

#define BENCH_RACE_OPTIONS                                                                                             \
    CLI_TEXT("threads", 0, "LIST", "", "thread counts, as 1,2; default: 1 and all; with --quick: all"),                \
        CLI_FLAG("quick", 0, "little work, measured briefly"),                                                         \
        CLI_REAL("seconds", "0.1", 0, 3600, "measure each for at least this long; with --quick 0.02"),                 \
        CLI_REAL("tolerance", "1.05", 0.01, 1e6,                                                                       \
                 "ratio of times that raises an alarm; between kinds of numbers the default is 1.2, with --quick 1.5")

/* Reads the options, finds the instruction sets and begins the table. Returns an exit code. */
int bench_race_begin(bench_race *race, const cli_call *cli, bool rates);
/* Races the row with each number of threads, unless another type was requested. Returns an exit code, which is
 * CLI_OK even after alarms. */
int bench_race_row(bench_race *race, const bench_row *row);
/* Ends the table of a race that began with CLI_OK. Returns `code` if it is an error. Otherwise returns CLI_BAD if
 * nothing was measured, CLI_FAILED after alarms, or CLI_OK. */
int bench_race_end(bench_race *race, int code);

/* ---------------------------------------------------------------------------------- race_products.c */

/* Races the products of a NULL-terminated list in each precision. NULL means all products of product.h. Those
 * with weights of a linear layer then also run with packed weights. */
int bench_race_products(bench_race *race, const char *const *shapes);
extern const char *const bench_products_quick[];

/* ------------------------------------------------------------------------------------- race_work.c */

int bench_race_attention(bench_race *race);
int bench_race_subnormal(bench_race *race);
int bench_race_training(bench_race *race);
int bench_race_vit(bench_race *race);

#endif
