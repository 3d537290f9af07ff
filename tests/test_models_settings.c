/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests layers with settings other than the defaults. In float64, gradients must equal slopes. Invalid settings and
 * inputs must be refused with a message, and settings must have their effect.
 */
#include "support/fixture.h"
#include "support/small_models.h"
#include "support/tensors.h"

#include "attn/io.h"
#include "base/rng.h"
#include "models/msa_model.h"
#include "tensor/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If the settings are refused, returns NULL and leaves the error in the context. */
static attn_model *make(tape_fixture *f, const char *architecture, const char *json)
{
    attn_config *config = NULL;
    attn_model *model = NULL;
    assert_int_equal(attn_config_parse(&config, f->context, json, strlen(json), "settings"), ATTN_OK);
    attn_model_create(&model, f->context, architecture, config, &(attn_model_options){.seed = 4, .dtype = ATTN_F64});
    attn_config_destroy(config);
    return model;
}

static attn_model *make_well(tape_fixture *f, const char *architecture, const char *json)
{
    attn_model *model = make(f, architecture, json);
    if (!model)
        fail_msg("%s %s: %s", architecture, json, attn_context_error(f->context));
    return model;
}

/* ------------------------------------------------------------------------------------------- gradients */

enum { MOST_INPUTS = 4 };

typedef struct input {
    const char *name;
    int64_t shape[ATTN_MAX_RANK];
    const char *integers; /* a digit for each element of the tensor; NULL: random numbers */
} input;

typedef struct gradient_case {
    const char *architecture, *json;
    input inputs[MOST_INPUTS];
} gradient_case;

/* A detector for two images of 6 x 8 pixels, whose features have 2 x 2 positions. A mask has one digit for each
 * pixel. HALF masks the right half of the first image. */
#define DETR                                                                                                           \
    "{\"backbone\": \"resnet18\", \"stage_blocks\": [1, 1], \"width\": [2, 4], \"stem\": \"small\", \"in_channels\": " \
    "2, "                                                                                                              \
    "\"num_classes\": 2, \"num_queries\": 3, \"hidden_dim\": 8, \"nheads\": 2, \"dim_feedforward\": 5, "               \
    "\"enc_layers\": 2, "                                                                                              \
    "\"dec_layers\": 2, \"frozen_stages\": 0, \"init\": \"torch\", "
#define HALF    "000011110000111100001111000011110000111100001111"
#define NOTHING "000000000000000000000000000000000000000000000000"
#define PADDING HALF NOTHING

