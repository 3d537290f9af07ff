/* SPDX-License-Identifier: MIT
 *
 * attn bench products: measures the speed of matrix products on each instruction set and on several kinds of input
 * numbers.
 */
#include "product.h"
#include "race.h"
#include "bench.h"

static const cli_option options[] = {BENCH_RACE_OPTIONS};

static const char *const usage[] = {"[M,N,K[t|p|a]...]", NULL};

static const char description[] =
    "Measures products of an M x K matrix by a K x N matrix, in the sizes that models use, in f32, bf16 and int8 (or "
    "in the formats of --precision). Letters behind the sizes: t: the second matrix is stored transposed, as the "
    "weights of linear layers are (int8 supports these only); p: the second matrix is packed in advance; a: the "
    "first matrix is transposed, as in the gradient of weights. The numbers of the first matrix (with a, of both) "
    "are of five kinds: normal, ReLU'd, masked and dropped (as in a gradient: a quarter of the rows and a tenth of "
    "the rest are 0), lognormal with signs, and one-hot rows. Weights are normal.\n"
    "\n"
    "Each product runs in turn on every instruction set of the machine (from the one that ATTN_ISA names downwards, "
    "without plain C), and the shortest time counts. The table has for each set the GFLOP/s on normal numbers, their "
    "share of the peak of f32 multiply-adds on registers, measured in the same run, and the time divided by that of "
    "the next lower set (for the kind of numbers where this ratio is largest). The last column is the longest time "
    "on any kind of numbers divided by the shortest. --json prints each time. A sample of elements is compared with "
    "float64 and must be within the bounds of "
    "docs/numerics.md.\n"
    "\n"
    "An alarm is raised for a set that takes at least 1.05 times as long as the next lower set, for a kind of "
    "numbers that takes 1.2 times as long as another, and for a wrong element. The measurement is repeated four "
    "times before an alarm counts; the exit status is then 1. Run nothing else on the machine meanwhile.";

static const char *const examples[] = {
    "attn bench products",
    "attn bench products --quick --tolerance 1.3",
    "attn bench products --threads 1 --precision f32 1576,768,768t 512,2048,1024a",
    "attn bench products --quick --json",
    NULL,
};

static int run(cli_call *cli)
{
    bench_race race;
    bench_product_shape shape;
    for (int i = 0; i < cli->nwords; i++)
        if (!bench_product_parse(&shape, cli->words[i]))
            return cli_fail(
                CLI_BAD,
                "\"%.60s\" is not a product: expected m,n,k, each from 1 to %d, then t, p, a or nothing, as in "
                "64,32,16t",
                cli->words[i], BENCH_PRODUCT_MOST);
    int code = bench_race_begin(&race, cli, true);
    if (code != CLI_OK)
        return code;
    return bench_race_end(&race, bench_race_products(&race, cli->nwords  ? cli->words
                                                            : race.quick ? bench_products_quick
                                                                         : NULL));
}

const cli_command bench_products = {
    "bench products",
    "measure products on every instruction set; fail where one is slow",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    -1,
    run,
};
