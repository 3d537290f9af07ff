/* SPDX-License-Identifier: MIT
 *
 * Tests which pairs of a query and a key count, with one NaN in a value, in a gradient of the output or in a table.
 * Many weights are 0, because their scores are so small. A double loop over the pairs computes what is expected:
 *
 *   alive    the pair is visible, kept by top_k or hardmax, and its score is not -infinity, whatever its weight. Such
 *            pairs count in the log-sum-exp and in the gradients of q, k, bias, score tables and w.
 *   counted  the pair is alive, or is filled (mask_fill) with a weight that is not 0, and is not dropped. Such pairs
 *            count in o and in the gradients of v and value tables.
 *
 * A product of a pair that counts is computed as it is, so that 0 times NaN is NaN. Other pairs add nothing.
 * ATTN_TEST_STEP=N runs only every N-th problem.
 */
#include "support/cmocka.h"

#include "support/attend_ref_walk.h"
#include "support/random_arrays.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHANNELS = 256, MOST_SOLVERS = 32, TYPES = 3, SHOWN = 4 };

/* ------------------------------------------------------------------------------------------------ the matrix */

/* Between them, each solver takes some of these problems. */
static const char *const forms[] = {
    "b2h3q1k67d32", "b1h5q1k131d64v48", "b2h3q16k13d32", "b2h3q17k14d8", "b2h9q3k5d4", "b1h1q35k71d64",
    "b1h2q37k46d16v24", "b1h1q129k33d64", "b1h2q13k29d5v150", "tied3x17h2d8b2", "window5x7w3h2d8b2",
    "window5x7w3h2d8b2:zero", "window6x11w5h1d4l2", "addb1h2q9k11d8",
    /* each solver needs several blocks of keys; these run only with cases that are LATE */
    "b1h2q3k1031d16", "b1h2q17k600d8", "b1h1q97k520d32"};
enum { LONG_FORMS = 3, SHORT_FORMS = sizeof forms / sizeof *forms - LONG_FORMS };

enum { BIAS = 1, MINUS_INFINITY = 2, MASK = 4, SCORE_TABLES = 8, VALUE_TABLE = 16, MOST_LARGE = 32, LATE = 64 };
/* MOST_LARGE: top_k keeps all large scores and one other. LATE: only the last keys have large scores.
 * Such problems have several blocks of keys. They run forward, because weights of the backward pass are final. */
static const struct {
    const char *name, *text;
    unsigned with;
} cases[] = {
    {"plain", "", 0},
    {"bias of zeros", "", BIAS},
    {"bias of -infinity", "", BIAS | MINUS_INFINITY},
    {"mask", "", MASK},
    {"mask and bias of zeros", "", MASK | BIAS},
    {"softcap", ",softcap=900", 0},
    {"sinks", ",sinks", 0},
    {"dropout of few", ",dropout=0.1", 0},
    {"dropout of most", ",dropout=0.9", 0},
    {"dropout, mask and bias", ",dropout=0.5", MASK | BIAS},
    {"fill", ",fill=-2.5", MASK},
    {"fill of weight 0", ",fill=-1000000", MASK},
    {"fill and dropout", ",fill=-2.5,dropout=0.5", MASK},
    {"top_k", "", MOST_LARGE},
    {"top_k and mask", "", MOST_LARGE | MASK},
    {"top_k and fill", ",fill=-2.5", MOST_LARGE | MASK},
    {"hardmax", ",hardmax", 0},
    {"hardmax and mask", ",hardmax", MASK},
    {"no normalization", ",none", 0},
    {"no normalization, masked", ",none", MASK},
    {"no normalization, dropout", ",none,dropout=0.5", 0},
    {"sigmoid", ",sigmoid", 0},
    {"sigmoid, masked", ",sigmoid", MASK},
    {"sigmoid, bias of -infinity", ",sigmoid,sigmoid-bias=-0.5", BIAS | MINUS_INFINITY},
    {"sigmoid, softcap", ",sigmoid,softcap=900", MASK},
    {"sigmoid, dropout", ",sigmoid,dropout=0.5", MASK},
    {"sigmoid, score tables", ",sigmoid", SCORE_TABLES},
    {"sigmoid, value table", ",sigmoid", VALUE_TABLE | MASK},
    {"no normalization, bias", ",none", BIAS | MASK},
    {"over n", ",over-n", MASK},
    {"kernel sum", ",kernel-sum", 0},
    {"score tables", "", SCORE_TABLES},
    {"score tables and mask", "", SCORE_TABLES | MASK},
    {"score tables and dropout", ",dropout=0.5", SCORE_TABLES},
    {"value table", "", VALUE_TABLE},
    {"value table and mask", "", VALUE_TABLE | MASK},
    {"value table and dropout", ",dropout=0.5", VALUE_TABLE},
    {"value table and fill", ",fill=-1000000", VALUE_TABLE | MASK},
    {"fill that later keys outweigh", ",fill=-2.5", MASK | LATE},
    {"fill that later keys outweigh, and bias", ",fill=-2.5", MASK | BIAS | LATE},
    {"fill that later keys outweigh, and dropout", ",fill=-2.5,dropout=0.5", MASK | LATE},
    {"fill that later keys outweigh, and a value table", ",fill=-2.5", MASK | VALUE_TABLE | LATE},
    {"fill that equals the large scores", ",fill=800", MASK | LATE},
    {"fill that equals the small scores", ",fill=-800", MASK | LATE},
    {"fill of weight 0, of several blocks", ",fill=-1000000", MASK | LATE},
};

