/* SPDX-License-Identifier: MIT
 * Accumulators of gradients in float64. */
#include "attend/block/gradient_sums.h"

#include "attend/scores/score.h"
#include "attend/problem/extent.h"
#include "attend/block/packed_sequences.h"
#include "base/context.h"

static bool is_wanted(const attn__canonical *canonical, int which)
{
    static const unsigned bits[] = {ATTN_WANT_DQ,    ATTN_WANT_DK, ATTN_WANT_DV,
                                    ATTN_WANT_DBIAS, ATTN_WANT_DW, ATTN_WANT_DW};
    const attn_problem *p = &canonical->problem;
    if (which >= ATTN__SUM_TABLE)
        return (p->flags & ATTN_WANT_DTABLES) && which - ATTN__SUM_TABLE < p->nrelatives;
    return (p->flags & bits[which]) && (which != ATTN__SUM_W2 || attn__score_of(p)->vectors > 1);
}

static const attn__operand operands[] = {ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DBIAS, ATTN__OP_W, ATTN__OP_W};

static attn__extent extent_of(const attn__canonical *canonical, int which)
{
    if (which >= ATTN__SUM_TABLE)
        return attn__table_extent(canonical, which - ATTN__SUM_TABLE);
    return attn__operand_extent(canonical, operands[which]);
}

size_t attn__sums_size(const attn__canonical *canonical)
{
    size_t size = 0;
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!is_wanted(canonical, which))
            continue;
        attn__extent e = extent_of(canonical, which);
        size = attn__size_add(size, attn__extent_size(&e));
    }
    return attn__size_mul(size, sizeof(double));
}

void attn__sums_start(attn__sums *sums, const attn__canonical *canonical, void *memory)
{
    memset(memory, 0, attn__sums_size(canonical));
    attn__sums_address(sums, canonical, memory);
}

void attn__sums_address(attn__sums *sums, const attn__canonical *canonical, void *memory)
{
    double *next = memory;
    memset(sums, 0, sizeof *sums);
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!is_wanted(canonical, which))
            continue;
        attn__extent e = extent_of(canonical, which);
        size_t n = attn__extent_size(&e);
        sums->at[which] = n ? next - e.low : next;
        next += n;
    }
}

static void *array_of(const attn_arrays *a, int which)
{
    void *const arrays[] = {a->dq, a->dk, a->dv, a->dbias, a->dw, a->dw2};
    return which >= ATTN__SUM_TABLE ? a->dtable[which - ATTN__SUM_TABLE] : arrays[which];
}

void attn__sums_store_extent(const double *sums, const attn__extent *e, attn_dtype dtype, void *to, bool add)
{
    int64_t index[ATTN_MAX_DIMS + 1] = {0}, offset = 0;
    if (attn__extent_size(e) == 0)
        return;
    for (;;) {
        attn__store(dtype, to, offset, add ? attn__load(dtype, to, offset) + sums[offset] : sums[offset]);
        int i = e->n - 1;
        for (; i >= 0; i--) {
            offset += e->stride[i];
            if (++index[i] < e->length[i])
                break;
            offset -= e->stride[i] * e->length[i];
            index[i] = 0;
        }
        if (i < 0)
            return;
    }
}

/* Of packed sequences only positions of theirs are written. */
static int64_t packed_start(const attn__canonical *canonical, const attn_arrays *arrays, int which, attn__extent *e)
{
    const attn_packed *packed = &canonical->problem.packed;
    if (!attn__is_packed(canonical) || which >= ATTN__SUM_BIAS)
        return 0;
    const attn__axis *axis =
        which == ATTN__SUM_Q ? &canonical->query.axis[packed->query_dim] : &canonical->key.axis[packed->key_dim];
    const int32_t *offsets = which == ATTN__SUM_Q ? arrays->q_offsets : arrays->k_offsets;
    attn__canonical used = *canonical;
    int64_t sequences = canonical->batch.axis[packed->batch_dim].dim.n;
    used.problem.packed.queries = arrays->q_offsets[sequences] - arrays->q_offsets[0];
    used.problem.packed.keys = arrays->k_offsets[sequences] - arrays->k_offsets[0];
    *e = extent_of(&used, which);
    return offsets[0] * attn__stride(&axis->dim, operands[which]);
}

void attn__sums_store(const attn__sums *sums, const attn__canonical *canonical, const attn_arrays *arrays)
{
    const attn_problem *p = &canonical->problem;
    attn_dtype side = p->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!sums->at[which])
            continue;
        attn__extent e = extent_of(canonical, which);
        attn_dtype dtype = which < ATTN__SUM_BIAS ? p->dtype : side;
        int64_t start = packed_start(canonical, arrays, which, &e);
        attn__sums_store_extent(sums->at[which] + start, &e, dtype,
                                (char *)array_of(arrays, which) + start * (int64_t)attn_dtype_size(dtype),
                                p->accumulate);
    }
}

bool attn__sums_disjoint(const attn__canonical *canonical, int batch_axis)
{
    const attn__axis *axis = &canonical->batch.axis[batch_axis];
    bool private_gradients = true;
    for (int which = 0; which < ATTN__SUMS; which++) {
        if (!is_wanted(canonical, which))
            continue;
        int64_t stride =
            which >= ATTN__SUM_TABLE ? axis->table[which - ATTN__SUM_TABLE] : attn__stride(&axis->dim, operands[which]);
        /* Sequences have tokens of their own. */
        bool apart = stride != 0 || (axis->packed && which < ATTN__SUM_BIAS);
        private_gradients = private_gradients && apart;
    }
    return private_gradients;
}

attn__batch_split attn__batch_split_make(const attn__canonical *canonical)
{
    attn__batch_split split = {.items = 1, .rest = 1};
    for (int i = 0; i < canonical->batch.n; i++) {
        split.apart[i] = attn__sums_disjoint(canonical, i);
        *(split.apart[i] ? &split.items : &split.rest) *= canonical->batch.axis[i].dim.n;
    }
    return split;
}

int64_t attn__batch_split_index(const attn__batch_split *split, const attn__canonical *canonical, int64_t item,
                                int64_t rest)
{
    int64_t linear = 0, scale = 1;
    for (int i = canonical->batch.n - 1; i >= 0; i--) {
        int64_t n = canonical->batch.axis[i].dim.n, *from = split->apart[i] ? &item : &rest;
        linear += *from % n * scale;
        *from /= n;
        scale *= n;
    }
    return linear;
}
