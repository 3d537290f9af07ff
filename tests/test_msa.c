/* SPDX-License-Identifier: MIT
 * labels: no-isa no-asan no-tsan
 *
 * Tests the MSA Transformer as a tool: published sizes, checkpoints, planned memory, padding, and invalid calls.
 */
#include "support/fixture.h"
#include "support/scratch.h"
#include "support/tensors.h"

#include "attn/msa.h"
#include "attn/trainer.h"
#include "apps/msa/contacts.h"
#include "apps/msa/msa.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 2, DIM = 8, TOKENS = 9 };

typedef struct fixture {
    attn_context *context;
    attn_config *config;
    attn_msa *msa;
} fixture;

static int begin(void **state)
{
    static fixture f;
    f = (fixture){.context = test_context()};
    f.config = fixture_msa_config(f.context, TOKENS);
    assert_int_equal(attn_msa_create(&f.msa, f.context, f.config, 4), ATTN_OK);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    fixture *f = *state;
    attn_msa_destroy(f->msa);
    attn_config_destroy(f->config);
    end_context(f->context);
    return 0;
}

static void set_regression(attn_msa *msa)
{
    const float weights[LAYERS * HEADS] = {1, -2, 3, 0.5f};
    attn_msa_set_regression(msa, weights, -0.25f);
}

/* Writes an alignment of `rows` x `cols` into an array of all_rows x all_cols, with padding in all other places. */
static void fill(int32_t *tokens, int64_t rows, int64_t cols, int64_t all_rows, int64_t all_cols)
{
    for (int64_t i = 0; i < all_rows * all_cols; i++) {
        int64_t row = i / all_cols, col = i % all_cols;
        bool inside = row < rows && col < cols;
        tokens[i] = !inside    ? ATTN_RESIDUE_PAD
                    : col == 0 ? ATTN_RESIDUE_CLS
                               : (int32_t)(4 + (row * 7 + col * col) % 20);
    }
}

static void refused(fixture *f, const int32_t *tokens, int64_t rows, int64_t cols, const attn_msa_options *wanted,
                    const char *why)
{
    attn_msa_result result;
    assert_int_not_equal(attn_msa_run(f->msa, tokens, 1, rows, cols, wanted, &result), ATTN_OK);
    if (!strstr(attn_context_error(f->context), why))
        fail_msg("\"%s\" should say \"%s\"", attn_context_error(f->context), why);
    attn_context_clear_error(f->context);
}

/* --------------------------------------------------------------------------------------- published sizes */

static int64_t parameters_of(attn_context *context, int64_t row_dim)
{
    attn_config *config = NULL;
    attn_model *model = NULL;
    int64_t count = 0;
    attn_config_create(&config, context);
    attn_config_set_int(config, "embed_positions_msa_dim", row_dim);
    attn_model_options blank = {.blank = true};
    assert_int_equal(attn_model_create(&model, context, "msa-transformer", config, &blank), ATTN_OK);
    const attn_named_list *list = attn_model_parameters(model);
    for (int64_t i = 0; i < list->n; i++)
        count += attn_tensor_size(list->items[i].tensor);
    attn_model_destroy(model);
    attn_config_destroy(config);
    return count;
}

/* The expected numbers of parameters come from the published code and its two checkpoints. They include 145 numbers
 * of the regression. */
static void published_models_have_their_size(void **state)
{
    fixture *f = *state;
    assert_int_equal(parameters_of(f->context, 768), 115616434);
    assert_int_equal(parameters_of(f->context, 1), 114831026);
}

/* ------------------------------------------------------------------------------------------- checkpoints */

/* PyTorch wrote data/pt/msa_tiny.pt in the form of ESM's files, with args, fairseq's names, and "row" instead of
 * "column". All elements of a tensor are equal: 0.25 under the file's names of column attention, and -0.5 under
 * those of row attention. */
