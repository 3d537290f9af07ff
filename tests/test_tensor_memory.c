/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests tensors in the caller's memory, tensors that outlive their tape, and gradients of several results.
 */
#include "support/fixture.h"
#include "support/tensors.h"
#include "support/faults.h"

#include "attn/tensor.h"
#include "tensor/compute_in.h"
#include "tensor/op.h"
#include "tensor/parts.h"

#include <string.h>

typedef struct world {
    attn_context *c;
    attn_tape *t;
} world;

static world make_world(void)
{
    world w;
    assert_int_equal(attn_context_create(&w.c, &(attn_context_options){.threads = 1}), ATTN_OK);
    assert_int_equal(attn_tape_create(&w.t, w.c), ATTN_OK);
    attn_tape_reset(w.t, &(attn_tape_options){.record = true});
    return w;
}

static void end_world(world w)
{
    attn_tape_destroy(w.t);
    end_context(w.c);
}

static void a_reset_tape_is_like_a_new_one(void **state)
{
    world w = make_world();
    w.t->stream = w.t->moved = 3;
    w.t->section = w.t->sections = 2;
    w.t->again = w.t->failed = true;
    w.t->share = (attn_shard){1, 2, 3};
    w.t->examples = 1;
    attn_tape_compute_in(w.t, ATTN_PRECISION_BF16);
    attn_scope_begin(w.t);
    attn_tape_reset(w.t, NULL);
    assert_true(w.t->stream == 0 && w.t->moved == 0 && w.t->section == 0 && w.t->sections == 0);
    assert_true(!w.t->again && !w.t->failed && w.t->share.whole == 0 && w.t->examples == 0);
    assert_true(w.t->precision == ATTN_PRECISION_DEFAULT && !attn_tape_mode(w.t).record);
    attn_scope_end(w.t, NULL);
    assert_says(w.c, "attn_scope_end was called without attn_scope_begin");
    end_world(w);
}

static attn_tensor *wrapped(world w, float *numbers, int64_t n)
{
    attn_tensor *x;
    assert_int_equal(attn_tensor_wrap(&x, w.c, ATTN_F32, 1, (int64_t[]){n}, numbers), ATTN_OK);
    attn_tensor_set_requires_grad(x, true);
    return x;
}

static const float *numbers_of(const attn_tensor *x)
{
    return attn_tensor_data(x);
}

static void given_memory_is_used_as_it_is(void **state)
{
    world w = make_world();
    size_t before, after;
    static float numbers[100000];
    numbers[99999] = 7;
    attn_context_memory(w.c, &before, NULL, NULL);
    attn_tensor *x = wrapped(w, numbers, 100000);
    attn_context_memory(w.c, &after, NULL, NULL);
    assert_true(after - before < 1024);
    assert_ptr_equal(attn_tensor_data(x), numbers);
    attn_tensor *y = attn_affine(w.t, x, 2, 1);
    assert_true(numbers_of(y)[99999] == 15);
    assert_int_equal(attn_backward(w.t, attn_sum(w.t, y, 0)), ATTN_OK);
    assert_true(numbers_of(attn_tensor_grad(x))[5] == 2);
    assert_true(numbers[99999] == 7);
    attn_tape_reset(w.t, NULL);
    attn_tensor_destroy(x);
    end_world(w);
}

/* Cross-entropy may overwrite its logits with their gradient, except if they are a leaf. */
static void logits_that_view_a_leaf_stay(void **state)
{
    world w = make_world();
    float numbers[6] = {1, 2, 3, 4, 5, 6};
    attn_tensor *labels = attn_tape_tensor(w.t, ATTN_I32, 1, (int64_t[]){2}, (int32_t[]){0, 2});
    attn_tensor *leaves[] = {wrapped(w, numbers, 6), attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){6}, numbers)};
    attn_tensor_set_requires_grad(leaves[1], true);
    for (int k = 0; k < 2; k++) {
        attn_tensor *logits = attn_reshape(w.t, leaves[k], 2, (int64_t[]){2, 3});
        assert_int_equal(attn_backward(w.t, attn_cross_entropy(w.t, logits, labels, NULL)), ATTN_OK);
        for (int i = 0; i < 6; i++)
            assert_true(numbers_of(leaves[k])[i] == (float)(i + 1));
        assert_true(numbers_of(attn_tensor_grad(leaves[k]))[0] < 0);
    }
    attn_tensor_destroy(leaves[0]);
    end_world(w);
}

