/* SPDX-License-Identifier: MIT
 *
 * Tests attention layers against plain loops, and masks, positions and recurrence.
 */
#include "support/fixture.h"
#include "support/tensors.h"

#include "nn/layers.h"

#include <math.h>
#include <string.h>

enum { B = 2, TQ = 3, TK = 5, D = 6, H = 2, DV = 4 };

static attn_tensor *random3(tape_fixture *f, int64_t a, int64_t b, int64_t c, uint64_t seed)
{
    return test_random(f->tape, ATTN_F64, 3, (int64_t[]){a, b, c}, seed);
}

/* Computes the softmax over the first n of the TK scores; n = 0 gives zeros. */
static void softmax(double *scores, int n)
{
    double sum = 0;
    for (int j = 0; j < TK; j++) {
        scores[j] = j < n ? exp(scores[j]) : 0;
        sum += scores[j];
    }
    for (int j = 0; j < TK && sum > 0; j++)
        scores[j] /= sum;
}

/* Applies the weights [B,TQ,TK] to v [B,TK,DV] and compares the result with out [B,TQ,DV]. */
static void check_output(const double *weights, const attn_tensor *v, const attn_tensor *out, int dv)
{
    assert_non_null(out);
    for (int row = 0; row < B * TQ; row++) {
        for (int c = 0; c < dv; c++) {
            double sum = 0;
            for (int j = 0; j < TK; j++)
                sum += weights[row * TK + j] * test_at(v, ((row / TQ) * TK + j) * dv + c);
            assert_true(fabs(sum - test_at(out, row * dv + c)) < 1e-12);
        }
    }
}

static const int32_t lens[B] = {4, 2};

static void dot_product_follows_its_formula(void **state)
{
    tape_fixture *f = *state;
    attn_tensor *q = random3(f, B, TQ, D, 1), *k = random3(f, B, TK, D, 2), *v = random3(f, B, TK, DV, 3);
    attn_tensor *maps = NULL;
    attn_nn_mask mask = {.valid_lens = test_lens(f->tape, B, lens)};
    attn_tensor *out = attn_nn_dot_product(f->tape, q, k, v, &mask, 0, &maps);
    double weights[B * TQ * TK];
    for (int row = 0; row < B * TQ; row++) {
        for (int j = 0; j < TK; j++) {
            double sum = 0;
            for (int c = 0; c < D; c++)
                sum += test_at(q, row * D + c) * test_at(k, ((row / TQ) * TK + j) * D + c);
            weights[row * TK + j] = sum / sqrt(D);
        }
        softmax(weights + row * TK, lens[row / TQ]);
    }
    check_output(weights, v, out, DV);
    assert_non_null(maps);
    assert_int_equal(attn_tensor_rank(maps), 3);
    for (int i = 0; i < B * TQ * TK; i++)
        assert_true(fabs(test_at(maps, i) - weights[i]) < 1e-12);
}

static void additive_follows_its_formula(void **state)
{
    tape_fixture *f = *state;
    attn_nn_additive layer;
    attn_nn_additive_init(&layer, &f->builder, 5, 6, 7, 0);
    attn_tensor *q = random3(f, B, TQ, 5, 1), *k = random3(f, B, TK, 6, 2), *v = random3(f, B, TK, DV, 3);
    attn_nn_mask mask = {.valid_lens = test_lens(f->tape, B, lens)};
    attn_tensor *out = attn_nn_additive_forward(&layer, f->tape, q, k, v, &mask, NULL);
    attn_tensor *pq = attn_nn_linear_forward(&layer.w_q, f->tape, q);
    attn_tensor *pk = attn_nn_linear_forward(&layer.w_k, f->tape, k);
    double weights[B * TQ * TK];
    for (int row = 0; row < B * TQ; row++) {
        for (int j = 0; j < TK; j++) {
            double sum = 0;
            for (int c = 0; c < 7; c++) {
                sum +=
                    test_at(layer.w_v, c) * tanh(test_at(pq, row * 7 + c) + test_at(pk, ((row / TQ) * TK + j) * 7 + c));
            }
            weights[row * TK + j] = sum;
        }
        softmax(weights + row * TK, lens[row / TQ]);
    }
    check_output(weights, v, out, DV);
    assert_non_null(attn_named_find(&f->parameters, "w_v.weight"));
    assert_int_equal(attn_tensor_length(attn_named_find(&f->parameters, "W_k.weight"), 1), 6);
}

