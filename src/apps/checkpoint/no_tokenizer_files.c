/* SPDX-License-Identifier: MIT
 * The functions of tokenizer_files.h in a build without utf8proc. */
#include "apps/checkpoint/tokenizer_files.h"

#include "base/context.h"

attn_status attn__tokenizer_open(attn__tokenizer **tokenizer, attn_context *context, const char *directory)
{
    *tokenizer = NULL;
    return attn__fail(
        context, ATTN_ERROR_UNSUPPORTED,
        "%s: this build of attn has no utf8proc, which tokenizers need: install libutf8proc-dev and build "
        "again",
        directory);
}

attn_status attn__tokenizer_parse(attn__tokenizer **tokenizer, attn_context *context, const char *json, size_t size,
                                  const char *name)
{
    (void)json, (void)size;
    return attn__tokenizer_open(tokenizer, context, name);
}

attn_status attn__tokenizer_parse_file(attn__tokenizer **tokenizer, attn_context *context, const char *name,
                                       const attn_bytes *file, const attn_bytes *config)
{
    (void)file, (void)config;
    return attn__tokenizer_open(tokenizer, context, name);
}
