/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests the attention of a classifier: attention rollout, and the cell of the image to which each key of a window or a
 * cross belongs. Also makes the model while allocations fail.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/tensors.h"

#include "apps/classifier/classifier.h"
#include "apps/view/view.h"
#include "base/context.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void place(const attn__block_attention *b, int64_t row, int64_t col, int64_t key, int64_t key_row,
                  int64_t key_col)
{
    int64_t r = -7, c = -7;
    bool inside = attn__block_place(b, row, col, key, &r, &c);
    if (inside != (key_row >= 0) || (inside && (r != key_row || c != key_col)))
        fail_msg("key %d of (%d,%d) is at (%d,%d)", (int)key, (int)row, (int)col, (int)r, (int)c);
}

static void keys_map_to_grid_positions(void **state)
{
    attn__block_attention window = {
        .heads = 1, .rows = 5, .cols = 6, .where = ATTN_KEYS_WINDOW, .key_rows = 3, .key_cols = 3};
    assert_int_equal(attn__block_keys(&window), 9);
    place(&window, 2, 3, 4, 2, 3); /* key 4 is the middle of the window, where the query is */
    place(&window, 2, 3, 0, 1, 2);
    place(&window, 0, 0, 0, -1, -1);
    place(&window, 0, 0, 5, 0, 1);
    place(&window, 4, 5, 8, -1, -1);
    window.shifted = true;
    place(&window, 0, 0, 0, 0, 0);
    place(&window, 4, 5, 8, 4, 5);
    place(&window, 4, 5, 0, 2, 3);
    /* In a window that is larger than the grid, the first key is the first cell. */
    window.key_rows = window.key_cols = 7;
    place(&window, 4, 5, 8, 1, 1);
    const attn__block_attention cross = {.heads = 1, .rows = 3, .cols = 4, .where = ATTN_KEYS_CROSS};
    assert_int_equal(attn__block_keys(&cross), 7);
    place(&cross, 1, 2, 3, 1, 3);
    place(&cross, 1, 2, 4, 0, 2);
    place(&cross, 1, 2, 6, 2, 2);
    const attn__block_attention tokens = {.heads = 1, .before = 1, .rows = 2, .cols = 2, .key_rows = 2, .key_cols = 2};
    assert_int_equal(attn__block_queries(&tokens), 5);
    place(&tokens, 0, 0, 0, -1, -1); /* the class token has no cell, which gives -1 */
    place(&tokens, 0, 0, 3, 1, 0);
}

/* Compares the rollout with a sum over paths through the layers: rolled[i][j] = sum over k, l of A3[i][k] A2[k][l]
 * A1[l][j]. */
static void rollout_is_the_product_over_layers(void **state)
{
    enum { LAYERS = 3, HEADS = 2, T = 5 };
    static float weights[LAYERS][HEADS][T][T];
    double a[LAYERS][T][T];
    attn__rng rng = {.seed = 5};
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < T; i++) {
            for (int j = 0; j < T; j++) {
                a[l][i][j] = i == j ? 0.5 : 0;
                for (int h = 0; h < HEADS; h++) {
                    weights[l][h][i][j] = (float)attn__rng_uniform(&rng);
                    a[l][i][j] += (double)weights[l][h][i][j] / (2 * HEADS);
                }
            }
        }
    }
    attn__block_attention blocks[LAYERS];
    for (int l = 0; l < LAYERS; l++)
        blocks[l] = (attn__block_attention){.heads = HEADS,
                                            .before = 1,
                                            .rows = 2,
                                            .cols = 2,
                                            .key_rows = 2,
                                            .key_cols = 2,
                                            .weights = &weights[l][0][0][0]};
    attn__attention attention = {.context = test_context(), .n = LAYERS, .blocks = blocks};
    attn__block_attention rolled;
    assert_int_equal(attn__attention_rollout(&rolled, &attention), ATTN_OK);
    assert_int_equal(rolled.heads, 1);
    for (int i = 0; i < T * T; i++) {
        double sum = 0;
        for (int kl = 0; kl < T * T; kl++)
            sum += a[2][i / T][kl / T] * a[1][kl / T][kl % T] * a[0][kl % T][i % T];
        assert_true(fabs((double)rolled.weights[i] - sum) < 1e-5);
    }
    attn__free(attention.context, rolled.own);
    end_context(attention.context);
}

