/* SPDX-License-Identifier: MIT
 *
 * Tests encoders: packed texts, settings of published encoders, pooling, windows, and the files of a directory.
 */
#include "support/faults.h"
#include "support/fixture.h"
#include "support/scratch.h"
#include "support/tensors.h"

#include "apps/checkpoint/encoder_settings.h"
#include "apps/encoder/encoder.h"
#include "data/proteins.h"
#include "io/directory.h"
#include "models/kind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define assert_near(a, b, most) assert_true(fabs((double)(a) - (double)(b)) <= (most))

static attn_config *parsed(attn_context *context, const char *text)
{
    attn_config *config;
    assert_ok(context, attn_config_parse(&config, context, text, strlen(text), "settings"));
    return config;
}

static attn_model *model_of(attn_context *context, const char *settings, attn_dtype dtype)
{
    attn_config *config = parsed(context, settings);
    attn_model *model;
    assert_ok(context, attn_model_create(&model, context, "transformer-encoder", config,
                                         &(attn_model_options){.seed = 3, .dtype = dtype}));
    attn_config_destroy(config);
    return model;
}

static attn_tensor *output_of(attn_model *model, attn_tape *tape, const char *name, attn_tensor *tokens,
                              const char *other, attn_tensor *extra)
{
    attn_context *context = attn_model_context(model);
    attn_named_list in = {.context = context}, out = in;
    assert_ok(context, attn_named_add(&in, "tokens", tokens));
    if (extra)
        assert_ok(context, attn_named_add(&in, other, extra));
    assert_ok(context, attn_named_add(&out, name, NULL));
    attn_status status = attn_model_forward(model, tape, &in, &out);
    attn_tensor *found = status == ATTN_OK ? attn_named_find(&out, name) : NULL;
    attn_named_clear(&in);
    attn_named_clear(&out);
    return found;
}

/* ------------------------------------------------------------------------------------------------ the model */

static const char *const forms[] = {
    "{\"vocab_size\": 20, \"num_hiddens\": 12, \"num_heads\": 3, \"ffn_num_hiddens\": 10, \"positions\": \"learned\","
    " \"position_offset\": 2, \"embedding_norm\": true, \"use_bias\": true, \"pooler\": true, \"num_classes\": 3}",
    "{\"vocab_size\": 20, \"num_hiddens\": 16, \"num_heads\": 2, \"ffn_num_hiddens\": 10, \"positions\": \"none\","
    " \"norm\": \"pre\", \"rotary\": \"halves\", \"num_blks\": 4, \"local_window\": 2, \"global_every\": 3,"
    " \"local_rotary_base\": 50, \"norm_bias\": false, \"ffn_bias\": false, \"gated\": true, \"first_norm\": false,"
    " \"encoder_norm\": true, \"pooler\": true, \"pooler_norm\": true, \"pooled_from\": \"mean\", \"num_classes\": 2,"
    " \"activation\": \"gelu\", \"head_bias\": false}",
    "{\"vocab_size\": 33, \"num_hiddens\": 16, \"num_heads\": 2, \"ffn_num_hiddens\": 10, \"positions\": \"none\","
    " \"norm\": \"pre\", \"rotary\": \"pairs\", \"rotary_dims\": 4, \"rotary_scale\": 2, \"norm_kind\": \"rms\","
    " \"norm_bias\": false, \"masked_token\": 7, \"num_classes\": 2}",
};

