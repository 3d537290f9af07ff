/* SPDX-License-Identifier: MIT
 *
 * The float64 evaluation. It computes one row at a time, which is one query of one batch, with all keys in memory.
 * x_err is a bound on the change of the quantity x by rounding.
 */
#include "support/attend_ref.h"

#include "support/attend_ref_walk.h"

#include "attend/scores/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

attend_ref_units attend_ref_units_of(attn_dtype dtype)
{
    attend_ref_units f32 = {2e-6, 8 * 0x1p-24};
    if (dtype == ATTN_BF16)
        return (attend_ref_units){f32.weight + 0x1p-8, f32.score};
    if (dtype == ATTN_F64)
        return (attend_ref_units){f32.weight * 0x1p-29, f32.score * 0x1p-29};
    return f32;
}

typedef struct key {
    walk_state state;
    walk at;
    double score, size; /* size: sum of the absolute values of the terms of `score` */
    double p, p_err;
    double keep;
    double grad, grad_err;
    double cap_slope, cap_err; /* slope of the softcap and its error bound; without a softcap, 1 and 0 */
    bool beaten;               /* true if top_k masks the key, because k other keys precede it */
    bool near;                 /* true if rounding may decide that the key is a hardmax's largest one */
    bool kink;                 /* true if the score is so close to a kink that rounding decides the slope */
    double *k, *v, *v_size;
    /* derivatives of the unscaled score with respect to q, k, w and w2 */
    double *slope_q, *slope_k, *slope_w, *slope_w2;
    /* sums of absolute values of the terms of slope_q, slope_k, slope_w and slope_w2 */
    double *size_q, *size_k, *size_w, *size_w2;
} key;

/* The arrays with channels, of which walk_channels is needed for every row and key. */
typedef enum channel_array { OF_Q, OF_K, OF_V, OF_O, OF_W, OF_DQ, OF_DK, OF_DV, OF_DOUT, CHANNEL_ARRAYS } channel_array;

static const struct {
    size_t field;
    int roles;
    bool positions;
} channel_arrays[CHANNEL_ARRAYS] = {
    [OF_Q] = {offsetof(attn_dim, q), ROLE_C, false},       [OF_K] = {offsetof(attn_dim, k), ROLE_C, true},
    [OF_V] = {offsetof(attn_dim, v), ROLE_V, true},        [OF_O] = {offsetof(attn_dim, o), ROLE_V, false},
    [OF_W] = {offsetof(attn_dim, w), ROLE_C, false},       [OF_DQ] = {offsetof(attn_dim, dq), ROLE_C, false},
    [OF_DK] = {offsetof(attn_dim, dk), ROLE_C, true},      [OF_DV] = {offsetof(attn_dim, dv), ROLE_V, true},
    [OF_DOUT] = {offsetof(attn_dim, dout), ROLE_V, false},
};

typedef struct row {
    walk w;
    const attn_problem *p;
    const attn_arrays *a;
    const attend_ref_arrays *value, *bound;
    attend_ref_units u;
    int64_t keys, nc, nv;
    int64_t *channels[CHANNEL_ARRAYS], *table[ATTN_MAX_RELATIVE];
    double scale, width;
    key *key;
    double *q, *w1, *w2, *dout, *o, *o_err, *pool;
    /* norm: divisor of the weights, which is the sum of exp(score - max), the number of unmasked keys, or the sum of
     * scores, depending on the normalization */
    double norm, lse;
    double norm_err; /* relative error of the normalizer */
    double sink;     /* -infinity: there is no sink */
    bool empty, only_fill;
} row;

/* ---------------------------------------------------------------------------------------------- scores */

/* Returns the offset of channel 0 in an array, for the other indices of `at`. */
static int64_t channel_base(const walk *at, channel_array of)
{
    walk w = *at;
    (void)walk_start(&w, channel_arrays[of].roles);
    return walk_offset(&w, channel_arrays[of].field, channel_arrays[of].positions);
}

static void load_channels(const row *r, const walk *at, double *to, channel_array of, attn_dtype dtype,
                          const void *from)
{
    int64_t n = channel_arrays[of].roles == ROLE_C ? r->nc : r->nv, base = from && n > 0 ? channel_base(at, of) : 0;
    const int64_t *channels = r->channels[of];
    for (int64_t c = 0; c < n && from; c++)
        to[c] = walk_load(dtype, from, base + channels[c]);
}

static double score_of_distance(const row *r, key *k, double square)
{
    double d = sqrt(square), near = 64 * r->u.score * (d + r->width);
    if (r->p->score == ATTN_SCORE_GAUSSIAN)
        return -square / (2 * r->width * r->width);
    k->kink = fabs(d - r->width) < near || d < near;
    if (r->p->score == ATTN_SCORE_BOXCAR) {
        if (fabs(d - r->width) < near)
            k->size = 1 / r->u.score; /* Rounding may change the score from 0 to 1 or back. */
        return d < r->width ? 1 : 0;
    }
    return d < r->width ? 1 - d / r->width : 0;
}