typedef enum poison { IN_FIRST_VALUE, IN_LAST_VALUE, IN_DOUT, IN_TABLE, POISONS } poison;
static const char *const poison_names[POISONS] = {"NaN in v of key 0", "NaN in v of the last small key",
                                                  "NaN in dout of rows 2 and 3", "NaN in a row of the value table"};
static const attn_dtype types[TYPES] = {ATTN_F32, ATTN_BF16, ATTN_F64};

/* ----------------------------------------------------------------------------------------------- the problems */

static int last_dim(const attn_problem *p, attn_role role)
{
    int d = p->ndims - 1;
    while (p->dims[d].role != role)
        d--;
    return d;
}

/* Returns the length of a dim, which is the number of positions for the keys of a window. */
static int64_t positions_of(const attn_problem *p, int dim)
{
    for (int i = 0; i < p->nwindows; i++)
        if (p->windows[i].key_dim == dim)
            return p->windows[i].size;
    return p->dims[dim].n;
}

/* Gives contiguous strides to the array of bias, or of mask. The mask of a window has no strides along queries. */
static void lay_out(attn_problem *p, bool mask)
{
    int64_t next = 1;
    for (int d = p->ndims - 1; d >= 0; d--) {
        attn_role role = p->dims[d].role;
        if (role >= ATTN_ROLE_CONTRACT || (mask && p->nwindows && role == ATTN_ROLE_QUERY))
            continue;
        *(mask ? &p->dims[d].mask : &p->dims[d].bias) = next;
        next *= mask ? positions_of(p, d) : p->dims[d].n;
    }
    p->flags |= mask ? ATTN_WITH_MASK : ATTN_WITH_BIAS;
}

static void add_table(attn_problem *p, attn_relative_kind kind)
{
    int query = last_dim(p, ATTN_ROLE_QUERY), key = last_dim(p, ATTN_ROLE_KEY);
    int64_t queries = p->dims[query].n, keys = positions_of(p, key), next = 1;
    int64_t reach = (queries > keys ? queries : keys) + 8;
    attn_relative *r = &p->relatives[p->nrelatives++];
    *r = (attn_relative){.kind = kind, .query_dim = query, .key_dim = key, .offset = reach, .rows = 2 * reach + 1};
    for (int d = p->ndims - 1; d >= 0; d--)
        if (p->dims[d].role == (kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT)) {
            r->stride[d] = next;
            next *= p->dims[d].n;
        }
    r->row_stride = next;
}

/* Returns the number of the walk's place among the indices of some roles. Keys are counted by their positions, and a
 * key outside of its axis has the number -1. */
static int64_t number_of(const walk *w, int roles)
{
    int64_t number = 0;
    for (int d = 0; d < w->p->ndims; d++) {
        if (!(roles >> w->p->dims[d].role & 1))
            continue;
        bool key = w->p->dims[d].role == ATTN_ROLE_KEY;
        int64_t n = positions_of(w->p, d), at = key ? w->pos[d] : w->at[d];
        if (at < 0 || at >= n)
            return -1;
        number = number * n + at;
    }
    return number;
}