static void packed_texts_give_what_each_gives_alone(void **state)
{
    attn_context *context = *state;
    const int32_t lens[] = {5, 1, 9, 3}, offsets[] = {0, 5, 6, 15, 18};
    attn_tape *tape;
    assert_ok(context, attn_tape_create(&tape, context));
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        attn_model *model = model_of(context, forms[f], ATTN_F64);
        attn_tensor *ids = test_ids(tape, 2, (int64_t[]){1, 18}, 20, 5);
        attn_tensor *bounds = attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){5}, offsets);
        attn_tensor *all = output_of(model, tape, "out", ids, "offsets", bounds);
        attn_tensor *classes = output_of(model, tape, "logits", ids, "offsets", bounds);
        assert_true(all && classes);
        for (int t = 0; t < 4; t++) {
            attn_tensor *own = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){1, lens[t]},
                                                (const int32_t *)attn_tensor_data(ids) + offsets[t]);
            attn_tensor *out = output_of(model, tape, "out", own, NULL, NULL);
            attn_tensor *logits = output_of(model, tape, "logits", own, NULL, NULL);
            int64_t dim = attn_tensor_length(out, 2), k = attn_tensor_length(logits, 1);
            for (int64_t i = 0; i < lens[t] * dim; i++)
                assert_near(test_at(all, offsets[t] * dim + i), test_at(out, i), 1e-11);
            for (int64_t i = 0; i < k; i++)
                assert_near(test_at(classes, t * k + i), test_at(logits, i), 1e-11);
        }
        attn_tape_reset(tape, NULL);
        attn_model_destroy(model);
    }
    attn_tape_destroy(tape);
}

/* A loss of the outputs falls along the negative gradient by what the gradient says. */
static void every_form_has_gradients(void **state)
{
    attn_context *context = *state;
    const int32_t offsets[] = {0, 5, 6, 15};
    attn_tape *tape;
    assert_ok(context, attn_tape_create(&tape, context));
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        attn_model *model = model_of(context, forms[f], ATTN_F64);
        double loss[3] = {0}, square = 0;
        for (int side = 0; side < 3; side++) {
            attn_tape_reset(tape, &(attn_tape_options){.record = side == 0});
            attn_tensor *ids = test_ids(tape, 2, (int64_t[]){1, 15}, 20, 5);
            attn_tensor *bounds = attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){4}, offsets);
            attn_tensor *out = output_of(model, tape, "logits", ids, "offsets", bounds);
            const int32_t labels[] = {1, 0, 1};
            attn_tensor *made =
                attn_cross_entropy(tape, out, attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){3}, labels), NULL);
            assert_non_null(made);
            loss[side] = test_at(made, 0);
            if (side == 0)
                assert_ok(context, attn_backward(tape, made));
            const double step = side == 0 ? 1e-5 : -2e-5;
            const attn_named_list *parameters = attn_model_parameters(model);
            for (int64_t p = 0; p < parameters->n; p++) {
                attn_tensor *x = parameters->items[p].tensor, *g = attn_tensor_grad(x);
                for (int64_t i = 0; g && i < attn_tensor_size(x); i++) {
                    square += side == 0 ? test_at(g, i) * test_at(g, i) : 0;
                    test_set(x, i, test_at(x, i) + step * test_at(g, i));
                }
            }
        }
        assert_true(square > 0);
        assert_near((loss[1] - loss[2]) / 2e-5, square, 1e-5 * square);
        attn_tape_reset(tape, NULL);
        attn_model_destroy(model);
    }
    attn_tape_destroy(tape);
}

static void offsets_are_checked(void **state)
{
    attn_context *context = *state;
    const int32_t wrong[][3] = {{0, 3, 5}, {1, 3, 6}, {0, 0, 6}, {0, 7, 6}};
    static const char *const said[] = {"the last 5; expected 0 and 6", "the first is 1 and",
                                       "offsets[1] is 0; it must be above the offset before, 0",
                                       "offsets[2] is 6; it must be above the offset before, 7"};
    attn_model *model = model_of(context, forms[0], ATTN_F32);
    attn_tape *tape;
    assert_ok(context, attn_tape_create(&tape, context));
    attn_tensor *ids = test_ids(tape, 2, (int64_t[]){1, 6}, 20, 5);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        attn_tensor *bounds = attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){3}, wrong[i]);
        assert_null(output_of(model, tape, "out", ids, "offsets", bounds));
        assert_says(context, said[i]);
        attn_tape_reset(tape, NULL);
        ids = test_ids(tape, 2, (int64_t[]){1, 6}, 20, 5);
    }
    const int32_t right[] = {0, 2, 6};
    attn_tensor *bounds = attn_tape_tensor(tape, ATTN_I32, 1, (int64_t[]){3}, right);
    assert_null(output_of(model, tape, "weights", ids, "offsets", bounds));
    assert_says(context, "weights and contacts cannot be computed for packed texts");
    attn_tape_destroy(tape);
    attn_context_clear_error(context);
    attn_model_destroy(model);
}

