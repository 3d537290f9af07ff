/* SPDX-License-Identifier: MIT
 *
 * batch_norm_tmpl.h - batch normalization for one instruction set; see batch_norm.h.  Several partial sums hide the
 * latency of additions. Partial sums continue from one plane to the next, so that a channel of many small planes needs
 * a single sum across the lanes. If a plane has a single number, the lanes are adjacent channels.
 */
#ifdef VF_DOUBLE
typedef double real;
#else
typedef float real;
#endif

enum { BATCH_NORM_VECTORS = 4, BATCH_NORM_COLUMNS = BATCH_NORM_VECTORS * VF_LANES, BATCH_NORM_RUN = 8 };

/* Selects the two terms that add_up adds for each number. */
enum { LEVEL, SPREAD, SLOPE };

/* One channel, or `width` adjacent channels with one lane each. The adjacent channels are treated as one channel whose
 * planes have n = width numbers. */
typedef struct channel {
    const real *x, *dy; /* the first plane of the channel */
    real *y;
    int64_t planes, n, ld; /* number of planes; numbers of a plane; stride between planes */
    int64_t at;            /* index of the first channel */
    int width;
    bool across;
    vf mean, inverse;
} channel;

typedef struct pair {
    double first, second;
} pair;

/* Independent partial sums of the two terms that add_up adds. */
typedef struct vector_sums {
    vf first[BATCH_NORM_VECTORS], second[BATCH_NORM_VECTORS];
} vector_sums;

/* Returns how many of the last `left` < VF_LANES numbers of a plane are processed at once. Narrow vectors process one,
 * because they load partial vectors number by number in any case. */
VF_FN int part_of(int64_t left)
{
    return VF_LANES > 4 ? (int)left : 1;
}

/* Reports whether n numbers are processed as one partial vector. */
VF_FN bool is_part(int64_t n)
{
    return n > 0 && n < VF_LANES && part_of(n) == n;
}

/* Loads the value of `array` for the channel into all lanes. If the lanes are adjacent channels, loads one value per
 * lane. */
VF_FN vf number(const channel *ch, const void *array)
{
    const real *x = (const real *)array + ch->at;
    return ch->across ? ch->width == VF_LANES ? vf_load(x) : vf_load_part(x, ch->width) : vf_set1(*x);
}

/* If planes have a single number, returns as many channels of [c, end) as fit into a vector. */
VF_FN channel channel_of(const attn__batch_norm_args *a, int64_t c, int64_t end)
{
    channel ch = {.planes = a->batch, .n = a->plane, .ld = a->channels * a->plane, .at = c, .width = 1};
    ch.across = a->plane == 1;
    if (ch.across)
        ch.n = ch.width = end - c >= VF_LANES ? VF_LANES : part_of(end - c);
    ch.x = a->x ? (const real *)a->x + c * a->plane : NULL;
    ch.dy = a->dy ? (const real *)a->dy + c * a->plane : NULL;
    ch.y = a->y ? (real *)a->y + c * a->plane : NULL;
    ch.mean = a->mean ? number(&ch, a->mean) : vf_zero();
    ch.inverse = a->inverse ? number(&ch, a->inverse) : vf_zero();
    return ch;
}

VF_FN vf take(const real *x, int part)
{
    return part ? vf_load_part(x, part) : vf_load(x);
}

VF_FN void give(real *y, vf v, int part)
{
    if (part)
        vf_store_part(y, v, part);
    else
        vf_store(y, v);
}

/* Clears the lanes past a partial vector, because x - mean would not be zero there. */
VF_FN vf inside(vf v, int part)
{
    return part ? vf_select(vm_first(part), v, vf_zero()) : v;
}

/* Adds the two terms of each number of a vector to sum i. LEVEL: x. SPREAD: x - mean and its square. SLOPE: dy, and dy
 * times the normalized x. */
VF_FN void add_up(int what, const channel *ch, int64_t at, int part, vector_sums *s, int i)
{
    vf x = take(ch->x + at, part), d = vf_sub(x, ch->mean);
    if (what == LEVEL) {
        s->first[i] = vf_add(s->first[i], x);
    } else if (what == SPREAD) {
        d = inside(d, part);
        s->first[i] = vf_add(s->first[i], d);
        s->second[i] = vf_fma(d, d, s->second[i]);
    } else {
        vf dy = take(ch->dy + at, part);
        s->first[i] = vf_add(s->first[i], dy);
        s->second[i] = vf_fma(dy, inside(vf_mul(d, ch->inverse), part), s->second[i]);
    }
}

