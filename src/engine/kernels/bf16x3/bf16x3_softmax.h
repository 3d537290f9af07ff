/* SPDX-License-Identifier: MIT
 *
 * bf16x3_softmax.h - one step of the running softmax, which stores its weights as tiles; included by bf16x3.c within
 * its region of the instruction set.  kernels/online_softmax has the same step for weights that stay f32.
 */
enum { AT_ONCE = 2 }; /* pairs of rows that are computed at once, so that exponentials fill the vector units */

/* The reference is raised to the maximum only if the maximum is more than SLACK above it. Scores are in base 2. */
#define SLACK 8.0f

/* Returns the maximum of each lane over the rows. It may ignore a NaN, but the exponential of the NaN is NaN. */
BF16X3_FN __m512 largest(const float *s, int64_t rows, int64_t width)
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

/* Stores weights as three truncated parts. Truncated parts of 8 + 8 + 8 bits are as exact as rounded parts, and take
 * half the work. */
BF16X3_FN void cut_pairs(two x, uint16_t *out, int64_t next)
{
    VF_UNROLL
    for (int i = 0; i < ATTN__BF16X3_F32; i++) {
        _mm512_storeu_si512(out + i * next, vf_pair_upper(x.first, x.second));
        x = (two){vf_without_upper(x.first), vf_without_upper(x.second)};
    }
}

BF16X3_FN void round_pairs(two x, uint16_t *out)
{
    __m512i part = (__m512i)_mm512_cvtne2ps_pbh(x.second, x.first);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(vi_order_of_pairs(), part));
}

BF16X3_FN void store_pairs(two p, int parts, uint16_t *out, int64_t next)
{
    if (parts == ATTN__BF16X3_F32)
        cut_pairs(p, out, next);
    else
        round_pairs(p, out);
}

/* Returns 2^(factor * s - m). The product is rounded first, because the reference m was rounded in the same way.
 * Otherwise the difference could exceed the range of the exponential if the reference is about 1e9. */
BF16X3_FN __m512 weight(const float *s, __m512 factor, __m512 m)
{
    return vf_exp2(_mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(s), factor), m));
}

/* Returns the address in the tiles of rows r and r + 1. */
BF16X3_FN uint16_t *row_of_pairs(const attn__bf16x3_side *to, uint16_t *out, int64_t r)
{
    uint64_t at = (uint64_t)r;
    return out + (int64_t)(at / ATTN__BF16X3_DEPTH) * to->step + (int64_t)(at % ATTN__BF16X3_DEPTH / 2) * to->row;
}

/* Progress of a step of the softmax. The next row is r, in the column of 16 lanes from lane w on. */
typedef struct weighing {
    attn__interleaved interleaved;
    const attn__bf16x3_softmax *t; /* NULL: there are no weights to compute */
    attn__tile_hook hook;
    int turn;
    int64_t w, r;
    __m512 m, factor; /* m and factor of the column; m is finite */
    two sum[AT_ONCE];
} weighing;

/* Returns m, or 0 for lanes without a key. The weights of such lanes are 2^-inf = 0 with any finite reference. */
BF16X3_FN __m512 reference_of(__m512 m)
{
    return _mm512_maskz_mov_ps((vm)~_mm512_cmp_ps_mask(m, _mm512_set1_ps(-INFINITY), _CMP_EQ_OQ), m);
}

BF16X3_FN void begin_column(weighing *x, int64_t w)
{
    __m512 none = _mm512_setzero_ps();
    x->w = w;
    x->r = 0;
    if (w < x->t->width) {
        x->m = reference_of(_mm512_loadu_ps(x->t->m + w));
        x->factor = _mm512_set1_ps(x->t->factor);
    }
    for (int i = 0; i < AT_ONCE; i++)
        x->sum[i] = (two){none, none};
}

BF16X3_FN void end_column(weighing *x)
{
    float *l = x->t->l + x->w;
    __m512 shrink = _mm512_loadu_ps(x->t->shrink + x->w);
    __m512 sum = _mm512_add_ps(_mm512_add_ps(x->sum[0].first, x->sum[0].second),
                               _mm512_add_ps(x->sum[1].first, x->sum[1].second));
    _mm512_storeu_ps(l, _mm512_fmadd_ps(_mm512_loadu_ps(l), shrink, sum));
    begin_column(x, x->w + ATTN__BF16X3_SIDE);
}

/* Computes and stores the weights of rows r to r + 3. */
BF16X3_FN void weigh_rows(weighing *x, const float *s, uint16_t *out, int parts)
{
    const attn__bf16x3_softmax *t = x->t;
    two p[AT_ONCE];
    VF_UNROLL
    for (int i = 0; i < AT_ONCE; i++, s += 2 * t->width) {
        p[i] = (two){weight(s, x->factor, x->m), weight(s + t->width, x->factor, x->m)};
        x->sum[i].first = _mm512_add_ps(x->sum[i].first, p[i].first);
        x->sum[i].second = _mm512_add_ps(x->sum[i].second, p[i].second);
    }
    VF_UNROLL
    for (int i = 0; i < AT_ONCE; i++)
        store_pairs(p[i], parts, out + i * t->to.row, t->to.part);
}

