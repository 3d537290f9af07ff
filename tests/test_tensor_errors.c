/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests that errors are reported, are kept, and leak nothing. Equal steps must stop allocating, and scopes must free
 * memory.
 */
#include "support/fixture.h"
#include "support/faults.h"

#include "attn/tensor.h"
#include "tensor/operand_layout.h"
#include "tensor/parts.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------- messages */

typedef struct world {
    attn_context *c;
    attn_tape *t;
} world;

static world make_world(void)
{
    world w;
    assert_int_equal(attn_context_create(&w.c, &(attn_context_options){.threads = 2}), ATTN_OK);
    assert_int_equal(attn_tape_create(&w.t, w.c), ATTN_OK);
    attn_tape_reset(w.t, &(attn_tape_options){.record = true, .train = true});
    return w;
}

static void end_world(world w)
{
    attn_tape_destroy(w.t);
    end_context(w.c);
}

static attn_tensor *zeros(world w, int rank, int64_t a, int64_t b, int64_t c)
{
    return attn_tape_tensor(w.t, ATTN_F32, rank, (int64_t[]){a, b, c}, NULL);
}

static void assert_said(world w, attn_tensor *result, attn_status status, const char *part)
{
    assert_null(result);
    if (attn_context_status(w.c) != status || !strstr(attn_context_error(w.c), part))
        fail_msg("status %d: %s", attn_context_status(w.c), attn_context_error(w.c));
    attn_context_clear_error(w.c);
}

static void shapes_that_do_not_fit_are_named(void **state)
{
    world w = make_world();
    attn_tensor *x = zeros(w, 2, 3, 4, 0), *y = zeros(w, 2, 3, 5, 0), *v = zeros(w, 1, 4, 0, 0);
    attn_tensor *ids = attn_tape_tensor(w.t, ATTN_I32, 1, (int64_t[]){2}, (int32_t[]){1, 3});
    assert_said(w, attn_add(w.t, x, y), ATTN_ERROR_SHAPE, "[3,4] and [3,5]");
    assert_said(w, attn_linear(w.t, x, y, NULL, ATTN_ACTIVATION_RELU), ATTN_ERROR_SHAPE, "x [3,4], w [3,5]");
    assert_said(w, attn_linear(w.t, x, x, v, ATTN_ACTIVATION_RELU), ATTN_ERROR_SHAPE, "b [4]");
    assert_said(w, attn_matmul(w.t, x, y, false, false), ATTN_ERROR_SHAPE, "matmul");
    assert_said(w, attn_reshape(w.t, x, 2, (int64_t[]){5, -1}), ATTN_ERROR_SHAPE, "[3,4] cannot become [5,-1]");
    assert_said(w, attn_permute(w.t, x, (int[]){0, 0}), ATTN_ERROR_SHAPE,
                "the axes are [0,0]; expected a permutation of 0 to 1");
    assert_said(w, attn_concat(w.t, (attn_tensor *[]){x, y}, 2, 0), ATTN_ERROR_SHAPE, "concat");
    assert_said(w, attn_slice(w.t, x, 1, 2, 5), ATTN_ERROR_SHAPE, "[2, 5) does not lie in axis 1");
    assert_said(w, attn_sum(w.t, x, 2), ATTN_ERROR_ARGUMENT, "axis 2");
    assert_said(w, attn_index_select(w.t, x, ids), ATTN_ERROR_ARGUMENT, "indices[1] is 3");
    assert_said(w, attn_embedding(w.t, y, attn_slice(w.t, ids, 0, 0, 1), 1, x, 0), ATTN_ERROR_SHAPE, "positions");
    assert_said(w, attn_layer_norm(w.t, y, v, v, 1e-5), ATTN_ERROR_SHAPE, "g [4]");
    assert_said(w, attn_softmax(w.t, x, v, 0), ATTN_ERROR_SHAPE, "lens [4] of f32");
    assert_said(w, attn_gru(w.t, x, NULL, x, x, v, v), ATTN_ERROR_SHAPE, "gru");
    assert_said(w, attn_cross_entropy(w.t, x, ids, NULL), ATTN_ERROR_SHAPE, "labels [2]");
    attn_tensor *maps = attn_tape_tensor(w.t, ATTN_F32, 4, (int64_t[]){1, 2, 3, 4}, NULL);
    attn_tensor *map = attn_tape_tensor(w.t, ATTN_F32, 3, (int64_t[]){1, 4, 3}, NULL);
    attn_tensor *kernel = attn_tape_tensor(w.t, ATTN_F32, 4, (int64_t[]){5, 2, 1, 1}, NULL);
    assert_said(w, attn_convolve(w.t, maps, kernel, v, &(attn_conv){.spatial = 2}), ATTN_ERROR_SHAPE,
                "b has the shape [4]; expected [5]");
    assert_said(w, attn_weights_cross_entropy(w.t, maps, map, 1), ATTN_ERROR_SHAPE, "target [1,4,3]");
    map = attn_tape_tensor(w.t, ATTN_F32, 3, (int64_t[]){1, 3, 4}, NULL);
    assert_said(w, attn_weights_cross_entropy(w.t, maps, map, 0), ATTN_ERROR_ARGUMENT, "divisor is 0");
    attn_tensor *empty = zeros(w, 3, 1, 2, 0);
    assert_said(w, attn_max_pool(w.t, empty, 1, (int64_t[]){2}, NULL, (int64_t[]){1}), ATTN_ERROR_SHAPE, "x [1,2,0]");
    assert_said(w, attn_dropout(w.t, x, 1), ATTN_ERROR_ARGUMENT, "dropout 1");
    assert_said(w, attn_add(w.t, x, attn_cast(w.t, x, ATTN_F64)), ATTN_ERROR_ARGUMENT, "f64");
    assert_said(w, attn_tape_tensor(w.t, ATTN_F32, 9, NULL, NULL), ATTN_ERROR_ARGUMENT,
                "a tensor of 9 axes is requested; it must have 0 to 8");
    end_world(w);
}

