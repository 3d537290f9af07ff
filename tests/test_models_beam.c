/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Compares beam search with a search over all possible sentences. The model is a Markov chain of tokens with known
 * probabilities.
 */
#include "support/fixture.h"
#include "support/tensors.h"

#include "nn/layers.h"
#include "base/rng.h"
#include "models/beam.h"
#include "models/kind.h"
#include "models/lineage.h"
#include "tensor/packed_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 4, EOS = 0, BOS = 1, MOST = 5 };

/* Logits of the next token, with one row for each token before it. The row of EOS is not used. */
static const float chain[V][V] = {{0, 0, 0, 0}, {-1, -9, 1.0f, 1.2f}, {2.0f, -9, 0.3f, 0}, {-0.5f, -9, 0.2f, 0}};

static double log_prob(int from, int to)
{
    double sum = 0;
    for (int v = 0; v < V; v++)
        sum += exp((double)chain[from][v]);
    return (double)chain[from][to] - log(sum);
}

typedef struct best {
    double score;
    int n;
    int32_t ids[MOST];
} best;

/* Tries every sentence of up to MOST - 1 tokens and the end token. Keeps the best one. */
static void try_all(best *found, int32_t *ids, int n, int last, double sum, double alpha)
{
    double ended = (sum + log_prob(last, EOS)) / pow((5.0 + n + 1) / 6, alpha);
    if (ended > found->score) {
        found->score = ended;
        found->n = n;
        memcpy(found->ids, ids, (size_t)n * sizeof *ids);
    }
    for (int v = 1; v < V && n + 1 < MOST; v++) {
        ids[n] = v;
        try_all(found, ids, n + 1, v, sum + log_prob(last, v), alpha);
    }
}

static void search(attn_context *context, const attn_beam_search_options *options, attn_hypothesis *result)
{
    attn__beam beam;
    bool left = true;
    assert_int_equal(attn__beam_create(&beam, context, 2, V, options), ATTN_OK);
    while (left) {
        attn_tensor *logits = NULL;
        int64_t shape[2] = {2 * beam.width, V};
        attn_tensor_create(&logits, context, ATTN_F32, 2, shape);
        for (int64_t i = 0; i < shape[0] * V; i++)
            test_set(logits, i, (double)chain[beam.tokens[i / V]][i % V]);
        left = attn__beam_advance(&beam, logits);
        attn_tensor_destroy(logits);
    }
    assert_int_equal(attn__beam_results(&beam, result), ATTN_OK);
    attn__beam_destroy(&beam);
}

static void wide_beam_matches_exhaustive_search(void **state)
{
    attn_context *context = *state;
    for (int a = 0; a < 3; a++) {
        double alpha = 0.5 * a;
        best found = {.score = -INFINITY};
        int32_t ids[MOST];
        attn_hypothesis result[2];
        try_all(&found, ids, 0, BOS, 0, alpha);
        search(
            context,
            &(attn_beam_search_options){.bos = BOS, .eos = EOS, .max_len = MOST, .beam = 300, .length_penalty = alpha},
            result);
        /* Both sentences of the batch are the same and must have the same result. */
        for (int row = 0; row < 2; row++) {
            assert_true(result[row].finished);
            assert_int_equal(result[row].n, found.n);
            assert_memory_equal(result[row].ids, found.ids, (size_t)found.n * sizeof *ids);
            assert_true(fabs(result[row].score - found.score) < 1e-6);
        }
        attn_hypotheses_free(context, result, 2);
    }
}

/* Reports whether the n tokens end with one of the sequences. */
static bool ends_with_one(const int32_t *ids, int n, const attn_token_sequence *sequences, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t length = sequences[i].n;
        if (length <= n && memcmp(ids + n - length, sequences[i].ids, (size_t)length * sizeof *ids) == 0)
            return true;
    }
    return false;
}

/* Does the same as try_all for sentences that do not contain a sequence. ids[0] is BOS. */
static void try_without(best *found, int32_t *ids, int n, double sum, const attn_token_sequence *banned, int count)
{
    for (int v = 0; v < V; v++) {
        double more = sum + log_prob(ids[n - 1], v);
        ids[n] = v;
        if (ends_with_one(ids, n + 1, banned, count))
            continue;
        if (v != EOS && n < MOST - 1)
            try_without(found, ids, n + 1, more, banned, count);
        if (v == EOS && more > found->score) {
            *found = (best){.score = more, .n = n - 1};
            memcpy(found->ids, ids + 1, (size_t)(n - 1) * sizeof *ids);
        }
    }
}

static void banned_sequences_never_occur(void **state)
{
    enum { CASES = 6, MOST_SEQUENCES = 2 };
    static const struct {
        int32_t ids[MOST_SEQUENCES][3];
        int64_t n[MOST_SEQUENCES];
    } cases[CASES] = {
        {{{2, EOS}}, {2}}, {{{3, 2}, {2, EOS}}, {2, 2}},     {{{BOS, 2}, {BOS, 3}}, {2, 2}}, {{{3}, {2, 3, 2}}, {1, 3}},
        {{{EOS}}, {1}},    {{{BOS, 3, 2}, {2, EOS}}, {3, 2}}};
    attn_context *context = *state;
    for (int i = 0; i < CASES; i++) {
        attn_token_sequence banned[MOST_SEQUENCES];
        int count = cases[i].n[1] > 0 ? 2 : 1;
        for (int j = 0; j < count; j++)
            banned[j] = (attn_token_sequence){cases[i].ids[j], cases[i].n[j]};
        best found = {.score = -INFINITY};
        attn_hypothesis result[2], scored[2], unscored[2];
        try_without(&found, (int32_t[MOST + 1]){BOS}, 1, 0, banned, count);
        attn_beam_search_options options = {.bos = BOS,
                                            .eos = EOS,
                                            .max_len = MOST,
                                            .beam = 300,
                                            .banned_sequences = banned,
                                            .nbanned_sequences = count};
        search(context, &options, result);
        assert_true(result[1].finished == isfinite(found.score));
        if (result[1].finished) {
            assert_int_equal(result[1].n, found.n);
            assert_memory_equal(result[1].ids, found.ids, (size_t)found.n * sizeof *found.ids);
            assert_true(fabs(result[1].score - found.score) < 1e-6);
        }
        options.beam = 1;
        search(context, &options, scored);
        options.unscored = true;
        search(context, &options, unscored);
        int32_t said[MOST + 2] = {BOS};
        memcpy(said + 1, scored[0].ids, (size_t)scored[0].n * sizeof *said);
        for (int n = 1; n < 2 + scored[0].n + scored[0].finished; n++)
            assert_false(ends_with_one(said, n, banned, count));
        assert_int_equal(unscored[0].n, scored[0].n);
        assert_memory_equal(unscored[0].ids, scored[0].ids, (size_t)scored[0].n * sizeof *said);
        attn_hypotheses_free(context, result, 2);
        attn_hypotheses_free(context, scored, 2);
        attn_hypotheses_free(context, unscored, 2);
    }
}

