/* SPDX-License-Identifier: MIT
 * labels: no-asan no-tsan
 *
 * Tests the fixed order of sums in whole models. Pictures have the same bits with any number of threads and in any
 * batch. Sentences and alignments have the same bits with any number of threads and, in a batch-invariant context, also
 * when a batch pads them.
 */
#include "support/cmocka.h"

#include "models/axial_transformer.h"
#include "attn/msa.h"
#include "base/rng.h"
#include "apps/msa/msa.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NUMBERS = 1 << 16 };

typedef struct said {
    int64_t n;
    float x[MOST_NUMBERS];
} said;

typedef struct setting {
    const char *key;
    int64_t value;
} setting;

typedef struct stage {
    attn_context *context;
    attn_config *config;
    attn_tape *tape;
} stage;

static bool reproducible; /* true: the models' contexts are batch-invariant */

static stage open_stage(int threads, const setting *settings)
{
    stage s;
    const attn_context_options options = {.threads = threads, .batch_invariant = reproducible};
    assert_int_equal(attn_context_create(&s.context, &options), ATTN_OK);
    assert_int_equal(attn_config_create(&s.config, s.context), ATTN_OK);
    assert_int_equal(attn_tape_create(&s.tape, s.context), ATTN_OK);
    for (int i = 0; settings[i].key; i++)
        assert_int_equal(attn_config_set_int(s.config, settings[i].key, settings[i].value), ATTN_OK);
    return s;
}

static void close_stage(stage *s)
{
    attn_tape_destroy(s->tape);
    attn_config_destroy(s->config);
    attn_context_destroy(s->context);
}

static attn_model *model_of(const stage *s, const char *architecture)
{
    attn_model *model;
    if (attn_model_create(&model, s->context, architecture, s->config, &(attn_model_options){.seed = 3}) != ATTN_OK)
        fail_msg("%s", attn_context_error(s->context));
    return model;
}

/* Appends `rows` rows of numbers to the outputs. Rows of `from` are `step` numbers apart. */
static void take(said *to, const stage *s, const attn_tensor *from, int64_t first, int64_t rows, int64_t step,
                 int64_t n)
{
    if (!from)
        fail_msg("%s", attn_context_error(s->context));
    const float *x = attn_tensor_data(from);
    for (int64_t r = 0; r < rows; r++) {
        assert_true(to->n + n <= MOST_NUMBERS);
        memcpy(to->x + to->n, x + first + r * step, (size_t)n * sizeof *x);
        to->n += n;
    }
}

static int32_t token(int64_t example, int64_t i, int64_t n)
{
    return (int32_t)(attn__mix64((uint64_t)(example * 1000 + i)) % (uint64_t)n);
}

/* ---------------------------------------------------------------------------------------------- the models */

enum { SENTENCE = 11, WORDS = 7, SAID_WORDS = 6, VOCABULARY = 50, BATCH = 32 };

static const setting small_translator[] = {{"src_vocab_size", VOCABULARY},
                                           {"tgt_vocab_size", VOCABULARY},
                                           {"num_hiddens", 64},
                                           {"ffn_num_hiddens", 160},
                                           {"num_heads", 4},
                                           {"num_blks", 2},
                                           {NULL, 0}};

/* Makes sentence 11 alone, or in a batch of 32 with longer sentences. */
static void make_sentences(const stage *s, bool together, attn_tensor **words, attn_tensor **lens)
{
    const int64_t batch = together ? BATCH : 1, longest = together ? 23 : WORDS, shape[2] = {batch, longest};
    *words = attn_tape_tensor(s->tape, ATTN_I32, 2, shape, NULL);
    *lens = attn_tape_tensor(s->tape, ATTN_I32, 1, &batch, NULL);
    assert_non_null(*words);
    assert_non_null(*lens);
    for (int64_t b = 0; b < batch; b++) {
        const int64_t example = together ? b : SENTENCE;
        const int64_t length = example == SENTENCE ? WORDS : 1 + example * 5 % longest;
        ((int32_t *)attn_tensor_data(*lens))[b] = (int32_t)length;
        for (int64_t i = 0; i < longest; i++)
            ((int32_t *)attn_tensor_data(*words))[b * longest + i] = i < length ? token(example, i, VOCABULARY) : 1;
    }
}

