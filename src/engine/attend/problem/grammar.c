/* SPDX-License-Identifier: MIT
 * Reads a problem from text. attn_problem_parse documents the grammar. */
#include "attend/problem/operand.h"
#include "attend/scores/score.h"
#include "base/context.h"
#include "base/real.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum grammar_form { FORM_HEADS = 0, FORM_ADDITIVE, FORM_AXIS, FORM_TIED, FORM_WINDOW, FORM_FORMS } grammar_form;

/* X(NAME, text, kind, field, forms). `kind` of the value after '=': 0 (none), 'X' (real), 'N' (integer), 'R' (range).
 * `field` of grammar_phrase gets the value. `forms`: bits of the forms that allow the feature, or 0 if all forms do. */
#define FEATURE_MAP(X)                                                                                                 \
    X(BF16, "bf16", 0, form, 0)                                                                                        \
    X(F64, "f64", 0, form, 0)                                                                                          \
    X(CAUSAL, "causal", 0, form, 0)                                                                                    \
    X(CAUSAL_BR, "causal-br", 0, form, 0)                                                                              \
    X(BAND, "band", 'R', lo, 0)                                                                                        \
    X(LENS, "lens", 0, form, 0)                                                                                        \
    X(LENSQ, "lensq", 0, form, 0)                                                                                      \
    X(PACKED, "packed", 'N', packed, 1 << FORM_HEADS)                                                                  \
    X(PAD, "pad", 0, form, 0)                                                                                          \
    X(MASK, "mask", 0, form, 0)                                                                                        \
    X(BLOCKS, "blocks", 'N', blocks, 0)                                                                                \
    X(BIAS, "bias", 0, form, 0)                                                                                        \
    X(BIASK, "biask", 0, form, 0)                                                                                      \
    X(BIASD, "biasd", 0, form, 0)                                                                                      \
    X(BUCKETS, "buckets", 'N', buckets, 0)                                                                             \
    X(REL, "rel", 0, form, 0)                                                                                          \
    X(DROPOUT, "dropout", 'X', dropout, 0)                                                                             \
    X(FILL, "fill", 'X', fill, 0)                                                                                      \
    X(SCALE, "scale", 'X', scale, 0)                                                                                   \
    X(SOFTCAP, "softcap", 'X', softcap, 0)                                                                             \
    X(LSE, "lse", 0, form, 0)                                                                                          \
    X(SINKS, "sinks", 0, form, 0)                                                                                      \
    X(DLSE, "dlse", 0, form, 0)                                                                                        \
    X(OVER_N, "over-n", 0, form, 0)                                                                                    \
    X(KERNEL_SUM, "kernel-sum", 0, form, 0)                                                                            \
    X(HARDMAX, "hardmax", 0, form, 0)                                                                                  \
    X(NONE, "none", 0, form, 0)                                                                                        \
    X(SIGMOID, "sigmoid", 0, form, 0)                                                                                  \
    X(SIGMOID_BIAS, "sigmoid-bias", 'X', sigmoid_bias, 0)                                                              \
    X(TOP_K, "topk", 'N', top_k, 0)                                                                                    \
    X(BTHD, "bthd", 0, form, 1 << FORM_HEADS | 1 << FORM_ADDITIVE)                                                     \
    X(BHTD, "bhtd", 0, form, 1 << FORM_HEADS | 1 << FORM_ADDITIVE)                                                     \
    X(ROW, "row", 0, form, 1 << FORM_AXIS)                                                                             \
    X(COL, "col", 0, form, 1 << FORM_AXIS)                                                                             \
    X(AXIS, "axis", 'N', axis, 1 << FORM_AXIS)                                                                         \
    X(FIRST, "first", 0, form, 1 << FORM_AXIS)                                                                         \
    X(ZERO, "zero", 0, form, 1 << FORM_WINDOW)                                                                         \
    X(MASK_BORDER, "mask-border", 0, form, 1 << FORM_WINDOW)                                                           \
    X(SHIFT, "shift", 0, form, 1 << FORM_WINDOW)