static int64_t positions(const attn_problem *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->ndims; d++)
        n *= p->dims[d].role == ATTN_ROLE_KEY ? positions_of(p, d) : 1;
    return n;
}

static bool is_large(const attn_problem *p, size_t c, int64_t key)
{
    return cases[c].with & LATE ? key >= positions(p) - 3 : key % 3 == 1;
}

static void make_direction(attn_problem *p, attn_context *context, const char *form, size_t c, attn_dtype dtype,
                           attn_direction direction)
{
    char text[128];
    unsigned with = cases[c].with;
    snprintf(text, sizeof text, "%s%sscale=1%s", form, strchr(form, ':') ? "," : ":", cases[c].text);
    if (attn_problem_parse(p, context, text, direction) != ATTN_OK)
        fail_msg("%s: %s", text, attn_context_error(context));
    p->dtype = dtype;
    p->seed = 5, p->stream = 1;
    if (with & BIAS)
        lay_out(p, false);
    if (with & MASK)
        lay_out(p, true);
    if (with & SCORE_TABLES)
        add_table(p, ATTN_RELATIVE_QUERY), add_table(p, ATTN_RELATIVE_KEY);
    if (with & VALUE_TABLE)
        add_table(p, ATTN_RELATIVE_VALUE);
    if (with & MOST_LARGE)
        p->top_k = (positions(p) + 2) / 3 + 1;
    if (direction == ATTN_DIRECTION_FORWARD)
        p->flags |= p->normalization == ATTN_NORMALIZATION_SIGMOID ? 0u : ATTN_WANT_LSE;
    else
        p->flags |= (with & BIAS ? ATTN_WANT_DBIAS : 0u) | (p->nrelatives ? ATTN_WANT_DTABLES : 0u);
}

static void make(random_problem *r, attn_context *context, const char *form, size_t c, attn_dtype dtype)
{
    memset(r, 0, sizeof *r);
    make_direction(&r->forward, context, form, c, dtype, ATTN_DIRECTION_FORWARD);
    make_direction(&r->backward, context, form, c, dtype, ATTN_DIRECTION_BACKWARD);
    random_allocate(r);
}

/* ----------------------------------------------------------------------------------------------- the contents */

/* Sets the channels' offsets, from strides that are `step` bytes apart. */
static int64_t channels(const attn_problem *p, attn_role role, const void *strides, size_t step, int64_t *to)
{
    int64_t n = 0, stride;
    walk w = {.p = p};
    for (bool on = walk_start(&w, 1 << role); on; on = walk_next(&w, 1 << role)) {
        assert_true(n < MOST_CHANNELS);
        to[n] = 0;
        for (int d = 0; d < p->ndims; d++) {
            memcpy(&stride, (const char *)strides + (size_t)d * step, sizeof stride);
            to[n] += p->dims[d].role == role ? w.at[d] * stride : 0;
        }
        n++;
    }
    return n;
}
#define CHANNELS(p, role, field, to)                                                                                   \
    channels(p, role, (const char *)(p)->dims + offsetof(attn_dim, field), sizeof(attn_dim), to)

static bool is_exponential(attn_normalization how)
{
    return how == ATTN_NORMALIZATION_SOFTMAX || how == ATTN_NORMALIZATION_HARDMAX || how == ATTN_NORMALIZATION_SIGMOID;
}

static void fill_rows(random_problem *r, poison what)
{
    const attn_problem *p = &r->forward;
    bool add = p->score == ATTN_SCORE_ADDITIVE;
    int64_t q[MOST_CHANNELS], o[MOST_CHANNELS], nc = CHANNELS(p, ATTN_ROLE_CONTRACT, q, q),
                                                nv = CHANNELS(p, ATTN_ROLE_VALUE, o, o);
    walk w = {.p = p};
    for (bool on = walk_start(&w, ROLE_B | ROLE_Q); on; on = walk_next(&w, ROLE_B | ROLE_Q)) {
        int64_t row = number_of(&w, ROLE_B | ROLE_Q);
        for (int64_t c = 0; c < nc; c++)
            array_set(&r->array[ARRAY_Q], OFFSET(&w, q) + q[c],
                      c > 1 || (c == 1 && !add) ? (double)((number_of(&w, ROLE_Q) + c) % 3) - 1
                      : !add                    ? 1
                                                : 50.0 * (double)c);
        for (int64_t c = 0; c < nv; c++)
            array_set(&r->array[ARRAY_DOUT], OFFSET(&w, o) + o[c],
                      what == IN_DOUT && c == nv - 1 && (row == 2 || row == 3) ? (double)NAN
                                                                               : (double)((row + c) % 3) - 1);
    }
}