static const gradient_case cases[] = {
    {"bilinear-attention",
     "{\"query_size\": 5, \"key_size\": 3}",
     {{"queries", {2, 3, 5}, NULL}, {"keys", {2, 4, 3}, NULL}, {"values", {2, 4, 6}, NULL}, {"valid_lens", {2}, "30"}}},
    {"multi-head-attention",
     "{\"num_hiddens\": 6, \"num_heads\": 2, \"score\": \"additive\", \"query_size\": 5}",
     {{"queries", {2, 3, 5}, NULL}, {"keys", {2, 4, 6}, NULL}, {"values", {2, 4, 6}, NULL}, {"valid_lens", {2}, "30"}}},
    {"multi-head-attention",
     "{\"num_hiddens\": 6, \"num_heads\": 2, \"score\": \"bilinear\", \"bias\": true}",
     {{"queries", {2, 3, 6}, NULL}, {"keys", {2, 4, 6}, NULL}, {"values", {2, 4, 6}, NULL}, {"valid_lens", {2}, "24"}}},
    {"self-attention",
     "{\"dim\": 5, \"heads\": 2, \"dim_heads\": 3, \"project\": false}",
     {{"x", {2, 3, 5}, NULL}, {"kv", {2, 4, 5}, NULL}}},
    {"local-self-attention",
     "{\"in_channels\": 3, \"mid_channels\": 3, \"out_channels\": 3, \"num_heads\": 1, \"kernel_size\": 3, "
     "\"relative\": false, \"bias\": false, \"project\": false}",
     {{"x", {2, 3, 4, 5}, NULL}}},
    {"nadaraya-watson",
     "{\"sigma\": [0.5, 3]}",
     {{"x_train", {5, 2}, NULL}, {"y_train", {5, 3}, NULL}, {"x_val", {4, 2}, NULL}}},
    {"nadaraya-watson",
     "{\"kernel\": \"epanechnikov\", \"sigma\": [9, 8, 7]}",
     {{"x_train", {5, 3}, NULL}, {"y_train", {5}, NULL}, {"x_val", {4, 3}, NULL}}},
    {"row-self-attention",
     "{\"embed_dim\": 4, \"num_heads\": 2, \"tied\": false}",
     {{"x", {3, 4, 2, 4}, NULL}, {"self_attn_padding_mask", {2, 3, 4}, "000100110000000000000011"}}},
    {"axial-transformer-layer",
     "{\"embedding_dim\": 4, \"ffn_embedding_dim\": 5, \"num_attention_heads\": 2, \"order\": \"column-row\"}",
     {{"x", {3, 4, 2, 4}, NULL}, {"self_attn_padding_mask", {2, 3, 4}, "000100010001000000000000"}}},
    {"axial-transformer-layer",
     "{\"embedding_dim\": 4, \"ffn_embedding_dim\": 5, \"num_attention_heads\": 2, \"tied\": false}",
     {{"x", {3, 4, 2, 4}, NULL}}},
    {"vit",
     "{\"img_size\": [4, 7], \"patch_size\": [2, 3], \"num_hiddens\": 4, \"mlp_num_hiddens\": 3, \"num_heads\": 2, "
     "\"num_blks\": 1, \"num_classes\": 3, \"in_channels\": 2, \"interpolate_positions\": true, \"init\": \"torch\"}",
     {{"x", {2, 2, 6, 3}, NULL}}},
    {"detr-ffn", "{\"d\": 6, \"hidden\": 5, \"dropout\": 0.5}", {{"x", {2, 3, 6}, NULL}}},
    {"transformer-encoder-block",
     "{\"num_hiddens\": 6, \"ffn_num_hiddens\": 5, \"num_heads\": 2, \"use_bias\": true, \"dropout\": 0.2}",
     {{"x", {2, 3, 6}, NULL}, {"valid_lens", {2}, "30"}}},
    {"transformer-decoder-block",
     "{\"num_hiddens\": 6, \"ffn_num_hiddens\": 5, \"num_heads\": 2}",
     {{"x", {2, 3, 6}, NULL}, {"enc_outputs", {2, 4, 6}, NULL}, {"valid_lens", {2}, "42"}}},
    {"position-wise-ffn",
     "{\"num_hiddens\": 4, \"ffn_num_hiddens\": 4, \"ffn_num_outputs\": 8}",
     {{"x", {2, 3, 4}, NULL}}},
    {"vit-mlp", "{\"num_hiddens\": 4, \"mlp_num_hiddens\": 5, \"mlp_num_outputs\": 3}", {{"x", {2, 3, 4}, NULL}}},
    {"batch-norm", "{\"num_features\": 3}", {{"x", {4, 3, 2}, NULL}}},
    {"batch-norm", "{\"num_features\": 3, \"eps\": 0.1, \"momentum\": 0.5}", {{"x", {5, 3}, NULL}}},
    {"add-norm", "{\"norm_shape\": 4, \"dropout\": 0.5}", {{"x", {2, 3, 4}, NULL}, {"y", {2, 3, 4}, NULL}}},
    {"vit-block",
     "{\"num_hiddens\": 6, \"mlp_num_hiddens\": 5, \"num_heads\": 2}",
     {{"x", {2, 3, 6}, NULL}, {"valid_lens", {2, 3}, "123033"}}},
    {"patch-embedding",
     "{\"img_size\": [4, 7], \"patch_size\": [2, 3], \"num_hiddens\": 4, \"in_channels\": 2}",
     {{"x", {2, 2, 4, 7}, NULL}}},
    {"seq2seq-encoder",
     "{\"vocab_size\": 5, \"embed_size\": 3, \"num_hiddens\": 4, \"num_layers\": 2}",
     {{"tokens", {2, 3}, "102430"}}},
    {"pre-norm", "{\"dim\": 6, \"heads\": 2}", {{"x", {2, 3, 6}, NULL}}},
    {"channel-layer-norm", "{\"dim\": 4}", {{"x", {2, 4, 3, 2}, NULL}}},
    {"reversible-block", "{\"dim\": 4, \"heads\": 2, \"dropout\": 0.2}", {{"x", {1, 8, 3, 2}, NULL}}},
    {"reversible-block",
     "{\"dim\": 3, \"functions\": \"convolution\", \"reversible\": false}",
     {{"x", {1, 6, 3, 2}, NULL}}},
    {"reversible-sequence", "{\"dim\": 4, \"depth\": 2, \"heads\": 2, \"dropout\": 0.2}", {{"x", {1, 4, 3, 2}, NULL}}},
    {"feed-forward-network", "{\"embedding_dim\": 4, \"ffn_embedding_dim\": 5}", {{"x", {3, 4, 2, 4}, NULL}}},
    {"normalized-residual-block",
     "{\"embedding_dim\": 4, \"num_attention_heads\": 2}",
     {{"x", {3, 4, 2, 4}, NULL}, {"self_attn_padding_mask", {2, 3, 4}, "000100010001000000000000"}}},
    {"normalized-residual-block",
     "{\"layer\": \"feed-forward\", \"embedding_dim\": 4, \"ffn_embedding_dim\": 5}",
     {{"x", {3, 4, 2, 4}, NULL}}},
    {"resnet",
     "{\"backbone\": \"resnet18\", \"stage_blocks\": [1, 1], \"width\": [4, 6], \"norm\": \"group\", \"norm_groups\": "
     "2, "
     "\"stem\": \"small\", \"num_classes\": 3}",
     {{"x", {2, 3, 6, 5}, NULL}}},
    {"resnet",
     "{\"stage_blocks\": [1, 2], \"width\": 2, \"norm\": \"frozen\", \"dilation\": true, \"in_channels\": 2, "
     "\"num_classes\": 3}",
     {{"x", {2, 2, 9, 12}, NULL}}},
    {"detr",
     DETR "\"pre_norm\": true, \"position_embedding\": \"learned\"}",
     {{"x", {2, 2, 6, 8}, NULL}, {"mask", {2, 6, 8}, PADDING}}},
    {"detr", DETR "\"norm\": \"batch\"}", {{"x", {2, 2, 6, 8}, NULL}, {"mask", {2, 6, 8}, PADDING}}},
};

static attn_tensor *make_input(tape_fixture *f, const input *in, uint64_t seed)
{
    int rank = 0;
    attn_tensor *x;
    while (rank < ATTN_MAX_RANK && in->shape[rank])
        rank++;
    assert_int_equal(attn_tensor_create(&x, f->context, in->integers ? ATTN_I32 : ATTN_F64, rank, in->shape), ATTN_OK);
    if (in->integers) {
        assert_int_equal(strlen(in->integers), attn_tensor_size(x));
        for (int64_t i = 0; i < attn_tensor_size(x); i++)
            ((int32_t *)attn_tensor_data(x))[i] = in->integers[i] - '0';
    } else {
        attn_tensor *numbers = test_random(f->tape, ATTN_F64, rank, in->shape, seed);
        memcpy(attn_tensor_data(x), attn_tensor_data(numbers), (size_t)attn_tensor_size(x) * sizeof(double));
        attn_tensor_set_requires_grad(x, true);
    }
    return x;
}

/* Resets the tape and returns the model's first output. */
static attn_tensor *run(tape_fixture *f, attn_model *model, const attn_named_list *inputs, bool record)
{
    attn_named_list outputs = {.context = f->context};
    attn_tape_reset(f->tape, &(attn_tape_options){.record = record});
    if (attn_model_forward(model, f->tape, inputs, &outputs) != ATTN_OK)
        fail_msg("%s: %s", attn_model_architecture(model)->name, attn_context_error(f->context));
    attn_tensor *y = attn_named_find(&outputs, attn_model_architecture(model)->outputs[0].name);
    attn_named_clear(&outputs);
    assert_non_null(y);
    return y;
}

/* Returns the dot product of the output with fixed numbers. */
static double loss_of(tape_fixture *f, attn_model *model, const attn_named_list *inputs, bool record)
{
    attn_tensor *y = run(f, model, inputs, record);
    attn_tensor *weights = test_random(f->tape, ATTN_F64, attn_tensor_rank(y), attn_tensor_shape(y), 99);
    double sum = 0;
    for (int64_t i = 0; i < attn_tensor_size(y); i++)
        sum += test_at(y, i) * test_at(weights, i);
    if (record)
        assert_int_equal(attn_backward_from(f->tape, y, weights), ATTN_OK);
    return sum;
}