typedef enum grammar_feature {
#define ATTN_X(NAME, text, value, field, forms) FEATURE_##NAME,
    FEATURE_MAP(ATTN_X)
#undef ATTN_X
#define ATTN_X(NAME, name) FEATURE_SCORE_##NAME,
        ATTN_SCORES(ATTN_X) /* in the order of attn_score, because FEATURE_SCORE_DOT + score is computed */
#undef ATTN_X
    FEATURES
} grammar_feature;

_Static_assert(FEATURES <= 64, "a phrase keeps its features in 64 bits");

enum { LENGTHS = 7 };

typedef struct grammar_phrase {
    grammar_form form;
    int nlengths; /* number of lengths in axis, tied and window; 2 for the text 256x256 */
    int64_t lengths[LENGTHS];
    int64_t letter['z' - 'a' + 1]; /* value of each letter; -1 if the letter is not given */
    int64_t taps_x;                /* horizontal taps, as in w7x5; -1: as many as vertical taps */
    uint64_t features;             /* bits 1 << grammar_feature */
    double dropout, fill, scale, softcap, sigmoid_bias;
    int64_t lo, hi, axis, packed, buckets, blocks, top_k;
} grammar_phrase;

static bool has(const grammar_phrase *phrase, grammar_feature feature)
{
    return phrase->features >> feature & 1;
}

static int64_t letter_of(const grammar_phrase *phrase, char letter, int64_t otherwise)
{
    int64_t value = phrase->letter[letter - 'a'];
    return value < 0 ? otherwise : value;
}

/* -------------------------------------------------------------------------------------------------- the form */

static attn_status fill_heads(attn_problem *problem, const grammar_phrase *s)
{
    int64_t queries = letter_of(s, 'q', 1), heads = letter_of(s, 'h', 1);
    int64_t keys = letter_of(s, 'k', queries);
    return attn_problem_heads(
        problem, &(attn_heads){
                     .batch = letter_of(s, 'b', 1),
                     .heads = heads,
                     .queries = queries,
                     .keys = keys,
                     .dim = letter_of(s, 'd', 1),
                     .kv_heads = letter_of(s, 'g', heads),
                     .dim_value = letter_of(s, 'v', 0),
                     .layout = has(s, FEATURE_BHTD) ? ATTN_LAYOUT_BHTD : ATTN_LAYOUT_BTHD,
                     .packed = has(s, FEATURE_PACKED),
                     .packed_queries = s->packed,
                     .packed_keys = queries ? (int64_t)((double)s->packed / (double)queries * (double)keys) : s->packed,
                 });
}

static attn_status fill_axis(attn_problem *problem, const grammar_phrase *s)
{
    bool first = has(s, FEATURE_FIRST);
    attn_axis axis = {.rank = s->nlengths + 1, .heads = letter_of(s, 'h', 1)};
    for (int i = 0; i < s->nlengths; i++)
        axis.shape[i + first] = s->lengths[i];
    axis.channel_axis = first ? 0 : s->nlengths;
    axis.shape[axis.channel_axis] = letter_of(s, 'c', 1);
    int64_t along = s->nlengths - 1;
    if (has(s, FEATURE_COL))
        along = 0;
    if (has(s, FEATURE_AXIS))
        along = s->axis;
    axis.axis = (int)along + first;
    return attn_problem_axis(problem, &axis);
}

static attn_status fill_tied(attn_problem *problem, const grammar_phrase *s)
{
    return attn_problem_tied_rows(problem, s->lengths[0], s->lengths[1], letter_of(s, 'b', 1), letter_of(s, 'h', 1),
                                  letter_of(s, 'd', 1));
}

