/* SPDX-License-Identifier: MIT
 *
 * Tests lexicons. If a lexicon was read, it is written and read again.
 */
#include "fuzz.h"

static const char words[] = "<pad>\n<bos>\n<eos>\n<unk>\nva\nje\n.\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_vocab *vocab = NULL;
    attn_lexicon *lexicon = NULL, *again = NULL;
    attn_bytes file = {0};
    if (attn_vocab_parse(&vocab, context, words, sizeof words - 1, "words") != ATTN_OK)
        abort();
    if (attn_lexicon_parse(&lexicon, context, (const char *)data, size, "fuzz", vocab, vocab) == ATTN_OK) {
        if (attn_lexicon_format(lexicon, &file) != ATTN_OK ||
            attn_lexicon_parse(&again, context, file.data, file.size, "again", vocab, vocab) != ATTN_OK ||
            attn_lexicon_size(again) != attn_lexicon_size(lexicon))
            abort();
    }
    attn_bytes_free(context, &file);
    attn_lexicon_destroy(again);
    attn_lexicon_destroy(lexicon);
    attn_vocab_destroy(vocab);
    return fuzz_end(context);
}