static void first_failure_on_a_tape_is_kept(void **state)
{
    world w = make_world();
    attn_tensor *x = zeros(w, 2, 3, 4, 0), *y = zeros(w, 2, 3, 5, 0), *bad = attn_add(w.t, x, y);
    attn_tensor *z = attn_sum(w.t, attn_add(w.t, attn_activate(w.t, bad, ATTN_ACTIVATION_RELU), x), 0);
    assert_null(z);
    assert_int_equal(attn_backward(w.t, z), ATTN_ERROR_ARGUMENT);
    assert_refused(w.c, attn_context_status(w.c), ATTN_ERROR_SHAPE, "add");
    end_world(w);
}

static void attention_stays_within_its_tensors(void **state)
{
    world w = make_world();
    attn_tensor *x = zeros(w, 3, 2, 3, 8);
    attn_attention a = {.q = {x, 0}, .k = {x, 0}, .v = {x, 0}, .rank = 3, .shape = {2, 3, 8}};
    attn_problem_heads(&a.problem, &(attn_heads){.batch = 2, .heads = 2, .queries = 3, .keys = 3, .dim = 4});
    assert_non_null(attn_attend(w.t, &a));
    a.k.offset = 1;
    assert_said(w, attn_attend(w.t, &a), ATTN_ERROR_SHAPE, "k reads elements 1 to 48 of its tensor ");
    a.k.offset = -1;
    assert_said(w, attn_attend(w.t, &a), ATTN_ERROR_SHAPE, "the offset of k is -1");
    a.k.offset = 0;
    a.shape[1] = 2;
    assert_said(w, attn_attend(w.t, &a), ATTN_ERROR_SHAPE, "o reads elements ");
    a.shape[1] = 3;
    a.mask = x;
    assert_said(w, attn_attend(w.t, &a), ATTN_ERROR_ARGUMENT, "mask is f32; it must be u8 or bool");
    a.mask = NULL;
    a.problem.nwindows = ATTN_MAX_WINDOWS + 1;
    assert_said(w, attn_attend(w.t, &a), ATTN_ERROR_ARGUMENT, "4 windows");
    end_world(w);
}