/* Adds the terms of the numbers [i, end) of a plane, at least one number. */
VF_FN void add_piece(int what, const channel *ch, int64_t plane, int64_t i, int64_t end, vector_sums *s)
{
    int64_t from = plane * ch->ld;
    for (; i + BATCH_NORM_COLUMNS <= end; i += BATCH_NORM_COLUMNS) {
        VF_UNROLL
        for (int j = 0; j < BATCH_NORM_VECTORS; j++)
            add_up(what, ch, from + i + j * VF_LANES, 0, s, j);
    }
    VF_UNROLL
    for (int j = 0; j < BATCH_NORM_VECTORS - 1; j++) {
        if (i + VF_LANES <= end) {
            add_up(what, ch, from + i, 0, s, j);
            i += VF_LANES;
        }
    }
    for (int part; i < end; i += part) {
        part = part_of(end - i);
        add_up(what, ch, from + i, part, s, BATCH_NORM_VECTORS - 1);
    }
}

VF_FN vf total(const vf v[BATCH_NORM_VECTORS])
{
    return vf_add(vf_add(v[0], v[1]), vf_add(v[2], v[3]));
}

VF_FN void clear(vector_sums *s)
{
    VF_UNROLL
    for (int j = 0; j < BATCH_NORM_VECTORS; j++)
        s->first[j] = s->second[j] = vf_zero();
}

VF_FN void batch_norm_settle(const channel *ch, const vector_sums *s, pair *all)
{
    vf first = total(s->first), second = total(s->second);
    if (!ch->across) {
        all->first += (double)vf_sum(first);
        all->second += (double)vf_sum(second);
        return;
    }
    real lanes[2][VF_LANES];
    vf_store(lanes[0], first);
    vf_store(lanes[1], second);
    for (int i = 0; i < ch->width; i++) {
        all[i].first += (double)lanes[0][i];
        all[i].second += (double)lanes[1][i];
    }
}

/* Adds the terms of several planes at once. A plane is one whole vector if part = 0, or has `part` numbers. */
VF_FN void narrow_sums(int what, const channel *ch, int part, pair *all)
{
    for (int64_t plane = 0; plane < ch->planes;) {
        int64_t end = plane + BATCH_NORM_RUN * BATCH_NORM_VECTORS < ch->planes
                          ? plane + BATCH_NORM_RUN * BATCH_NORM_VECTORS
                          : ch->planes;
        vector_sums s;
        clear(&s);
        for (; plane + BATCH_NORM_VECTORS <= end; plane += BATCH_NORM_VECTORS) {
            VF_UNROLL
            for (int j = 0; j < BATCH_NORM_VECTORS; j++)
                add_up(what, ch, (plane + j) * ch->ld, part, &s, j);
        }
        for (; plane < end; plane++)
            add_up(what, ch, plane * ch->ld, part, &s, 0);
        batch_norm_settle(ch, &s, all);
    }
}

/* Adds the terms of planes of any length. After at most 2 BATCH_NORM_RUN numbers per lane, the partial sum is added in
 * f64. */
VF_FN void wide_sums(int what, const channel *ch, pair *all)
{
    vector_sums s;
    clear(&s);
    int64_t added = 0;
    for (int64_t plane = 0; plane < ch->planes; plane++) {
        for (int64_t i = 0, end; i < ch->n; i = end) {
            end = i + BATCH_NORM_RUN * BATCH_NORM_COLUMNS < ch->n ? i + BATCH_NORM_RUN * BATCH_NORM_COLUMNS : ch->n;
            add_piece(what, ch, plane, i, end, &s);
            added += 1 + (end - i) / BATCH_NORM_COLUMNS;
            if (added >= BATCH_NORM_RUN) {
                batch_norm_settle(ch, &s, all);
                clear(&s);
                added = 0;
            }
        }
    }
    batch_norm_settle(ch, &s, all);
}

VF_FN void sums_of(int what, const channel *ch, pair all[VF_LANES])
{
    for (int i = 0; i < ch->width; i++)
        all[i] = (pair){0, 0};
    if (ch->n == VF_LANES)
        narrow_sums(what, ch, 0, all);
    else if (is_part(ch->n))
        narrow_sums(what, ch, (int)ch->n, all);
    else
        wide_sums(what, ch, all);
}

/* The mean of the differences x - mean is the rounding error of the mean. A finite error is added to the mean, and its
 * square is subtracted from the variance. */
static void statistics(void *user, int64_t begin, int64_t end)
{
    const attn__batch_norm_args *a = user;
    double n = (double)(a->batch * a->plane), per = n > 0 ? 1 / n : 0;
    for (int64_t c = begin; c < end;) {
        channel ch = channel_of(a, c, end);
        real *mean = (real *)a->mean + c, *variance = (real *)a->inverse + c;
        pair all[VF_LANES];
        sums_of(LEVEL, &ch, all);
        for (int i = 0; i < ch.width; i++)
            mean[i] = (real)(all[i].first * per);
        ch.mean = number(&ch, a->mean);
        sums_of(SPREAD, &ch, all);
        for (int i = 0; i < ch.width; i++) {
            double rest = all[i].first * per, square = all[i].second * per - rest * rest;
            mean[i] = (real)((double)mean[i] + (isfinite(rest) ? rest : 0));
            variance[i] = (real)(square < 0 ? 0 : square);
        }
        c += ch.width;
    }
}