static void time_major_keys_are_the_same_keys(void **state)
{
    tape_fixture *f = *state;
    attn_nn_additive layer;
    attn_nn_additive_init(&layer, &f->builder, 5, 6, 7, 0);
    attn_tensor *q = random3(f, B, TQ, 5, 1), *k = random3(f, B, TK, 6, 2), *v = random3(f, B, TK, DV, 3);
    attn_nn_mask mask = {.valid_lens = test_lens(f->tape, B, lens)};
    attn_tensor *out = attn_nn_additive_forward(&layer, f->tape, q, k, v, &mask, NULL);
    attn_tensor *turned_k = attn_permute(f->tape, k, (int[]){1, 0, 2});
    attn_tensor *turned_v = attn_permute(f->tape, v, (int[]){1, 0, 2});
    attn_tensor *keys = attn_nn_linear_forward(&layer.w_k, f->tape, turned_k);
    attn_tensor *turned = attn_nn_additive_attend(&layer, f->tape, q, keys, turned_v, true, &mask, NULL);
    assert_true(test_distance(turned, out) < 1e-12);
}

static void a_cache_of_another_type_or_width_is_refused(void **state)
{
    tape_fixture *f = *state;
    attn_nn_multi_head layer;
    attn_nn_multi_head_init(&layer, &f->builder, &(attn_nn_multi_head_options){.hidden = D, .heads = H});
    static const struct {
        attn_dtype dtype;
        int64_t dim;
        const char *said;
    } wrong[] = {{ATTN_F32, D, "tokens of type f64 cannot be appended to a cache of type f32"},
                 {ATTN_BF16, D, "tokens of type f64 cannot be appended to a cache of type bf16"},
                 {ATTN_F64, D - 1, "the layer has 6 channels, but the cache has 5"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        attn_nn_kv_cache cache;
        assert_int_equal(attn_nn_kv_cache_init(&cache, f->context, wrong[i].dtype, B, TK, wrong[i].dim), ATTN_OK);
        assert_refused(f->context, attn_nn_multi_head_append(&layer, f->tape, random3(f, B, 1, D, 1), &cache),
                       ATTN_ERROR_SHAPE, wrong[i].said);
        attn_nn_kv_cache_free(&cache);
    }
}

static void multi_head_is_its_heads_side_by_side(void **state)
{
    tape_fixture *f = *state;
    attn_nn_multi_head layer;
    attn_nn_multi_head_options options = {.hidden = D, .heads = H, .key_size = 5, .value_size = 4, .bias = true};
    attn_nn_multi_head_init(&layer, &f->builder, &options);
    attn_tensor *x = random3(f, B, TQ, D, 1), *k = random3(f, B, TK, 5, 2), *v = random3(f, B, TK, 4, 3);
    attn_nn_mask mask = {.valid_lens = test_lens(f->tape, B, lens)};
    attn_tensor *maps = NULL, *parts[H];
    attn_tensor *out = attn_nn_multi_head_forward(&layer, f->tape, x, k, v, &mask, &maps);
    attn_tensor *pq = attn_nn_linear_forward(&layer.w_q, f->tape, x);
    attn_tensor *pk = attn_nn_linear_forward(&layer.w_k, f->tape, k);
    attn_tensor *pv = attn_nn_linear_forward(&layer.w_v, f->tape, v);
    for (int h = 0; h < H; h++) {
        int64_t from = h * D / H, to = (h + 1) * D / H;
        attn_tensor *q = attn_slice(f->tape, pq, 2, from, to), *key = attn_slice(f->tape, pk, 2, from, to);
        parts[h] = attn_nn_dot_product(f->tape, q, key, attn_slice(f->tape, pv, 2, from, to), &mask, 0, NULL);
    }
    attn_tensor *whole = attn_nn_linear_forward(&layer.w_o, f->tape, attn_concat(f->tape, parts, H, 2));
    assert_true(test_distance(out, whole) < 1e-12);
    assert_int_equal(attn_tensor_rank(maps), 4);
    assert_int_equal(attn_tensor_length(maps, 1), H);
    assert_int_equal(attn_tensor_length(maps, 3), TK);
}

static void length_0_gives_zero_or_the_mean(void **state)
{
    tape_fixture *f = *state;
    attn_tensor *q = random3(f, B, TQ, D, 1), *k = random3(f, B, TK, D, 2), *v = random3(f, B, TK, DV, 3);
    attn_nn_mask mask = {.valid_lens = test_lens(f->tape, B, (int32_t[]){0, 2})};
    attn_tensor *out = attn_nn_dot_product(f->tape, q, k, v, &mask, 0, NULL);
    mask.fill = -1e6;
    attn_tensor *filled = attn_nn_dot_product(f->tape, q, k, v, &mask, 0, NULL);
    assert_non_null(out);
    assert_non_null(filled);
    for (int c = 0; c < DV; c++) {
        double mean = 0;
        for (int j = 0; j < TK; j++)
            mean += test_at(v, j * DV + c) / TK;
        assert_true(test_at(out, c) == 0);
        assert_true(fabs(test_at(filled, c) - mean) < 1e-12);
    }
    attn_tensor *x = random3(f, B, TQ, TK, 4);
    attn_tensor *zero = attn_nn_masked_softmax(f->tape, x, &(attn_nn_mask){.valid_lens = mask.valid_lens});
    attn_tensor *even = attn_nn_masked_softmax(f->tape, x, &mask);
    assert_true(test_at(zero, 0) == 0);
    assert_true(fabs(test_at(even, 0) - 1.0 / TK) < 1e-12);
    assert_true(test_at(even, (TQ + 1) * TK + 2) == 0);
}

static void lengths_may_differ_by_query(void **state)
{
    tape_fixture *f = *state;
    int32_t causal[B * TQ] = {1, 2, 3, 1, 2, 3};
    attn_nn_multi_head layer;
    attn_nn_multi_head_init(&layer, &f->builder, &(attn_nn_multi_head_options){.hidden = D, .heads = H});
    attn_tensor *x = random3(f, B, TQ, D, 1);
    attn_tensor *table = attn_tape_tensor(f->tape, ATTN_I32, 2, (int64_t[]){B, TQ}, causal);
    attn_nn_mask by_lens = {.valid_lens = table}, by_band = {.causal = ATTN_CAUSAL_TOP_LEFT};
    attn_tensor *a = attn_nn_multi_head_forward(&layer, f->tape, x, x, x, &by_lens, NULL);
    attn_tensor *b = attn_nn_multi_head_forward(&layer, f->tape, x, x, x, &by_band, NULL);
    assert_true(test_distance(a, b) < 1e-12);
    assert_true(test_distance(a, attn_nn_multi_head_forward(&layer, f->tape, x, x, x, NULL, NULL)) > 1e-3);
}

static void positions_are_sines_and_cosines(void **state)
{
    tape_fixture *f = *state;
    attn_nn_positional layer;
    attn_nn_positional_init(&layer, &f->builder, 4, 10, 0);
    attn_tensor *x = random3(f, 1, 2, 4, 1);
    attn_tensor *y = attn_nn_positional_forward(&layer, f->tape, x, 3);
    assert_non_null(y);
    double angles[2] = {3, 3 / 100.0};
    for (int c = 0; c < 4; c++) {
        double wanted = c % 2 ? cos(angles[c / 2]) : sin(angles[c / 2]);
        assert_true(fabs(test_at(y, c) - test_at(x, c) - wanted) < 1e-12);
    }
    assert_int_equal(f->parameters.n, 0); /* The table of positions is not part of the state dict. */
    assert_null(attn_nn_positional_forward(&layer, f->tape, x, 9));
    assert_says(f->context, "max_len is 10");
    assert_null(attn_nn_positional_forward(&layer, f->tape, random3(f, 1, 2, 1, 1), 0));
    assert_says(f->context, "expected 4 channels");
    layer.offset = 12;
    assert_null(attn_nn_positional_forward(&layer, f->tape, x, 0));
    assert_says(f->context, "positions 12 to 13 requested, but max_len is 10");
}

/* If the size of heads is given, dim need not be divisible by the number of heads. The original requires
 * divisibility even then. */
static void heads_of_a_size_of_their_own_may_be_any_number(void **state)
{
    tape_fixture *f = *state;
    attn_nn_self_attention layer;
    attn_nn_self_attention_init(&layer, &f->builder, D, 4, 3);
    attn_tensor *x = random3(f, B, TQ, D, 1), *weights = NULL;
    attn_tensor *y = attn_nn_self_attention_forward(&layer, f->tape, x, NULL, &weights);
    assert_non_null(y);
    assert_int_equal(attn_tensor_length(layer.to_q.weight, 0), 4 * 3);
    assert_int_equal(attn_tensor_length(y, 2), D);
    assert_int_equal(attn_tensor_length(weights, 1), 4);
    assert_true(test_distance(y, attn_nn_self_attention_axis(&layer, f->tape, x, 1, 2, NULL)) < 1e-12);
    attn_nn_self_attention_init(&layer, &f->builder, D, 4, 0);
    assert_says(f->context, "4 heads do not divide 6");
}

static void positions_of_other_queries_or_keys_are_refused(void **state)
{
    tape_fixture *f = *state;
    const int64_t wrong[][3] = {{B, 2, D}, {3, 1, D}, {1, 1, 1}, {1, 1, D + 1}};
    attn_nn_detr_attention layer;
    attn_nn_detr_attention_init(&layer, &f->builder, H, D, 3, 0, false);
    attn_tensor *one = random3(f, B, 1, D, 1), *all = random3(f, B, TK, D, 2);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        attn_tensor *p = random3(f, wrong[i][0], wrong[i][1], wrong[i][2], 3);
        assert_null(attn_nn_detr_attention_forward(&layer, f->tape, one, all, p, NULL, NULL));
        assert_says(f->context, "p_q: expected [1,1,6] or [2,1,6], found ");
        assert_null(attn_nn_detr_attention_forward(&layer, f->tape, all, one, NULL, p, NULL));
        assert_says(f->context, "p_kv: expected [1,1,6]");
    }
    assert_non_null(attn_nn_detr_attention_forward(&layer, f->tape, one, all, one, all, NULL));
    assert_non_null(attn_nn_detr_attention_forward(&layer, f->tape, one, all, random3(f, 1, 1, D, 4), NULL, NULL));
}