static void check_slope(tape_fixture *f, attn_model *model, const attn_named_list *inputs, const attn_named *item,
                        int64_t i)
{
    attn_tensor *x = item->tensor;
    const double old = test_at(x, i), h = 1e-5, gradient = attn_tensor_grad(x) ? test_at(attn_tensor_grad(x), i) : 0;
    test_set(x, i, old + h);
    double above = loss_of(f, model, inputs, false);
    test_set(x, i, old - h);
    double slope = (above - loss_of(f, model, inputs, false)) / (2 * h);
    test_set(x, i, old);
    if (fabs(slope - gradient) > 1e-6 * fmax(1, fabs(slope)))
        fail_msg("%s: %s[%lld]: slope %.9g, gradient %.9g", attn_model_architecture(model)->name, item->name,
                 (long long)i, slope, gradient);
}

/* Compares five elements of each input's and parameter's gradient with central differences. */
static void gradients_are_the_slopes(void **state)
{
    tape_fixture *f = *state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        attn_model *model = make_well(f, cases[c].architecture, cases[c].json);
        attn_named_list inputs = {.context = f->context, .owns = true};
        for (int i = 0; i < MOST_INPUTS && cases[c].inputs[i].name; i++)
            assert_int_equal(
                attn_named_add(&inputs, cases[c].inputs[i].name, make_input(f, &cases[c].inputs[i], (uint64_t)i + 1)),
                ATTN_OK);
        loss_of(f, model, &inputs, true);
        const attn_named_list *lists[] = {&inputs, attn_model_parameters(model)};
        double largest = 0;
        for (int l = 0; l < 2; l++) {
            for (int64_t p = 0; p < lists[l]->n; p++) {
                const attn_tensor *x = lists[l]->items[p].tensor;
                for (int64_t k = 0; k < 5 && attn_tensor_requires_grad(x); k++)
                    check_slope(f, model, &inputs, &lists[l]->items[p], k * (attn_tensor_size(x) - 1) / 4);
                for (int64_t i = 0; attn_tensor_grad(x) && i < attn_tensor_size(x); i++)
                    largest = fmax(largest, fabs(test_at(attn_tensor_grad(x), i)));
            }
        }
        assert_true(largest > 1e-3); /* If all gradients were tiny, the comparison would show nothing. */
        attn_model_destroy(model);
        attn_named_clear(&inputs);
    }
}

/* -------------------------------------------------------------------------------------------- refusals */

static void expect_error(tape_fixture *f, const char *about, const char *text)
{
    if (!strstr(attn_context_error(f->context), text))
        fail_msg("%s: \"%s\" is not in \"%s\"", about, text, attn_context_error(f->context));
    attn_context_clear_error(f->context);
}

static void wrong_settings_are_refused_in_words(void **state)
{
    static const struct {
        const char *architecture, *json, *text;
    } wrong[] = {
        {"bilinear-attention", "{\"key_size\": 3}", "the key \"query_size\" is missing"},
        {"bilinear-attention", "{\"query_size\": 0, \"key_size\": 3}", "query_size is 0; allowed: 1 to"},
        {"bilinear-attention", "{\"query_size\": 2, \"key_size\": 3, \"dropout\": 1}",
         "dropout is 1; allowed: 0 to 0.99"},
        {"multi-head-attention", "{\"num_hiddens\": 6, \"num_heads\": 2, \"score\": \"dots\"}",
         "score is \"dots\"; allowed: dot, additive, bilinear"},
        {"multi-head-attention", "{\"num_hiddens\": 6, \"num_heads\": 2, \"score\": 1}",
         "score must be a text, not an integer: 1"},
        {"detr", "{\"hidden_dim\": 6, \"nheads\": 2}", "detr: hidden_dim is 6; it must be a multiple of 4"},
        {"detr", "{\"stage_blocks\": [1, 1], \"width\": [2, 3, 4]}", "width has 3 numbers, but stage_blocks has 2"},
        {"resnet", "{\"stage_blocks\": [60, 5]}", "stage_blocks has 65 blocks in all; at most 64"},
        {"resnet", "{\"norm\": \"group\", \"width\": 8}", "32 groups do not divide 8 channels"},
        {"sine-position-encoding", "{\"scale\": 3}", "sine-position-encoding: scale (3) needs normalize=true"},
        {"self-attention", "{\"dim\": 5, \"heads\": 2, \"project\": false}", "2 heads do not divide 5 channels"},
        {"self-attention", "{\"dim\": 4, \"heads\": 2, \"project\": \"no\"}",
         "project must be true or false, not a text: \"no\""},
        {"local-self-attention",
         "{\"in_channels\": 3, \"mid_channels\": 3, \"out_channels\": 4, \"num_heads\": 1, \"kernel_size\": 3, "
         "\"relative\": false, \"project\": false}",
         "without the last projection the output channels must be heads * mid channels (1 heads of 3 channels, "
         "window 3, 3 in, 4 "
         "out)"},
        {"nadaraya-watson", "{\"sigma\": [1, 0]}", "sigma[1] is 0; allowed: 1e-30 to 1e+30"},
        {"nadaraya-watson", "{\"sigma\": [0.5, -2.5]}", "sigma[1] is -2.5; allowed: 1e-30 to 1e+30"},
        {"nadaraya-watson", "{\"sigma\": -1}", "sigma is -1; allowed: 1e-30 to 1e+30"},
        {"nadaraya-watson", "{\"sigma\": []}", "sigma must not be an empty list"},
        {"nadaraya-watson", "{\"sigma\": [0.5, \"x\"]}",
         "sigma[1] is not a number; sigma must be a number or a list of numbers"},
        {"nadaraya-watson", "{\"sigma\": \"wide\"}",
         "sigma must be a number or a list of numbers, not a text: \"wide\""},
        {"nadaraya-watson", "{\"sigmas\": [0.5, 1]}", "there is no key \"sigmas.0\""},
        {"row-self-attention", "{\"embed_dim\": 4, \"num_heads\": 2, \"tied\": 0}",
         "tied must be true or false, not an integer: 0"},
        {"axial-transformer-layer", "{\"order\": \"rows\"}", "order is \"rows\"; allowed: row-column, column-row"},
        {"msa-transformer", "{\"order\": \"column\"}", "order is \"column\"; allowed: row-column, column-row"},
        {"vit", "{\"img_size\": [8, 8, 8]}", "vit: img_size is a list of 3; allowed: an integer, or [height, width]"},
        {"vit", "{\"patch_size\": [8]}", "vit: patch_size is a list of 1; allowed: an integer, or [height, width]"},
        {"vit", "{\"img_size\": [8, 0]}", "img_size[1] is 0; allowed: 1 to"},
        {"vit", "{\"img_size\": 8.5}", "img_size must be an integer or a list of integers, not a number: 8.5"},
        {"vit", "{\"img_size\": [32, 8], \"patch_size\": [8, 16]}", "vit: patch_size 16 is larger than img_size 8"},
        {"detr-ffn", "{\"d\": 4, \"dropout\": -0.1}", "dropout is -0.1; allowed: 0 to 0.99"},
        {"vit-block", "{\"num_hiddens\": 6, \"norm_shape\": 5, \"mlp_num_hiddens\": 5, \"num_heads\": 2}",
         "vit-block: norm_shape is 5; it must be equal to num_hiddens, 6"},
        {"transformer-encoder-block", "{\"num_hiddens\": 6, \"ffn_num_hiddens\": 5, \"num_heads\": 4}", "4 heads"},
        {"patch-embedding", "{\"img_size\": 8, \"patch_size\": 16}",
         "patch-embedding: patch_size 16 is larger than img_size 8"},
        {"reversible-block", "{\"dim\": 4, \"functions\": \"both\"}",
         "functions is \"both\"; allowed: attention, convolution"},
        {"normalized-residual-block", "{\"layer\": \"rows\"}", "layer is \"rows\"; allowed: row, column, feed-forward"},
    };
    tape_fixture *f = *state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_null(make(f, wrong[i].architecture, wrong[i].json));
        expect_error(f, wrong[i].json, wrong[i].text);
    }
}

