/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Tests packed sequences in float64 with the solver `blocked`, forward and backward. A sequence gets the same bits when
 * it is packed, when it runs alone, and when it is padded in a batch-invariant context.
 */
#include "support/cmocka.h"

#include "support/f64_cases.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

#define COUNT(cases) (sizeof(cases) / sizeof *(cases))

enum { SEQUENCES = 9, HEADS = 2, CHANNELS = 5, VALUES = 6, LONGEST = 300, MOST = SEQUENCES * LONGEST };

typedef struct mode {
    const char *name;
    attn_causal causal;
    bool other_keys; /* true: the numbers of keys are in `fewer`; false: they are the numbers of queries */
    attn_score score;
    attn_normalization normalization;
    double softcap, fill, dropout;
    /* feature flags; all sequences share the bias by distance and the mask */
    unsigned with;
    bool not_alone, not_padded;
} mode;

static const mode modes[] = {
    {.name = "plain"},
    {.name = "causal", .causal = ATTN_CAUSAL_TOP_LEFT},
    {.name = "causal, bottom-right", .causal = ATTN_CAUSAL_BOTTOM_RIGHT, .other_keys = true, .not_padded = true},
    {.name = "other keys", .other_keys = true, .with = ATTN_WITH_DLSE},
    {.name = "bias", .with = ATTN_WITH_BIAS | ATTN_WITH_DLSE},
    {.name = "mask", .with = ATTN_WITH_MASK, .causal = ATTN_CAUSAL_TOP_LEFT},
    {.name = "sinks", .with = ATTN_WITH_SINKS, .softcap = 2},
    {.name = "additive", .score = ATTN_SCORE_ADDITIVE, .causal = ATTN_CAUSAL_TOP_LEFT},
    {.name = "concat", .score = ATTN_SCORE_CONCAT},
    {.name = "gaussian", .score = ATTN_SCORE_GAUSSIAN},
    {.name = "triangular", .score = ATTN_SCORE_TRIANGULAR, .normalization = ATTN_NORMALIZATION_SUM},
    {.name = "mean", .normalization = ATTN_NORMALIZATION_MEAN, .causal = ATTN_CAUSAL_TOP_LEFT},
    {.name = "fill", .fill = -1e6, .causal = ATTN_CAUSAL_TOP_LEFT, .not_padded = true},
    {.name = "dropout", .dropout = 0.3, .not_alone = true},
};

static const int lengths[SEQUENCES] = {1, 7, 63, 0, 64, 65, 100, 193, 300};
static const int fewer[SEQUENCES] = {5, 100, 64, 3, 1, 65, 300, 191, 257};

/* The operands and gradients of all tokens. q, k, v, o and their gradients have the shape [tokens, HEADS, channels]. */
typedef struct tokens {
    double q[MOST * HEADS * CHANNELS], k[MOST * HEADS * CHANNELS], v[MOST * HEADS * VALUES], o[MOST * HEADS * VALUES];
    double dout[MOST * HEADS * VALUES], lse[MOST * HEADS], dlse[MOST * HEADS];
    double dq[MOST * HEADS * CHANNELS], dk[MOST * HEADS * CHANNELS], dv[MOST * HEADS * VALUES];
} tokens;
static tokens packed, alone, padded;
static double bias[HEADS * 2 * LONGEST], w[CHANNELS], w2[CHANNELS], sinks[HEADS];
static uint8_t mask[LONGEST * LONGEST];
static int32_t q_offsets[SEQUENCES + 1], k_offsets[SEQUENCES + 1], lens[SEQUENCES];

static void normal(double *x, size_t n, uint64_t stream)
{
    attn__rng g = {.seed = 11, .stream = stream};
    for (size_t i = 0; i < n; i++)
        x[i] = attn__rng_normal(&g);
}

static void copy_row(double *to, int64_t to_token, const double *from, int64_t from_token, int64_t width)
{
    memcpy(to + to_token * width, from + from_token * width, (size_t)width * sizeof *to);
}

