/* SPDX-License-Identifier: MIT
 *
 * small_head_backward_tmpl.h - gradients of heads of few channels for one instruction set; see small_head.h.
 *
 * The lanes are keys. A square of scores has five passes: for the scores, for the weights and gradients of scores, for
 * dV, for dK, and for dQ. In each pass, the operand or the sums of all channels are in registers. Before the pass for
 * dQ, the square is transposed so that the lanes are queries. Transposing costs a quarter of an instruction per vector.
 * Recomputing the scores for dQ in a separate pass would cost two products and an exponential.
 */
#include "simd/softmax.h"

/* Exponents below this one give weights of 0, because vf_power needs normal numbers. */
#define LEAST_POWER (-126.0f)

VF_FN void load_keys(const float *from, int64_t ld, vf *k, int channels, int vectors)
{
    VF_UNROLL
    for (int i = 0; i < channels * vectors; i++)
        k[i] = vf_load(from + i / vectors * ld + i % vectors * VF_LANES);
}

/* Computes out[i] = rows[i] . lanes for a square. With q and kt it gives scores. With dout and vt it gives products of
 * dout and v. */
VF_FN void back_products(const attn__small_head_backward_args *t, const float *rows, const float *lanes, float *out,
                         int64_t i, int64_t j, int channels)
{
    const int vectors = SMALL_HEAD_VECTORS(channels), n = FLIGHT / vectors;
    vf k[MOST_HELD];
    load_keys(lanes + j, t->key_ld, k, channels, vectors);
    for (int r = 0; r < ATTN__SMALL_HEAD_STEP; r += n)
        small_head_score_rows(k, rows + (i + r) * channels, channels, vectors, n, out + r * vectors * VF_LANES);
}

/* Computes p = 2^(s - lse) and ds = p (dout . v - delta) / 2 for a square of scores s. */
VF_FN void back_weights(const attn__small_head_backward_args *t, int64_t i, int64_t j, int channels)
{
    const int vectors = SMALL_HEAD_VECTORS(channels), width = vectors * VF_LANES;
    vf v[MOST_HELD], reference = vf_power_reference(vf_zero()), least = vf_set1(LEAST_POWER);
    vf_powers powers = vf_powers_make();
    load_keys(t->vt + j, t->key_ld, v, channels, vectors);
    for (int r = 0; r < ATTN__SMALL_HEAD_STEP; r++) {
        vf dp[4], lse = vf_set1(t->lse[i + r]), delta = vf_set1(t->delta[i + r]);
        small_head_score(v, t->dout + (i + r) * channels, channels, vectors, 1, dp);
        VF_UNROLL
        for (int w = 0; w < vectors; w++) {
            float *at = t->p + r * width + w * VF_LANES;
            vf x = vf_log_weight(vf_load(at), lse), p = vf_power(&powers, vf_max(least, x), reference); /* NaN stays */
            p = vf_below(x, least, p);
            vf_store(at, p);
            vf_store(t->ds + r * width + w * VF_LANES, vf_half_score_gradient(p, dp[w], delta));
        }
    }
}

/* Clears lanes without a key, because their score of 0 may be far above the row's log-sum-exp. */
static void back_clear(const attn__small_head_backward_args *t, int64_t from, int64_t width)
{
    for (int r = 0; r < ATTN__SMALL_HEAD_STEP; r++)
        for (int64_t j = from; j < width; j++)
            t->p[r * width + j] = t->ds[r * width + j] = 0.0f;
}

/* Computes sums[c][lane] += weights[i][lane] * rows[i][c]. */
VF_FN void back_sum(const float *weights, const float *rows, int64_t n, float *sums, int64_t ld, int channels,
                    int vectors)
{
    vf sum[MOST_HELD];
    load_keys(sums, ld, sum, channels, vectors);
    for (int64_t r = 0; r < n; r++) {
        vf w[4];
        VF_UNROLL
        for (int v = 0; v < vectors; v++)
            w[v] = vf_load(weights + (r * vectors + v) * VF_LANES);
        VF_UNROLL
        for (int i = 0; i < channels * vectors; i++)
            sum[i] = vf_fma(w[i % vectors], vf_set1(rows[r * channels + i / vectors]), sum[i]);
    }
    VF_UNROLL
    for (int i = 0; i < channels * vectors; i++)
        vf_store(sums + i / vectors * ld + i % vectors * VF_LANES, sum[i]);
}

/* Transposes a square: t->transposed[j][i] = ds[i][j], for `vectors` vectors of queries i from row r on. */
VF_FN void back_transpose(const attn__small_head_backward_args *t, int r, int width, int vectors)
{
    for (int w = 0; w < width; w += VF_LANES) {
        for (int v = 0; v < vectors; v++) {
            vf square[VF_LANES];
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++)
                square[i] = vf_load(t->ds + (r + v * VF_LANES + i) * width + w);
            vf_transpose(square);
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++)
                vf_store(t->transposed + ((w + i) * vectors + v) * VF_LANES, square[i]);
        }
    }
}

