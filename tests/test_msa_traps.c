/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests details of the MSA Transformer that are easy to get wrong, by separate computations. They are positions and
 * padding, both shapes of the table of row positions, masked residues, single sequences, columns of padding, normalized
 * representations, dropout, maps whose correction would divide by zero, and the memory of contacts.
 */
#include "support/fixture.h"
#include "support/tensors.h"

#include "attn/msa.h"
#include "nn/msa.h"
#include "apps/msa/msa.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 2, DIM = 8, R = 3, C = 6, B = 2, PAD = ATTN_RESIDUE_PAD };

typedef struct fixture {
    attn_context *context;
    attn_config *config;
} fixture;

static int begin(void **state)
{
    static fixture f;
    f = (fixture){.context = test_context()};
    f.config = fixture_msa_config(f.context, C);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    fixture *f = *state;
    attn_config_destroy(f->config);
    end_context(f->context);
    return 0;
}

static attn_msa *make(fixture *f)
{
    attn_msa *msa = NULL;
    assert_int_equal(attn_msa_create(&msa, f->context, f->config, 4), ATTN_OK);
    return msa;
}

static attn_tensor *parameter(const attn_msa *msa, const char *name)
{
    attn_tensor *tensor = attn_named_find(attn_model_parameters(attn_msa_model(msa)), name);
    assert_non_null(tensor);
    return tensor;
}

/* Two alignments. The first has three rows of six, with a gap and a masked residue. The second has two rows of four. */
static const int32_t batch[B * R * C] = {
    /* 30 is a gap, and 32 is a masked residue */
    0, 4, 5, 30, 7,   8,   0, 9, 32, 11, 12,  13,  0,   30,  30,  6,   6,   6,
    0, 5, 6, 7,  PAD, PAD, 0, 8, 30, 10, PAD, PAD, PAD, PAD, PAD, PAD, PAD, PAD,
};

/* ---------------------------------------------------------------------------------------------- embedding */

/* Checks the embedding LN(token + position + row position). <cls> has position 2, and gaps count. A masked residue
 * keeps its embedding, unlike in ESM-1b. Padding is zero. */
static void check_embedding(fixture *f, int64_t row_channels)
{
    attn_config_set_int(f->config, "embed_positions_msa_dim", row_channels);
    attn_msa *msa = make(f);
    const attn_tensor *tokens = parameter(msa, "embed_tokens.weight"),
                      *places = parameter(msa, "embed_positions.weight"),
                      *rows = parameter(msa, "msa_position_embedding");
    assert_int_equal(attn_tensor_length(rows, 1), 1024);
    assert_int_equal(attn_tensor_length(rows, 3), row_channels);
    assert_int_equal(attn_tensor_length(places, 0), C + 2); /* positions begin at padding_idx + 1 */
    const int64_t first = 0;
    attn_msa_result result;
    assert_int_equal(attn_msa_run(msa, batch, B, R, C, &(attn_msa_options){.layers = &first, .nlayers = 1}, &result),
                     ATTN_OK);
    for (int i = 0; i < B * R * C; i++) {
        double x[DIM], mean = 0, variance = 0;
        for (int d = 0; d < DIM; d++) {
            x[d] = test_at(tokens, batch[i] * DIM + d) + test_at(places, (i % C + 2) * DIM + d) +
                   test_at(rows, i / C % R * row_channels + d % row_channels);
            mean += x[d] / DIM;
        }
        for (int d = 0; d < DIM; d++)
            variance += (x[d] - mean) * (x[d] - mean) / DIM;
        for (int d = 0; d < DIM; d++) {
            double wanted = batch[i] == PAD ? 0 : (x[d] - mean) / sqrt(variance + 1e-5);
            assert_true(fabs(test_at(result.representations[0], i * DIM + d) - wanted) < 1e-5);
        }
    }
    attn_msa_destroy(msa);
}

static void embedding_follows_its_formula(void **state)
{
    check_embedding(*state, DIM);
    check_embedding(*state, 1);
}

/* Only the last representation is normalized, by a norm whose weights are 1 and 0. */
static void only_the_last_representation_is_normalized(void **state)
{
    fixture *f = *state;
    attn_msa *msa = make(f);
    const int64_t layers[] = {LAYERS - 1, LAYERS};
    attn_msa_result result;
    assert_int_equal(attn_msa_run(msa, batch, 1, R, C, &(attn_msa_options){.layers = layers, .nlayers = 2}, &result),
                     ATTN_OK);
    for (int k = 0; k < 2; k++) {
        double off = 0;
        for (int i = 0; i < R * C; i++) {
            double sum = 0, squares = 0;
            for (int d = 0; d < DIM; d++) {
                double x = test_at(result.representations[k], i * DIM + d);
                sum += x;
                squares += x * x;
            }
            off = fmax(off, fmax(fabs(sum / DIM), fabs(squares / DIM - 1)));
        }
        assert_true(k == 1 ? off < 1e-3 : off > 0.05);
    }
    attn_msa_destroy(msa);
}

