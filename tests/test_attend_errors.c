/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests each kind of invalid problem: the status and the message.
 */
#include "support/context.h"

#include "attn/attn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

CONTEXT_OF_TESTS(.threads = 1)

/* Returns a valid problem with the dims batch, head, query, key, contract and value, of lengths 2, 3, 4, 5, 6 and 6. */
static attn_problem sound(void)
{
    attn_problem p;
    attn_problem_heads(&p, &(attn_heads){.batch = 2, .heads = 3, .queries = 4, .keys = 5, .dim = 6});
    return p;
}

static void expect(const attn_problem *p, attn_status status, const char *words)
{
    attn_plan *plan = (attn_plan *)&plan;
    attn_context_clear_error(context);
    assert_int_equal(attn_plan_create(&plan, context, p, NULL), status);
    if (status == ATTN_OK) {
        attn_plan_destroy(plan);
        return;
    }
    assert_null(plan);
    assert_int_equal(attn_context_status(context), status);
    if (!strstr(attn_context_error(context), words))
        fail_msg("'%s' does not say '%s'", attn_context_error(context), words);
}

/* Changes a field of a valid problem and checks the status and the message. */
#define WRONG(status, words, ...)                                                                                      \
    do {                                                                                                               \
        attn_problem p = sound();                                                                                      \
        __VA_ARGS__;                                                                                                   \
        expect(&p, ATTN_##status, words);                                                                              \
    } while (0)

static void fields_are_checked(void **state)
{
    (void)state;
    WRONG(OK, "", (void)p);
    WRONG(ERROR_ARGUMENT, "ndims is 17", p.ndims = 17);
    WRONG(ERROR_ARGUMENT, "ndims is -1", p.ndims = -1);
    WRONG(ERROR_ARGUMENT, "nbands is 4", p.nbands = 4);
    WRONG(ERROR_ARGUMENT, "nwindows is -2", p.nwindows = -2);
    WRONG(ERROR_ARGUMENT, "nrelatives is 7", p.nrelatives = 7);
    WRONG(ERROR_ARGUMENT, "npicks is 5", p.npicks = 5);
    WRONG(ERROR_ARGUMENT, "direction is 2", p.direction = (attn_direction)2);
    WRONG(ERROR_ARGUMENT, "score is 9", p.score = (attn_score)9);
    WRONG(ERROR_UNSUPPORTED, "dtype f16", p.dtype = ATTN_F16);
    WRONG(ERROR_ARGUMENT, "scale nan", p.scale = (double)NAN);
    WRONG(ERROR_ARGUMENT, "width -1", p.width = -1);
    WRONG(ERROR_ARGUMENT, "sinks need the softmax normalization, but the normalization is", p.flags |= ATTN_WITH_SINKS;
          p.normalization = ATTN_NORMALIZATION_MEAN);
    WRONG(ERROR_UNSUPPORTED, "sinks and mask_fill (-5) cannot be used together", p.flags |= ATTN_WITH_SINKS;
          p.mask_fill = -5);
    WRONG(OK, "", p.flags |= ATTN_WITH_BF16_KEYS);
    WRONG(ERROR_UNSUPPORTED, "(ATTN_WITH_BF16_KEYS) need a problem of dtype f32, not f64",
          p.flags |= ATTN_WITH_BF16_KEYS;
          p.dtype = ATTN_F64);
    WRONG(ERROR_UNSUPPORTED, "(ATTN_WITH_BF16_KEYS) and ATTN_WANT_WEIGHTS cannot",
          p.flags |= ATTN_WITH_BF16_KEYS | ATTN_WANT_WEIGHTS);
    WRONG(ERROR_UNSUPPORTED, "not supported in a backward problem", p.flags |= ATTN_WITH_BF16_KEYS | ATTN_WANT_DQ;
          p.direction = ATTN_DIRECTION_BACKWARD);
    WRONG(ERROR_ARGUMENT, "softcap -2 does not lie between", p.softcap = -2);
    WRONG(ERROR_ARGUMENT, "softcap 1e-40", p.softcap = 1e-40);
    WRONG(ERROR_ARGUMENT, "mask_fill -inf", p.mask_fill = (double)-INFINITY);
    WRONG(ERROR_ARGUMENT, "mask_fill (-5) needs the softmax normalization", p.mask_fill = -5;
          p.normalization = ATTN_NORMALIZATION_MEAN);
    WRONG(ERROR_ARGUMENT, "sinks need the softmax normalization, but the normalization is", p.flags |= ATTN_WITH_SINKS;
          p.normalization = ATTN_NORMALIZATION_HARDMAX);
    WRONG(ERROR_ARGUMENT, "mask_fill (-5) needs the softmax normalization", p.mask_fill = -5;
          p.normalization = ATTN_NORMALIZATION_NONE);
    WRONG(ERROR_ARGUMENT, "top_k -1 is negative", p.top_k = -1);
    WRONG(ERROR_ARGUMENT, "top_k (3) needs the softmax normalization", p.top_k = 3;
          p.normalization = ATTN_NORMALIZATION_HARDMAX);
    WRONG(OK, "", p.top_k = INT64_MAX);
    WRONG(OK, "", p.normalization = ATTN_NORMALIZATION_SIGMOID);
    WRONG(OK, "", p.normalization = ATTN_NORMALIZATION_SIGMOID; p.own_sigmoid_bias = true);
    WRONG(ERROR_ARGUMENT, "normalization is 6", p.normalization = (attn_normalization)6);
    WRONG(ERROR_ARGUMENT, "the weights of a sigmoid have no sum over the keys",
          p.normalization = ATTN_NORMALIZATION_SIGMOID;
          p.flags |= ATTN_WANT_LSE);
    WRONG(ERROR_ARGUMENT, "sinks need the softmax normalization, but the normalization is",
          p.normalization = ATTN_NORMALIZATION_SIGMOID;
          p.flags |= ATTN_WITH_SINKS);
    WRONG(ERROR_ARGUMENT, "mask_fill (-5) needs the softmax normalization",
          p.normalization = ATTN_NORMALIZATION_SIGMOID;
          p.mask_fill = -5);
    WRONG(ERROR_ARGUMENT, "top_k (2) needs the softmax normalization", p.normalization = ATTN_NORMALIZATION_SIGMOID;
          p.top_k = 2);
    WRONG(ERROR_ARGUMENT, "sigmoid_bias is -2, but own_sigmoid_bias is false", p.sigmoid_bias = -2;
          p.normalization = ATTN_NORMALIZATION_SIGMOID);
    WRONG(ERROR_ARGUMENT, "sigmoid_bias needs the sigmoid normalization", p.own_sigmoid_bias = true);
    WRONG(ERROR_ARGUMENT, "sigmoid_bias inf is not finite", p.normalization = ATTN_NORMALIZATION_SIGMOID;
          p.own_sigmoid_bias = true; p.sigmoid_bias = (double)INFINITY);
    WRONG(ERROR_ARGUMENT, "dropout 1", p.dropout = 1);
    WRONG(ERROR_ARGUMENT, "dropout -0.5", p.dropout = -0.5);
    WRONG(ERROR_ARGUMENT, "unknown bits 0x8000200", p.flags = 1 << 27 | 1 << 9);
}

static void blocks_are_checked(void **state)
{
    (void)state;
    const attn_blocks good = {.query_dim = 2, .key_dim = 3, .queries = 2, .keys = 3};
#define BLOCKS p.flags |= ATTN_WITH_BLOCKS, p.blocks = good, p.dims[2].blocks = 2, p.dims[3].blocks = 1
    WRONG(OK, "", BLOCKS);
    WRONG(OK, "", BLOCKS; p.blocks.queries = p.blocks.keys = INT64_MAX);
    WRONG(ERROR_ARGUMENT, "blocks.query_dim names dim 3", BLOCKS; p.blocks.query_dim = 3);
    WRONG(ERROR_ARGUMENT, "blocks.key_dim names dim 99", BLOCKS; p.blocks.key_dim = 99);
    WRONG(ERROR_SHAPE, "blocks.queries is 0", BLOCKS; p.blocks.queries = 0);
    WRONG(ERROR_SHAPE, "blocks.keys is -3", BLOCKS; p.blocks.keys = -3);
    WRONG(ERROR_SHAPE, "the size of blocks overflows", BLOCKS; p.dims[0].blocks = INT64_MAX / 2);
    WRONG(ERROR_UNSUPPORTED, "a mask of blocks and a window cannot be used together", BLOCKS; p.nwindows = 1;
          p.windows[0] = (attn_window){.query_dim = 2, .key_dim = 3, .size = 90});
#undef BLOCKS
}

static void gradients_must_have_something_to_be_of(void **state)
{
    (void)state;
    WRONG(ERROR_ARGUMENT, "requests no gradient", p.direction = ATTN_DIRECTION_BACKWARD);
    WRONG(ERROR_ARGUMENT, "ATTN_WANT_D... (0x180000), but the direction is ATTN_DIRECTION_FORWARD",
          p.flags |= ATTN_WANT_DK | ATTN_WANT_DV);
    WRONG(ERROR_ARGUMENT, "there is no bias", p.direction = ATTN_DIRECTION_BACKWARD; p.flags = ATTN_WANT_DBIAS);
    WRONG(ERROR_ARGUMENT, "there are no tables", p.direction = ATTN_DIRECTION_BACKWARD; p.flags = ATTN_WANT_DTABLES);
    WRONG(ERROR_ARGUMENT, "only additive and concatenation", p.direction = ATTN_DIRECTION_BACKWARD;
          p.flags = ATTN_WANT_DW);
    WRONG(OK, "", p.direction = ATTN_DIRECTION_BACKWARD; p.flags = ATTN_WANT_DQ);
}

static void dims_are_checked(void **state)
{
    (void)state;
    WRONG(ERROR_ARGUMENT, "dim 3: role is 8; it must be between 1 and 5", p.dims[3].role = (attn_role)8);
    WRONG(ERROR_ARGUMENT, "dim 2: a reserved field", p.dims[2].reserved[3] = 1);
    WRONG(ERROR_ARGUMENT, "the problem: a reserved field", p.reserved[11] = 1);
    WRONG(ERROR_ARGUMENT, "dim 1: role is 0", p.dims[1].role = (attn_role)0);
    WRONG(ERROR_SHAPE, "dim 2 (QUERY): its length -4 is negative", p.dims[2].n = -4);
    WRONG(ERROR_SHAPE, "dim 2 (QUERY, length 4): the stride of k is 7; it must be 0", p.dims[2].k = 7);
    WRONG(ERROR_SHAPE, "v has no CONTRACT dims", p.dims[4].v = 1);
    WRONG(ERROR_SHAPE, "o has no KEY dims", p.dims[3].o = 1);
    WRONG(ERROR_SHAPE, "lse has no VALUE dims", p.dims[5].lse = 1);
    WRONG(ERROR_SHAPE, "w has no QUERY dims", p.dims[2].w = 1);
    WRONG(OK, "", p.dims[3].dq = 1);
    WRONG(ERROR_SHAPE, "dq has no KEY dims", p.dims[3].dq = 1; p.own_grad_strides = true);
}

static void sizes_may_not_overflow(void **state)
{
    (void)state;
    const int64_t big = INT64_C(1) << 40;
    WRONG(ERROR_SHAPE, "product of the lengths of the BATCH dims overflows", p.dims[0].n = big; p.dims[1].n = big);
    WRONG(ERROR_SHAPE, "size of q overflows", p.dims[0].n = big; p.dims[0].q = big);
    WRONG(ERROR_SHAPE, "size of k overflows", p.dims[3].k = INT64_MIN);
    WRONG(ERROR_SHAPE, "elements of 4 bytes; at most 2^61 bytes", p.dims[3].v = INT64_MAX / 20);
    WRONG(ERROR_SHAPE, "number of rows", p.dims[0].n = big; p.dims[2].n = big;
          p.dims[0].q = p.dims[0].k = p.dims[0].v = 0; p.dims[0].o = 0; p.dims[2].q = p.dims[2].o = 0);
}

static void outputs_may_not_overlap(void **state)
{
    (void)state;
    WRONG(ERROR_SHAPE, "o: the stride of dim 1 (BATCH, length 3) is 0", p.dims[1].o = 0);
    WRONG(ERROR_SHAPE, "dims 2 (QUERY, length 4) and 5 (VALUE, length 6) overlap", p.dims[2].o = 5);
    WRONG(ERROR_SHAPE, "lse: the stride of dim 2", p.flags = ATTN_WANT_LSE; p.dims[2].lse = 0);
    WRONG(OK, "", p.dims[2].lse = 0);
    WRONG(ERROR_SHAPE, "weights: the stride of dim 3", p.flags = ATTN_WANT_WEIGHTS; p.dims[3].weights = 0);
    WRONG(OK, "", p.dims[1].k = p.dims[1].v = 0);
    WRONG(OK, "", p.dims[2].o = -p.dims[2].o);
    /* Strides 2 and 3 may interleave, because no sum of {0,2,4} and {0,3} occurs twice. */
    WRONG(OK, "", p.dims[2].n = 3; p.dims[2].o = 2; p.dims[5].n = 2; p.dims[5].o = 3; p.dims[0].o = 100;
          p.dims[1].o = 20);
    WRONG(ERROR_SHAPE, "indices of an output must not share elements", p.dims[2].n = 4; p.dims[2].o = 2;
          p.dims[5].n = 3; p.dims[5].o = 3; p.dims[0].o = 100; p.dims[1].o = 20);
}

static void set_output(attn_problem *p, const int64_t s[4], const int64_t n[4])
{
    static const int dims[] = {0, 1, 2, 5};
    for (int i = 0; i < 4; i++) {
        p->dims[dims[i]].o = s[i];
        p->dims[dims[i]].n = n[i];
    }
}

/* Returns true if two elements of an output have the same offset, by trying all differences of indices. */
static bool meets(const int64_t s[4], const int64_t n[4])
{
    for (int64_t a = 1 - n[0]; a < n[0]; a++)
        for (int64_t b = 1 - n[1]; b < n[1]; b++)
            for (int64_t c = 1 - n[2]; c < n[2]; c++)
                for (int64_t d = 1 - n[3]; d < n[3]; d++)
                    if ((a || b || c || d) && a * s[0] + b * s[1] + c * s[2] + d * s[3] == 0)
                        return true;
    return false;
}

static void overlap_is_decided_exactly(void **state)
{
    (void)state;
    uint32_t x = 1;
    int met = 0;
    for (int round = 0; round < 400; round++) {
        int64_t s[4], n[4];
        for (int i = 0; i < 4; i++) {
            x = x * 1664525u + 1013904223u;
            s[i] = 1 + (x >> 16) % 40;
            n[i] = 1 + (x >> 8) % 4;
        }
        bool meet = meets(s, n);
        met += meet;
        if (meet)
            WRONG(ERROR_SHAPE, "indices of an output must not share elements", set_output(&p, s, n));
        else
            WRONG(OK, "", set_output(&p, s, n));
    }
    assert_true(met > 50 && met < 350);
}

static void gradients_may_be_sums_but_not_overlap(void **state)
{
    (void)state;
    const unsigned with = ATTN_WANT_DQ | ATTN_WANT_DK;
    WRONG(OK, "", p.direction = ATTN_DIRECTION_BACKWARD; p.flags = with; p.dims[1].k = 0);
    WRONG(ERROR_SHAPE, "dk: dims", p.direction = ATTN_DIRECTION_BACKWARD; p.flags = with; p.dims[3].k = 1);
    WRONG(ERROR_SHAPE, "dq: dims", p.direction = ATTN_DIRECTION_BACKWARD; p.flags = with; p.own_grad_strides = true;
          p.dims[2].dq = 1; p.dims[4].dq = 1);
}

static void add_window(attn_problem *p, attn_window w)
{
    p->windows[p->nwindows++] = w;
}

static void windows_are_checked(void **state)
{
    (void)state;
    const attn_window w = {.query_dim = 2, .key_dim = 3, .size = 9};
    attn_window x = w;
    WRONG(OK, "", add_window(&p, w));
    x.query_dim = 3;
    WRONG(ERROR_ARGUMENT, "window 0 names dim 3, which is a KEY dim, not a QUERY dim", add_window(&p, x));
    x = w, x.key_dim = 6;
    WRONG(ERROR_ARGUMENT, "window 0 names dim 6, but the problem has 6 dims", add_window(&p, x));
    x = w, x.border = (attn_border)3;
    WRONG(ERROR_ARGUMENT, "border is 3; it must be between 0 and 2", add_window(&p, x));
    x = w, x.size = -1;
    WRONG(ERROR_SHAPE, "window 0: size is -1; it must not be negative", add_window(&p, x));
    x = w, x.dilation = -2;
    WRONG(ERROR_SHAPE, "dilation is -2", add_window(&p, x));
    x = w, x.step = INT64_MAX;
    WRONG(ERROR_SHAPE, "queries * step is too large", add_window(&p, x));
    x = w, x.border = ATTN_BORDER_SHIFT, x.dilation = 2;
    WRONG(ERROR_SHAPE, "5 taps with dilation 2 need more than size = 9 positions", add_window(&p, x));
    x.size = 10;
    WRONG(OK, "", add_window(&p, x));
    WRONG(ERROR_ARGUMENT, "windows 0 and 1 both have key_dim 3", add_window(&p, w); add_window(&p, w));
}

static void references_to_dims_are_checked(void **state)
{
    (void)state;
    static const int64_t bad[] = {0, 4}, good[] = {3, 1, 3};
    WRONG(ERROR_ARGUMENT, "band 0 names dim 0, which is a BATCH dim", p.nbands = 1; p.bands[0].key_dim = 3);
    WRONG(ERROR_ARGUMENT, "lens_dim names dim 2, which is a QUERY dim", p.flags = ATTN_WITH_LENS; p.lens_dim = 2);
    WRONG(ERROR_ARGUMENT, "pick 0 names dim 3, which is a KEY dim; expected a BATCH or QUERY dim", p.npicks = 1;
          p.picks[0].dim = 3);
    WRONG(ERROR_ARGUMENT, "pick 0: index 4 lies outside dim 2 of length 4", p.npicks = 1;
          p.picks[0] = (attn_pick){2, 2, bad});
    WRONG(ERROR_ARGUMENT, "pick 0: n is 3, but index is NULL", p.npicks = 1; p.picks[0] = (attn_pick){2, 3, NULL});
    WRONG(ERROR_ARGUMENT, "picks 0 and 1 both name dim 2", p.npicks = 2; p.picks[0] = (attn_pick){2, 3, good};
          p.picks[1] = (attn_pick){2, 3, good});
    WRONG(OK, "", p.npicks = 1; p.picks[0] = (attn_pick){2, 3, good}; p.flags = ATTN_WANT_WEIGHTS);
}

static void tables_are_checked(void **state)
{
    (void)state;
    const attn_relative t = {
        .query_dim = 2, .key_dim = 3, .offset = 3, .rows = 8, .row_stride = 6, .stride = {[4] = 1}};
    WRONG(OK, "", p.nrelatives = 1; p.relatives[0] = t);
    WRONG(ERROR_SHAPE, "has 7 rows, but the problem reads the rows distance + offset for the distances -3 to 4",
          p.nrelatives = 1;
          p.relatives[0] = t; p.relatives[0].rows = 7);
    WRONG(ERROR_SHAPE, "to 4 and the offset 2", p.nrelatives = 1; p.relatives[0] = t; p.relatives[0].offset = 2);
    WRONG(OK, "", p.nrelatives = 1; p.relatives[0] = t; p.relatives[0].rows = 4; p.nbands = 1;
          p.bands[0] = (attn_band){2, 3, INT64_MIN, 0});
    WRONG(ERROR_SHAPE, "the stride along dim 5 is 1; it must be 0, because the table has no VALUE dims",
          p.nrelatives = 1;
          p.relatives[0] = t; p.relatives[0].stride[5] = 1);
    WRONG(ERROR_SHAPE, "begin is 2 and end 7", p.nrelatives = 1; p.relatives[0] = t; p.relatives[0].begin = 2;
          p.relatives[0].end = 7);
    WRONG(ERROR_SHAPE, "begin is -9223372036854775808 and end 1", p.nrelatives = 1; p.relatives[0] = t;
          p.relatives[0].begin = INT64_MIN; p.relatives[0].end = 1);
    WRONG(ERROR_ARGUMENT, "kind is 3; it must be between 0 and 2", p.nrelatives = 1; p.relatives[0] = t;
          p.relatives[0].kind = (attn_relative_kind)3);
    WRONG(ERROR_ARGUMENT, "relative table 0 names dim 5", p.nrelatives = 1; p.relatives[0] = t;
          p.relatives[0].key_dim = 5);
    /* The dilation is huge, so a loop over the positions of the shifted window would not end. */
    const int64_t far = INT64_C(1) << 50;
    WRONG(ERROR_SHAPE, "relative table 0 has 8 rows", p.nrelatives = 1; p.relatives[0] = t; p.dims[2].n = far;
          p.dims[0].n = 1; p.dims[1].n = 1; p.dims[2].q = p.dims[2].o = 0; p.dims[2].o = 6; p.dims[3].n = 3; add_window(
              &p, (attn_window){
                      .query_dim = 2, .key_dim = 3, .size = far, .dilation = far / 8, .border = ATTN_BORDER_SHIFT}));
    WRONG(ERROR_SHAPE, "dtable[0]", p.nrelatives = 1; p.relatives[0] = t; p.relatives[0].row_stride = 5;
          p.direction = ATTN_DIRECTION_BACKWARD; p.flags = ATTN_WANT_DTABLES);
}

static void plan_options_are_checked(void **state)
{
    (void)state;
    attn_problem p = sound();
    attn_plan *plan;
    attn_context_clear_error(context);
    assert_int_equal(attn_plan_create(&plan, context, &p, &(attn_plan_options){.solver = "magic"}),
                     ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(context), "no solver 'magic'"));
    attn_context_clear_error(context);
    assert_int_equal(attn_plan_create(&plan, context, &p, &(attn_plan_options){.threads = -1}), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(context);
    assert_int_equal(attn_plan_create(&plan, context, &p, &(attn_plan_options){.effort = 7}), ATTN_ERROR_ARGUMENT);
}

static void additive_scores_need_strides_of_w(void **state)
{
    (void)state;
    WRONG(ERROR_SHAPE, "w has stride 0 in every dim, also in dim 4 (CONTRACT, length 6)",
          p.score = ATTN_SCORE_ADDITIVE);
    WRONG(ERROR_SHAPE, "w has stride 0 in every dim", p.score = ATTN_SCORE_CONCAT);
    WRONG(OK, "", p.score = ATTN_SCORE_ADDITIVE; p.dims[4].w = 1);
    WRONG(OK, "", p.score = ATTN_SCORE_ADDITIVE; p.dims[4].n = 1);
}

static void shared_arrays_and_unaligned_workspaces_are_refused(void **state)
{
    (void)state;
    attn_problem p = sound();
    float in[400] = {0}, out[400] = {7};
    attn_plan *plan;
    attn_context_clear_error(context);
    assert_int_equal(attn_plan_create(&plan, context, &p, NULL), ATTN_OK);
    attn_arrays arrays = {.q = in, .k = in, .v = in, .o = in};
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(context), "the arrays 'o' and 'q' are the same array"));
    attn_context_clear_error(context);
    arrays.o = out;
    char *memory = malloc(attn_plan_workspace(plan) + 128);
    assert_non_null(memory);
    char *aligned = memory + (64 - (uintptr_t)memory % 64);
    assert_int_equal(attn_plan_execute(plan, &arrays, aligned + 4), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(context), "not aligned to 64 bytes"));
    arrays.reserved[15] = in;
    assert_int_equal(attn_plan_execute(plan, &arrays, aligned), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(context), "reserved"));
    arrays.reserved[15] = NULL;
    assert_true(out[0] == 7);
    attn_context_clear_error(context);
    assert_int_equal(attn_plan_execute(plan, &arrays, aligned), ATTN_OK);
    free(memory);
    attn_plan_destroy(plan);
}