static void wrong_memory_is_refused(void **state)
{
    world w = make_world();
    attn_tensor *x = (attn_tensor *)&w;
    assert_int_equal(attn_tensor_wrap(&x, w.c, ATTN_F32, 1, (int64_t[]){3}, NULL), ATTN_ERROR_ARGUMENT);
    assert_null(x);
    assert_says(w.c, "NULL");
    assert_int_equal(attn_tensor_wrap(&x, w.c, ATTN_F32, 1, (int64_t[]){-3}, w.c), ATTN_ERROR_ARGUMENT);
    assert_null(x);
    attn_context_clear_error(w.c);
    assert_int_equal(attn_tensor_wrap(&x, w.c, ATTN_F32, 2, (int64_t[]){0, 3}, NULL), ATTN_OK);
    assert_int_equal(attn_tensor_size(x), 0);
    attn_tensor_destroy(x);
    assert_int_equal(attn_tensor_share(&x, NULL), ATTN_ERROR_ARGUMENT);
    attn_scope_begin(w.t);
    attn_tensor *parameter = wrapped(w, (float[3]){1, 2, 3}, 3), *gone = attn_affine(w.t, parameter, 2, 0);
    attn_scope_end(w.t, NULL);
    assert_refused(w.c, attn_tensor_share(&x, gone), ATTN_ERROR_ARGUMENT, "scope");
    attn_tape_reset(w.t, NULL);
    attn_tensor_destroy(parameter);
    end_world(w);
}

/* Only completely idle chunks are freed. The numbers of a result in another chunk must not change. */
static void results_survive_a_trimmed_pool(void **state)
{
    enum { KEPT = 3, N = 100000 };
    world w = make_world();
    attn_tensor *kept[KEPT];
    size_t full, trimmed;
    for (int i = 0; i < KEPT; i++) {
        assert_non_null(attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){4 * N}, NULL));
        attn_tape_reset(w.t, NULL);
        attn_tensor *x = attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){N}, NULL);
        assert_non_null(attn_tape_tensor(w.t, ATTN_F32, 1, (int64_t[]){8 * N}, NULL));
        assert_int_equal(attn_tensor_share(&kept[i], attn_affine(w.t, x, 0, i + 1)), ATTN_OK);
        attn_tape_reset(w.t, NULL);
        attn_context_memory(w.c, &full, NULL, NULL);
        attn__pool_trim(w.t->pool);
        attn_context_memory(w.c, &trimmed, NULL, NULL);
        assert_true(full - trimmed >= 8 * N * sizeof(float));
        for (int j = 0; j <= i; j++)
            for (int64_t e = 0; e < N; e++)
                assert_true(numbers_of(kept[j])[e] == (float)(j + 1));
    }
    for (int i = 0; i < KEPT; i++)
        attn_tensor_destroy(kept[i]);
    end_world(w);
}

/* Allocates blocks of growing sizes one at a time. Idle chunks must be freed before they exceed the limit. */
static void growing_blocks_leave_few_idle_ones(void **state)
{
    enum { STEP = 1 << 20, STEPS = 16 };
    attn_context *c = *state;
    size_t before, held;
    attn_context_memory(c, &before, NULL, NULL);
    attn__pool *pool = attn__pool_create(c);
    assert_non_null(pool);
    for (size_t i = 1; i <= STEPS; i++) {
        attn__storage *block = attn__storage_create(c, pool, i * STEP);
        assert_non_null(block);
        attn_context_memory(c, &held, NULL, NULL);
        assert_true(held - before >= i * STEP &&
                    held - before <= (size_t)(ATTN__POOL_SLACK * (double)(i * STEP)) + STEP);
        attn__storage_unref(block);
    }
    attn__pool_destroy(pool);
    attn_context_memory(c, &held, NULL, NULL);
    assert_int_equal(held, before);
}