/* A third of the keys, or the last three, has large scores: 0, or 800 for the last, or 2 if a score of 0 is the small one. The others have small scores: -800,
 * or 0. The first channel of k makes the score. With additive scores, the first channel adds half of the difference or
 * subtracts it, and the second channel adds the mean, where tanh is 1 or -1. A key that is hidden from odd rows has
 * the NaN; another key is hidden from even rows, and all keys from some rows. Numbers are whole, so that each type
 * holds them. */
static void fill(random_problem *r, size_t c, poison what)
{
    const attn_problem *p = &r->forward;
    bool add = p->score == ATTN_SCORE_ADDITIVE;
    double large = cases[c].with & LATE               ? 800
                   : is_exponential(p->normalization) ? 0
                                                      : 2,
           small = is_exponential(p->normalization) ? -800 : 0;
    int64_t k[MOST_CHANNELS], v[MOST_CHANNELS], nc = CHANNELS(p, ATTN_ROLE_CONTRACT, k, k),
                                                nv = CHANNELS(p, ATTN_ROLE_VALUE, v, v), last = positions(p) - 1;
    while (is_large(p, c, last))
        last--;
    int64_t poisoned = what == IN_LAST_VALUE ? last : 0, other = 2;
    walk w = {.p = p};
    fill_rows(r, what);
    for (int64_t i = 0; i < r->array[ARRAY_W].n; i++)
        array_set(&r->array[ARRAY_W], i, i % nc == 0 ? (small - large) / 2 : i % nc == 1 ? (small + large) / 2 : 0);
    for (int64_t i = 0; i < r->array[ARRAY_SINKS].n; i++)
        array_set(&r->array[ARRAY_SINKS], i, -1);
    for (bool on = walk_start(&w, ROLE_B | ROLE_Q | ROLE_K); on; on = walk_next(&w, ROLE_B | ROLE_Q | ROLE_K)) {
        walk pair = w;
        walk_place(&pair, &r->arrays);
        int64_t key = number_of(&pair, ROLE_K);
        int64_t row = number_of(&w, p->nwindows && cases[c].with & MASK ? ROLE_B : ROLE_B | ROLE_Q);
        bool hidden = row % 5 == 3 || key == (row % 2 ? poisoned : other);
        double score = is_large(p, c, key) ? large : small;
        if (cases[c].with & BIAS)
            array_set(&r->array[ARRAY_BIAS], OFFSET(&pair, bias),
                      cases[c].with & MINUS_INFINITY && hidden ? (double)-INFINITY : 0);
        if (key < 0)
            continue;
        if (cases[c].with & MASK)
            ((uint8_t *)array_base(&r->array[ARRAY_MASK]))[POSITION_OFFSET(&pair, mask)] = !hidden;
        for (int64_t i = 0; i < nc; i++)
            array_set(&r->array[ARRAY_K], POSITION_OFFSET(&pair, k) + k[i],
                      i                     ? 0
                      : !add                ? score
                      : is_large(p, c, key) ? -50
                                            : 50);
        for (int64_t i = 0; i < nv; i++)
            array_set(&r->array[ARRAY_V], POSITION_OFFSET(&pair, v) + v[i],
                      what < IN_DOUT && i == nv - 1 && key == poisoned ? (double)NAN : (double)((key + i) % 5) - 2);
        for (int t = 0; t < p->nrelatives && what == IN_TABLE; t++) {
            int64_t offset;
            walk_table(&pair, t, &offset);
            if (offset == p->relatives[t].offset * p->relatives[t].row_stride)
                array_set(&r->array[ARRAY_TABLE + t], offset, (double)NAN);
        }
    }
}

/* Copies the numbers of the operands, or of the results of the forward pass, from a problem of another type. */
static void copy(random_problem *to, const random_problem *from)
{
    for (int id = 0; id < ARRAY_O; id++)
        for (int64_t i = 0; from->array[id].block && i < from->array[id].n; i++)
            if (from->array[id].dtype == ATTN_F64)
                array_set(&to->array[id], to->array[id].low + i, array_get(&from->array[id], from->array[id].low + i));
            else
                ((uint8_t *)to->array[id].block)[i] = ((const uint8_t *)from->array[id].block)[i];
}

