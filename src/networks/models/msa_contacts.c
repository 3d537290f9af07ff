/* SPDX-License-Identifier: MIT
 *
 * Predicts contacts from the attention maps of tied row attention. */
#include "models/contact_maps.h"
#include "models/msa_model.h"

/* Returns the number of residues of each alignment, I32 [B], without padding. If `compat` is set, padded columns are
 * counted too, as in the original, although this changes the contacts. */
static attn_tensor *residues(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens)
{
    attn_tensor *counts = attn_tape_tensor(tape, ATTN_I32, 1, &tokens->batch, NULL);
    for (int64_t b = 0; counts && b < tokens->batch; b++)
        ((int32_t *)attn_tensor_data(counts))[b] =
            (int32_t)((msa->compat ? tokens->cols : attn__msa_columns(tokens, b)) - 1);
    return counts;
}

static attn__contact_regression regression_of(const attn__msa *msa)
{
    return (attn__contact_regression){msa->regression.weight, msa->regression.bias};
}

bool attn__msa_add_contacts(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens, int64_t layer,
                            int64_t first, const attn_tensor *maps, attn_tensor *sums)
{
    attn__contact_regression regression = regression_of(msa);
    attn__contact_maps part = {.maps = maps, .first = layer * msa->heads + first};
    attn_tensor *counts = residues(msa, tape, tokens);
    return counts && attn__contacts_add(&regression, tape, &part, counts, sums);
}

bool attn__msa_finish_contacts(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens, attn_tensor *sums)
{
    attn__contact_regression regression = regression_of(msa);
    attn_tensor *counts = residues(msa, tape, tokens);
    if (counts)
        attn__contacts_finish(&regression, counts, sums);
    return counts != NULL;
}