static void checkpoints_have_rows_and_columns_swapped(void **state)
{
    fixture *f = *state;
    attn_msa *msa = NULL;
    assert_int_equal(attn_msa_load(&msa, f->context, "tests/data/pt/msa_tiny.pt", NULL), ATTN_OK);
    const attn_named_list *list = attn_model_parameters(attn_msa_model(msa));
    const char *row = "layers.0.row_self_attention.layer.q_proj.weight",
               *column = "layers.0.column_self_attention.layer_norm.bias";
    assert_true(test_at(attn_named_find(list, row), 0) == 0.25);
    assert_true(test_at(attn_named_find(list, column), 0) == -0.5);
    assert_int_equal(attn_config_int(attn_model_config(attn_msa_model(msa)), "embed_dim", 0), 4);
    assert_int_equal(attn_config_int(attn_model_config(attn_msa_model(msa)), "max_positions", 0), 6);
    assert_null(attn_named_find(list, "msa_position_embedding"));
    assert_true(attn_msa_has_regression(msa));
    assert_true(test_at(attn_named_find(list, "contact_head.regression.weight"), 1) == 2);
    attn_msa_destroy(msa);
}

static void saved_models_are_loaded_again(void **state)
{
    fixture *f = *state;
    char folder[64], path[300];
    attn_msa *again = NULL;
    scratch_open(folder);
    set_regression(f->msa);
    assert_int_equal(attn_msa_save(f->msa, folder), ATTN_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(attn_msa_load(&again, f->context, path, NULL), ATTN_OK);
    assert_true(attn_msa_has_regression(again));
    const attn_named_list *a = attn_model_parameters(attn_msa_model(f->msa));
    const attn_named_list *b = attn_model_parameters(attn_msa_model(again));
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        assert_string_equal(a->items[i].name, b->items[i].name);
        assert_true(test_distance(b->items[i].tensor, a->items[i].tensor) == 0);
    }
    attn_msa_destroy(again);
    assert_int_equal(scratch_close(folder), 2);
}

/* The directory is like one that Python's Model.save writes: it has all parameters, and its config has only the
 * architecture's keys. */
static void models_of_any_writer_are_loaded(void **state)
{
    fixture *f = *state;
    char folder[64], path[300];
    attn_msa *again = NULL;
    attn_config *config = NULL;
    scratch_open(folder);
    assert_int_equal(attn_config_create(&config, f->context), ATTN_OK);
    assert_int_equal(attn_architecture_select(attn_architecture_find("msa-transformer"),
                                              attn_model_config(attn_msa_model(f->msa)), config),
                     ATTN_OK);
    attn_config_set_text(config, "architecture", "msa-transformer");
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(attn_config_write(config, f->context, path), ATTN_OK);
    attn_config_destroy(config);
    set_regression(f->msa);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(attn_safetensors_write(attn_model_parameters(attn_msa_model(f->msa)), path, NULL), ATTN_OK);
    assert_ok(f->context, attn_msa_load(&again, f->context, folder, NULL));
    assert_true(attn_msa_has_regression(again));
    static const char name[] = "contact_head.regression.weight";
    assert_true(test_distance(attn_named_find(attn_model_parameters(attn_msa_model(again)), name),
                              attn_named_find(attn_model_parameters(attn_msa_model(f->msa)), name)) == 0);
    attn_msa_destroy(again);
    assert_int_equal(scratch_close(folder), 2);
}

/* ------------------------------------------------------------------------------------------------ running */

/* Computes contacts from the maps of the same run by plain loops (symmetric sums, APC, logistic regression), and
 * compares them. */
