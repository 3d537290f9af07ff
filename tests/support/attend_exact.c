/* SPDX-License-Identifier: MIT */
#include "support/attend_exact.h"

#include <math.h>
#include <stdlib.h>

typedef struct walk {
    const attn_problem *p;
    const attn_arrays *a;
    int64_t at[ATTN_MAX_DIMS];
    int64_t place[ATTN_MAX_DIMS]; /* position along each KEY dim, which is the index unless the dim has a window */
    bool there;
    bool outside; /* true if the position is outside of the axis, where key and value are zero */
    bool seen;
} walk;

#define OFFSET(w, field) offset_of(w, offsetof(attn_dim, field), false)
#define PLACE(w, field)  offset_of(w, offsetof(attn_dim, field), true)

static int64_t stride_of(const walk *w, int dim, size_t field)
{
    return *(const int64_t *)(const void *)((const char *)&w->p->dims[dim] + field);
}

static int64_t offset_of(const walk *w, size_t field, bool places)
{
    int64_t sum = 0;
    for (int d = 0; d < w->p->ndims; d++)
        sum += stride_of(w, d, field) * (places && w->p->dims[d].role == ATTN_ROLE_KEY ? w->place[d] : w->at[d]);
    return sum;
}

static long double load(const walk *w, const void *x, int64_t i)
{
    return w->p->dtype == ATTN_F64 ? ((const double *)x)[i] : ((const float *)x)[i];
}

/* Sets the indices of the dims of the roles `one` and `other` to 0. Returns false if one of these dims is empty. */
static bool first(walk *w, attn_role one, attn_role other)
{
    bool any = true;
    for (int d = 0; d < w->p->ndims; d++)
        if (w->p->dims[d].role == one || w->p->dims[d].role == other) {
            w->at[d] = 0;
            any = any && w->p->dims[d].n > 0;
        }
    return any;
}

static bool next(walk *w, attn_role one, attn_role other)
{
    for (int d = w->p->ndims - 1; d >= 0; d--) {
        if (w->p->dims[d].role != one && w->p->dims[d].role != other)
            continue;
        if (++w->at[d] < w->p->dims[d].n)
            return true;
        w->at[d] = 0;
    }
    return false;
}

/* ------------------------------------------------------------------------------------- which keys a query sees */

static bool is_packed(const walk *w)
{
    return w->p->flags & ATTN_WITH_PACKED;
}

static int64_t begin_of(const walk *w, const int32_t *offsets)
{
    return is_packed(w) ? offsets[w->at[w->p->packed.batch_dim]] : 0;
}

static int64_t length_of(const walk *w, const int32_t *offsets)
{
    int64_t s = w->at[w->p->packed.batch_dim];
    return offsets[s + 1] - offsets[s];
}

static const attn_window *window_of(const walk *w, int key_dim)
{
    for (int i = 0; i < w->p->nwindows; i++)
        if (w->p->windows[i].key_dim == key_dim)
            return &w->p->windows[i];
    return NULL;
}

static int64_t or_one(int64_t x)
{
    return x ? x : 1;
}

/* Returns the position of the window's tap 0. With ATTN_BORDER_SHIFT, a window that exceeds the axis moves inwards
 * in steps of one dilation. */
static int64_t window_begin(const walk *w, const attn_window *window)
{
    int64_t dilation = or_one(window->dilation), last = (w->p->dims[window->key_dim].n - 1) * dilation;
    int64_t begin = w->at[window->query_dim] * or_one(window->step) + window->offset;
    while (window->border == ATTN_BORDER_SHIFT && begin < 0)
        begin += dilation;
    while (window->border == ATTN_BORDER_SHIFT && begin + last >= window->size)
        begin -= dilation;
    return begin;
}

/* Returns the distance j - i from query position i to key position j. Bands and tables use this distance. */
static int64_t distance(const walk *w, int query_dim, int key_dim)
{
    const attn_window *window = window_of(w, key_dim);
    bool own = window && window->query_dim == query_dim;
    return w->place[key_dim] - w->at[query_dim] * (own ? or_one(window->step) : 1);
}

static bool in_bands(const walk *w)
{
    int64_t ends = 0;
    if (is_packed(w) && w->p->packed.align_ends)
        ends = length_of(w, w->a->k_offsets) - length_of(w, w->a->q_offsets);
    for (int i = 0; i < w->p->nbands; i++) {
        const attn_band *band = &w->p->bands[i];
        int64_t d = distance(w, band->query_dim, band->key_dim) - ends;
        if (d < band->lo || d > band->hi)
            return false;
    }
    return true;
}

