/* SPDX-License-Identifier: MIT
 *
 * Splits texts into the tokens of an encoder: words by the directory's tokenizer, proteins by letters. */
#include "apps/checkpoint/tokenizer_files.h"
#include "apps/encoder/encoder.h"

#include "base/context.h"
#include "data/proteins.h"
#include "io/directory.h"

#include <ctype.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ words */

attn_status attn__encoder_tokenizer(attn_encoder *encoder)
{
    attn_encoder_info *info = &encoder->info;
    if (!attn__tokenizer_file(encoder->directory))
        return ATTN_OK;
    attn_status status = attn__tokenizer_open(&encoder->tokenizer, encoder->context, encoder->directory);
    if (status != ATTN_OK)
        return status;
    int64_t most = attn__tokenizer_max_length(encoder->tokenizer);
    info->max_length = most > 0 && most < info->max_length ? most : info->max_length;
    info->tokenizer = true;
    return ATTN_OK;
}

void attn__encoder_tokenizer_free(attn_encoder *encoder)
{
    attn__tokenizer_destroy(encoder->tokenizer);
}

/* Puts the prompt before the text. The caller frees *joined, which is NULL if there is no prompt. */
static attn_status join(const attn_encoder *encoder, const char **text, size_t *length, char **joined)
{
    size_t before = encoder->prompt ? strlen(encoder->prompt) : 0;
    *joined = before ? attn__alloc(encoder->context, attn__size_add(before, *length)) : NULL;
    if (!before)
        return ATTN_OK;
    if (!*joined)
        return ATTN_ERROR_MEMORY;
    memcpy(*joined, encoder->prompt, before);
    memcpy(*joined + before, *text, *length);
    *text = *joined;
    *length += before;
    return ATTN_OK;
}

static attn_status copy(const attn_encoder *encoder, const attn__encoding *from, attn_encoder_text *to)
{
    size_t size = attn__size_mul((size_t)from->n, sizeof *to->ids);
    bool typed = false, segments = attn_config_int(attn_model_config(encoder->model), "segments", 0) > 1;
    for (int64_t i = 0; i < from->n; i++)
        typed = typed || (segments && from->types[i] != 0);
    to->ids = attn__alloc(encoder->context, size);
    to->types = typed ? attn__alloc(encoder->context, size) : NULL;
    if (!to->ids || (typed && !to->types))
        return ATTN_ERROR_MEMORY;
    to->n = from->n;
    memcpy(to->ids, from->ids, size);
    if (typed)
        memcpy(to->types, from->types, size);
    return ATTN_OK;
}

static attn_status split_words(const attn_encoder *encoder, const char *text, size_t length, attn_encoder_text *tokens)
{
    attn__encode_options how = {.special = true};
    attn__encoding found = {0};
    char *joined = NULL;
    if (!encoder->tokenizer)
        return attn__fail(
            encoder->context, ATTN_ERROR_UNSUPPORTED,
            "%s: the directory has no tokenizer.json, no vocab.txt and no SentencePiece model; texts can only "
            "be given as ids",
            encoder->directory);
    attn_status status = join(encoder, &text, &length, &joined);
    if (status == ATTN_OK)
        status = attn__tokenizer_encode(encoder->tokenizer, text, length, NULL, 0, &how, &found);
    if (status == ATTN_OK && found.n > encoder->info.max_length) {
        how.max_length = encoder->info.max_length;
        status = attn__tokenizer_encode(encoder->tokenizer, text, length, NULL, 0, &how, &found);
        tokens->cut = true;
    }
    if (status == ATTN_OK)
        status = copy(encoder, &found, tokens);
    tokens->skip = encoder->prompt_tokens;
    attn__encoding_free(encoder->context, &found);
    attn__free(encoder->context, joined);
    return status;
}

/* ------------------------------------------------------------------------------------------------ proteins */

static attn_status split_protein(const attn_encoder *encoder, const char *text, size_t length,
                                 attn_encoder_text *tokens)
{
    tokens->ids = attn__alloc(encoder->context, attn__size_mul(length + 2, sizeof *tokens->ids));
    if (!tokens->ids)
        return ATTN_ERROR_MEMORY;
    while (length > 0 && (isspace((unsigned char)text[length - 1]) || text[length - 1] == '*'))
        length--;
    tokens->ids[tokens->n++] = ATTN_RESIDUE_CLS;
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        int32_t id = attn_residue_id((char)toupper(c));
        if (isspace(c))
            continue;
        if (id < ATTN_RESIDUE_UNKNOWN || id == ATTN_RESIDUE_GAP || c == '.')
            return attn__fail(encoder->context, ATTN_ERROR_FORMAT,
                              isprint(c) ? "character %zu of the protein, '%c', is no residue"
                                         : "character %zu of the protein, code %d, is no residue",
                              i + 1, c);
        tokens->ids[tokens->n++] = id;
    }
    if (tokens->n == 1)
        return attn__fail(encoder->context, ATTN_ERROR_FORMAT, "the protein has no residues");
    tokens->ids[tokens->n++] = ATTN_RESIDUE_EOS;
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ both */

attn_status attn_encoder_tokens(const attn_encoder *encoder, const char *text, size_t length, attn_encoder_text *tokens)
{
    ATTN__CALL(encoder->context);
    *tokens = (attn_encoder_text){0};
    attn_status status = encoder->info.protein ? split_protein(encoder, text, length, tokens)
                                               : split_words(encoder, text, length, tokens);
    if (status != ATTN_OK)
        attn_encoder_text_free(encoder, tokens);
    return status;
}

void attn_encoder_text_free(const attn_encoder *encoder, attn_encoder_text *tokens)
{
    attn__free(encoder->context, tokens->ids);
    attn__free(encoder->context, tokens->types);
    *tokens = (attn_encoder_text){0};
}
