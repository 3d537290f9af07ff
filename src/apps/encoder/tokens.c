/* SPDX-License-Identifier: MIT
 *
 * Splits texts into the tokens of an encoder: words by the directory's tokenizer, proteins by letters. */
#include "apps/encoder/encoder.h"

#include "base/context.h"
#include "data/proteins.h"
#include "io/directory.h"

#include <string.h>
#include <ctype.h>

/* ------------------------------------------------------------------------------------------------ words */

attn_status attn__encoder_tokenizer(attn_encoder *encoder)
{
    (void)encoder;
    return ATTN_OK;
}

void attn__encoder_tokenizer_free(attn_encoder *encoder)
{
    (void)encoder;
}

static attn_status split_words(const attn_encoder *encoder, const char *text, size_t length, attn_encoder_text *tokens)
{
    (void)text;
    (void)length;
    (void)tokens;
    return attn__fail(encoder->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: no tokenizer.json and no vocab.txt; texts can only be given as ids", encoder->directory);
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
        return attn__fail(encoder->context, ATTN_ERROR_FORMAT, "a protein without residues");
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