static bool in_blocks(const walk *w)
{
    const attn_blocks *b = &w->p->blocks;
    walk block = *w;
    if (!(w->p->flags & ATTN_WITH_BLOCKS))
        return true;
    block.at[b->query_dim] /= b->queries;
    block.at[b->key_dim] /= b->keys;
    return w->a->blocks[OFFSET(&block, blocks)] != 0;
}

static void look(walk *w)
{
    w->there = true, w->outside = false;
    for (int d = 0; d < w->p->ndims; d++) {
        const attn_window *window = window_of(w, d);
        w->place[d] = w->at[d];
        if (!window)
            continue;
        w->place[d] = window_begin(w, window) + w->at[d] * or_one(window->dilation);
        bool out = w->place[d] < 0 || w->place[d] >= window->size;
        w->outside = w->outside || out;
        w->there = w->there && !(out && window->border == ATTN_BORDER_MASK);
    }
    if (is_packed(w))
        w->there = w->at[w->p->packed.key_dim] < length_of(w, w->a->k_offsets);
    w->seen = w->there && in_bands(w) && in_blocks(w);
    if (w->seen && (w->p->flags & ATTN_WITH_LENS))
        w->seen = w->place[w->p->lens_dim] < w->a->lens[OFFSET(w, lens)];
    if (w->seen && (w->p->flags & ATTN_WITH_MASK) && !w->outside)
        w->seen = w->a->mask[PLACE(w, mask)] != 0;
}

/* ------------------------------------------------------------------------------------------------- one pair */

static long double key_channel(const walk *w)
{
    int64_t token = begin_of(w, w->a->k_offsets) * (is_packed(w) ? w->p->dims[w->p->packed.key_dim].k : 0);
    return w->outside ? 0 : load(w, w->a->k, PLACE(w, k) + token);
}

static long double query_channel(const walk *w)
{
    int64_t token = begin_of(w, w->a->q_offsets) * (is_packed(w) ? w->p->dims[w->p->packed.query_dim].q : 0);
    return load(w, w->a->q, OFFSET(w, q) + token);
}

/* Returns the entry of the i-th table for the current pair and channel. Returns 0 if the table does not cover this
 * channel. */
static long double table_entry(const walk *w, int i, attn_role role)
{
    const attn_relative *r = &w->p->relatives[i];
    int64_t at = (distance(w, r->query_dim, r->key_dim) + r->offset) * r->row_stride;
    int inner = -1;
    for (int d = 0; d < w->p->ndims; d++)
        inner = w->p->dims[d].role == role ? d : inner;
    bool part = inner >= 0 && (r->begin || r->end);
    if (part && (w->at[inner] < r->begin || w->at[inner] >= r->end))
        return 0;
    for (int d = 0; d < w->p->ndims; d++)
        if (w->p->dims[d].role == role || w->p->dims[d].role == ATTN_ROLE_BATCH)
            at += r->stride[d] * (w->at[d] - (part && d == inner ? r->begin : 0));
    return load(w, w->a->table[i], at);
}

static long double score_of(attn_score score, long double sum, long double width)
{
    if (isnan(sum) && score != ATTN_SCORE_CONSTANT)
        return sum;
    switch (score) {
    case ATTN_SCORE_CONCAT:
        return sum > 0 ? sum : 0;
    case ATTN_SCORE_GAUSSIAN:
        return -sum / (2 * width * width);
    case ATTN_SCORE_BOXCAR:
        return sqrtl(sum) < width;
    case ATTN_SCORE_CONSTANT:
        return 1;
    case ATTN_SCORE_TRIANGULAR:
        return fmaxl(0, 1 - sqrtl(sum) / width);
    default:
        return sum;
    }
}

static long double term_of(const walk *w, long double q, long double k)
{
    switch (w->p->score) {
    case ATTN_SCORE_DOT:
        return q * k;
    case ATTN_SCORE_ADDITIVE:
        return load(w, w->a->w, OFFSET(w, w)) * tanhl(q + k);
    case ATTN_SCORE_CONCAT:
        return load(w, w->a->w, OFFSET(w, w)) * q + load(w, w->a->w2, OFFSET(w, w)) * k;
    default:
        return (q - k) * (q - k);
    }
}

static long double bias_of(const walk *w)
{
    int64_t batch = 0, pair = 0;
    if (!(w->p->flags & ATTN_WITH_BIAS))
        return 0;
    for (int d = 0; d < w->p->ndims; d++)
        *(w->p->dims[d].role == ATTN_ROLE_BATCH ? &batch : &pair) += w->at[d] * w->p->dims[d].bias;
    if (w->p->flags & ATTN_WITH_BIAS_INDEX)
        pair = w->a->bias_index[pair] * w->p->bias_index.row_stride;
    return load(w, w->a->bias, batch + pair);
}