static void missing_arrays_are_named_and_nothing_is_written(void **state)
{
    (void)state;
    attn_problem p = sound();
    p.flags = ATTN_WITH_BIAS;
    p.dims[3].bias = 1;
    float in[400] = {0}, out[400];
    for (int i = 0; i < 400; i++)
        out[i] = 7;
    attn_plan *plan;
    attn_context_clear_error(context);
    assert_int_equal(attn_plan_create(&plan, context, &p, NULL), ATTN_OK);
    const attn_arrays arrays[] = {
        {.k = in, .v = in, .o = out, .bias = in}, {.q = in, .v = in, .o = out, .bias = in},
        {.q = in, .k = in, .o = out, .bias = in}, {.q = in, .k = in, .v = in, .bias = in},
        {.q = in, .k = in, .v = in, .o = out},
    };
    static const char *const names[] = {"'q'", "'k'", "'v'", "'o'", "'bias'"};
    for (int i = 0; i < 5; i++) {
        attn_context_clear_error(context);
        assert_int_equal(attn_plan_execute(plan, &arrays[i], NULL), ATTN_ERROR_ARGUMENT);
        assert_non_null(strstr(attn_context_error(context), names[i]));
        assert_true(out[0] == 7 && out[143] == 7);
    }
    attn_plan_destroy(plan);
}

