/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests attn_translator_pack_weights. Translations and scores must have the same bits, memory must be smaller, and
 * errors must tell what a packed model cannot do.
 */
#include "support/fixture.h"

#include "apps/checkpoint/convert.h"
#include "attn/translate.h"

#include "support/faults.h"
#include "support/scratch.h"
#include "apps/translator/translator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const nouns[][2] = {{"cat", "chat"},   {"dog", "chien"},  {"bird", "oiseau"},  {"fish", "poisson"},
                                       {"tree", "arbre"}, {"house", "toit"}, {"river", "fleuve"}, {"stone", "pierre"}};
static const char *const verbs[][2] = {{"sees", "voit"}, {"hears", "entend"}, {"finds", "trouve"}, {"likes", "aime"}};
enum { NOUNS = sizeof nouns / sizeof *nouns, VERBS = sizeof verbs / sizeof *verbs, LINES = 5, NBEST = 2 };

static const char *const lines[LINES] = {"the cat sees the dog .", "a bird", "", "the stone hears the river .",
                                         "the tree likes a zebra ."};

/* Makes a sentence for each combination of subject, verb and object. */
static char *make_pairs(void)
{
    size_t size = (size_t)NOUNS * NOUNS * VERBS * 64, used = 0;
    char *text = malloc(size);
    assert_non_null(text);
    for (int i = 0; i < NOUNS; i++)
        for (int v = 0; v < VERBS; v++)
            for (int j = 0; j < NOUNS; j++)
                used += (size_t)snprintf(text + used, size - used, "the %s %s the %s .\tle %s %s le %s .\n",
                                         nouns[i][0], verbs[v][0], nouns[j][0], nouns[i][1], verbs[v][1], nouns[j][1]);
    return text;
}

typedef struct trained {
    attn_context *c;
    char directory[64];
} trained;

/* Trains a translator for a few steps in a new folder. */
static trained train(const char *kind, const char *tie)
{
    trained t;
    char *text = make_pairs();
    attn_config *given, *settings;
    assert_int_equal(attn_context_create(&t.c, NULL), ATTN_OK);
    scratch_open(t.directory);
    assert_int_equal(attn_config_create(&given, t.c), ATTN_OK);
    assert_int_equal(attn_config_set_text(given, "model", kind), ATTN_OK);
    assert_int_equal(attn_config_set_text(given, "vocabulary", "word"), ATTN_OK);
    assert_int_equal(attn_config_set_int(given, "num_hiddens", 40), ATTN_OK);
    assert_int_equal(attn_config_set_int(given, "epochs", 1), ATTN_OK);
    if (tie) {
        assert_int_equal(attn_config_set_text(given, "tie", tie), ATTN_OK);
        assert_int_equal(attn_config_set_int(given, "ffn_num_hiddens", 72), ATTN_OK);
        assert_int_equal(attn_config_set_int(given, "num_blks", 2), ATTN_OK);
    }
    assert_int_equal(attn_trainer_settings(&settings, t.c, "translate", given), ATTN_OK);
    attn_trainer_job job = {
        .kind = "translate", .text = text, .text_size = strlen(text), .directory = t.directory, .settings = settings};
    assert_ok(t.c, attn_train(t.c, &job));
    attn_config_destroy(settings);
    attn_config_destroy(given);
    free(text);
    return t;
}

static void end(trained *t)
{
    scratch_close(t->directory);
    end_context(t->c);
}

/* ------------------------------------------------------------------------------------------------- memory */

typedef struct counted {
    size_t held;
} counted;

