/* SPDX-License-Identifier: MIT
 * attn bench --sets: compares the instruction sets of the machine. */
#include "race.h"
#include "bench.h"

#include <string.h>

static const cli_option options[] = {
    CLI_FLAG("sets", 0, "run everything on each instruction set of the machine"),
    BENCH_RACE_OPTIONS,
};

static const char *const usage[] = {"--sets [products|attention|subnormal|training|vit]...", NULL};

static const char description[] =
    "Runs on every instruction set of the machine (from the one that ATTN_ISA names downwards; plain C is left out):\n"
    "  products   a few of attn bench products, in f32, bf16 and int8, on its numbers\n"
    "  attention  the problems of attn bench attend, forward and backward\n"
    "  subnormal  attention whose weights are nearly 0, by a mask of -100 and by\n"
    "             widely spread scores, compared with ordinary weights\n"
    "  training   a step of d2l's Transformer, of one 512 wide with 2 + 2 blocks, and\n"
    "             of d2l's Vision Transformer\n"
    "  vit        ViT-B/16 forward, weights packed, in f32 and bf16\n"
    "The sets take turns, and the shortest time counts. The table has for each set the milliseconds, the share of "
    "the peak of f32 multiply-adds on registers, measured in the same run, and the time divided by that of the next "
    "lower set. Alarms and exit status are those of attn bench products. Run nothing else on the machine meanwhile. "
    "Single benchmarks "
    "are attn bench attend, attn bench products and attn bench train.";

static const char *const examples[] = {"attn bench --sets", "attn bench --sets --quick",
                                       "attn bench --sets attention training --threads 2 --tolerance 1.1", NULL};

static int race_some_products(bench_race *race)
{
    static const char *const shapes[] = {"1576,3072,768t", "197,768,3072t",  "3072,768,1576a",
                                         "1576,768,3072",  "1576,768,3072p", "1024,512,512t",
                                         "1280,256,256t",  "333,777,555",    NULL};
    return bench_race_products(race, race->quick ? bench_products_quick : shapes);
}

static const struct part {
    const char *name;
    int (*race)(bench_race *race);
} parts[] = {
    {"products", race_some_products},
    {"attention", bench_race_attention},
    {"subnormal", bench_race_subnormal},
    {"training", bench_race_training},
    {"vit", bench_race_vit},
};
enum { PARTS = sizeof parts / sizeof *parts };

static int find_parts(const cli_call *cli, bool chosen[PARTS])
{
    for (int i = 0; i < PARTS; i++)
        chosen[i] = cli->nwords == 0;
    for (int w = 0; w < cli->nwords; w++) {
        int i = 0;
        while (i < PARTS && strcmp(parts[i].name, cli->words[w]) != 0)
            i++;
        if (i == PARTS)
            return cli_fail(CLI_BAD, "--sets: \"%.40s\" is not one of products, attention, subnormal, training, vit",
                            cli->words[w]);
        chosen[i] = true;
    }
    return CLI_OK;
}

static int run(cli_call *cli)
{
    bench_race race;
    bool chosen[PARTS];
    if (!cli_flag(cli, "sets"))
        return cli_command_refuse("bench");
    int code = find_parts(cli, chosen);
    if (code == CLI_OK)
        code = bench_race_begin(&race, cli, false);
    if (code != CLI_OK)
        return code;
    for (int i = 0; code == CLI_OK && i < PARTS; i++)
        if (chosen[i])
            code = parts[i].race(&race);
    return bench_race_end(&race, code);
}

const cli_command bench_sets = {
    "bench",
    "compare the instruction sets of the machine; fail where one is slow",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    -1,
    run,
};