/* Computes and stores the weights of the last two rows. A missing row becomes zeros. */
BF16X3_FN void weigh_pair(weighing *x, const float *s, uint16_t *out, int parts)
{
    const attn__bf16x3_softmax *t = x->t;
    __m512 none = _mm512_setzero_ps();
    two p = {x->r < t->rows ? weight(s, x->factor, x->m) : none,
             x->r + 1 < t->rows ? weight(s + t->width, x->factor, x->m) : none};
    x->sum[0].first = _mm512_add_ps(x->sum[0].first, p.first);
    x->sum[0].second = _mm512_add_ps(x->sum[0].second, p.second);
    store_pairs(p, parts, out, t->to.part);
}

BF16X3_FN int64_t rows_of_tiles(const attn__bf16x3_softmax *t)
{
    return (t->rows + ATTN__BF16X3_DEPTH - 1) / ATTN__BF16X3_DEPTH * ATTN__BF16X3_DEPTH;
}

/* Computes a portion of the weights in three parts. Weights of one part are not interleaved, because their products are
 * too short. */
BF16X3_FN void weigh_some(weighing *x)
{
    const attn__bf16x3_softmax *t = x->t;
    const float *s = t->s + x->r * t->width + x->w;
    uint16_t *out = row_of_pairs(&t->to, t->to.data + x->w / ATTN__BF16X3_SIDE * t->to.block, x->r);
    bool many = x->r + 2 * AT_ONCE <= t->rows;
    if (many)
        weigh_rows(x, s, out, ATTN__BF16X3_F32);
    else
        weigh_pair(x, s, out, ATTN__BF16X3_F32);
    x->r += many ? 2 * AT_ONCE : 2;
    if (x->r >= rows_of_tiles(t))
        end_column(x);
}

/* Runs a portion of vector work, which takes about as long as four AMX products. Runs the hook in every third portion,
 * and after the last weight in every portion. The function is not inlined, so that the code between products stays
 * small. */
static void weigh_portion(attn__interleaved *interleaved)
{
    weighing *x = (weighing *)(void *)interleaved;
    x->turn = x->turn + 1 == ATTN__BF16X3_HOOK_EVERY || !x->t || x->w >= x->t->width ? 0 : x->turn + 1;
    if (x->turn == 0)
        attn__tile_hook_run(x->hook);
    else
        weigh_some(x);
}

/* Runs the hook in every third portion. It computes no weights, because products of one part are too short for that. */
static void hook_portion(attn__interleaved *interleaved)
{
    weighing *x = (weighing *)(void *)interleaved;
    if (x->turn++ % ATTN__BF16X3_HOOK_EVERY == 0)
        attn__tile_hook_run(x->hook);
}

/* Runs a portion of `x`, which may be NULL. */
BF16X3_FN void go_on(attn__interleaved *x)
{
    if (x)
        x->portion(x);
}

BF16X3_FN weighing weighing_of(const attn__bf16x3_softmax *t, attn__tile_hook hook, int parts)
{
    weighing x = {.interleaved = {parts != ATTN__BF16X3_F32 ? hook_portion : weigh_portion}, .t = t, .hook = hook};
    if (t)
        begin_column(&x, 0);
    return x;
}

/* Computes all remaining weights column by column. `x` is a copy, so that it stays in registers. */
BF16X3_FN void weigh_rest(weighing x, int parts)
{
    const attn__bf16x3_softmax *t = x.t;
    while (x.w < t->width) {
        uint16_t *column = t->to.data + x.w / ATTN__BF16X3_SIDE * t->to.block;
        for (; x.r + 2 * AT_ONCE <= t->rows; x.r += 2 * AT_ONCE)
            weigh_rows(&x, t->s + x.r * t->width + x.w, row_of_pairs(&t->to, column, x.r), parts);
        for (; x.r < rows_of_tiles(t); x.r += 2)
            weigh_pair(&x, t->s + x.r * t->width + x.w, row_of_pairs(&t->to, column, x.r), parts);
        end_column(&x);
    }
}

static void finish_weighing(const weighing *x)
{
    if (x->t->parts == ATTN__BF16X3_F32)
        weigh_rest(*x, ATTN__BF16X3_F32);
    else
        weigh_rest(*x, 1);
}

BF16X3_FN bool refer_column(const attn__bf16x3_softmax *t, int64_t w)
{
    __m512 old = _mm512_loadu_ps(t->m + w);
    __m512 top = _mm512_mul_ps(largest(t->s + w, t->rows, t->width), _mm512_set1_ps(t->factor));
    vm higher = _mm512_cmp_ps_mask(_mm512_add_ps(old, _mm512_set1_ps(SLACK)), top, _CMP_LT_OQ);
    __m512 m = _mm512_mask_blend_ps(higher, old, top);
    vm moved = (vm)~_mm512_cmp_ps_mask(m, old, _CMP_EQ_OQ);
    __m512 shrink = _mm512_mask_blend_ps(moved, _mm512_set1_ps(1.0f), vf_exp2(_mm512_sub_ps(old, reference_of(m))));
    _mm512_storeu_ps(t->m + w, m);
    _mm512_storeu_ps(t->shrink + w, shrink);
    return moved != 0;
}

static bool refer(const attn__bf16x3_softmax *t)
{
    bool moved = false;
    for (int64_t w = 0; w < t->width; w += ATTN__BF16X3_SIDE)
        moved = refer_column(t, w) || moved;
    return moved;
}