static void arrays_without_elements_may_be_missing(void **state)
{
    (void)state;
    float in[400] = {0}, out[400] = {0};
    static const char *const names[] = {"'q'", "'k'", "'v'", "'o'"};
    static const char missing_may_be[6][5] = {"qkvo", "qkvo", "qo", "kv", "qk", "vo"};
    for (int dim = 0; dim < 6; dim++) {
        attn_problem p = sound();
        p.dims[dim].n = 0;
        attn_plan *plan;
        attn_context_clear_error(context);
        assert_int_equal(attn_plan_create(&plan, context, &p, NULL), ATTN_OK);
        for (int i = 0; i < 4; i++) {
            bool may = strchr(missing_may_be[dim], names[i][1]) != NULL;
            attn_arrays arrays = {
                .q = i == 0 ? NULL : in, .k = i == 1 ? NULL : in, .v = i == 2 ? NULL : in, .o = i == 3 ? NULL : out};
            attn_context_clear_error(context);
            assert_int_equal(attn_plan_execute(plan, &arrays, NULL), may ? ATTN_OK : ATTN_ERROR_ARGUMENT);
            assert_true(may || strstr(attn_context_error(context), names[i]));
        }
        attn_plan_destroy(plan);
    }
}

static void strides_may_not_be_forgotten(void **state)
{
    (void)state;
    static const attn_relative table = {.query_dim = 2, .key_dim = 3, .offset = 3, .rows = 8, .stride = {[4] = 1}};
    const unsigned all = ATTN_WITH_BIAS | ATTN_WITH_MASK | ATTN_WITH_BLOCKS;
    const attn_blocks blocks = {.query_dim = 2, .key_dim = 3, .queries = 2, .keys = 3};
    WRONG(ERROR_SHAPE, "bias has stride 0 in every dim", p.flags |= ATTN_WITH_BIAS);
    WRONG(ERROR_SHAPE, "mask has stride 0 in every dim", p.flags |= ATTN_WITH_MASK);
    WRONG(ERROR_SHAPE, "blocks has stride 0 in every dim", p.flags |= ATTN_WITH_BLOCKS; p.blocks = blocks);
    WRONG(ERROR_SHAPE, "bias has stride 0 in every dim", p.flags |= ATTN_WITH_BIAS | ATTN_WITH_BIAS_INDEX;
          p.dims[1].bias = 1; p.bias_index.rows = 2; p.bias_index.row_stride = 3);
    WRONG(ERROR_SHAPE, "bias_index.row_stride is 0", p.flags |= ATTN_WITH_BIAS | ATTN_WITH_BIAS_INDEX;
          p.dims[3].bias = 1; p.bias_index.rows = 2);
    WRONG(ERROR_SHAPE, "relative table 0 has 8 rows, but row_stride is 0", p.nrelatives = 1; p.relatives[0] = table);
    WRONG(OK, "", p.flags |= all; p.broadcast = all; p.blocks = blocks);
    WRONG(OK, "", p.flags |= all; p.blocks = blocks; p.dims[2].n = p.dims[3].n = p.dims[0].n = p.dims[1].n = 1);
    WRONG(ERROR_ARGUMENT, "broadcast has unknown bits 0x8", p.broadcast = ATTN_WITH_PACKED);
    WRONG(ERROR_SHAPE, "dbias: ", p.direction = ATTN_DIRECTION_BACKWARD; p.flags |= ATTN_WITH_BIAS | ATTN_WANT_DBIAS;
          p.own_grad_strides = true; p.dims[0].dbias = 1; p.dims[3].dbias = 1; p.dims[3].bias = 1;
          for (int i = 0; i < 6; i++) p.dims[i].dout = p.dims[i].o);
    WRONG(ERROR_SHAPE, "lse has stride 0 in every dim", p.direction = ATTN_DIRECTION_BACKWARD; p.flags |= ATTN_WANT_DQ;
          p.dims[0].lse = p.dims[1].lse = p.dims[2].lse = 0);
    WRONG(ERROR_SHAPE, "o has stride 0 in every dim", p.direction = ATTN_DIRECTION_BACKWARD; p.flags |= ATTN_WANT_DQ;
          for (int i = 0; i < 6; i++) p.dims[i].o = 0);
    WRONG(ERROR_ARGUMENT, "the problem has no dims", p.ndims = 0);
}