static long double pair_score(walk *w)
{
    const attn_problem *p = w->p;
    long double sum = 0, tables = 0, channels = 1;
    for (bool more = first(w, ATTN_ROLE_CONTRACT, ATTN_ROLE_CONTRACT); more;
         more = next(w, ATTN_ROLE_CONTRACT, ATTN_ROLE_CONTRACT)) {
        long double q = query_channel(w), k = key_channel(w);
        sum += term_of(w, q, k);
        for (int i = 0; i < p->nrelatives; i++)
            if (p->relatives[i].kind != ATTN_RELATIVE_VALUE)
                tables += (p->relatives[i].kind == ATTN_RELATIVE_KEY ? k : q) * table_entry(w, i, ATTN_ROLE_CONTRACT);
    }
    for (int d = 0; d < p->ndims; d++)
        channels *= p->dims[d].role == ATTN_ROLE_CONTRACT ? (long double)p->dims[d].n : 1;
    long double scale = p->scale != 0 ? p->scale : p->score == ATTN_SCORE_DOT ? 1 / sqrtl(channels) : 1;
    long double x = scale * (score_of(p->score, sum, p->width != 0 ? p->width : 1) + tables), cap = p->softcap;
    return (cap != 0 ? cap * tanhl(x / cap) : x) + bias_of(w);
}

static long double pair_value(const walk *w)
{
    int64_t token = begin_of(w, w->a->k_offsets) * (is_packed(w) ? w->p->dims[w->p->packed.key_dim].v : 0);
    long double value = w->outside ? 0 : load(w, w->a->v, PLACE(w, v) + token);
    for (int i = 0; i < w->p->nrelatives; i++)
        if (w->p->relatives[i].kind == ATTN_RELATIVE_VALUE)
            value += table_entry(w, i, ATTN_ROLE_VALUE);
    return value;
}

/* -------------------------------------------------------------------------------------------------- one row */

typedef struct row {
    long double *x, *weight;
    /* taken: true if the key has a score or the fill; own: true if the key has a score of its own instead of the
     * fill */
    bool *taken, *own;
    int64_t n;
} row;

/* Masks the keys that top_k or hardmax excludes, which are keys that k or more other keys precede. Only keys with a
 * score of their own count. If one of these scores is NaN, all keys stay visible. */
static void keep_largest(const attn_problem *p, row *r)
{
    int64_t k = p->normalization == ATTN_NORMALIZATION_HARDMAX ? 1 : p->top_k ? p->top_k : r->n;
    for (int64_t i = 0; i < r->n; i++)
        if (r->taken[i] && r->own[i] && isnan(r->x[i]))
            return;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t before = 0;
        r->weight[i] = 0;
        for (int64_t j = 0; j < r->n && r->taken[i] && r->own[i]; j++)
            before += r->taken[j] && r->own[j] && (r->x[j] > r->x[i] || (r->x[j] == r->x[i] && j < i));
        r->weight[i] = before >= k;
    }
    for (int64_t i = 0; i < r->n; i++)
        if (r->weight[i] != 0) {
            r->own[i] = false, r->taken[i] = p->mask_fill != 0;
            r->x[i] = (long double)p->mask_fill;
        }
}

static void score_row(walk *w, row *r, const attend_exact_arrays *out, int64_t lse)
{
    int last = 0;
    r->n = 0;
    for (int d = 0; d < w->p->ndims; d++)
        last = w->p->dims[d].role == ATTN_ROLE_KEY ? d : last;
    for (bool more = first(w, ATTN_ROLE_KEY, ATTN_ROLE_KEY); more; more = next(w, ATTN_ROLE_KEY, ATTN_ROLE_KEY)) {
        look(w);
        bool filled = w->there && !w->seen && w->p->mask_fill != 0;
        long double x = filled ? (long double)w->p->mask_fill : w->seen ? pair_score(w) : 0;
        r->taken[r->n] = (w->seen || filled) && x != -HUGE_VALL;
        r->own[r->n] = w->seen;
        r->x[r->n++] = x;
        if (out->sees && w->seen && !w->outside)
            out->sees[lse * out->positions + w->place[last]] = 1;
    }
}