static void contacts_follow_their_formula(void **state)
{
    fixture *f = *state;
    enum { R = 3, C = 7, N = C - 1 };
    const double weights[LAYERS * HEADS] = {1, -2, 3, 0.5};
    int32_t tokens[R * C];
    attn_msa_result result;
    fill(tokens, R, C, R, C);
    set_regression(f->msa);
    attn_msa_options wanted = {.contacts = true, .row_maps = true};
    assert_int_equal(attn_msa_run(f->msa, tokens, 1, R, C, &wanted, &result), ATTN_OK);
    double logit[N][N] = {{0}};
    for (int m = 0; m < LAYERS * HEADS; m++) {
        double s[N][N], row[N] = {0}, total = 0;
        for (int i = 0; i < N * N; i++) {
            int p = i / N, q = i % N;
            s[p][q] = test_at(result.row_maps, (m * C + p + 1) * C + q + 1) +
                      test_at(result.row_maps, (m * C + q + 1) * C + p + 1);
            row[p] += s[p][q];
            total += s[p][q];
        }
        for (int i = 0; i < N * N; i++)
            logit[i / N][i % N] += weights[m] * (s[i / N][i % N] - row[i / N] * row[i % N] / total);
    }
    for (int i = 0; i < N * N; i++)
        assert_true(fabs(test_at(result.contacts, i) - 1 / (1 + exp(0.25 - logit[i / N][i % N]))) < 1e-6);
    assert_null(result.logits);
    assert_null(result.column_maps);
}

/* With a small penalty, the probabilities of a fitted regression add up to the number of contacts. The penalty of the
 * intercept allows a difference of 1 / c. */
static void a_fit_predicts_as_many_contacts_as_there_are(void **state)
{
    enum { L = 8, APART = 2 };
    fixture *f = *state;
    static const char text[] = ">a\nACDEFGHI\n>b\nACDEYGHI\n>c\nVCDKFGH-\n";
    attn_alignment *alignment = NULL;
    float distances[L * L];
    double probability[L * L], sum = 0;
    int64_t contacts = 0, found = 0, used = 0;
    int32_t tokens[3 * (L + 1)];
    attn_contacts_fit_result fitted;
    attn_msa_result result;
    for (int i = 0; i < L * L; i++)
        distances[i] = (float)(i * 7 % 11 + 3);
    distances[L - 1] = NAN;
    assert_ok(f->context, attn_alignment_parse(&alignment, f->context, text, sizeof text - 1, "x.a3m", NULL));
    attn_alignment_tokens(alignment, tokens);
    assert_ok(f->context, attn_contacts_fit(f->msa, &(attn_contact_example){alignment, distances}, 1,
                                            &(attn_contacts_fit_options){.min_separation = APART, .c = 1e5}, &fitted));
    progress_told told = {.things = "layers"};
    attn_context_set_progress(f->context, next_progress, &told);
    assert_ok(f->context, attn_msa_run(f->msa, tokens, 1, 3, L + 1, &(attn_msa_options){.contacts = true}, &result));
    assert_int_equal(told.done, LAYERS);
    for (int i = 0; i < L * L; i++) {
        bool counts = i % L >= i / L + APART && !isnan(distances[i]);
        probability[i] = counts ? test_at(result.contacts, i) : 0;
        sum += probability[i];
        contacts += counts && distances[i] < 8;
    }
    for (int i = 0; i < L * L; i++) {
        int64_t rank = 0;
        for (int j = 0; j < L * L; j++)
            rank += probability[j] > probability[i];
        found += probability[i] > 0 && rank < contacts && distances[i] < 8;
    }
    const attn_tensor *w =
        attn_named_find(attn_model_parameters(attn_msa_model(f->msa)), "contact_head.regression.weight");
    for (int i = 0; i < LAYERS * HEADS; i++)
        used += test_at(w, i) != 0;
    assert_int_equal(fitted.pairs, (L - APART) * (L - APART + 1) / 2 - 1);
    assert_int_equal(fitted.contacts, contacts);
    assert_int_equal(fitted.features, LAYERS * HEADS);
    assert_int_equal(fitted.found, found);
    assert_int_equal(fitted.used, used);
    assert_true(fabs(sum - (double)contacts) < 0.01);
    told = (progress_told){.things = "alignments", .done = -1};
    const attn_contact_example two[] = {{alignment, distances}, {alignment, distances}};
    assert_ok(f->context,
              attn_contacts_fit(f->msa, two, 2, &(attn_contacts_fit_options){.min_separation = APART}, &fitted));
    assert_int_equal(told.done, 2);
    attn_context_set_progress(f->context, NULL, NULL);
    attn_alignment_destroy(alignment);
}

