/* SPDX-License-Identifier: MIT
 *
 * Tests sentence pairs, their split and their vocabulary.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_pairs *pairs = NULL, *train = NULL;
    attn_vocab *source = NULL;
    attn_pairs_options options = {.compat = size & 1 ? ATTN_COMPAT_D2L : ATTN_COMPAT_NONE, .max_line = 4096};
    if (attn_pairs_parse(&pairs, context, (const char *)data, size, "fuzz", &options) == ATTN_OK) {
        if (attn_pairs_split(&train, NULL, NULL, pairs, NULL) != ATTN_OK ||
            attn_vocab_build(&source, pairs, ATTN_SIDE_SOURCE, &(attn_vocab_options){.compat = options.compat}) !=
                ATTN_OK)
            abort();
    }
    attn_vocab_destroy(source);
    attn_pairs_destroy(train);
    attn_pairs_destroy(pairs);
    return fuzz_end(context);
}