static void backward_needs_something_recorded(void **state)
{
    world w = make_world();
    attn_tensor *x = zeros(w, 1, 3, 0, 0), *y = attn_affine(w.t, x, 2, 0);
    assert_refused(w.c, attn_backward(w.t, NULL), ATTN_ERROR_ARGUMENT, "the result is NULL");
    assert_refused(w.c, attn_backward(w.t, y), ATTN_ERROR_ARGUMENT, "needs a gradient");
    attn_tensor_set_requires_grad(x, true);
    y = attn_affine(w.t, x, 2, 0);
    assert_refused(w.c, attn_backward(w.t, y), ATTN_ERROR_SHAPE, "the loss has 3 elements; it must have one");
    attn_tensor *sum = attn_sum(w.t, y, 0);
    assert_int_equal(attn_backward(w.t, sum), ATTN_OK);
    assert_true(((float *)attn_tensor_data(attn_tensor_grad(x)))[2] == 2.0f);
    assert_int_equal(attn_backward(w.t, sum), ATTN_ERROR_ARGUMENT);
    end_world(w);
}

/* ------------------------------------------------------------------------------------- a step of a model */

enum { BATCH = 2, TIME = 3, WIDTH = 8, WORDS = 11, PARAMETERS = 13 };

typedef struct model {
    attn_tensor *p[PARAMETERS];
} model;

static const int64_t shapes[PARAMETERS][2] = {
    {WORDS, WIDTH},     {3 * WIDTH, WIDTH}, {3 * WIDTH, 0}, {WIDTH, 0}, {WIDTH, 0},
    {4 * WIDTH, WIDTH}, {WIDTH, 4 * WIDTH}, {WORDS, WIDTH}, {WORDS, 0}, {3 * WIDTH, WIDTH},
    {3 * WIDTH, WIDTH}, {3 * WIDTH, 0},     {3 * WIDTH, 0},
};

static attn_status make_model(model *m, attn_context *c)
{
    attn_status status = ATTN_OK;
    for (int i = 0; i < PARAMETERS && status == ATTN_OK; i++) {
        status = attn_tensor_create(&m->p[i], c, ATTN_F32, shapes[i][1] ? 2 : 1, shapes[i]);
        float *x = status == ATTN_OK ? attn_tensor_data(m->p[i]) : NULL;
        for (int64_t j = 0; x && j < attn_tensor_size(m->p[i]); j++)
            x[j] = i == 3 ? 1.0f : 0.1f * (float)((j * 7 + i) % 11 - 5);
        if (x)
            attn_tensor_set_requires_grad(m->p[i], true);
    }
    return status;
}

static void free_model(model *m)
{
    for (int i = 0; i < PARAMETERS; i++)
        attn_tensor_destroy(m->p[i]);
}

static attn_tensor *forward(attn_tape *t, model *m)
{
    attn_tensor *const *p = m->p;
    const int32_t words[] = {1, 2, 3, 4, 5, 10};
    attn_tensor *ids = attn_tape_tensor(t, ATTN_I32, 2, (int64_t[]){BATCH, TIME}, words);
    attn_tensor *x = attn_dropout(t, attn_embedding(t, p[0], ids, 1, NULL, 0), 0.1);
    attn_scope_begin(t);
    attn_tensor *qkv = attn_linear(t, x, p[1], p[2], ATTN_ACTIVATION_IDENTITY);
    attn_attention a = {.q = {qkv, 0},
                        .k = {qkv, WIDTH},
                        .v = {qkv, 2 * WIDTH},
                        .rank = 3,
                        .shape = {BATCH, TIME, WIDTH},
                        .dropout = 0.1};
    attn_problem_heads(&a.problem, &(attn_heads){.batch = BATCH,
                                                 .heads = 2,
                                                 .queries = TIME,
                                                 .keys = TIME,
                                                 .dim = WIDTH / 2,
                                                 .q_row = 3 * WIDTH,
                                                 .k_row = 3 * WIDTH,
                                                 .v_row = 3 * WIDTH});
    x = attn_add_layer_norm(t, x, attn_attend(t, &a), 0.1, p[3], p[4], 1e-5);
    x = attn_scope_end(t, x);
    attn_tensor *h = attn_linear(t, x, p[5], NULL, ATTN_ACTIVATION_GELU_ERF);
    x = attn_add(t, x, attn_linear(t, h, p[6], NULL, ATTN_ACTIVATION_IDENTITY));
    x = attn_gru(t, attn_permute(t, x, (int[]){1, 0, 2}), NULL, p[9], p[10], p[11], p[12]);
    attn_tensor *logits = attn_linear(t, attn_permute(t, x, (int[]){1, 0, 2}), p[7], p[8], ATTN_ACTIVATION_IDENTITY);
    return attn_cross_entropy(t, logits, ids, &(attn_cross_entropy_options){.label_smoothing = 0.1});
}