/* ----------------------------------------------------------------------------------------- what is expected */

typedef enum pair_kind { OUT, FILLED, ALIVE } pair_kind;

typedef struct pair {
    walk at;
    pair_kind kind;
    bool counted;
    double score, cap_slope, weight, keep;
    int64_t k, v, q, w, table[ATTN_MAX_RELATIVE]; /* offsets of the first channels */
} pair;

typedef struct expected {
    const random_problem *r;
    double *value[ARRAY_COUNT]; /* at the offsets of the outputs */
    int64_t nc, nv, q[MOST_CHANNELS], k[MOST_CHANNELS], w[MOST_CHANNELS], v[MOST_CHANNELS], o[MOST_CHANNELS];
    int64_t table[ATTN_MAX_RELATIVE][MOST_CHANNELS];
    int64_t keys;
    pair *pairs;
} expected;

static double of(const expected *x, int id, int64_t offset)
{
    return array_get(&x->r->array[id], offset);
}

static bool is_value(const expected *x, int table)
{
    return x->r->forward.relatives[table].kind == ATTN_RELATIVE_VALUE;
}

static double key_channel(const expected *x, const pair *p, int64_t c)
{
    return p->at.inside ? of(x, ARRAY_K, p->k + x->k[c]) : 0;
}

static double value_channel(const expected *x, const pair *p, int64_t c)
{
    double v = p->at.inside ? of(x, ARRAY_V, p->v + x->v[c]) : 0;
    for (int t = 0; t < x->r->forward.nrelatives; t++)
        if (is_value(x, t))
            v += of(x, ARRAY_TABLE + t, p->table[t] + x->table[t][c]);
    return v;
}

static double score_of(const expected *x, pair *p)
{
    const attn_problem *problem = &x->r->forward;
    bool add = problem->score == ATTN_SCORE_ADDITIVE;
    double score = 0;
    for (int64_t c = 0; c < x->nc; c++) {
        double q = of(x, ARRAY_Q, p->q + x->q[c]), k = key_channel(x, p, c);
        score += add ? of(x, ARRAY_W, p->w + x->w[c]) * tanh(q + k) : q * k;
        for (int t = 0; t < problem->nrelatives; t++)
            if (!is_value(x, t))
                score += (problem->relatives[t].kind == ATTN_RELATIVE_QUERY ? q : k) *
                         of(x, ARRAY_TABLE + t, p->table[t] + x->table[t][c]);
    }
    p->cap_slope = 1;
    if (problem->softcap != 0) {
        double t = tanh(score / problem->softcap);
        score = problem->softcap * t, p->cap_slope = 1 - t * t;
    }
    return score + (problem->flags & ATTN_WITH_BIAS ? of(x, ARRAY_BIAS, OFFSET(&p->at, bias)) : 0);
}

static void keep_largest(const expected *x, int64_t k)
{
    bool loses[2048] = {false};
    double fill = x->r->forward.mask_fill;
    assert_true(x->keys <= 2048);
    for (int64_t j = 0; j < x->keys; j++) {
        const pair *p = &x->pairs[j];
        int64_t before = 0;
        for (int64_t i = 0; i < x->keys; i++)
            before +=
                x->pairs[i].kind == ALIVE && (x->pairs[i].score > p->score || (x->pairs[i].score == p->score && i < j));
        loses[j] = p->kind == ALIVE && before >= k;
    }
    for (int64_t j = 0; j < x->keys; j++)
        if (loses[j])
            x->pairs[j].kind = fill != 0 ? FILLED : OUT, x->pairs[j].score = fill;
}