static void padding_and_bounds_change_nothing(void **state)
{
    fixture *f = *state;
    enum { R = 4, C = 8, ROWS = 2, COLS = 5 };
    int32_t tokens[2 * R * C], single[ROWS * COLS];
    double alone[ROWS * COLS * 33], contacts[(COLS - 1) * (COLS - 1)];
    const int64_t layers[] = {-1, 0};
    attn_msa_options wanted = {.logits = true, .contacts = true, .layers = layers, .nlayers = 2, .max_tokens = 1};
    attn_msa_result result;
    fill(tokens, R, C, R, C);
    fill(tokens + R * C, ROWS, COLS, R, C);
    fill(single, ROWS, COLS, ROWS, COLS);
    set_regression(f->msa);
    assert_int_equal(
        attn_msa_run(f->msa, single, 1, ROWS, COLS, &(attn_msa_options){.logits = true, .contacts = true}, &result),
        ATTN_OK);
    for (int i = 0; i < ROWS * COLS * 33; i++)
        alone[i] = test_at(result.logits, i);
    for (int i = 0; i < (COLS - 1) * (COLS - 1); i++)
        contacts[i] = test_at(result.contacts, i);
    assert_int_equal(attn_msa_run(f->msa, tokens, 2, R, C, &wanted, &result), ATTN_OK);
    for (int i = 0; i < ROWS * COLS * 33; i++) {
        int row = i / 33 / COLS, col = i / 33 % COLS;
        assert_true(fabs(test_at(result.logits, ((R + row) * C + col) * 33 + i % 33) - alone[i]) < 1e-5);
    }
    for (int i = 0; i < (C - 1) * (C - 1); i++) {
        int p = i / (C - 1), q = i % (C - 1);
        double wants = p < COLS - 1 && q < COLS - 1 ? contacts[p * (COLS - 1) + q] : 0;
        assert_true(fabs(test_at(result.contacts, (C - 1) * (C - 1) + i) - wants) < 1e-5);
    }
    assert_int_equal(attn_tensor_length(result.representations[0], 3), DIM);
    assert_true(test_distance(result.representations[0], result.representations[1]) > 1e-3);
}

/* A run ends when all requested outputs are computed. Contacts do not need most of the last layer, and early
 * representations do not need later layers. The outputs must have the same bits as in a run up to the logits. */
static void a_run_that_ends_early_has_the_same_bits(void **state)
{
    fixture *f = *state;
    enum { R = 4, C = 8, MAP = (C - 1) * (C - 1), X = R * C * DIM, COLUMNS = HEADS * C * R * R };
    int32_t tokens[R * C];
    float contacts[MAP], first[X], columns[COLUMNS];
    const int64_t one = 1;
    attn_msa_options all = {
        .logits = true, .contacts = true, .column_maps = true, .map_layer = LAYERS, .layers = &one, .nlayers = 1};
    attn_msa_result result;
    fill(tokens, R, C, R, C);
    set_regression(f->msa);
    assert_int_equal(attn_msa_run(f->msa, tokens, 1, R, C, &all, &result), ATTN_OK);
    memcpy(contacts, attn_tensor_data(result.contacts), sizeof contacts);
    memcpy(first, attn_tensor_data(result.representations[0]), sizeof first);
    memcpy(columns, attn_tensor_data(result.column_maps), sizeof columns);
    assert_int_equal(attn_msa_run(f->msa, tokens, 1, R, C, &(attn_msa_options){.contacts = true}, &result), ATTN_OK);
    assert_memory_equal(attn_tensor_data(result.contacts), contacts, sizeof contacts);
    assert_int_equal(attn_msa_run(f->msa, tokens, 1, R, C, &(attn_msa_options){.layers = &one, .nlayers = 1}, &result),
                     ATTN_OK);
    assert_memory_equal(attn_tensor_data(result.representations[0]), first, sizeof first);
    attn_msa_options last = {.column_maps = true, .map_layer = LAYERS};
    assert_int_equal(attn_msa_run(f->msa, tokens, 1, R, C, &last, &result), ATTN_OK);
    assert_memory_equal(attn_tensor_data(result.column_maps), columns, sizeof columns);
}

