/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests that invalid values of enums are refused. An earlier failure must not change the error of a later call.
 */
#include "support/fixture.h"

#include "data/sentences.h"
#include "data/proteins.h"
#include "attn/image.h"
#include "attn/io.h"
#include "attn/models.h"
#include "attn/msa.h"
#include "nn/axial.h"
#include "attn/plot.h"
#include "attn/train.h"
#include "apps/msa/msa.h"
#include "io/images/image.h"
#include "train/loop.h"

#include <string.h>

enum { NONE = 99 };

static attn_context *fresh(void)
{
    attn_context *c;
    assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 1}), ATTN_OK);
    return c;
}

static void end(attn_context *c)
{
    end_context(c);
}

static void refused(attn_context *c, attn_status status)
{
    assert_int_equal(status, ATTN_ERROR_ARGUMENT);
    assert_refused(c, attn_context_status(c), ATTN_ERROR_ARGUMENT, "99");
}

static void fail_once(attn_context *c)
{
    attn_config *config;
    assert_int_equal(attn_config_read(&config, c, "/nowhere/at/all"), ATTN_ERROR_NOT_FOUND);
}

static void texts(void **state)
{
    static const char lines[] = "a b\tc d\ne f\tg h\n", rows[] = ">a\nACD\n>b\nACE\n";
    attn_context *c = fresh();
    attn_pairs *pairs, *part;
    attn_vocab *vocab;
    attn_alignment *all, *some;
    char out[16];
    refused(c, attn_text_normalize(c, "a", 1, (attn_compat)NONE, out, sizeof out, NULL));
    refused(c,
            attn_pairs_parse(&pairs, c, lines, strlen(lines), "x", &(attn_pairs_options){.compat = (attn_compat)NONE}));
    assert_int_equal(attn_pairs_parse(&pairs, c, lines, strlen(lines), "x", NULL), ATTN_OK);
    attn_pairs_split_options split = {.compat = (attn_compat)NONE};
    refused(c, attn_pairs_split(&part, NULL, NULL, pairs, &split));
    refused(c, attn_vocab_build(&vocab, pairs, (attn_side)NONE, NULL));
    refused(c, attn_vocab_build(&vocab, pairs, ATTN_SIDE_SOURCE, &(attn_vocab_options){.kind = (attn_vocab_kind)NONE}));
    attn_pairs_destroy(pairs);
    attn_alignment_options format = {.format = (attn_alignment_format)NONE};
    refused(c, attn_alignment_parse(&all, c, rows, strlen(rows), "x", &format));
    assert_int_equal(attn_alignment_parse(&all, c, rows, strlen(rows), "x", NULL), ATTN_OK);
    refused(c, attn_alignment_select(&some, all, &(attn_selection){.depth = 1, .how = (attn_select)NONE}));
    fail_once(c);
    assert_refused(c, attn_alignment_select(&some, all, &(attn_selection){.depth = -7}), ATTN_ERROR_ARGUMENT, "-7");
    attn_alignment_destroy(all);
    end(c);
}

static void pictures(void **state)
{
    attn_context *c = fresh();
    attn_image image, to, none = {0};
    attn_bytes page;
    assert_int_equal(attn_image_alloc(&image, c, 4, 4, 1), ATTN_OK);
    refused(c, attn_image_resize(&to, c, &image, 2, 2, (attn_image_filter)NONE));
    refused(c, attn_image_fit(&to, c, &image, 2, 2, (attn_image_filter)NONE));
    assert_int_equal(attn_image_fit(&to, c, &none, 2, 2, ATTN_IMAGE_FILTER_BILINEAR), ATTN_ERROR_ARGUMENT);
    assert_int_equal(attn_image_fit(&to, c, &image, INT64_MAX, 2, ATTN_IMAGE_FILTER_BILINEAR), ATTN_ERROR_ARGUMENT);
    assert_int_equal(attn_image_resize(&to, c, &none, 2, 2, ATTN_IMAGE_FILTER_BILINEAR), ATTN_ERROR_ARGUMENT);
    attn_image_free(c, &image);
    attn_panel panel = {.rows = 1, .cols = 1, .values = (float[]){1}};
    attn_panel_row row = {.n = 1, .panels = &panel};
    attn_context_clear_error(c);
    attn_status status = attn_heatmaps_render(&page, c, &(attn_heatmaps){.n = 1, .rows = &row}, (attn_plot_format)NONE);
    /* ATTN_ERROR_UNSUPPORTED means that the build cannot write pictures. */
    if (status != ATTN_ERROR_UNSUPPORTED)
        refused(c, status);
    end(c);
}

static void trainings(void **state)
{
    attn_context *c = fresh();
    attn_named_list none = {.context = c};
    attn_optimizer *optimizer;
    attn_training *training;
    attn_optimizer_options o = {.kind = (attn_optimizer_kind)NONE};
    attn_training_options t = {.epochs = 1, .schedule = {.kind = (attn_schedule_kind)NONE, .peak = 1}};
    refused(c, attn_optimizer_create(&optimizer, c, &none, &o));
    refused(c, attn_training_create(&training, c, &none, &t));
    end(c);
}