static attn_status make_model(attn_context *context, void *given)
{
    attn_config *config = NULL, *settings = NULL;
    attn_model *model = NULL;
    attn_status status = attn_config_parse(&config, context, given, strlen(given), "given");
    if (status == ATTN_OK)
        status = attn_trainer_settings(&settings, context, "classify", config);
    if (status == ATTN_OK)
        status = attn__classifier_model(&model, context, settings, (attn_image_shape){8, 8, 3, 1}, 3);
    if (status == ATTN_OK)
        assert_int_equal(attn_config_int(attn_model_config(model), "num_classes", 0), 3);
    attn_model_destroy(model);
    attn_config_destroy(settings);
    attn_config_destroy(config);
    return status;
}

/* The weights of a query add up to 1, or to 1 for the row and 1 for the column. Layers differ in their weights. */
static void layers_have_their_own_weights(void **state)
{
    static const char *const models[] = {"sasa\", \"depth\": 26, \"window\": 3", "axial\", \"depth\": 2",
                                         "axial-image\", \"depth\": 2", "vit\", \"depth\": 2"};
    attn_context *context = *state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        char text[160];
        unsigned char pixels[8 * 8 * 3];
        attn_config *config = NULL;
        attn__attention a = {0};
        attn_classifier c = {.context = context, .shape = {8, 8, 3, 1}, .nclasses = 3, .pixels = {.std = {1, 1, 1}}};
        attn_prediction guess;
        for (int i = 0; i < 8 * 8 * 3; i++)
            pixels[i] = (unsigned char)(i * i % 251);
        snprintf(text, sizeof text, "{\"patch\": 4, \"width\": 8, \"heads\": 2, \"model\": \"%s}", models[m]);
        assert_ok(context, attn_config_parse(&config, context, text, strlen(text), "given"));
        assert_ok(context, attn__classifier_model(&c.model, context, config, c.shape, 3));
        assert_ok(context, attn__classifier_attention(&a, &c, &(attn_image){8, 8, 3, pixels}, &guess));
        assert_true(a.n >= 2);
        for (int64_t i = 0; i < a.n; i++) {
            const attn__block_attention *b = &a.blocks[i];
            int64_t keys = attn__block_keys(b);
            for (int64_t q = 0; q < b->heads * attn__block_queries(b); q++) {
                double sum = 0;
                for (int64_t k = 0; k < keys; k++)
                    sum += (double)b->weights[q * keys + k];
                assert_true(fabs(sum - (b->where == ATTN_KEYS_CROSS ? 2 : 1)) < 1e-5);
            }
            for (int64_t j = 0; j < i; j++)
                assert_memory_not_equal(b->weights, a.blocks[j].weights, sizeof(float) * (size_t)keys);
        }
        attn__attention_free(&a);
        attn_model_destroy(c.model);
        attn_config_destroy(config);
    }
}

static attn_status make_page(attn_context *context, void *user)
{
    static float weights[2][2][4][4];
    static unsigned char pixels[12];
    const attn_image picture = {2, 2, 3, pixels};
    const attn__block_attention block = {
        .heads = 2, .rows = 2, .cols = 2, .key_rows = 2, .key_cols = 2, .weights = &weights[0][0][0][0]};
    attn__block_attention blocks[] = {block, block};
    attn__attention attention = {.context = context, .n = 2, .blocks = blocks};
    attn_bytes page = {0};
    const attn_classifier_view view = {.layer = 1};
    const attn_plot_format *format = user;
    attn_status status = attn__attention_draw(&page, &attention, &view, &picture, "title", "about", *format);
    attn_bytes_free(context, &page);
    return status;
}

static void models_and_pages_survive_failed_allocations(void **state)
{
    char vit[] = "{\"model\": \"vit\", \"patch\": 4, \"width\": 8, \"depth\": 1, \"heads\": 2, \"compat\": \"d2l\"}",
         axial[] = "{\"model\": \"axial\", \"patch\": 4, \"width\": 8, \"depth\": 1, \"heads\": 2}";
    (void)state;
    assert_true(faults_try_all(make_model, vit) > 50);
    assert_true(faults_try_all(make_model, axial) > 50);
    for (attn_plot_format format = ATTN_PLOT_PNG; format <= ATTN_PLOT_HTML; format++)
        assert_true(faults_try_all(make_page, &format) > 5);
}

RUN_TESTS(TEST(keys_map_to_grid_positions), TEST(rollout_is_the_product_over_layers),
          TEST_WITH_CONTEXT(layers_have_their_own_weights), TEST(models_and_pages_survive_failed_allocations))