static attn_status fill_window(attn_problem *problem, const grammar_phrase *s)
{
    attn_border border = has(s, FEATURE_ZERO)    ? ATTN_BORDER_ZERO
                         : has(s, FEATURE_SHIFT) ? ATTN_BORDER_SHIFT
                                                 : ATTN_BORDER_MASK;
    int64_t taps = letter_of(s, 'w', 1);
    return attn_problem_window2d(problem, &(attn_window2d){
                                              .batch = letter_of(s, 'b', 1),
                                              .height = s->lengths[0],
                                              .width = s->lengths[1],
                                              .heads = letter_of(s, 'h', 1),
                                              .dim = letter_of(s, 'd', 1),
                                              .window_y = taps,
                                              .window_x = s->taps_x < 0 ? taps : s->taps_x,
                                              .step = letter_of(s, 's', 0),
                                              .dilation = letter_of(s, 'l', 0),
                                              .border = border,
                                          });
}

static attn_status phrase_form(attn_problem *problem, attn_context *context, const grammar_phrase *phrase)
{
    static attn_status (*const fillers[FORM_FORMS])(attn_problem *, const grammar_phrase *) = {
        [FORM_HEADS] = fill_heads, [FORM_ADDITIVE] = fill_heads, [FORM_AXIS] = fill_axis,
        [FORM_TIED] = fill_tied,   [FORM_WINDOW] = fill_window,
    };
    if (phrase->form == FORM_AXIS && has(phrase, FEATURE_AXIS) && phrase->axis >= phrase->nlengths)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "axis=%lld: there is no such axis; the axes are 0 to %d",
                          (long long)phrase->axis, phrase->nlengths - 1);
    if (fillers[phrase->form](problem, phrase) != ATTN_OK) /* without a context */
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s", attn_context_error(NULL));
    if (phrase->form == FORM_ADDITIVE)
        problem->score = ATTN_SCORE_ADDITIVE;
    return ATTN_OK;
}

/* ---------------------------------------------------------------------------------------------- the features */

/* Gives an operand contiguous strides along the dims of `roles`. If `first` is set, also along the first dim. The last
 * dim varies fastest.  Returns false if the strides overflow. */
static bool lay(attn_problem *p, attn__operand op, int roles, bool first)
{
    int64_t stride = 1;
    for (int i = p->ndims - 1; i >= 0; i--) {
        attn_dim *dim = &p->dims[i];
        if (!(roles >> dim->role & 1) && !(first && i == 0))
            continue;
        int64_t n = attn__operand_length(p, dim, i, op);
        *attn__stride_at(dim, op) = stride;
        if (__builtin_mul_overflow(stride, n > 0 ? n : 1, &stride))
            return false;
    }
    return true;
}

/* Sets the strides of a bias by distance. It has one number for each difference of the indices of a QUERY and a KEY
 * dim. The last pair of dims varies fastest.  Each BATCH index has its own bias, except along the first dim. With
 * buckets, a difference selects an entry of the index, which names a row of a table with `buckets` rows. */
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

/* Adds a mask of blocks along the last QUERY and KEY dims. All indices of other dims share the mask. */
static void add_blocks(attn_problem *p, int64_t size)
{
    int query = attn__last_dim(p, ATTN_ROLE_QUERY), key = attn__last_dim(p, ATTN_ROLE_KEY);
    p->flags |= ATTN_WITH_BLOCKS;
    p->blocks = (attn_blocks){query, key, size, size};
    p->dims[key].blocks = 1;
    p->dims[query].blocks = attn__operand_length(p, &p->dims[key], key, ATTN__OP_BLOCKS);
}