enum { BUDGET_R = 24, BUDGET_C = 40, BUDGET_HEADS = 6, BUDGET_LAYERS = 3, BUDGET_DIM = 48 };

static attn_msa *budget_model(fixture *f)
{
    attn_msa *msa;
    float weights[BUDGET_LAYERS * BUDGET_HEADS];
    for (int i = 0; i < BUDGET_LAYERS * BUDGET_HEADS; i++)
        weights[i] = (float)(i % 5 - 2);
    attn_config_set_int(f->config, "layers", BUDGET_LAYERS);
    attn_config_set_int(f->config, "embed_dim", BUDGET_DIM);
    attn_config_set_int(f->config, "attention_heads", BUDGET_HEADS);
    attn_config_set_int(f->config, "max_positions", BUDGET_C);
    assert_int_equal(attn_msa_create(&msa, f->context, f->config, 7), ATTN_OK);
    attn_msa_set_regression(msa, weights, 0.5f);
    return msa;
}

/* Compares contacts and representations for each number of heads that a memory limit allows at once. They differ
 * only in the order of the sum over heads in the output projection, by a few units in the last place of f32. */
static void budgets_change_rounding_only(void **state)
{
    fixture *f = *state;
    enum { R = BUDGET_R, C = BUDGET_C, MAP = (C - 1) * (C - 1), X = R * C * BUDGET_DIM };
    static float contacts[MAP], x[X];
    int32_t tokens[R * C];
    const int64_t last = -1;
    attn_msa *msa = budget_model(f);
    attn_msa_options wanted = {.contacts = true, .layers = &last, .nlayers = 1};
    attn_msa_result result;
    attn_msa_cost plan;
    int64_t before = BUDGET_HEADS + 1, kinds = 0;
    fill(tokens, R, C, R, C);
    assert_int_equal(attn_msa_estimate(msa, 1, R, C, &wanted, &plan), ATTN_OK);
    for (wanted.memory = plan.bytes; wanted.memory >= plan.smallest; wanted.memory -= 1024) {
        assert_int_equal(attn_msa_estimate(msa, 1, R, C, &wanted, &plan), ATTN_OK);
        assert_true(plan.bytes <= wanted.memory && plan.heads <= before);
        if (plan.heads == before)
            continue;
        assert_int_equal(attn_msa_run(msa, tokens, 1, R, C, &wanted, &result), ATTN_OK);
        const float *p = attn_tensor_data(result.contacts), *h = attn_tensor_data(result.representations[0]);
        if (kinds++ == 0) {
            assert_int_equal(plan.heads, BUDGET_HEADS);
            memcpy(contacts, p, sizeof contacts);
            memcpy(x, h, sizeof x);
        }
        for (int i = 0; i < MAP; i++)
            assert_true(fabsf(p[i] - contacts[i]) < 2e-6f);
        for (int i = 0; i < X; i++)
            assert_true(fabsf(h[i] - x[i]) < 5e-6f);
        before = plan.heads;
    }
    assert_int_equal(before, 1);
    assert_true(kinds >= 4);
    attn_msa_destroy(msa);
}

/* Runs the model in a precision, with a limit that allows `heads` heads at once. Writes the last layer's outputs to
 * x. */
static void run_in(attn_precision precision, int64_t heads, float *x)
{
    fixture f = {0};
    int32_t tokens[BUDGET_R * BUDGET_C];
    const int64_t last = -1;
    assert_int_equal(attn_context_create(&f.context, &(attn_context_options){.precision = precision}), ATTN_OK);
    assert_int_equal(attn_config_create(&f.config, f.context), ATTN_OK);
    f.msa = budget_model(&f);
    attn_msa_options wanted = {.layers = &last, .nlayers = 1, .max_tokens = BUDGET_R * BUDGET_C * heads / BUDGET_HEADS};
    attn_msa_result result;
    fill(tokens, BUDGET_R, BUDGET_C, BUDGET_R, BUDGET_C);
    assert_int_equal(attn_msa_run(f.msa, tokens, 1, BUDGET_R, BUDGET_C, &wanted, &result), ATTN_OK);
    memcpy(x, attn_tensor_data(result.representations[0]), BUDGET_R * BUDGET_C * BUDGET_DIM * sizeof *x);
    attn_msa_destroy(f.msa);
    attn_config_destroy(f.config);
    end_context(f.context);
}