static void wrong_sequences_are_refused(void **state)
{
    static const int32_t starts[V][2] = {{BOS, 0}, {BOS, 1}, {BOS, 2}, {BOS, 3}};
    attn_context *context = *state;
    attn_token_sequence banned[V] = {{starts[0], 2}, {starts[1], 2}, {starts[2], 2}, {starts[3], 2}};
    attn_beam_search_options options = {
        .bos = BOS, .eos = EOS, .max_len = MOST, .beam = 2, .banned_sequences = banned, .nbanned_sequences = V};
    attn__beam beam;
    attn_tensor *logits = NULL;
    attn_hypothesis result;
    assert_int_equal(attn__beam_create(&beam, context, 1, V, &options), ATTN_OK);
    attn_tensor_create(&logits, context, ATTN_F32, 2, (int64_t[]){beam.width, V});
    assert_false(attn__beam_advance(&beam, logits));
    assert_refused(context, attn__beam_results(&beam, &result), ATTN_ERROR_ARGUMENT, "has no translation");
    attn__beam_destroy(&beam);
    attn_tensor_destroy(logits);
    banned[2].n = 0;
    assert_refused(context, attn__beam_create(&beam, context, 1, V, &options), ATTN_ERROR_ARGUMENT,
                   "banned sequence 3 has 0 tokens");
    attn__beam_destroy(&beam);
}

/* Stores the score of every sentence of up to MOST - 1 tokens and the end token. Returns the number of scores. */
static int all_scores(double *scores, int count, int n, int last, double sum, double alpha)
{
    scores[count++] = (sum + log_prob(last, EOS)) / pow((5.0 + n + 1) / 6, alpha);
    for (int v = 1; v < V && n + 1 < MOST; v++)
        count = all_scores(scores, count, n + 1, v, sum + log_prob(last, v), alpha);
    return count;
}

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static void nbest_matches_exhaustive_search(void **state)
{
    enum { NBEST = 20 };
    attn_context *context = *state;
    for (int a = 0; a < 3; a++) {
        double alpha = 0.5 * a, scores[200];
        attn_hypothesis result[2 * NBEST];
        qsort(scores, (size_t)all_scores(scores, 0, 0, BOS, 0, alpha), sizeof *scores, falling);
        attn_beam_search_options options = {
            .bos = BOS, .eos = EOS, .max_len = MOST, .beam = 300, .length_penalty = alpha, .nbest = NBEST};
        search(context, &options, result);
        for (int i = 0; i < 2 * NBEST; i++) {
            assert_non_null(result[i].ids);
            assert_true(result[i].finished);
            assert_true(fabs(result[i].score - scores[i % NBEST]) < 1e-6);
        }
        attn_hypotheses_free(context, result, 2 * NBEST);
    }
}

static void missing_hypotheses_are_empty(void **state)
{
    attn_context *context = *state;
    attn_hypothesis result[2 * 8];
    /* With a maximum of one token, the result is the end token or one other token. Token 1 is banned, which leaves
     * the end, 2 and 3. */
    int32_t banned = 1;
    search(context,
           &(attn_beam_search_options){
               .bos = BOS, .eos = EOS, .max_len = 1, .beam = 8, .nbest = 8, .nbanned = 1, .banned = &banned},
           result);
    for (int row = 0; row < 2; row++) {
        const attn_hypothesis *mine = result + 8 * (ptrdiff_t)row;
        assert_true(mine[0].finished && mine[0].n == 0);
        assert_true(!mine[1].finished && mine[1].ids[0] == 3 && !mine[2].finished && mine[2].ids[0] == 2);
        assert_true(mine[1].score > mine[2].score);
        assert_null(mine[3].ids);
    }
    attn_hypotheses_free(context, result, 2 * 8);
}

/* The result is the best sentence with the given prefix, and its score includes the prefix. The other sentence of
 * the batch has no prefix. */
static void prefixes_are_followed(void **state)
{
    attn_context *context = *state;
    int32_t start[] = {1, 2}, ids[MOST] = {1, 2};
    const attn_beam_sentence sentences[2] = {{.prefix = start, .nprefix = 2}};
    for (int a = 0; a < 2; a++) {
        double alpha = 0.5 * a;
        best forced = {.score = -INFINITY}, found = {.score = -INFINITY};
        attn_hypothesis result[2];
        try_all(&forced, ids, 2, 2, log_prob(BOS, 1) + log_prob(1, 2), alpha);
        try_all(&found, (int32_t[MOST]){0}, 0, BOS, 0, alpha);
        search(
            context,
            &(attn_beam_search_options){
                .bos = BOS, .eos = EOS, .max_len = MOST, .beam = 300, .length_penalty = alpha, .sentences = sentences},
            result);
        assert_int_equal(result[0].n, forced.n);
        assert_memory_equal(result[0].ids, forced.ids, (size_t)forced.n * sizeof *ids);
        assert_true(fabs(result[0].score - forced.score) < 1e-6);
        assert_int_equal(result[1].n, found.n);
        assert_true(fabs(result[1].score - found.score) < 1e-6);
        attn_hypotheses_free(context, result, 2);
    }
}

static void wrong_prefixes_are_refused(void **state)
{
    static const struct {
        int32_t token;
        int64_t n;
        const char *why;
    } cases[] = {{1, 3, "its given beginning has 3 tokens"},
                 {1, -1, "its given beginning has -1 tokens"},
                 {V, 1, "its given beginning has the token 4, which"},
                 {EOS, 1, "its given beginning contains the end token, 0"},
                 {-1, 1, "its given beginning has the token -1, which"}};
    attn_context *context = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn__beam beam;
        int32_t start[3] = {cases[i].token, 1, 1};
        const attn_beam_sentence sentence = {.prefix = start, .nprefix = cases[i].n};
        attn_beam_search_options options = {.bos = BOS, .eos = EOS, .max_len = 3, .sentences = &sentence};
        assert_refused(context, attn__beam_create(&beam, context, 1, V, &options), ATTN_ERROR_ARGUMENT, cases[i].why);
        attn__beam_destroy(&beam);
    }
}

