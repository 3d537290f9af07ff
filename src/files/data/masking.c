/* SPDX-License-Identifier: MIT
 * Hides residues for masked language modelling. */
#include "data/alignment.h"

#include "base/rng.h"

/* Draws a random replacement of a residue: one of the twenty amino acids (ids 4 to 23) or the gap. */
static int32_t any_residue(attn__rng *rng)
{
    uint64_t i = attn__rng_below(rng, 21);
    return i == 20 ? ATTN_RESIDUE_GAP : (int32_t)(4 + i);
}

static bool is_hidden_ever(int32_t id)
{
    return id > ATTN_RESIDUE_UNKNOWN && id <= ATTN_RESIDUE_GAP;
}

int64_t attn_mask_residues(const attn_masking *masking, int64_t n, int32_t *tokens, int32_t *labels)
{
    double share = masking->share > 0 ? masking->share : 0.15;
    int64_t chosen = 0;
    for (int64_t i = 0; i < n; i++) {
        /* Each position has its own range of the generator's counter, so the number of draws for one position does
         * not change the draws of others. */
        attn__rng rng = {.seed = masking->seed, .stream = masking->stream, .counter = (uint64_t)i << 8};
        labels[i] = -1;
        if (!is_hidden_ever(tokens[i]) || attn__rng_uniform(&rng) >= share)
            continue;
        labels[i] = tokens[i];
        chosen++;
        double fate = attn__rng_uniform(&rng);
        if (fate < 0.8)
            tokens[i] = ATTN_RESIDUE_MASK;
        else if (fate < 0.9)
            tokens[i] = any_residue(&rng);
    }
    return chosen;
}
