/* SPDX-License-Identifier: MIT
 * The features of the problem grammar: each adds an operand, a band or a setting to a problem whose form stands. */
#include "attend/problem/grammar.h"

#include "attend/scores/score.h"
#include "attend/problem/operand.h"
#include "base/context.h"

static bool has(const attn__phrase *phrase, attn__feature feature)
{
    return attn__phrase_has(phrase, feature);
}

/* Contiguous strides for an operand over the dims of `roles`, and over the first dim if `first`; the last dim is the
 * fastest.  False if they overflow. */
static bool lay(attn_problem *p, attn__operand op, int roles, bool first)
{
    int64_t stride = 1;
    for (int i = p->ndims - 1; i >= 0; i--) {
        attn_dim *dim = &p->dims[i];
        if (!(roles >> dim->role & 1) && !(first && i == 0))
            continue;
        int64_t n = attn__operand_length(p, i, op);
        *attn__stride_at(dim, op) = stride;
        if (__builtin_mul_overflow(stride, n > 0 ? n : 1, &stride))
            return false;
    }
    return true;
}

/* A bias by distance: for each pair of a QUERY and a KEY dim, the last ones first, a number for each difference of their
 * indices; for each BATCH index but the first dim's.  With buckets, an index of the differences into rows of so many. */
static bool lay_distances(attn_problem *p, int64_t buckets)
{
    int64_t stride = 1;
    int key = p->ndims, query = p->ndims;
    bool fits = true;
    for (;;) {
        do
            key--;
        while (key >= 0 && p->dims[key].role != ATTN_ROLE_KEY);
        do
            query--;
        while (query >= 0 && p->dims[query].role != ATTN_ROLE_QUERY);
        if (key < 0 || query < 0)
            break;
        p->dims[query].bias = -stride, p->dims[key].bias = stride;
        int64_t n = p->dims[query].n + p->dims[key].n;
        fits = fits && !__builtin_mul_overflow(stride, n > 1 ? n - 1 : 1, &stride);
    }
    p->bias_index = (attn_bias_index){.rows = buckets, .row_stride = buckets > 0};
    stride = buckets > 0 ? buckets : stride;
    for (int i = p->ndims - 1; i > 0; i--)
        if (p->dims[i].role == ATTN_ROLE_BATCH) {
            p->dims[i].bias = stride;
            fits = fits && !__builtin_mul_overflow(stride, p->dims[i].n > 0 ? p->dims[i].n : 1, &stride);
        }
    return fits;
}

/* Of the last QUERY and KEY dims, the same for all others. */
static void add_blocks(attn_problem *p, int64_t size)
{
    int query = attn__last_dim(p, ATTN_ROLE_QUERY), key = attn__last_dim(p, ATTN_ROLE_KEY);
    p->flags |= ATTN_WITH_BLOCKS;
    p->blocks = (attn_blocks){query, key, size, size};
    p->dims[key].blocks = 1;
    p->dims[query].blocks = attn__operand_length(p, key, ATTN__OP_BLOCKS);
}

static bool add_operands(attn_problem *p, const attn__phrase *s)
{
    const int rows = ATTN__IN_BATCH | ATTN__IN_QUERY;
    bool fits = true;
    if (has(s, ATTN__FEATURE_BIAS) || has(s, ATTN__FEATURE_BIASK)) {
        fits = fits && lay(p, ATTN__OP_BIAS, ATTN__IN_KEY | (has(s, ATTN__FEATURE_BIAS) ? rows : 0), false);
        p->flags |= ATTN_WITH_BIAS;
    }
    bool buckets = has(s, ATTN__FEATURE_BUCKETS);
    if (has(s, ATTN__FEATURE_BIASD) || buckets) {
        fits = fits && lay_distances(p, buckets ? s->buckets : 0);
        p->flags |= ATTN_WITH_BIAS | (buckets ? ATTN_WITH_BIAS_INDEX : 0u);
    }
    if (has(s, ATTN__FEATURE_MASK) || has(s, ATTN__FEATURE_PAD)) {
        bool mask = has(s, ATTN__FEATURE_MASK);
        fits = fits && lay(p, ATTN__OP_MASK, ATTN__IN_KEY | (mask ? ATTN__IN_QUERY : 0), !mask);
        p->flags |= ATTN_WITH_MASK;
    }
    if (has(s, ATTN__FEATURE_BLOCKS))
        add_blocks(p, s->blocks);
    if (has(s, ATTN__FEATURE_LENS) || has(s, ATTN__FEATURE_LENSQ)) {
        fits = fits && lay(p, ATTN__OP_LENS, has(s, ATTN__FEATURE_LENSQ) ? ATTN__IN_QUERY : 0, true);
        p->flags |= ATTN_WITH_LENS;
        p->lens_dim = attn__last_dim(p, ATTN_ROLE_KEY);
    }
    if (has(s, ATTN__FEATURE_SINKS)) {
        fits = fits && lay(p, ATTN__OP_SINKS, ATTN__IN_BATCH, false);
        p->dims[0].sinks = 0;
        p->flags |= ATTN_WITH_SINKS;
    }
    if (attn__score_of(p)->vectors > 0)
        fits = fits && lay(p, ATTN__OP_W, ATTN__IN_CONTRACT, false);
    return fits;
}

static void add_band(attn_problem *p, int64_t lo, int64_t hi)
{
    p->bands[p->nbands++] = (attn_band){attn__last_dim(p, ATTN_ROLE_QUERY), attn__last_dim(p, ATTN_ROLE_KEY), lo, hi};
}

