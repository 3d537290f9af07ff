/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests architectures by name, whole models, and decoding step by step.
 */
#include "support/fixture.h"
#include "support/tensors.h"

#include "attn/models.h"
#include "models/decoding.h"
#include "tensor/parts.h"
#include "models/kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static attn_config *small_config(tape_fixture *f, const char *architecture)
{
    attn_config *config = NULL;
    attn_config_create(&config, f->context);
    attn_config_set_int(config, "src_vocab_size", 11);
    attn_config_set_int(config, "tgt_vocab_size", 13);
    attn_config_set_int(config, "num_hiddens", 8);
    attn_config_set_real(config, "dropout", 0.1);
    if (strcmp(architecture, "transformer") == 0) {
        attn_config_set_int(config, "ffn_num_hiddens", 5);
        attn_config_set_int(config, "num_heads", 2);
        attn_config_set_int(config, "num_blks", 2);
    } else {
        attn_config_set_int(config, "embed_size", 6);
        attn_config_set_bool(config, "pack_padding", true);
    }
    return config;
}

static attn_model *small_model(tape_fixture *f, const char *architecture, attn_dtype dtype)
{
    attn_model *model = NULL;
    attn_config *config = small_config(f, architecture);
    attn_model_create(&model, f->context, architecture, config, &(attn_model_options){.seed = 4, .dtype = dtype});
    attn_config_destroy(config);
    assert_string_equal(attn_context_error(f->context), "");
    assert_non_null(model);
    return model;
}

static const char *const both[] = {"transformer", "seq2seq-attention"};

/* ------------------------------------------------------------------------------------------- registry */

static void every_architecture_is_described(void **state)
{
    assert_true(attn_architecture_count() >= 10);
    for (int i = 0; i < attn_architecture_count(); i++) {
        const attn_architecture *a = attn_architecture_at(i);
        assert_ptr_equal(attn_architecture_find(a->name), a);
        assert_true(strlen(a->summary) > 10 && strlen(a->source) > 5);
        assert_true(a->ninputs > 0 && a->noutputs > 0);
        for (int k = 0; k < a->nkeys; k++)
            assert_true(strlen(a->keys[k].name) > 0 && strlen(a->keys[k].doc) > 0);
    }
    assert_null(attn_architecture_at(attn_architecture_count()));
    assert_null(attn_architecture_find("perceptron"));
}

static void expect_error(tape_fixture *f, const char *architecture, attn_config *config, attn_status status,
                         const char *text)
{
    attn_model *model = NULL;
    assert_refused(f->context, attn_model_create(&model, f->context, architecture, config, NULL), status, text);
    assert_null(model);
    attn_context_clear_error(f->context);
}

static void wrong_settings_are_told_with_the_right_ones(void **state)
{
    tape_fixture *f = *state;
    attn_config *config = NULL;
    expect_error(f, "transfomer", NULL, ATTN_ERROR_NOT_FOUND, "transfomer");
    expect_error(f, "transformer", NULL, ATTN_ERROR_ARGUMENT, "src_vocab_size");
    expect_error(f, "multi-head-attention", NULL, ATTN_ERROR_ARGUMENT, "num_hiddens");
    attn_config_create(&config, f->context);
    attn_config_set_int(config, "num_hidden", 8);
    expect_error(f, "multi-head-attention", config, ATTN_ERROR_ARGUMENT, "num_hiddens, num_heads");
    attn_config_destroy(config);
    config = small_config(f, "transformer");
    attn_config_set_text(config, "num_heads", "two");
    expect_error(f, "transformer", config, ATTN_ERROR_ARGUMENT, "num_heads must be an integer, not a text");
    attn_config_set_int(config, "num_heads", 3);
    expect_error(f, "transformer", config, ATTN_ERROR_ARGUMENT, "3 heads do not divide 8");
    attn_config_set_int(config, "num_heads", 2);
    attn_config_set_real(config, "dropout", 1.5);
    expect_error(f, "transformer", config, ATTN_ERROR_ARGUMENT, "dropout is 1.5; allowed: 0 to 0.99");
    attn_config_set_real(config, "dropout", 0);
    attn_config_set_text(config, "init", "lucky");
    expect_error(f, "transformer", config, ATTN_ERROR_ARGUMENT, "allowed: xavier, torch");
    attn_config_destroy(config);
    attn_config_create(&config, f->context);
    attn_config_set_int(config, "dim", 8);
    /* The lower 32 bits alone would be a valid value. */
    attn_config_set_int(config, "dim_index", ((int64_t)1 << 32) + 1);
    expect_error(f, "axial-attention", config, ATTN_ERROR_ARGUMENT, "dim_index is 4.29497e+09; allowed: -8 to 8");
    attn_config_set_int(config, "dim_index", -4);
    expect_error(f, "axial-attention", config, ATTN_ERROR_ARGUMENT, "dim_index is -4; allowed: 1 to 3, -1 to -3");
    attn_config_destroy(config);
}