/* Sets the weights of a row. Returns its log-sum-exp, and in *norm the divisor of the weights. */
static double normalize(const expected *x, double sink, double *norm)
{
    attn_normalization how = x->r->forward.normalization;
    bool exponents = is_exponential(how) && how != ATTN_NORMALIZATION_SIGMOID;
    double b = x->r->forward.own_sigmoid_bias ? x->r->forward.sigmoid_bias : -log((double)x->keys);
    double most = sink, sum = 0;
    int64_t n = 0;
    for (int64_t j = 0; j < x->keys; j++)
        if (x->pairs[j].kind != OUT)
            n++, sum += x->pairs[j].score, most = fmax(most, x->pairs[j].score);
    *norm = how == ATTN_NORMALIZATION_SUM ? sum : how == ATTN_NORMALIZATION_MEAN ? (double)n : 1;
    if (exponents && most > (double)-INFINITY) {
        *norm = exp(sink - most);
        for (int64_t j = 0; j < x->keys; j++)
            *norm += x->pairs[j].kind != OUT ? exp(x->pairs[j].score - most) : 0;
    }
    for (int64_t j = 0; j < x->keys; j++) {
        pair *p = &x->pairs[j];
        p->weight = p->kind == OUT                      ? 0
                    : how == ATTN_NORMALIZATION_SIGMOID ? 1 / (1 + exp(-(p->score + b)))
                                                        : (exponents ? exp(p->score - most) : p->score) / *norm;
        p->counted = p->keep != 0 && (p->kind == ALIVE || (p->kind == FILLED && p->weight != 0));
    }
    return n == 0 ? sink : (exponents ? most : 0) + log(*norm);
}

static void add_score_gradients(const expected *x, const pair *p, double dscore)
{
    const attn_problem *problem = &x->r->backward;
    bool add = problem->score == ATTN_SCORE_ADDITIVE;
    if (x->value[ARRAY_DBIAS])
        x->value[ARRAY_DBIAS][OFFSET(&p->at, bias)] += dscore;
    dscore *= p->cap_slope;
    for (int64_t c = 0; c < x->nc; c++) {
        double q = of(x, ARRAY_Q, p->q + x->q[c]), k = key_channel(x, p, c);
        double t = add ? tanh(q + k) : 0, slope = add ? of(x, ARRAY_W, p->w + x->w[c]) * (1 - t * t) : 0;
        double dq = dscore * (add ? slope : k), dk = dscore * (add ? slope : q);
        if (add)
            x->value[ARRAY_DW][p->w + x->w[c]] += dscore * t;
        for (int i = 0; i < problem->nrelatives; i++) {
            bool by_query = problem->relatives[i].kind == ATTN_RELATIVE_QUERY;
            int64_t at = p->table[i] + x->table[i][c];
            if (is_value(x, i))
                continue;
            *(by_query ? &dq : &dk) += dscore * of(x, ARRAY_TABLE + i, at);
            x->value[ARRAY_DTABLE + i][at] += dscore * (by_query ? q : k);
        }
        x->value[ARRAY_DQ][p->q + x->q[c]] += dq;
        if (p->at.inside)
            x->value[ARRAY_DK][p->k + x->k[c]] += dk;
    }
}

static void add_value_gradients(const expected *x, const pair *p, int64_t o)
{
    for (int64_t c = 0; c < x->nv; c++) {
        double dv = p->weight * p->keep * of(x, ARRAY_DOUT, o + x->o[c]);
        if (p->at.inside)
            x->value[ARRAY_DV][p->v + x->v[c]] += dv;
        for (int i = 0; i < x->r->backward.nrelatives; i++)
            if (is_value(x, i))
                x->value[ARRAY_DTABLE + i][p->table[i] + x->table[i][c]] += dv;
    }
}

static void start_pair(const expected *x, pair *p, const walk *w)
{
    const attn_problem *problem = &x->r->forward;
    *p = (pair){.at = *w};
    walk_state state = walk_place(&p->at, &x->r->arrays);
    p->q = OFFSET(&p->at, q), p->w = OFFSET(&p->at, w);
    p->k = POSITION_OFFSET(&p->at, k), p->v = POSITION_OFFSET(&p->at, v);
    for (int i = 0; i < problem->nrelatives; i++)
        walk_table(&p->at, i, &p->table[i]);
    p->kind = state == WALK_PRESENT ? ALIVE : state == WALK_MASKED ? FILLED : OUT;
    p->score = p->kind == ALIVE ? score_of(x, p) : problem->mask_fill;
    p->kind = p->score == (double)-INFINITY ? OUT : p->kind;
    p->keep = walk_keep(&p->at, 0);
}