static double plain_score(const row *r, key *k)
{
    double sum = 0, square = 0, size = 0;
    attn_score kind = r->p->score;
    for (int64_t c = 0; c < r->nc && kind == ATTN_SCORE_DOT; c++)
        sum += r->q[c] * k->k[c], size += fabs(r->q[c] * k->k[c]);
    k->size = size;
    if (kind == ATTN_SCORE_DOT)
        return sum;
    for (int64_t c = 0; c < r->nc; c++) {
        double q = r->q[c], x = k->k[c], t = 0;
        if (kind == ATTN_SCORE_ADDITIVE) {
            t = tanh(q + x);
            sum += r->w1[c] * t;
            size += fabs(r->w1[c]) * (fabs(t) + fabs(q) + fabs(x));
        } else if (kind == ATTN_SCORE_CONCAT) {
            sum += r->w1[c] * q + r->w2[c] * x;
            size += fabs(r->w1[c] * q) + fabs(r->w2[c] * x);
        } else {
            square += (q - x) * (q - x);
            size += (fabs(q) + fabs(x)) * (fabs(q) + fabs(x));
        }
    }
    k->size = size;
    if (kind == ATTN_SCORE_ADDITIVE)
        return sum;
    if (kind == ATTN_SCORE_CONCAT) {
        k->kink = fabs(sum) < 8 * r->u.score * size;
        return sum < 0 ? 0 : sum;
    }
    k->size = kind == ATTN_SCORE_GAUSSIAN ? size / (2 * r->width * r->width) : 1 + sqrt(size) / r->width;
    if (kind == ATTN_SCORE_CONSTANT) {
        k->size = 1;
        return 1;
    }
    return score_of_distance(r, k, square);
}

static void slopes(const row *r, key *k, double score)
{
    double square = 0;
    for (int64_t c = 0; c < r->nc && r->p->score == ATTN_SCORE_DOT; c++) {
        k->slope_q[c] = k->k[c], k->slope_k[c] = r->q[c];
        k->size_q[c] = fabs(k->k[c]), k->size_k[c] = fabs(r->q[c]);
    }
    if (r->p->score == ATTN_SCORE_DOT)
        return;
    for (int64_t c = 0; c < r->nc; c++)
        square += (r->q[c] - k->k[c]) * (r->q[c] - k->k[c]);
    double d = sqrt(square);
    for (int64_t c = 0; c < r->nc; c++) {
        double q = r->q[c], x = k->k[c], t;
        switch (r->p->score) {
        case ATTN_SCORE_ADDITIVE:
            t = tanh(q + x);
            k->slope_q[c] = k->slope_k[c] = r->w1[c] * (1 - t * t);
            k->size_q[c] = k->size_k[c] = fabs(r->w1[c]) * (1 + fabs(q) + fabs(x));
            k->slope_w[c] = t;
            k->size_w[c] = fabs(t) + fabs(q) + fabs(x);
            break;
        case ATTN_SCORE_CONCAT:
            if (score > 0 || k->kink) {
                k->size_q[c] = fabs(r->w1[c]), k->size_k[c] = fabs(r->w2[c]);
                k->size_w[c] = fabs(q), k->size_w2[c] = fabs(x);
            }
            if (score > 0) {
                k->slope_q[c] = r->w1[c], k->slope_k[c] = r->w2[c];
                k->slope_w[c] = q, k->slope_w2[c] = x;
            }
            break;
        case ATTN_SCORE_GAUSSIAN:
            k->slope_q[c] = -(q - x) / (r->width * r->width);
            k->size_q[c] = (fabs(q) + fabs(x)) / (r->width * r->width);
            break;
        case ATTN_SCORE_TRIANGULAR:
            if (d > 0 && d < r->width)
                k->slope_q[c] = -(q - x) / (d * r->width);
            if (d < r->width || k->kink)
                k->size_q[c] = 1 / r->width + (d > 0 ? (fabs(q) + fabs(x)) / (d * r->width) : 0);
            break;
        default:
            break;
        }
        if (r->p->score == ATTN_SCORE_GAUSSIAN || r->p->score == ATTN_SCORE_TRIANGULAR) {
            k->slope_k[c] = -k->slope_q[c];
            k->size_k[c] = k->size_q[c];
        }
    }
}

/* Evaluates a score that has no formula in this file by the library's own value and slopes, which test_attend_scores
 * compares with differences. So masks, tables, normalization and sums are checked for a new score, too. */
static double other_score(const row *r, key *k)
{
    const attn__score_kind *kind = attn__score_of(r->p);
    attn__score_rows rows = {r->nc, r->q, k->k, r->w1, r->w2, r->width};
    double score = kind->value(&rows);
    if (kind->gradient)
        kind->gradient(&rows, 1, &(attn__score_slopes){k->slope_q, k->slope_k, k->slope_w, k->slope_w2});
    k->size = 1 + fabs(score);
    for (int64_t c = 0; c < r->nc; c++) {
        k->size += fabs(k->slope_q[c] * r->q[c]) + fabs(k->slope_k[c] * k->k[c]);
        k->size_q[c] = 1 + fabs(k->slope_q[c]), k->size_k[c] = 1 + fabs(k->slope_k[c]);
        k->size_w[c] = 1 + fabs(k->slope_w[c]), k->size_w2[c] = 1 + fabs(k->slope_w2[c]);
    }
    return score;
}

static double own_score(const row *r, key *k)
{
    if (r->p->score > ATTN_SCORE_TRIANGULAR)
        return other_score(r, k);
    double score = plain_score(r, k);
    slopes(r, k, score);
    return score;
}

static double score_tables(row *r, key *k)
{
    double sum = 0;
    for (int t = 0; t < r->p->nrelatives; t++) {
        attn_relative_kind kind = r->p->relatives[t].kind;
        int64_t base = walk_table_row(&k->at, t);
        for (int64_t c = 0; c < r->nc && kind != ATTN_RELATIVE_VALUE; c++) {
            if (r->table[t][c] == WALK_NO_CHANNEL)
                continue;
            double x = walk_load(walk_side(r->p), r->a->table[t], base + r->table[t][c]);
            double with = kind == ATTN_RELATIVE_QUERY ? r->q[c] : k->k[c];
            sum += with * x;
            k->size += fabs(with * x);
            (kind == ATTN_RELATIVE_QUERY ? k->slope_q : k->slope_k)[c] += x;
            (kind == ATTN_RELATIVE_QUERY ? k->size_q : k->size_k)[c] += fabs(x);
        }
    }
    return sum;
}