static void defaults_are_filled_in(void **state)
{
    tape_fixture *f = *state;
    attn_config *config = small_config(f, "transformer");
    attn_model *model = NULL;
    attn_config_set_text(config, "architecture", "transformer");
    assert_int_equal(attn_model_create(&model, f->context, "transformer", config, NULL), ATTN_OK);
    assert_int_equal(attn_config_int(attn_model_config(model), "max_len", 0), 1000);
    assert_int_equal(attn_config_int(attn_model_config(model), "num_blks", 0), 2);
    assert_null(attn_config_get(attn_model_config(model), "architecture"));
    assert_string_equal(attn_model_architecture(model)->name, "transformer");
    attn_model_destroy(model);
    attn_config_destroy(config);
}

/* ----------------------------------------------------------------------------------------- parameters */

typedef struct expected {
    const char *name;
    int rank;
    int64_t shape[2];
} expected;

static void check_parameters(attn_model *model, const expected *wanted, int n, int64_t all)
{
    const attn_named_list *list = attn_model_parameters(model);
    for (int i = 0; i < n; i++) {
        const attn_tensor *x = attn_named_find(list, wanted[i].name);
        if (!x)
            fail_msg("there is no %s", wanted[i].name);
        assert_int_equal(attn_tensor_rank(x), wanted[i].rank);
        for (int d = 0; d < wanted[i].rank; d++)
            assert_int_equal(attn_tensor_length(x, d), wanted[i].shape[d]);
    }
    assert_int_equal(list->n, all);
}

static void parameters_have_the_originals_names(void **state)
{
    tape_fixture *f = *state;
    const expected transformer[] = {
        {"encoder.embedding.weight", 2, {11, 8}},
        {"encoder.blks.block0.attention.W_q.weight", 2, {8, 8}},
        {"encoder.blks.block1.attention.W_o.weight", 2, {8, 8}},
        {"encoder.blks.block0.addnorm1.ln.weight", 1, {8}},
        {"encoder.blks.block1.addnorm2.ln.bias", 1, {8}},
        {"encoder.blks.block0.ffn.dense1.weight", 2, {5, 8}},
        {"encoder.blks.block0.ffn.dense2.bias", 1, {8}},
        {"decoder.embedding.weight", 2, {13, 8}},
        {"decoder.blks.block0.attention1.W_k.weight", 2, {8, 8}},
        {"decoder.blks.block1.attention2.W_v.weight", 2, {8, 8}},
        {"decoder.blks.block1.addnorm3.ln.weight", 1, {8}},
        {"decoder.dense.weight", 2, {13, 8}},
        {"decoder.dense.bias", 1, {13}},
    };
    const expected recurrent[] = {
        {"encoder.embedding.weight", 2, {11, 6}},    {"encoder.rnn.weight_ih_l0", 2, {24, 6}},
        {"encoder.rnn.weight_hh_l1", 2, {24, 8}},    {"encoder.rnn.bias_ih_l1", 1, {24}},
        {"decoder.attention.W_q.weight", 2, {8, 8}}, {"decoder.attention.W_k.weight", 2, {8, 8}},
        {"decoder.attention.w_v.weight", 2, {1, 8}}, {"decoder.embedding.weight", 2, {13, 6}},
        {"decoder.rnn.weight_ih_l0", 2, {24, 14}},   {"decoder.rnn.bias_hh_l0", 1, {24}},
        {"decoder.dense.weight", 2, {13, 8}},        {"decoder.dense.bias", 1, {13}},
    };
    attn_model *model = small_model(f, "transformer", ATTN_F32);
    check_parameters(model, transformer, sizeof transformer / sizeof *transformer, 2 * 12 + 2 * 18 + 4);
    attn_model_destroy(model);
    model = small_model(f, "seq2seq-attention", ATTN_F32);
    check_parameters(model, recurrent, sizeof recurrent / sizeof *recurrent, 8 + 8 + 3 + 2 + 2);
    attn_model_destroy(model);
}

/* ------------------------------------------------------------------------------------- whole sequences */

enum { B = 3, TS = 6, TT = 5, V = 13 };
static const int32_t src_lens[B] = {6, 2, 4};

typedef struct batch {
    attn_tensor *src, *lens, *tgt;
} batch;