/* --------------------------------------------------------------------------------------------- attention */

static attn_nn_msa_attention attention_of(fixture *f, attn_named_list *parameters, double dropout)
{
    attn_nn_msa_attention layer;
    attn_nn_builder builder = {
        .context = f->context, .parameters = parameters, .dtype = ATTN_F64, .seed = 3, .policy = ATTN_POLICY_TORCH};
    attn_nn_msa_attention_init(&layer, &builder, DIM, HEADS, dropout, -10000);
    return layer;
}

/* A single row attends to itself with the weight 1, so the result is out_proj(v_proj(x)). There is no dropout, even
 * in training. */
static void column_attention_of_one_row_is_identity_on_values(void **state)
{
    fixture *f = *state;
    attn_named_list parameters = {.context = f->context, .owns = true};
    attn_nn_msa_attention layer = attention_of(f, &parameters, 0.5);
    attn_tape *tape;
    attn_tape_create(&tape, f->context);
    attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = 7});
    attn_tensor *x = test_random(tape, ATTN_F64, 4, (int64_t[]){1, C, B, DIM}, 1), *weights = NULL;
    attn_tensor *y = attn_nn_msa_attention_columns(&layer, tape, x, NULL, &weights);
    attn_tensor *wanted = attn_nn_linear_forward(&layer.out, tape, attn_nn_linear_forward(&layer.v, tape, x));
    assert_true(test_distance(y, wanted) < 1e-12);
    assert_int_equal(attn_tensor_size(weights), HEADS * C * B);
    for (int64_t i = 0; i < attn_tensor_size(weights); i++)
        assert_true(test_at(weights, i) == 1);
    attn_tape_destroy(tape);
    attn_named_clear(&parameters);
}

/* In a column that is padding in all rows, all scores are -10000, so its weights are equal and finite. In other
 * columns, padding has the weight 0. */
static void fully_padded_columns_stay_finite(void **state)
{
    fixture *f = *state;
    attn_named_list parameters = {.context = f->context, .owns = true};
    attn_nn_msa_attention layer = attention_of(f, &parameters, 0);
    attn_tape *tape;
    uint8_t keep[B * R * C];
    attn_tape_create(&tape, f->context);
    attn_tape_reset(tape, &(attn_tape_options){0});
    for (int i = 0; i < B * R * C; i++)
        keep[i] = batch[i] != PAD;
    attn_tensor *mask = attn_tape_tensor(tape, ATTN_U8, 3, (int64_t[]){B, R, C}, keep), *weights = NULL;
    attn_tensor *x = test_random(tape, ATTN_F64, 4, (int64_t[]){R, C, B, DIM}, 1);
    attn_tensor *y = attn_nn_msa_attention_columns(&layer, tape, x, mask, &weights);
    assert_non_null(y);
    for (int64_t i = 0; i < attn_tensor_size(y); i++)
        assert_true(isfinite(test_at(y, i)));
    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < R * R; i++)
            assert_true(fabs(test_at(weights, (((int64_t)h * C + C - 1) * B + 1) * R * R + i) - 1.0 / R) < 1e-12);
        for (int q = 0; q < R; q++)
            assert_true(test_at(weights, (((int64_t)h * C * B + 1) * R + q) * R + R - 1) == 0);
    }
    attn_tape_destroy(tape);
    attn_named_clear(&parameters);
}

/* ----------------------------------------------------------------------------------------------- dropout */

static double logits_in_training(fixture *f, const char *key, double dropout)
{
    static const char *const all[] = {"dropout", "attention_dropout", "activation_dropout"};
    for (int i = 0; i < 3; i++)
        attn_config_set_real(f->config, all[i], strcmp(all[i], key) == 0 ? dropout : 0);
    attn_msa *msa = make(f);
    attn_tape *tape;
    attn_named_list in = {.context = f->context}, out = in;
    double far = 0;
    attn_msa_result result;
    assert_int_equal(attn_msa_run(msa, batch, B, R, C, &(attn_msa_options){.logits = true}, &result), ATTN_OK);
    attn_tape_create(&tape, f->context);
    attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = 7});
    attn_named_add(&in, "tokens", attn_tape_tensor(tape, ATTN_I32, 3, (int64_t[]){B, R, C}, batch));
    assert_int_equal(attn_model_forward(attn_msa_model(msa), tape, &in, &out), ATTN_OK);
    const attn_tensor *logits = attn_named_find(&out, "logits");
    for (int64_t i = 0; i < attn_tensor_size(logits); i++)
        if (batch[i / 33] != PAD)
            far = fmax(far, fabs(test_at(logits, i) - test_at(result.logits, i)));
    attn_named_clear(&in);
    attn_named_clear(&out);
    attn_tape_destroy(tape);
    attn_msa_destroy(msa);
    return far;
}