/* Computes the logits of a given output sentence, which is padded in a batch. */
static void translator(int threads, bool together, said *to)
{
    stage s = open_stage(threads, small_translator);
    attn_model *model = model_of(&s, "transformer");
    attn_tensor *words, *lens;
    make_sentences(&s, together, &words, &lens);
    const int64_t batch = attn_tensor_length(words, 0), n = together ? 15 : SAID_WORDS, shape[2] = {batch, n};
    attn_tensor *answer = attn_tape_tensor(s.tape, ATTN_I32, 2, shape, NULL);
    for (int64_t at = 0; at < batch * n; at++) {
        const int64_t example = together ? at / n : SENTENCE;
        ((int32_t *)attn_tensor_data(answer))[at] = token(example, at % n + 100, VOCABULARY);
    }
    const attn_tensor *logits = attn_seq2seq_forward(model, s.tape, words, lens, answer, NULL);
    take(to, &s, logits, together ? SENTENCE * n * VOCABULARY : 0, 1, 0, SAID_WORDS * VOCABULARY);
    attn_model_destroy(model);
    close_stage(&s);
}

/* Translates by beam search. The outputs are the words and the probability. */
static void translation(int threads, bool together, said *to)
{
    stage s = open_stage(threads, small_translator);
    attn_model *model = model_of(&s, "transformer");
    attn_tensor *words, *lens;
    attn_hypothesis results[BATCH];
    make_sentences(&s, together, &words, &lens);
    const attn_beam_search_options options = {.bos = 2, .eos = 3, .max_len = 12, .beam = 4};
    if (attn_seq2seq_translate(model, words, lens, &options, results) != ATTN_OK)
        fail_msg("%s", attn_context_error(s.context));
    const attn_hypothesis *mine = &results[together ? SENTENCE : 0];
    for (int64_t i = 0; i < mine->n; i++)
        to->x[to->n++] = (float)mine->ids[i];
    memcpy(to->x + to->n, &mine->log_prob, sizeof mine->log_prob);
    to->n += 2;
    attn_hypotheses_free(s.context, results, together ? BATCH : 1);
    attn_model_destroy(model);
    close_stage(&s);
}

enum { SIDE = 32, COLOURS = 3, PIXELS = SIDE * SIDE * COLOURS, CLASSES = 10 };

static void vit(int threads, bool together, said *to)
{
    static const setting settings[] = {{"img_size", SIDE},       {"patch_size", 8}, {"num_hiddens", 64},
                                       {"mlp_num_hiddens", 256}, {"num_heads", 4},  {"num_blks", 2},
                                       {"num_classes", CLASSES}, {NULL, 0}};
    stage s = open_stage(threads, settings);
    attn_model *model = model_of(&s, "vit");
    const int64_t batch = together ? BATCH : 1, shape[4] = {batch, COLOURS, SIDE, SIDE};
    attn_tensor *x = attn_tape_tensor(s.tape, ATTN_F32, 4, shape, NULL);
    attn_named_list in = {.context = s.context}, out = {.context = s.context};
    for (int64_t b = 0; b < batch; b++) {
        attn__rng rng = {.seed = 9, .stream = (uint64_t)(together ? b : SENTENCE)};
        for (int64_t i = 0; i < PIXELS; i++)
            ((float *)attn_tensor_data(x))[b * PIXELS + i] = (float)attn__rng_normal(&rng);
    }
    assert_int_equal(attn_named_add(&in, "x", x), ATTN_OK);
    if (attn_model_forward(model, s.tape, &in, &out) != ATTN_OK)
        fail_msg("%s", attn_context_error(s.context));
    take(to, &s, attn_named_find(&out, "logits"), together ? SENTENCE * CLASSES : 0, 1, 0, CLASSES);
    attn_named_clear(&in);
    attn_named_clear(&out);
    attn_model_destroy(model);
    close_stage(&s);
}

enum { ROWS = 4, COLS = 9, RESIDUES = 33 };

/* Runs alignment 1, alone or in a batch of three. The others have more columns. They have as many rows, because in
 * the original, the padded number of rows scales tied scores. */
