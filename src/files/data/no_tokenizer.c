/* SPDX-License-Identifier: MIT
 * The functions of tokenizer.h in a build without utf8proc. No tokenizer exists in it, so they are never called. */
#include "data/tokenizer.h"

void attn__tokenizer_destroy(attn__tokenizer *tokenizer)
{
    (void)tokenizer;
}

attn_status attn__tokenizer_encode(const attn__tokenizer *tokenizer, const char *text, size_t size, const char *second,
                                   size_t second_size, const attn__encode_options *options, attn__encoding *tokens)
{
    (void)tokenizer, (void)text, (void)size, (void)second, (void)second_size, (void)options, (void)tokens;
    return ATTN_ERROR_UNSUPPORTED;
}

void attn__encoding_free(attn_context *context, attn__encoding *tokens)
{
    (void)context, (void)tokens;
}

int64_t attn__tokenizer_size(const attn__tokenizer *tokenizer)
{
    (void)tokenizer;
    return 0;
}

const char *attn__tokenizer_token(const attn__tokenizer *tokenizer, int64_t id, size_t *length)
{
    (void)tokenizer, (void)id, (void)length;
    return NULL;
}

int32_t attn__tokenizer_find(const attn__tokenizer *tokenizer, const char *token, size_t length)
{
    (void)tokenizer, (void)token, (void)length;
    return -1;
}

int32_t attn__tokenizer_special(const attn__tokenizer *tokenizer, attn__special which)
{
    (void)tokenizer, (void)which;
    return -1;
}

int64_t attn__tokenizer_max_length(const attn__tokenizer *tokenizer)
{
    (void)tokenizer;
    return 0;
}
