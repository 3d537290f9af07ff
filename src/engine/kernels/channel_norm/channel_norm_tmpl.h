/* SPDX-License-Identifier: MIT
 *
 * channel_norm_tmpl.h - normalization over channels for one instruction set; see channel_norm.h.  Several vectors of
 * adjacent positions are processed at once, to hide the latency of the sums and to use whole cache lines.
 */
enum { CHANNEL_NORM_VECTORS = 4 };

typedef struct column_vectors {
    vf v[CHANNEL_NORM_VECTORS];
} column_vectors;

/* Loads `count` vectors of positions. If part > 0, loads a single vector of `part` positions. */
VF_FN column_vectors load_columns(const float *x, int count, int part)
{
    column_vectors c;
    VF_UNROLL
    for (int i = 0; i < CHANNEL_NORM_VECTORS; i++)
        c.v[i] = i >= count ? vf_zero() : part ? vf_load_part(x, part) : vf_load(x + i * VF_LANES);
    return c;
}

VF_FN void store_columns(float *x, const column_vectors *c, int count, int part)
{
    VF_UNROLL
    for (int i = 0; i < CHANNEL_NORM_VECTORS; i++)
        if (i < count && part)
            vf_store_part(x, c->v[i], part);
        else if (i < count)
            vf_store(x + i * VF_LANES, c->v[i]);
}

/* Computes scale, and bend (see `forward`), from the variance. */
VF_FN void scale_of(const attn__channel_norm_args *a, vf variance, vf *scale, vf *bend)
{
    vf one = vf_set1(1), eps = vf_set1(a->eps);
    if (!a->deviation) {
        *scale = vf_div(one, vf_sqrt(vf_add(variance, eps)));
        *bend = vf_mul(vf_mul(*scale, *scale), *scale);
        return;
    }
    vf deviation = vf_sqrt(variance);
    *scale = vf_div(one, vf_add(deviation, eps));
    *bend = vf_select(vf_lt(vf_zero(), deviation), vf_div(vf_mul(*scale, *scale), deviation), vf_zero());
}

/* Normalizes `count` vectors of positions. It sums differences from the first channel instead of the numbers
 * themselves. The rounding error then depends on the spread of the channels, not on their distance from zero. */
