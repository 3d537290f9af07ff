/* SPDX-License-Identifier: MIT
 *
 * op_channel_norm_tmpl.h - the loops of normalization over an axis that is not the last one. op_channel_norm.c includes
 * this file for each type, with REAL, ROOT and NAME defined.
 *
 * In memory, positions are adjacent, and the distance between channels is `inner`. All channels of a block of positions
 * are processed before the next block. A loop then reads memory in order, and the sums of a block stay in registers and
 * the L1 cache.
 */

/* the functions up to #endif are compiled only if WHOLE is defined; otherwise kernels/channel_norm is used */
#ifdef WHOLE
/* Computes mean and variance over the channels, for each of n positions. x points to the first channel of the first
 * position. The mean is computed from the differences to the first channel, so that its rounding error depends only on
 * the spread of the channels. The variance is computed from squared differences to the mean. */
static void NAME(moments)(const channel_sizes *s, const REAL *x, int64_t n, REAL *mean, REAL *variance)
{
    for (int64_t i = 0; i < n; i++)
        mean[i] = variance[i] = 0;
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < n; i++)
            mean[i] += x[c * s->inner + i] - x[i];
    for (int64_t i = 0; i < n; i++)
        mean[i] /= (REAL)s->channels;
    for (int64_t c = 0; c < s->channels; c++) {
        for (int64_t i = 0; i < n; i++) {
            REAL d = x[c * s->inner + i] - x[i] - mean[i];
            variance[i] += d * d;
        }
    }
    for (int64_t i = 0; i < n; i++)
        variance[i] /= (REAL)s->channels;
}

/* Computes the factors of each position: `scale` multiplies the difference to the mean, and `bend` multiplies the
 * correction term in the backward pass. */
static void NAME(scales)(const channel_job *job, int64_t n, const REAL *variance, REAL *scale, REAL *bend)
{
    REAL eps = (REAL)job->eps;
    for (int64_t i = 0; i < n; i++) {
        if (job->kind == ATTN_NORM_VARIANCE) {
            scale[i] = 1 / ROOT(variance[i] + eps);
            bend[i] = scale[i] * scale[i] * scale[i];
        } else { /* a deviation of 0 has no derivative, so `bend` is 0 instead of 0 / 0 */
            REAL deviation = ROOT(variance[i]);
            scale[i] = 1 / (deviation + eps);
            bend[i] = deviation > 0 ? scale[i] * scale[i] / deviation : 0;
        }
    }
}

static void NAME(forward)(void *user, int64_t begin, int64_t end)
{
    const channel_job *job = user;
    const channel_sizes *s = &job->sizes;
    const REAL *gain = job->gain, *bias = job->bias;
    REAL variance[BLOCK];
    for (int64_t block = begin; block < end; block++) {
        channel_block b = block_of(s, block);
        const REAL *x = (const REAL *)job->x + b.element;
        REAL *y = (REAL *)job->y + b.element, *mean = (REAL *)job->mean + b.position;
        REAL *scale = (REAL *)job->scale + b.position, *bend = (REAL *)job->bend + b.position;
        NAME(moments)(s, x, b.n, mean, variance);
        NAME(scales)(job, b.n, variance, scale, bend);
        for (int64_t c = 0; c < s->channels; c++)
            for (int64_t i = 0; i < b.n; i++)
                y[c * s->inner + i] = (x[c * s->inner + i] - x[i] - mean[i]) * scale[i] * gain[c] + bias[c];
    }
}

/* Computes dx = scale * (h - avg h) - bend * d * avg(h d) with h = dy * gain and d = x - mean. avg is the average over
 * the channels. */
static void NAME(backward)(void *user, int64_t begin, int64_t end)
{
    const channel_job *job = user;
    const channel_sizes *s = &job->sizes;
    const REAL *gain = job->gain;
    REAL level[BLOCK], slope[BLOCK];
    for (int64_t block = begin; block < end; block++) {
        channel_block b = block_of(s, block);
        const REAL *x = (const REAL *)job->x + b.element, *dy = (const REAL *)job->dy + b.element;
        const REAL *mean = (const REAL *)job->mean + b.position, *scale = (const REAL *)job->scale + b.position;
        const REAL *bend = (const REAL *)job->bend + b.position;
        REAL *dx = (REAL *)job->y + b.element;
        for (int64_t i = 0; i < b.n; i++)
            level[i] = slope[i] = 0;
        for (int64_t c = 0; c < s->channels; c++) {
            for (int64_t i = 0; i < b.n; i++) {
                REAL h = dy[c * s->inner + i] * gain[c];
                level[i] += h;
                slope[i] += h * (x[c * s->inner + i] - x[i] - mean[i]);
            }
        }
        for (int64_t i = 0; i < b.n; i++) {
            level[i] /= (REAL)s->channels;
            slope[i] *= bend[i] / (REAL)s->channels;
        }
        for (int64_t c = 0; c < s->channels; c++) {
            for (int64_t i = 0; i < b.n; i++) {
                REAL old = job->add ? dx[c * s->inner + i] : 0, h = dy[c * s->inner + i] * gain[c];
                REAL d = x[c * s->inner + i] - x[i] - mean[i];
                dx[c * s->inner + i] = old + scale[i] * (h - level[i]) - slope[i] * d;
            }
        }
    }
}

#endif

/* Adds the terms of one outer index to the gradients of channel c's gain and bias, *gain and *bias. */
static void NAME(add_slopes)(const channel_job *job, int64_t outer, int64_t c, double *gain, double *bias)
{
    const channel_sizes *s = &job->sizes;
    int64_t at = (outer * s->channels + c) * s->inner;
    const REAL *x = (const REAL *)job->x + at, *dy = (const REAL *)job->dy + at;
    const REAL *first = (const REAL *)job->x + outer * s->channels * s->inner;
    const REAL *mean = (const REAL *)job->mean + outer * s->inner, *scale = (const REAL *)job->scale + outer * s->inner;
    for (int64_t i = 0; i < s->inner; i++) {
        *gain += (double)(dy[i] * ((x[i] - first[i] - mean[i]) * scale[i]));
        *bias += (double)dy[i];
    }
}

static void NAME(put_slope)(void *slopes, int64_t c, double slope, bool add)
{
    REAL *to = (REAL *)slopes + c;
    *to = (REAL)slope + (add ? *to : 0);
}