static batch make_batch(tape_fixture *f)
{
    return (batch){.src = test_ids(f->tape, 2, (int64_t[]){B, TS}, 11, 1),
                   .lens = test_lens(f->tape, B, src_lens),
                   .tgt = test_ids(f->tape, 2, (int64_t[]){B, TT}, V, 2)};
}

static void padding_keeps_the_result(void **state)
{
    tape_fixture *f = *state;
    for (int m = 0; m < 2; m++) {
        attn_model *model = small_model(f, both[m], ATTN_F32);
        batch b = make_batch(f);
        attn_tensor *logits = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, NULL);
        for (int64_t row = 0; row < B; row++) {
            int64_t n = src_lens[row];
            attn_tensor *alone = attn_tape_tensor(f->tape, ATTN_I32, 2, (int64_t[]){1, n},
                                                  (int32_t *)attn_tensor_data(b.src) + row * TS);
            attn_tensor *tgt = attn_slice(f->tape, b.tgt, 0, row, row + 1);
            attn_tensor *own = attn_seq2seq_forward(model, f->tape, alone, NULL, tgt, NULL);
            assert_true(test_distance(own, attn_slice(f->tape, logits, 0, row, row + 1)) < 1e-5);
        }
        attn_model_destroy(model);
    }
}

/* An empty sentence is an error for a recurrent network, because it has no state before its first step. */
static void empty_sentences_give_empty_results_or_errors(void **state)
{
    tape_fixture *f = *state;
    batch b = make_batch(f);
    attn_tensor *none = attn_tape_tensor(f->tape, ATTN_I32, 2, (int64_t[]){B, 0}, NULL);
    attn_model *model = small_model(f, "transformer", ATTN_F32);
    assert_int_equal(attn_tensor_size(attn_seq2seq_forward(model, f->tape, b.src, b.lens, none, NULL)), 0);
    assert_non_null(attn_seq2seq_forward(model, f->tape, none, NULL, b.tgt, NULL));
    attn_model_destroy(model);
    model = small_model(f, "seq2seq-attention", ATTN_F32);
    assert_null(attn_seq2seq_forward(model, f->tape, b.src, b.lens, none, NULL));
    assert_says(f->context, "at least one target token");
    assert_null(attn_seq2seq_forward(model, f->tape, none, NULL, b.tgt, NULL));
    assert_says(f->context, "at least one step");
    attn_model_destroy(model);
}

static void later_tokens_are_not_seen_unless_asked(void **state)
{
    tape_fixture *f = *state;
    for (int m = 0; m < 2; m++) {
        attn_model *model = small_model(f, both[m], ATTN_F32);
        batch b = make_batch(f);
        attn_tensor *before = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, NULL);
        attn_seq2seq_options see = {.see_future = true};
        attn_tensor *seeing = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, &see);
        for (int row = 0; row < B; row++) {
            int32_t *last = (int32_t *)attn_tensor_data(b.tgt) + row * TT + TT - 1;
            *last = (*last + 1) % V;
        }
        attn_tensor *after = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, NULL);
        attn_tensor *start = attn_slice(f->tape, before, 1, 0, TT - 1);
        assert_true(test_distance(attn_slice(f->tape, after, 1, 0, TT - 1), start) == 0);
        assert_true(test_distance(after, before) > 1e-3);
        if (m == 0)
            assert_true(test_distance(attn_slice(f->tape, seeing, 1, 0, TT - 1), start) > 1e-3);
        attn_model_destroy(model);
    }
}

static void weights_come_on_demand_and_sum_to_one(void **state)
{
    tape_fixture *f = *state;
    const int64_t counts[2] = {6, 1};
    for (int m = 0; m < 2; m++) {
        attn_model *model = small_model(f, both[m], ATTN_F32);
        batch b = make_batch(f);
        attn_named_list maps = {.context = f->context};
        attn_seq2seq_options options = {.weights = &maps};
        attn_tensor *plain = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, NULL);
        attn_tensor *logits = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, &options);
        assert_true(test_distance(logits, plain) < 1e-5);
        assert_int_equal(maps.n, counts[m]);
        attn_tensor *cross = attn_named_find(&maps, "cross.0");
        assert_non_null(cross);
        assert_int_equal(attn_tensor_length(cross, 2), TT);
        assert_int_equal(attn_tensor_length(cross, 3), TS);
        double sum = 0;
        for (int j = 0; j < TS; j++) {
            double weight = test_at(cross, attn_tensor_length(cross, 1) * TT * TS + j);
            assert_true(j < src_lens[1] || weight == 0);
            sum += weight;
        }
        assert_true(fabs(sum - 1) < 1e-5);
        attn_named_clear(&maps);
        attn_model_destroy(model);
    }
}