static void nbest_above_beam_is_refused(void **state)
{
    attn_context *context = *state;
    attn__beam beam;
    attn_beam_search_options options = {.bos = BOS, .eos = EOS, .beam = 2, .nbest = 3};
    assert_refused(context, attn__beam_create(&beam, context, 1, V, &options), ATTN_ERROR_ARGUMENT, "3 hypotheses");
    attn__beam_destroy(&beam);
}

static void width_one_is_greedy(void **state)
{
    attn_context *context = *state;
    attn_hypothesis result[2];
    /* The greedy search takes token 3, which is the most likely first token. The most likely tokens after token 3
     * are 2 and the end. */
    search(context, &(attn_beam_search_options){.bos = BOS, .eos = EOS, .max_len = MOST}, result);
    assert_int_equal(result[0].n, 2);
    assert_int_equal(result[0].ids[0], 3);
    assert_int_equal(result[0].ids[1], 2);
    assert_true(fabs(result[0].log_prob - log_prob(BOS, 3) - log_prob(3, 2) - log_prob(2, EOS)) < 1e-6);
    attn_hypotheses_free(context, result, 2);
    /* A beam of 2 finds that token 2 and then the end are more likely together. */
    search(context, &(attn_beam_search_options){.bos = BOS, .eos = EOS, .max_len = MOST, .beam = 2}, result);
    assert_int_equal(result[0].n, 1);
    assert_int_equal(result[0].ids[0], 2);
    attn_hypotheses_free(context, result, 2);
}

static void search_stops_at_max_len(void **state)
{
    attn_context *context = *state;
    attn_hypothesis result[2];
    search(context, &(attn_beam_search_options){.bos = BOS, .eos = EOS, .max_len = 1}, result);
    assert_false(result[1].finished);
    assert_int_equal(result[1].n, 1);
    assert_int_equal(result[1].ids[0], 3);
    attn_hypotheses_free(context, result, 2);
}

static void eos_outside_the_vocabulary_is_refused(void **state)
{
    attn_context *context = *state;
    attn__beam beam;
    attn_beam_search_options options = {.bos = BOS, .eos = V};
    assert_int_equal(attn__beam_create(&beam, context, 1, V, &options), ATTN_ERROR_ARGUMENT);
    attn__beam_destroy(&beam);
}

/* Returns logit i of a list on which a search by blocks could fail. Blocks have no candidate, one or several, and
 * equal logits are in different blocks. */
static double hostile_logit(int64_t i)
{
    return i % 601 == 600 ? 7 : (double)((i * 7919) % 1009) / 200 - (double)(i / 256 % 3);
}

/* Returns the index of the largest logit that is not taken and not banned. If several are equal, returns the first. */
static int64_t next_best(const bool *taken, int64_t n)
{
    int64_t found = -1;
    for (int64_t i = 0; i < n; i++)
        if (!taken[i] && (found < 0 || hostile_logit(i) > hostile_logit(found)))
            found = i;
    return found;
}

static void large_vocabularies_are_searched_to_the_last(void **state)
{
    attn_context *context = *state;
    enum { LARGE = 3003, WIDTH = 7 };
    static bool taken[LARGE];
    for (int type = 0; type < 2; type++) {
        attn_context_clear_error(context);
        attn_tensor *logits = NULL;
        attn__beam beam;
        int32_t banned = 600;
        attn_beam_search_options options = {
            .bos = 1, .eos = 0, .max_len = 2, .beam = WIDTH, .nbanned = 1, .banned = &banned};
        double sum = 0;
        assert_int_equal(attn_tensor_create(&logits, context, type ? ATTN_F64 : ATTN_F32, 2, (int64_t[]){WIDTH, LARGE}),
                         ATTN_OK);
        for (int64_t i = 0; i < WIDTH * LARGE; i++)
            test_set(logits, i, hostile_logit(i % LARGE));
        memset(taken, 0, sizeof taken);
        taken[banned] = true;
        for (int64_t i = 0; i < LARGE; i++)
            sum += exp(hostile_logit(i));
        assert_int_equal(attn__beam_create(&beam, context, 1, LARGE, &options), ATTN_OK);
        assert_true(attn__beam_advance(&beam, logits));
        for (int i = 0; i < WIDTH; i++) {
            int64_t token = next_best(taken, LARGE);
            taken[token] = true;
            assert_int_equal(beam.tokens[i], token);
            assert_true(fabs(beam.log_prob[i] - (hostile_logit(token) - log(sum))) < (type ? 1e-12 : 3e-6));
        }
        attn__beam_destroy(&beam);
        attn_tensor_destroy(logits);
    }
}

/* ------------------------------------------------------------------------------ sentences that leave the batch */

enum { SENTENCES = 24, LONGEST = 9, WORDS = 40, MOST_TOKENS = 70 };

/* Makes a model with large weights and a likely end token, so that its translations have many different lengths. */
static attn_model *talkative(attn_context *context, const char *architecture)
{
    attn_model *model = NULL;
    attn_config *config = NULL;
    bool recurrent = strcmp(architecture, "transformer") != 0;
    attn_config_create(&config, context);
    attn_config_set_int(config, "src_vocab_size", WORDS);
    attn_config_set_int(config, "tgt_vocab_size", WORDS);
    attn_config_set_int(config, "num_hiddens", 32);
    attn_config_set_int(config, recurrent ? "embed_size" : "ffn_num_hiddens", 24);
    attn_config_set_int(config, recurrent ? "num_layers" : "num_blks", 2);
    if (recurrent)
        attn_config_set_bool(config, "pack_padding", true);
    else
        attn_config_set_int(config, "num_heads", 4);
    assert_int_equal(attn_model_create(&model, context, architecture, config, &(attn_model_options){.seed = 3}),
                     ATTN_OK);
    attn_config_destroy(config);
    attn_tensor *weight = attn_named_find(attn_model_parameters(model), "decoder.dense.weight");
    attn_tensor *bias = attn_named_find(attn_model_parameters(model), "decoder.dense.bias");
    for (int64_t i = 0; i < attn_tensor_size(weight); i++)
        test_set(weight, i, 4 * test_at(weight, i));
    test_set(bias, EOS, recurrent ? 0 : 1.5);
    return model;
}

