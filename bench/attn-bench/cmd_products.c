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
    "Products of an M x K by a K x N matrix, as models have them, computed in f32, bf16 and int8 (or in what "
    "--precision names) by the operations of tensors. t: the second one is stored transposed, as the weights of linear "
    "layers are (int8 multiplies these only); p: they are packed before; a: the first one is transposed, as in the "
    "gradient of weights. The numbers are normal, ReLU'd, masked and dropped (a gradient: a quarter of its rows 0, a "
    "tenth of the rest), lognormal with signs, and one-hot rows: the first matrix's, with a both's; weights are "
    "normal.\n"
    "\n"
    "Each runs on every instruction set of the machine (from the one that ATTN_ISA names downwards; plain C is left "
    "out) in turns, and the shortest time counts. The table has for each set the GFLOP/s of normal numbers, what part "
    "that is of the peak of f32 multiply-adds on registers, measured in the same run, and the time over that of the "
    "set below it (of the numbers where this is largest); at the end the longest time on any numbers over the "
    "shortest. --json has each time. A sample of elements is compared with float64 and must be within the bounds of "
    "docs/numerics.md.\n"
    "\n"
    "An alarm is a set that takes 1.05 times as long as the set below it or more, a kind of numbers that takes 1.2 "
    "times as long as another, and a wrong element. It is measured again four times before it counts; the exit status "
    "is then 1. Nothing else should run meanwhile.";

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
            return cli_fail(CLI_BAD,
                            "\"%.60s\" is no product: there must be m,n,k, numbers from 1 to %d, and t, p, a or "
                            "nothing, as in 64,32,16t",
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