/* The guided weights have gradients and equal the weights in the output. Requesting them must not change the logits. */
static void guided_weights_are_the_last_layers(void **state)
{
    tape_fixture *f = *state;
    const char *const last[2] = {"cross.1", "cross.0"};
    for (int m = 0; m < 2; m++) {
        attn_model *model = small_model(f, both[m], ATTN_F32);
        batch b = make_batch(f);
        attn_named_list maps = {.context = f->context};
        attn_tensor *weights = NULL;
        attn_tensor *plain =
            attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, &(attn_seq2seq_options){.weights = &maps});
        attn_tensor *logits =
            attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, &(attn_seq2seq_options){.guided = &weights});
        assert_non_null(weights);
        assert_int_equal(attn_tensor_rank(weights), 4);
        assert_true(test_distance(logits, plain) < 1e-5);
        assert_true(test_distance(weights, attn_named_find(&maps, last[m])) < 1e-5);
        attn_named_clear(&maps);
        attn_model_destroy(model);
    }
}

static void named_inputs_give_named_outputs(void **state)
{
    tape_fixture *f = *state;
    attn_model *model = small_model(f, "transformer", ATTN_F32);
    batch b = make_batch(f);
    attn_named_list in = {.context = f->context}, out = {.context = f->context};
    attn_named_add(&in, "tokens", b.src);
    attn_named_add(&in, "valid_lens", b.lens);
    assert_refused(f->context, attn_model_forward(model, f->tape, &in, &out), ATTN_ERROR_ARGUMENT, "tgt_tokens");
    /* Tokens may be of a float type if their values are integers. */
    attn_named_add(&in, "tgt_tokens", attn_cast(f->tape, b.tgt, ATTN_F32));
    attn_named_add(&out, "cross_weights", NULL);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    attn_tensor *logits = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, NULL);
    assert_true(test_distance(attn_named_find(&out, "logits"), logits) < 1e-5);
    assert_int_equal(attn_tensor_rank(attn_named_find(&out, "cross_weights")), 5);
    assert_int_equal(out.n, 2);
    attn_named_add(&in, "image", b.src);
    assert_refused(f->context, attn_model_forward(model, f->tape, &in, &out), ATTN_ERROR_ARGUMENT,
                   "no input \"image\"");
    attn_named_clear(&in);
    attn_named_clear(&out);
    attn_model_destroy(model);
}

/* ------------------------------------------------------------------------------------------- gradients */

/* Computes the loss of the decoder's output plus, if `guided` is true, the loss of its attention. */
static double loss_of(tape_fixture *f, attn_model *model, bool record, bool guided)
{
    attn_tape_reset(f->tape, &(attn_tape_options){.record = record});
    batch b = make_batch(f);
    attn_tensor *labels = test_ids(f->tape, 2, (int64_t[]){B, TT}, V, 3);
    attn_tensor *weights;
    attn_seq2seq_options options = {.guided = guided ? &weights : NULL};
    attn_tensor *logits = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, &options);
    attn_tensor *loss =
        attn_cross_entropy(f->tape, logits, labels, &(attn_cross_entropy_options){.use_ignore_index = true});
    if (guided) {
        attn_tensor *map = attn_tape_tensor(f->tape, ATTN_F64, 3, (int64_t[]){B, TT, TS}, NULL);
        for (int64_t i = 0; i < B * TT; i++)
            test_set(map, i * TS + i % 2, 1);
        loss = attn_add(f->tape, loss, attn_weights_cross_entropy(f->tape, weights, map, 3));
    }
    assert_non_null(loss);
    double value = test_at(loss, 0);
    if (record)
        assert_int_equal(attn_backward(f->tape, loss), ATTN_OK);
    return value;
}

/* Compares three elements of the gradient of every parameter with central differences. */
static void gradients_are_the_slopes(void **state)
{
    tape_fixture *f = *state;
    for (int c = 0; c < 4; c++) {
        attn_model *model = small_model(f, both[c / 2], ATTN_F64);
        const attn_named_list *list = attn_model_parameters(model);
        loss_of(f, model, true, c % 2);
        for (int64_t p = 0; p < list->n; p++) {
            attn_tensor *x = list->items[p].tensor, *grad = attn_tensor_grad(x);
            assert_non_null(grad);
            for (int64_t k = 0; k < 3; k++) {
                int64_t i = k * (attn_tensor_size(x) - 1) / 2;
                double old = test_at(x, i), h = 1e-5;
                test_set(x, i, old + h);
                double above = loss_of(f, model, false, c % 2);
                test_set(x, i, old - h);
                double below = loss_of(f, model, false, c % 2), slope = (above - below) / (2 * h);
                test_set(x, i, old);
                if (fabs(slope - test_at(grad, i)) > 1e-6 * fmax(1e-2, fabs(slope)))
                    fail_msg("%s[%d]: slope %.9g, gradient %.9g", list->items[p].name, (int)i, slope, test_at(grad, i));
            }
        }
        attn_model_destroy(model);
    }
}

