/* SPDX-License-Identifier: MIT
 *
 * small_sequence_rows.c - where the rows of a short head lie, and their sums.
 */
#include "attend/solve/small_sequence_plan.h"

#include <string.h>

attn__small_sequence_rows attn__small_sequence_rows_of(const attn__small_sequence_head *h, attn__operand op)
{
    static const size_t places[ATTN__OPERANDS] = {
        [ATTN__OP_Q] = offsetof(attn_arrays, q),       [ATTN__OP_K] = offsetof(attn_arrays, k),
        [ATTN__OP_V] = offsetof(attn_arrays, v),       [ATTN__OP_O] = offsetof(attn_arrays, o),
        [ATTN__OP_DOUT] = offsetof(attn_arrays, dout), [ATTN__OP_DQ] = offsetof(attn_arrays, dq),
        [ATTN__OP_DK] = offsetof(attn_arrays, dk),     [ATTN__OP_DV] = offsetof(attn_arrays, dv)};
    float *base = *(float *const *)(const void *)((const char *)h->arrays + places[op]);
    attn__small_sequence_rows rows = h->plan->of[op];
    rows.at = base + attn__stride(&h->now.at, op);
    rows.next = base + attn__stride(&h->next.at, op);
    return rows;
}

void attn__small_sequence_copy(const attn__small_sequence_head *h, attn__operand op, attn__small_sequence_rows *x)
{
    float *copy = h->m.copy[op];
    h->plan->lanes->copy(x->at, ATTN_F32, x->row_at, NULL, x->rows, x->channels, copy, x->channels);
    x->at = copy;
    x->step = x->channels;
}

static bool is_finite(const float *x, int64_t n)
{
    float check = 0.0f;
    for (int64_t i = 0; i < n; i++)
        check += x[i] * 0.0f;
    return check == check;
}

/* Row i of x, for the pairs that count. */
static void add_row(const attn__small_sequence_sums *t, int64_t i, const uint8_t *alive, uint8_t bit)
{
    for (int64_t j = 0; j < t->out.rows; j++) {
        int64_t pair = i * t->along + j * t->across;
        float weight = t->w[pair] * (t->row_factor ? t->factor * t->row_factor[j] : t->factor);
        for (int64_t c = 0; alive[pair] & bit && c < t->out.channels; c++)
            t->out.at[t->out.row_at[j] + c] += weight * t->x.at[i * t->x.step + c];
    }
}

/* Rows that are finite go the usual way, so that bits are the same whatever stands in those that are not seen. */
void attn__small_sequence_sum_guarded(const attn__small_sequence_head *h, const attn__small_sequence_sums *t,
                                      const uint8_t *alive, uint8_t bit)
{
    attn__small_sequence_sums clean = *t;
    clean.x.at = h->m.clean;
    clean.x.step = t->x.channels;
    for (int64_t i = 0; i < t->x.rows; i++) {
        const float *row = t->x.at + i * t->x.step;
        float *to = h->m.clean + i * clean.x.step;
        size_t bytes = (size_t)t->x.channels * sizeof *row;
        if (is_finite(row, t->x.channels))
            memcpy(to, row, bytes);
        else
            memset(to, 0, bytes);
    }
    h->plan->kernel->sum(&clean);
    for (int64_t i = 0; i < t->x.rows; i++)
        if (!is_finite(t->x.at + i * t->x.step, t->x.channels))
            add_row(t, i, alive, bit);
}
