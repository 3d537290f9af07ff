/* SPDX-License-Identifier: MIT
 *
 * tokens_tool DIR FLAGS MAX - encodes texts with the tokenizer of a model's directory, for
 * tests/parity/tokenizers_parity.py. Standard input has texts, each with its length before it. Standard output gets for
 * each text the number of tokens, and then for each token its id, type, begin and end. All numbers are 32-bit integers
 * in this machine's byte order. The length -1 before a text tells that it is the second text of the text before.
 *
 * FLAGS has the letters s (special tokens) and l (cut on the left). MAX is the largest number of tokens; 0: no
 * limit. */
#include "base/context.h"
#include "apps/checkpoint/tokenizer_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *bytes;
    int32_t size;
} text;

static bool read_size(int32_t *size)
{
    return fread(size, sizeof *size, 1, stdin) == 1;
}

static bool read_bytes(text *t)
{
    char *bytes = realloc(t->bytes, (size_t)t->size + 1);
    if (!bytes)
        return false;
    t->bytes = bytes;
    return fread(bytes, 1, (size_t)t->size, stdin) == (size_t)t->size;
}

static bool write_tokens(const attn__encoding *tokens)
{
    int32_t n = (int32_t)tokens->n;
    bool ok = fwrite(&n, sizeof n, 1, stdout) == 1;
    for (int64_t i = 0; i < tokens->n && ok; i++) {
        int32_t row[4] = {tokens->ids[i], tokens->types[i], (int32_t)tokens->offsets[i][0],
                          (int32_t)tokens->offsets[i][1]};
        ok = fwrite(row, sizeof row, 1, stdout) == 1;
    }
    return ok;
}

/* Encodes all texts of standard input. */
static attn_status encode_all(const attn__tokenizer *tokenizer, const attn__encode_options *options,
                              attn__encoding *tokens)
{
    text first = {0}, second = {0};
    attn_status status = ATTN_OK;
    int32_t size;
    bool more = read_size(&size);
    while (more && status == ATTN_OK) {
        first.size = size;
        bool ok = read_bytes(&first), pair = false;
        more = read_size(&size);
        if (ok && more && size == -1) {
            pair = true;
            ok = read_size(&second.size) && read_bytes(&second);
            more = read_size(&size);
        }
        status = ok ? attn__tokenizer_encode(tokenizer, first.bytes, (size_t)first.size, pair ? second.bytes : NULL,
                                             pair ? (size_t)second.size : 0, options, tokens)
                    : ATTN_ERROR_IO;
        if (status == ATTN_OK && !write_tokens(tokens))
            status = ATTN_ERROR_IO;
    }
    free(first.bytes);
    free(second.bytes);
    return status;
}

int main(int argc, char **argv)
{
    attn_context *context = NULL;
    attn__tokenizer *tokenizer = NULL;
    attn__encoding tokens = {0};
    if (argc != 4 || attn_context_create(&context, NULL) != ATTN_OK)
        return 2;
    attn__encode_options options = {.special = strchr(argv[2], 's') != NULL,
                                    .cut_left = strchr(argv[2], 'l') != NULL,
                                    .max_length = atoll(argv[3])};
    attn_status status = attn__tokenizer_open(&tokenizer, context, argv[1]);
    if (status == ATTN_OK)
        status = encode_all(tokenizer, &options, &tokens);
    if (status != ATTN_OK)
        fprintf(stderr, "tokens_tool: %s\n", attn_context_error(context));
    attn__encoding_free(context, &tokens);
    attn__tokenizer_destroy(tokenizer);
    attn_context_destroy(context);
    return status == ATTN_OK ? 0 : 1;
}