static void make_sources(attn_context *context, int64_t from, int64_t n, attn_tensor **source, attn_tensor **lengths)
{
    attn_tensor *src = NULL, *lens = NULL;
    attn_tensor_create(&src, context, ATTN_I32, 2, (int64_t[]){n, LONGEST});
    attn_tensor_create(&lens, context, ATTN_I32, 1, &n);
    int32_t *ids = attn_tensor_data(src);
    *source = src;
    *lengths = lens;
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)attn_tensor_data(lens))[i] = (int32_t)(1 + (from + i) * 5 % LONGEST);
        for (int64_t j = 0; j < LONGEST; j++)
            ids[i * LONGEST + j] = (int32_t)(((from + i) * 31 + j * 17 + (from + i) * j) % WORDS);
    }
}

/* Translates the sentences `from` to from + n - 1 in one batch. */
static void translate(attn_model *model, int64_t from, int64_t n, int64_t beam, attn_hypothesis *results)
{
    attn_context *context = attn_model_context(model);
    attn_tensor *src, *lens;
    make_sources(context, from, n, &src, &lens);
    attn_beam_search_options options = {
        .bos = BOS, .eos = EOS, .max_len = MOST_TOKENS, .beam = beam, .length_penalty = 0.6};
    if (attn_seq2seq_translate(model, src, lens, &options, results) != ATTN_OK)
        fail_msg("%s", attn_context_error(context));
    attn_tensor_destroy(src);
    attn_tensor_destroy(lens);
}

static void weights_that_are_not_finite_are_named(void **state)
{
    attn_context *context = *state;
    attn_model *model = talkative(context, "transformer");
    attn_tensor *src = NULL, *lens = NULL;
    attn_hypothesis result;
    test_set(attn_named_find(attn_model_parameters(model), "decoder.dense.weight"), 0, NAN);
    attn_tensor_create(&src, context, ATTN_I32, 2, (int64_t[]){1, 2});
    attn_tensor_create(&lens, context, ATTN_I32, 1, (int64_t[]){1});
    memset(attn_tensor_data(src), 0, 2 * sizeof(int32_t));
    *(int32_t *)attn_tensor_data(lens) = 2;
    for (int i = 0; i < 3; i++) {
        attn_beam_search_options options = {
            .bos = BOS, .eos = EOS, .max_len = 5, .beam = i < 2 ? 1 : 3, .unscored = i == 0};
        assert_refused(context, attn_seq2seq_translate(model, src, lens, &options, &result), ATTN_ERROR_UNSUPPORTED,
                       "not finite");
    }
    attn_tensor_destroy(src);
    attn_tensor_destroy(lens);
    attn_model_destroy(model);
}

/* Ends a beam whose results must be refused, with an error that contains `word`. */
static void expect_refusal(attn__beam *beam, attn_status status, const char *word)
{
    attn_hypothesis result;
    assert_refused(beam->context, attn__beam_results(beam, &result), status, word);
    attn__beam_destroy(beam);
}

static void banning_every_token_is_refused(void **state)
{
    static const int32_t all[V] = {0, 1, 2, 3};
    attn_context *context = *state;
    for (int i = 0; i < 2; i++) {
        attn_beam_search_options options = {
            .bos = BOS, .eos = EOS, .max_len = MOST, .beam = 1 + i, .nbanned = V, .banned = all, .unscored = !i};
        attn__beam beam;
        attn_tensor *logits = NULL;
        assert_int_equal(attn__beam_create(&beam, context, 1, V, &options), ATTN_OK);
        attn_tensor_create(&logits, context, ATTN_F32, 2, (int64_t[]){beam.width, V});
        assert_false(attn__beam_advance(&beam, logits));
        attn_tensor_destroy(logits);
        expect_refusal(&beam, ATTN_ERROR_ARGUMENT, "banned");
    }
}

/* A logit that is not finite makes the search of its sentence fail, even if later steps are finite or the token of
 * this step is given. */
static void nan_in_an_early_step_is_reported(void **state)
{
    attn_context *context = *state;
    static const float bad[] = {NAN, INFINITY};
    const int32_t start[] = {BOS};
    for (int i = 0; i < 2 * 2 * 2 * V; i++) {
        attn_context_clear_error(context);
        const attn_beam_sentence sentence = {.prefix = start, .nprefix = i / 4 / V};
        attn_beam_search_options options = {
            .bos = BOS, .eos = EOS, .max_len = MOST, .unscored = i % 2, .sentences = &sentence};
        attn__beam beam;
        bool left = true;
        assert_int_equal(attn__beam_create(&beam, context, 1, V, &options), ATTN_OK);
        for (int step = 0; left; step++) {
            attn_tensor *logits = NULL;
            attn_tensor_create(&logits, context, ATTN_F32, 2, (int64_t[]){1, V});
            for (int v = 0; v < V; v++) {
                bool here = step == 0 && v == i / 4 % V;
                test_set(logits, v, here ? (double)bad[i / 2 % 2] : v == EOS ? -9 : (double)v);
            }
            left = attn__beam_advance(&beam, logits);
            attn_tensor_destroy(logits);
        }
        expect_refusal(&beam, ATTN_ERROR_UNSUPPORTED, "not finite");
    }
}

/* A greedy search gives the same result with and without scores. A beam search always has scores. */
static void searches_without_scores(void **state)
{
    attn_context *context = *state;
    attn_model *model = talkative(context, "transformer");
    attn_tensor *src, *lens;
    static const int32_t start[] = {BOS, 3};
    attn_beam_sentence sentences[SENTENCES];
    make_sources(context, 0, SENTENCES, &src, &lens);
    for (int i = 0; i < SENTENCES; i++)
        sentences[i] = (attn_beam_sentence){.prefix = start, .nprefix = i % 3};
    for (int search = 0; search < 4; search++) {
        bool given = search / 2 > 0;
        int beam = search % 2 > 0 ? 3 : 1;
        attn_hypothesis scored[SENTENCES], unscored[SENTENCES];
        attn_beam_search_options options = {.bos = BOS, .eos = EOS, .max_len = MOST_TOKENS, .beam = beam};
        options.sentences = given ? sentences : NULL;
        assert_int_equal(attn_seq2seq_translate(model, src, lens, &options, scored), ATTN_OK);
        options.unscored = true;
        assert_int_equal(attn_seq2seq_translate(model, src, lens, &options, unscored), ATTN_OK);
        for (int i = 0; i < SENTENCES; i++) {
            assert_int_equal(unscored[i].n, scored[i].n);
            assert_int_equal(unscored[i].finished, scored[i].finished);
            assert_memory_equal(unscored[i].ids, scored[i].ids, (size_t)scored[i].n * sizeof *scored[i].ids);
            assert_true(scored[i].log_prob < 0);
            assert_true(unscored[i].log_prob == (beam == 1 ? 0 : scored[i].log_prob));
            assert_true(unscored[i].score == (beam == 1 ? 0 : scored[i].score));
        }
        attn_hypotheses_free(context, scored, SENTENCES);
        attn_hypotheses_free(context, unscored, SENTENCES);
    }
    attn_tensor_destroy(src);
    attn_tensor_destroy(lens);
    attn_model_destroy(model);
}