static double gate(double x)
{
    return 1 / (1 + exp(-x));
}

static void recurrent_layers_stop_where_sentences_end(void **state)
{
    tape_fixture *f = *state;
    enum { T = 4, HIDDEN = 3, IN = 2 };
    attn_nn_gru layer;
    attn_nn_gru_init(&layer, &f->builder, IN, HIDDEN, 2, 0);
    attn_tensor *x = random3(f, T, B, IN, 1), *at_end[2] = {0}, *at_lens[2] = {0};
    attn_tensor *all = attn_nn_gru_forward(&layer, f->tape, x, at_end, NULL);
    attn_nn_gru_forward(&layer, f->tape, x, at_lens, test_lens(f->tape, B, (int32_t[]){2, 4}));
    assert_non_null(at_lens[1]);
    for (int c = 0; c < HIDDEN; c++) {
        assert_true(test_at(at_end[1], c) == test_at(all, ((T - 1) * B) * HIDDEN + c));
        assert_true(test_at(at_lens[1], c) == test_at(all, (1 * B) * HIDDEN + c));
        assert_true(test_at(at_lens[0], HIDDEN + c) == test_at(at_end[0], HIDDEN + c));
    }
    /* In the first step of the first layer, the state is zero. Then h = (1 - z) n, where n = tanh(W x + b + r (U 0 +
     * c)). */
    attn_nn_gru lower = layer;
    lower.layers = 1;
    attn_tensor *first = attn_nn_gru_forward(&lower, f->tape, x, NULL, NULL);
    double sums[3] = {0};
    for (int g = 0; g < 3; g++) {
        sums[g] = test_at(layer.bias_ih[0], g * HIDDEN);
        for (int c = 0; c < IN; c++)
            sums[g] += test_at(layer.weight_ih[0], g * HIDDEN * IN + c) * test_at(x, c);
    }
    double r = gate(sums[0] + test_at(layer.bias_hh[0], 0)), z = gate(sums[1] + test_at(layer.bias_hh[0], HIDDEN));
    double n = tanh(sums[2] + r * test_at(layer.bias_hh[0], 2 * HIDDEN));
    assert_true(fabs(test_at(first, 0) - (1 - z) * n) < 1e-12);
}

