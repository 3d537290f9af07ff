/* SPDX-License-Identifier: MIT
 * Vocabulary files, read, written and read again. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_vocab *vocab = NULL, *again = NULL;
    const char *text;
    size_t length;
    if (attn_vocab_parse(&vocab, context, (const char *)data, size, "fuzz") == ATTN_OK) {
        if (attn_vocab_format(vocab, &text, &length) != ATTN_OK || length != size ||
            attn_vocab_parse(&again, context, text, length, "again") != ATTN_OK)
            abort();
    }
    attn_vocab_destroy(again);
    attn_vocab_destroy(vocab);
    return fuzz_end(context);
}