/* Checks the status, and that attn_context_error(NULL) says why. */
static void assert_unusual(attn_status status, attn_status expected, const char *words)
{
    assert_int_equal(status, expected);
    if (!strstr(attn_context_error(NULL), words))
        fail_msg("'%s' does not say '%s'", attn_context_error(NULL), words);
}

static void usual_problems_say_what_is_wrong(void **state)
{
    (void)state;
    attn_problem p;
    const attn_heads good = {.batch = 2, .heads = 6, .queries = 3, .keys = 4, .dim = 8};
    const attn_window2d window = {
        .batch = 1, .height = 4, .width = 4, .heads = 1, .dim = 4, .window_y = 3, .window_x = 3};
#define HEADS(status, words, ...)                                                                                      \
    do {                                                                                                               \
        attn_heads h = good;                                                                                           \
        __VA_ARGS__;                                                                                                   \
        assert_unusual(attn_problem_heads(&p, &h), ATTN_##status, words);                                              \
    } while (0)
    HEADS(ERROR_SHAPE, "kv_heads 4 does not divide heads 6", h.kv_heads = 4);
    HEADS(ERROR_ARGUMENT, "attn_heads: keys is -1", h.keys = -1);
    HEADS(ERROR_ARGUMENT, "attn_heads: dim is 0; it must be 1 to 2^40", h.dim = 0);
    HEADS(ERROR_ARGUMENT, "attn_heads: heads is 0", h.heads = 0);
    HEADS(ERROR_ARGUMENT, "attn_heads: lens_per is 3", h.lens_per = 3);
    HEADS(ERROR_ARGUMENT, "attn_heads: causal is 9", h.causal = (attn_causal)9);
    HEADS(ERROR_ARGUMENT, "attn_heads: layout is 9", h.layout = (attn_layout)9);
    HEADS(ERROR_ARGUMENT, "attn_heads: a reserved field is not zero", h.reserved[3] = 1);
    HEADS(ERROR_ARGUMENT, "attn_heads: an array would have", h.batch = h.keys = INT64_C(1) << 40);
    HEADS(ERROR_ARGUMENT, "attn_heads: an array would have", h.q_row = h.queries = INT64_C(1) << 40);
    HEADS(ERROR_ARGUMENT, "attn_heads: q_row is", h.q_row = INT64_MIN);
    HEADS(OK, "there is no context", h.q_row = -48);
    /* what was refused cannot be planned */
    HEADS(ERROR_ARGUMENT, "dim is 0", h.dim = 0);
    expect(&p, ATTN_ERROR_ARGUMENT, "the problem has no dims");
#undef HEADS
    attn_axis axis = {.rank = 2, .shape = {4, 6}, .channel_axis = 1, .heads = 4};
    assert_unusual(attn_problem_axis(&p, &axis), ATTN_ERROR_SHAPE, "attn_axis: heads 4 does not divide the 6 channels");
    axis = (attn_axis){.rank = 2, .shape = {4, 6}, .heads = 1};
    assert_unusual(attn_problem_axis(&p, &axis), ATTN_ERROR_ARGUMENT,
                   "axis and channel_axis are both 0; they must differ");
    axis = (attn_axis){.rank = 9, .heads = 1};
    assert_unusual(attn_problem_axis(&p, &axis), ATTN_ERROR_ARGUMENT, "attn_axis: rank is 9");
    axis = (attn_axis){.rank = 2, .shape = {4, 6}, .channel_axis = 1};
    assert_unusual(attn_problem_axis(&p, &axis), ATTN_ERROR_ARGUMENT, "attn_axis: heads is 0");
    assert_unusual(attn_problem_tied_rows(&p, INT64_MAX, 3, 1, 1, 8), ATTN_ERROR_ARGUMENT,
                   "rows is 9223372036854775807");
    assert_unusual(attn_problem_tied_rows(&p, 3, 3, 1, 1, 0), ATTN_ERROR_ARGUMENT, "attn_problem_tied_rows: dim is 0");
    attn_window2d w = window;
    w.batch = -1;
    assert_unusual(attn_problem_window2d(&p, &w), ATTN_ERROR_ARGUMENT, "attn_window2d: batch is -1");
    w = window;
    w.window_x = 0;
    assert_unusual(attn_problem_window2d(&p, &w), ATTN_ERROR_ARGUMENT, "attn_window2d: window_x is 0");
    w = window;
    w.dilation = INT64_MAX;
    assert_unusual(attn_problem_window2d(&p, &w), ATTN_ERROR_ARGUMENT, "attn_window2d: dilation is");
    assert_unusual(attn_problem_window2d(&p, &window), ATTN_OK, "there is no context");
}

static void contexts_that_are_refused_say_why(void **state)
{
    (void)state;
    attn_context *c;
    assert_unusual(attn_context_create(&c, &(attn_context_options){.isa = "avx3"}), ATTN_ERROR_NOT_FOUND, "\"avx3\"");
    assert_unusual(attn_context_create(&c, &(attn_context_options){.threads = -1}), ATTN_ERROR_ARGUMENT,
                   "threads is -1; it must be 0 to ");
    assert_unusual(attn_context_create(&c, &(attn_context_options){.precision = (attn_precision)9}),
                   ATTN_ERROR_ARGUMENT, "precision is 9; it must be between 0 and 4");
    assert_unusual(attn_context_create(&c, &(attn_context_options){.reserved = {1}}), ATTN_ERROR_ARGUMENT, "reserved");
}

static void malformed_wisdom_names_its_line(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "attn-wisdom 1\n", "attn-wisdom 2\nxyz\n", "attn-wisdom 2\n12 reference x\n",
                                      "attn-wisdom 2\n\n0123456789abcdef magic\n"};
    static const char *const words[] = {"line 1", "line 1", "line 2", "line 2", "line 3: there is no solver 'magic'"};
    for (int i = 0; i < 5; i++) {
        attn_context_clear_error(context);
        assert_int_equal(attn_wisdom_import(context, bad[i]), ATTN_ERROR_FORMAT);
        assert_non_null(strstr(attn_context_error(context), words[i]));
    }
}