static void expect_row(const expected *x, const walk *row)
{
    const attn_problem *p = &x->r->forward;
    walk w = *row;
    int64_t j = 0, o = OFFSET(row, o), lse = OFFSET(row, lse);
    double norm, delta = 0;
    double sink = p->flags & ATTN_WITH_SINKS ? of(x, ARRAY_SINKS, OFFSET(row, sinks)) : (double)-INFINITY;
    for (bool on = walk_start(&w, ROLE_K); on; on = walk_next(&w, ROLE_K))
        start_pair(x, &x->pairs[j++], &w);
    if (p->top_k || p->normalization == ATTN_NORMALIZATION_HARDMAX)
        keep_largest(x, p->top_k ? p->top_k : 1);
    x->value[ARRAY_LSE][lse] = normalize(x, sink, &norm);
    for (int64_t c = 0; c < x->nv; c++) {
        double *sum = &x->value[ARRAY_O][o + x->o[c]];
        for (j = 0; j < x->keys; j++)
            if (x->pairs[j].counted)
                *sum += x->pairs[j].weight * x->pairs[j].keep * value_channel(x, &x->pairs[j], c);
        delta += of(x, ARRAY_DOUT, o + x->o[c]) * *sum;
    }
    if (sink > (double)-INFINITY)
        x->value[ARRAY_DSINKS][OFFSET(row, sinks)] -= exp(sink - x->value[ARRAY_LSE][lse]) * delta;
    for (j = 0; j < x->keys; j++) {
        const pair *of_key = &x->pairs[j];
        double dweight = 0;
        if (of_key->counted)
            add_value_gradients(x, of_key, o);
        if (of_key->kind != ALIVE || p->normalization == ATTN_NORMALIZATION_HARDMAX)
            continue;
        for (int64_t c = 0; c < x->nv && of_key->keep != 0; c++)
            dweight += of_key->keep * of(x, ARRAY_DOUT, o + x->o[c]) * value_channel(x, of_key, c);
        add_score_gradients(x, of_key,
                            p->normalization == ATTN_NORMALIZATION_SOFTMAX ? of_key->weight * (dweight - delta)
                            : p->normalization == ATTN_NORMALIZATION_SUM   ? (dweight - delta) / norm
                            : p->normalization == ATTN_NORMALIZATION_SIGMOID
                                ? of_key->weight * (1 - of_key->weight) * dweight
                                : dweight / norm);
    }
}

static void expect(expected *x, const random_problem *r)
{
    const attn_problem *p = &r->forward;
    walk w = {.p = p};
    memset(x, 0, sizeof *x);
    x->r = r;
    for (int id = ARRAY_O; id < ARRAY_COUNT; id++)
        if (r->array[id].block) {
            assert_true(r->array[id].low == 0);
            x->value[id] = calloc((size_t)r->array[id].n, sizeof(double));
            assert_non_null(x->value[id]);
        }
    x->nc = CHANNELS(p, ATTN_ROLE_CONTRACT, q, x->q);
    CHANNELS(p, ATTN_ROLE_CONTRACT, k, x->k);
    CHANNELS(p, ATTN_ROLE_CONTRACT, w, x->w);
    x->nv = CHANNELS(p, ATTN_ROLE_VALUE, v, x->v);
    CHANNELS(p, ATTN_ROLE_VALUE, o, x->o);
    for (int i = 0; i < p->nrelatives; i++)
        channels(p, p->relatives[i].kind == ATTN_RELATIVE_VALUE ? ATTN_ROLE_VALUE : ATTN_ROLE_CONTRACT,
                 p->relatives[i].stride, sizeof(int64_t), x->table[i]);
    x->keys = walk_count(p, ROLE_K);
    x->pairs = calloc((size_t)x->keys, sizeof *x->pairs);
    assert_non_null(x->pairs);
    for (bool on = walk_start(&w, ROLE_B | ROLE_Q); on; on = walk_next(&w, ROLE_B | ROLE_Q))
        expect_row(x, &w);
}

static void end_expected(expected *x)
{
    for (int id = 0; id < ARRAY_COUNT; id++)
        free(x->value[id]);
    free(x->pairs);
}

/* -------------------------------------------------------------------------------------------------- the check */

static int runs, disagreements, by_solver[MOST_SOLVERS][TYPES], taken[MOST_SOLVERS];