VF_FN void forward_columns(const attn__channel_norm_args *a, int64_t at, int count, int part)
{
    column_vectors mean = {{vf_zero(), vf_zero(), vf_zero(), vf_zero()}}, variance = mean, scale, bend;
    column_vectors first = load_columns(a->x + at, count, part);
    vf all = vf_set1((float)a->channels);
    for (int64_t c = 0; c < a->channels; c++) {
        column_vectors x = load_columns(a->x + c * a->ld + at, count, part);
        VF_UNROLL
        for (int i = 0; i < CHANNEL_NORM_VECTORS; i++)
            mean.v[i] = vf_add(mean.v[i], vf_sub(x.v[i], first.v[i]));
    }
    VF_UNROLL
    for (int i = 0; i < CHANNEL_NORM_VECTORS; i++)
        mean.v[i] = vf_div(mean.v[i], all);
    for (int64_t c = 0; c < a->channels; c++) {
        column_vectors x = load_columns(a->x + c * a->ld + at, count, part);
        VF_UNROLL
        for (int i = 0; i < CHANNEL_NORM_VECTORS; i++) {
            vf d = vf_sub(vf_sub(x.v[i], first.v[i]), mean.v[i]);
            variance.v[i] = vf_fma(d, d, variance.v[i]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < CHANNEL_NORM_VECTORS; i++)
        scale_of(a, vf_div(variance.v[i], all), &scale.v[i], &bend.v[i]);
    store_columns(a->mean + at, &mean, count, part);
    store_columns(a->scale + at, &scale, count, part);
    store_columns(a->bend + at, &bend, count, part);
    for (int64_t c = 0; c < a->channels; c++) {
        column_vectors x = load_columns(a->x + c * a->ld + at, count, part);
        vf gain = vf_set1(a->gain[c]), bias = vf_set1(a->bias[c]);
        VF_UNROLL
        for (int i = 0; i < CHANNEL_NORM_VECTORS; i++)
            x.v[i] = vf_fma(vf_mul(vf_sub(vf_sub(x.v[i], first.v[i]), mean.v[i]), scale.v[i]), gain, bias);
        store_columns(a->y + c * a->ld + at, &x, count, part);
    }
}

VF_FN void backward_columns(const attn__channel_norm_args *a, int64_t at, int count, int part)
{
    column_vectors level = {{vf_zero(), vf_zero(), vf_zero(), vf_zero()}}, slope = level;
    column_vectors mean = load_columns(a->mean + at, count, part), scale = load_columns(a->scale + at, count, part);
    column_vectors bend = load_columns(a->bend + at, count, part), first = load_columns(a->x + at, count, part);
    vf all = vf_set1((float)a->channels);
    for (int64_t c = 0; c < a->channels; c++) {
        column_vectors x = load_columns(a->x + c * a->ld + at, count, part);
        column_vectors h = load_columns(a->dy + c * a->ld + at, count, part);
        vf gain = vf_set1(a->gain[c]);
        VF_UNROLL
        for (int i = 0; i < CHANNEL_NORM_VECTORS; i++) {
            h.v[i] = vf_mul(h.v[i], gain);
            level.v[i] = vf_add(level.v[i], h.v[i]);
            slope.v[i] = vf_fma(h.v[i], vf_sub(vf_sub(x.v[i], first.v[i]), mean.v[i]), slope.v[i]);
        }
    }
    VF_UNROLL
    for (int i = 0; i < CHANNEL_NORM_VECTORS; i++) {
        level.v[i] = vf_div(level.v[i], all);
        slope.v[i] = vf_mul(slope.v[i], vf_div(bend.v[i], all));
    }
    for (int64_t c = 0; c < a->channels; c++) {
        column_vectors x = load_columns(a->x + c * a->ld + at, count, part);
        column_vectors h = load_columns(a->dy + c * a->ld + at, count, part);
        column_vectors old = load_columns(a->y + c * a->ld + at, a->add ? count : 0, part);
        vf gain = vf_set1(a->gain[c]);
        VF_UNROLL
        for (int i = 0; i < CHANNEL_NORM_VECTORS; i++) {
            vf d = vf_fnma(slope.v[i], vf_sub(vf_sub(x.v[i], first.v[i]), mean.v[i]), old.v[i]);
            x.v[i] = vf_fma(scale.v[i], vf_sub(vf_mul(h.v[i], gain), level.v[i]), d);
        }
        store_columns(a->y + c * a->ld + at, &x, count, part);
    }
}

static void forward(const attn__channel_norm_args *a)
{
    int64_t i = 0;
    for (; i + CHANNEL_NORM_VECTORS * VF_LANES <= a->n; i += CHANNEL_NORM_VECTORS * VF_LANES)
        forward_columns(a, i, CHANNEL_NORM_VECTORS, 0);
    for (; i + VF_LANES <= a->n; i += VF_LANES)
        forward_columns(a, i, 1, 0);
    if (i < a->n)
        forward_columns(a, i, 1, (int)(a->n - i));
}

static void channel_norm_backward(const attn__channel_norm_args *a)
{
    int64_t i = 0;
    for (; i + CHANNEL_NORM_VECTORS * VF_LANES <= a->n; i += CHANNEL_NORM_VECTORS * VF_LANES)
        backward_columns(a, i, CHANNEL_NORM_VECTORS, 0);
    for (; i + VF_LANES <= a->n; i += VF_LANES)
        backward_columns(a, i, 1, 0);
    if (i < a->n)
        backward_columns(a, i, 1, (int)(a->n - i));
}

enum { CHANNEL_NORM_RUN = 8, CHANNEL_NORM_COLUMNS = CHANNEL_NORM_VECTORS * VF_LANES };

VF_FN double sum_columns(const column_vectors *c)
{
    return (double)vf_sum(vf_add(vf_add(c->v[0], c->v[1]), vf_add(c->v[2], c->v[3])));
}

static double channel_norm_sum(const float *x, int64_t n)
{
    double all = 0;
    int64_t i = 0;
    for (; i + CHANNEL_NORM_RUN * CHANNEL_NORM_COLUMNS <= n; i += CHANNEL_NORM_RUN * CHANNEL_NORM_COLUMNS) {
        column_vectors s = load_columns(x + i, CHANNEL_NORM_VECTORS, 0);
        for (int64_t r = 1; r < CHANNEL_NORM_RUN; r++) {
            column_vectors more = load_columns(x + i + r * CHANNEL_NORM_COLUMNS, CHANNEL_NORM_VECTORS, 0);
            VF_UNROLL
            for (int j = 0; j < CHANNEL_NORM_VECTORS; j++)
                s.v[j] = vf_add(s.v[j], more.v[j]);
        }
        all += sum_columns(&s);
    }
    vf rest = vf_zero();
    for (; i + VF_LANES <= n; i += VF_LANES)
        rest = vf_add(rest, vf_load(x + i));
    if (i < n)
        rest = vf_add(rest, vf_load_part(x + i, (int)(n - i)));
    return all + (double)vf_sum(rest);
}

/* Adds the terms of `count` vectors of positions to the gradients of gain and bias. Each lane has its own sums. */
VF_FN void slope_columns(const attn__channel_norm_args *a, int64_t at, int count, int part, column_vectors *gain,
                         column_vectors *bias)
{
    column_vectors x = load_columns(a->x + at, count, part), dy = load_columns(a->dy + at, count, part);
    column_vectors mean = load_columns(a->mean + at, count, part), scale = load_columns(a->scale + at, count, part);
    column_vectors first = load_columns(a->first + at, count, part);
    VF_UNROLL
    for (int i = 0; i < CHANNEL_NORM_VECTORS; i++) {
        vf d = vf_sub(vf_sub(x.v[i], first.v[i]), mean.v[i]);
        gain->v[i] = vf_fma(dy.v[i], vf_mul(d, scale.v[i]), gain->v[i]);
        bias->v[i] = vf_add(bias->v[i], dy.v[i]);
    }
}

static void channel_norm_slopes(const attn__channel_norm_args *a, double *gain, double *bias)
{
    for (int64_t i = 0; i < a->n;) {
        int64_t end =
            i + CHANNEL_NORM_RUN * CHANNEL_NORM_COLUMNS < a->n ? i + CHANNEL_NORM_RUN * CHANNEL_NORM_COLUMNS : a->n;
        column_vectors of_gain = {{vf_zero(), vf_zero(), vf_zero(), vf_zero()}}, of_bias = of_gain;
        for (; i + CHANNEL_NORM_COLUMNS <= end; i += CHANNEL_NORM_COLUMNS)
            slope_columns(a, i, CHANNEL_NORM_VECTORS, 0, &of_gain, &of_bias);
        for (; i + VF_LANES <= end; i += VF_LANES)
            slope_columns(a, i, 1, 0, &of_gain, &of_bias);
        if (i < end)
            slope_columns(a, i, 1, (int)(end - i), &of_gain, &of_bias);
        i = end;
        *gain += sum_columns(&of_gain);
        *bias += sum_columns(&of_bias);
    }
}

const attn__channel_norm_kernel VF_NAME(attn__channel_norm) = {VF_ISA, forward, channel_norm_backward, channel_norm_sum,
                                                               channel_norm_slopes};