typedef struct budget {
    int left;
} budget;

static void *budget_alloc(void *user, size_t size, size_t align)
{
    budget *b = user;
    void *memory = NULL;
    if (b->left-- <= 0 || posix_memalign(&memory, align, size) != 0)
        return NULL;
    return memory;
}

static void budget_release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const int64_t index[] = {1, 0};
    for (int n = 1;; n++) {
        budget b = {n};
        attn_context *c;
        attn_context_options options = {.allocator = {budget_alloc, budget_release, &b}, .threads = 1};
        assert_int_equal(attn_context_create(&c, &options), ATTN_OK);
        attn_problem p = sound();
        p.flags = ATTN_WANT_WEIGHTS;
        p.npicks = 1;
        p.picks[0] = (attn_pick){1, 2, index};
        attn_plan *plan;
        attn_status status = attn_plan_create(&plan, c, &p, &(attn_plan_options){.effort = ATTN_MEASURE});
        assert_true(status == ATTN_OK || status == ATTN_ERROR_MEMORY);
        attn_plan_destroy(plan);
        attn_context_destroy(c);
        if (status == ATTN_OK)
            break;
        assert_true(n < 200);
    }
}

/* Programs of later versions may set them; this version does not know what they mean. */
static void reserved_fields_must_be_zero(void **state)
{
    (void)state;
    attn_problem p;
    const float part[2] = {1, 2}, lse[1] = {0};
    float merged[2], both[1];
    attn_axis axis = {.rank = 2, .shape = {3, 4}, .axis = 0, .channel_axis = 1, .heads = 2};
    attn_window2d window = {.batch = 1, .height = 3, .width = 3, .heads = 1, .dim = 2, .window_y = 3, .window_x = 3};
    attn_partials parts = {.batch = 1, .heads = 1, .queries = 1, .dim = 2};
    attn_partials_arrays arrays = {.o1 = part, .reserved = {part}};
    assert_int_equal(attn_problem_axis(&p, &axis), ATTN_OK);
    assert_int_equal(attn_problem_window2d(&p, &window), ATTN_OK);
    assert_int_equal(attn_partials_merge(context, &parts, part, lse, part, lse, merged, both), ATTN_OK);
    axis.reserved[3] = window.reserved[0] = 1;
    assert_int_equal(attn_problem_axis(&p, &axis), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(NULL), "reserved"));
    assert_int_equal(attn_problem_window2d(&p, &window), ATTN_ERROR_ARGUMENT);
    assert_int_equal(attn_partials_backward(context, &parts, &arrays), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(context), "reserved"));
    parts.reserved[1] = 1;
    assert_int_equal(attn_partials_merge(context, &parts, part, lse, part, lse, merged, both), ATTN_ERROR_ARGUMENT);
}