typedef struct detector {
    attn_model *model;
    attn_named_list inputs, outputs;
} detector;

/* Runs the detector on two images, and computes all outputs for the points and queries in `chosen`. `padding` has
 * the digits of the mask; NULL: no mask. */
static detector detect(tape_fixture *f, const char *json, const char *padding, const char *chosen)
{
    detector d = {make_well(f, "detr", json), {.context = f->context, .owns = true}, {.context = f->context}};
    const input inputs[] = {
        {"x", {2, 2, 6, 8}, NULL}, {"mask", {2, 6, 8}, padding}, {"points", {2}, chosen}, {"queries", {2}, chosen}};
    for (int i = 0; i < 4; i++)
        if (i == 0 || inputs[i].integers)
            attn_named_add(&d.inputs, inputs[i].name, make_input(f, &inputs[i], 1));
    for (int i = 0; i < attn_model_architecture(d.model)->noutputs; i++)
        attn_named_add(&d.outputs, attn_model_architecture(d.model)->outputs[i].name, NULL);
    attn_tape_reset(f->tape, NULL);
    if (attn_model_forward(d.model, f->tape, &d.inputs, &d.outputs) != ATTN_OK)
        fail_msg("%s", attn_context_error(f->context));
    return d;
}

static void detector_end(detector *d)
{
    attn_named_clear(&d->inputs);
    attn_named_clear(&d->outputs);
    attn_model_destroy(d->model);
}

/* Returns the sum of an image's attention weights for the keys of one column, over all heads, queries and blocks.
 * The image has 2 x 2 positions. */
static double weight_of_column(const attn_tensor *weights, int64_t image, int64_t column)
{
    const int64_t *n = attn_tensor_shape(weights);
    double sum = 0;
    for (int64_t i = 0; i < attn_tensor_size(weights); i++)
        if (i / (n[2] * n[3] * n[4]) % n[1] == image && i % n[4] % 2 == column)
            sum += test_at(weights, i);
    return sum;
}

static void detectors_see_no_padding(void **state)
{
    static const char *const maps[] = {"encoder_weights", "cross_weights"};
    tape_fixture *f = *state;
    detector d = detect(f, DETR "\"norm\": \"frozen\"}", PADDING, NULL);
    for (int i = 0; i < 2; i++) {
        const attn_tensor *w = attn_named_find(&d.outputs, maps[i]);
        assert_int_equal(attn_tensor_length(w, 4), 4);
        assert_true(weight_of_column(w, 0, 1) == 0);
        assert_true(weight_of_column(w, 1, 1) > 1);
        assert_true(fabs(weight_of_column(w, 0, 0) - (double)(2 * 2 * attn_tensor_length(w, 3))) < 1e-9);
    }
    detector_end(&d);
}

static bool same_tensor(const attn_tensor *a, const attn_tensor *b)
{
    return attn_tensor_size(a) == attn_tensor_size(b) &&
           memcmp(attn_tensor_data(a), attn_tensor_data(b), (size_t)attn_tensor_size(a) * sizeof(double)) == 0;
}

/* A mask without padding must give the same as no mask. If the weights of some rows are requested, they must equal
 * these rows of all weights. */
static void a_mask_of_nothing_is_none(void **state)
{
    tape_fixture *f = *state;
    attn_tape *tape = f->tape, *other;
    detector none = detect(f, DETR "\"norm\": \"frozen\"}", NULL, NULL);
    assert_int_equal(attn_tape_create(&other, f->context), ATTN_OK);
    f->tape = other;
    detector some = detect(f, DETR "\"norm\": \"frozen\"}", NOTHING NOTHING, "20");
    for (int i = 0; i < 4; i++)
        assert_true(same_tensor(none.outputs.items[i].tensor, some.outputs.items[i].tensor));
    for (int i = 4; i < 7; i++) {
        const attn_tensor *all = none.outputs.items[i].tensor, *two = some.outputs.items[i].tensor;
        int64_t n = attn_tensor_length(all, 3), keys = attn_tensor_length(all, 4);
        assert_int_equal(attn_tensor_length(two, 3), 2);
        for (int64_t j = 0; j < attn_tensor_size(two); j++)
            assert_true(test_at(two, j) ==
                        test_at(all, j / (2 * keys) * n * keys + (j / keys % 2 ? 0 : 2) * keys + j % keys));
    }
    detector_end(&some);
    detector_end(&none);
    attn_tape_destroy(other);
    f->tape = tape;
}