/* -------------------------------------------------------------------------------------------- decoding */

static attn_tensor *column(tape_fixture *f, const attn_tensor *tgt, int64_t t, int64_t width)
{
    int64_t rows = attn_tensor_length(tgt, 0) * width, steps = attn_tensor_length(tgt, 1);
    attn_tensor *x = attn_tape_tensor(f->tape, ATTN_I32, 1, &rows, NULL);
    for (int64_t i = 0; i < rows; i++)
        ((int32_t *)attn_tensor_data(x))[i] = ((int32_t *)attn_tensor_data(tgt))[i / width * steps + t];
    return x;
}

/* Makes a Transformer with the settings of Marian and similar models. */
static attn_model *optional_model(tape_fixture *f)
{
    static const char *const texts[][2] = {
        {"norm", "pre"}, {"activation", "silu"}, {"positions", "learned"}, {"tie", "decoder"}};
    static const char *const flags[] = {"decoder_bias", "encoder_norm", "decoder_norm", "embedding_norm"};
    attn_config *config = small_config(f, "transformer");
    attn_model *model = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        attn_config_set_text(config, texts[i][0], texts[i][1]);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        attn_config_set_bool(config, flags[i], true);
    attn_config_set_int(config, "position_offset", 2);
    attn_config_set_int(config, "dec_num_blks", 3);
    assert_int_equal(attn_model_create(&model, f->context, "transformer", config, &(attn_model_options){.seed = 5}),
                     ATTN_OK);
    attn_config_destroy(config);
    return model;
}

static void steps_give_the_logits_of_the_whole(void **state)
{
    tape_fixture *f = *state;
    for (int m = 0; m < 3; m++) {
        attn_model *model = m < 2 ? small_model(f, both[m], ATTN_F32) : optional_model(f);
        batch b = make_batch(f);
        attn_tensor *whole = attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, NULL);
        for (int64_t width = 1; width <= 3; width += 2) {
            attn_decoding *decoding = NULL;
            attn_decoding_options options = {.max_len = TT, .beam = width};
            assert_int_equal(attn_decoding_create(&decoding, model, f->tape, b.src, b.lens, &options), ATTN_OK);
            for (int64_t t = 0; t < TT; t++) {
                attn_tensor *logits = attn_decoding_step(decoding, f->tape, column(f, b.tgt, t, width));
                assert_non_null(logits);
                for (int64_t i = 0; i < B * width * V; i++) {
                    int64_t row = i / V / width;
                    double wanted = test_at(whole, (row * TT + t) * V + i % V);
                    assert_true(fabs(test_at(logits, i) - wanted) < 1e-5 * fmax(1, fabs(wanted)));
                }
            }
            assert_null(attn_decoding_step(decoding, f->tape, column(f, b.tgt, 0, width)));
            assert_int_equal(attn_context_status(f->context), ATTN_ERROR_SHAPE);
            attn_context_clear_error(f->context);
            attn_decoding_destroy(decoding);
        }
        attn_model_destroy(model);
    }
}

static void one_table_needs_one_vocabulary(void **state)
{
    tape_fixture *f = *state;
    attn_config *config = small_config(f, "transformer");
    attn_config_set_text(config, "tie", "all");
    attn_config_set_int(config, "src_vocab_size", 9);
    attn_config_set_int(config, "tgt_vocab_size", 9);
    attn_model *model = NULL;
    assert_int_equal(attn_model_create(&model, f->context, "transformer", config, NULL), ATTN_OK);
    assert_null(attn_named_find(attn_model_parameters(model), "decoder.embedding.weight"));
    assert_null(attn_named_find(attn_model_parameters(model), "decoder.dense.weight"));
    assert_non_null(attn_named_find(attn_model_parameters(model), "decoder.dense.bias"));
    attn_model_destroy(model);
    attn_config_set_int(config, "tgt_vocab_size", 10);
    expect_error(f, "transformer", config, ATTN_ERROR_ARGUMENT, "9 source and 10 target tokens");
    attn_config_destroy(config);
}