static void *count_alloc(void *user, size_t size, size_t align)
{
    ((counted *)user)->held += size;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void count_release(void *user, void *memory, size_t size)
{
    if (memory)
        ((counted *)user)->held -= size;
    free(memory);
}

/* -------------------------------------------------------------------------------------------- translations */

typedef struct said {
    attn_translation results[LINES * NBEST];
} said;

static void translate(attn_context *c, attn_translator *t, const attn_translator_options *options, said *to)
{
    int64_t nbest = options->nbest ? options->nbest : 1;
    assert_ok(c, attn_translator_translate(t, lines, LINES, options, to->results));
    for (int64_t i = LINES * nbest; i < LINES * NBEST; i++)
        to->results[i] = (attn_translation){0};
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void assert_same(attn_context *c, said *a, attn_context *d, said *b)
{
    for (int i = 0; i < LINES * NBEST; i++) {
        assert_true(same_text(a->results[i].text, b->results[i].text));
        assert_true(same_text(a->results[i].alignment, b->results[i].alignment));
        assert_memory_equal(&a->results[i].score, &b->results[i].score, sizeof(double));
    }
    attn_translations_free(c, a->results, LINES * NBEST);
    attn_translations_free(d, b->results, LINES * NBEST);
}

/* Compares searches that compute all outputs with searches that read only some rows of the output layer. */
static void assert_same_searches(attn_context *c, attn_translator *t, attn_context *d, attn_translator *packed,
                                 const char *pairs)
{
    static const attn_lexicon_options how = {0};
    attn_translator_options searches[] = {{.batch = 2},
                                          {.beam = 4, .nbest = NBEST, .alignments = true},
                                          {.batch = 1, .shortlist_first = 6},
                                          {.beam = 3, .shortlist_first = 6}};
    const attn_pairs_source data = {.text = pairs, .size = strlen(pairs)};
    attn_lexicon *lexicons[2];
    attn_translator *translators[2] = {t, packed};
    for (int i = 0; i < 2; i++)
        assert_int_equal(attn_translator_learn_lexicon(&lexicons[i], translators[i], &data, ATTN_SPLIT_ALL, &how, NULL),
                         ATTN_OK);
    for (int i = 0; i < 4; i++) {
        said one, other;
        searches[i].shortlist = i >= 2 ? lexicons[0] : NULL;
        translate(c, t, &searches[i], &one);
        searches[i].shortlist = i >= 2 ? lexicons[1] : NULL;
        translate(d, packed, &searches[i], &other);
        assert_same(c, &one, d, &other);
    }
    attn_lexicon_destroy(lexicons[0]);
    attn_lexicon_destroy(lexicons[1]);
    attn_translator_score a, b;
    assert_int_equal(attn_translator_evaluate(t, &data, ATTN_SPLIT_TEST, NULL, &a), ATTN_OK);
    assert_int_equal(attn_translator_evaluate(packed, &data, ATTN_SPLIT_TEST, NULL, &b), ATTN_OK);
    assert_true(a.loss == b.loss);
}

static void same_results_with(const char *kind, const char *tie)
{
    trained f = train(kind, tie);
    char *pairs = make_pairs();
    for (attn_precision p = ATTN_PRECISION_F32; p <= ATTN_PRECISION_INT8; p++) {
        for (int threads = 1; threads <= 2; threads++) {
            attn_context *c, *d;
            attn_translator *plain, *packed;
            attn_context_options options = {.threads = threads, .precision = p};
            assert_int_equal(attn_context_create(&c, &options), ATTN_OK);
            assert_int_equal(attn_context_create(&d, &options), ATTN_OK);
            assert_int_equal(attn_translator_load(&plain, c, f.directory, NULL), ATTN_OK);
            assert_int_equal(attn_translator_load(&packed, d, f.directory, NULL), ATTN_OK);
            for (int i = 0; i < 2; i++)
                assert_ok(d, attn_translator_pack_weights(packed));
            assert_same_searches(c, plain, d, packed, pairs);
            attn_translator_destroy(plain);
            attn_translator_destroy(packed);
            end_context(c);
            end_context(d);
        }
    }
    free(pairs);
    end(&f);
}

static void translations_of_a_transformer_stay(void **state)
{
    same_results_with("transformer", "none");
}

static void translations_with_tied_tables_stay(void **state)
{
    same_results_with("transformer", "decoder");
}

static void translations_of_a_recurrent_model_stay(void **state)
{
    same_results_with("bahdanau", NULL);
}

/* --------------------------------------------------------------------------------------------- what is left */

static attn_tensor *weight_of(attn_translator *t, bool taken)
{
    attn_named_list *all = attn_model_parameters(attn_translator_model(t));
    for (int64_t i = 0; i < all->n; i++) {
        attn_tensor *x = all->items[i].tensor;
        if (attn_tensor_rank(x) == 2 && (attn_tensor_data(x) == NULL) == taken)
            return x;
    }
    return NULL;
}

static void packed_weights_take_the_place_of_the_others(void **state)
{
    trained f = train("transformer", "decoder");
    counted memory = {0};
    attn_context *c;
    attn_translator *t;
    attn_context_options options = {.allocator = {count_alloc, count_release, &memory}, .threads = 1, .isa = "scalar"};
    assert_int_equal(attn_context_create(&c, &options), ATTN_OK);
    assert_int_equal(attn_translator_load(&t, c, f.directory, NULL), ATTN_OK);
    size_t before = memory.held;
    assert_null(weight_of(t, true));
    assert_int_equal(attn_translator_pack_weights(t), ATTN_OK);
    attn_named_list *all = attn_model_parameters(attn_translator_model(t));
    size_t weights = 0;
    for (int64_t i = 0; i < all->n; i++)
        weights += (size_t)attn_tensor_size(all->items[i].tensor) * sizeof(float);
    /* The limit includes the padding of panels and the list of panels. */
    assert_true(memory.held < before + weights / 4);
    attn_tensor *taken = weight_of(t, true);
    assert_non_null(taken);
    assert_true(attn_tensor_size(taken) > 0);

    attn_tape *tape;
    char path[128];
    assert_refused(c, attn_model_save(attn_translator_model(t), f.directory), ATTN_ERROR_ARGUMENT,
                   "packed the weights");
    snprintf(path, sizeof path, "%s/model.safetensors", f.directory);
    assert_refused(c, attn_weights_load(all, path, NULL, NULL, NULL), ATTN_ERROR_ARGUMENT, "packed the weights");
    snprintf(path, sizeof path, "%s/one.npy", f.directory);
    assert_int_equal(attn_npy_write(taken, c, path), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(c);
    assert_int_equal(attn_tape_create(&tape, c), ATTN_OK);
    assert_null(attn_activate(tape, taken, ATTN_ACTIVATION_RELU));
    assert_says(c, "packed for inference");
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    int64_t shape[] = {2, attn_tensor_length(taken, 1)};
    assert_null(attn_linear(tape, attn_tape_tensor(tape, ATTN_F32, 2, shape, NULL), taken, NULL, 0));
    assert_says(c, "packed for inference");
    attn_tape_destroy(tape);
    attn_translator_destroy(t);
    end_context(c);
    assert_int_equal(memory.held, 0);
    end(&f);
}

/* -------------------------------------------------------------------------------------------------- faults */

static attn_status load_and_pack(attn_context *c, void *user)
{
    attn_translator *t;
    attn_status status = attn_translator_load(&t, c, user, NULL);
    if (status == ATTN_OK)
        status = attn_translator_pack_weights(t);
    attn_translator_destroy(t);
    return status;
}

/* Loads a model for inference, whose weights are packed while they are read. */
static attn_status load_for_inference(attn_context *c, void *user)
{
    attn_model *model;
    attn_context_set_inference(c, true);
    attn_status status = attn_model_load(&model, c, user, &(attn_model_load_options){.precision = ATTN_PRECISION_INT8});
    attn_model_destroy(model);
    return status;
}

static void every_allocation_of_loading_and_packing_may_fail(void **state)
{
    trained f = train("transformer", "all");
    assert_true(faults_try_all(load_and_pack, f.directory) > 0);
    assert_true(faults_try_all(load_for_inference, f.directory) > 0);
    end(&f);
}

RUN_TESTS(TEST(translations_of_a_transformer_stay), TEST(translations_with_tied_tables_stay),
          TEST(translations_of_a_recurrent_model_stay), TEST(packed_weights_take_the_place_of_the_others),
          TEST(every_allocation_of_loading_and_packing_may_fail))