static void a_shared_result_outlives_its_tape(void **state)
{
    world w = make_world();
    float numbers[4] = {1, 2, 3, 4};
    attn_tensor *x = wrapped(w, numbers, 4), *kept, *grad;
    attn_tensor *y = attn_affine(w.t, x, 3, 0);
    assert_int_equal(attn_tensor_share(&kept, y), ATTN_OK);
    assert_ptr_equal(attn_tensor_data(kept), attn_tensor_data(y));
    assert_false(attn_tensor_requires_grad(kept));
    assert_int_equal(attn_backward(w.t, attn_sum(w.t, y, 0)), ATTN_OK);
    assert_int_equal(attn_tensor_share(&grad, attn_tensor_grad(x)), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        attn_tape_reset(w.t, &(attn_tape_options){.record = true});
        assert_int_equal(attn_backward(w.t, attn_sum(w.t, attn_affine(w.t, x, 100, 0), 0)), ATTN_OK);
    }
    attn_tensor_zero_grad(x);
    assert_true(numbers_of(attn_tensor_grad(x))[0] == 0);
    attn_tape_destroy(w.t);
    w.t = NULL;
    attn_tensor_destroy(x);
    assert_true(numbers_of(kept)[3] == 12);
    assert_true(numbers_of(grad)[0] == 3);
    attn_tensor_destroy(kept);
    attn_tensor_destroy(grad);
    end_world(w);
}