/* After the first token, two hypotheses of a sentence exchange their rows in the caches. */
static void reordered_rows_go_on_as_the_others(void **state)
{
    tape_fixture *f = *state;
    for (int m = 0; m < 2; m++) {
        attn_model *model = small_model(f, both[m], ATTN_F32);
        attn_tensor *src = test_ids(f->tape, 2, (int64_t[]){1, TS}, 11, 1), *logits[2];
        for (int swap = 0; swap < 2; swap++) {
            attn_decoding *decoding = NULL;
            attn_decoding_create(&decoding, model, f->tape, src, NULL, &(attn_decoding_options){.beam = 2});
            int32_t first[2] = {3, 7}, second[2] = {swap ? 9 : 5, swap ? 5 : 9};
            attn_decoding_step(decoding, f->tape, test_lens(f->tape, 2, first));
            assert_int_equal(attn_decoding_reorder(decoding, (int64_t[]){swap, 1 - swap}), ATTN_OK);
            logits[swap] = attn_decoding_step(decoding, f->tape, test_lens(f->tape, 2, second));
            assert_int_equal(attn_decoding_reorder(decoding, (int64_t[]){0, 2}), ATTN_ERROR_ARGUMENT);
            attn_context_clear_error(f->context);
            attn_decoding_destroy(decoding);
        }
        attn_tensor *a = attn_slice(f->tape, logits[0], 0, 0, 1), *b = attn_slice(f->tape, logits[1], 0, 1, 2);
        assert_true(test_distance(a, b) < 1e-6);
        assert_true(test_distance(attn_slice(f->tape, logits[0], 0, 1, 2), b) > 1e-4);
        attn_model_destroy(model);
    }
}

/* Computes a greedy search that runs the whole sequence again in each step. */
static int64_t greedy(tape_fixture *f, attn_model *model, const attn_tensor *src, int64_t n, int32_t *ids)
{
    int32_t tokens[32] = {1};
    for (int64_t t = 0; t < n; t++) {
        attn_tensor *tgt = attn_tape_tensor(f->tape, ATTN_I32, 2, (int64_t[]){1, t + 1}, tokens);
        attn_tensor *logits = attn_seq2seq_forward(model, f->tape, src, NULL, tgt, NULL);
        int32_t best = 0;
        for (int32_t v = 1; v < V; v++)
            best = test_at(logits, t * V + v) > test_at(logits, t * V + best) ? v : best;
        if (best == 2)
            return t;
        tokens[t + 1] = ids[t] = best;
    }
    return n;
}

static void greedy_translation_takes_the_likeliest_tokens(void **state)
{
    tape_fixture *f = *state;
    for (int m = 0; m < 2; m++) {
        attn_model *model = small_model(f, both[m], ATTN_F32);
        batch b = make_batch(f);
        attn_hypothesis results[B];
        attn_beam_search_options options = {.bos = 1, .eos = 2, .max_len = 8};
        assert_int_equal(attn_seq2seq_translate(model, b.src, b.lens, &options, results), ATTN_OK);
        for (int64_t row = 0; row < B; row++) {
            int32_t ids[8];
            attn_tensor *alone = attn_tape_tensor(f->tape, ATTN_I32, 2, (int64_t[]){1, src_lens[row]},
                                                  (int32_t *)attn_tensor_data(b.src) + row * TS);
            int64_t n = greedy(f, model, alone, 8, ids);
            assert_int_equal(results[row].n, n);
            assert_memory_equal(results[row].ids, ids, (size_t)n * sizeof *ids);
            assert_true(results[row].log_prob < 0);
        }
        attn_hypotheses_free(f->context, results, B);
        attn_model_destroy(model);
    }
}

static void beams_find_likelier_translations(void **state)
{
    tape_fixture *f = *state;
    for (int m = 0; m < 2; m++) {
        attn_model *model = small_model(f, both[m], ATTN_F32);
        batch b = make_batch(f);
        attn_hypothesis narrow[B], wide[B];
        attn_beam_search_options options = {.bos = 1, .eos = 2, .max_len = 4};
        assert_int_equal(attn_seq2seq_translate(model, b.src, b.lens, &options, narrow), ATTN_OK);
        options.beam = 100;
        assert_int_equal(attn_seq2seq_translate(model, b.src, b.lens, &options, wide), ATTN_OK);
        for (int row = 0; row < B; row++) {
            assert_true(wide[row].finished);
            assert_true(!narrow[row].finished || wide[row].score >= narrow[row].score - 1e-5);
        }
        attn_hypotheses_free(f->context, narrow, B);
        attn_hypotheses_free(f->context, wide, B);
        attn_model_destroy(model);
    }
}

static void seq2seq_calls_refuse_other_models(void **state)
{
    tape_fixture *f = *state;
    attn_model *model = NULL;
    batch b = make_batch(f);
    assert_int_equal(attn_model_create(&model, f->context, "masked-softmax", NULL, NULL), ATTN_OK);
    assert_null(attn_seq2seq_forward(model, f->tape, b.src, b.lens, b.tgt, NULL));
    assert_int_equal(attn_context_status(f->context), ATTN_ERROR_UNSUPPORTED);
    attn_model_destroy(model);
}