/* In inference, a batch norm is fused into its convolution. */
static void fixed_norms_are_scales_and_shifts(void **state)
{
    tape_fixture *f = *state;
    attn_model *model = make_well(f, "resnet", "{\"stage_blocks\": [2, 1], \"width\": 3, \"num_classes\": 4}");
    attn_named_list inputs = {.context = f->context, .owns = true};
    const attn_named_list *parameters = attn_model_parameters(model);
    double apart[4];
    for (int64_t i = 0; i < parameters->n; i++)
        for (int64_t j = 0;
             strstr(parameters->items[i].name, "bn") && j < attn_tensor_size(parameters->items[i].tensor); j++)
            test_set(parameters->items[i].tensor, j, 0.5 + (double)((7 * i + 3 * j) % 11) / 10);
    attn_named_add(&inputs, "x", make_input(f, &(input){"x", {1, 3, 14, 9}, NULL}, 3));
    for (int i = 0; i < 4; i++)
        apart[i] = test_at(run(f, model, &inputs, true), i);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(test_at(run(f, model, &inputs, false), i) - apart[i]) < 1e-12 * fmax(1, fabs(apart[i])));
    attn_named_clear(&inputs);
    attn_model_destroy(model);
}

static void wrong_inputs_are_refused_in_words(void **state)
{
    static const struct {
        gradient_case given;
        const char *text;
    } wrong[] = {
        {{"bilinear-attention",
          "{\"query_size\": 5, \"key_size\": 3}",
          {{"queries", {2, 3, 5}, NULL}, {"keys", {2, 4, 5}, NULL}, {"values", {2, 4, 6}, NULL}}},
         "keys: expected 3 channels in axis 2 (counted from 0), found 5"},
        {{"bilinear-attention",
          "{\"query_size\": 5, \"key_size\": 3}",
          {{"queries", {2, 3, 4}, NULL}, {"keys", {2, 4, 3}, NULL}, {"values", {2, 4, 6}, NULL}}},
         "queries: expected 5 channels in axis 2 (counted from 0), found 4"},
        {{"vit",
          "{\"img_size\": [8, 16], \"patch_size\": 4, \"num_hiddens\": 4, \"num_heads\": 2, \"num_blks\": 1}",
          {{"x", {1, 3, 16, 8}, NULL}}},
         "vit: the images have 16 x 8 pixels, but img_size is [8, 16]; interpolate_positions=true would fit the positions"},
        {{"sine-position-encoding", "{}", {{"x", {2, 3, 4}, NULL}}}, "positions: expected x (b,c,h,w), found 3 axes"},
        {{"nadaraya-watson", "{}", {{"x_train", {5, 3, 1}, NULL}, {"y_train", {5}, NULL}, {"x_val", {4, 3}, NULL}}},
         "x_train: expected a vector or a matrix, found 3 axes"},
        {{"nadaraya-watson",
          "{\"task\": \"classification\"}",
          {{"x_train", {5, 3}, NULL}, {"y_train", {5, 2}, NULL}, {"x_val", {4, 3}, NULL}}},
         "y_train[0] is not a one-hot row, which has one 1 and otherwise zeros"},
        {{"nadaraya-watson",
          "{\"task\": \"classification\"}",
          {{"x_train", {5, 3}, NULL}, {"y_train", {5, 2, 1}, NULL}, {"x_val", {4, 3}, NULL}}},
         "y_train: expected (n) classes or (n,c) one-hot rows, found 3 axes"},
        {{"nadaraya-watson", "{}", {{"x_train", {5, 3}, NULL}, {"y_train", {4}, NULL}, {"x_val", {4, 2}, NULL}}},
         "y_train has 4 labels, but x_train has 5 points"},
        {{"nadaraya-watson",
          "{\"sigma\": [0.5, 3]}",
          {{"x_train", {5, 3}, NULL}, {"y_train", {5}, NULL}, {"x_val", {4, 3}, NULL}}},
         "sigma has 2 numbers, but the points of x_train have 3"},
        {{"nadaraya-watson",
          "{\"kernel\": \"boxcar\", \"sigma\": [1e-9, 3]}",
          {{"x_train", {5, 2}, NULL}, {"y_train", {5}, NULL}, {"x_val", {4, 2}, NULL}}},
         "within reach of x_val[0] (kernel boxcar, sigma of each coordinate)"},
        {{"reversible-block", "{\"dim\": 4, \"heads\": 2}", {{"x", {1, 4, 3, 2}, NULL}}},
         "reversible-block: expected 8 channels in axis 1 (counted from 0), found 4"},
        {{"channel-layer-norm", "{\"dim\": 4}", {{"x", {1, 5, 3, 2}, NULL}}},
         "channel-layer-norm: expected 4 channels in axis 1 (counted from 0), found 5"},
        {{"reversible-sequence", "{\"dim\": 4, \"depth\": 1, \"heads\": 2}", {{"x", {4, 3, 2}, NULL}}},
         "reversible-sequence: expected x (b,dim,h,w), found 3 axes"},
        {{"detr", DETR "\"norm\": \"frozen\"}", {{"x", {2, 3, 6, 8}, NULL}}},
         "detr: expected x [b,2,h,w], found [2,3,6,8]"},
        {{"detr", DETR "\"norm\": \"frozen\"}", {{"x", {1, 2, 6, 8}, NULL}, {"mask", {1, 8, 6}, NOTHING}}},
         "detr: expected mask [1,6,8], the sizes of x, found [1,8,6]"},
        {{"detr", DETR "\"position_embedding\": \"learned\"}", {{"x", {1, 2, 1, 210}, NULL}}},
         "learned positions: the image is 1 x 53, but there are positions for sides of 1 to 50"},
    };
    tape_fixture *f = *state;
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
        const gradient_case *given = &wrong[w].given;
        attn_model *model = make_well(f, given->architecture, given->json);
        attn_named_list inputs = {.context = f->context, .owns = true}, outputs = {.context = f->context};
        for (int i = 0; i < MOST_INPUTS && given->inputs[i].name; i++)
            attn_named_add(&inputs, given->inputs[i].name, make_input(f, &given->inputs[i], (uint64_t)i + 1));
        assert_int_not_equal(attn_model_forward(model, f->tape, &inputs, &outputs), ATTN_OK);
        expect_error(f, given->architecture, wrong[w].text);
        attn_named_clear(&outputs);
        attn_named_clear(&inputs);
        attn_model_destroy(model);
    }
}