/* ------------------------------------------------------------------------------------------------ settings */

static void a_masked_token_has_no_positions_and_segments_beside_it(void **state)
{
    attn_context *context = *state;
    static const struct {
        const char *settings, *words;
    } refused[] = {
        {"{\"vocab_size\": 20, \"masked_token\": 7, \"positions\": \"learned\"}",
         "masked_token (7) needs positions=none, but positions is learned"},
        {"{\"vocab_size\": 20, \"masked_token\": 7, \"positions\": \"none\", \"segments\": 2}",
         "masked_token (7) needs segments=0, but segments is 2"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        attn_config *config = parsed(context, refused[i].settings);
        attn_model *model;
        assert_refused(context, attn_model_create(&model, context, "transformer-encoder", config, NULL),
                       ATTN_ERROR_ARGUMENT, refused[i].words);
        attn_context_clear_error(context);
        attn_config_destroy(config);
    }
}

static void settings_are_followed_or_refused_by_name(void **state)
{
    attn_context *context = *state;
    static const struct {
        const char *settings, *words;
    } refused[] = {
        {"{\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key\"}", "relative_key"},
        {"{\"model_type\": \"bert\", \"hidden_act\": \"mish\"}", "mish"},
        {"{\"model_type\": \"bert\", \"is_decoder\": true}", "is_decoder"},
        {"{\"model_type\": \"bert\", \"auto_map\": {\"AutoModel\": \"other.OtherBert\"}}", "other.OtherBert"},
        {"{\"model_type\": \"bert\", \"tie_word_embeddings\": false}", "tie_word_embeddings"},
        {"{\"model_type\": \"bert\", \"architectures\": [\"BertForTokenClassification\"]}",
         "BertForTokenClassification"},
        {"{\"model_type\": \"roberta\", \"hidden_act\": \"relu\"}", "relu"},
        {"{\"model_type\": \"esm\"}", "position_embedding_type"},
        {"{\"model_type\": \"esm\", \"position_embedding_type\": \"absolute\"}", "absolute"},
        {"{\"model_type\": \"modernbert\", \"layer_types\": [\"full_attention\", \"sliding_attention\", "
         "\"sliding_attention\", \"full_attention\", \"full_attention\"]}",
         "layer_types"},
        {"{\"model_type\": \"modernbert\", \"classifier_activation\": \"relu\"}", "classifier_activation"},
        {"{\"model_type\": \"modernbert\", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}}",
         "yarn"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        attn_config *config = parsed(context, refused[i].settings);
        assert_non_null(attn__encoder_names(config));
        assert_refused(context, attn__encoder_settings(&config, context, "config.json"), ATTN_ERROR_UNSUPPORTED,
                       refused[i].words);
        attn_config_destroy(config);
    }
    attn_config *config = parsed(
        context, "{\"model_type\": \"modernbert\", \"num_attention_heads\": 6, \"local_attention\": 20,"
                 " \"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\"],"
                 " \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 500}}}");
    assert_ok(context, attn__encoder_settings(&config, context, "config.json"));
    assert_int_equal(attn_config_int(config, "num_heads", 0), 6);
    assert_int_equal(attn_config_int(config, "local_window", 0), 10);
    assert_int_equal(attn_config_int(config, "global_every", 0), 2);
    assert_near(attn_config_real(config, "rotary_base", 0), 500, 0);
    assert_near(attn_config_real(config, "local_rotary_base", 0), 10000, 0);
    attn_config_destroy(config);
    config = parsed(context, "{\"model_type\": \"distilbert\", \"n_heads\": 3, \"activation\": \"relu\"}");
    assert_ok(context, attn__encoder_settings(&config, context, "config.json"));
    assert_int_equal(attn_config_int(config, "num_heads", 0), 3);
    assert_string_equal(attn_config_text(config, "activation", ""), "relu");
    attn_config_destroy(config);
    config = parsed(context, "{\"model_type\": \"mpnet\"}");
    assert_null(attn__encoder_names(config));
    attn_config_destroy(config);
}

/* ------------------------------------------------------------------------------------------------ directories */

static void write_text(attn_context *context, const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(context, attn_file_write(context, path, text, strlen(text)));
}

static attn_encoder *saved(attn_context *context, const char *folder, const char *settings, int64_t max_length)
{
    attn_encoder *encoder;
    attn_model *model = model_of(context, settings, ATTN_F32);
    assert_ok(context, attn_model_save(model, folder));
    attn_model_destroy(model);
    assert_ok(context,
              attn_encoder_load(&encoder, context, folder, &(attn_encoder_load_options){.max_length = max_length}));
    return encoder;
}

enum { TEXTS = 9, DIM = 12 };

static void make_texts(attn_encoder_text texts[TEXTS], int32_t ids[TEXTS][16])
{
    for (int t = 0; t < TEXTS; t++) {
        texts[t] = (attn_encoder_text){.n = 1 + (t * 7) % 11, .ids = ids[t]};
        for (int i = 0; i < 16; i++)
            ids[t][i] = (t * 5 + i * 3) % 20;
    }
}

static void texts_are_pooled_in_their_order(void **state)
{
    attn_context *context = *state;
    char folder[64];
    int32_t ids[TEXTS][16];
    attn_encoder_text texts[TEXTS];
    scratch_open(folder);
    attn_encoder *encoder = saved(context, folder, forms[0], 0);
    make_texts(texts, ids);
    for (attn_pool pool = ATTN_POOL_OWN; pool <= ATTN_POOL_NONE; pool++) {
        const attn_encoder_options how = {.pool = pool, .max_tokens = 12}, none = {.pool = ATTN_POOL_NONE};
        int64_t rows = 0, at = 0;
        for (int t = 0; t < TEXTS; t++)
            rows += attn_encoder_rows(encoder, &texts[t], &how);
        float *vectors = malloc((size_t)rows * DIM * sizeof *vectors), tokens[16 * DIM];
        assert_ok(context, attn_encoder_run(encoder, texts, TEXTS, &how, vectors));
        for (int t = 0; t < TEXTS; t++) {
            assert_ok(context, attn_encoder_run(encoder, &texts[t], 1, &none, tokens));
            for (int64_t r = 0; r < attn_encoder_rows(encoder, &texts[t], &how); r++, at++)
                for (int d = 0; d < DIM; d++) {
                    double sum = 0, most = -INFINITY;
                    for (int64_t i = 0; i < texts[t].n; i++) {
                        sum += (double)tokens[i * DIM + d];
                        most = fmax(most, (double)tokens[i * DIM + d]);
                    }
                    double wanted = pool == ATTN_POOL_CLS    ? (double)tokens[d]
                                    : pool == ATTN_POOL_LAST ? (double)tokens[(texts[t].n - 1) * DIM + d]
                                    : pool == ATTN_POOL_MAX  ? most
                                    : pool == ATTN_POOL_NONE ? (double)tokens[r * DIM + d]
                                                             : sum / (double)texts[t].n;
                    assert_near((double)vectors[at * DIM + d], wanted, 2e-5);
                }
        }
        assert_int_equal(at, rows);
        free(vectors);
    }
    float vector[DIM];
    double length = 0;
    assert_ok(context,
              attn_encoder_run(encoder, texts, 1, &(attn_encoder_options){.normalize = ATTN_NORMALIZE_YES}, vector));
    for (int d = 0; d < DIM; d++)
        length += (double)vector[d] * (double)vector[d];
    assert_near(length, 1, 1e-5);
    texts[4].n = 0;
    assert_refused(context, attn_encoder_run(encoder, texts, TEXTS, NULL, vector), ATTN_ERROR_ARGUMENT, "text 5");
    assert_refused(context, attn_encoder_tokens(encoder, "words", 5, &texts[4]), ATTN_ERROR_UNSUPPORTED,
                   "tokenizer.json");
    attn_encoder_destroy(encoder);
    scratch_close(folder);
}

static void the_files_of_sentence_transformers_are_followed(void **state)
{
    attn_context *context = *state;
    char folder[64], path[256];
    scratch_open(folder);
    attn_encoder_destroy(saved(context, folder, forms[0], 0));
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    assert_ok(context, attn_directory_create(context, path));
    write_text(context, folder, "modules.json",
               "[{\"idx\": 0, \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
               " {\"idx\": 1, \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"},"
               " {\"idx\": 2, \"path\": \"2_Normalize\", \"type\": \"sentence_transformers.models.Normalize\"}]");
    write_text(context, folder, "1_Pooling/config.json",
               "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}");
    write_text(context, folder, "sentence_bert_config.json", "{\"max_seq_length\": 40, \"do_lower_case\": false}");
    write_text(context, folder, "config_sentence_transformers.json", "{\"prompts\": {\"query\": \"query: \"}}");
    attn_encoder *encoder;
    assert_ok(context, attn_encoder_load(&encoder, context, folder, NULL));
    const attn_encoder_info *info = attn_encoder_about(encoder);
    assert_true(info->pool == ATTN_POOL_CLS && info->pooled && info->normalize && info->max_length == 40);
    assert_ok(context, attn_encoder_prompt(encoder, NULL, "query"));
    assert_string_equal(encoder->prompt, "query: ");
    assert_refused(context, attn_encoder_prompt(encoder, NULL, "title"), ATTN_ERROR_NOT_FOUND, "title");
    attn_encoder_destroy(encoder);

    write_text(context, folder, "1_Pooling/config.json", "{\"pooling_mode_weightedmean_tokens\": true}");
    assert_refused(context, attn_encoder_load(&encoder, context, folder, NULL), ATTN_ERROR_UNSUPPORTED, "weightedmean");
    assert_null(encoder);
    write_text(context, folder, "modules.json",
               "[{\"idx\": 0, \"path\": \"2_Dense\", \"type\": \"sentence_transformers.models.Dense\"}]");
    assert_refused(context, attn_encoder_load(&encoder, context, folder, NULL), ATTN_ERROR_UNSUPPORTED, "models.Dense");
    scratch_close(folder);
}

/* ------------------------------------------------------------------------------------------------ proteins */

static const char protein_settings[] =
    "{\"vocab_size\": 33, \"num_hiddens\": 12, \"num_heads\": 3, \"ffn_num_hiddens\": 10, \"positions\": \"none\","
    " \"norm\": \"pre\", \"rotary\": \"halves\", \"masked_token\": 32, \"contacts\": true, \"masked_head\": true,"
    " \"max_len\": 100}";
static const char letters[] = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQ";

static void proteins_are_letters(void **state)
{
    attn_context *context = *state;
    char folder[64];
    attn_encoder_text text;
    scratch_open(folder);
    attn_encoder *encoder = saved(context, folder, protein_settings, 0);
    assert_true(attn_encoder_about(encoder)->protein && attn_encoder_about(encoder)->contacts);
    assert_ok(context, attn_encoder_tokens(encoder, "mk T*\n", 6, &text));
    const int32_t wanted[] = {ATTN_RESIDUE_CLS, 20, 15, 11, ATTN_RESIDUE_EOS};
    assert_int_equal(text.n, 5);
    assert_memory_equal(text.ids, wanted, sizeof wanted);
    attn_encoder_text_free(encoder, &text);
    assert_refused(context, attn_encoder_tokens(encoder, "MK-T", 4, &text), ATTN_ERROR_FORMAT, "character 3");
    assert_refused(context, attn_encoder_tokens(encoder, "MK1T", 4, &text), ATTN_ERROR_FORMAT, "'1'");
    assert_refused(context, attn_encoder_tokens(encoder, "", 0, &text), ATTN_ERROR_FORMAT,
                   "the protein has no residues");
    attn_encoder_destroy(encoder);
    scratch_close(folder);
}

/* Each window has <cls> and <eos>; each residue has the vector of the window in whose middle it is nearest. */
static void long_proteins_are_computed_in_windows(void **state)
{
    enum { WINDOW = 20, RESIDUES = sizeof letters - 1 };
    attn_context *context = *state;
    char folder[64];
    attn_encoder_text text, part;
    const attn_encoder_options none = {.pool = ATTN_POOL_NONE};
    static float rows[RESIDUES * DIM], own[WINDOW * DIM], mean[DIM];
    scratch_open(folder);
    attn_encoder *encoder = saved(context, folder, protein_settings, WINDOW + 2);
    assert_ok(context, attn_encoder_tokens(encoder, letters, RESIDUES, &text));
    assert_int_equal(attn_encoder_rows(encoder, &text, &none), RESIDUES);
    assert_ok(context, attn_encoder_run(encoder, &text, 1, &none, rows));
    const int64_t begins[] = {0, 10, 20, 30, 36}, ends[] = {15, 25, 35, 43, RESIDUES};
    int64_t r = 0;
    for (int w = 0; w < 5; w++) {
        assert_ok(context, attn_encoder_tokens(encoder, letters + begins[w], WINDOW, &part));
        assert_ok(context, attn_encoder_run(encoder, &part, 1, &none, own));
        for (; r < ends[w]; r++)
            for (int d = 0; d < DIM; d++)
                assert_near((double)rows[r * DIM + d], (double)own[(r - begins[w]) * DIM + d], 1e-5);
        attn_encoder_text_free(encoder, &part);
    }
    assert_int_equal(r, RESIDUES);
    assert_ok(context, attn_encoder_run(encoder, &text, 1, NULL, mean));
    for (int d = 0; d < DIM; d++) {
        double sum = 0;
        for (r = 0; r < RESIDUES; r++)
            sum += (double)rows[r * DIM + d];
        assert_near((double)mean[d], sum / RESIDUES, 1e-5);
    }
    static float map[RESIDUES * RESIDUES];
    assert_ok(context, attn_encoder_contacts(encoder, &text, map));
    for (int64_t i = 0; i < RESIDUES; i++)
        for (int64_t j = 0; j < RESIDUES; j++) {
            bool together = false;
            for (int w = 0; w < 5; w++)
                together =
                    together || (i >= begins[w] && i < begins[w] + WINDOW && j >= begins[w] && j < begins[w] + WINDOW);
            assert_true(together ? fabsf(map[i * RESIDUES + j] - 0.5f) < 1e-6f : isnan(map[i * RESIDUES + j]));
        }
    attn_encoder_text_free(encoder, &text);
    attn_encoder_destroy(encoder);
    scratch_close(folder);
}

static void a_masked_residue_is_guessed_from_the_others(void **state)
{
    attn_context *context = *state;
    char folder[64];
    attn_encoder_text text;
    const int64_t places[] = {3, 1};
    float both[2 * 33], first[33], other[33];
    scratch_open(folder);
    attn_encoder *encoder = saved(context, folder, protein_settings, 0);
    assert_ok(context, attn_encoder_tokens(encoder, "MKTAYI", 6, &text));
    assert_ok(context, attn_encoder_logits(encoder, &text, places, 2, both));
    assert_ok(context, attn_encoder_logits(encoder, &text, places, 1, first));
    text.ids[3] = ATTN_RESIDUE_GAP; /* the masked residue itself does not count */
    assert_ok(context, attn_encoder_logits(encoder, &text, places, 1, other));
    for (int i = 0; i < 33; i++) {
        assert_near((double)both[i], (double)first[i], 1e-5);
        assert_near((double)first[i], (double)other[i], 0);
    }
    assert_refused(context, attn_encoder_logits(encoder, &text, (int64_t[]){8}, 1, first), ATTN_ERROR_ARGUMENT,
                   "place 8");
    attn_encoder_text_free(encoder, &text);
    attn_encoder_destroy(encoder);
    scratch_close(folder);
}

/* ------------------------------------------------------------------------------------------------ failures */

static attn_status whole_protein(attn_context *context, void *folder)
{
    attn_encoder *encoder;
    attn_encoder_text text = {0};
    static float vector[DIM], map[25 * 25], logits[33];
    attn_status status = attn_encoder_load(&encoder, context, folder, &(attn_encoder_load_options){.max_length = 12});
    if (status != ATTN_OK)
        return status;
    status = attn_encoder_tokens(encoder, letters, 25, &text);
    if (status == ATTN_OK)
        status = attn_encoder_run(encoder, &text, 1, NULL, vector);
    if (status == ATTN_OK)
        status = attn_encoder_contacts(encoder, &text, map);
    if (status == ATTN_OK)
        status = attn_encoder_logits(encoder, &text, (int64_t[]){2}, 1, logits);
    attn_encoder_text_free(encoder, &text);
    attn_encoder_destroy(encoder);
    return status;
}

static attn_status whole_directory(attn_context *context, void *folder)
{
    attn_encoder *encoder;
    attn_status status = attn_encoder_load(&encoder, context, folder, NULL);
    if (status == ATTN_OK)
        status = attn_encoder_prompt(encoder, NULL, "query");
    attn_encoder_destroy(encoder);
    return status;
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    attn_context *context = *state;
    char folder[64], path[256];
    scratch_open(folder);
    attn_encoder_destroy(saved(context, folder, protein_settings, 0));
    assert_true(faults_try_all(whole_protein, folder) > 100);
    attn_encoder_destroy(saved(context, folder, forms[0], 0));
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    assert_ok(context, attn_directory_create(context, path));
    write_text(context, folder, "modules.json",
               "[{\"idx\": 1, \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}]");
    write_text(context, folder, "1_Pooling/config.json", "{\"pooling_mode_max_tokens\": true}");
    write_text(context, folder, "config_sentence_transformers.json", "{\"prompts\": {\"query\": \"query: \"}}");
    assert_true(faults_try_all(whole_directory, folder) > 100);
    scratch_close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_WITH_CONTEXT(packed_texts_give_what_each_gives_alone),
        TEST_WITH_CONTEXT(every_form_has_gradients),
        TEST_WITH_CONTEXT(offsets_are_checked),
        TEST_WITH_CONTEXT(a_masked_token_has_no_positions_and_segments_beside_it),
        TEST_WITH_CONTEXT(settings_are_followed_or_refused_by_name),
        TEST_WITH_CONTEXT(texts_are_pooled_in_their_order),
        TEST_WITH_CONTEXT(the_files_of_sentence_transformers_are_followed),
        TEST_WITH_CONTEXT(proteins_are_letters),
        TEST_WITH_CONTEXT(long_proteins_are_computed_in_windows),
        TEST_WITH_CONTEXT(a_masked_residue_is_guessed_from_the_others),
        TEST_WITH_CONTEXT(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