static void draw_padding(double filling)
{
    for (size_t i = 0; i < COUNT(padded.k); i++)
        padded.k[i] = filling;
    for (size_t i = 0; i < COUNT(padded.v); i++)
        padded.v[i] = filling;
    normal(padded.q, COUNT(padded.q), 10);
    memset(padded.dout, 0, sizeof padded.dout), memset(padded.dlse, 0, sizeof padded.dlse);
    for (int s = 0; s < SEQUENCES; s++) {
        for (int i = 0; i < lengths[s]; i++) {
            copy_row(padded.q, s * LONGEST + i, packed.q, q_offsets[s] + i, HEADS * CHANNELS);
            copy_row(padded.dout, s * LONGEST + i, packed.dout, q_offsets[s] + i, HEADS * VALUES);
            for (int h = 0; h < HEADS; h++)
                padded.dlse[(s * HEADS + h) * LONGEST + i] = packed.dlse[h * q_offsets[SEQUENCES] + q_offsets[s] + i];
        }
        for (int j = 0; j < lens[s]; j++) {
            copy_row(padded.k, s * LONGEST + j, packed.k, k_offsets[s] + j, HEADS * CHANNELS);
            copy_row(padded.v, s * LONGEST + j, packed.v, k_offsets[s] + j, HEADS * VALUES);
        }
    }
}

/* Keys and values of padding get the value `filling`. */
static void draw(const mode *m, double filling)
{
    for (int s = 0; s < SEQUENCES; s++) {
        lens[s] = m->other_keys ? fewer[s] : lengths[s];
        q_offsets[s + 1] = q_offsets[s] + lengths[s];
        k_offsets[s + 1] = k_offsets[s] + lens[s];
    }
    normal(packed.q, COUNT(packed.q), 1), normal(packed.k, COUNT(packed.k), 2), normal(packed.v, COUNT(packed.v), 3);
    normal(packed.dout, COUNT(packed.dout), 4), normal(packed.dlse, COUNT(packed.dlse), 5);
    normal(bias, COUNT(bias), 6), normal(w, CHANNELS, 7), normal(w2, CHANNELS, 8), normal(sinks, HEADS, 9);
    for (int i = 0; i < LONGEST * LONGEST; i++)
        mask[i] = (uint8_t)(i * 5 / 3 % 7 > 1);
    memcpy(alone.q, packed.q, sizeof alone.q), memcpy(alone.k, packed.k, sizeof alone.k);
    memcpy(alone.v, packed.v, sizeof alone.v), memcpy(alone.dout, packed.dout, sizeof alone.dout);
    draw_padding(filling);
    for (int s = 0; s < SEQUENCES; s++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < lengths[s]; i++)
                alone.dlse[HEADS * q_offsets[s] + h * lengths[s] + i] =
                    packed.dlse[h * q_offsets[SEQUENCES] + q_offsets[s] + i];
}

static void describe(attn_problem *p, const mode *m, const attn_heads *heads)
{
    enum { HEAD = 1, QUERY, KEY, CHANNEL };
    assert_int_equal(attn_problem_heads(p, heads), ATTN_OK);
    p->dtype = ATTN_F64;
    p->score = m->score;
    p->width = 2.5;
    p->normalization = m->normalization;
    p->softcap = m->softcap;
    p->mask_fill = m->fill;
    p->dropout = m->dropout;
    p->seed = 3;
    p->flags |= m->with;
    p->dims[HEAD].bias = (int64_t)2 * LONGEST, p->dims[QUERY].bias = -1, p->dims[KEY].bias = 1;
    p->dims[QUERY].mask = LONGEST, p->dims[KEY].mask = 1;
    p->dims[HEAD].sinks = 1;
    p->dims[CHANNEL].w = 1;
}

static void forward_and_backward(attn_context *c, const char *name, const attn_problem *problem, attn_arrays a)
{
    static const f64_case none = {.text = "a sequence"};
    attn_problem p = *problem;
    a.bias = bias + LONGEST, a.mask = mask, a.w = w, a.w2 = w2, a.sinks = sinks, a.lens = lens;
    a.q_offsets = q_offsets, a.k_offsets = k_offsets;
    p.flags = (p.flags & ~(unsigned)ATTN_WITH_DLSE) | ATTN_WANT_LSE;
    if (!f64_run(c, &p, &a, &none))
        f64_complain("mode '%s' is refused", name);
    p = *problem;
    p.direction = ATTN_DIRECTION_BACKWARD;
    p.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    if (!f64_run(c, &p, &a, &none))
        f64_complain("mode '%s' is refused backward", name);
}

static attn_arrays arrays_at(tokens *t, int64_t q, int64_t k)
{
    attn_arrays a = {
        .q = t->q + q * HEADS * CHANNELS, .k = t->k + k * HEADS * CHANNELS, .v = t->v + k * HEADS * VALUES};
    a.o = t->o + q * HEADS * VALUES, a.dout = t->dout + q * HEADS * VALUES;
    a.lse = t->lse + q * HEADS, a.dlse = t->dlse + q * HEADS;
    a.dq = t->dq + q * HEADS * CHANNELS, a.dk = t->dk + k * HEADS * CHANNELS, a.dv = t->dv + k * HEADS * VALUES;
    return a;
}

