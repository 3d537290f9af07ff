/* SPDX-License-Identifier: MIT
 *
 * Tests vocabulary files. If a file was read, it is written and read again.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_vocab *vocab = NULL, *again = NULL;
    attn_bytes file = {0};
    if (attn_vocab_parse(&vocab, context, (const char *)data, size, "fuzz") == ATTN_OK) {
        if (attn_vocab_format(vocab, &file) != ATTN_OK || file.size != size ||
            attn_vocab_parse(&again, context, file.data, file.size, "again") != ATTN_OK)
            abort();
    }
    attn_bytes_free(context, &file);
    attn_vocab_destroy(again);
    attn_vocab_destroy(vocab);
    return fuzz_end(context);
}