static attn_status step(attn_tape *t, model *m, float *loss)
{
    attn_tape_reset(t, &(attn_tape_options){.record = true, .train = true, .seed = 3});
    attn_tensor *y = forward(t, m);
    if (!y)
        return attn_context_status(attn_tape_context(t));
    *loss = *(float *)attn_tensor_data(y);
    attn_status status = attn_backward(t, y);
    for (int i = 0; i < PARAMETERS && status == ATTN_OK; i++) {
        float *x = attn_tensor_data(m->p[i]), *g = attn_tensor_data(attn_tensor_grad(m->p[i]));
        for (int64_t j = 0; j < attn_tensor_size(m->p[i]); j++)
            x[j] -= 0.1f * g[j];
        attn_tensor_zero_grad(m->p[i]);
    }
    return status;
}

static void equal_steps_allocate_nothing(void **state)
{
    world w = make_world();
    model m = {0};
    uint64_t before = 0, after;
    size_t peak_before = 0, peak;
    float first = 0, loss = 0;
    assert_int_equal(make_model(&m, w.c), ATTN_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(step(w.t, &m, &loss), ATTN_OK);
        if (i == 0)
            first = loss;
        if (i == 3)
            attn_context_memory(w.c, NULL, &peak_before, &before);
    }
    attn_context_memory(w.c, NULL, &peak, &after);
    assert_int_equal(before, after);
    assert_int_equal(peak_before, peak);
    assert_true(loss < first);
    free_model(&m);
    end_world(w);
}

static void equal_seeds_and_threads_give_equal_bits(void **state)
{
    float losses[2] = {0};
    model m[2] = {{{0}}};
    world w[2];
    for (int run = 0; run < 2; run++) {
        w[run] = make_world();
        make_model(&m[run], w[run].c);
        for (int i = 0; i < 3; i++)
            assert_int_equal(step(w[run].t, &m[run], &losses[run]), ATTN_OK);
    }
    assert_memory_equal(&losses[0], &losses[1], sizeof *losses);
    for (int i = 0; i < PARAMETERS; i++)
        assert_memory_equal(attn_tensor_data(m[0].p[i]), attn_tensor_data(m[1].p[i]),
                            (size_t)attn_tensor_size(m[0].p[i]) * sizeof(float));
    for (int run = 0; run < 2; run++) {
        free_model(&m[run]);
        end_world(w[run]);
    }
}

static attn_status two_steps(attn_context *c, void *user)
{
    model m = {0};
    attn_tape *t = NULL;
    float loss;
    attn_status status = attn_tape_create(&t, c);
    if (status == ATTN_OK)
        status = make_model(&m, c);
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        status = step(t, &m, &loss);
    attn_tape_destroy(t);
    free_model(&m);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_in_range(faults_try_all(two_steps, NULL), 50, 2000);
}

/* ---------------------------------------------------------------------------------------------- bounds */