static void value_tables(row *r, key *k)
{
    for (int t = 0; t < r->p->nrelatives; t++) {
        int64_t base = walk_table_row(&k->at, t);
        for (int64_t c = 0; c < r->nv && r->p->relatives[t].kind == ATTN_RELATIVE_VALUE; c++) {
            if (r->table[t][c] == WALK_NO_CHANNEL)
                continue;
            double x = walk_load(walk_side(r->p), r->a->table[t], base + r->table[t][c]);
            k->v[c] += x;
            k->v_size[c] += fabs(x);
        }
    }
}

static void clear_key(row *r, key *k)
{
    double *const contract[] = {k->k,      k->slope_q, k->slope_k, k->slope_w, k->slope_w2,
                                k->size_q, k->size_k,  k->size_w,  k->size_w2};
    for (int i = 0; i < 9; i++)
        memset(contract[i], 0, (size_t)r->nc * sizeof(double));
    memset(k->v, 0, (size_t)r->nv * sizeof(double));
    memset(k->v_size, 0, (size_t)r->nv * sizeof(double));
    k->p = k->p_err = k->keep = k->grad = k->grad_err = k->size = k->cap_slope = k->cap_err = 0;
    k->score = (double)-INFINITY;
    k->kink = false;
}

/* Applies the softcap. The error of its slope is the error of the score times the derivative of the slope, which is
 * at most 0.77 / cap, plus a few roundings of 1. */
static void cap_score(const row *r, key *k)
{
    double cap = r->p->softcap;
    k->cap_slope = 1, k->cap_err = 0;
    if (cap == 0)
        return;
    double t = tanh(k->score / cap);
    k->cap_slope = 1 - t * t;
    k->cap_err = r->u.score * (1 + 0.77 / cap * (k->size + fabs(k->score)));
    k->score = cap * t;
}

static void score_key(row *r, key *k)
{
    if (k->state == WALK_MASKED) {
        k->score = r->p->mask_fill;
        return;
    }
    if (k->at.inside)
        load_channels(r, &k->at, k->k, OF_K, walk_keys(r->p), r->a->k);
    double score = own_score(r, k) + score_tables(r, k);
    k->score = r->scale * score;
    k->size *= fabs(r->scale);
    cap_score(r, k);
    if (r->p->flags & ATTN_WITH_BIAS) {
        double bias = walk_load(walk_side(r->p), r->a->bias, walk_bias_offset(&k->at, r->a, offsetof(attn_dim, bias)));
        k->score += bias;
        k->size += isinf(bias) ? 0 : fabs(bias);
    }
}

static void load_key(row *r, key *k)
{
    clear_key(r, k);
    k->at = r->w;
    k->state = walk_place(&k->at, r->a);
    if (k->state == WALK_ABSENT)
        return;
    score_key(r, k);
    if (k->score == (double)-INFINITY)
        k->state = WALK_ABSENT;
    k->keep = walk_keep(&k->at, r->a->seed_offset);
}

/* ---------------------------------------------------------------------------------------- normalization */

static double scores_wrong_by(const row *r, const key *k)
{
    return k->state == WALK_MASKED || k->state == WALK_ABSENT ? 0 : r->u.score * (k->size + fabs(k->score));
}

/* Reports whether a weight or a gradient of a score may become 0 because it is subnormal. In f32 this may happen to
 * numbers up to 2^-110, because rounding can make them subnormal (docs/numerics.md). In f64 such numbers do not
 * become 0. */
static bool is_subnormal(const row *r, double x, double err)
{
    return r->p->dtype != ATTN_F64 && x < 0x1p-110 && x - err < 0x1p-126;
}

static bool is_hardmax(const row *r)
{
    return r->p->normalization == ATTN_NORMALIZATION_HARDMAX;
}

/* Sets the weights of a hardmax. If rounding may decide which key is the largest, each of these keys may have the
 * weight 1, and a sum with this weight is rounded. */
static void choose_one(row *r, double max)
{
    int64_t n = 0;
    for (int64_t j = 0; j < r->keys; j++)
        n += r->key[j].state != WALK_ABSENT;
    r->norm = 1, r->lse = max, r->norm_err = r->u.weight;
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        k->p = k->state == WALK_ABSENT || k->near ? 0 : 1;
        k->p_err = k->state == WALK_ABSENT || n == 1 ? 0 : 1 + r->u.weight;
    }
}

static void softmax(row *r, double max)
{
    double spread = 0;
    for (int64_t j = 0; j < r->keys; j++)
        if (r->key[j].state != WALK_ABSENT)
            r->norm += exp(r->key[j].score - max);
    r->norm += exp(r->sink - max);
    r->lse = max + log(r->norm);
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        k->p = k->state == WALK_ABSENT ? 0 : exp(k->score - max) / r->norm;
        spread += k->p * scores_wrong_by(r, k);
    }
    r->norm_err = r->u.weight + spread;
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        k->p_err = k->p * (r->u.weight + expm1(fmin(scores_wrong_by(r, k) + spread, 50)));
        if (is_subnormal(r, k->p, k->p_err))
            k->p_err = fmax(k->p_err, k->p);
    }
}

