/* SPDX-License-Identifier: MIT
 *
 * Scores a translator on a part of its data. The scores are the loss, and BLEU and chrF of its translations.
 */
#include "apps/translator/translator.h"

#include "apps/translator/settings.h"
#include "base/clock.h"
#include "base/context.h"
#include "train/bleu.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The pairs are divided as in the training. */
static attn_status choose_part(const attn_translator *t, const attn_pairs *all, attn_split part, attn_pairs **chosen)
{
    if (part == ATTN_SPLIT_ALL)
        return attn_pairs_slice(chosen, all, 0, attn_pairs_size(all));
    attn_pairs_split_options options = attn__setting_split(t->config);
    return attn_pairs_split(part == ATTN_SPLIT_TRAIN ? chosen : NULL, part == ATTN_SPLIT_VALID ? chosen : NULL,
                            part == ATTN_SPLIT_TEST ? chosen : NULL, all, &options);
}

static attn_status refuse_empty(const attn_translator *t, const char *data, attn_split part, int64_t pairs)
{
    static const char *const names[] = {[ATTN_SPLIT_ALL] = "all",
                                        [ATTN_SPLIT_TRAIN] = "train",
                                        [ATTN_SPLIT_VALID] = "valid",
                                        [ATTN_SPLIT_TEST] = "test"};
    if (t->compat == ATTN_COMPAT_D2L && part == ATTN_SPLIT_TEST)
        return attn__fail(t->context, ATTN_ERROR_ARGUMENT,
                          "%s: the split of Dive into Deep Learning has no test part: use the part \"valid\"", data);
    return attn__fail(t->context, ATTN_ERROR_ARGUMENT, "%s: none of its %" PRId64 " pairs is in the part \"%s\"", data,
                      pairs, names[part]);
}

int64_t attn__translator_most(const attn_translator *t, attn_split part)
{
    return part == ATTN_SPLIT_ALL ? 0 : attn_config_int(t->config, "max_examples", 0);
}

attn_status attn__translator_part(const attn_translator *t, const attn_pairs_source *data, attn_split part,
                                  attn_pairs **all, attn_pairs **chosen)
{
    attn_pairs_options reading = {.compat = t->compat,
                                  .max_examples = attn__translator_most(t, part),
                                  .keep_text = attn_vocab_has_subwords(t->source)};
    attn_status status = attn__check_choice(t->context, "the part of the data", (int)part, ATTN_SPLIT_TEST);
    if (status == ATTN_OK)
        status = attn__pairs_read(all, t->context, data, &reading, NULL);
    if (status == ATTN_OK)
        status = choose_part(t, *all, part, chosen);
    if (status == ATTN_OK && attn_pairs_size(*chosen) == 0)
        status = refuse_empty(t, attn__pairs_name(data), part, attn_pairs_size(*all));
    return status;
}

static attn_status measure_loss(attn_translator *t, const attn_pairs *pairs, double *loss)
{
    attn_corpus *corpus = NULL;
    attn_batches *batches = NULL;
    attn_tape *tape = NULL;
    attn_encode_options encoding = attn__encoding(t);
    bool d2l = t->compat == ATTN_COMPAT_D2L;
    attn_batches_options options = {.in_order = true, .mixed_lengths = d2l, .fixed_steps = d2l ? t->max_tokens : 0};
    attn_status status = attn_corpus_create(&corpus, pairs, t->source, t->target, &encoding);
    if (status == ATTN_OK)
        status = attn_batches_create(&batches, corpus, &options);
    if (status == ATTN_OK)
        status = attn_tape_create(&tape, t->context);
    if (status == ATTN_OK)
        status =
            attn__translator_loss(t->model, tape, batches, attn_vocab_special(t->target, ATTN_SPECIAL_PAD), d2l, loss);
    attn_tape_destroy(tape);
    attn_batches_destroy(batches);
    attn_corpus_destroy(corpus);
    return status;
}

/* The data for scoring a part. There are n distinct source sentences, and `pairs` is the total number of their
 * references. */
typedef struct results {
    int64_t n, pairs;
    /* indices of the pairs; the pairs of one sentence are adjacent */
    int64_t *order;
    int64_t *counts; /* number of references of each sentence */
    /* texts; the references are detokenized, and this struct owns them */
    const char **sources, **predictions, **references;
    attn_translation *translations;
} results;