static void layers(void **state)
{
    attn_context *c = fresh();
    attn_named_list list = {.context = c, .owns = true};
    attn_nn_builder b = {.context = c, .parameters = &list, .constants = &list};
    attn_nn_positional positional;
    attn_nn_axial_positions axial;
    assert_null(
        attn_nn_parameter(&b, "w", 1, (int64_t[]){2}, (attn_nn_initializer){.start = (attn_nn_initializer_kind)NONE}));
    refused(c, attn_context_status(c));
    attn_nn_positional_init_kind(&positional, &b, (attn_nn_position_kind)NONE, 4, 4, 0);
    refused(c, attn_context_status(c));
    attn_nn_axial_positions_init(&axial, &b, 4, 2, (int64_t[]){2, 2}, -1, (attn_nn_positions_fit)NONE);
    refused(c, attn_context_status(c));
    b.policy = (attn_nn_policy)NONE;
    assert_null(attn_nn_constant(&b, "c", 1, (int64_t[]){2}));
    refused(c, attn_context_status(c));
    assert_int_equal(list.n, 0);
    attn_named_clear(&list);
    end(c);
}

static void operations(void **state)
{
    attn_context *c = fresh();
    attn_tape *t;
    assert_int_equal(attn_tape_create(&t, c), ATTN_OK);
    attn_tensor *x = attn_tape_tensor(t, ATTN_F32, 2, (int64_t[]){2, 2}, NULL);
    attn_tensor *g = attn_tape_tensor(t, ATTN_F32, 1, (int64_t[]){2}, NULL);
    assert_null(attn_interpolate(t, x, 0, 5, (attn_interpolation)NONE));
    refused(c, attn_context_status(c));
    assert_null(attn_channel_norm(t, x, 0, g, g, 1e-5, (attn_norm)NONE));
    refused(c, attn_context_status(c));
    fail_once(c);
    attn_tape_reset(t, NULL);
    x = attn_tape_tensor(t, ATTN_F32, 2, (int64_t[]){2, 2}, NULL);
    assert_null(attn_activate(t, x, (attn_activation)NONE));
    refused(c, attn_context_status(c));
    attn_tape_destroy(t);
    attn_problem problem;
    attn_heads heads = {.batch = 1, .heads = 1, .queries = 2, .keys = 2, .dim = 2, .layout = (attn_layout)NONE};
    assert_int_equal(attn_problem_heads(&problem, &heads), ATTN_ERROR_ARGUMENT);
    end(c);
}

static attn_model *small_transformer(attn_context *c)
{
    static const char json[] = "{\"src_vocab_size\": 6, \"tgt_vocab_size\": 6, \"num_hiddens\": 8, "
                               "\"ffn_num_hiddens\": 8, \"num_heads\": 2, \"num_blks\": 1}";
    attn_config *config;
    attn_model *model;
    assert_int_equal(attn_config_parse(&config, c, json, strlen(json), "test"), ATTN_OK);
    assert_int_equal(attn_model_create(&model, c, "transformer", config, NULL), ATTN_OK);
    attn_config_destroy(config);
    return model;
}

static void searches(void **state)
{
    attn_context *c = fresh();
    attn_model *model = small_transformer(c);
    attn_hypothesis found = {0};
    attn_tensor *src;
    assert_int_equal(attn_tensor_create(&src, c, ATTN_I32, 2, (int64_t[]){1, 2}), ATTN_OK);
    attn_beam_search_options rule = {.bos = 1, .eos = 2, .rule = (attn_length_rule)NONE};
    attn_beam_search_options stopping = {.bos = 1, .eos = 2, .stopping = (attn_stopping)NONE};
    refused(c, attn_seq2seq_translate(model, src, NULL, &rule, &found));
    refused(c, attn_seq2seq_translate(model, src, NULL, &stopping, &found));
    assert_int_equal(attn_seq2seq_translate(model, src, NULL, NULL, &found), ATTN_ERROR_ARGUMENT);
    assert_refused(c, attn_seq2seq_translate(model, src, NULL, &(attn_beam_search_options){0}, &found),
                   ATTN_ERROR_ARGUMENT, "both are 0");
    fail_once(c);
    attn_beam_search_options right = {.bos = 1, .eos = 2, .max_len = 3};
    assert_int_equal(attn_seq2seq_translate(model, src, NULL, &right, &found), ATTN_OK);
    attn_hypotheses_free(c, &found, 1);
    attn_tensor_destroy(src);
    attn_model_destroy(model);
    end(c);
}

static void alignments_run_after_a_failure(void **state)
{
    static const char json[] = "{\"layers\": 1, \"embed_dim\": 8, \"ffn_embed_dim\": 8, \"attention_heads\": 1}";
    static const int32_t tokens[] = {0, 5, 6, 0, 6, 7};
    attn_context *c = fresh();
    attn_config *config;
    attn_msa *msa;
    attn_msa_result result;
    assert_int_equal(attn_config_parse(&config, c, json, strlen(json), "test"), ATTN_OK);
    assert_int_equal(attn_msa_create(&msa, c, config, 1), ATTN_OK);
    attn_config_destroy(config);
    fail_once(c);
    assert_int_equal(attn_msa_run(msa, tokens, 1, 2, 3, &(attn_msa_options){.logits = true}, &result), ATTN_OK);
    assert_non_null(result.logits);
    attn_msa_destroy(msa);
    end(c);
}

RUN_TESTS(TEST(texts), TEST(pictures), TEST(trainings), TEST(layers), TEST(operations), TEST(searches),
          TEST(alignments_run_after_a_failure))