VF_FN void back_add(const attn__small_head_backward_args *t, int64_t i, int64_t j, int channels)
{
    const int vectors = SMALL_HEAD_VECTORS(channels), width = vectors * VF_LANES,
              steps = ATTN__SMALL_HEAD_STEP / VF_LANES;
    const int transposed = vectors < steps ? vectors : steps; /* several, because one vector would wait for its sums */
    int64_t keys = t->keys - j < width ? t->keys - j : width;
    back_sum(t->p, t->dout + i * channels, ATTN__SMALL_HEAD_STEP, t->dv + j, t->key_ld, channels, vectors);
    back_sum(t->ds, t->q + i * channels, ATTN__SMALL_HEAD_STEP, t->dk + j, t->key_ld, channels, vectors);
    for (int r = 0; r < ATTN__SMALL_HEAD_STEP; r += transposed * VF_LANES) {
        back_transpose(t, r, width, transposed);
        back_sum(t->transposed, t->k + j * channels, keys, t->dq + i + r, t->query_ld, channels, transposed);
    }
}

VF_FN void back(const attn__small_head_backward_args *t, int channels)
{
    const int width = SMALL_HEAD_VECTORS(channels) * VF_LANES;
    for (int64_t j = 0; j < t->keys; j += width) {
        for (int64_t i = 0; i < t->queries; i += ATTN__SMALL_HEAD_STEP) {
            back_products(t, t->q, t->kt, t->p, i, j, channels);
            back_weights(t, i, j, channels);
            if (t->keys - j < width)
                back_clear(t, t->keys - j, width);
            back_add(t, i, j, channels);
        }
    }
}

VF_FN void back_score(const attn__small_head_backward_args *t, int channels)
{
    back_products(t, t->q, t->kt, t->p, t->query, t->key, channels);
    back_products(t, t->dout, t->vt, t->ds, t->query, t->key, channels);
}

static void back4(const attn__small_head_backward_args *t)
{
    back(t, 4);
}

static void back8(const attn__small_head_backward_args *t)
{
    back(t, 8);
}

static void back16(const attn__small_head_backward_args *t)
{
    back(t, 16);
}

static void back_score4(const attn__small_head_backward_args *t)
{
    back_score(t, 4);
}

static void back_score8(const attn__small_head_backward_args *t)
{
    back_score(t, 8);
}

static void back_score16(const attn__small_head_backward_args *t)
{
    back_score(t, 16);
}

static void back_add4(const attn__small_head_backward_args *t)
{
    back_add(t, t->query, t->key, 4);
}

static void back_add8(const attn__small_head_backward_args *t)
{
    back_add(t, t->query, t->key, 8);
}

static void back_add16(const attn__small_head_backward_args *t)
{
    back_add(t, t->query, t->key, 16);
}

/* ---------------------------------------------------------------------------------------------------- delta */

static void delta_of_head(const attn__small_head_delta_args *t, int64_t head, int64_t from)
{
    for (int64_t i = from; i < t->rows; i++) {
        const float *dout = t->dout + i * t->ld + head * t->values, *o = t->o + i * t->ld + head * t->values;
        float sum = 0.0f;
        for (int64_t c = 0; c < t->values; c++)
            sum += dout[c] * o[c];
        t->delta[head * t->delta_ld + i] = sum;
    }
}

/* Computes delta for VF_LANES rows of heads whose values fill a vector. The products of dout and o are transposed and
 * added up. */
VF_FN void delta_square(const attn__small_head_delta_args *t, int64_t head, int64_t row)
{
    vf square[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++) {
        int64_t at = (row + i) * t->ld + head * t->values;
        square[i] = vf_mul(vf_load(t->dout + at), vf_load(t->o + at));
    }
    vf_transpose(square);
    float transposed[VF_LANES * VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        vf_store(transposed + i * VF_LANES, square[i]);
    for (int64_t c = 0; c < VF_LANES; head++) {
        vf sum = vf_load(transposed + c * VF_LANES);
        for (int64_t end = c + t->values; ++c < end;)
            sum = vf_add(sum, vf_load(transposed + c * VF_LANES));
        vf_store(t->delta + head * t->delta_ld + row, sum);
    }
}

static void delta(const attn__small_head_delta_args *t)
{
    int64_t interleaved = VF_LANES % t->values == 0 ? VF_LANES / t->values : 0;
    for (int64_t head = 0; head < t->heads;) {
        int64_t row = 0;
        if (interleaved == 0 || head + interleaved > t->heads) {
            delta_of_head(t, head++, 0);
            continue;
        }
        for (; row + VF_LANES <= t->rows; row += VF_LANES)
            delta_square(t, head, row);
        for (int64_t end = head + interleaved; head < end; head++)
            delta_of_head(t, head, row);
    }
}