/* Translations in a batch must equal translations of single sentences. They must end at several lengths, some of
 * them early and some at MOST_TOKENS. */
static void check_alone(attn_model *model, int64_t beam)
{
    attn_hypothesis together[SENTENCES], alone;
    int64_t least = MOST_TOKENS, most = 0, lengths = 0;
    bool seen[MOST_TOKENS + 1] = {false};
    translate(model, 0, SENTENCES, beam, together);
    for (int64_t i = 0; i < SENTENCES; i++) {
        int64_t n = together[i].n;
        translate(model, i, 1, beam, &alone);
        assert_int_equal(alone.n, n);
        assert_memory_equal(alone.ids, together[i].ids, (size_t)n * sizeof *alone.ids);
        assert_memory_equal(&alone.log_prob, &together[i].log_prob, sizeof alone.log_prob);
        assert_memory_equal(&alone.score, &together[i].score, sizeof alone.score);
        attn_hypotheses_free(attn_model_context(model), &alone, 1);
        least = n < least ? n : least;
        most = n > most ? n : most;
        lengths += !seen[n];
        seen[n] = true;
    }
    assert_true(lengths >= 4 && least < 16);
    assert_int_equal(most, MOST_TOKENS);
    attn_hypotheses_free(attn_model_context(model), together, SENTENCES);
}

static void finished_sentences_keep_the_bits_of_the_others(void **state)
{
    attn_context *context = *state;
    static const char *const names[] = {"transformer", "seq2seq-attention"};
    for (int m = 0; m < 2; m++) {
        attn_context_clear_error(context);
        attn_model *model = talkative(context, names[m]);
        check_alone(model, 1);
        check_alone(model, 3);
        attn_model_destroy(model);
    }
}

/* ----------------------------------------------------------------------------------------- shortlists */

/* The tokens that a sentence may use: the end token and, for sentence i, every `every`-th token from token i on. */
typedef struct allowed {
    int32_t tokens[SENTENCES][WORDS];
    attn_beam_sentence sentences[SENTENCES];
} allowed;

static void allow(allowed *a, int64_t from, int64_t n, int64_t every)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t allowed_tokens = 0;
        for (int64_t token = 0; token < WORDS; token++)
            if (token == EOS || token % every == (from + i) % every)
                a->tokens[i][allowed_tokens++] = (int32_t)token;
        a->sentences[i] = (attn_beam_sentence){.allowed = a->tokens[i], .nallowed = allowed_tokens};
    }
}

/* Translates the sentences `from` to from + n - 1 with their allowed tokens. The tape may keep packed weights. */
static attn_status translate_limited(attn_model *model, attn_tape *tape, int64_t from, int64_t n, int64_t beam,
                                     const allowed *a, attn_hypothesis *results)
{
    attn_tensor *src, *lens;
    make_sources(attn_model_context(model), from, n, &src, &lens);
    attn_beam_search_options options = {
        .bos = BOS, .eos = EOS, .max_len = MOST_TOKENS, .beam = beam, .length_penalty = 0.6, .sentences = a->sentences};
    attn_status status = attn__seq2seq_search(model, tape, src, lens, &options, results);
    attn_tensor_destroy(src);
    attn_tensor_destroy(lens);
    return status;
}

static void check_same(const attn_hypothesis *a, const attn_hypothesis *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_memory_equal(&a->log_prob, &b->log_prob, sizeof a->log_prob);
    assert_memory_equal(&a->score, &b->score, sizeof a->score);
}

/* Returns the probability of the output, from the logits of the whole sequence, normalized over the allowed tokens. */
static double probability_of(attn_model *model, attn_tape *tape, int64_t sentence, const allowed *a,
                             const attn_hypothesis *said)
{
    attn_tensor *src, *lens;
    int64_t n = said->n + said->finished;
    make_sources(attn_model_context(model), sentence, 1, &src, &lens);
    attn_tape_reset(tape, NULL);
    attn_tensor *input = attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){1, n}, NULL);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)attn_tensor_data(input))[i] = i == 0 ? BOS : said->ids[i - 1];
    const attn_tensor *logits = attn_seq2seq_forward(model, tape, src, lens, input, NULL);
    double all = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < a->sentences[0].nallowed; j++)
            sum += exp(test_at(logits, i * WORDS + a->sentences[0].allowed[j]));
        all += test_at(logits, i * WORDS + (i < said->n ? said->ids[i] : EOS)) - log(sum);
    }
    attn_tensor_destroy(src);
    attn_tensor_destroy(lens);
    return all;
}

/* Checks translations with allowed tokens. They must have only these tokens and the right probabilities, alone and
 * in a batch, on a tape whose packed rows change. */
static void check_limited(attn_model *model, int64_t beam)
{
    attn_context *context = attn_model_context(model);
    attn_hypothesis together[SENTENCES], alone;
    static allowed all, one;
    attn_tape *tape, *own;
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    assert_int_equal(attn_tape_create(&own, context), ATTN_OK);
    assert_int_equal(attn__packed_weights_begin(tape), ATTN_OK);
    allow(&all, 0, SENTENCES, 7);
    assert_int_equal(translate_limited(model, tape, 0, SENTENCES, beam, &all, together), ATTN_OK);
    for (int64_t i = 0; i < SENTENCES; i++) {
        allow(&one, i, 1, 7);
        assert_int_equal(translate_limited(model, tape, i, 1, beam, &one, &alone), ATTN_OK);
        check_same(&alone, &together[i]);
        for (int64_t j = 0; j < alone.n; j++)
            assert_int_equal(alone.ids[j] % 7, i % 7);
        double wanted = probability_of(model, own, i, &one, &alone);
        assert_true(fabs(alone.log_prob - wanted) < 1e-4 * (1 + fabs(wanted)));
        attn_hypotheses_free(context, &alone, 1);
    }
    attn_hypotheses_free(context, together, SENTENCES);
    attn__packed_weights_end(tape);
    attn_tape_destroy(own);
    attn_tape_destroy(tape);
}