/* The numbers of 1.0, which programs have compiled in. */
static void numbers_of_arrays_do_not_change(void **state)
{
    (void)state;
    assert_int_equal(ATTN_ARRAY_TABLE, 0);
    assert_int_equal(ATTN_ARRAY_DTABLE, 6);
    assert_int_equal(ATTN_ARRAY_Q, 12);
    assert_int_equal(ATTN_ARRAY_O, 26);
    assert_int_equal(ATTN_ARRAY_DSINKS, 35);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_checked),
        cmocka_unit_test(blocks_are_checked),
        cmocka_unit_test(gradients_must_have_something_to_be_of),
        cmocka_unit_test(dims_are_checked),
        cmocka_unit_test(sizes_may_not_overflow),
        cmocka_unit_test(outputs_may_not_overlap),
        cmocka_unit_test(overlap_is_decided_exactly),
        cmocka_unit_test(gradients_may_be_sums_but_not_overlap),
        cmocka_unit_test(windows_are_checked),
        cmocka_unit_test(references_to_dims_are_checked),
        cmocka_unit_test(tables_are_checked),
        cmocka_unit_test(plan_options_are_checked),
        cmocka_unit_test(additive_scores_need_strides_of_w),
        cmocka_unit_test(shared_arrays_and_unaligned_workspaces_are_refused),
        cmocka_unit_test(missing_arrays_are_named_and_nothing_is_written),
        cmocka_unit_test(arrays_without_elements_may_be_missing),
        cmocka_unit_test(usual_problems_say_what_is_wrong),
        cmocka_unit_test(strides_may_not_be_forgotten),
        cmocka_unit_test(contexts_that_are_refused_say_why),
        cmocka_unit_test(malformed_wisdom_names_its_line),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(reserved_fields_must_be_zero),
        cmocka_unit_test(numbers_of_arrays_do_not_change),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