static void shapes_that_do_not_fit_are_errors(void **state)
{
    tape_fixture *f = *state;
    attn_nn_multi_head layer;
    attn_nn_multi_head_init(&layer, &f->builder, &(attn_nn_multi_head_options){.hidden = 6, .heads = 4});
    assert_refused(f->context, attn_context_status(f->context), ATTN_ERROR_ARGUMENT, "4 heads do not divide 6");
    attn_tensor *q = random3(f, B, TQ, D, 1), *k = random3(f, B, TK, D, 2);
    assert_null(attn_nn_dot_product(f->tape, q, k, random3(f, B, TK + 1, D, 3), NULL, 0, NULL));
    assert_int_equal(attn_context_status(f->context), ATTN_ERROR_SHAPE);
    attn_context_clear_error(f->context);
    attn_nn_mask short_mask = {.valid_lens = test_lens(f->tape, 1, lens)};
    assert_null(attn_nn_dot_product(f->tape, q, k, k, &short_mask, 0, NULL));
    assert_says(f->context, "valid_lens");
    assert_null(attn_nn_dot_product(f->tape, q, k, k, &(attn_nn_mask){.valid_lens = q}, 0, NULL));
    assert_says(f->context, "valid_lens: expected i32, found f64");
    attn_nn_additive additive;
    attn_nn_additive_init(&additive, &f->builder, D, D, 7, 0);
    assert_null(
        attn_nn_additive_forward(&additive, f->tape, q, k, k, &(attn_nn_mask){.causal = ATTN_CAUSAL_TOP_LEFT}, NULL));
    assert_says(f->context, "additive attention supports lengths, but not a causal mask");
}

RUN_TESTS(TEST_WITH_TAPE(dot_product_follows_its_formula), TEST_WITH_TAPE(additive_follows_its_formula),
          TEST_WITH_TAPE(time_major_keys_are_the_same_keys), TEST_WITH_TAPE(multi_head_is_its_heads_side_by_side),
          TEST_WITH_TAPE(length_0_gives_zero_or_the_mean), TEST_WITH_TAPE(lengths_may_differ_by_query),
          TEST_WITH_TAPE(positions_are_sines_and_cosines), TEST_WITH_TAPE(recurrent_layers_stop_where_sentences_end),
          TEST_WITH_TAPE(shapes_that_do_not_fit_are_errors),
          TEST_WITH_TAPE(a_cache_of_another_type_or_width_is_refused),
          TEST_WITH_TAPE(positions_of_other_queries_or_keys_are_refused),
          TEST_WITH_TAPE(heads_of_a_size_of_their_own_may_be_any_number))
