/* SPDX-License-Identifier: MIT
 *
 * Prepares the training data of a translator. Reads, splits and filters pairs, mixes other data into them, encodes them
 * and makes batches.
 */
#include "apps/translator/training.h"

#include "apps/checkpoint/model_directory.h"
#include "apps/translator/settings.h"
#include "base/context.h"
#include "base/real.h"
#include "base/rng.h"
#include "data/pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef attn__translator_training training;

static attn_status filter(training *t)
{
    attn_pairs_filter_options options = {.max_ratio = attn_config_real(t->run.settings, "max_ratio", 0),
                                         .unique = attn_config_bool(t->run.settings, "unique", false)};
    attn_pairs *kept = NULL;
    attn_status status = attn_pairs_filter(&kept, &t->filtered, t->train, &options);
    if (status == ATTN_OK) {
        attn_pairs_destroy(t->train);
        t->train = kept;
    }
    return status;
}

static attn_status split_pairs(training *t)
{
    attn_pairs_split_options options = attn__setting_split(t->run.settings);
    attn_status status = attn_pairs_split(&t->train, &t->valid, &t->test, t->all, &options);
    if (status == ATTN_OK)
        status = filter(t);
    if (status == ATTN_OK && attn_pairs_size(t->train) == 0)
        return attn__fail(t->run.context, ATTN_ERROR_ARGUMENT, "none of the %lld pairs is left for training",
                          (long long)attn_pairs_size(t->all));
    return status;
}

/* Makes the vocabularies of the training data. A resumed run reads them from its directory. */
static attn_status make_vocabularies(training *t)
{
    attn_vocab_kind kind = attn__setting_vocabulary(t->run.settings);
    if (t->from)
        return ATTN_OK;
    if (t->run.resume) {
        attn_status status = attn__vocab_read(&t->source, t->run.context, t->run.directory, ATTN_SIDE_SOURCE, kind);
        return status != ATTN_OK
                   ? status
                   : attn__vocab_read(&t->target, t->run.context, t->run.directory, ATTN_SIDE_TARGET, kind);
    }
    attn_vocab_options options = {
        .compat = t->compat,
        .min_frequency = attn_config_int(t->run.settings, "min_frequency", 2),
        .max_size = attn_config_int(t->run.settings, kind ? "vocabulary_size" : "max_words", 0),
        .steps = t->max_tokens,
        .kind = kind,
        .joint = attn_config_bool(t->run.settings, "joint_vocabulary", true),
        .character_coverage = attn_config_real(t->run.settings, "character_coverage", 0),
    };
    const attn_pairs *from = t->compat == ATTN_COMPAT_D2L ? t->all : t->train;
    attn_status status = attn_vocab_build(&t->source, from, ATTN_SIDE_SOURCE, &options);
    return status != ATTN_OK ? status : attn_vocab_build(&t->target, from, ATTN_SIDE_TARGET, &options);
}

static attn_status make_batches(training *t, const attn_pairs *pairs, bool shuffled, attn_corpus **corpus,
                                attn_batches **batches)
{
    attn_encode_options encoding = {.compat = t->compat, .steps = t->max_tokens};
    attn_status status = attn_corpus_create(corpus, pairs, t->source, t->target, &encoding);
    if (status != ATTN_OK)
        return status;
    bool d2l = t->compat == ATTN_COMPAT_D2L;
    attn_batches_options options = {
        .size = attn_config_int(t->run.settings, "batch", 64),
        .tokens = shuffled && !d2l ? attn_config_int(t->run.settings, "batch_tokens", 0) : 0,
        .seed = (uint64_t)attn_config_int(t->run.settings, "seed", 1),
        .in_order = !shuffled,
        .mixed_lengths = d2l,
        .fixed_steps = d2l ? t->max_tokens : 0,
    };
    status = attn_batches_create(batches, *corpus, &options);
    if (status == ATTN_OK)
        attn_batches_shard(*batches);
    return status;
}