/* Returns the root mean square of a - b. */
static double apart(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < BUDGET_R * BUDGET_C * BUDGET_DIM; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / (BUDGET_R * BUDGET_C * BUDGET_DIM));
}

/* The last layer's outputs are normalized to about 1, so their absolute errors are also relative errors. bf16 has
 * eight bits of mantissa. int8 has 127 steps up to the largest number of each row. */
static void layers_are_int8_too(void **state)
{
    static float f32[BUDGET_R * BUDGET_C * BUDGET_DIM], bf16[BUDGET_R * BUDGET_C * BUDGET_DIM],
        int8[BUDGET_R * BUDGET_C * BUDGET_DIM], grouped[BUDGET_R * BUDGET_C * BUDGET_DIM];
    run_in(ATTN_PRECISION_F32, BUDGET_HEADS, f32);
    run_in(ATTN_PRECISION_BF16, BUDGET_HEADS, bf16);
    run_in(ATTN_PRECISION_INT8, BUDGET_HEADS, int8);
    run_in(ATTN_PRECISION_INT8, 2, grouped);
    print_message("bf16 %.1e, int8 %.1e, in groups of heads %.1e\n", apart(bf16, f32), apart(int8, f32),
                  apart(grouped, f32));
    assert_true(apart(bf16, f32) < 0.01);
    assert_true(apart(int8, f32) > 2 * apart(bf16, f32) && apart(int8, f32) < 0.03);
    assert_true(apart(grouped, f32) > 2 * apart(bf16, f32) && apart(grouped, f32) < 0.03);
}

/* The maps of one layer must equal this layer's part of all maps. They take 1/L of the memory, where L is the number
 * of layers. */
static void maps_of_one_layer(void **state)
{
    fixture *f = *state;
    enum { R = 3, C = 7, ROW = HEADS * C * C, COLUMN = HEADS * C * R * R };
    int32_t tokens[R * C];
    float rows[LAYERS * ROW], columns[LAYERS * COLUMN];
    attn_msa_result result;
    attn_msa_cost all, one;
    fill(tokens, R, C, R, C);
    attn_msa_options wanted = {.row_maps = true, .column_maps = true};
    assert_int_equal(attn_msa_estimate(f->msa, 1, R, C, &wanted, &all), ATTN_OK);
    assert_int_equal(attn_msa_run(f->msa, tokens, 1, R, C, &wanted, &result), ATTN_OK);
    memcpy(rows, attn_tensor_data(result.row_maps), sizeof rows);
    memcpy(columns, attn_tensor_data(result.column_maps), sizeof columns);
    for (wanted.map_layer = 1; wanted.map_layer <= LAYERS; wanted.map_layer++) {
        assert_int_equal(attn_msa_run(f->msa, tokens, 1, R, C, &wanted, &result), ATTN_OK);
        assert_int_equal(attn_tensor_length(result.row_maps, 1), 1);
        assert_memory_equal(attn_tensor_data(result.row_maps), rows + (wanted.map_layer - 1) * ROW,
                            sizeof(float) * ROW);
        assert_memory_equal(attn_tensor_data(result.column_maps), columns + (wanted.map_layer - 1) * COLUMN,
                            sizeof(float) * COLUMN);
    }
    wanted.map_layer = 1;
    assert_int_equal(attn_msa_estimate(f->msa, 1, R, C, &wanted, &one), ATTN_OK);
    assert_int_equal(all.bytes - one.bytes, (LAYERS - 1) * (ROW + COLUMN) * sizeof(float));
    wanted.map_layer = LAYERS + 1;
    refused(f, tokens, R, C, &wanted, "allowed: 1 to 2");
}

