/* SPDX-License-Identifier: MIT
 *
 * flash_backward_guard.c - the gradients of a tile where something masked is NaN or infinite.
 *
 * A masked or dropped pair has weight 0, but 0 * NaN is NaN: a tile product would carry padding's garbage into
 * the gradients of others.  Here such pairs are left out, one multiply-add at a time; such tiles are rare.
 */
#include "attend/solve/flash_backward.h"

static void add(float *to, int64_t step, float weight, const float *from, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c * step] += weight * from[c];
}

void attn__flash_backward_guarded(const attn__flash_backward_run *run, const attn__softmax_backward_args *t,
                                  int64_t first, int64_t row)
{
    const attn__flash_backward_plan *plan = run->plan;
    const attn__flash_backward_scratch *m = &run->m;
    bool transposed = plan->amx != NULL; /* dK^T and dV^T */
    int64_t step = transposed ? plan->ld_keys : 1;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t j = 0; j < t->keys; j++) {
            bool alive = t->alive[r * t->ld + j] & 1, counts = t->alive[r * t->ld + j] & 2;
            int64_t key = first + j, query = row + r;
            if ((run->want & ATTN__FLASH_BACKWARD_V) && counts)
                add(m->keys.dv + key * (transposed ? 1 : plan->ldv), step, t->s[r * t->ld + j],
                    m->dout + query * plan->ldv, plan->dv);
            if ((run->want & ATTN__FLASH_BACKWARD_K) && alive)
                add(m->keys.dk + key * (transposed ? 1 : plan->ldk), step, t->dp[r * t->ld + j],
                    m->q + query * plan->ldk, plan->d);
            if ((run->want & ATTN__FLASH_BACKWARD_Q) && alive)
                add(run->dq + query * plan->ldk, 1, t->dp[r * t->ld + j], m->keys.k + key * plan->ldk, plan->d);
            attn__flash_backward_tables_pair(run, query, key, counts ? t->s + r * t->ld + j : NULL,
                                             alive && t->dp ? t->dp + r * t->ld + j : NULL);
        }
}
