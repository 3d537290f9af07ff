/* SPDX-License-Identifier: MIT
 * Reads an alignment into the tokens that the model reads. */
#include "apps/msa/msa.h"

#include "base/context.h"

#include <string.h>

enum { DEPTH = 128 };
_Static_assert((int)ATTN_MSA_DIVERSE == (int)ATTN_SELECT_DIVERSE && (int)ATTN_MSA_FIRST == (int)ATTN_SELECT_FIRST &&
                   (int)ATTN_MSA_RANDOM == (int)ATTN_SELECT_RANDOM &&
                   (int)ATTN_MSA_WEIGHTED == (int)ATTN_SELECT_WEIGHTED,
               "attn_msa_choice is attn_select");

void attn_msa_family_free(attn_context *context, attn_msa_family *family)
{
    attn__free(context, (void *)family->tokens);
    attn__free(context, (void *)family->query);
    attn__free(context, (void *)family->numbers);
    *family = (attn_msa_family){0};
}

static attn_status fill(attn_msa_family *family, attn_context *context, const attn_alignment *all,
                        const attn_alignment *chosen)
{
    size_t rows = (size_t)attn_alignment_rows(chosen), columns = (size_t)attn_alignment_columns(chosen);
    int32_t *tokens = attn__alloc(context, attn__size_mul(attn__size_mul(rows, columns + 1), sizeof *tokens));
    int64_t *numbers = attn__alloc(context, attn__size_mul(columns + 1, sizeof *numbers));
    family->tokens = tokens;
    family->numbers = numbers;
    family->query = attn__strdup(context, attn_alignment_query(all));
    if (!tokens || !numbers || !family->query)
        return ATTN_ERROR_MEMORY;
    attn_alignment_tokens(chosen, tokens);
    for (size_t c = 0; c < columns; c++)
        numbers[c] = attn_alignment_number(all, (int64_t)c);
    family->rows = (int64_t)rows;
    family->cols = (int64_t)columns + 1;
    family->sequences = attn_alignment_rows(all);
    return ATTN_OK;
}

attn_status attn_msa_family_parse(attn_msa_family *family, attn_context *context, const char *text, size_t size,
                                  const char *name, const attn_msa_family_options *options)
{
    ATTN__CALL(context);
    attn_alignment *all = NULL, *chosen = NULL;
    *family = (attn_msa_family){0};
    if (ATTN__CHECK_RESERVED(context, options, attn_msa_family_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_msa_family_options o = options ? *options : (attn_msa_family_options){0};
    if (o.depth < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "attn_msa_family_options: depth is %lld; it must not be negative", (long long)o.depth);
    if (attn__check_choice(context, "attn_msa_family_options: choice", (int)o.choice, ATTN_MSA_WEIGHTED) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    const attn_alignment_options how = {.query_columns = o.query_columns};
    const attn_selection selection = {.depth = o.depth ? o.depth : DEPTH, .how = (attn_select)o.choice, .seed = o.seed};
    attn_status status = attn_alignment_parse(&all, context, text, size, name, &how);
    if (status == ATTN_OK)
        status = attn_alignment_select(&chosen, all, &selection);
    if (status == ATTN_OK)
        status = fill(family, context, all, chosen);
    attn_alignment_destroy(chosen);
    attn_alignment_destroy(all);
    if (status != ATTN_OK)
        attn_msa_family_free(context, family);
    return status;
}

attn_status attn_msa_family_read(attn_msa_family *family, attn_context *context, const char *path,
                                 const attn_msa_family_options *options)
{
    ATTN__CALL(context);
    attn_bytes bytes = {0};
    *family = (attn_msa_family){0};
    attn_status status = attn_file_read(&bytes, context, path, 0);
    if (status == ATTN_OK)
        status = attn_msa_family_parse(family, context, bytes.data, bytes.size, path, options);
    attn_bytes_free(context, &bytes);
    return status;
}