static void msa_transformer(int threads, bool together, said *to)
{
    static const setting settings[] = {{"layers", 2},          {"embed_dim", 64},     {"ffn_embed_dim", 128},
                                       {"attention_heads", 4}, {"max_positions", 64}, {NULL, 0}};
    stage s = open_stage(threads, settings);
    attn_msa *msa;
    attn_msa_result result;
    assert_int_equal(attn_msa_create(&msa, s.context, s.config, 4), ATTN_OK);
    const int64_t batch = together ? 3 : 1, rows = ROWS, cols = together ? 16 : COLS;
    int32_t tokens[3 * ROWS * 16];
    for (int64_t at = 0; at < batch * rows * cols; at++) {
        const int64_t b = at / cols / rows, r = at / cols % rows, c = at % cols;
        const int64_t example = together ? b : 1;
        const bool inside = example != 1 || (r < ROWS && c < COLS);
        tokens[at] = !inside ? ATTN_RESIDUE_PAD : c == 0 ? ATTN_RESIDUE_CLS : 4 + token(example, r * 100 + c, 20);
    }
    if (attn_msa_run(msa, tokens, batch, rows, cols, &(attn_msa_options){.logits = true}, &result) != ATTN_OK)
        fail_msg("%s", attn_context_error(s.context));
    take(to, &s, result.logits, together ? rows * cols * RESIDUES : 0, ROWS, cols * RESIDUES, COLS * RESIDUES);
    attn_msa_destroy(msa);
    close_stage(&s);
}

enum { HEIGHT = 8, LEVELS = 16, IMAGE = HEIGHT * HEIGHT * COLOURS };

static void axial_transformer(int threads, bool together, said *to)
{
    static const setting settings[] = {
        {"height", HEIGHT}, {"width", HEIGHT},      {"channels", COLOURS}, {"levels", LEVELS},  {"dim", 32},
        {"heads", 4},       {"exterior_blocks", 2}, {"outer_blocks", 2},   {"inner_blocks", 2}, {NULL, 0}};
    stage s = open_stage(threads, settings);
    attn_model *model;
    assert_int_equal(attn_config_set_real(s.config, "residual_init", 1), ATTN_OK);
    model = model_of(&s, "axial-transformer");
    const int64_t batch = together ? BATCH : 1, shape[4] = {batch, COLOURS, HEIGHT, HEIGHT};
    attn_tensor *x = attn_tape_tensor(s.tape, ATTN_I32, 4, shape, NULL);
    for (int64_t at = 0; at < batch * IMAGE; at++)
        ((int32_t *)attn_tensor_data(x))[at] = token(together ? at / IMAGE : SENTENCE, at % IMAGE, LEVELS);
    take(to, &s, attn_axial_transformer_logits(model, s.tape, x, NULL), together ? SENTENCE * IMAGE * LEVELS : 0, 1, 0,
         IMAGE * LEVELS);
    attn_model_destroy(model);
    close_stage(&s);
}

/* ---------------------------------------------------------------------------------------------- the checks */

static int64_t first_difference(const said *a, const said *b)
{
    int64_t i = 0;
    while (i < a->n && memcmp(&a->x[i], &b->x[i], sizeof a->x[i]) == 0)
        i++;
    return i;
}

/* Compares runs with different numbers of threads and, if `batches` is true, in batches. Longer examples of a batch
 * cause padding, which may change the solver. Only a batch-invariant context keeps the bits then. */
static void check(void (*run)(int threads, bool together, said *to), bool batches)
{
    static const int threads[] = {1, 2, 3, 7};
    said *alone = calloc(1, sizeof *alone), *other = calloc(1, sizeof *other);
    int failures = 0;
    assert_non_null(alone);
    assert_non_null(other);
    run(1, false, alone);
    for (int i = 0; i < 8; i += batches ? 1 : 2) {
        other->n = 0;
        run(threads[i / 2], i % 2, other);
        assert_int_equal(alone->n, other->n);
        const int64_t at = first_difference(alone, other);
        if (at < alone->n) {
            print_error("%d threads, %s: number %" PRId64 " of %" PRId64 " is %.9g, with 1 thread alone %.9g\n",
                        threads[i / 2], i % 2 ? "in a batch" : "alone", at, alone->n, (double)other->x[at],
                        (double)alone->x[at]);
            failures++;
        }
    }
    free(alone);
    free(other);
    assert_int_equal(failures, 0);
}

static void a_sentence(void **state)
{
    check(translator, false);
}

static void a_translation(void **state)
{
    check(translation, false);
}

static void padded_examples(void **state)
{
    reproducible = true;
    check(translator, true);
    check(translation, true);
    check(msa_transformer, true);
    reproducible = false;
}

static void a_picture(void **state)
{
    check(vit, true);
}

static void an_alignment(void **state)
{
    check(msa_transformer, false);
}

static void an_image_of_integers(void **state)
{
    check(axial_transformer, true);
}

RUN_TESTS(TEST(a_sentence), TEST(a_translation), TEST(a_picture), TEST(an_alignment), TEST(an_image_of_integers),
          TEST(padded_examples))