/* A list of all tokens must change nothing. */
static void check_unlimited(attn_model *model, int64_t beam)
{
    attn_hypothesis wanted[SENTENCES], found[SENTENCES];
    static allowed all;
    attn_tape *tape;
    assert_int_equal(attn_tape_create(&tape, attn_model_context(model)), ATTN_OK);
    allow(&all, 0, SENTENCES, 1);
    translate(model, 0, SENTENCES, beam, wanted);
    assert_int_equal(translate_limited(model, tape, 0, SENTENCES, beam, &all, found), ATTN_OK);
    for (int64_t i = 0; i < SENTENCES; i++)
        check_same(&found[i], &wanted[i]);
    attn_hypotheses_free(attn_model_context(model), wanted, SENTENCES);
    attn_hypotheses_free(attn_model_context(model), found, SENTENCES);
    attn_tape_destroy(tape);
}

static void translations_may_be_made_of_some_tokens(void **state)
{
    attn_context *context = *state;
    static const char *const names[] = {"transformer", "seq2seq-attention"};
    for (int m = 0; m < 2; m++) {
        attn_context_clear_error(context);
        attn_model *model = talkative(context, names[m]);
        for (int64_t beam = 1; beam < 4; beam += 2) {
            check_unlimited(model, beam);
            check_limited(model, beam);
        }
        attn_model_destroy(model);
    }
}

static void wrong_shortlists_are_refused(void **state)
{
    attn_context *context = *state;
    attn__shortlist list;
    const int32_t good[] = {EOS, 2, 3}, forced[] = {BOS};
    const int32_t *bad[] = {(const int32_t[]){2, 3}, (const int32_t[]){EOS, 3, 2}, (const int32_t[]){EOS, 2, 2},
                            (const int32_t[]){EOS, V}, (const int32_t[]){-1, EOS}};
    static const int64_t counts[] = {2, 3, 3, 2, 2};
    attn_beam_sentence sentence = {.allowed = good, .nallowed = 3};
    attn_tape *tape;
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_beam_search_options options = {.bos = BOS, .eos = EOS, .sentences = &sentence};
    assert_int_equal(attn__shortlist_create(&list, context, 1, V, &options), ATTN_OK);
    assert_int_equal(list.n, 3);
    attn__shortlist_destroy(&list, tape);
    sentence.prefix = forced;
    sentence.nprefix = 1;
    assert_int_equal(attn__shortlist_create(&list, context, 1, V, &options), ATTN_ERROR_ARGUMENT);
    attn__shortlist_destroy(&list, tape);
    for (int i = 0; i < 5; i++) {
        sentence = (attn_beam_sentence){.allowed = bad[i], .nallowed = counts[i]};
        assert_int_equal(attn__shortlist_create(&list, context, 1, V, &options), ATTN_ERROR_ARGUMENT);
        attn__shortlist_destroy(&list, tape);
    }
    attn_tape_destroy(tape);
}

static void caches_refuse_what_does_not_fit(void **state)
{
    attn_context *context = *state;
    attn_nn_kv_cache cache;
    assert_int_equal(attn_nn_kv_cache_init(&cache, context, ATTN_F32, 2, 4, 3), ATTN_OK);
    cache.length = 3;
    test_set(cache.k, 12 + 8, 5);
    assert_int_equal(attn_nn_kv_cache_select(&cache, context, NULL, 2, 2), ATTN_ERROR_SHAPE);
    attn_context_clear_error(context);
    assert_int_equal(attn_nn_kv_cache_select(&cache, context, NULL, 3, 4), ATTN_ERROR_SHAPE);
    attn_context_clear_error(context);
    assert_int_equal(attn_nn_kv_cache_select(&cache, context, (int64_t[]){1}, 1, 7), ATTN_OK);
    assert_int_equal(attn_tensor_length(cache.k, 0), 1);
    assert_int_equal(attn_tensor_length(cache.k, 1), 7);
    assert_true(test_at(cache.k, 8) == 5);
    attn_nn_kv_cache_free(&cache);
}

static void finished_rows_free_their_cache(void **state)
{
    attn_context *context = *state;
    attn_nn_kv_cache cache;
    uint64_t before, after;
    assert_int_equal(attn_nn_kv_cache_init(&cache, context, ATTN_F32, 4, 2, 3), ATTN_OK);
    cache.length = 1;
    for (int64_t i = 0; i < 4; i++)
        test_set(cache.v, i * 6 + 2, (double)i);
    attn_context_memory(context, NULL, NULL, &before);
    assert_int_equal(attn_nn_kv_cache_select(&cache, context, (int64_t[]){0, 2, 3}, 3, 2), ATTN_OK);
    attn_context_memory(context, NULL, NULL, &after);
    assert_true(before == after);
    assert_int_equal(attn_tensor_length(cache.v, 0), 3);
    assert_true(test_at(cache.v, 2) == 0 && test_at(cache.v, 8) == 2 && test_at(cache.v, 14) == 3);
    assert_int_equal(attn_nn_kv_cache_select(&cache, context, (int64_t[]){2, 0, 0, 1}, 4, 2), ATTN_OK);
    assert_true(test_at(cache.v, 2) == 3 && test_at(cache.v, 14) == 0 && test_at(cache.v, 20) == 2);
    attn_nn_kv_cache_free(&cache);
}

/* A freed cache frees its pages, unless another cache shares its keys. */
static void shared_keys_outlive_their_cache(void **state)
{
    attn_context *context = *state;
    attn_nn_kv_cache cache;
    attn_tensor *keys;
    assert_int_equal(attn_nn_kv_cache_init(&cache, context, ATTN_F32, 8, 64, 32), ATTN_OK);
    int64_t n = attn_tensor_size(cache.k);
    for (int64_t i = 0; i < n; i++)
        test_set(cache.k, i, (double)i);
    assert_int_equal(attn_tensor_share(&keys, cache.k), ATTN_OK);
    attn_nn_kv_cache_free(&cache);
    for (int64_t i = 0; i < n; i++)
        assert_true(test_at(keys, i) == (double)i);
    attn_tensor_destroy(keys);
}

enum { WIDE = 3, ROOM = 24, ROWS = 3 * WIDE };

/* Expected content of a cache: for each row and token, the number of the row that computed the token. */
typedef struct history {
    double token[ROWS][ROOM];
    int64_t n;
} history;