/* The hidden width of a feed-forward block is a setting of its own. */
static void feed_forward_blocks_have_their_width(void **state)
{
    static const struct {
        const char *architecture, *json, *weight;
        int64_t out, in;
    } wide[] = {
        {"axial-transformer-layer", "{\"embedding_dim\": 4, \"ffn_embedding_dim\": 6, \"num_attention_heads\": 2}",
         "feed_forward_layer.layer.fc1.weight", 6, 4},
        {"msa-transformer",
         "{\"layers\": 1, \"embed_dim\": 4, \"ffn_embed_dim\": 6, \"attention_heads\": 2, \"max_positions\": 8}",
         "layers.0.feed_forward_layer.layer.fc1.weight", 6, 4},
        {"transformer",
         "{\"vocab_size\": 9, \"num_hiddens\": 4, \"ffn_num_hiddens\": 6, \"num_heads\": 2, \"num_blks\": 1}",
         "decoder.blks.block0.ffn.dense1.weight", 6, 4},
        {"vit",
         "{\"img_size\": 8, \"patch_size\": 4, \"num_hiddens\": 4, \"mlp_num_hiddens\": 6, \"num_heads\": 2, "
         "\"num_blks\": 1}",
         "blks.0.mlp.dense1.weight", 6, 4},
        {"detr", DETR "\"norm\": \"frozen\"}", "encoder.blks.block0.ffn.dense1.weight", 5, 8},
    };
    tape_fixture *f = *state;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        attn_model *model = make_well(f, wide[i].architecture, wide[i].json);
        const attn_tensor *w = attn_named_find(attn_model_parameters(model), wide[i].weight);
        assert_non_null(w);
        assert_int_equal(attn_tensor_length(w, 0), wide[i].out);
        assert_int_equal(attn_tensor_length(w, 1), wide[i].in);
        attn_model_destroy(model);
    }
}

/* ------------------------------------------------------------------------------------------ what they do */

static void set_all(const attn_model *model, const char *name, double value)
{
    attn_tensor *x = attn_named_find(attn_model_parameters(model), name);
    assert_non_null(x);
    for (int64_t i = 0; i < attn_tensor_size(x); i++)
        test_set(x, i, value);
}

/* A branch of ones replaces the two layers, so that a row is norm(0 + dropout(1)). It has two different values in
 * training, and one value in inference. */
static void the_branch_is_dropped_in_training_only(void **state)
{
    enum { ROWS = 40, D = 50 };
    tape_fixture *f = *state;
    attn_model *model = make_well(f, "detr-ffn", "{\"d\": 50, \"dropout\": 0.3}");
    attn_named_list in = {.context = f->context}, out = {.context = f->context};
    set_all(model, "ffn_layers.2.weight", 0);
    set_all(model, "ffn_layers.2.bias", 1);
    for (int train = 0; train < 2; train++) {
        attn_tape_reset(f->tape, &(attn_tape_options){.train = train, .seed = 3});
        attn_named_add(&in, "x", attn_tape_tensor(f->tape, ATTN_F64, 3, (int64_t[]){1, ROWS, D}, NULL));
        assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
        const attn_tensor *y = attn_named_find(&out, "out");
        int64_t dropped = 0;
        for (int64_t i = 0; i < ROWS * D; i++) {
            int64_t same = 0;
            for (int64_t j = i - i % D; j < i - i % D + D; j++)
                same += fabs(test_at(y, i) - test_at(y, j)) < 1e-9;
            dropped += test_at(y, i) < -1e-3;
            assert_true(train || same == D);
        }
        assert_true(train ? dropped > ROWS * D / 4 && dropped < 7 * ROWS * D / 20 : dropped == 0);
        attn_named_clear(&in);
        attn_named_clear(&out);
    }
    attn_model_destroy(model);
}

/* Dividing coordinates by their widths, with a sigma of 1, must give the same as a list of widths. The model's
 * config has the list. */
static void widths_of_coordinates_divide_them(void **state)
{
    static const double widths[] = {0.5, 3};
    static const char *const names[] = {"x_train", "y_train", "x_val"};
    tape_fixture *f = *state;
    attn_model *list = make_well(f, "nadaraya-watson", "{\"sigma\": [0.5, 3.0]}");
    attn_model *one = make_well(f, "nadaraya-watson", "{\"sigma\": 1}");
    const attn_config_value *sigma = attn_config_get(attn_model_config(list), "sigma");
    assert_true(sigma->type == ATTN_CONFIG_TYPE_REALS && sigma->n == 2 && sigma->reals[0] == widths[0]);
    attn_named_list in = {.context = f->context}, scaled = in, out = in, out_one = in;
    for (int i = 0; i < 3; i++) {
        attn_tensor *x = test_random(f->tape, ATTN_F64, 2, (int64_t[]){6, 2}, (uint64_t)i + 1);
        attn_tensor *y = attn_affine(f->tape, x, 1, 0);
        for (int64_t j = 0; i != 1 && j < 12; j++)
            test_set(y, j, test_at(x, j) / widths[j % 2]);
        attn_named_add(&in, names[i], x);
        attn_named_add(&scaled, names[i], y);
    }
    assert_int_equal(attn_model_forward(list, f->tape, &in, &out), ATTN_OK);
    assert_int_equal(attn_model_forward(one, f->tape, &scaled, &out_one), ATTN_OK);
    assert_true(test_distance(attn_named_find(&out, "y_hat"), attn_named_find(&out_one, "y_hat")) < 1e-14);
    attn_named_clear(&in);
    attn_named_clear(&scaled);
    attn_named_clear(&out);
    attn_named_clear(&out_one);
    attn_model_destroy(list);
    attn_model_destroy(one);
}

/* Published self-attention layers without an output projection have the linear layers query, key and value. Layers
 * over images may load them, too. */
