/* SPDX-License-Identifier: MIT
 * Weights that are dot products divided by the number of keys, as non-local blocks have them: products associate,
 *
 *     O = (Q K^T) V s / N = Q M / N     M = K^T V s     s = scale, N = keys
 *     dQ = dO M^T / N     dM = Q^T dO     dK = V dM^T s / N     dV = K dM s / N
 *
 * so that the work is linear in queries and keys. */
#include "attend/solve/blocked.h"

#include "attend/block/packed_sequences.h"

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

/* m (+)= A^T B for n rows A [n,channels] and B [n,values]. */
static void sum_products(attn__blocked *b, const double *a, const double *rows, int64_t n, bool add, double *m)
{
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    attn__blocked_multiply(b, &(attn__blocked_product){.a = a,
                                                       .lda = channels,
                                                       .b = rows,
                                                       .ldb = values,
                                                       .c = m,
                                                       .ldc = values,
                                                       .m = channels,
                                                       .n = values,
                                                       .k = n,
                                                       .transposed = true,
                                                       .add = add});
}

/* to [n,values] = A m for n rows A [n,channels], or transposed to [n,channels] = A m^T for A [n,values]. */
static void multiply(attn__blocked *b, const double *a, const double *m, bool transposed, int64_t n, double *to)
{
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    int64_t from_width = transposed ? values : channels, to_width = transposed ? channels : values;
    attn__blocked_multiply(b, &(attn__blocked_product){.a = a,
                                                       .lda = from_width,
                                                       .b = m,
                                                       .ldb = values,
                                                       .b_transposed = transposed,
                                                       .c = to,
                                                       .ldc = to_width,
                                                       .m = n,
                                                       .n = to_width,
                                                       .k = from_width});
}

static int64_t size_of(const attn__blocked *b)
{
    return b->canonical->contract.size * b->canonical->value.size;
}

void attn__blocked_linear_keys(attn__blocked *b)
{
    double *m = attn__blocked_at(b, b->plan->at.m);
    sum_products(b, b->k, b->v, b->canonical->key.size, false, m);
    b->plan->kernel->scale(m, size_of(b), b->canonical->problem.scale);
}

void attn__blocked_linear_queries(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__blocked_places *at = &b->plan->at;
    multiply(b, b->q, attn__blocked_at(b, at->m), false, t->queries, attn__blocked_at(b, at->o));
    for (int64_t i = 0; i < t->queries; i++)
        attn__blocked_at(b, at->count)[i] = (double)b->canonical->key.size;
}

void attn__blocked_linear_query_gradients(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__blocked_places *at = &b->plan->at;
    double *dq = attn__blocked_at(b, at->dq);
    multiply(b, b->dout, attn__blocked_at(b, at->m), true, t->queries, dq);
    b->plan->kernel->scale(dq, t->queries * b->canonical->contract.size, 1 / (double)b->canonical->key.size);
    sum_products(b, b->q, b->dout, t->queries, true, attn__blocked_at(b, at->dm));
}

void attn__blocked_linear_key_gradients(attn__blocked *b)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t keys = b->canonical->key.size;
    double *dm = attn__blocked_at(b, at->dm);
    b->plan->kernel->scale(dm, size_of(b), b->canonical->problem.scale / (double)keys);
    multiply(b, b->v, dm, true, keys, attn__blocked_at(b, at->dk));
    multiply(b, b->k, dm, false, keys, attn__blocked_at(b, at->dv));
}