/* Applies top_k and hardmax, which mask a key if k other keys precede it. */
static void keep_largest(row *r)
{
    int64_t k = is_hardmax(r) ? 1 : r->p->top_k ? r->p->top_k : r->keys;
    for (int64_t j = 0; j < r->keys; j++) {
        const key *of = &r->key[j];
        int64_t before = 0;
        for (int64_t i = 0; i < r->keys && k < r->keys && of->state == WALK_PRESENT; i++)
            before += r->key[i].state == WALK_PRESENT &&
                      (r->key[i].score > of->score || (r->key[i].score == of->score && i < j));
        r->key[j].beaten = before >= k;
    }
    double best = (double)-INFINITY;
    for (int64_t j = 0; j < r->keys && is_hardmax(r); j++)
        if (r->key[j].state == WALK_PRESENT && !r->key[j].beaten)
            best = r->key[j].score - scores_wrong_by(r, &r->key[j]);
    for (int64_t j = 0; j < r->keys; j++) {
        const key *of = &r->key[j];
        r->key[j].near =
            is_hardmax(r) && of->beaten && r->p->dtype != ATTN_F64 && of->score + scores_wrong_by(r, of) >= best;
    }
    for (int64_t j = 0; j < r->keys; j++)
        if (r->key[j].beaten && !r->key[j].near) {
            r->key[j].state = r->p->mask_fill != 0 ? WALK_MASKED : WALK_ABSENT;
            r->key[j].score = r->p->mask_fill != 0 ? r->p->mask_fill : (double)-INFINITY;
        }
}

static void divide(row *r, double norm)
{
    double sum_err = 0;
    r->norm = norm;
    r->lse = norm > 0 ? log(norm) : (double)-INFINITY;
    r->empty = norm == 0;
    if (r->empty)
        return;
    for (int64_t j = 0; j < r->keys; j++)
        if (r->p->normalization == ATTN_NORMALIZATION_SUM && r->key[j].state != WALK_ABSENT)
            sum_err += scores_wrong_by(r, &r->key[j]) / norm;
    r->norm_err = r->u.weight + sum_err;
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        k->p = k->state == WALK_ABSENT ? 0 : k->score / norm;
        k->p_err = k->state == WALK_ABSENT ? 0 : scores_wrong_by(r, k) / norm + fabs(k->p) * r->norm_err;
    }
}

static double sigmoid_bias(const row *r)
{
    double n = (double)r->keys;
    if (r->p->own_sigmoid_bias)
        return r->p->sigmoid_bias;
    if (r->p->flags & ATTN_WITH_PACKED) {
        const int32_t *offsets = r->a->k_offsets + r->w.at[r->p->packed.batch_dim];
        n = n / (double)r->p->dims[r->p->packed.key_dim].n * (double)(offsets[1] - offsets[0]);
    }
    return -log(n);
}

static void sigmoid(row *r)
{
    double b = sigmoid_bias(r);
    r->norm = 1, r->lse = 0;
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        if (k->state == WALK_ABSENT)
            continue;
        k->p = 1 / (1 + exp(-(k->score + b)));
        double x_err = scores_wrong_by(r, k) + r->u.score * fabs(b);
        k->p_err = k->p * (r->u.weight + expm1(fmin(x_err, 50)));
        if (is_subnormal(r, k->p, k->p_err))
            k->p_err = fmax(k->p_err, k->p);
    }
}

static void normalize(row *r)
{
    double max = (double)-INFINITY, sum = 0;
    int64_t n = 0;
    r->only_fill = true;
    for (int64_t j = 0; j < r->keys; j++) {
        const key *k = &r->key[j];
        if (k->state == WALK_ABSENT)
            continue;
        n++;
        max = k->score > max || isnan(k->score) ? k->score : max;
        sum += k->score;
        r->only_fill = r->only_fill && k->state == WALK_MASKED;
    }
    r->norm = 0;
    r->norm_err = 0;
    max = r->sink > max ? r->sink : max;
    r->empty = n == 0 && r->sink == (double)-INFINITY;
    r->lse = (double)-INFINITY;
    if (r->empty)
        return;
    if (is_hardmax(r) && !isnan(max))
        choose_one(r, max);
    else if (r->p->normalization == ATTN_NORMALIZATION_SOFTMAX || is_hardmax(r))
        softmax(r, max);
    else if (r->p->normalization == ATTN_NORMALIZATION_SIGMOID)
        sigmoid(r);
    else
        divide(r, r->p->normalization == ATTN_NORMALIZATION_MEAN   ? (double)n
                  : r->p->normalization == ATTN_NORMALIZATION_NONE ? 1
                                                                   : sum);
}

/* --------------------------------------------------------------------------------------------- outputs */

static void add(double *value, double *bound, int64_t at, double x, double err)
{
    value[at] += x;
    bound[at] += err;
}

/* Reports whether the key has a term in the output and in the gradients of v and of value tables. A visible key that is
 * not dropped has a term even if its weight is 0, so that its NaN reaches the output. */
static bool has_value(const key *k)
{
    return k->keep != 0 && (k->state == WALK_PRESENT || (k->state == WALK_MASKED && k->p != 0));
}

static void load_values(row *r)
{
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        if (!has_value(k))
            continue;
        if (k->at.inside)
            load_channels(r, &k->at, k->v, OF_V, walk_keys(r->p), r->a->v);
        for (int64_t c = 0; c < r->nv; c++)
            k->v_size[c] = fabs(k->v[c]);
        value_tables(r, k);
    }
}