static void linear_weights_load_into_windows(void **state)
{
    static const char *const names[] = {"query.weight", "key.weight", "value.weight"};
    tape_fixture *f = *state;
    attn_model *model = make_well(f, "local-self-attention",
                                  "{\"in_channels\": 3, \"mid_channels\": 3, \"out_channels\": 3, \"num_heads\": 1, "
                                  "\"kernel_size\": 3, \"relative\": false, \"bias\": false, \"project\": false}");
    attn_named_list source = {.context = f->context};
    for (int i = 0; i < 3; i++)
        attn_named_add(&source, names[i], test_random(f->tape, ATTN_F64, 2, (int64_t[]){3, 3}, (uint64_t)i + 5));
    assert_int_equal(attn_weights_assign(attn_model_parameters(model), &source, NULL, NULL), ATTN_OK);
    for (int i = 0; i < 3; i++) {
        const attn_tensor *x = attn_named_find(attn_model_parameters(model), names[i]);
        assert_int_equal(attn_tensor_rank(x), 4);
        for (int64_t j = 0; j < 9; j++)
            assert_true(test_at(x, j) == test_at(source.items[i].tensor, j));
    }
    source.items[0].tensor = test_random(f->tape, ATTN_F64, 2, (int64_t[]){9, 1}, 5);
    assert_int_equal(attn_weights_assign(attn_model_parameters(model), &source, NULL, NULL), ATTN_ERROR_SHAPE);
    expect_error(f, "query.weight", "expected [3,3,1,1], found [9,1]");
    attn_named_clear(&source);
    attn_model_destroy(model);
}

/* With a single row, tied and untied rows give the same logits. Contacts need tied rows. */
static void one_row_is_tied_to_itself(void **state)
{
    static const char *const json[] = {
        "{\"layers\": 1, \"embed_dim\": 8, \"ffn_embed_dim\": 8, \"attention_heads\": 2, \"max_positions\": 9}",
        "{\"layers\": 1, \"embed_dim\": 8, \"ffn_embed_dim\": 8, \"attention_heads\": 2, \"max_positions\": 9, "
        "\"tied\": false}"};
    tape_fixture *f = *state;
    attn_tensor *logits[2];
    attn_named_list in = {.context = f->context}, out = in;
    attn_model *model[2];
    attn_named_add(&in, "tokens",
                   attn_tape_tensor(f->tape, ATTN_I32, 3, (int64_t[]){1, 1, 4}, (int32_t[]){0, 5, 6, 7}));
    for (int i = 0; i < 2; i++) {
        model[i] = make_well(f, "msa-transformer", json[i]);
        assert_int_equal(attn_model_forward(model[i], f->tape, &in, &out), ATTN_OK);
        logits[i] = attn_named_find(&out, "logits");
        attn_named_clear(&out);
    }
    assert_true(test_distance(logits[0], logits[1]) < 1e-12);
    attn_named_add(&out, "contacts", NULL);
    assert_int_equal(attn_model_forward(model[1], f->tape, &in, &out), ATTN_ERROR_UNSUPPORTED);
    expect_error(f, "contacts", "tied is false");
    attn_named_clear(&in);
    attn_named_clear(&out);
    attn_model_destroy(model[0]);
    attn_model_destroy(model[1]);
}

/* Attention maps must be the same whether a run stops after them or continues, for both orders of attention and for
 * groups of heads. */
static void maps_alone_are_the_maps(void **state)
{
    static const char *const orders[] = {"row-column", "column-row"};
    tape_fixture *f = *state;
    for (int o = 0; o < 2; o++) {
        char json[256];
        snprintf(
            json, sizeof json,
            "{\"layers\": 2, \"embed_dim\": 8, \"ffn_embed_dim\": 8, \"attention_heads\": 2, \"max_positions\": 9, "
            "\"order\": \"%s\"}",
            orders[o]);
        attn_model *model = make_well(f, "msa-transformer", json);
        for (int columns = 0; columns < 2; columns++) {
            attn__msa_results whole, alone;
            attn__msa_wishes wishes = {.row_maps = !columns, .column_maps = columns, .max_tokens = 7};
            attn_tape_reset(f->tape, &(attn_tape_options){0});
            attn_tensor *tokens = test_ids(f->tape, 3, (int64_t[]){2, 3, 4}, 20, 3);
            for (int64_t i = 0; i < attn_tensor_size(tokens); i++)
                ((int32_t *)attn_tensor_data(tokens))[i] += 4;
            assert_true(attn__msa_run(attn__msa_of(model), f->tape, tokens, &wishes, &alone));
            assert_null(alone.logits);
            wishes.logits = true;
            wishes.max_tokens = 0;
            assert_true(attn__msa_run(attn__msa_of(model), f->tape, tokens, &wishes, &whole));
            assert_true(columns ? test_distance(alone.column_maps, whole.column_maps) < 1e-12
                                : test_distance(alone.row_maps, whole.row_maps) < 1e-12);
        }
        attn_model_destroy(model);
    }
}

/* The weights along each axis must sum to one. If they would have more axes than a tensor can have, the request is
 * refused with a message. */
static void weights_along_axes(void **state)
{
    static const struct {
        const char *json;
        int64_t shape[ATTN_MAX_RANK];
        int rank;
    } arrays[] = {{"{\"dim\": 4, \"heads\": 2, \"dim_index\": 1}", {2, 4, 3, 5}, 4},
                  {"{\"dim\": 4, \"heads\": 2, \"num_dimensions\": 6}", {1, 2, 1, 2, 1, 1, 2, 4}, 8}};
    tape_fixture *f = *state;
    for (int c = 0; c < 2; c++) {
        attn_model *model = make_well(f, "axial-attention", arrays[c].json);
        attn_named_list in = {.context = f->context}, out = in;
        attn_named_add(&in, "x", test_random(f->tape, ATTN_F64, arrays[c].rank, arrays[c].shape, 3));
        assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
        attn_named_add(&out, "weights", NULL);
        attn_status status = attn_model_forward(model, f->tape, &in, &out);
        if (c == 0) {
            const attn_tensor *weights = attn_named_find(&out, "weights");
            assert_int_equal(status, ATTN_OK);
            /* The weights are over 3 rows, and then over 5 columns. */
            assert_int_equal(attn_tensor_size(weights), 2 * 2 * 3 * 5 * 8);
            for (int64_t row = 0; row < 2 * 2 * 3 * 5; row++) {
                double sums[2] = {0};
                for (int64_t i = 0; i < 8; i++)
                    sums[i >= 3] += test_at(weights, 8 * row + i);
                assert_true(fabs(sums[0] - 1) < 1e-12 && fabs(sums[1] - 1) < 1e-12);
            }
        } else {
            assert_int_equal(status, ATTN_ERROR_UNSUPPORTED);
            expect_error(f, "weights",
                         "the attention weights of an array of 8 axes would have 9 axes; at most 8 are supported");
        }
        attn_named_clear(&in);
        attn_named_clear(&out);
        attn_model_destroy(model);
    }
}