static void run_all(const mode *m, attn_context *invariant)
{
    attn_problem p;
    attn_heads heads = {.batch = SEQUENCES, .heads = HEADS, .queries = LONGEST, .keys = LONGEST, .dim = CHANNELS};
    heads.dim_value = VALUES, heads.causal = m->causal;
    attn_heads shape = heads;
    shape.packed = true, shape.packed_queries = q_offsets[SEQUENCES], shape.packed_keys = k_offsets[SEQUENCES];
    describe(&p, m, &shape);
    forward_and_backward(f64_context, m->name, &p, arrays_at(&packed, 0, 0));
    for (int s = 0; s < SEQUENCES && !m->not_alone; s++) {
        shape = heads;
        shape.batch = 1, shape.queries = lengths[s], shape.keys = lens[s];
        describe(&p, m, &shape);
        if (lengths[s] > 0)
            forward_and_backward(f64_context, m->name, &p, arrays_at(&alone, q_offsets[s], k_offsets[s]));
    }
    shape = heads;
    shape.lens_per = 1;
    describe(&p, m, &shape);
    if (!m->not_padded)
        forward_and_backward(invariant, m->name, &p, arrays_at(&padded, 0, 0));
}

static bool same(const double *a, const double *b, int64_t width)
{
    return memcmp(a, b, (size_t)width * sizeof *a) == 0;
}

/* Compares the results of sequence s with its results in `other`, where it begins at query `q` and key `k`. Its
 * log-sum-exps begin at `lse` there, with `n` for each head. Returns the name of the first result with different
 * bits, or NULL. */
static const char *other_bits(int s, const tokens *other, int64_t q, int64_t k, const double *lse, int64_t n)
{
    const int64_t wide = (int64_t)HEADS * VALUES, slim = (int64_t)HEADS * CHANNELS;
    for (int64_t i = 0, at = q_offsets[s]; i < lengths[s]; i++, at++) {
        if (!same(packed.o + at * wide, other->o + (q + i) * wide, wide))
            return "o";
        for (int64_t h = 0; h < HEADS; h++)
            if (!same(packed.lse + h * q_offsets[SEQUENCES] + at, lse + h * n + i, 1))
                return "lse";
        if (!same(packed.dq + at * slim, other->dq + (q + i) * slim, slim))
            return "dq";
    }
    for (int64_t j = 0, at = k_offsets[s]; j < lens[s] && lengths[s] > 0; j++, at++) {
        if (!same(packed.dk + at * slim, other->dk + (k + j) * slim, slim))
            return "dk";
        if (!same(packed.dv + at * wide, other->dv + (k + j) * wide, wide))
            return "dv";
    }
    return NULL;
}

static void compare_sequence(const mode *m, int s)
{
    int64_t row = (int64_t)s * LONGEST;
    const char *one = NULL, *two = NULL;
    if (!m->not_alone)
        one = other_bits(s, &alone, q_offsets[s], k_offsets[s], alone.lse + HEADS * q_offsets[s], lengths[s]);
    if (!m->not_padded)
        two = other_bits(s, &padded, row, row, padded.lse + HEADS * row, LONGEST);
    if (one)
        f64_complain("mode '%s': %d queries and %d keys have another %s alone", m->name, lengths[s], (int)lens[s], one);
    if (two)
        f64_complain("mode '%s': %d queries and %d keys have another %s padded", m->name, lengths[s], (int)lens[s],
                     two);
}

static void compare_all(double filling)
{
    attn_context *invariant;
    assert_int_equal(attn_context_create(&invariant, &(attn_context_options){.threads = 3, .batch_invariant = true}),
                     ATTN_OK);
    for (size_t i = 0; i < COUNT(modes); i++) {
        draw(&modes[i], filling);
        run_all(&modes[i], invariant);
        for (int s = 0; s < SEQUENCES; s++)
            compare_sequence(&modes[i], s);
    }
    attn_context_destroy(invariant);
    f64_end();
}

static void a_sequence_has_the_same_bits_packed_alone_and_padded(void **state)
{
    (void)state;
    compare_all(1e3);
}

static void nan_in_the_padding_changes_no_bit(void **state)
{
    (void)state;
    compare_all((double)NAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_has_the_same_bits_packed_alone_and_padded),
        cmocka_unit_test(nan_in_the_padding_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, f64_open_context, f64_close_context);
}