static attn_status allocate(attn_context *context, results *r, int64_t pairs)
{
    *r = (results){.pairs = pairs};
    size_t pointers = attn__size_mul((size_t)pairs, sizeof(char *));
    r->order = attn__alloc_zero(context, pointers);
    r->counts = attn__alloc_zero(context, pointers);
    r->sources = attn__alloc_zero(context, pointers);
    r->predictions = attn__alloc_zero(context, pointers);
    r->references = attn__alloc_zero(context, pointers);
    r->translations = attn__alloc_zero(context, attn__size_mul((size_t)pairs, sizeof *r->translations));
    bool all = r->order && r->counts && r->sources && r->predictions && r->references && r->translations;
    return all ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static void release(attn_context *context, results *r)
{
    for (int64_t i = 0; r->references && i < r->pairs; i++)
        attn__free(context, (void *)(uintptr_t)r->references[i]);
    if (r->translations)
        attn_translations_free(context, r->translations, r->n);
    attn__free(context, r->order);
    attn__free(context, r->counts);
    attn__free(context, r->sources);
    attn__free(context, r->predictions);
    attn__free(context, r->references);
    attn__free(context, r->translations);
}

/* A pair: its source, its index, and the index of the first pair that has the same source. */
typedef struct place {
    const char *source;
    int64_t pair, first;
} place;

static int by_source(const void *a, const void *b)
{
    const place *x = a, *y = b;
    int sources = strcmp(x->source, y->source);
    return sources ? sources : (x->pair > y->pair) - (x->pair < y->pair);
}

static int by_first(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->pair > y->pair) - (x->pair < y->pair);
}

/* Lists the source sentences in the order in which they first occur. If `join` is true, equal sentences are listed
 * once. */
static attn_status list_sentences(attn_context *context, const attn_pairs *pairs, bool join, results *r)
{
    place *places = attn__alloc(context, attn__size_mul((size_t)r->pairs, sizeof *places));
    if (!places)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < r->pairs; i++)
        places[i] = (place){attn_pairs_get(pairs, i).source, i, i};
    if (join && r->pairs > 0) {
        qsort(places, (size_t)r->pairs, sizeof *places, by_source);
        for (int64_t i = 1; i < r->pairs; i++)
            if (strcmp(places[i].source, places[i - 1].source) == 0)
                places[i].first = places[i - 1].first;
        qsort(places, (size_t)r->pairs, sizeof *places, by_first);
    }
    for (int64_t i = 0; i < r->pairs; i++) {
        r->order[i] = places[i].pair;
        if (i == 0 || places[i].first != places[i - 1].first)
            r->sources[r->n++] = places[i].source;
        r->counts[r->n - 1]++;
    }
    attn__free(context, places);
    return ATTN_OK;
}

/* Computes D2L's BLEU of a translation with one reference. If it is larger than *bleu, sets *bleu to it. D2L's BLEU
 * compares words in lower case. A vocabulary of pieces keeps the original text, so the words are normalized first. */
static attn_status bleu_d2l(const attn_translator *t, const attn_translation *said, const char *target, double *bleu)
{
    const char *texts[2] = {said->text, target};
    char *words[2] = {NULL, NULL};
    attn_status status = ATTN_OK;
    if (!attn_vocab_has_subwords(t->target)) {
        *bleu = fmax(*bleu, attn_bleu_d2l(said->tokens, target, 2));
        return ATTN_OK;
    }
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        status = attn__normalized_words(t->context, texts[i], ATTN_COMPAT_NONE, &words[i]);
    if (status == ATTN_OK)
        *bleu = fmax(*bleu, attn_bleu_d2l(words[0], words[1], 2));
    attn__free(t->context, words[0]);
    attn__free(t->context, words[1]);
    return status;
}