/* An earlier error does not affect a later run of a model. But if the run gets the NULL of a failed operation as
 * input, it reports the error of this operation. */
static void an_earlier_error_stops_no_later_call(void **state)
{
    tape_fixture *f = *state;
    attn_bytes none;
    attn_model *model = make_well(f, "self-attention", "{\"dim\": 4, \"heads\": 2}");
    attn_named_list in = {.context = f->context}, out = in;
    attn_tensor *x = test_random(f->tape, ATTN_F64, 3, (int64_t[]){1, 3, 4}, 3);
    assert_int_equal(attn_file_read(&none, f->context, "no-such-file", 0), ATTN_ERROR_NOT_FOUND);
    attn_named_add(&in, "x", x);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    assert_non_null(attn_named_find(&out, "out"));
    assert_int_equal(attn_file_read(&none, f->context, "no-such-file", 0), ATTN_ERROR_NOT_FOUND);
    attn_named_clear(&in);
    assert_int_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_ERROR_ARGUMENT);
    expect_error(f, "self-attention", "input x (b,t,dim) is missing");
    attn_tape_reset(f->tape, NULL);
    x = test_random(f->tape, ATTN_F64, 3, (int64_t[]){1, 3, 4}, 3);
    attn_named_add(&in, "x", attn_slice(f->tape, x, 7, 0, 1));
    assert_int_not_equal(attn_model_forward(model, f->tape, &in, &out), ATTN_OK);
    expect_error(f, "axis 7", "7");
    attn_named_clear(&in);
    attn_named_clear(&out);
    attn_model_destroy(model);
}

/* ------------------------------------------------------------------------------------------- hostile sizes */

/* Refuses blocks of more than 16 MB, so that hostile settings cost no memory. */
static void *take_little(void *user, size_t size, size_t align)
{
    (void)user;
    return size > 16000000 ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
}

static void give_back(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

/* Makes a model with these settings, or is refused with a reason. */
static void try_settings(attn_context *context, const attn_architecture *a, const attn_config *config)
{
    attn_model *model;
    attn_status status = attn_model_create(&model, context, a->name, config, &(attn_model_options){.blank = true});
    if (status == ATTN_ERROR_INTERNAL || (status == ATTN_OK) != (model != NULL) ||
        status != attn_context_status(context) || (status == ATTN_OK) != (attn_context_error(context)[0] == '\0'))
        fail_msg("%s: status %d says \"%s\"", a->name, (int)status, attn_context_error(context));
    attn_model_destroy(model);
}

/* Sets an integer, or a list of three. Keeps the value of other keys. */
static void set_size(attn_config *config, const attn_setting *key, int64_t size)
{
    attn_config_value value = {.type = key->type, .integer = size, .real = (double)size, .n = 3};
    value.integers = (int64_t[]){size, size, size};
    if (key->type != ATTN_CONFIG_TYPE_INT && key->type != ATTN_CONFIG_TYPE_INTS)
        return;
    if (key->type == ATTN_CONFIG_TYPE_INT || key->min < key->max) /* a range allows a single number */
        value = (attn_config_value){.type = ATTN_CONFIG_TYPE_INT, .integer = size, .real = (double)size};
    assert_int_equal(attn_config_set(config, key->name, &value), ATTN_OK);
}

/* Every architecture gets every hostile integer in each key alone, and in all keys, and 2^30 in random choices of keys.
 * The undefined-behaviour sanitizer finds products that overflow before the sizes are refused. */
static void hostile_sizes_make_no_model_and_no_overflow(void **state)
{
    enum { CHOICES = 60 };
    static const int64_t hostile[] = {1 << 30, INT32_MAX, INT64_MAX, 0, -1};
    enum { HOSTILE = sizeof hostile / sizeof *hostile };
    attn_context *context;
    attn_context_options options = {.allocator = {take_little, give_back, NULL}};
    assert_int_equal(attn_context_create(&context, &options), ATTN_OK);
    for (int i = 0; attn_architecture_at(i); i++) {
        const attn_architecture *a = attn_architecture_at(i);
        attn__rng rng = {.seed = 5, .stream = (uint64_t)i};
        for (int choice = 0; choice < HOSTILE * (a->nkeys + 1) + CHOICES; choice++) {
            attn_config *config = small_model_config(context, a);
            int key = choice / HOSTILE;
            bool random = key > a->nkeys;
            int64_t value = random ? hostile[0] : hostile[choice % HOSTILE];
            for (int k = 0; k < a->nkeys; k++)
                if (random ? attn__rng_uniform(&rng) < 0.5 : key == k || key == a->nkeys)
                    set_size(config, &a->keys[k], value);
            try_settings(context, a, config);
            attn_config_destroy(config);
        }
    }
    end_context(context);
}

RUN_TESTS(cmocka_unit_test(hostile_sizes_make_no_model_and_no_overflow),
          TEST_WITH_TAPE(an_earlier_error_stops_no_later_call), TEST_WITH_TAPE(gradients_are_the_slopes),
          TEST_WITH_TAPE(weights_along_axes), TEST_WITH_TAPE(maps_alone_are_the_maps),
          TEST_WITH_TAPE(one_row_is_tied_to_itself), TEST_WITH_TAPE(wrong_settings_are_refused_in_words),
          TEST_WITH_TAPE(wrong_inputs_are_refused_in_words), TEST_WITH_TAPE(feed_forward_blocks_have_their_width),
          TEST_WITH_TAPE(the_branch_is_dropped_in_training_only), TEST_WITH_TAPE(detectors_see_no_padding),
          TEST_WITH_TAPE(a_mask_of_nothing_is_none), TEST_WITH_TAPE(fixed_norms_are_scales_and_shifts),
          TEST_WITH_TAPE(linear_weights_load_into_windows), TEST_WITH_TAPE(widths_of_coordinates_divide_them))