/* Parses a text "FILE=SHARE". *path becomes the file, which the caller frees with attn__free. */
static attn_status parse_mix(const training *t, char **path, double *share)
{
    const char *text = attn_config_text(t->run.settings, "mix", ""), *equals = strrchr(text, '=');
    char *end = NULL;
    *share = equals ? attn__real_of_text(equals + 1, &end) : NAN;
    if (!equals || equals == text || !(*share > 0 && *share < 1) || *end)
        return attn__fail(t->run.context, ATTN_ERROR_ARGUMENT,
                          "mix: \"%.200s\" is not FILE=SHARE with a share between 0 and 1, such as 0.5", text);
    *path = attn__strdup(t->run.context, text);
    if (*path)
        (*path)[equals - text] = '\0';
    return *path ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* Reads the file that the setting "mix" names. Its absolute path is stored, because a resumed run must find the same
 * file from any working directory. */
static attn_status read_mixed(training *t, const attn_pairs_options *options)
{
    char *path = NULL;
    double share;
    uint64_t fingerprint;
    if (!attn_config_get(t->run.settings, "mix"))
        return ATTN_OK;
    attn_pairs_destroy(t->mixed_all);
    t->mixed_all = NULL;
    attn_status status = parse_mix(t, &path, &share);
    if (status == ATTN_OK)
        status = attn__pairs_read(&t->mixed_all, t->run.context, &(attn_pairs_source){.path = path, .bad = t->data.bad},
                                  options, &fingerprint);
    if (status == ATTN_OK)
        t->run.fingerprint = attn__mix64(t->run.fingerprint ^ attn__mix64(fingerprint));
    char *whole = status == ATTN_OK && path && !t->run.resume ? realpath(path, NULL) : NULL;
    if (whole) {
        char text[ATTN__PATH + 32];
        snprintf(text, sizeof text, "%s%s", whole, attn_config_text(t->run.settings, "mix", "") + strlen(path));
        status = attn_config_set_text(t->run.settings, "mix", text);
    }
    free(whole);
    attn__free(t->run.context, path);
    return status;
}

/* Mixes old data into the training part, so that a fine-tuned model does not forget what it learned from the old
 * data. The old data is split by the same rule. So if the seed is the same, the test part of the old training is not
 * used here. */
static attn_status mix(training *t)
{
    attn_pairs_split_options options = attn__setting_split(t->run.settings);
    attn_pairs *other = NULL, *mixed = NULL;
    char *path = NULL;
    double share;
    if (!t->mixed_all)
        return ATTN_OK;
    attn_status status = parse_mix(t, &path, &share);
    int64_t own = attn_pairs_size(t->train);
    if (status == ATTN_OK)
        status = attn_pairs_split(&other, NULL, NULL, t->mixed_all, &options);
    /* If `count` exceeds the number of pairs in the other data, all of them are used. */
    double count = (double)own * share / (1 - share) + 0.5;
    if (status == ATTN_OK)
        status = attn_pairs_mix(&mixed, t->train, other, count < 1e15 ? (int64_t)count : INT64_MAX, options.seed);
    if (status == ATTN_OK) {
        t->mixed = attn_pairs_size(mixed) - own;
        attn_pairs_destroy(t->train);
        t->train = mixed;
    }
    attn_pairs_destroy(other);
    attn__free(t->run.context, path);
    return status;
}

static attn_status read_pairs(training *t)
{
    attn_pairs_options options = {.compat = t->compat,
                                  .max_examples = attn_config_int(t->run.settings, "max_examples", 0),
                                  .keep_text = attn__setting_vocabulary(t->run.settings) != ATTN_VOCAB_WORDS};
    attn_pairs_destroy(t->all);
    /* invalid lines must be errors here, because the file of alignments has one line for each line of the data */
    if (attn_config_get(t->run.settings, "guided_alignment"))
        t->data.bad.tell = NULL;
    attn_status status = attn__pairs_read(&t->all, t->run.context, &t->data, &options, &t->run.fingerprint);
    return status == ATTN_OK ? read_mixed(t, &options) : status;
}

static void pass_over(void *user, int64_t line, const char *error)
{
    (void)user, (void)line, (void)error;
}

/* Chooses the kind of vocabulary if the setting is "auto". If there are few pairs, the vocabulary consists of words,
 * because learned pieces would not be better. training.json stores the chosen kind. */
static attn_status choose_vocabulary(training *t)
{
    enum { ENOUGH = 4000 };
    if (strcmp(attn_config_text(t->run.settings, "vocabulary", "word"), "auto") != 0)
        return ATTN_OK;
    bool many = attn_subwords_available() && attn_pairs_size(t->all) >= ENOUGH;
    attn_status status = attn_config_set_text(t->run.settings, "vocabulary", many ? "unigram" : "word");
    t->data.bad.tell = t->data.bad.tell ? pass_over : NULL;
    return status == ATTN_OK && many ? read_pairs(t) : status;
}

/* Sets those defaults of a new Transformer that are different for a vocabulary of pieces. training.json stores them,
 * so a resumed run makes the same model. */
static attn_status choose_model(training *t)
{
    attn_config *settings = t->run.settings;
    bool words = attn__setting_vocabulary(settings) == ATTN_VOCAB_WORDS;
    bool transformer = strcmp(attn_config_text(settings, "model", ""), "transformer") == 0;
    const char *tie = attn_config_bool(settings, "joint_vocabulary", true) ? "all" : "decoder";
    attn_status status = ATTN_OK;
    if (t->run.resume || t->from || words || !transformer)
        return ATTN_OK;
    if (!attn_config_get(settings, "tie"))
        status = attn_config_set_text(settings, "tie", tie);
    if (status == ATTN_OK && !attn_config_get(settings, "norm"))
        status = attn_config_set_text(settings, "norm", "pre");
    return status;
}

/* Chooses the validation sentences that are translated after each epoch. They are spread evenly over the validation
 * part, because files are often sorted. */
static attn_status choose_judged(training *t)
{
    attn_config *settings = t->run.settings;
    bool scored = strcmp(attn_config_text(settings, "best_by", "loss"), "loss") != 0;
    bool pieces = attn__setting_vocabulary(settings) != ATTN_VOCAB_WORDS;
    if (!t->run.resume && !attn_config_get(settings, "valid_sentences"))
        if (attn_config_set_int(settings, "valid_sentences", scored || pieces ? 500 : 0) != ATTN_OK)
            return ATTN_ERROR_MEMORY;
    int64_t all = attn_pairs_size(t->valid), n = attn_config_int(settings, "valid_sentences", 0);
    n = n < all ? n : all;
    if (n == 0)
        return !scored ? ATTN_OK
                       : attn__fail(
                             t->run.context, ATTN_ERROR_ARGUMENT,
                             "no sentence is left to evaluate translations on: the validation part has %lld pairs, and "
                             "valid_sentences is %lld",
                             (long long)all, (long long)attn_config_int(settings, "valid_sentences", 0));
    attn_status status = attn__pairs_create(&t->judged, t->run.context, n);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        attn__pairs_copy(t->judged, t->valid, (int64_t)((double)i * (double)all / (double)n));
    return status;
}

attn_status attn__training_data(attn__translator_training *t)
{
    attn_status status = read_pairs(t);
    if (status == ATTN_OK)
        status = choose_vocabulary(t);
    if (status == ATTN_OK)
        status = choose_model(t);
    if (status == ATTN_OK)
        status = attn__training_guided(t);
    if (status == ATTN_OK)
        /* The data is checked first, so that an error in it is reported before errors in other files. */
        status = attn__run_check_data(&t->run);
    if (status == ATTN_OK)
        status = split_pairs(t);
    if (status == ATTN_OK)
        status = mix(t);
    if (status == ATTN_OK)
        status = choose_judged(t);
    if (status == ATTN_OK)
        status = make_vocabularies(t);
    if (status == ATTN_OK)
        status = make_batches(t, t->train, true, &t->train_corpus, &t->train_batches);
    if (status == ATTN_OK && attn_pairs_size(t->valid) > 0)
        status = make_batches(t, t->valid, false, &t->valid_corpus, &t->valid_batches);
    return status;
}

void attn__training_data_free(attn__translator_training *t)
{
    attn_batches_destroy(t->train_batches);
    attn_batches_destroy(t->valid_batches);
    attn_corpus_destroy(t->train_corpus);
    attn_corpus_destroy(t->valid_corpus);
    attn_vocab_destroy(t->source);
    attn_vocab_destroy(t->target);
    attn_pairs_destroy(t->judged);
    attn_pairs_destroy(t->train);
    attn_pairs_destroy(t->valid);
    attn_pairs_destroy(t->test);
    attn_pairs_destroy(t->mixed_all);
    attn_pairs_destroy(t->all);
}
