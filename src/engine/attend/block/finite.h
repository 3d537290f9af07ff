/* SPDX-License-Identifier: MIT
 *
 * finite.h - products that ignore NaN and infinity of masked pairs.  Masked keys and queries may hold any number, but
 * 0 * NaN is NaN.  attn__finite_clean therefore copies an operand and replaces rows with NaN or infinity by zeros.
 * The product then reads the copy.  attn__finite_repair adds the terms of the replaced rows pair by pair.  It leaves
 * out pairs that are masked or dropped.
 *
 *     if (attn__finite_clean(...)) { product of the copy; attn__finite_repair(...); }
 */
#ifndef ATTN_ATTEND_FINITE_H
#define ATTN_ATTEND_FINITE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Copies rows of n numbers to `clean`. Rows with NaN or infinity become zeros, and their indices are written to
 * `bad`[rows]. Returns the count of these rows. */
int64_t attn__finite_clean(const float *x, int64_t ld, int64_t rows, int64_t n, float *clean, int64_t ld_clean,
                           int64_t *bad);

/* Reports whether a weight is -0, which marks a pair whose terms are left out. The weight of another pair may be +0. */
static inline bool attn__is_mark(float weight)
{
    return weight == 0.0f && signbit(weight);
}
static inline bool attn__is_mark_f64(double weight)
{
    return weight == 0 && signbit(weight);
}

/* Sets alive[i] = 1 if score i is not -infinity. Masked scores must be -infinity, even if there is a mask_fill. */
static inline void attn__finite_note(const float *s, int64_t n, uint8_t *alive)
{
    for (int64_t i = 0; i < n; i++)
        alive[i] = (uint8_t)(s[i] != -INFINITY);
}

/* Also sets `alive` to 1 for masked scores with a weight, and to 0 for dropped weights, which are -0.  If fades[i] is
 * set (see attn__finite_fades), masked scores of lane i have no weight. `fades` may be NULL. */
static inline void attn__finite_note_weights(const float *p, int64_t rows, int64_t width, const uint8_t *fades,
                                             uint8_t *alive)
{
    for (int64_t r = 0; r < rows; r++, p += width, alive += width)
        for (int64_t i = 0; i < width; i++)
            alive[i] = (alive[i] || (p[i] != 0.0f && !(fades && fades[i]))) && !attn__is_mark(p[i]);
}

/* The weight of masked keys with a mask_fill may be nonzero relative to the keys so far, and 0 relative to all keys.
 * Only the latter decides whether NaN and infinity of their values count.  Solvers therefore run an item once more if
 * such a value had a weight.  The second run leaves out the terms of queries with fades[i] = 1. `m` has the running
 * references of all keys, and `fill` is the score of masked keys, both in base 2. Returns whether any query fades. */
bool attn__finite_fades(const float *m, int64_t n, float fill, uint8_t *fades);

/* Arguments of attn__finite_repair, which adds weight(i, r) * x[r][c] to out[i][c] for each row r listed in `bad`. */
typedef struct attn__finite_sums {
    int64_t outs, channels;
    const float *w; /* weight(i, r) = w[i * w_out + r * w_row] * factor * out_factor[i] */
    /* Pairs whose byte alive[i * w_out + r * w_row] lacks `bit` are left out. */
    const uint8_t *alive;
    uint8_t bit;
    int64_t w_out, w_row;
    float factor;
    const float *out_factor; /* [outs], or NULL if all factors are 1 */
    const float *x;          /* x[r * x_row + c] is element (r, c) of the operand with NaN or infinity */
    int64_t x_row;
    float *out; /* out[(out_at ? out_at[i] : i * out_row) + c * out_channel] is element (i, c) of the result */
    const int64_t *out_at;
    int64_t out_row, out_channel;
} attn__finite_sums;
void attn__finite_repair(const attn__finite_sums *sums, const int64_t *bad, int64_t n);

#endif
