/* SPDX-License-Identifier: MIT
 * Weights that are dot products divided by the number of keys, as non-local blocks have them: products associate,
 *
 *     O = (Q K^T) V s / N = Q M / N     M = K^T V s     s = scale, N = keys
 *     dQ = dO M^T / N     dM = Q^T dO     dK = V dM^T s / N     dV = K dM s / N
 *
 * so that the work is linear in queries and keys. */
#include "attend/blocked/blocked.h"

#include "attend/canonical/packed_sequences.h"

bool attn__blocked_is_linear(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    bool hides = canonical->has_mask || canonical->has_lens || canonical->has_blocks || p->nbands || p->nwindows;
    bool changes = canonical->has_bias || canonical->has_dropout || p->nrelatives || p->softcap != 0;
    double queries = (double)canonical->query.size, keys = (double)canonical->key.size;
    double contract = (double)canonical->contract.size, values = (double)canonical->value.size;
    return p->score == ATTN_SCORE_DOT && p->normalization == ATTN_NORMALIZATION_MEAN && !hides && !changes &&
           !attn__is_packed(canonical) && (queries + keys) * contract * values < queries * keys * (contract + values);
}

void attn__blocked_linear_keys(attn__blocked *b)
{
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    double *m = attn__blocked_at(b, b->plan->at.m);
    attn__blocked_multiply(b, &(attn__blocked_product){.a = b->k,
                                                       .lda = channels,
                                                       .b = b->v,
                                                       .ldb = values,
                                                       .c = m,
                                                       .ldc = values,
                                                       .m = channels,
                                                       .n = values,
                                                       .k = b->canonical->key.size,
                                                       .transposed = true});
    b->plan->kernel->scale(m, channels * values, b->canonical->problem.scale);
}

void attn__blocked_linear_queries(attn__blocked *b, const attn__blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    attn__blocked_multiply(b, &(attn__blocked_product){.a = b->q,
                                                       .lda = channels,
                                                       .b = attn__blocked_at(b, b->plan->at.m),
                                                       .ldb = values,
                                                       .c = attn__blocked_at(b, b->plan->at.o),
                                                       .ldc = values,
                                                       .m = t->queries,
                                                       .n = values,
                                                       .k = channels});
    for (int64_t i = 0; i < t->queries; i++)
        attn__blocked_at(b, b->plan->at.count)[i] = (double)b->canonical->key.size;
}

void attn__blocked_linear_query_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    double *dq = attn__blocked_at(b, b->plan->at.dq);
    attn__blocked_multiply(b, &(attn__blocked_product){.a = b->dout,
                                                       .lda = values,
                                                       .b = attn__blocked_at(b, b->plan->at.m),
                                                       .ldb = values,
                                                       .b_transposed = true,
                                                       .c = dq,
                                                       .ldc = channels,
                                                       .m = t->queries,
                                                       .n = channels,
                                                       .k = values});
    b->plan->kernel->scale(dq, t->queries * channels, 1 / (double)b->canonical->key.size);
    attn__blocked_multiply(b, &(attn__blocked_product){.a = b->q,
                                                       .lda = channels,
                                                       .b = b->dout,
                                                       .ldb = values,
                                                       .c = attn__blocked_at(b, b->plan->at.dm),
                                                       .ldc = values,
                                                       .m = channels,
                                                       .n = values,
                                                       .k = t->queries,
                                                       .transposed = true,
                                                       .add = true});
}

void attn__blocked_linear_key_gradients(attn__blocked *b)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size, keys = b->canonical->key.size;
    double *dm = attn__blocked_at(b, at->dm);
    b->plan->kernel->scale(dm, channels * values, b->canonical->problem.scale / (double)keys);
    attn__blocked_product p = {.b = dm, .ldb = values, .m = keys};
    p.a = b->v;
    p.lda = p.k = values;
    p.b_transposed = true;
    p.c = attn__blocked_at(b, at->dk);
    p.ldc = p.n = channels;
    attn__blocked_multiply(b, &p);
    p.a = b->k;
    p.lda = p.k = channels;
    p.b_transposed = false;
    p.c = attn__blocked_at(b, at->dv);
    p.ldc = p.n = values;
    attn__blocked_multiply(b, &p);
}