/* ---------------------------------------------------------------------------------- kernel regression */

static void nadaraya_watson_averages_labels_in_reach(void **state)
{
    tape_fixture *f = *state;
    attn_config *config = NULL;
    attn_model *model = NULL;
    attn_named_list in = {.context = f->context}, out = {.context = f->context};
    float train[3] = {0, 1, 3}, labels[3] = {2, 4, 8}, at[2] = {0.25f, 9};
    int64_t three = 3, two = 2;
    attn_named_add(&in, "x_train", attn_tape_tensor(f->tape, ATTN_F32, 1, &three, train));
    attn_named_add(&in, "y_train", attn_tape_tensor(f->tape, ATTN_F32, 1, &three, labels));
    attn_named_add(&in, "x_val", attn_tape_tensor(f->tape, ATTN_F32, 1, &two, at));
    attn_config_create(&config, f->context);
    attn_config_set_text(config, "kernel", "epanechnikov");
    attn_model_create(&model, f->context, "nadaraya-watson", config, NULL);
    assert_refused(f->context, attn_model_forward(model, f->tape, &in, &out), ATTN_ERROR_ARGUMENT, "x_val[1]");
    attn_model_destroy(model);
    attn_config_set_text(config, "empty", "nan");
    attn_model_create(&model, f->context, "nadaraya-watson", config, NULL);
    attn_named_add(&out, "weights", NULL);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    const attn_tensor *y = attn_named_find(&out, "y_hat");
    assert_true(fabs(test_at(y, 0) - (0.75 * 2 + 0.25 * 4)) < 1e-6);
    assert_true(isnan(test_at(y, 1)));
    assert_true(fabs(test_at(attn_named_find(&out, "weights"), 0 * 2 + 0) - 0.75) < 1e-6);
    attn_model_destroy(model);
    attn_config_set_text(config, "kernel", "gaussian");
    attn_model_create(&model, f->context, "nadaraya-watson", config, NULL);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    double w[3], sum = 0, wanted = 0;
    for (int i = 0; i < 3; i++) {
        w[i] = exp(-(train[i] - 0.25) * (train[i] - 0.25) / 2);
        sum += w[i];
        wanted += w[i] * labels[i];
    }
    assert_true(fabs(test_at(attn_named_find(&out, "y_hat"), 0) - wanted / sum) < 1e-5);
    attn_model_destroy(model);
    attn_config_destroy(config);
    attn_named_clear(&in);
    attn_named_clear(&out);
}

/* Memory must not grow with the number of pairs, unless the weights are requested. Here, all pairs would take 64 MB. */
static void nadaraya_watson_has_no_attention_matrix(void **state)
{
    tape_fixture *f = *state;
    attn_model *model = NULL;
    attn_named_list in = {.context = f->context}, out = {.context = f->context};
    attn_tensor *points = test_random(f->tape, ATTN_F32, 1, (int64_t[]){4096}, 1);
    static const char *const names[] = {"x_train", "y_train", "x_val"};
    for (int i = 0; i < 3; i++)
        attn_named_add(&in, names[i], points);
    attn_model_create(&model, f->context, "nadaraya-watson", NULL, NULL);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    size_t peak;
    attn_context_memory(f->context, NULL, &peak, NULL);
    assert_true(peak < 16 << 20);
    attn_model_destroy(model);
    attn_named_clear(&in);
    attn_named_clear(&out);
}

/* Points without coordinates are all at the same place. Labels of 0 numbers give estimates of 0 numbers. A NaN must
 * not look like a point without neighbours. */
static void nadaraya_watson_of_zero_coordinates_and_nan(void **state)
{
    tape_fixture *f = *state;
    attn_model *model = NULL;
    attn_named_list in = {.context = f->context}, out = {.context = f->context};
    attn_tensor *labels = attn_tape_tensor(f->tape, ATTN_F32, 2, (int64_t[]){2, 1}, (float[]){2, 4});
    attn_named_add(&in, "x_train", attn_tape_tensor(f->tape, ATTN_F32, 2, (int64_t[]){2, 0}, NULL));
    attn_named_add(&in, "y_train", labels);
    attn_named_add(&in, "x_val", attn_tape_tensor(f->tape, ATTN_F32, 2, (int64_t[]){3, 0}, NULL));
    attn_model_create(&model, f->context, "nadaraya-watson", NULL, NULL);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    assert_true(fabs(test_at(attn_named_find(&out, "y_hat"), 2) - 3) < 1e-6);
    in.items[0].tensor = attn_tape_tensor(f->tape, ATTN_F32, 1, (int64_t[]){2}, (float[]){0, 1});
    in.items[2].tensor = attn_tape_tensor(f->tape, ATTN_F32, 1, (int64_t[]){2}, (float[]){0.5f, NAN});
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    assert_true(fabs(test_at(attn_named_find(&out, "y_hat"), 0) - 3) < 1e-6);
    assert_true(isnan(test_at(attn_named_find(&out, "y_hat"), 1)));
    in.items[1].tensor = attn_tape_tensor(f->tape, ATTN_F32, 2, (int64_t[]){2, 0}, NULL);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    assert_int_equal(attn_tensor_size(attn_named_find(&out, "y_hat")), 0);
    attn_model_destroy(model);
    attn_named_clear(&in);
    attn_named_clear(&out);
}