/* Returns the name of an operand that would be too large, or NULL. */
static const char *add_operands(attn_problem *p, const grammar_phrase *s)
{
    const int rows = ATTN__IN_BATCH | ATTN__IN_QUERY;
    const char *large = NULL;
    if (has(s, FEATURE_BIAS) || has(s, FEATURE_BIASK)) {
        if (!lay(p, ATTN__OP_BIAS, ATTN__IN_KEY | (has(s, FEATURE_BIAS) ? rows : 0), false))
            large = "bias";
        p->flags |= ATTN_WITH_BIAS;
    }
    bool buckets = has(s, FEATURE_BUCKETS);
    if (has(s, FEATURE_BIASD) || buckets) {
        if (!lay_distances(p, buckets ? s->buckets : 0))
            large = "bias";
        p->flags |= ATTN_WITH_BIAS | (buckets ? ATTN_WITH_BIAS_INDEX : 0u);
    }
    if (has(s, FEATURE_MASK) || has(s, FEATURE_PAD)) {
        bool mask = has(s, FEATURE_MASK);
        if (!lay(p, ATTN__OP_MASK, ATTN__IN_KEY | (mask ? ATTN__IN_QUERY : 0), !mask))
            large = "mask";
        p->flags |= ATTN_WITH_MASK;
    }
    if (has(s, FEATURE_BLOCKS))
        add_blocks(p, s->blocks);
    if (has(s, FEATURE_LENS) || has(s, FEATURE_LENSQ)) {
        if (!lay(p, ATTN__OP_LENS, has(s, FEATURE_LENSQ) ? ATTN__IN_QUERY : 0, true))
            large = "array of lengths";
        p->flags |= ATTN_WITH_LENS;
        p->lens_dim = attn__last_dim(p, ATTN_ROLE_KEY);
    }
    if (has(s, FEATURE_SINKS)) {
        if (!lay(p, ATTN__OP_SINKS, ATTN__IN_BATCH, false))
            large = "array of sinks";
        p->dims[0].sinks = 0;
        p->flags |= ATTN_WITH_SINKS;
    }
    if (attn__score_of(p)->vectors > 0 && !lay(p, ATTN__OP_W, ATTN__IN_CONTRACT, false))
        large = "vector w";
    return large;
}

static void add_band(attn_problem *p, int64_t lo, int64_t hi)
{
    p->bands[p->nbands++] = (attn_band){attn__last_dim(p, ATTN_ROLE_QUERY), attn__last_dim(p, ATTN_ROLE_KEY), lo, hi};
}

static void add_bands(attn_problem *p, const grammar_phrase *s)
{
    int64_t more = p->dims[attn__last_dim(p, ATTN_ROLE_KEY)].n - p->dims[attn__last_dim(p, ATTN_ROLE_QUERY)].n;
    if (has(s, FEATURE_CAUSAL))
        add_band(p, INT64_MIN, 0);
    p->packed.align_ends = (p->flags & ATTN_WITH_PACKED) && has(s, FEATURE_CAUSAL_BR);
    if (has(s, FEATURE_CAUSAL_BR))
        add_band(p, INT64_MIN, p->flags & ATTN_WITH_PACKED ? 0 : more);
    if (has(s, FEATURE_BAND))
        add_band(p, s->lo, s->hi);
}

/* Adds a contiguous table along a pair of dims for channels [begin, end) of the last CONTRACT dim. The range 0, 0 means
 * all channels.  All heads share the table. It has one row for each possible distance of the pair. */
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

/* Adds relative tables. In a window, the table of row distances serves the first half of the channels, and the table of
 * column distances the second half (Ramachandran et al. 2019). */
static attn_status add_relative(attn_problem *p, attn_context *context)
{
    int query = attn__last_dim(p, ATTN_ROLE_QUERY), key = attn__last_dim(p, ATTN_ROLE_KEY);
    int64_t channels = p->dims[attn__last_dim(p, ATTN_ROLE_CONTRACT)].n;
    if (p->nwindows < 2) {
        add_table(p, query, key, 0, 0);
        return ATTN_OK;
    }
    if (channels % 2 != 0 || channels == 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "rel needs an even number of channels in a window, found %lld",
                          (long long)channels);
    add_table(p, query - 1, key - 1, 0, channels / 2);
    add_table(p, query, key, channels / 2, channels);
    return ATTN_OK;
}

