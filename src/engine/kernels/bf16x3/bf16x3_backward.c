/* SPDX-License-Identifier: MIT
 *
 * bf16x3_backward.c - weights and gradients of scores as tiles; see bf16x3_backward.h.
 */
#include "kernels/bf16x3/bf16x3_backward.h"

#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "simd/exp.h"
#include "simd/softmax.h"
#include "kernels/bf16x3/bf16x3_patch.h"

enum { ROWS = PATCH_ROWS, HALVES = PATCH_HALVES, KEYS = PATCH_COLUMNS };

/* Stores a patch as tiles: three truncated parts, or one rounded part. */
VF_FN void store_parts(patch x, int parts, places to, vf *odd, bool along)
{
    note_odd(&x, odd); /* checked first, because rounding may turn a NaN into zero */
    if (parts == 1) {
        round_patch(&x);
        note_odd(&x, odd);
    }
    VF_UNROLL
    for (int part = 0; part < parts; part++) {
        store_upper(&x, &to, part, true, along);
        take_upper_away(&x, &x);
    }
}

/* Returns the address of rows r and r + 1 in tiles of B, for keys from j on. r must be even, and j a multiple of 32. */
VF_FN uint16_t *across_at(const attn__bf16x3_side *side, int64_t r, int64_t j)
{
    return side->data + j / ATTN__BF16X3_SIDE * side->block + r / ATTN__BF16X3_DEPTH * side->step +
           r % ATTN__BF16X3_DEPTH / 2 * side->row;
}

VF_FN uint16_t *along_at(const attn__bf16x3_side *side, int64_t r, int64_t j)
{
    return side->data + r / ATTN__BF16X3_SIDE * side->block + j / ATTN__BF16X3_DEPTH * side->step +
           r % ATTN__BF16X3_SIDE * side->row;
}

/* Loads a vector of row r from key j on. Numbers past the last row or key are zero. */
VF_FN vf load(const attn__bf16x3_weights *t, const float *x, int64_t r, int64_t j)
{
    return r < t->rows && j < t->keys ? vf_load(x + r * t->ld + j) : vf_zero();
}

/* Returns the weights P of rows r and r + 1 and keys j to j + 31. They are computed if `fused` is set, otherwise
 * loaded. `whole` means that all of these rows and keys exist. */
VF_FN patch weights_of(const attn__bf16x3_weights *t, int64_t r, int64_t j, bool fused, bool whole)
{
    patch p;
    VF_UNROLL
    for (int i = 0; i < ROWS; i++) {
        bool there = whole || r + i < t->rows;
        vf lse = vf_set1(fused && there ? t->lse[r + i] : 0.0f);
        VF_UNROLL
        for (int h = 0; h < HALVES; h++) {
            int64_t at = j + h * VF_LANES;
            vf s = whole ? vf_load(t->s + (r + i) * t->ld + at) : load(t, t->s, r + i, at);
            if (fused && (whole || (there && at < t->keys)))
                s = vf_exp2(vf_log_weight(vf_mul(s, vf_set1(t->factor)), lse));
            if (fused && !whole && at < t->keys && t->keys - at < VF_LANES)
                s = vf_select(vm_first((int)(t->keys - at)), s, vf_zero());
            p.x[i][h] = s;
        }
    }
    return p;
}

/* Returns dS for the rows and keys of p. It is P (dP - delta) if `fused` is set, and is loaded otherwise. */
VF_FN patch gradients_of(const attn__bf16x3_weights *t, const patch *p, int64_t r, int64_t j, bool fused, bool whole)
{
    patch ds;
    VF_UNROLL
    for (int i = 0; i < ROWS; i++) {
        vf delta = vf_set1(fused && (whole || r + i < t->rows) ? t->delta[r + i] : 0.0f);
        VF_UNROLL
        for (int h = 0; h < HALVES; h++) {
            int64_t at = j + h * VF_LANES;
            vf g = whole ? vf_load(t->dp + (r + i) * t->ld + at) : load(t, t->dp, r + i, at);
            ds.x[i][h] = fused ? vf_mul_normal(p->x[i][h], vf_sub(g, delta)) : g;
        }
    }
    return ds;
}

VF_FN void store_p(const attn__bf16x3_weights *t, const patch *p, int64_t r, int64_t j, int parts, vf *odd)
{
    uint16_t *at = across_at(&t->p, r, j);
    store_parts(*p, parts, (places){{at, at + t->p.block}, {NULL, NULL}, t->p.part, 0}, odd, false);
}

VF_FN void store_ds(const attn__bf16x3_weights *t, const patch *ds, int64_t r, int64_t j, int parts, vf *odd)
{
    uint16_t *at = across_at(&t->across, r, j), *along = along_at(&t->along, r, j);
    store_parts(*ds, parts,
                (places){{at, at + t->across.block}, {along, along + t->along.row}, t->across.part, t->along.part}, odd,
                true);
}

