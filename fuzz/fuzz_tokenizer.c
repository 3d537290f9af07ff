/* SPDX-License-Identifier: MIT
 *
 * Tests tokenizer.json and the encoding of texts. The input is a tokenizer.json, a zero byte and a text. An input
 * without a zero byte is a text for each of a few tokenizers that use every step.
 */
#include "fuzz.h"

#include "apps/checkpoint/tokenizer_files.h"

#include <string.h>

#define MODEL                                                                                                          \
    "\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"[UNK]\": 0, \"a\": 1, \"##a\": 2, "                            \
    "\"##\\u0301\": 3, \"b\": 4, \"##b\": 5}}"
static const char *const known[] = {
    "{\"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, "
    "\"added_tokens\": [{\"content\": \"ab\", \"normalized\": true, \"lstrip\": true, \"rstrip\": true}, "
    "{\"content\": \"a b\", \"single_word\": true, \"special\": true}], " MODEL "}",
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}, {\"type\": \"StripAccents\"}, "
    "{\"type\": \"Strip\"}, {\"type\": \"Prepend\", \"prepend\": \"a\"}, {\"type\": \"Nmt\"}, {\"type\": \"Replace\", "
    "\"pattern\": {\"Regex\": \"\\\\s{2,}|^a\"}, \"content\": \"ab\"}]}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
    "\"pretokenizers\": [{\"type\": \"Whitespace\"}, {\"type\": \"Digits\", \"individual_digits\": true}, "
    "{\"type\": \"Punctuation\", \"behavior\": \"MergedWithPrevious\"}]}, " MODEL "}",
    "{\"normalizer\": {\"type\": \"NFD\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
    "\"pretokenizers\": [{\"type\": \"Split\", "
    "\"pattern\": {\"Regex\": \"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\"}]}, "
    "\"post_processor\": "
    "{\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"fuse_unk\": true, \"unk_token\": \"a\", "
    "\"vocab\": {\"a\": 0, "
    "\"b\": 1, \"\\u0120\": 2, \"ab\": 3, \"aa\": 4, \"\\u0120a\": 5, \"aab\": 6}, \"merges\": [\"a b\", \"a a\", "
    "\"\\u0120 a\", \"a ab\"]}}",
    "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"prepend_scheme\": \"first\"}, \"model\": {\"type\": \"Unigram\", "
    "\"unk_id\": 0, "
    "\"byte_fallback\": true, \"vocab\": [[\"<unk>\", 0], [\"a\", -1], [\"ab\", -1.5], [\"\\u2581\", -2], "
    "[\"<0x41>\", -9], "
    "[\"\\u2581a\", -2.5]]}}"};

/* Encodes a text, and checks the tokens. */
static void encode(attn_context *context, const attn__tokenizer *tokenizer, const char *text, size_t size)
{
    attn__encoding tokens = {0};
    if (attn__tokenizer_encode(tokenizer, text, size, text, size / 2,
                               &(attn__encode_options){.special = true, .max_length = size % 3 ? 0 : 20},
                               &tokens) == ATTN_OK) {
        for (int64_t i = 0; i < tokens.n; i++)
            if (tokens.offsets[i][0] > tokens.offsets[i][1] || tokens.offsets[i][1] > size ||
                !attn__tokenizer_token(tokenizer, tokens.ids[i], NULL))
                abort();
    } else if (!*attn_context_error(context)) {
        abort();
    }
    attn__encoding_free(context, &tokens);
    attn_context_clear_error(context);
}

/* Encodes a text with one of the known tokenizers, which are kept from input to input. */
static int encode_known(const char *text, size_t size)
{
    static attn_context *contexts[4];
    static attn__tokenizer *tokenizers[4];
    static size_t kept[4];
    size_t which = size % 4, held = 0;
    if (!contexts[which]) {
        contexts[which] = fuzz_context();
        if (attn__tokenizer_parse(&tokenizers[which], contexts[which], known[which], strlen(known[which]), "fuzz") !=
            ATTN_OK)
            abort();
        attn_context_memory(contexts[which], &kept[which], NULL, NULL);
    }
    encode(contexts[which], tokenizers[which], text, size);
    attn_context_memory(contexts[which], &held, NULL, NULL);
    if (held != kept[which])
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *zero = size ? memchr(data, 0, size) : NULL;
    attn__tokenizer *tokenizer;
    if (!zero)
        return encode_known(text, size);
    attn_context *context = fuzz_context();
    size_t json = (size_t)(zero - text);
    if (attn__tokenizer_parse(&tokenizer, context, text, json, "fuzz") == ATTN_OK)
        encode(context, tokenizer, zero + 1, size - json - 1);
    attn__tokenizer_destroy(tokenizer);
    return fuzz_end(context);
}