static long double weigh(const walk *w, row *r)
{
    bool hard = w->p->normalization == ATTN_NORMALIZATION_HARDMAX,
         plain = w->p->normalization == ATTN_NORMALIZATION_NONE;
    bool soft = w->p->normalization == ATTN_NORMALIZATION_SOFTMAX || hard, sunk = w->p->flags & ATTN_WITH_SINKS;
    long double sink = sunk ? load(w, w->a->sinks, OFFSET(w, sinks)) : -HUGE_VALL, most = sink, sum = 0, count = 0;
    for (int64_t i = 0; i < r->n; i++)
        most = r->taken[i] && r->x[i] > most ? r->x[i] : most;
    for (int64_t i = 0; i < r->n; i++) {
        r->weight[i] = !r->taken[i] ? 0 : hard && r->x[i] == most ? 1 : soft ? expl(r->x[i] - most) : r->x[i];
        sum += r->weight[i];
        count += r->taken[i];
    }
    if (soft && most > -HUGE_VALL)
        sum += sunk ? expl(sink - most) : 0;
    if (w->p->normalization == ATTN_NORMALIZATION_SIGMOID) {
        long double keys = (long double)r->n;
        if (is_packed(w))
            keys = keys / w->p->dims[w->p->packed.key_dim].n * length_of(w, w->a->k_offsets);
        long double b = w->p->own_sigmoid_bias ? (long double)w->p->sigmoid_bias : -logl(keys);
        for (int64_t i = 0; i < r->n; i++)
            r->weight[i] = r->taken[i] ? 1 / (1 + expl(-(r->x[i] + b))) : 0;
        return 0;
    }
    long double divisor = w->p->normalization == ATTN_NORMALIZATION_MEAN ? count : plain ? 1 : sum;
    for (int64_t i = 0; i < r->n; i++)
        r->weight[i] = divisor != 0 ? r->weight[i] / divisor : 0;
    if (soft)
        return most > -HUGE_VALL ? most + logl(sum) : -HUGE_VALL;
    return w->p->normalization == ATTN_NORMALIZATION_SUM && sum == 0 ? -HUGE_VALL : 0;
}

static void one_row(walk *w, row *r, const attend_exact_arrays *out)
{
    bool packed = is_packed(w);
    const attn_dim *token = packed ? &w->p->dims[w->p->packed.query_dim] : NULL;
    int64_t begin = begin_of(w, w->a->q_offsets), lse = OFFSET(w, lse) + (packed ? begin * token->lse : 0);
    if (packed && w->at[w->p->packed.query_dim] >= length_of(w, w->a->q_offsets))
        return;
    score_row(w, r, out, lse);
    keep_largest(w->p, r);
    out->lse[lse] = weigh(w, r);
    for (bool more = first(w, ATTN_ROLE_VALUE, ATTN_ROLE_VALUE); more; more = next(w, ATTN_ROLE_VALUE, ATTN_ROLE_VALUE))
        out->o[OFFSET(w, o) + (packed ? begin * token->o : 0)] = 0;
    int64_t i = 0;
    for (bool more = first(w, ATTN_ROLE_KEY, ATTN_ROLE_KEY); more; more = next(w, ATTN_ROLE_KEY, ATTN_ROLE_KEY)) {
        look(w);
        /* The value of a key with the fill is not read if its weight is 0. */
        if (r->taken[i] && (r->own[i] || r->weight[i] != 0))
            for (bool value = first(w, ATTN_ROLE_VALUE, ATTN_ROLE_VALUE); value;
                 value = next(w, ATTN_ROLE_VALUE, ATTN_ROLE_VALUE))
                out->o[OFFSET(w, o) + (packed ? begin * token->o : 0)] += r->weight[i] * pair_value(w);
        i++;
    }
}

void attend_exact(const attn_problem *problem, const attn_arrays *arrays, const attend_exact_arrays *out)
{
    walk w = {.p = problem, .a = arrays};
    size_t keys = 1;
    for (int d = 0; d < problem->ndims; d++)
        keys *= problem->dims[d].role == ATTN_ROLE_KEY ? (size_t)problem->dims[d].n : 1;
    row r = {.x = calloc(keys + 1, sizeof *r.x),
             .weight = calloc(keys + 1, sizeof *r.weight),
             .taken = calloc(keys + 1, sizeof *r.taken),
             .own = calloc(keys + 1, sizeof *r.own)};
    if (!r.x || !r.weight || !r.taken || !r.own)
        abort();
    for (bool more = first(&w, ATTN_ROLE_BATCH, ATTN_ROLE_QUERY); more;
         more = next(&w, ATTN_ROLE_BATCH, ATTN_ROLE_QUERY))
        one_row(&w, &r, out);
    free(r.x), free(r.weight), free(r.taken), free(r.own);
}