static void output(row *r)
{
    memset(r->o, 0, (size_t)r->nv * sizeof *r->o);
    memset(r->o_err, 0, (size_t)r->nv * sizeof *r->o_err);
    for (int64_t j = 0; j < r->keys && !r->empty; j++) {
        const key *k = &r->key[j];
        for (int64_t c = 0; c < r->nv; c++) {
            r->o[c] += k->p * k->keep * k->v[c];
            r->o_err[c] += k->keep * k->v_size[c] * (k->p_err + fabs(k->p) * r->u.weight);
        }
    }
    int64_t base = r->value->o && r->nv > 0 ? channel_base(&r->w, OF_O) : 0;
    for (int64_t c = 0; c < r->nv && r->value->o; c++) {
        r->value->o[base + r->channels[OF_O][c]] = r->o[c];
        r->bound->o[base + r->channels[OF_O][c]] = r->o_err[c];
    }
    if (r->value->lse) {
        double size = 0;
        for (int64_t j = 0; j < r->keys; j++)
            size = fmax(size, r->key[j].state == WALK_ABSENT ? 0 : scores_wrong_by(r, &r->key[j]));
        r->value->lse[OFFSET(&r->w, lse)] = r->lse;
        r->bound->lse[OFFSET(&r->w, lse)] = size + r->norm_err + r->u.score * fabs(r->lse);
    }
}

/* Returns the relative error of a weight that comes from rounding the log-sum-exp to f32. It is 0 for a row of fills
 * only, because the scores are then equal and exact. */
static double lse_err(const row *r)
{
    return r->only_fill || r->empty ? 0 : r->u.score * fabs(r->lse);
}

static void write_weights_at(row *r, const int64_t ordinal[ATTN_MAX_PICKS])
{
    int64_t shift = 0;
    for (int i = 0; i < r->p->npicks; i++) {
        int dim = r->p->picks[i].dim;
        if (r->p->picks[i].index[ordinal[i]] != r->w.at[dim])
            return;
        shift += (ordinal[i] - r->w.at[dim]) * r->p->dims[dim].weights;
    }
    for (int64_t j = 0; j < r->keys; j++) {
        const key *k = &r->key[j];
        double keep = r->p->weights_dropped ? k->keep : 1;
        int64_t at = OFFSET(&k->at, weights) + shift;
        r->value->weights[at] = r->empty ? 0 : k->p * keep;
        /* The dropout factor, and its product with the weight, are rounded to the storage type. */
        double rounding = r->p->weights_dropped ? r->u.score / 4 : 0;
        r->bound->weights[at] = r->empty ? 0 : keep * (k->p_err + fabs(k->p) * (lse_err(r) + rounding));
    }
}

static void write_weights(row *r)
{
    int64_t ordinal[ATTN_MAX_PICKS] = {0};
    for (int i = 0; i < r->p->npicks; i++)
        if (r->p->picks[i].n == 0)
            return;
    for (;;) {
        write_weights_at(r, ordinal);
        int i = 0;
        while (i < r->p->npicks && ++ordinal[i] == r->p->picks[i].n)
            ordinal[i++] = 0;
        if (i >= r->p->npicks)
            return;
    }
}

/* ------------------------------------------------------------------------------------------- gradients */

static void sink_gradient(row *r, double delta, double delta_err, double size)
{
    double p = exp(r->sink - r->lse), p_err = p * (r->norm_err + lse_err(r) + r->u.weight);
    if (r->value->dsinks)
        add(r->value->dsinks, r->bound->dsinks, OFFSET(&r->w, sinks), -p * delta,
            p_err * size + p * (delta_err + r->u.weight * fabs(delta)));
}

static void score_gradients(row *r)
{
    double delta = 0, delta_err = 0, size = 0;
    if (r->p->flags & ATTN_WITH_DLSE) {
        double dlse = walk_load(walk_side(r->p), r->a->dlse, OFFSET(&r->w, lse));
        delta = -dlse, size = fabs(dlse);
    }
    for (int64_t c = 0; c < r->nv; c++) {
        delta += r->o[c] * r->dout[c];
        delta_err += (r->o_err[c] + fabs(r->o[c]) * r->u.weight) * fabs(r->dout[c]);
    }
    for (int64_t j = 0; j < r->keys; j++)
        for (int64_t c = 0; c < r->nv; c++)
            size += fabs(r->key[j].p) * r->key[j].keep * r->key[j].v_size[c] * fabs(r->dout[c]);
    delta_err += size * r->u.weight;
    sink_gradient(r, delta, delta_err, size);
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        double by_p = 0, by_p_size = 0, p_err = k->p_err + fabs(k->p) * lse_err(r);
        if (k->state == WALK_ABSENT)
            continue;
        for (int64_t c = 0; c < r->nv && has_value(k); c++) {
            by_p += k->keep * k->v[c] * r->dout[c];
            by_p_size += k->keep * k->v_size[c] * fabs(r->dout[c]);
        }
        double norm_err = (r->norm_err + lse_err(r)) / r->norm;
        if (r->p->normalization == ATTN_NORMALIZATION_SOFTMAX) {
            k->grad = k->p * (by_p - delta);
            k->grad_err = p_err * (by_p_size + size) + k->p * (r->u.weight * by_p_size + delta_err);
        } else if (is_hardmax(r)) {
            k->grad = k->grad_err = 0;
        } else if (r->p->normalization == ATTN_NORMALIZATION_SIGMOID) {
            k->grad = k->p * (1 - k->p) * by_p;
            k->grad_err = 2 * k->p_err * by_p_size + k->p * r->u.weight * by_p_size;
        } else if (r->p->normalization == ATTN_NORMALIZATION_SUM) {
            k->grad = (by_p - delta) / r->norm;
            k->grad_err = norm_err * (by_p_size + size) + (r->u.weight * by_p_size + delta_err) / r->norm;
        } else {
            k->grad = by_p / r->norm;
            k->grad_err = norm_err * by_p_size + r->u.weight * by_p_size / r->norm;
        }
        k->grad_err += fabs(k->grad) * r->u.weight;
    }
}

