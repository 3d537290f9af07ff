/* SPDX-License-Identifier: MIT */
#include "models/lineage.h"

#include "base/context.h"

#include <string.h>

attn_status attn__lineage_begin(attn__lineage *l, attn_context *context, int64_t n, int64_t room)
{
    size_t bytes = attn__size_mul(attn__size_mul((size_t)n, (size_t)room), sizeof *l->rows);
    *l = (attn__lineage){.n = n, .room = room};
    l->rows = attn__alloc(context, bytes);
    l->old = attn__alloc(context, bytes);
    l->shared = attn__alloc(context, attn__size_mul((size_t)n, sizeof *l->shared));
    return l->rows && l->old && l->shared ? ATTN_OK : ATTN_ERROR_MEMORY;
}

void attn__lineage_end(attn__lineage *l, attn_context *context)
{
    attn__free(context, l->rows);
    attn__free(context, l->old);
    attn__free(context, l->shared);
    *l = (attn__lineage){0};
}

void attn__lineage_step(attn__lineage *l, int64_t t)
{
    for (int64_t i = 0; i < l->n; i++)
        l->rows[i * l->room + t] = (int32_t)i;
}

/* Returns the number of first tokens that two hypotheses of t tokens have in common. If two hypotheses share a
 * token, they also share all tokens before it. The search therefore begins at the end. */
static int64_t in_common(const int32_t *a, const int32_t *b, int64_t t)
{
    while (t > 0 && a[t - 1] != b[t - 1])
        t--;
    return t;
}

void attn__lineage_reorder(attn__lineage *l, const int64_t *rows, int64_t t)
{
    int32_t *old = l->rows;
    l->rows = l->old;
    l->old = old;
    for (int64_t i = 0; i < l->n; i++) {
        const int32_t *from = old + rows[i] * l->room;
        l->shared[i] = in_common(old + i * l->room, from, t);
        memcpy(l->rows + i * l->room, from, (size_t)t * sizeof *from);
    }
}

void attn__lineage_select(attn__lineage *l, const int64_t *rows, int64_t n, int64_t t)
{
    for (int64_t i = 0; i < n; i++)
        memmove(l->rows + i * l->room, l->rows + rows[i] * l->room, (size_t)t * sizeof *l->rows);
    l->n = n;
}