static void check_cache(const attn_nn_kv_cache *cache, const history *h)
{
    for (int64_t i = 0; i < h->n; i++) {
        for (int64_t t = 0; t < cache->length; t++) {
            assert_true(test_at(cache->k, (i * ROOM + t) * 2) == h->token[i][t]);
            assert_true(test_at(cache->v, (i * ROOM + t) * 2 + 1) == -h->token[i][t]);
        }
    }
}

static void compute_token(attn_nn_kv_cache *cache, history *h)
{
    int64_t t = cache->length++;
    for (int64_t i = 0; i < h->n; i++) {
        h->token[i][t] = (double)(i + 1 + ROWS * t);
        test_set(cache->k, (i * ROOM + t) * 2, h->token[i][t]);
        test_set(cache->v, (i * ROOM + t) * 2 + 1, -h->token[i][t]);
    }
}

/* Chooses a source row of the same sentence for each row, and sometimes exchanges rows. */
static void choose_rows(attn__rng *rng, int64_t n, int64_t *rows)
{
    for (int64_t i = 0; i < n; i++)
        rows[i] = i / WIDE * WIDE + (int64_t)attn__rng_below(rng, WIDE);
    if (attn__rng_below(rng, 3) == 0)
        for (int64_t i = 0; i < WIDE; i++)
            rows[i] = (i + 1) % WIDE;
}

static void follow_rows(history *h, const int64_t *rows, int64_t n)
{
    history old = *h;
    for (int64_t i = 0; i < n; i++)
        memcpy(h->token[i], old.token[rows[i]], sizeof h->token[i]);
    h->n = n;
}

/* Reorders a cache many times and checks its content each time. Adds to *moved the number of tokens that two
 * rows do not share, which must be moved. */
static void reorder_often(attn_context *context, uint64_t seed, int64_t *moved)
{
    attn_nn_kv_cache cache, spare;
    attn__lineage lineage;
    history h = {.n = ROWS};
    attn__rng rng = {.seed = seed};
    int64_t rows[ROWS];
    assert_int_equal(attn_nn_kv_cache_init(&cache, context, ATTN_F32, ROWS, ROOM, 2), ATTN_OK);
    assert_int_equal(attn_nn_kv_cache_init(&spare, context, ATTN_F32, ROWS, 5, 2), ATTN_OK);
    assert_int_equal(attn__lineage_begin(&lineage, context, ROWS, ROOM), ATTN_OK);
    for (int64_t t = 0; t < ROOM; t++) {
        attn__lineage_step(&lineage, t);
        compute_token(&cache, &h);
        choose_rows(&rng, h.n, rows);
        attn__lineage_reorder(&lineage, rows, t + 1);
        attn_nn_kv_cache_reorder(&cache, &spare, rows, t % 5 == 4 ? NULL : lineage.shared);
        follow_rows(&h, rows, h.n);
        check_cache(&cache, &h);
        for (int64_t i = 0; i < h.n; i++)
            *moved += t + 1 - lineage.shared[i];
        if (t == ROOM / 2) {
            static const int64_t left[] = {0, 1, 2, 6, 7, 8};
            assert_int_equal(attn_nn_kv_cache_select(&cache, context, left, 6, ROOM), ATTN_OK);
            attn_nn_kv_cache_free(&spare);
            assert_int_equal(attn_nn_kv_cache_init(&spare, context, ATTN_F32, 6, 1, 2), ATTN_OK);
            attn__lineage_select(&lineage, left, 6, t + 1);
            follow_rows(&h, left, 6);
        }
    }
    attn__lineage_end(&lineage, context);
    attn_nn_kv_cache_free(&cache);
    attn_nn_kv_cache_free(&spare);
}

static void only_what_rows_do_not_share_is_moved(void **state)
{
    enum { TIMES = 50 };
    attn_context *context = *state;
    int64_t moved = 0, all = (int64_t)TIMES * ROWS * ROOM * (ROOM + 1) / 2;
    for (uint64_t seed = 0; seed < TIMES; seed++)
        reorder_often(context, seed, &moved);
    assert_true(moved > 0 && moved < all / 4);
}

static void finished_sentences_leave(void **state)
{
    attn_context *context = *state;
    attn__beam beam;
    attn_tensor *logits = NULL;
    int64_t places[8], n;
    assert_int_equal(
        attn__beam_create(&beam, context, 8, V, &(attn_beam_search_options){.bos = BOS, .eos = EOS, .max_len = MOST}),
        ATTN_OK);
    assert_int_equal(attn_tensor_create(&logits, context, ATTN_F32, 2, (int64_t[]){8, V}), ATTN_OK);
    for (int64_t i = 0; i < 8; i++)
        test_set(logits, i * V + (i == 2 || i == 5 ? EOS : i % 3 + 1), 5);
    assert_true(attn__beam_advance(&beam, logits));
    assert_true(attn__beam_leave(&beam, places, &n));
    assert_int_equal(n, 6);
    static const int64_t stay[] = {0, 1, 3, 4, 6, 7};
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(places[i], stay[i]);
        assert_int_equal(beam.live[i], stay[i]);
        assert_int_equal(beam.tokens[i], stay[i] % 3 + 1);
    }
    assert_false(attn__beam_leave(&beam, places, &n));
    attn__beam_destroy(&beam);
    attn_tensor_destroy(logits);
}

/* The score has a penalty of length^alpha. A full beam ends if its best open hypothesis is not better than its worst
 * finished one. The stopping rule sets the length at which they are compared. */
static void search_ends_by_its_stopping_rule(void **state)
{
    enum { WIDTH = 3, MOST_STEPS = 12 };
    attn_context *context = *state;
    int64_t steps[3][3];
    for (int i = 0; i < 9; i++) {
        double alpha = i / 3;
        attn_stopping stopping = (attn_stopping)(i % 3);
        attn_beam_search_options options = {.bos = BOS,
                                            .eos = EOS,
                                            .max_len = MOST_STEPS,
                                            .beam = WIDTH,
                                            .length_penalty = alpha,
                                            .rule = ATTN_LENGTH_POWER,
                                            .stopping = stopping};
        attn__beam beam;
        assert_int_equal(attn__beam_create(&beam, context, 1, V, &options), ATTN_OK);
        for (bool left = true; left;) {
            attn_tensor *logits = NULL;
            attn_tensor_create(&logits, context, ATTN_F32, 2, (int64_t[]){WIDTH, V});
            for (int64_t k = 0; k < WIDTH * V; k++)
                test_set(logits, k, (double)chain[beam.tokens[k / V]][k % V]);
            left = attn__beam_advance(&beam, logits);
            attn_tensor_destroy(logits);
            double length = stopping == ATTN_STOP_NEVER && alpha > 0 ? MOST_STEPS : (double)beam.step;
            bool above = beam.log_prob[0] / pow(length, alpha) > beam.best_score[WIDTH - 1];
            bool ends = beam.kept[0] == WIDTH && (stopping == ATTN_STOP_FULL || !above);
            assert_int_equal(left, !ends && beam.step < MOST_STEPS);
        }
        steps[i / 3][stopping] = beam.step;
        attn__beam_destroy(&beam);
    }
    assert_true(steps[1][ATTN_STOP_FULL] < steps[1][ATTN_STOP_LIKELY]);
    assert_true(steps[1][ATTN_STOP_LIKELY] < steps[1][ATTN_STOP_NEVER]);
}