/* The published arguments have three dropouts, of which the published code uses two. */
static void attention_dropout_is_taken_and_not_used(void **state)
{
    fixture *f = *state;
    assert_true(logits_in_training(f, "attention_dropout", 0.9) < 1e-5);
    assert_true(logits_in_training(f, "dropout", 0.5) > 1e-2);
    assert_true(logits_in_training(f, "activation_dropout", 0.5) > 1e-2);
}

/* ---------------------------------------------------------------------------------------------- contacts */

/* The keys of <cls> are so large that no query attends to a residue. Without <cls>, each map is zero, so that its
 * correction is 0/0. */
static void apc_of_zero_maps_is_zero(void **state)
{
    fixture *f = *state;
    const float weights[LAYERS * HEADS] = {1, -2, 3, 0.5f};
    attn_msa *msa = make(f);
    attn_tensor *places = parameter(msa, "embed_positions.weight"),
                *norm = parameter(msa, "emb_layer_norm_before.weight");
    for (int i = 0; i < 2; i++) { /* channel 0 is positive for <cls> and negative for residues */
        for (int64_t p = 0; p < attn_tensor_length(places, 0); p++)
            test_set(places, p * DIM, p == 2 ? 1e4 : -1e4);
        test_set(norm, 0, 1);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        static const char *const which[] = {"q_proj.weight", "k_proj.weight", "q_proj.bias"};
        for (int w = 0; w < 3; w++) {
            char name[96];
            snprintf(name, sizeof name, "layers.%d.row_self_attention.layer.%s", layer, which[w]);
            attn_tensor *t = parameter(msa, name);
            for (int64_t i = 0; i < attn_tensor_size(t); i++) /* q is 300 everywhere, and k is 300 times channel 0 */
                test_set(t, i, w == 0 ? 0 : w == 1 ? (i % DIM == 0 ? 300 : 0) : 300);
        }
    }
    attn_msa_set_regression(msa, weights, 0.5f);
    attn_msa_result result;
    attn_msa_options wanted = {.contacts = true, .row_maps = true};
    assert_int_equal(attn_msa_run(msa, batch, 1, R, C, &wanted, &result), ATTN_OK);
    for (int64_t i = 0; i < (int64_t)LAYERS * HEADS * C * C; i++) {
        /* A number times its reciprocal may differ from 1 by two roundings. */
        double weight = test_at(result.row_maps, i);
        assert_true(i % C == 0 ? fabs(weight - 1) <= FLT_EPSILON : weight == 0);
    }
    for (int64_t i = 0; i < (C - 1) * (C - 1); i++)
        assert_true(fabs(test_at(result.contacts, i) - 1 / (1 + exp(-0.5))) < 1e-6);
    attn_msa_destroy(msa);
}

/* The published code keeps all column maps for its contacts, 5 GB for 128 x 256. Here contacts must need only one
 * number for each pair. */
static void contacts_hold_no_column_maps(void **state)
{
    fixture *f = *state;
    const float weights[LAYERS * HEADS] = {1};
    enum { ROWS = 512 };
    attn_msa *msa = make(f);
    attn_msa_cost plain, contacts, columns;
    attn_msa_options wanted = {.max_tokens = 1};
    attn_msa_set_regression(msa, weights, 0);
    assert_int_equal(attn_msa_estimate(msa, 1, ROWS, C, &wanted, &plain), ATTN_OK);
    wanted.contacts = true;
    assert_int_equal(attn_msa_estimate(msa, 1, ROWS, C, &wanted, &contacts), ATTN_OK);
    wanted.column_maps = true;
    assert_int_equal(attn_msa_estimate(msa, 1, ROWS, C, &wanted, &columns), ATTN_OK);
    assert_true(contacts.bytes - plain.bytes <= 2 * C * C * sizeof(float));
    assert_true(columns.bytes - contacts.bytes >= sizeof(float) * LAYERS * HEADS * C * ROWS * ROWS);
    attn_msa_destroy(msa);
}

#define TEST_PREPARED(name) cmocka_unit_test_setup_teardown(name, begin, end)
RUN_TESTS(TEST_PREPARED(embedding_follows_its_formula), TEST_PREPARED(only_the_last_representation_is_normalized),
          TEST_PREPARED(column_attention_of_one_row_is_identity_on_values),
          TEST_PREPARED(fully_padded_columns_stay_finite), TEST_PREPARED(attention_dropout_is_taken_and_not_used),
          TEST_PREPARED(apc_of_zero_maps_is_zero), TEST_PREPARED(contacts_hold_no_column_maps))
