/* SPDX-License-Identifier: MIT
 *
 * parts_backward.c - weights and gradients of scores as tiles; see parts_backward.h.
 */
#include "kernels/parts/parts_backward.h"

#if defined(__x86_64__)
#include "simd/vec_avx512.h"
#include "simd/exp.h"

enum { ROWS = 2, HALVES = 2, KEYS = HALVES * VF_LANES };

/* 32 keys of two queries. */
typedef struct patch {
    vf x[ROWS][HALVES];
} patch;

/* So that the upper half is the nearest bf16 number; a number that is too large becomes infinite. */
VF_FN vf rounded(vf x)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)));
}

typedef struct places {
    uint16_t *across[HALVES], *along[ROWS]; /* along NULL: not wanted */
    int64_t across_part, along_part;
} places;

VF_FN void store_parts(patch x, int parts, places to, vf *odd, bool along)
{
    VF_UNROLL
    for (int i = 0; i < ROWS * HALVES; i++) {
        vf *number = &x.x[i / HALVES][i % HALVES];
        *odd = vf_fma(*number, vf_zero(), *odd); /* before rounding, which may carry a NaN over into zero */
        if (parts == 1) {
            *number = rounded(*number);
            *odd = vf_fma(*number, vf_zero(), *odd);
        }
    }
    VF_UNROLL
    for (int part = 0; part < parts; part++) {
        VF_UNROLL
        for (int i = 0; i < ROWS; i++) {
            _mm512_storeu_si512(to.across[i] + part * to.across_part, vf_pair_upper(x.x[0][i], x.x[1][i]));
            if (along)
                _mm512_storeu_si512(to.along[i] + part * to.along_part, vf_pair_upper(x.x[i][0], x.x[i][1]));
        }
        VF_UNROLL
        for (int i = 0; i < ROWS * HALVES; i++)
            x.x[i / HALVES][i % HALVES] = vf_without_upper(x.x[i / HALVES][i % HALVES]);
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

VF_FN vf load(const attn__parts_weights *t, const float *x, int64_t r, int64_t j)
{
    return r < t->rows && j < t->keys ? vf_load(x + r * t->ld + j) : vf_zero();
}

VF_FN void weigh_patch(const attn__parts_weights *t, int64_t r, int64_t j, int parts, bool fused, bool wanted, vf *odd)
{
    patch p, ds;
    VF_UNROLL
    for (int i = 0; i < ROWS; i++) {
        bool there = r + i < t->rows;
        vf lse = vf_set1(fused && there ? t->lse[r + i] : 0.0f);
        vf delta = vf_set1(fused && wanted && there ? t->delta[r + i] : 0.0f);
        VF_UNROLL
        for (int h = 0; h < HALVES; h++) {
            int64_t at = j + h * VF_LANES;
            vf s = load(t, t->s, r + i, at), g = wanted ? load(t, t->dp, r + i, at) : vf_zero();
            if (fused && there && at < t->keys) {
                s = vf_exp2(_mm512_fmsub_ps(s, vf_set1(t->factor), lse));
                g = vf_mul(s, vf_sub(g, delta));
            }
            p.x[i][h] = s;
            ds.x[i][h] = g;
        }
    }
    uint16_t *at = across_at(&t->p, r, j);
    store_parts(p, parts, (places){{at, at + t->p.block}, {NULL, NULL}, t->p.part, 0}, odd, false);
    if (!wanted)
        return;
    at = across_at(&t->across, r, j);
    uint16_t *along = along_at(&t->along, r, j);
    store_parts(ds, parts,
                (places){{at, at + t->across.block}, {along, along + t->along.row}, t->across.part, t->along.part}, odd,
                true);
}

VF_FN bool weigh(const attn__parts_weights *t, int parts, bool fused, bool wanted)
{
    vf odd = vf_zero();
    for (int64_t j = 0; j < t->keys; j += KEYS)
        for (int64_t r = 0; r < (t->rows + 31) / 32 * 32; r += ROWS)
            weigh_patch(t, r, j, parts, fused, wanted, &odd);
    return _mm512_cmp_ps_mask(odd, odd, _CMP_UNORD_Q) == 0;
}

static bool weigh_f32(const attn__parts_weights *t)
{
    if (t->dp)
        return t->lse ? weigh(t, ATTN__PARTS_F32, true, true) : weigh(t, ATTN__PARTS_F32, false, true);
    return t->lse ? weigh(t, ATTN__PARTS_F32, true, false) : weigh(t, ATTN__PARTS_F32, false, false);
}

static bool weigh_bf16(const attn__parts_weights *t)
{
    if (t->dp)
        return t->lse ? weigh(t, 1, true, true) : weigh(t, 1, false, true);
    return t->lse ? weigh(t, 1, true, false) : weigh(t, 1, false, false);
}

bool attn__parts_weigh(const attn__parts_weights *t)
{
    return t->parts == ATTN__PARTS_F32 ? weigh_f32(t) : weigh_bf16(t);
}

#include "simd/isa_end.h"
#else
bool attn__parts_weigh(const attn__parts_weights *t)
{
    (void)t;
    return false;
}
#endif
