/* SPDX-License-Identifier: MIT
 *
 * parts_weigh.h - one step of the running softmax that leaves its weights as tiles; included by parts.c within its
 * region of the instruction set.  kernels/lanes has the same step for weights that stay f32.
 */
enum { AT_ONCE = 2 }; /* pairs of rows whose exponentials' chains fill the units together */

/* As in kernels/lanes: the reference follows the maximum only when that has grown by so many powers of two. */
#define SLACK 8.0f

/* The largest of a column of vectors.  A NaN may get lost here, but not in the exponential that follows. */
PARTS_FN __m512 largest(const float *s, int64_t rows, int64_t width)
{
    __m512 a = _mm512_set1_ps(-INFINITY), b = a, c = a, d = a;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4, s += 4 * width) {
        a = _mm512_max_ps(_mm512_loadu_ps(s), a);
        b = _mm512_max_ps(_mm512_loadu_ps(s + width), b);
        c = _mm512_max_ps(_mm512_loadu_ps(s + 2 * width), c);
        d = _mm512_max_ps(_mm512_loadu_ps(s + 3 * width), d);
    }
    for (; r < rows; r++, s += width)
        a = _mm512_max_ps(_mm512_loadu_ps(s), a);
    return _mm512_max_ps(_mm512_max_ps(a, b), _mm512_max_ps(c, d));
}

/* Weights are cut to their parts, not rounded: 8 bits and 8 bits and 8 bits hold as much, for half the work. */
PARTS_FN void cut_pairs(two x, uint16_t *out, int64_t next)
{
    const __mmask32 odd = 0xaaaaaaaau;
    __m512i high = _mm512_set1_epi32((int32_t)0xffff0000u);
    VF_UNROLL
    for (int i = 0; i < ATTN__PARTS_F32; i++) {
        __m512i first = _mm512_castps_si512(x.first), second = _mm512_castps_si512(x.second);
        _mm512_storeu_si512(out + i * next, _mm512_mask_blend_epi16(odd, _mm512_srli_epi32(first, 16), second));
        x.first = _mm512_sub_ps(x.first, _mm512_castsi512_ps(_mm512_and_si512(first, high)));
        x.second = _mm512_sub_ps(x.second, _mm512_castsi512_ps(_mm512_and_si512(second, high)));
    }
}

PARTS_FN void round_pairs(two x, uint16_t *out)
{
    __m512i part = (__m512i)_mm512_cvtne2ps_pbh(x.second, x.first);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(interleave(), part));
}

PARTS_FN void store_pairs(two p, int parts, uint16_t *out, int64_t next)
{
    if (parts == ATTN__PARTS_F32)
        cut_pairs(p, out, next);
    else
        round_pairs(p, out);
}

/* 2^(factor * s - m); a factor of one is left out. */
PARTS_FN __m512 weight(const float *s, __m512 factor, __m512 m, bool scaled)
{
    __m512 x = _mm512_loadu_ps(s);
    return vf_exp2(scaled ? _mm512_fmsub_ps(x, factor, m) : _mm512_sub_ps(x, m));
}

/* All weights of 16 queries; returns their sums. */
PARTS_FN __m512 weigh_column(const attn__parts_softmax *t, const float *s, uint16_t *out, __m512 m, int parts,
                             bool scaled)
{
    __m512 factor = _mm512_set1_ps(t->factor), none = _mm512_setzero_ps();
    two sum[AT_ONCE] = {{none, none}, {none, none}};
    int64_t pairs = t->rows / 2, whole = (t->rows + ATTN__PARTS_DEPTH - 1) / ATTN__PARTS_DEPTH * ATTN__PARTS_SIDE;
    for (int64_t r = 0; r < whole; r += AT_ONCE) {
        uint16_t *row = out + r / ATTN__PARTS_SIDE * t->to.step + r % ATTN__PARTS_SIDE * t->to.row;
        VF_UNROLL
        for (int i = 0; i < AT_ONCE; i++) {
            two p = {none, none};
            if (r + i < pairs) {
                p.first = weight(s + (r + i) * 2 * t->width, factor, m, scaled);
                p.second = weight(s + ((r + i) * 2 + 1) * t->width, factor, m, scaled);
            } else if ((r + i) * 2 < t->rows) {
                p.first = weight(s + (r + i) * 2 * t->width, factor, m, scaled);
            }
            sum[i].first = _mm512_add_ps(sum[i].first, p.first);
            sum[i].second = _mm512_add_ps(sum[i].second, p.second);
            store_pairs(p, parts, row + i * t->to.row, t->to.part);
        }
    }
    return _mm512_add_ps(_mm512_add_ps(sum[0].first, sum[0].second), _mm512_add_ps(sum[1].first, sum[1].second));
}

PARTS_FN bool softmax_column(const attn__parts_softmax *t, int64_t w, int parts, bool scaled)
{
    __m512 none = _mm512_set1_ps(-INFINITY), old = _mm512_loadu_ps(t->m + w);
    __m512 top = _mm512_mul_ps(largest(t->s + w, t->rows, t->width), _mm512_set1_ps(t->factor));
    vm higher = _mm512_cmp_ps_mask(_mm512_add_ps(old, _mm512_set1_ps(SLACK)), top, _CMP_LT_OQ);
    __m512 m = _mm512_mask_blend_ps(higher, old, top);
    vm moved = (vm)~_mm512_cmp_ps_mask(m, old, _CMP_EQ_OQ);
    /* Lanes that have seen no key yet have no reference: any finite one gives 2^-inf = 0. */
    __m512 reference = _mm512_maskz_mov_ps((vm)~_mm512_cmp_ps_mask(m, none, _CMP_EQ_OQ), m);
    __m512 shrink = _mm512_mask_blend_ps(moved, _mm512_set1_ps(1.0f), vf_exp2(_mm512_sub_ps(old, reference)));
    __m512 sum = weigh_column(t, t->s + w, t->to.data + w / ATTN__PARTS_SIDE * t->to.block, reference, parts, scaled);
    _mm512_storeu_ps(t->l + w, _mm512_fmadd_ps(_mm512_loadu_ps(t->l + w), shrink, sum));
    _mm512_storeu_ps(t->m + w, m);
    _mm512_storeu_ps(t->shrink + w, shrink);
    return moved != 0;
}

static bool softmax(const attn__parts_softmax *t)
{
    bool moved = false;
    for (int64_t w = 0; w < t->width; w += ATTN__PARTS_SIDE) {
        if (t->parts == ATTN__PARTS_F32)
            moved = softmax_column(t, w, ATTN__PARTS_F32, false) || moved;
        else
            moved = softmax_column(t, w, 1, true) || moved;
    }
    return moved;
}
