/* SPDX-License-Identifier: MIT
 *
 * Translating lines: each is prepared and encoded, then they go through the model in batches of like length,
 * and the results come back in the order of the lines.
 */
#include "apps/translator.h"

#include "base/context.h"
#include "data/vocab.h"
#include "models/kind.h"
#include "tensor/packed_weights.h"

#include <stdlib.h>
#include <string.h>

/* One line on its way. */
typedef struct sentence {
    int64_t line; /* its place in the caller's order */
    int32_t *ids;
    int64_t n; /* 0: an empty line */
} sentence;

static void free_sentences(attn_context *context, sentence *sentences, int64_t n)
{
    for (int64_t i = 0; sentences && i < n; i++)
        attn__free(context, sentences[i].ids);
    attn__free(context, sentences);
}

/* --------------------------------------------------------------------------------------------- encoding */

static attn_status append_word(attn_context *context, char **list, const char *word, size_t length)
{
    size_t old = strlen(*list), comma = old ? 2 : 0;
    char *longer = attn__realloc(context, *list, old + comma + length + 1);
    if (!longer)
        return ATTN_MEMORY;
    memcpy(longer + old, ", ", comma);
    memcpy(longer + old + comma, word, length);
    longer[old + comma + length] = '\0';
    *list = longer;
    return ATTN_OK;
}

typedef struct notes {
    const attn_translator *t;
    attn_translation *result;
    attn_status status;
} notes;

static void note_token(void *user, const char *token, size_t length)
{
    notes *n = user;
    n->result->words++;
    if (n->status != ATTN_OK || attn__vocab_id(n->t->source, token, length) >= 0)
        return;
    n->result->unknown++;
    n->status = append_word(n->t->context, &n->result->unknown_words, token, length);
}

/* Counts the tokens and notes those that the vocabulary lacks. */
static attn_status note_unknown(const attn_translator *t, const char *text, attn_translation *result)
{
    notes n = {.t = t, .result = result};
    attn_status status = attn__vocab_split(t->source, text, note_token, &n);
    return status != ATTN_OK ? status : n.status;
}

static attn_status encode(const attn_translator *t, const char *text, sentence *s, attn_translation *result)
{
    attn_status status = note_unknown(t, text, result);
    if (status != ATTN_OK || result->words == 0)
        return status;
    result->truncated = result->words + 1 > t->max_tokens;
    s->ids = attn__alloc_zero(t->context, attn__size_mul((size_t)t->max_tokens, sizeof *s->ids));
    if (!s->ids)
        return ATTN_MEMORY;
    attn_encode_options encoding = attn__encoding(t);
    return attn_vocab_encode(t->source, text, &encoding, s->ids, t->max_tokens, &s->n, NULL);
}

static attn_status prepare(const attn_translator *t, const char *line, sentence *s, attn_translation *result)
{
    char *text = NULL;
    result->unknown_words = attn__strdup(t->context, "");
    attn_status status = result->unknown_words ? attn__normalised(t, line, &text) : ATTN_MEMORY;
    if (status == ATTN_OK)
        status = encode(t, text, s, result);
    attn__free(t->context, text);
    return status;
}

/* -------------------------------------------------------------------------------------------- decoding */

static attn_status finish(const attn_translator *t, const attn_hypothesis *hypothesis, attn_translation *result)
{
    size_t size = attn_vocab_decode(t->target, hypothesis->ids, hypothesis->n, NULL, 0) + 1;
    result->tokens = attn__alloc(t->context, size);
    if (!result->tokens)
        return ATTN_MEMORY;
    attn_vocab_decode(t->target, hypothesis->ids, hypothesis->n, result->tokens, size);
    result->score = hypothesis->score;
    return attn__detokenised(t, result->tokens, &result->text);
}

static attn_status finish_empty(const attn_translator *t, attn_translation *result)
{
    result->tokens = attn__strdup(t->context, "");
    result->text = attn__strdup(t->context, "");
    return result->tokens && result->text ? ATTN_OK : ATTN_MEMORY;
}

static int64_t wanted(const attn_translator_options *options)
{
    return options && options->nbest > 0 ? options->nbest : 1;
}

static attn_translate_options decoding_options(const attn_translator *t, const attn_translator_options *options)
{
    int64_t most = options && options->max_length > 0 ? options->max_length : t->max_output;
    return (attn_translate_options){
        .bos = attn_vocab_special(t->target, ATTN_BOS),
        .eos = attn_vocab_special(t->target, ATTN_EOS),
        .max_len = most < t->max_output ? most : t->max_output,
        .beam = options ? options->beam : 0,
        .nbest = options ? options->nbest : 0,
        .length_penalty = options && options->length_penalty > 0 ? options->length_penalty : t->search.length_penalty,
        .first_position = t->compat == ATTN_COMPAT_D2L,
        .rule = t->search.rule,
        .stopping = t->search.stopping,
        .force_end = t->search.force_end,
        .nbanned = t->search.nbanned,
        .banned = t->search.banned,
    };
}

