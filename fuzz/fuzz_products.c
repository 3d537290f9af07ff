/* SPDX-License-Identifier: MIT
 *
 * fuzz_products.c - tests linear layers, matrix products and convolutions on extreme operands. Their errors must be
 * within the bound of f32 products in tests/test_hostile_products.c. Each run has new cases. A failure prints a line,
 * with which the case can be repeated.
 */
#include "support/hostile.h"
#include "attn/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns a seed that depends on every byte. */
static uint64_t seed_of(const uint8_t *data, size_t size)
{
    uint64_t seed = 0;
    for (size_t i = 0; i < size; i++)
        seed = (seed ^ data[i]) * 0x100000001b3u;
    return seed;
}

static void fault(const hostile_case *c, const hostile_report *report)
{
    char text[HOSTILE_TEXT];
    hostile_print(c, text);
    fprintf(stderr, "fuzz_products: %lld elements, %s\nATTN_HOSTILE=%s test_hostile_products\n",
            (long long)report->broken, report->first, text);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t seed = seed_of(data, size);
    const hostile_case c = hostile_draw(seed, seed % 64 == 0);
    hostile_report report;
    attn_context *context;
    attn_tape *tape;
    if (attn_context_create(&context, &(attn_context_options){.threads = 1 + (int)(seed % 3)}) != ATTN_OK ||
        attn_tape_create(&tape, context) != ATTN_OK)
        abort();
    if (!hostile_run(tape, &c, &report))
        fault(&c, &report);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
    return 0;
}