/* Reports whether the gradient of a score may be flushed to zero, before or after it is multiplied by the scale.
 * Numbers slightly above 2^-126, up to 1.125 times 2^-126, may be flushed too. */
static bool may_be_flushed(const row *r, const key *k)
{
    double factor = fmin(1, fabs(r->scale * k->cap_slope));
    return is_subnormal(r, 1 / 1.125 * factor * fabs(k->grad), 1 / 1.125 * factor * k->grad_err);
}

static void add_slopes(row *r, key *k, double *value, double *bound, channel_array of, const double *slope,
                       const double *size)
{
    double grad = k->grad * r->scale * k->cap_slope;
    double grad_err = (k->grad_err * k->cap_slope + fabs(k->grad) * k->cap_err) * fabs(r->scale);
    if (!value || r->nc == 0)
        return;
    int64_t base = channel_base(&k->at, of);
    bool uncertain = k->kink || may_be_flushed(r, k);
    for (int64_t c = 0; c < r->nc; c++) {
        double err = grad_err * size[c] + fabs(grad) * size[c] * r->u.weight;
        if (uncertain)
            err += fabs(grad) * size[c];
        add(value, bound, base + r->channels[of][c], grad * slope[c], err);
    }
}

static void add_table_gradients(row *r, key *k)
{
    double p = k->p * k->keep, p_err = k->keep * (k->p_err + fabs(k->p) * lse_err(r));
    for (int t = 0; t < r->p->nrelatives; t++) {
        attn_relative_kind kind = r->p->relatives[t].kind;
        bool by_value = kind == ATTN_RELATIVE_VALUE;
        double g = by_value ? p : k->grad * r->scale * k->cap_slope;
        double err = by_value ? p_err : (k->grad_err * k->cap_slope + fabs(k->grad) * k->cap_err) * fabs(r->scale);
        if (!r->value->dtable[t] || !(by_value ? has_value(k) : k->state == WALK_PRESENT))
            continue;
        int64_t base = walk_table_row(&k->at, t);
        for (int64_t c = 0; c < (by_value ? r->nv : r->nc); c++) {
            double x = by_value ? r->dout[c] : kind == ATTN_RELATIVE_QUERY ? r->q[c] : k->k[c];
            if (r->table[t][c] != WALK_NO_CHANNEL)
                add(r->value->dtable[t], r->bound->dtable[t], base + r->table[t][c], g * x,
                    fabs(x) * (err + fabs(g) * r->u.weight));
        }
    }
}

static void add_value_gradient(row *r, key *k)
{
    if (!r->value->dv || !k->at.inside || !has_value(k) || r->nv == 0)
        return;
    int64_t base = channel_base(&k->at, OF_DV);
    double lse = lse_err(r);
    for (int64_t c = 0; c < r->nv; c++) {
        double err = k->keep * fabs(r->dout[c]) * (k->p_err + fabs(k->p) * (lse + r->u.weight));
        add(r->value->dv, r->bound->dv, base + r->channels[OF_DV][c], k->p * k->keep * r->dout[c], err);
    }
}

static void gradients(row *r)
{
    load_channels(r, &r->w, r->dout, OF_DOUT, r->p->dtype, r->a->dout);
    score_gradients(r);
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        if (k->state == WALK_ABSENT)
            continue;
        add_value_gradient(r, k);
        add_table_gradients(r, k);
        if (k->state == WALK_MASKED)
            continue;
        if (r->value->dbias)
            add(r->value->dbias, r->bound->dbias, walk_bias_offset(&k->at, r->a, offsetof(attn_dim, dbias)), k->grad,
                k->grad_err);
        add_slopes(r, k, r->value->dq, r->bound->dq, OF_DQ, k->slope_q, k->size_q);
        if (k->at.inside)
            add_slopes(r, k, r->value->dk, r->bound->dk, OF_DK, k->slope_k, k->size_k);
        add_slopes(r, k, r->value->dw, r->bound->dw, OF_W, k->slope_w, k->size_w);
        add_slopes(r, k, r->value->dw2, r->bound->dw2, OF_W, k->slope_w2, k->size_w2);
    }
}

/* ----------------------------------------------------------------------------------------------- rows */

static double *take(double **pool, int64_t n)
{
    double *taken = *pool;
    *pool += n;
    return taken;
}