static void add_bands(attn_problem *p, const attn__phrase *s)
{
    int64_t more = p->dims[attn__last_dim(p, ATTN_ROLE_KEY)].n - p->dims[attn__last_dim(p, ATTN_ROLE_QUERY)].n;
    if (has(s, ATTN__FEATURE_CAUSAL))
        add_band(p, INT64_MIN, 0);
    p->packed.align_ends = (p->flags & ATTN_WITH_PACKED) && has(s, ATTN__FEATURE_CAUSAL_BR);
    if (has(s, ATTN__FEATURE_CAUSAL_BR))
        add_band(p, INT64_MIN, p->flags & ATTN_WITH_PACKED ? 0 : more);
    if (has(s, ATTN__FEATURE_BAND))
        add_band(p, s->lo, s->hi);
}

/* One table along a pair of dims for the channels [begin, end) of the last CONTRACT dim (0, 0: all): shared by heads,
 * contiguous, as long as the pair's furthest distance. */
static void add_table(attn_problem *p, int query_dim, int key_dim, int64_t begin, int64_t end)
{
    int64_t queries = p->dims[query_dim].n, keys = p->dims[key_dim].n, below = queries - 1, above = keys - 1;
    const attn_window *window = attn__window_of(p, key_dim);
    if (window) {
        int64_t reach = (keys - 1) * (window->dilation ? window->dilation : 1);
        bool shifted = window->border == ATTN_BORDER_SHIFT;
        below = shifted ? reach : -window->offset;
        above = shifted ? reach : reach + window->offset;
    }
    attn_relative *r = &p->relatives[p->nrelatives++];
    int last = attn__last_dim(p, ATTN_ROLE_CONTRACT);
    *r = (attn_relative){.query_dim = query_dim, .key_dim = key_dim, .offset = below, .begin = begin, .end = end};
    r->rows = below + above + 1 > 0 ? below + above + 1 : 0;
    r->stride[last] = 1;
    int64_t row = end > begin ? end - begin : p->dims[last].n;
    for (int i = last - 1; i >= 0; i--) {
        if (p->dims[i].role != ATTN_ROLE_CONTRACT)
            continue;
        r->stride[i] = row;
        row *= p->dims[i].n;
    }
    r->row_stride = row;
}

/* With a window, rows' distances serve the first half of the channels and columns' the second (Ramachandran et al.
 * 2019). */
static attn_status add_relative(attn_problem *p, attn_context *context)
{
    int query = attn__last_dim(p, ATTN_ROLE_QUERY), key = attn__last_dim(p, ATTN_ROLE_KEY);
    int64_t channels = p->dims[attn__last_dim(p, ATTN_ROLE_CONTRACT)].n;
    if (p->nwindows < 2) {
        add_table(p, query, key, 0, 0);
        return ATTN_OK;
    }
    if (channels % 2 != 0 || channels == 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "rel needs an even number of channels in a window");
    add_table(p, query - 1, key - 1, 0, channels / 2);
    add_table(p, query, key, channels / 2, channels);
    return ATTN_OK;
}

static void choose_kinds(attn_problem *p, const attn__phrase *s)
{
    for (int score = 0; score < ATTN_SCORE_COUNT; score++)
        if (has(s, (attn__feature)(ATTN__FEATURE_SCORE_DOT + score)))
            p->score = (attn_score)score;
    p->normalization = has(s, ATTN__FEATURE_OVER_N)       ? ATTN_NORMALIZATION_MEAN
                       : has(s, ATTN__FEATURE_KERNEL_SUM) ? ATTN_NORMALIZATION_SUM
                                                          : ATTN_NORMALIZATION_SOFTMAX;
    p->dtype = has(s, ATTN__FEATURE_BF16) ? ATTN_BF16 : has(s, ATTN__FEATURE_F64) ? ATTN_F64 : ATTN_F32;
    if (has(s, ATTN__FEATURE_SCALE))
        p->scale = s->scale;
    p->softcap = s->softcap;
    p->dropout = s->dropout;
    p->mask_fill = s->fill;
    p->seed = s->dropout > 0 ? 1 : 0;
}

static void want_gradients(attn_problem *p)
{
    p->flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    if (p->flags & ATTN_WITH_BIAS)
        p->flags |= ATTN_WANT_DBIAS;
    if (p->flags & ATTN_WITH_SINKS)
        p->flags |= ATTN_WANT_DSINKS;
    if (p->nrelatives > 0)
        p->flags |= ATTN_WANT_DTABLES;
    if (attn__score_of(p)->vectors > 0)
        p->flags |= ATTN_WANT_DW;
}

attn_status attn__phrase_features(attn_problem *problem, attn_context *context, const attn__phrase *phrase)
{
    choose_kinds(problem, phrase);
    if (!add_operands(problem, phrase))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "its bias, mask or lengths would be too large");
    add_bands(problem, phrase);
    if (has(phrase, ATTN__FEATURE_REL) && add_relative(problem, context) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (has(phrase, ATTN__FEATURE_LSE))
        problem->flags |= ATTN_WANT_LSE;
    if (has(phrase, ATTN__FEATURE_DLSE) && problem->direction == ATTN_DIRECTION_BACKWARD)
        problem->flags |= ATTN_WITH_DLSE;
    if (problem->direction == ATTN_DIRECTION_BACKWARD)
        want_gradients(problem);
    return ATTN_OK;
}