/* Counts the outputs of one run that differ, and shows the first elements that differ. Rounding is not tested here. */
static void compare(const random_problem *r, const expected *x, attn_direction direction, int solver, int type,
                    const char *name)
{
    double unit = types[type] == ATTN_BF16 ? 0x1p-4 : types[type] == ATTN_F32 ? 0x1p-10 : 0x1p-40;
    bool no_lse = r->forward.normalization == ATTN_NORMALIZATION_SIGMOID;
    for (int id = direction == ATTN_DIRECTION_FORWARD ? ARRAY_O : ARRAY_DQ;
         id < (direction == ATTN_DIRECTION_FORWARD ? ARRAY_DQ : ARRAY_COUNT); id++) {
        double most = 1;
        if (id == ARRAY_LSE && no_lse)
            continue;
        for (int64_t i = 0; x->value[id] && i < r->array[id].n; i++)
            most = isfinite(x->value[id][i]) ? fmax(most, fabs(x->value[id][i])) : most;
        for (int64_t i = 0; x->value[id] && i < r->array[id].n; i++) {
            double want = x->value[id][i], got = array_get(&r->array[id], i);
            if (want == got || (isnan(want) && isnan(got)) || fabs(want - got) <= unit * most)
                continue;
            if (by_solver[solver][type] < SHOWN)
                print_message("  %s, %s, %s: %s[%lld] is %g, not %g\n", attn_solver_name(solver),
                              attn_dtype_name(types[type]), name, r->array[id].name, (long long)i, got, want);
            disagreements++, by_solver[solver][type]++;
            break;
        }
    }
}

static void run(attn_context *context, random_problem *r, const expected *x, attn_direction direction, int solver,
                int type, const char *name)
{
    static const array_id results[] = {ARRAY_O, ARRAY_LSE};
    attn_plan *plan;
    const attn_problem *p = direction == ATTN_DIRECTION_FORWARD ? &r->forward : &r->backward;
    attn_status status = attn_plan_create(&plan, context, p, &(attn_plan_options){.solver = attn_solver_name(solver)});
    if (status == ATTN_ERROR_UNSUPPORTED)
        return;
    if (status != ATTN_OK)
        fail_msg("%s: %s", name, attn_context_error(context));
    random_problem_poison(r);
    for (int n = 0; direction == ATTN_DIRECTION_BACKWARD && n < 2; n++)
        for (int64_t i = 0; i < r->array[results[n]].n; i++)
            array_set(&r->array[results[n]], i, x->value[results[n]][i]);
    assert_int_equal(attn_plan_execute(plan, &r->arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
    runs++, taken[solver]++;
    compare(r, x, direction, solver, type, name);
}

static void check(attn_context *context, const char *form, size_t c, poison what)
{
    static random_problem exact, r;
    static expected x;
    char name[200];
    snprintf(name, sizeof name, "%s, %s, %s", form, cases[c].name, poison_names[what]);
    make(&exact, context, form, c, ATTN_F64);
    fill(&exact, c, what);
    expect(&x, &exact);
    for (int type = 0; type < TYPES; type++) {
        make(&r, context, form, c, types[type]);
        copy(&r, &exact);
        for (int s = 0; attn_solver_name(s); s++) {
            run(context, &r, &x, ATTN_DIRECTION_FORWARD, s, type, name);
            if (!(cases[c].with & LATE))
                run(context, &r, &x, ATTN_DIRECTION_BACKWARD, s, type, name);
        }
        random_problem_free(&r);
    }
    end_expected(&x);
    random_problem_free(&exact);
}

static void pairs_count_by_their_scores_and_not_by_their_weights(void **state)
{
    (void)state;
    attn_context *context;
    int solvers = 0, all = 0, number = 0;
    assert_int_equal(attn_context_create(&context, &(attn_context_options){.threads = 2}), ATTN_OK);
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            for (int what = 0; what < POISONS; what++)
                if ((what != IN_TABLE || cases[c].with & VALUE_TABLE) &&
                    (f >= SHORT_FORMS) == ((cases[c].with & LATE) != 0) && number++ % test_step() == 0)
                    check(context, forms[f], c, (poison)what);
    attn_context_destroy(context);
    for (int s = 0; attn_solver_name(s); s++) {
        solvers += taken[s] > 0;
        if (by_solver[s][0] || by_solver[s][1] || by_solver[s][2])
            print_message("  %s: %d of f32, %d of bf16, %d of f64\n", attn_solver_name(s), by_solver[s][0],
                          by_solver[s][1], by_solver[s][2]);
        all++;
    }
    print_message("  %d cases, %d solvers, %d disagreements\n", runs, solvers, disagreements);
    assert_true(solvers == all || test_step() > 1);
    assert_int_equal(disagreements, 0);
}

RUN_TESTS(TEST(pairs_count_by_their_scores_and_not_by_their_weights))