/* Counts the decoded tokens and the words of the sources. Computes the mean of D2L's BLEU over all sentences. */
static attn_status look(attn_translator *t, const attn_pairs *pairs, results *r, double *tokens, double *source_words,
                        double *bleu)
{
    const int64_t *pair = r->order;
    for (int64_t i = 0; i < r->n; i++) {
        const char *said = r->translations[i].tokens, *asked = r->sources[i], *word;
        size_t length;
        double best = 0;
        r->predictions[i] = r->translations[i].text;
        for (int64_t j = 0; j < r->counts[i]; j++) {
            attn_status status = bleu_d2l(t, &r->translations[i], attn_pairs_get(pairs, *pair++).target, &best);
            if (status != ATTN_OK)
                return status;
        }
        *bleu += best / (double)r->n;
        for (++*tokens; attn_text_word(&said, &word, &length);)
            ++*tokens;
        while (attn_text_word(&asked, &word, &length))
            ++*source_words;
    }
    return ATTN_OK;
}

static attn_status score_pairs(attn_translator *t, const attn_pairs *pairs, const attn_translator_judging *judging,
                               results *r, attn_translator_score *score)
{
    attn_status status = list_sentences(t->context, pairs, judging->all_references, r);
    for (int64_t i = 0; i < r->pairs && status == ATTN_OK; i++) {
        char *reference = NULL;
        status = attn__reference(t, attn_pairs_get(pairs, r->order[i]).target, &reference);
        r->references[i] = reference;
    }
    if (status != ATTN_OK)
        return status;
    attn_translator_options best = judging->search;
    best.nbest = 1; /* only the best translation is computed, because `translations` has one element per sentence */
    best.prefixes = NULL;
    best.alignments = false;
    best.unscored = true;
    double from = attn__now();
    status = attn_translator_translate(t, r->sources, r->n, &best, r->translations);
    double tokens = 0, source_words = 0, seconds = attn__seconds_since(from);
    if (status == ATTN_OK)
        status = look(t, pairs, r, &tokens, &source_words, &score->bleu_d2l);
    for (int64_t i = 0; i < r->n; i++)
        score->truncated += r->translations[i].truncated;
    score->sentences = r->n;
    score->references = r->pairs;
    score->tokens_per_second = seconds > 0 ? tokens / seconds : 0;
    score->words_per_second = seconds > 0 ? source_words / seconds : 0;
    return status;
}

static attn_status judge(attn_translator *t, const attn_pairs *pairs, const attn_translator_judging *judging,
                         results *r, attn_translator_score *score)
{
    attn_status status = score_pairs(t, pairs, judging, r, score);
    if (status == ATTN_OK)
        status = attn_bleu_corpus(&score->corpus, t->context, r->predictions, r->references, r->counts, r->n);
    if (status == ATTN_OK)
        status = attn_chrf_corpus(&score->chrf, t->context, r->predictions, r->references, r->counts, r->n);
    return status;
}

static attn_status score_part(attn_translator *t, const attn_pairs *pairs, const attn_translator_judging *judging,
                              attn_translator_score *score)
{
    results r;
    attn_status status = allocate(t->context, &r, attn_pairs_size(pairs));
    if (status == ATTN_OK)
        status = measure_loss(t, pairs, &score->loss);
    if (status == ATTN_OK)
        status = judge(t, pairs, judging, &r, score);
    const char *const *reference = r.references;
    for (int64_t i = 0; judging->sample && status == ATTN_OK && i < r.n; reference += r.counts[i++])
        judging->sample(judging->user, r.sources[i], *reference, r.predictions[i]);
    release(t->context, &r);
    return status;
}

attn_status attn__translator_judge(attn_translator *t, const attn_pairs *pairs, attn_translator_score *score)
{
    results r;
    *score = (attn_translator_score){0};
    attn_status status = allocate(t->context, &r, attn_pairs_size(pairs));
    if (status == ATTN_OK)
        status = judge(t, pairs, &(attn_translator_judging){.search = {.beam = 1}}, &r, score);
    release(t->context, &r);
    return status;
}

attn_status attn_translator_evaluate(attn_translator *t, const attn_pairs_source *data, attn_split part,
                                     const attn_translator_judging *judging, attn_translator_score *score)
{
    ATTN__CALL(t->context);
    *score = (attn_translator_score){0};
    attn_pairs *all = NULL, *chosen = NULL;
    attn_status status = attn__translator_part(t, data, part, &all, &chosen);
    if (status == ATTN_OK)
        status = score_part(t, chosen, judging ? judging : &(attn_translator_judging){.all_references = false}, score);
    attn_pairs_destroy(chosen);
    attn_pairs_destroy(all);
    return status;
}
