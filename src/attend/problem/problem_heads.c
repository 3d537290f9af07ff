/* SPDX-License-Identifier: MIT
 * Multi-head attention as a table of dimensions. */
#include "attn/attn.h"

#include "base/integers.h"

static attn_dim *add_dim(attn_problem *p, attn_role role, int64_t n)
{
    attn_dim *dim = &p->dims[p->ndims++];
    *dim = (attn_dim){.role = role, .n = n};
    return dim;
}

/* Elements between neighbours of one operand: batch, head, token. */
typedef struct steps {
    int64_t batch, head, row;
} steps;

static steps steps_of(const attn_heads *h, int64_t heads, int64_t tokens, int64_t dim, int64_t row)
{
    if (h->layout == ATTN_LAYOUT_BHTD)
        return (steps){heads * tokens * dim, tokens * dim, dim};
    row = row ? row : heads * dim;
    return (steps){tokens * row, dim, row};
}

static bool is_sound(const attn_heads *h)
{
    const int64_t most = INT64_C(1) << 40;
    const int64_t sizes[] = {h->batch,    h->heads,     h->queries,        h->keys,       h->dim,
                             h->kv_heads, h->dim_value, h->packed_queries, h->packed_keys};
    double product = 1;
    for (int i = 0; i < 9; i++) {
        if (sizes[i] < 0 || sizes[i] > most)
            return false;
        product *= i < 5 && sizes[i] ? (double)sizes[i] : 1;
    }
    return h->lens_per >= 0 && h->lens_per <= 2 && product < 0x1p100 &&
           (unsigned)h->causal <= ATTN_CAUSAL_BOTTOM_RIGHT && (unsigned)h->layout <= ATTN_LAYOUT_BHTD;
}

static void add_rows(attn_problem *p, const attn_heads *h, steps q, steps o, int query)
{
    attn_dim *dim = &p->dims[query];
    *dim = (attn_dim){.role = ATTN_ROLE_QUERY, .n = h->queries, .q = q.row, .o = o.row, .lse = 1, .weights = h->keys};
    dim->lens = h->lens_per == 2 ? 1 : 0;
}

static void add_causal(attn_problem *p, const attn_heads *h, int query)
{
    if (h->causal == ATTN_CAUSAL_NONE)
        return;
    int64_t hi = h->causal == ATTN_CAUSAL_TOP_LEFT || h->packed ? 0 : h->keys - h->queries;
    p->bands[p->nbands++] = (attn_band){query, query + 1, INT64_MIN, hi};
}

static void fill(attn_problem *p, const attn_heads *h)
{
    int64_t kv_heads = h->kv_heads ? h->kv_heads : h->heads, group = kv_heads ? h->heads / kv_heads : 1;
    int64_t dv = h->dim_value ? h->dim_value : h->dim, rows = h->packed ? h->packed_queries : h->queries;
    int64_t keys = h->packed ? h->packed_keys : h->keys;
    steps q = steps_of(h, h->heads, rows, h->dim, h->q_row), o = steps_of(h, h->heads, rows, dv, h->o_row);
    steps k = steps_of(h, kv_heads, keys, h->dim, h->k_row), v = steps_of(h, kv_heads, keys, dv, h->v_row);

    attn_dim *dim = add_dim(p, ATTN_ROLE_BATCH, h->batch);
    if (!h->packed) {
        dim->q = q.batch, dim->k = k.batch, dim->v = v.batch, dim->o = o.batch;
        dim->lse = h->heads * rows;
    }
    dim->weights = h->heads * h->queries * h->keys;
    dim->lens = h->lens_per == 2 ? h->queries : h->lens_per;
    dim->mask = h->key_padding ? h->keys : 0;

    dim = add_dim(p, ATTN_ROLE_BATCH, kv_heads);
    dim->q = group * q.head, dim->k = k.head, dim->v = v.head, dim->o = group * o.head;
    dim->lse = group * rows, dim->weights = group * h->queries * h->keys;
    if (group != 1) {
        dim = add_dim(p, ATTN_ROLE_BATCH, group);
        dim->q = q.head, dim->o = o.head, dim->lse = rows, dim->weights = h->queries * h->keys;
    }
    int query = p->ndims++;
    add_rows(p, h, q, o, query);
    dim = add_dim(p, ATTN_ROLE_KEY, h->keys);
    dim->k = k.row, dim->v = v.row, dim->weights = 1, dim->mask = h->key_padding ? 1 : 0;
    dim = add_dim(p, ATTN_ROLE_CONTRACT, h->dim);
    dim->q = dim->k = 1;
    dim = add_dim(p, ATTN_ROLE_VALUE, dv);
    dim->v = dim->o = 1;
    p->lens_dim = query + 1;
    add_causal(p, h, query);
    if (h->packed) {
        p->flags |= ATTN_WITH_PACKED;
        p->packed = (attn_packed){.query_dim = query, .key_dim = query + 1, .queries = rows, .keys = keys};
        p->packed.align_ends = h->causal == ATTN_CAUSAL_BOTTOM_RIGHT;
    }
}

attn_status attn_problem_heads(attn_problem *problem, const attn_heads *heads)
{
    *problem = (attn_problem){0};
    if (!is_sound(heads) || !attn__all_zero(heads->reserved, sizeof heads->reserved))
        return ATTN_ERROR_ARGUMENT;
    if (heads->kv_heads && heads->heads % heads->kv_heads)
        return ATTN_ERROR_SHAPE;
    fill(problem, heads);
    if (heads->lens_per)
        problem->flags |= ATTN_WITH_LENS;
    if (heads->key_padding)
        problem->flags |= ATTN_WITH_MASK;
    return ATTN_OK;
}