static void peak_is_planned(attn_precision precision, int threads, int64_t rows, int64_t cols, const char *isa,
                            bool bounded)
{
    attn_context *context;
    attn_config *config;
    attn_msa *msa;
    assert_int_equal(
        attn_context_create(&context, &(attn_context_options){.threads = threads, .isa = isa, .precision = precision}),
        ATTN_OK);
    assert_int_equal(attn_config_create(&config, context), ATTN_OK);
    attn_config_set_int(config, "layers", 2);
    attn_config_set_int(config, "embed_dim", 256);
    attn_config_set_int(config, "ffn_embed_dim", 1024);
    attn_config_set_int(config, "attention_heads", 4);
    assert_int_equal(attn_msa_create(&msa, context, config, 7), ATTN_OK);
    int32_t *tokens = malloc((size_t)(rows * cols) * sizeof *tokens);
    fill(tokens, (int)rows, (int)cols, (int)rows, (int)cols);
    attn_msa_options wanted = {.layers = &(int64_t){-1}, .nlayers = 1};
    attn_msa_cost plan;
    attn_msa_result result;
    assert_int_equal(attn_msa_estimate(msa, 1, rows, cols, &wanted, &plan), ATTN_OK);
    assert_true(plan.smallest <= plan.bytes);
    wanted.memory = bounded ? plan.smallest : 0;
    assert_int_equal(attn_msa_estimate(msa, 1, rows, cols, &wanted, &plan), ATTN_OK);
    assert_int_equal(attn_msa_run(msa, tokens, 1, rows, cols, &wanted, &result), ATTN_OK);
    size_t held, peak;
    uint64_t count;
    attn_context_memory(context, &held, &peak, &count);
    if (peak > plan.bytes)
        fail_msg("%s, %d x %d, %d threads: %zu bytes planned, %zu held", attn_precision_name(precision), (int)rows,
                 (int)cols, threads, plan.bytes, peak);
    free(tokens);
    attn_msa_destroy(msa);
    attn_config_destroy(config);
    end_context(context);
}

static void a_run_stays_within_its_plan(void **state)
{
    static const int64_t sizes[][2] = {{33, 33}, {16, 40}, {100, 61}, {64, 128}};
    static const attn_precision precisions[] = {ATTN_PRECISION_F32, ATTN_PRECISION_BF16, ATTN_PRECISION_INT8};
    for (size_t i = 0; i < 3 * sizeof sizes / sizeof *sizes; i += (size_t)test_step()) {
        peak_is_planned(precisions[i % 3], 1, sizes[i / 3][0], sizes[i / 3][1], NULL, false);
        peak_is_planned(precisions[i % 3], 3, sizes[i / 3][0], sizes[i / 3][1], NULL, true);
    }
    peak_is_planned(ATTN_PRECISION_F32, 2, 33, 33, "scalar", false);
}

static void memory_is_planned(void **state)
{
    fixture *f = *state;
    attn_msa_cost free_plan, bound, strict;
    attn_msa_options wanted = {.logits = true, .max_tokens = 1 << 20};
    assert_int_equal(attn_msa_estimate(f->msa, 1, 512, 9, &wanted, &free_plan), ATTN_OK);
    assert_int_equal(free_plan.heads, HEADS);
    wanted.max_tokens = 0;
    wanted.memory = free_plan.bytes - 1;
    assert_int_equal(attn_msa_estimate(f->msa, 1, 512, 9, &wanted, &bound), ATTN_OK);
    assert_int_equal(bound.heads, 1);
    assert_true(bound.bytes <= wanted.memory && bound.bytes == bound.smallest);
    wanted.memory = bound.smallest - 1;
    assert_refused(f->context, attn_msa_estimate(f->msa, 1, 512, 9, &wanted, &strict), ATTN_ERROR_ARGUMENT,
                   "the limit of memory is");
}

/* ---------------------------------------------------------------------------------------------- training */

