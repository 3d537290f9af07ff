/* SPDX-License-Identifier: MIT
 * Packs weights as slices, as int8 or as panels. */
#include "gemm/weights.h"

#include "base/bf16.h"
#include "base/integers.h"
#include "base/system.h"
#include "gemm/int8_product.h"
#include "gemm/sliced.h"

#include <string.h>

/* Returns how many rows are packed at once if rows are released after packing or converted to integers. Otherwise all
 * rows are packed at once. */
static int64_t part_of(const attn__weights *w)
{
    return attn__min(w->n, ATTN__GEMM_PART);
}

static attn__gemm_problem problem_of(const attn__weights *w)
{
    return (attn__gemm_problem){.dtype = w->dtype, .n = w->n, .k = w->k};
}

attn__weights attn__weights_for(attn_dtype dtype, attn__isa isa, int64_t n, int64_t k)
{
    bool slices = dtype == ATTN_F32 && attn__sliced_serves(attn__slices_for(isa), n, k);
    return (attn__weights){.dtype = dtype, .slices = slices, .n = n, .k = k};
}

/* Returns the bytes of the panels, rounded up to whole floats, because the scales follow the panels. */
static size_t panels_bytes(const attn__weights *w, attn__isa isa)
{
    attn__gemm_problem problem = problem_of(w);
    return (size_t)attn__round_up((int64_t)attn__gemm_packed_bytes(&problem, isa), sizeof(float));
}

size_t attn__weights_bytes(const attn__weights *w, attn__isa isa)
{
    if (w->slices)
        return attn__sliced_bytes(w->n, w->k);
    return panels_bytes(w, isa) + (w->dtype == ATTN_I32 ? (size_t)w->n * sizeof(float) : 0);
}

size_t attn__weights_workspace(const attn__weights *w)
{
    return w->dtype == ATTN_I32 ? (size_t)(part_of(w) * w->k) : 0;
}

/* Quantizes rows [first, end) to integers in the workspace. Returns the address where row 0 would be in the
 * workspace. */
static const void *quantize_part(attn__weights *w, const attn__gemm_operand *x, int64_t first, int64_t end,
                                 attn__isa isa, int threads, int8_t *workspace)
{
    attn__int8_quantize_rows(isa, threads, (const float *)x->data + first * x->outer, x->outer, end - first, w->k,
                             workspace, w->scales + first);
    return (const void *)((uintptr_t)workspace - (uintptr_t)(first * w->k));
}

static void pack_panels(attn__weights *w, const attn__gemm_operand *x, bool drop, attn__isa isa, int threads,
                        void *workspace)
{
    attn__gemm_problem problem = problem_of(w);
    bool int8 = w->dtype == ATTN_I32;
    int64_t part = drop || int8 ? part_of(w) : w->n;
    int64_t row = x->outer * (int64_t)(w->dtype == ATTN_F64 ? sizeof(double) : sizeof(float));
    problem.b = int8 ? attn__matrix(NULL, w->k, 1) : *x;
    for (int64_t first = 0, end; first < w->n; first = end) {
        end = attn__min(first + part, w->n);
        if (int8)
            problem.b.data = quantize_part(w, x, first, end, isa, threads, workspace);
        attn__gemm_pack_b(&problem, isa, threads, first, end, w->data);
        if (drop)
            attn__system_drop_pages((const char *)x->data + first * row, (size_t)((end - first) * row));
    }
}

void attn__weights_place(attn__weights *w, attn__isa isa, void *data)
{
    w->data = data;
    w->scales = w->dtype == ATTN_I32 ? (float *)(void *)((char *)data + panels_bytes(w, isa)) : NULL;
}

bool attn__weights_pack(attn__weights *w, const attn__gemm_operand *x, bool drop, attn__isa isa, int threads,
                        void *workspace)
{
    if (w->slices)
        return attn__sliced_pack(attn__slices_for(isa), x, w->n, w->k, threads, w->data);
    attn__weights_place(w, isa, w->data);
    pack_panels(w, x, drop, isa, threads, workspace);
    return true;
}

void attn__weights_row(const attn__weights *w, attn__isa isa, int64_t row, void *to)
{
    attn__gemm_problem problem = problem_of(w);
    int64_t k = w->k, size = attn__gemm_packed_size(w->dtype, isa);
    float *wide = to;
    bool is_double = w->dtype == ATTN_F64;
    /* narrow numbers are copied to the end of the row, and then converted from its beginning on */
    char *narrow = is_double ? to : (char *)to + k * ((int64_t)sizeof(float) - size);
    attn__gemm_packed_column(&problem, isa, w->data, row, narrow);
    for (int64_t i = 0; i < k && size < (int64_t)sizeof(float); i++) {
        if (w->dtype == ATTN_I32) {
            wide[i] = (float)((const int8_t *)narrow)[i] * w->scales[row];
        } else {
            uint16_t number;
            memcpy(&number, narrow + i * size, sizeof number);
            wide[i] = attn__from_bf16(number);
        }
    }
}