/* Stores the weights in t->s, from which the second stage reads them. */
VF_FN void keep_p(const attn__bf16x3_weights *t, const patch *p, int64_t r, int64_t j, bool whole)
{
    VF_UNROLL
    for (int i = 0; i < ROWS * HALVES; i++) {
        int64_t row = r + i / HALVES, at = j + i % HALVES * VF_LANES;
        if (whole || (row < t->rows && at < t->keys))
            vf_store(t->s + row * t->ld + at, p->x[i / HALVES][i % HALVES]);
    }
}

typedef enum stage { WEIGHTS, GRADIENTS, BOTH } stage;

VF_FN void weigh_patch(const attn__bf16x3_weights *t, int64_t r, int64_t j, int parts, bool fused, bool whole,
                       stage which, vf *odd)
{
    patch p = weights_of(t, r, j, fused && which != GRADIENTS, whole);
    if (which != GRADIENTS)
        store_p(t, &p, r, j, parts, odd);
    if (which == WEIGHTS && fused)
        keep_p(t, &p, r, j, whole);
    if (which == WEIGHTS || (which == BOTH && !t->dp))
        return;
    patch ds = gradients_of(t, &p, r, j, fused, whole);
    store_ds(t, &ds, r, j, parts, odd);
}

VF_FN void go_on(attn__bf16x3_softmax_backward *w, int parts, bool fused, stage which, vf *odd)
{
    const attn__bf16x3_weights *t = w->t;
    if (w->r + ROWS <= t->rows && w->j + KEYS <= t->keys)
        weigh_patch(t, w->r, w->j, parts, fused, true, which, odd);
    else
        weigh_patch(t, w->r, w->j, parts, fused, false, which, odd);
    w->r += ROWS;
    if (w->r < (t->rows + ATTN__BF16X3_DEPTH - 1) / ATTN__BF16X3_DEPTH * ATTN__BF16X3_DEPTH)
        return;
    w->r = 0;
    w->j += KEYS;
}

/* Processes one patch. If numbers have three parts, the patch takes about as long as four AMX products. */
VF_FN void portion(attn__interleaved *interleaved, bool fused, stage which)
{
    attn__bf16x3_softmax_backward *w = (attn__bf16x3_softmax_backward *)interleaved;
    if (w->j >= w->t->keys)
        return;
    vf odd = vf_load(w->odd);
    go_on(w, ATTN__BF16X3_F32, fused, which, &odd);
    vf_store(w->odd, odd);
}

static void p_fused(attn__interleaved *x)
{
    portion(x, true, WEIGHTS);
}
static void p_split(attn__interleaved *x)
{
    portion(x, false, WEIGHTS);
}
static void ds_fused(attn__interleaved *x)
{
    portion(x, true, GRADIENTS);
}
static void ds_split(attn__interleaved *x)
{
    portion(x, false, GRADIENTS);
}

void attn__bf16x3_begin_p(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t)
{
    *w = (attn__bf16x3_softmax_backward){.interleaved = {t->lse ? p_fused : p_split}, .t = t};
}

void attn__bf16x3_begin_ds(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t)
{
    *w = (attn__bf16x3_softmax_backward){.interleaved = {t->lse ? ds_fused : ds_split}, .t = t};
}

static bool no_nan(vf x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) == 0;
}

bool attn__bf16x3_finish(attn__bf16x3_softmax_backward *w)
{
    while (w->j < w->t->keys)
        w->interleaved.portion(&w->interleaved);
    return no_nan(vf_load(w->odd));
}

/* Computes weights and gradients of all patches in one stage. `parts` and `fused` are constants after inlining. */
VF_FN bool weigh_all(const attn__bf16x3_weights *t, int parts, bool fused)
{
    attn__bf16x3_softmax_backward w = {.t = t};
    vf odd = vf_zero();
    while (w.j < t->keys)
        go_on(&w, parts, fused, BOTH, &odd);
    return no_nan(odd);
}

bool attn__bf16x3_weigh(const attn__bf16x3_weights *t)
{
    return t->lse ? weigh_all(t, 1, true) : weigh_all(t, 1, false);
}

#include "simd/isa_end.h"
#else
void attn__bf16x3_begin_p(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t)
{
    *w = (attn__bf16x3_softmax_backward){.t = t};
}

void attn__bf16x3_begin_ds(attn__bf16x3_softmax_backward *w, const attn__bf16x3_weights *t)
{
    *w = (attn__bf16x3_softmax_backward){.t = t};
}

bool attn__bf16x3_finish(attn__bf16x3_softmax_backward *w)
{
    (void)w;
    return false;
}

bool attn__bf16x3_weigh(const attn__bf16x3_weights *t)
{
    (void)t;
    return false;
}
#endif