static void allocate(row *r)
{
    r->keys = walk_count(r->p, ROLE_K);
    r->nc = walk_count(r->p, ROLE_C);
    r->nv = walk_count(r->p, ROLE_V);
    r->key = calloc((size_t)r->keys + 1, sizeof *r->key);
    r->pool = calloc((size_t)((r->keys + 1) * (9 * r->nc + 2 * r->nv) + 3 * r->nc + 3 * r->nv + 1), sizeof(double));
    double *pool = r->pool;
    for (int i = 0; i < CHANNEL_ARRAYS; i++)
        r->channels[i] = walk_channels(r->p, channel_arrays[i].field, channel_arrays[i].roles);
    for (int t = 0; t < r->p->nrelatives; t++)
        r->table[t] = walk_table_channels(r->p, t);
    for (int64_t j = 0; j < r->keys; j++) {
        key *k = &r->key[j];
        double **const contract[] = {&k->k,      &k->slope_q, &k->slope_k, &k->slope_w, &k->slope_w2,
                                     &k->size_q, &k->size_k,  &k->size_w,  &k->size_w2};
        for (int i = 0; i < 9; i++)
            *contract[i] = take(&pool, r->nc);
        k->v = take(&pool, r->nv);
        k->v_size = take(&pool, r->nv);
    }
    r->q = take(&pool, r->nc), r->w1 = take(&pool, r->nc), r->w2 = take(&pool, r->nc);
    r->dout = take(&pool, r->nv), r->o = take(&pool, r->nv), r->o_err = take(&pool, r->nv);
}

static void run_row(row *r, bool backward)
{
    int64_t j = 0;
    load_channels(r, &r->w, r->q, OF_Q, r->p->dtype, r->a->q);
    load_channels(r, &r->w, r->w1, OF_W, walk_side(r->p), r->a->w);
    load_channels(r, &r->w, r->w2, OF_W, walk_side(r->p), r->a->w2);
    r->sink = (double)-INFINITY;
    if (r->p->flags & ATTN_WITH_SINKS)
        r->sink = walk_load(walk_side(r->p), r->a->sinks, OFFSET(&r->w, sinks));
    walk keep = r->w;
    if (walk_start(&r->w, ROLE_K))
        do
            load_key(r, &r->key[j++]);
        while (walk_next(&r->w, ROLE_K));
    r->w = keep;
    keep_largest(r);
    normalize(r);
    if (!r->empty)
        load_values(r);
    output(r);
    if (r->value->weights)
        write_weights(r);
    if (backward && !r->empty)
        gradients(r);
}

/* Writes the results of a row past the end of a packed sequence, whose weights are 0. */
static void absent_row(row *r)
{
    walk keep = r->w;
    int64_t j = 0;
    r->empty = true;
    if (walk_start(&r->w, ROLE_K))
        do {
            clear_key(r, &r->key[j]);
            r->key[j].state = WALK_ABSENT;
            r->key[j++].at = r->w;
        } while (walk_next(&r->w, ROLE_K));
    r->w = keep;
    write_weights(r);
}

/* Clears all elements of a gradient that have an index, because the library writes all of them. */
static void clear_gradient(const attn_problem *p, const attn_arrays *a, double *value, double *bound, size_t field,
                           bool positions, int roles)
{
    walk w = {.p = p};
    if (!value)
        return;
    bool rows = walk_is_token(field, ATTN_ROLE_QUERY), keys = walk_is_token(field, ATTN_ROLE_KEY);
    const int32_t *offsets = rows ? a->q_offsets : a->k_offsets;
    /* For this loop, windowed dims have the length of the axis instead of the number of taps, and broadcast dims
     * have length 1. */
    attn_problem moving = *p;
    for (int d = 0; d < p->ndims; d++) {
        int64_t stride;
        memcpy(&stride, (const char *)&p->dims[d] + field, sizeof stride);
        for (int i = 0; positions && i < p->nwindows; i++)
            if (p->windows[i].key_dim == d)
                moving.dims[d].n = p->windows[i].size;
        if (stride == 0)
            moving.dims[d].n = 1;
        if ((p->flags & ATTN_WITH_PACKED) && (rows || keys) && d == (rows ? p->packed.query_dim : p->packed.key_dim)) {
            int64_t start = offsets[0] * stride;
            moving.dims[d].n = offsets[p->dims[p->packed.batch_dim].n] - offsets[0];
            if (stride == 0 && moving.dims[d].n > 1)
                moving.dims[d].n = 1;
            value += start, bound += start;
        }
    }
    w.p = &moving;
    if (walk_start(&w, roles))
        do
            value[walk_offset(&w, field, false)] = bound[walk_offset(&w, field, false)] = 0;
        while (walk_next(&w, roles));
}

static void clear_table(const attn_problem *p, double *value, double *bound, int t)
{
    const attn_relative *table = &p->relatives[t];
    int roles = ROLE_B | (table->kind == ATTN_RELATIVE_VALUE ? ROLE_V : ROLE_C);
    attn_problem flat = *p;
    for (int d = 0; d < p->ndims; d++)
        if (table->stride[d] == 0 && p->dims[d].role == ATTN_ROLE_BATCH)
            flat.dims[d].n = 1;
    for (int64_t i = 0; value && i < table->rows; i++) {
        walk w = {.p = &flat};
        int64_t offset;
        w.at[table->query_dim] = 0;
        w.pos[table->key_dim] = 0;
        if (walk_start(&w, roles))
            do
                if (walk_table(&w, t, &offset)) {
                    offset += (i - table->offset) * table->row_stride;
                    value[offset] = bound[offset] = 0;
                }
            while (walk_next(&w, roles));
    }
}

/* Clears the gradient of a bias with an index, including rows that no index selects. */
static void clear_rows(const attn_problem *p, double *value, double *bound)
{
    walk w = {.p = p};
    if (value && walk_start(&w, ROLE_B))
        do
            for (int64_t i = 0; i < p->bias_index.rows; i++) {
                int64_t at = i * p->bias_index.row_stride;
                for (int d = 0; d < p->ndims; d++)
                    at += p->dims[d].role == ATTN_ROLE_BATCH ? p->dims[d].bias * w.at[d] : 0;
                value[at] = bound[at] = 0;
            }
        while (walk_next(&w, ROLE_B));
}

