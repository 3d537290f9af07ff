/* SPDX-License-Identifier: MIT
 *
 * Tests the other files of tokenizers: vocab.txt and SentencePiece models with tokenizer_config.json. The input is a
 * byte that chooses the file, the text of tokenizer_config.json, a zero byte and the file. If a tokenizer is opened, it
 * encodes the end of the file.
 */
#include "fuzz.h"

#include "apps/checkpoint/tokenizer_files.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"vocab.txt", "sentencepiece.bpe.model", "spiece.model"};
    const char *text = (const char *)data, *zero = size > 1 ? memchr(text + 1, 0, size - 1) : NULL;
    if (!zero)
        return 0;
    attn_context *context = fuzz_context();
    attn_bytes config = {(char *)(uintptr_t)(text + 1), (size_t)(zero - text) - 1};
    attn_bytes file = {(char *)(uintptr_t)(zero + 1), size - config.size - 2};
    attn__tokenizer *tokenizer;
    attn__encoding tokens = {0};
    size_t n = file.size < 100 ? file.size : 100;
    const char *end = file.data + file.size - n;
    if (attn__tokenizer_parse_file(&tokenizer, context, names[data[0] % 3], &file, config.size > 0 ? &config : NULL) ==
            ATTN_OK &&
        attn__tokenizer_encode(tokenizer, end, n, NULL, 0, &(attn__encode_options){.special = true}, &tokens) ==
            ATTN_OK) {
        for (int64_t i = 0; i < tokens.n; i++)
            if (tokens.offsets[i][0] > tokens.offsets[i][1] || tokens.offsets[i][1] > n ||
                !attn__tokenizer_token(tokenizer, tokens.ids[i], NULL))
                abort();
    }
    attn__encoding_free(context, &tokens);
    attn__tokenizer_destroy(tokenizer);
    attn_context_clear_error(context);
    return fuzz_end(context);
}
