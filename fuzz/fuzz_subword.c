/* SPDX-License-Identifier: MIT
 *
 * Tests SentencePiece models from any source. If a model can be opened, it is used.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_vocab *vocab = NULL;
    int32_t ids[64];
    if (attn_vocab_parse_subwords(&vocab, context, (const char *)data, size, "fuzz") == ATTN_OK)
        (void)attn_vocab_encode(vocab, "A \xef\xac\x81ne caf\xc3\xa9, \xe2\x98\x83!", NULL, ids, 64, NULL, NULL);
    attn_vocab_destroy(vocab);
    return fuzz_end(context);
}
