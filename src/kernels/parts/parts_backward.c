/* SPDX-License-Identifier: MIT
 *
 * parts_backward.c - weights and gradients of scores as tiles; see parts_backward.h.
 */
#include "kernels/parts/parts_backward.h"

#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "simd/exp.h"
#include "kernels/parts/parts_patch.h"

enum { ROWS = PATCH_ROWS, HALVES = PATCH_HALVES, KEYS = PATCH_COLUMNS };
enum { PATCHES = 1 }; /* of a portion */

/* Three parts are cut, one is rounded. */
VF_FN void store_parts(patch x, int parts, places to, vf *odd, bool along)
{
    note_odd(&x, odd); /* before rounding, which may carry a NaN over into zero */
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

/* Where row r and the keys from j on go; r is even, j a multiple of 32. */
VF_FN uint16_t *across_at(const attn__parts_side *side, int64_t r, int64_t j)
{
    return side->data + j / ATTN__PARTS_SIDE * side->block + r / ATTN__PARTS_DEPTH * side->step +
           r % ATTN__PARTS_DEPTH / 2 * side->row;
}

VF_FN uint16_t *along_at(const attn__parts_side *side, int64_t r, int64_t j)
{
    return side->data + r / ATTN__PARTS_SIDE * side->block + j / ATTN__PARTS_DEPTH * side->step +
           r % ATTN__PARTS_SIDE * side->row;
}

/* What stands in row r, or in no row. */
VF_FN vf load(const attn__parts_weights *t, const float *x, int64_t r, int64_t j)
{
    return r < t->rows && j < t->keys ? vf_load(x + r * t->ld + j) : vf_zero();
}

/* P of rows r and r + 1 and of the keys j to j + 31; `whole` if all of these are there. */
VF_FN void weigh_p(const attn__parts_weights *t, int64_t r, int64_t j, int parts, bool fused, bool whole, vf *odd)
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
            if (fused && (whole || (there && at < t->keys))) {
                s = vf_exp2(_mm512_fmsub_ps(s, vf_set1(t->factor), lse));
                vf_store(t->s + (r + i) * t->ld + at, s);
            }
            p.x[i][h] = s;
        }
    }
    uint16_t *at = across_at(&t->p, r, j);
    store_parts(p, parts, (places){{at, at + t->p.block}, {NULL, NULL}, t->p.part, 0}, odd, false);
}

/* dS = P (dP - delta) of the same. */
VF_FN void weigh_ds(const attn__parts_weights *t, int64_t r, int64_t j, int parts, bool fused, bool whole, vf *odd)
{
    patch ds;
    VF_UNROLL
    for (int i = 0; i < ROWS; i++) {
        vf delta = vf_set1(fused && (whole || r + i < t->rows) ? t->delta[r + i] : 0.0f);
        VF_UNROLL
        for (int h = 0; h < HALVES; h++) {
            int64_t at = j + h * VF_LANES, place = (r + i) * t->ld + at;
            vf g = whole ? vf_load(t->dp + place) : load(t, t->dp, r + i, at);
            if (fused)
                g = vf_mul(whole ? vf_load(t->s + place) : load(t, t->s, r + i, at), vf_sub(g, delta));
            ds.x[i][h] = g;
        }
    }
    uint16_t *at = across_at(&t->across, r, j), *along = along_at(&t->along, r, j);
    store_parts(ds, parts,
                (places){{at, at + t->across.block}, {along, along + t->along.row}, t->across.part, t->along.part}, odd,
                true);
}

VF_FN void patch_of(attn__parts_weighing *w, int parts, bool fused, bool gradients, vf *odd)
{
    const attn__parts_weights *t = w->t;
    bool whole = w->r + ROWS <= t->rows && w->j + KEYS <= t->keys;
    if (gradients && whole)
        weigh_ds(t, w->r, w->j, parts, fused, true, odd);
    else if (gradients)
        weigh_ds(t, w->r, w->j, parts, fused, false, odd);
    else if (whole)
        weigh_p(t, w->r, w->j, parts, fused, true, odd);
    else
        weigh_p(t, w->r, w->j, parts, fused, false, odd);
    w->r += ROWS;
    if (w->r < (t->rows + ATTN__PARTS_DEPTH - 1) / ATTN__PARTS_DEPTH * ATTN__PARTS_DEPTH)
        return;
    w->r = 0;
    w->j += KEYS;
}

VF_FN void portion(attn__parts_beside *beside, int parts, bool fused, bool gradients)
{
    attn__parts_weighing *w = (attn__parts_weighing *)beside;
    if (w->j >= w->t->keys)
        return;
    vf odd = vf_load(w->odd);
    for (int i = 0; i < PATCHES && w->j < w->t->keys; i++)
        patch_of(w, parts, fused, gradients, &odd);
    vf_store(w->odd, odd);
}

static void p_of_f32(attn__parts_beside *x) { portion(x, ATTN__PARTS_F32, true, false); }
static void p_of_bf16(attn__parts_beside *x) { portion(x, 1, true, false); }
static void ds_of_f32(attn__parts_beside *x) { portion(x, ATTN__PARTS_F32, true, true); }
static void ds_of_bf16(attn__parts_beside *x) { portion(x, 1, true, true); }
static void split_p_f32(attn__parts_beside *x) { portion(x, ATTN__PARTS_F32, false, false); }
static void split_p_bf16(attn__parts_beside *x) { portion(x, 1, false, false); }
static void split_ds_f32(attn__parts_beside *x) { portion(x, ATTN__PARTS_F32, false, true); }
static void split_ds_bf16(attn__parts_beside *x) { portion(x, 1, false, true); }

void attn__parts_begin_p(attn__parts_weighing *w, const attn__parts_weights *t)
{
    bool f32 = t->parts == ATTN__PARTS_F32;
    *w = (attn__parts_weighing){.t = t};
    if (t->lse)
        w->beside.portion = f32 ? p_of_f32 : p_of_bf16;
    else
        w->beside.portion = f32 ? split_p_f32 : split_p_bf16;
}

void attn__parts_begin_ds(attn__parts_weighing *w, const attn__parts_weights *t)
{
    bool f32 = t->parts == ATTN__PARTS_F32;
    *w = (attn__parts_weighing){.t = t};
    if (t->lse)
        w->beside.portion = f32 ? ds_of_f32 : ds_of_bf16;
    else
        w->beside.portion = f32 ? split_ds_f32 : split_ds_bf16;
}

bool attn__parts_finish(attn__parts_weighing *w)
{
    while (w->j < w->t->keys)
        w->beside.portion(&w->beside);
    vf odd = vf_load(w->odd);
    return _mm512_cmp_ps_mask(odd, odd, _CMP_UNORD_Q) == 0;
}

#include "simd/isa_end.h"
#else
void attn__parts_begin_p(attn__parts_weighing *w, const attn__parts_weights *t)
{
    *w = (attn__parts_weighing){.t = t};
}

void attn__parts_begin_ds(attn__parts_weighing *w, const attn__parts_weights *t)
{
    *w = (attn__parts_weighing){.t = t};
}

bool attn__parts_finish(attn__parts_weighing *w)
{
    (void)w;
    return false;
}
#endif