static void several_results_give_one_gradient(void **state)
{
    world w = make_world();
    float numbers[3] = {1, 2, 3}, ones[3] = {1, 10, 100}, twos[3] = {2, 2, 2};
    attn_tensor *x = wrapped(w, numbers, 3), *a = wrapped(w, ones, 3), *b = wrapped(w, twos, 3);
    attn_tensor *y = attn_affine(w.t, x, 5, 0), *z = attn_mul(w.t, y, x); /* 5x and 5x^2 */
    assert_int_equal(attn_backward_many(w.t, (attn_tensor *[]){y, z}, (const attn_tensor *[]){a, b}, 2), ATTN_OK);
    for (int i = 0; i < 3; i++)
        assert_true(numbers_of(attn_tensor_grad(x))[i] == 5 * ones[i] + 2 * 10 * numbers[i]);
    attn_tape_reset(w.t, &(attn_tape_options){.record = true});
    y = attn_affine(w.t, x, 1, 0);
    assert_int_equal(attn_backward_many(w.t, (attn_tensor *[]){y, y}, (const attn_tensor *[]){a, b}, 2), ATTN_OK);
    attn_tape_reset(w.t, &(attn_tape_options){.record = true});
    y = attn_affine(w.t, x, 1, 0);
    assert_int_equal(attn_backward_many(w.t, NULL, NULL, 0), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(w.c);
    assert_int_equal(attn_backward_many(w.t, (attn_tensor *[]){y, NULL}, (const attn_tensor *[]){a, b}, 2),
                     ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(w.c);
    assert_int_equal(attn_backward_many(w.t, &y, (const attn_tensor *[]){NULL}, 1), ATTN_ERROR_SHAPE);
    attn_context_clear_error(w.c);
    attn_tape_reset(w.t, NULL);
    for (int i = 0; i < 3; i++)
        assert_true(numbers_of(attn_tensor_grad(x))[i] == 5 * ones[i] + 20 * numbers[i] + ones[i] + 2);
    attn_tensor_destroy(x);
    attn_tensor_destroy(a);
    attn_tensor_destroy(b);
    end_world(w);
}

static attn_status wrap_and_share(attn_context *c, void *user)
{
    float numbers[2] = {1, 2};
    attn_tensor *x = NULL, *y = NULL;
    attn_status status = attn_tensor_wrap(&x, c, ATTN_F32, 1, (int64_t[]){2}, numbers);
    if (status == ATTN_OK)
        status = attn_tensor_share(&y, x);
    attn_tensor_destroy(x);
    attn_tensor_destroy(y);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_in_range(faults_try_all(wrap_and_share, NULL), 1, 10);
}

/* Leaf tensors of the tape keep their gradients between backward passes. */
static void gradients_of_leaves_are_cleared_one_by_one(void **state)
{
    attn_context *c = *state;
    attn_tape *t;
    assert_int_equal(attn_tape_create(&t, c), ATTN_OK);
    attn_tape_reset(t, &(attn_tape_options){.record = true});
    attn_tensor *a = test_random(t, ATTN_F32, 1, (int64_t[]){3}, 1),
                *b = test_random(t, ATTN_F32, 1, (int64_t[]){3}, 2);
    attn_tensor *ones = attn_tape_tensor(t, ATTN_F32, 1, (int64_t[]){3}, (float[]){1, 1, 1});
    attn_tensor_set_requires_grad(a, true);
    attn_tensor_set_requires_grad(b, true);
    assert_int_equal(attn_backward_from(t, attn_add(t, a, b), ones), ATTN_OK);
    attn_tensor_zero_grad(a);
    assert_true(test_at(attn_tensor_grad(a), 1) == 0 && test_at(attn_tensor_grad(b), 1) == 1);
    assert_int_equal(attn_backward_from(t, attn_sub(t, b, a), ones), ATTN_OK);
    attn_tensor_zero_grad(b);
    assert_int_equal(attn_backward_from(t, attn_mul(t, a, b), ones), ATTN_OK);
    for (int64_t i = 0; i < 3; i++) {
        assert_true(test_at(attn_tensor_grad(a), i) == (double)((float)test_at(b, i) - 1));
        assert_true(test_at(attn_tensor_grad(b), i) == test_at(a, i));
    }
    attn_tape_destroy(t);
}

static size_t peak_of_a_convolution(int threads)
{
    world w;
    attn_tensor *x, *kernel;
    size_t peak;
    assert_int_equal(attn_context_create(&w.c, &(attn_context_options){.threads = threads}), ATTN_OK);
    assert_int_equal(attn_tape_create(&w.t, w.c), ATTN_OK);
    attn_tape_reset(w.t, &(attn_tape_options){.record = true});
    assert_int_equal(attn_tensor_create(&x, w.c, ATTN_F32, 4, (int64_t[]){1, 2, 200, 200}), ATTN_OK);
    assert_int_equal(attn_tensor_create(&kernel, w.c, ATTN_F32, 4, (int64_t[]){2, 1, 3, 3}), ATTN_OK);
    attn_tensor_set_requires_grad(kernel, true);
    attn_tensor *y = attn_convolve(w.t, x, kernel, NULL, &(attn_conv){.spatial = 2, .groups = 2});
    assert_int_equal(attn_backward_from(w.t, y, y), ATTN_OK);
    attn_context_memory(w.c, NULL, &peak, NULL);
    attn_tape_reset(w.t, NULL);
    attn_tensor_destroy(x);
    attn_tensor_destroy(kernel);
    end_world(w);
    return peak;
}

static void threads_without_work_take_no_memory(void **state)
{
    assert_int_equal(peak_of_a_convolution(16), peak_of_a_convolution(2));
}

RUN_TESTS(TEST(given_memory_is_used_as_it_is), TEST(wrong_memory_is_refused), TEST(logits_that_view_a_leaf_stay),
          TEST(a_shared_result_outlives_its_tape), TEST(several_results_give_one_gradient),
          TEST(every_allocation_may_fail), TEST(results_survive_a_trimmed_pool), TEST(a_reset_tape_is_like_a_new_one),
          TEST_WITH_CONTEXT(gradients_of_leaves_are_cleared_one_by_one), TEST(threads_without_work_take_no_memory),
          TEST_WITH_CONTEXT(growing_blocks_leave_few_idle_ones))