/* The batch's ids, padded to the longest (d2l's way: to what every sentence is padded to). */
static attn_status stack(const attn_translator *t, attn_tape *tape, const sentence *batch, int64_t n,
                         attn_tensor **source, attn_tensor **lens)
{
    int64_t longest = t->compat == ATTN_COMPAT_D2L ? t->max_tokens : 1;
    for (int64_t i = 0; i < n; i++)
        longest = batch[i].n > longest ? batch[i].n : longest;
    *source = attn__ids_on_tape(tape, n, longest, NULL);
    *lens = attn_tensor_make(tape, ATTN_I32, 1, &n, NULL);
    if (!*source || !*lens)
        return ATTN_MEMORY;
    int32_t *ids = attn_tensor_data(*source), *lengths = attn_tensor_data(*lens);
    int32_t pad = attn_vocab_special(t->source, ATTN_PAD);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < longest; j++)
            ids[i * longest + j] = j < batch[i].n ? batch[i].ids[j] : pad;
        lengths[i] = (int32_t)batch[i].n;
    }
    return ATTN_OK;
}

/* Of a call: where the sources lie, and where the model runs, which keeps its weights packed meanwhile. */
typedef struct tapes {
    attn_tape *sources, *model;
} tapes;

static attn_status translate_batch(const attn_translator *t, const tapes *on, const sentence *batch, int64_t n,
                                   const attn_translator_options *options, attn_hypothesis *hypotheses,
                                   attn_translation *results)
{
    attn_tensor *source, *lens;
    attn_translate_options decoding = decoding_options(t, options);
    attn_tape_reset(on->sources, NULL);
    attn_status status = stack(t, on->sources, batch, n, &source, &lens);
    if (status == ATTN_OK)
        status = attn__seq2seq_translate(t->model, on->model, source, lens, &decoding, hypotheses);
    if (status != ATTN_OK)
        return status;
    int64_t each = wanted(options);
    for (int64_t i = 0; i < n * each && status == ATTN_OK; i++) {
        if (hypotheses[i].ids)
            status = finish(t, &hypotheses[i], &results[batch[i / each].line * each + i % each]);
    }
    attn_hypotheses_free(t->context, hypotheses, n * each);
    return status;
}

/* ----------------------------------------------------------------------------------------------- lines */

static int longer_first(const void *a, const void *b)
{
    const sentence *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return (x->line > y->line) - (x->line < y->line);
}

static attn_status translate_batches(attn_translator *t, const tapes *on, const sentence *sentences, int64_t n,
                                     const attn_translator_options *options, attn_translation *results)
{
    int64_t size = options && options->batch > 0 ? options->batch : 32, at = 0;
    size = size < n ? size : n; /* what is asked for may be far more than memory holds */
    attn_hypothesis *hypotheses =
        attn__alloc_zero(t->context, attn__size_mul((size_t)(size * wanted(options)), sizeof *hypotheses));
    attn_status status = hypotheses ? ATTN_OK : ATTN_MEMORY;
    while (status == ATTN_OK && at < n && sentences[at].n > 0) {
        int64_t count = 0;
        while (at + count < n && count < size && sentences[at + count].n > 0)
            count++;
        status = translate_batch(t, on, sentences + at, count, options, hypotheses, results);
        at += count;
        attn__work(t->context, "sentences", at, n);
    }
    for (; status == ATTN_OK && at < n; at++)
        status = finish_empty(t, &results[sentences[at].line * wanted(options)]);
    attn__free(t->context, hypotheses);
    return status;
}

static attn_status translate_sorted(attn_translator *t, const sentence *sentences, int64_t n,
                                    const attn_translator_options *options, attn_translation *results)
{
    tapes on = {NULL, NULL};
    attn_status status = attn_tape_create(&on.sources, t->context);
    if (status == ATTN_OK)
        status = attn_tape_create(&on.model, t->context);
    if (status == ATTN_OK)
        status = attn__packed_weights_begin(on.model);
    if (status == ATTN_OK) {
        status = translate_batches(t, &on, sentences, n, options, results);
        attn__packed_weights_end(on.model);
    }
    attn_tape_destroy(on.model);
    attn_tape_destroy(on.sources);
    return status;
}

attn_status attn_translator_translate(attn_translator *t, const char *const *lines, int64_t n,
                                      const attn_translator_options *options, attn_translation *results)
{
    int64_t each = wanted(options), beam = options && options->beam > 1 ? options->beam : 1;
    if (each > beam)
        return attn__fail(t->context, ATTN_ARGUMENT, "%lld translations of a line are asked for with a beam of %lld",
                          (long long)each, (long long)beam);
    memset(results, 0, (size_t)(n * each) * sizeof *results);
    sentence *sentences = attn__alloc_zero(t->context, attn__size_mul((size_t)n, sizeof *sentences));
    attn_status status = sentences ? ATTN_OK : ATTN_MEMORY;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        sentences[i].line = i;
        status = prepare(t, lines[i], &sentences[i], &results[i * each]);
    }
    if (status == ATTN_OK) {
        qsort(sentences, (size_t)n, sizeof *sentences, longer_first);
        status = translate_sorted(t, sentences, n, options, results);
    }
    free_sentences(t->context, sentences, n);
    if (status != ATTN_OK)
        attn_translations_free(t->context, results, n * each);
    return status;
}

void attn_translations_free(attn_context *context, attn_translation *results, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        attn__free(context, results[i].text);
        attn__free(context, results[i].tokens);
        attn__free(context, results[i].unknown_words);
        results[i] = (attn_translation){0};
    }
}