static bool clear_gradients(const attn_problem *p, const attn_arrays *a, const attend_ref_arrays *v,
                            const attend_ref_arrays *b)
{
    bool any = v->dq || v->dk || v->dv || v->dbias || v->dw || v->dsinks;
    clear_gradient(p, a, v->dsinks, b->dsinks, offsetof(attn_dim, sinks), false, ROLE_B | ROLE_Q);
    clear_gradient(p, a, v->dq, b->dq, offsetof(attn_dim, dq), false, ROLE_B | ROLE_Q | ROLE_C);
    clear_gradient(p, a, v->dk, b->dk, offsetof(attn_dim, dk), true, ROLE_B | ROLE_K | ROLE_C);
    clear_gradient(p, a, v->dv, b->dv, offsetof(attn_dim, dv), true, ROLE_B | ROLE_K | ROLE_V);
    if (p->flags & ATTN_WITH_BIAS_INDEX)
        clear_rows(p, v->dbias, b->dbias);
    else
        clear_gradient(p, a, v->dbias, b->dbias, offsetof(attn_dim, dbias), false, ROLE_B | ROLE_Q | ROLE_K);
    clear_gradient(p, a, v->dw, b->dw, offsetof(attn_dim, w), false, ROLE_B | ROLE_C);
    clear_gradient(p, a, v->dw2, b->dw2, offsetof(attn_dim, w), false, ROLE_B | ROLE_C);
    for (int t = 0; t < p->nrelatives; t++) {
        clear_table(p, v->dtable[t], b->dtable[t], t);
        any = any || v->dtable[t];
    }
    return any;
}

static double resolved_scale(const attn_problem *p)
{
    double channels = (double)walk_count(p, ROLE_C);
    if (p->scale != 0)
        return p->scale;
    return attn__score_of(p)->by_root && channels > 0 ? 1 / sqrt(channels) : 1;
}

static attn_problem with_gradient_strides(const attn_problem *problem)
{
    attn_problem p = *problem;
    for (int d = 0; d < p.ndims && !p.own_grad_strides; d++) {
        attn_dim *dim = &p.dims[d];
        dim->dq = dim->q, dim->dk = dim->k, dim->dv = dim->v, dim->dout = dim->o, dim->dbias = dim->bias;
    }
    return p;
}

/* Returns a factor for the error bound. If a channel dim has no stride, a sum has n equal terms, so that all n
 * roundings may have the same sign. The error may then reach (n + 1) / 2 times 2^-24 of the result. */
static double factor_of_equal_terms(const attn_problem *p)
{
    double n = 1;
    for (int d = 0; d < p->ndims; d++) {
        const attn_dim *dim = &p->dims[d];
        if (dim->role == ATTN_ROLE_CONTRACT && dim->q == 0 && dim->k == 0 &&
            (p->score == ATTN_SCORE_DOT || dim->w == 0))
            n *= (double)dim->n;
    }
    return fmax(1, (n + 1) / 16);
}

void attend_ref_run(const attn_problem *problem, const attn_arrays *arrays, const attend_ref_arrays *value,
                    const attend_ref_arrays *bound, attend_ref_units units)
{
    attn_problem p = with_gradient_strides(problem);
    row r = {.p = &p, .a = arrays, .value = value, .bound = bound, .u = units, .w.p = &p};
    if (p.flags & ATTN_WITH_PACKED)
        r.w.q_offsets = arrays->q_offsets, r.w.k_offsets = arrays->k_offsets;
    r.u.score *= factor_of_equal_terms(&p);
    r.scale = resolved_scale(&p);
    r.width = p.width != 0 ? p.width : 1;
    bool backward = clear_gradients(&p, arrays, value, bound);
    allocate(&r);
    if (walk_start(&r.w, ROLE_B | ROLE_Q))
        do
            if (walk_row_exists(&r.w))
                run_row(&r, backward);
            else if (value->weights)
                absent_row(&r);
        while (walk_next(&r.w, ROLE_B | ROLE_Q));
    for (int i = 0; i < CHANNEL_ARRAYS; i++)
        free(r.channels[i]);
    for (int t = 0; t < p.nrelatives; t++)
        free(r.table[t]);
    free(r.key);
    free(r.pool);
}

void attend_ref_mark_used(const attn_problem *problem, const attn_arrays *arrays, unsigned char *k, unsigned char *v)
{
    walk w = {.p = problem};
    if (problem->flags & ATTN_WITH_PACKED)
        w.q_offsets = arrays->q_offsets, w.k_offsets = arrays->k_offsets;
    if (!walk_start(&w, ROLE_B | ROLE_Q | ROLE_K))
        return;
    unsigned char *const used[] = {k, v};
    int64_t n[] = {walk_count(problem, ROLE_C), walk_count(problem, ROLE_V)}, *channels[2];
    for (int side = 0; side < 2; side++)
        channels[side] = walk_channels(problem, channel_arrays[OF_K + side].field, channel_arrays[OF_K + side].roles);
    do {
        if (!walk_row_exists(&w))
            continue;
        walk at = w;
        walk_state state = walk_place(&at, arrays);
        if (state == WALK_ABSENT || !at.inside)
            continue;
        for (int side = 0; side < 2; side++) {
            int64_t base = channel_base(&at, (channel_array)(OF_K + side));
            for (int64_t c = 0; c < n[side]; c++)
                used[side][base + channels[side][c]] = 1;
        }
    } while (walk_next(&w, ROLE_B | ROLE_Q | ROLE_K));
    for (int side = 0; side < 2; side++)
        free(channels[side]);
}