/* Runs BODY for each vector of the channel. In BODY, AT is the offset of the vector, and PART is the number of lanes of
 * a partial vector, or 0 for a whole vector. */
#define FOR_VECTORS(ch, at, part, BODY)                                                                                \
    do {                                                                                                               \
        const bool one = is_part((ch).n);                                                                              \
        for (int64_t plane = 0; plane < (ch).planes && one; plane++) {                                                 \
            const int64_t at = plane * (ch).ld;                                                                        \
            const int part = (int)(ch).n;                                                                              \
            BODY;                                                                                                      \
        }                                                                                                              \
        for (int64_t plane = 0; plane < (ch).planes && !one; plane++) {                                                \
            int64_t at = plane * (ch).ld, last = at + (ch).n;                                                          \
            for (const int part = 0; at + VF_LANES <= last; at += VF_LANES)                                            \
                BODY;                                                                                                  \
            for (int part = 0; at < last; at += part) {                                                                \
                part = part_of(last - at);                                                                             \
                BODY;                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

VF_FN void normalize_some(const channel *ch, int64_t at, int part, vf scale, vf bias)
{
    give(ch->y + at, vf_fma(vf_sub(take(ch->x + at, part), ch->mean), scale, bias), part);
}

static void normalize(void *user, int64_t begin, int64_t end)
{
    const attn__batch_norm_args *a = user;
    for (int64_t c = begin; c < end;) {
        channel ch = channel_of(a, c, end);
        vf scale = vf_mul(ch.inverse, number(&ch, a->gain)), bias = number(&ch, a->bias);
        FOR_VECTORS(ch, at, part, normalize_some(&ch, at, part, scale, bias));
        c += ch.width;
    }
}

static void batch_norm_slopes(void *user, int64_t begin, int64_t end)
{
    const attn__batch_norm_args *a = user;
    for (int64_t c = begin; c < end;) {
        channel ch = channel_of(a, c, end);
        pair all[VF_LANES];
        sums_of(SLOPE, &ch, all);
        for (int i = 0; i < ch.width; i++, c++) {
            if (a->dgain)
                ((real *)a->dgain)[c] = (real)all[i].second + (a->add_gain ? ((real *)a->dgain)[c] : 0);
            if (a->dbias)
                ((real *)a->dbias)[c] = (real)all[i].first + (a->add_bias ? ((real *)a->dbias)[c] : 0);
            a->sums[2 * c] = all[i].first;
            a->sums[2 * c + 1] = all[i].second;
        }
    }
}

/* Computes scale * (dy - level - (x - mean) * bend) for one vector. If `add` is set, adds it to y. */
VF_FN void backward_some(const channel *ch, int64_t at, int part, bool add, vf scale, vf level, vf bend)
{
    vf old = add ? take(ch->y + at, part) : vf_zero();
    vf d = vf_fnma(vf_sub(take(ch->x + at, part), ch->mean), bend, vf_sub(take(ch->dy + at, part), level));
    give(ch->y + at, vf_fma(scale, d, old), part);
}

static void batch_norm_backward(void *user, int64_t begin, int64_t end)
{
    const attn__batch_norm_args *a = user;
    for (int64_t c = begin; c < end;) {
        channel ch = channel_of(a, c, end);
        vf scale = vf_mul(ch.inverse, number(&ch, a->gain)), level = vf_zero(), bend = vf_zero();
        if (a->moving) { /* mean and inverse depend on x */
            real levels[VF_LANES], bends[VF_LANES];
            for (int i = 0; i < VF_LANES; i++) { /* with a single channel, all lanes have the same value */
                int64_t at = 2 * (c + (i < ch.width ? i : 0));
                levels[i] = (real)(a->sums[at] / a->whole);
                bends[i] = (real)(a->sums[at + 1] / a->whole);
            }
            level = vf_load(levels);
            bend = vf_mul(ch.inverse, vf_load(bends));
        }
        if (a->add)
            FOR_VECTORS(ch, at, part, backward_some(&ch, at, part, true, scale, level, bend));
        else
            FOR_VECTORS(ch, at, part, backward_some(&ch, at, part, false, scale, level, bend));
        c += ch.width;
    }
}

static void add_bias(void *user, int64_t begin, int64_t end)
{
    const attn__batch_norm_args *a = user;
    for (int64_t c = begin; c < end;) {
        channel ch = channel_of(a, c, end);
        vf bias = number(&ch, a->bias);
        FOR_VECTORS(ch, at, part, give(ch.y + at, vf_add(take(ch.y + at, part), bias), part));
        c += ch.width;
    }
}

extern const attn__batch_norm_kernel VF_NAME(attn__batch_norm);
const attn__batch_norm_kernel VF_NAME(attn__batch_norm) = {
    VF_ISA, statistics, normalize, batch_norm_slopes, batch_norm_backward, add_bias};