static void a_training_frees_its_alignments(void **state)
{
    fixture *f = *state;
    static const char settings[] =
        "{\"layers\": 1, \"embed_dim\": 8, \"ffn_embed_dim\": 8, \"attention_heads\": 2, \"steps\": 1, \"epochs\": 1, "
        "\"max_tokens\": 60, \"valid\": 0}";
    static const char text[] = ">a\nACDEFGHI\n>b\nACDEYGHI\n>c\nVCDKFGH-\n";
    char data[64], directory[64], path[160];
    attn_config *config = NULL;
    scratch_open(data);
    scratch_open(directory);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%d.a3m", data, i);
        assert_ok(f->context, attn_file_write(f->context, path, text, sizeof text - 1));
    }
    assert_ok(f->context, attn_config_parse(&config, f->context, settings, sizeof settings - 1, "settings"));
    assert_ok(f->context,
              attn_train(f->context,
                         &(attn_trainer_job){.kind = "msa", .data = data, .directory = directory, .settings = config}));
    attn_config_destroy(config);
    scratch_close(data);
    scratch_close(directory);
}

/* ------------------------------------------------------------------------------------------------ errors */

static void errors_say_what_is_wrong(void **state)
{
    fixture *f = *state;
    static int32_t tokens[1025 * 10];
    const int64_t beyond = 3;
    attn_msa *none = NULL;
    fill(tokens, 1025, 10, 1025, 10);
    refused(f, tokens, 1, TOKENS + 1, NULL, "<cls> and 8 residues");
    refused(f, tokens, 1025, 5, NULL, "at most 1024");
    refused(f, tokens, 2, 5, &(attn_msa_options){.contacts = true}, "-contact-regression.pt");
    refused(f, tokens, 2, 5, &(attn_msa_options){.layers = &beyond, .nlayers = 1}, "allowed: 0 to 2");
    fill(tokens, 2, 5, 2, 5);
    tokens[4] = ATTN_RESIDUE_PAD;
    refused(f, tokens, 2, 5, NULL, "column 4 is padding in the first row but not in row 1");
    tokens[4] = 33;
    refused(f, tokens, 2, 5, NULL, "33");
    assert_int_equal(attn_msa_load(&none, f->context, "no/such.pt", NULL), ATTN_ERROR_NOT_FOUND);
    assert_null(none);
    attn_context_clear_error(f->context);
    /* The error of a call replaces the error of the call before. */
    attn_msa_cost cost;
    assert_int_equal(attn_msa_estimate(f->msa, 1, 1, TOKENS + 1, NULL, &cost), ATTN_ERROR_SHAPE);
    assert_refused(f->context, attn_msa_estimate(f->msa, 1, 1025, 5, NULL, &cost), ATTN_ERROR_SHAPE, "at most 1024");
    assert_refused(f->context, attn_msa_load(&none, f->context, "tests/data/pt/msa_tiny-contact-regression.pt", NULL),
                   ATTN_ERROR_FORMAT, "args.arch");
}

#define TEST_PREPARED(name) cmocka_unit_test_setup_teardown(name, begin, end)
RUN_TESTS(TEST_PREPARED(published_models_have_their_size), TEST_PREPARED(checkpoints_have_rows_and_columns_swapped),
          TEST_PREPARED(saved_models_are_loaded_again), TEST_PREPARED(models_of_any_writer_are_loaded),
          TEST_PREPARED(contacts_follow_their_formula), TEST_PREPARED(a_fit_predicts_as_many_contacts_as_there_are),
          TEST_PREPARED(a_training_frees_its_alignments), TEST_PREPARED(padding_and_bounds_change_nothing),
          TEST_PREPARED(memory_is_planned), TEST_PREPARED(a_run_stays_within_its_plan),
          TEST_PREPARED(maps_of_one_layer), TEST_PREPARED(a_run_that_ends_early_has_the_same_bits),
          TEST_PREPARED(budgets_change_rounding_only), TEST_PREPARED(layers_are_int8_too),
          TEST_PREPARED(errors_say_what_is_wrong))