/* With a patience, a search ends when beam * patience hypotheses have finished, or if no open one can become the best.
 * Greedy search has no patience. */
static void patient_searches_find_more(void **state)
{
    enum { WIDTH = 3, MOST_STEPS = 30, CASES = 4 };
    static const double patience[CASES] = {0.2, 1.5, 4, 1e300}, enough[CASES] = {1, 5, 12, INFINITY}, alpha = 2;
    attn_context *context = *state;
    for (int rule = ATTN_LENGTH_WU; rule <= ATTN_LENGTH_POWER; rule++) {
        double score[CASES];
        int64_t finished[CASES];
        for (int i = 0; i < CASES; i++) {
            attn_beam_search_options options = {.bos = BOS,
                                                .eos = EOS,
                                                .max_len = MOST_STEPS,
                                                .beam = WIDTH,
                                                .length_penalty = alpha,
                                                .rule = (attn_length_rule)rule,
                                                .stopping = ATTN_STOP_FULL,
                                                .patience = patience[i]};
            attn__beam beam;
            assert_int_equal(attn__beam_create(&beam, context, 1, V, &options), ATTN_OK);
            for (bool left = true; left;) {
                attn_tensor *logits = NULL;
                assert_true((double)beam.finished[0] < enough[i]);
                attn_tensor_create(&logits, context, ATTN_F32, 2, (int64_t[]){WIDTH, V});
                for (int64_t k = 0; k < WIDTH * V; k++)
                    test_set(logits, k, (double)chain[beam.tokens[k / V]][k % V]);
                left = attn__beam_advance(&beam, logits);
                attn_tensor_destroy(logits);
            }
            double base = rule == ATTN_LENGTH_POWER ? MOST_STEPS : (5.0 + MOST_STEPS) / 6;
            assert_true((double)beam.finished[0] >= enough[i] || beam.step == MOST_STEPS ||
                        beam.log_prob[0] / pow(base, alpha) <= beam.best_score[0]);
            score[i] = beam.best_score[0];
            finished[i] = beam.finished[0];
            attn__beam_destroy(&beam);
        }
        for (int i = 1; i < CASES; i++)
            assert_true(finished[i] > finished[i - 1] && score[i] >= score[i - 1]);
        assert_true(score[2] > score[0]);
    }
    attn_hypothesis greedy[2], patient[2];
    search(context, &(attn_beam_search_options){.bos = BOS, .eos = EOS, .max_len = MOST}, greedy);
    search(context, &(attn_beam_search_options){.bos = BOS, .eos = EOS, .max_len = MOST, .patience = 4}, patient);
    assert_int_equal(patient[0].n, greedy[0].n);
    assert_true(patient[0].score == greedy[0].score);
    attn_hypotheses_free(context, greedy, 2);
    attn_hypotheses_free(context, patient, 2);
}

static void wrong_patience_is_refused(void **state)
{
    static const struct {
        double patience;
        const char *why;
    } cases[] = {{-1, "the patience of the beam cannot be -1"},
                 {NAN, "the patience of the beam cannot be nan"},
                 {INFINITY, "the patience of the beam cannot be inf"},
                 {0.5, "3 hypotheses are requested, but with the patience 0.5 a beam of 4 finishes only 2"}};
    attn_context *context = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn__beam beam;
        attn_beam_search_options options = {
            .bos = BOS, .eos = EOS, .beam = 4, .nbest = 3, .patience = cases[i].patience};
        assert_refused(context, attn__beam_create(&beam, context, 1, V, &options), ATTN_ERROR_ARGUMENT, cases[i].why);
        attn__beam_destroy(&beam);
    }
}

RUN_TESTS(TEST_WITH_CONTEXT(search_ends_by_its_stopping_rule), TEST_WITH_CONTEXT(patient_searches_find_more),
          TEST_WITH_CONTEXT(wrong_patience_is_refused), TEST_WITH_CONTEXT(banned_sequences_never_occur),
          TEST_WITH_CONTEXT(wrong_sequences_are_refused), TEST_WITH_CONTEXT(wide_beam_matches_exhaustive_search),
          TEST_WITH_CONTEXT(nbest_matches_exhaustive_search), TEST_WITH_CONTEXT(missing_hypotheses_are_empty),
          TEST_WITH_CONTEXT(prefixes_are_followed), TEST_WITH_CONTEXT(wrong_prefixes_are_refused),
          TEST_WITH_CONTEXT(nbest_above_beam_is_refused), TEST_WITH_CONTEXT(width_one_is_greedy),
          TEST_WITH_CONTEXT(search_stops_at_max_len), TEST_WITH_CONTEXT(eos_outside_the_vocabulary_is_refused),
          TEST_WITH_CONTEXT(large_vocabularies_are_searched_to_the_last),
          TEST_WITH_CONTEXT(weights_that_are_not_finite_are_named), TEST_WITH_CONTEXT(searches_without_scores),
          TEST_WITH_CONTEXT(banning_every_token_is_refused), TEST_WITH_CONTEXT(nan_in_an_early_step_is_reported),
          TEST_WITH_CONTEXT(caches_refuse_what_does_not_fit), TEST_WITH_CONTEXT(finished_rows_free_their_cache),
          TEST_WITH_CONTEXT(shared_keys_outlive_their_cache),
          TEST_WITH_CONTEXT(translations_may_be_made_of_some_tokens), TEST_WITH_CONTEXT(wrong_shortlists_are_refused),
          TEST_WITH_CONTEXT(only_what_rows_do_not_share_is_moved), TEST_WITH_CONTEXT(finished_sentences_leave),
          TEST_WITH_CONTEXT(finished_sentences_keep_the_bits_of_the_others))