static void choose_kinds(attn_problem *p, const grammar_phrase *s)
{
    for (int score = 0; score < ATTN_SCORE_COUNT; score++)
        if (has(s, (grammar_feature)(FEATURE_SCORE_DOT + score)))
            p->score = (attn_score)score;
    p->normalization = has(s, FEATURE_OVER_N)       ? ATTN_NORMALIZATION_MEAN
                       : has(s, FEATURE_KERNEL_SUM) ? ATTN_NORMALIZATION_SUM
                       : has(s, FEATURE_HARDMAX)    ? ATTN_NORMALIZATION_HARDMAX
                       : has(s, FEATURE_NONE)       ? ATTN_NORMALIZATION_NONE
                       : has(s, FEATURE_SIGMOID)    ? ATTN_NORMALIZATION_SIGMOID
                                                    : ATTN_NORMALIZATION_SOFTMAX;
    p->own_sigmoid_bias = has(s, FEATURE_SIGMOID_BIAS);
    p->sigmoid_bias = s->sigmoid_bias;
    p->top_k = s->top_k;
    p->dtype = has(s, FEATURE_BF16) ? ATTN_BF16 : has(s, FEATURE_F64) ? ATTN_F64 : ATTN_F32;
    if (has(s, FEATURE_SCALE))
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

static attn_status phrase_features(attn_problem *problem, attn_context *context, const grammar_phrase *phrase)
{
    choose_kinds(problem, phrase);
    const char *large = add_operands(problem, phrase);
    if (large)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the size of the problem's %s overflows", large);
    add_bands(problem, phrase);
    if (has(phrase, FEATURE_REL) && add_relative(problem, context) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (has(phrase, FEATURE_LSE))
        problem->flags |= ATTN_WANT_LSE;
    if (has(phrase, FEATURE_DLSE) && problem->direction == ATTN_DIRECTION_BACKWARD)
        problem->flags |= ATTN_WITH_DLSE;
    if (problem->direction == ATTN_DIRECTION_BACKWARD)
        want_gradients(problem);
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------------------- reading */

static const struct {
    const char *name;
    int lengths, most_lengths;
    const char *letters, *needed;
} forms[FORM_FORMS] = {
    [FORM_HEADS] = {"", 0, 0, "bhqkdgv", "qd"},        [FORM_ADDITIVE] = {"add", 0, 0, "bhqkdgv", "qd"},
    [FORM_AXIS] = {"axis", 1, LENGTHS, "ch", "ch"},    [FORM_TIED] = {"tied", 2, 2, "bhd", "hd"},
    [FORM_WINDOW] = {"window", 2, 2, "bhdwsl", "hdw"},
};

static const struct {
    const char *name;
    char value;
    int forms;
    size_t at; /* offset of the value's field in grammar_phrase */
} features[FEATURES] = {
#define ATTN_X(NAME, text, value, field, forms)                                                                        \
    [FEATURE_##NAME] = {text, value, forms, offsetof(grammar_phrase, field)},
    FEATURE_MAP(ATTN_X)
#undef ATTN_X
#define ATTN_X(NAME, name) [FEATURE_SCORE_##NAME] = {#name, 0, 0, 0},
        ATTN_SCORES(ATTN_X)
#undef ATTN_X
};

/* Features that exclude each other are listed as a set of bits. */
#define BIT(NAME) (UINT64_C(1) << FEATURE_##NAME)
static const uint64_t rivals[] = {
    BIT(BF16) | BIT(F64),
    BIT(BIAS) | BIT(BIASK) | BIT(BIASD) | BIT(BUCKETS),
    BIT(PAD) | BIT(MASK),
    BIT(LENS) | BIT(LENSQ),
    BIT(BTHD) | BIT(BHTD),
    BIT(ROW) | BIT(COL) | BIT(AXIS),
    BIT(ZERO) | BIT(MASK_BORDER) | BIT(SHIFT),
    BIT(OVER_N) | BIT(KERNEL_SUM) | BIT(HARDMAX) | BIT(NONE) | BIT(SIGMOID) | BIT(TOP_K),
    ((UINT64_C(1) << ATTN_SCORE_COUNT) - 1) << FEATURE_SCORE_DOT,
};

typedef struct reader {
    attn_context *context;
    const char *text, *at;
    grammar_phrase *phrase;
} reader;

/* Stores an error with its position in the text. The first character has position 1. */
static attn_status refuse(const reader *r, const char *why)
{
    return attn__fail(r->context, ATTN_ERROR_ARGUMENT, "problem \"%.100s\", character %d: %s", r->text,
                      (int)(r->at - r->text) + 1, why);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static attn_status read_size(reader *r, int64_t *value)
{
    const int64_t most = INT64_C(1) << 40;
    const char *begin = r->at;
    *value = 0;
    if (!is_digit(*r->at))
        return refuse(r, "expected a number");
    for (; is_digit(*r->at); r->at++) {
        *value = *value * 10 + (*r->at - '0');
        if (*value > most) {
            r->at = begin;
            return refuse(r, "the number is larger than 2^40");
        }
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ form */

static void read_form_name(reader *r)
{
    r->phrase->form = FORM_HEADS;
    for (int i = FORM_HEADS + 1; i < FORM_FORMS; i++) {
        size_t length = strlen(forms[i].name);
        if (strncmp(r->at, forms[i].name, length) != 0)
            continue;
        r->phrase->form = (grammar_form)i;
        r->at += length;
        while (*r->at == ' ')
            r->at++;
        return;
    }
}

static attn_status read_lengths(reader *r)
{
    grammar_phrase *s = r->phrase;
    attn_status status = ATTN_OK;
    if (forms[s->form].most_lengths == 0)
        return ATTN_OK;
    do {
        if (s->nlengths == forms[s->form].most_lengths) {
            char why[48];
            snprintf(why, sizeof why, "this form has at most %d lengths", forms[s->form].most_lengths);
            return refuse(r, why);
        }
        r->at += s->nlengths > 0;
        status = read_size(r, &s->lengths[s->nlengths]);
        s->nlengths++;
    } while (status == ATTN_OK && *r->at == 'x');
    if (status == ATTN_OK && s->nlengths < forms[s->form].lengths)
        return refuse(r, "expected 'x' and another length");
    return status;
}

static attn_status read_letter(reader *r)
{
    grammar_phrase *s = r->phrase;
    char letter = *r->at, why[80];
    if (!strchr(forms[s->form].letters, letter)) {
        snprintf(why, sizeof why, "expected one of the letters %s, ':' or the end", forms[s->form].letters);
        return refuse(r, why);
    }
    if (s->letter[letter - 'a'] >= 0) {
        snprintf(why, sizeof why, "the letter %c is given twice", letter);
        return refuse(r, why);
    }
    r->at++;
    attn_status status = read_size(r, &s->letter[letter - 'a']);
    if (status != ATTN_OK || s->form != FORM_WINDOW || letter != 'w' || *r->at != 'x')
        return status;
    r->at++;
    return read_size(r, &s->taps_x);
}

static attn_status read_form(reader *r)
{
    read_form_name(r);
    attn_status status = read_lengths(r);
    while (status == ATTN_OK && *r->at && *r->at != ':' && *r->at != ',')
        status = read_letter(r);
    const char *needed = forms[r->phrase->form].needed;
    for (int i = 0; status == ATTN_OK && needed[i]; i++) {
        char why[40];
        snprintf(why, sizeof why, "%c and its number are missing", needed[i]);
        if (r->phrase->letter[needed[i] - 'a'] < 0)
            status = refuse(r, why);
    }
    return status;
}

/* -------------------------------------------------------------------------------------------- features */

static attn_status read_real(reader *r, double *value)
{
    char *end;
    *value = attn__real_of_text(r->at, &end);
    if (end == r->at || !(*value >= -1e300 && *value <= 1e300))
        return refuse(r, "expected a finite number");
    r->at = end;
    return ATTN_OK;
}

/* Reads one end of a range such as "-128..0". If the end is missing, *value becomes `open`. */
static attn_status read_end(reader *r, int64_t open, int64_t *value)
{
    bool negative = *r->at == '-';
    *value = open;
    r->at += negative;
    if (!is_digit(*r->at))
        return negative ? refuse(r, "expected a number") : ATTN_OK;
    attn_status status = read_size(r, value);
    *value = negative ? -*value : *value;
    return status;
}

static attn_status read_range(reader *r)
{
    attn_status status = read_end(r, INT64_MIN, &r->phrase->lo);
    if (status != ATTN_OK)
        return status;
    if (strncmp(r->at, "..", 2) != 0)
        return refuse(r, "expected a range such as -128..0");
    r->at += 2;
    return read_end(r, INT64_MAX, &r->phrase->hi);
}

static attn_status read_value(reader *r, grammar_feature feature)
{
    grammar_phrase *s = r->phrase;
    if (!features[feature].value)
        return ATTN_OK;
    char why[80];
    if (*r->at != '=') {
        snprintf(why, sizeof why, "expected '=' and a value after %s", features[feature].name);
        return refuse(r, why);
    }
    r->at++;
    void *value = (char *)s + features[feature].at;
    if (features[feature].value == 'R')
        return read_range(r);
    if (features[feature].value == 'N')
        return read_size(r, value);
    const char *begin = r->at;
    attn_status status = read_real(r, value);
    if (status != ATTN_OK || feature != FEATURE_DROPOUT || (s->dropout >= 0 && s->dropout < 1))
        return status;
    r->at = begin;
    snprintf(why, sizeof why, "dropout is %g; it must be at least 0 and less than 1", s->dropout);
    return refuse(r, why);
}

static attn_status refuse_feature(const reader *r, size_t length)
{
    char why[600];
    int used = snprintf(why, sizeof why, "there is no feature \"%.*s\" for this form; there are",
                        (int)(length < 40 ? length : 40), r->at);
    for (int i = 0; i < FEATURES && used < (int)sizeof why; i++)
        if (!features[i].forms || (features[i].forms >> r->phrase->form & 1))
            used += snprintf(why + used, sizeof why - (size_t)used, " %s%s", features[i].name,
                             features[i].value ? "=" : "");
    return refuse(r, why);
}

static attn_status check_rivals(const reader *r, grammar_feature feature)
{
    uint64_t bit = UINT64_C(1) << feature;
    char why[80];
    if (r->phrase->features & bit) {
        snprintf(why, sizeof why, "%s is given twice", features[feature].name);
        return refuse(r, why);
    }
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) {
        uint64_t other = r->phrase->features & rivals[i];
        if (!(rivals[i] & bit) || !other)
            continue;
        snprintf(why, sizeof why, "%s and %s cannot be used together", features[feature].name,
                 features[__builtin_ctzll(other)].name);
        return refuse(r, why);
    }
    return ATTN_OK;
}

static attn_status read_feature(reader *r)
{
    size_t length = strcspn(r->at, ",:=");
    int i = 0;
    while (i < FEATURES && (strlen(features[i].name) != length || memcmp(features[i].name, r->at, length) != 0))
        i++;
    if (i == FEATURES || (features[i].forms && !(features[i].forms >> r->phrase->form & 1)))
        return refuse_feature(r, length);
    attn_status status = check_rivals(r, (grammar_feature)i);
    if (status != ATTN_OK)
        return status;
    r->phrase->features |= UINT64_C(1) << i;
    r->at += length;
    return read_value(r, (grammar_feature)i);
}

static attn_status read_features(reader *r)
{
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && *r->at) {
        if (*r->at != ':' && *r->at != ',')
            return refuse(r, "expected ',' or the end");
        r->at++;
        status = read_feature(r);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------- all */

attn_status attn_problem_parse(attn_problem *problem, attn_context *context, const char *text, attn_direction direction)
{
    ATTN__CALL(context);
    grammar_phrase phrase = {.taps_x = -1};
    reader r = {.context = context, .text = text, .at = text, .phrase = &phrase};
    *problem = (attn_problem){0};
    for (size_t i = 0; i < sizeof phrase.letter / sizeof *phrase.letter; i++)
        phrase.letter[i] = -1;
    if (direction != ATTN_DIRECTION_FORWARD && direction != ATTN_DIRECTION_BACKWARD)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "direction %d is neither forward nor backward", (int)direction);
    attn_status status = read_form(&r);
    if (status == ATTN_OK)
        status = read_features(&r);
    if (status == ATTN_OK)
        status = phrase_form(problem, context, &phrase);
    if (status == ATTN_OK) {
        problem->direction = direction;
        status = phrase_features(problem, context, &phrase);
    }
    return status;
}