/* Checks the sums of weights for each class, a query without neighbours, and labels that are not classes. */
static void nadaraya_watson_averages_class_labels(void **state)
{
    tape_fixture *f = *state;
    attn_config *config = NULL;
    attn_model *model = NULL;
    attn_named_list in = {.context = f->context}, out = {.context = f->context};
    float train[4] = {0, 1, 3, 0.5f}, labels[4] = {2, 0, 1, 2}, at[2] = {0.25f, 9};
    int64_t four = 4, two = 2;
    attn_tensor *classes = attn_tape_tensor(f->tape, ATTN_F32, 1, &four, labels);
    attn_named_add(&in, "x_train", attn_tape_tensor(f->tape, ATTN_F32, 1, &four, train));
    attn_named_add(&in, "y_train", classes);
    attn_named_add(&in, "x_val", attn_tape_tensor(f->tape, ATTN_F32, 1, &two, at));
    attn_config_create(&config, f->context);
    attn_config_set_text(config, "kernel", "epanechnikov");
    attn_config_set_text(config, "task", "classification");
    attn_config_set_text(config, "empty", "zero");
    attn_model_create(&model, f->context, "nadaraya-watson", config, NULL);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    const attn_tensor *y = attn_named_find(&out, "y_hat");
    assert_int_equal(attn_tensor_length(y, 1), 3);
    const double sum = 0.75 + 0.25 + 0.75, wanted[6] = {0.25 / sum, 0, 1.5 / sum, 0, 0, 0};
    for (int i = 0; i < 6; i++)
        assert_true(fabs(test_at(y, i) - wanted[i]) < 1e-6);
    test_set(classes, 3, 1.5);
    assert_refused(f->context, attn_model_forward(model, f->tape, &in, &out), ATTN_ERROR_ARGUMENT, "y_train[3] is 1.5");
    attn_model_destroy(model);
    attn_config_set_int(config, "num_classes", 2);
    attn_model_create(&model, f->context, "nadaraya-watson", config, NULL);
    assert_refused(f->context, attn_model_forward(model, f->tape, &in, &out), ATTN_ERROR_ARGUMENT,
                   "expected a class from 0 to 1");
    attn_model_destroy(model);
    attn_config_destroy(config);
    attn_named_clear(&in);
    attn_named_clear(&out);
}

RUN_TESTS(TEST_WITH_TAPE(every_architecture_is_described), TEST_WITH_TAPE(wrong_settings_are_told_with_the_right_ones),
          TEST_WITH_TAPE(defaults_are_filled_in), TEST_WITH_TAPE(parameters_have_the_originals_names),
          TEST_WITH_TAPE(padding_keeps_the_result), TEST_WITH_TAPE(empty_sentences_give_empty_results_or_errors),
          TEST_WITH_TAPE(later_tokens_are_not_seen_unless_asked), TEST_WITH_TAPE(weights_come_on_demand_and_sum_to_one),
          TEST_WITH_TAPE(guided_weights_are_the_last_layers), TEST_WITH_TAPE(named_inputs_give_named_outputs),
          TEST_WITH_TAPE(gradients_are_the_slopes), TEST_WITH_TAPE(one_table_needs_one_vocabulary),
          TEST_WITH_TAPE(steps_give_the_logits_of_the_whole), TEST_WITH_TAPE(reordered_rows_go_on_as_the_others),
          TEST_WITH_TAPE(greedy_translation_takes_the_likeliest_tokens),
          TEST_WITH_TAPE(beams_find_likelier_translations), TEST_WITH_TAPE(seq2seq_calls_refuse_other_models),
          TEST_WITH_TAPE(nadaraya_watson_averages_labels_in_reach),
          TEST_WITH_TAPE(nadaraya_watson_has_no_attention_matrix),
          TEST_WITH_TAPE(nadaraya_watson_of_zero_coordinates_and_nan),
          TEST_WITH_TAPE(nadaraya_watson_averages_class_labels))