static void bounds_reach_both_ways_and_do_not_overflow(void **state)
{
    static const struct {
        attn__operand_dim extents[2];
        bool any;
        int64_t lowest, highest;
    } cases[] = {
        {{{3, 5}, {4, 1}}, true, 0, 13},
        {{{3, -5}, {4, 1}}, true, -10, 3},
        {{{3, -5}, {4, -1}}, true, -13, 0},
        {{{3, 5}, {0, 1}}, false, 0, 0},
        {{{8, INT64_MAX / 2}, {4, 1}}, true, 0, INT64_MAX / ATTN_MAX_DIMS + 3},
        {{{8, INT64_MIN / 2}, {4, 1}}, true, INT64_MIN / ATTN_MAX_DIMS, 3},
        {{{2, INT64_MAX}, {2, 1}}, true, INT64_MIN, INT64_MAX},
        {{{2, INT64_MIN}, {2, -1}}, true, INT64_MIN, INT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t lowest, highest;
        assert_int_equal(attn__operand_bounds(2, cases[i].extents, &lowest, &highest), cases[i].any);
        if (cases[i].any)
            assert_true(lowest == cases[i].lowest && highest == cases[i].highest);
    }
}

/* ---------------------------------------------------------------------------------------------- scopes */

static void scopes_free_in_inference(void **state)
{
    world w = make_world();
    attn_tape_reset(w.t, NULL);
    attn_tensor *x = zeros(w, 1, 1000, 0, 0);
    size_t held = 0, later;
    for (int i = 0; i < 500; i++) {
        attn_scope_begin(w.t);
        attn_scope_begin(w.t);
        attn_tensor *old = x, *y = attn_affine(w.t, old, 1, 1);
        attn_scope_begin(w.t);
        attn_affine(w.t, attn_affine(w.t, y, 1, 0), 1, 0);
        attn_scope_end(w.t, NULL);
        attn_tensor *reshaped = attn_reshape(w.t, y, 2, (int64_t[]){10, 100});
        y = attn_scope_end(w.t, reshaped);
        memcpy(attn_tensor_data(old), attn_tensor_data(y), 1000 * sizeof(float));
        attn_scope_end(w.t, NULL);
        attn_context_memory(w.c, &later, NULL, NULL);
        if (i == 0)
            held = later;
    }
    assert_int_equal(later, held);
    assert_true(((float *)attn_tensor_data(x))[999] == 500.0f);
    end_world(w);
}

static void scopes_free_what_is_not_needed_while_recording(void **state)
{
    world w = make_world();
    attn_tensor *x = zeros(w, 1, 1000, 0, 0);
    attn_tensor_set_requires_grad(x, true);
    attn_scope_begin(w.t);
    attn_tensor *gone = attn_affine(w.t, x, 2, 0), *kept = attn_mul(w.t, gone, gone);
    attn_tensor *sum = attn_affine(w.t, attn_add(w.t, gone, x), 3, 1);
    attn_scope_end(w.t, sum);
    assert_null(attn_tensor_data(kept));
    assert_said(w, attn_add(w.t, kept, sum), ATTN_ERROR_ARGUMENT, "freed by the end of a scope");
    assert_said(w, attn_cast(w.t, kept, ATTN_F64), ATTN_ERROR_ARGUMENT, "freed by the end of a scope");
    assert_said(w, attn_reshape(w.t, kept, 1, (int64_t[]){-1}), ATTN_ERROR_ARGUMENT, "freed by the end of a scope");
    attn_tensor *loss = attn_sum(w.t, sum, 0);
    assert_int_equal(attn_backward(w.t, loss), ATTN_OK);
    assert_true(((float *)attn_tensor_data(attn_tensor_grad(x)))[999] == 9.0f);
    end_world(w);
}

static void a_tensor_is_not_used_again_behind_its_pass(void **state)
{
    world w = make_world();
    attn_tensor *x = zeros(w, 1, 1, 0, 0), *shared;
    ((float *)attn_tensor_data(x))[0] = 1;
    attn_tensor_set_requires_grad(x, true);
    attn_tensor *h = attn_affine(w.t, x, 3, 0);
    assert_int_equal(attn_backward(w.t, attn_affine(w.t, h, 10, 0)), ATTN_OK);
    assert_said(w, attn_affine(w.t, h, 11, 0), ATTN_ERROR_ARGUMENT, "from before the backward pass");
    assert_int_equal(attn_tensor_share(&shared, h), ATTN_OK);
    attn_tensor *y = attn_mul(w.t, x, shared);
    assert_int_equal(attn_backward(w.t, h), ATTN_ERROR_ARGUMENT);
    assert_int_equal(attn_backward(w.t, y), ATTN_OK);
    assert_true(((float *)attn_tensor_data(attn_tensor_grad(x)))[0] == 33.0f);
    attn_tensor_destroy(shared);
    end_world(w);
}

static void integers_are_cast_from_what_they_hold(void **state)
{
    world w = make_world();
    static const double wrong[] = {NAN, INFINITY, 2147483648.0, -2147483649.0};
    static const double right[] = {2147483647.9, -2147483648.9, 0, 0};
    static const double bytes[] = {255.9, -0.9, 0, 0}, beyond[] = {0, 0, 256, 0};
    for (int i = 0; i < 4; i++)
        assert_said(w, attn_cast(w.t, attn_tape_tensor(w.t, ATTN_F64, 1, (int64_t[]){1}, wrong + i), ATTN_I32),
                    ATTN_ERROR_ARGUMENT, "cast: element 0, ");
    attn_tensor *y = attn_cast(w.t, attn_tape_tensor(w.t, ATTN_F64, 1, (int64_t[]){4}, right), ATTN_I32);
    assert_memory_equal(attn_tensor_data(y), ((int32_t[]){INT32_MAX, INT32_MIN, 0, 0}), 16);
    y = attn_cast(w.t, attn_tape_tensor(w.t, ATTN_F64, 1, (int64_t[]){4}, bytes), ATTN_U8);
    assert_memory_equal(attn_tensor_data(y), ((uint8_t[]){255, 0, 0, 0}), 4);
    assert_said(w, attn_cast(w.t, attn_tape_tensor(w.t, ATTN_F64, 1, (int64_t[]){4}, beyond), ATTN_U8),
                ATTN_ERROR_ARGUMENT, "cast: element 2, 256, does not fit in u8");
    end_world(w);
}

/* Gradients use the tape's memory. The tape reuses it if a gradient is dropped. A gradient that is kept outlives the
 * tape. */
static void gradients_return_their_memory_or_outlive_the_tape(void **state)
{
    enum { N = 200000 };
    world w = make_world();
    size_t peak = 0, later = 0;
    attn_tensor *x;
    assert_int_equal(attn_tensor_create(&x, w.c, ATTN_F32, 1, (int64_t[]){N}), ATTN_OK);
    attn_tensor_set_requires_grad(x, true);
    for (int i = 0; i < 4; i++) {
        attn_tape_reset(w.t, &(attn_tape_options){.record = true});
        assert_null(attn_tensor_grad(x));
        assert_int_equal(attn_backward(w.t, attn_sum(w.t, attn_affine(w.t, x, 3, 0), 0)), ATTN_OK);
        assert_true(((float *)attn_tensor_data(attn_tensor_grad(x)))[N - 1] == 3.0f);
        attn_context_memory(w.c, NULL, i == 0 ? &peak : &later, NULL);
        if (i < 3)
            attn_tensor_drop_grad(x);
    }
    assert_int_equal(peak, later);
    attn_tape_destroy(w.t);
    assert_true(((float *)attn_tensor_data(attn_tensor_grad(x)))[0] == 3.0f);
    attn_tensor_drop_grad(x);
    assert_null(attn_tensor_grad(x));
    attn_tensor_destroy(x);
    attn_context_memory(w.c, &later, NULL, NULL);
    assert_int_equal(later, 0);
    end_context(w.c);
}

static void lists_of_names(void **state)
{
    world w = make_world();
    attn_named_list list = {.context = w.c, .owns = true};
    char name[8] = "p00";
    for (int i = 0; i < 40; i++) {
        attn_tensor *x;
        name[1] = (char)('0' + i / 10);
        name[2] = (char)('0' + i % 10);
        assert_int_equal(attn_tensor_create(&x, w.c, ATTN_F32, 1, (int64_t[]){i}), ATTN_OK);
        assert_int_equal(attn_named_add(&list, name, x), ATTN_OK);
    }
    assert_int_equal(attn_tensor_size(attn_named_find(&list, "p17")), 17);
    assert_null(attn_named_find(&list, "p40"));
    attn_named_clear(&list);
    assert_int_equal(list.n, 0);
    end_world(w);
}

RUN_TESTS(TEST(shapes_that_do_not_fit_are_named), TEST(first_failure_on_a_tape_is_kept),
          TEST(attention_stays_within_its_tensors), TEST(a_tensor_is_not_used_again_behind_its_pass),
          TEST(integers_are_cast_from_what_they_hold), TEST(backward_needs_something_recorded),
          TEST(bounds_reach_both_ways_and_do_not_overflow), TEST(equal_steps_allocate_nothing),
          TEST(equal_seeds_and_threads_give_equal_bits), TEST(every_allocation_may_fail),
          TEST(scopes_free_in_inference), TEST(scopes_free_what_is_not_needed_while_recording),
          TEST(gradients_return_their_memory_or_outlive_the_tape), TEST(lists_of_names))
