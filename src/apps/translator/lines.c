/* SPDX-License-Identifier: MIT
 *
 * Encodes lines for a translator. Words are converted to ids, and words that are not in the vocabulary are recorded.
 */
#include "apps/translator/lines.h"

#include "base/context.h"
#include "data/vocab.h"

#include <string.h>

void attn__sentences_free(attn_context *context, attn__sentence *sentences, int64_t n)
{
    for (int64_t i = 0; sentences && i < n; i++) {
        attn__free(context, sentences[i].ids);
        attn__free(context, sentences[i].words);
        attn__free(context, sentences[i].prefix);
        attn__free(context, sentences[i].allowed);
    }
    attn__free(context, sentences);
}

int64_t attn__source_columns(const attn_translator *t, int64_t longest)
{
    return t->compat == ATTN_COMPAT_D2L && longest < t->max_tokens ? t->max_tokens : longest;
}

void attn__source_put(const attn_translator *t, const int32_t *ids, int64_t n, int64_t columns, int32_t *row)
{
    int32_t pad = attn_vocab_special(t->source, ATTN_SPECIAL_PAD);
    for (int64_t i = 0; i < columns; i++)
        row[i] = i < n ? ids[i] : pad;
}

static attn_status append_word(attn_context *context, char **list, const char *word, size_t length)
{
    size_t old = strlen(*list), comma = old ? 2 : 0;
    char *longer = attn__realloc(context, *list, old + comma + length + 1);
    if (!longer)
        return ATTN_ERROR_MEMORY;
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

/* Counts the tokens of a line, and records the tokens that are not in the vocabulary. */
static attn_status note_unknown(const attn_translator *t, const char *text, attn_translation *result)
{
    notes n = {.t = t, .result = result};
    attn_status status = attn__vocab_split(t->source, text, note_token, &n);
    return status != ATTN_OK ? status : n.status;
}

typedef struct numbering {
    attn__word_counter counter;
    attn__sentence *sentence;
    int64_t room;
} numbering;

static void number_token(void *user, const char *token, size_t length)
{
    numbering *n = user;
    if (n->sentence->ntokens < n->room)
        n->sentence->words[n->sentence->ntokens++] = attn__word_number(&n->counter, token, length);
}

/* For each token of the line, records the number of the word to which it belongs. At most `room` tokens are
 * recorded. */
static attn_status number_words(const attn_translator *t, const char *text, attn__sentence *s, int64_t room)
{
    numbering n = {.counter = {.subwords = attn_vocab_has_subwords(t->source)}, .sentence = s, .room = room};
    s->words = attn__alloc(t->context, attn__size_mul((size_t)room, sizeof *s->words));
    return s->words ? attn__vocab_split(t->source, text, number_token, &n) : ATTN_ERROR_MEMORY;
}

/* Encodes a line, of which the model reads at most `most` tokens with the end. */
static attn_status encode(const attn_translator *t, const char *text, int64_t most, bool numbered, attn__sentence *s,
                          attn_translation *result)
{
    attn_status status = note_unknown(t, text, result);
    if (status == ATTN_OK && result->words > 0 && numbered)
        status = number_words(t, text, s, result->words);
    if (status != ATTN_OK || result->words == 0)
        return status;
    result->truncated = result->words + 1 > most;
    attn_encode_options encoding = attn__encoding(t);
    encoding.steps = most;
    int64_t room = t->compat == ATTN_COMPAT_D2L || result->truncated ? most : result->words + 1;
    s->ids = attn__alloc_zero(t->context, attn__size_mul((size_t)room, sizeof *s->ids));
    return s->ids ? attn_vocab_encode(t->source, text, &encoding, s->ids, room, &s->n, NULL) : ATTN_ERROR_MEMORY;
}

/* Puts the number of the sentence's line before the message of malformed text. */
static attn_status at_line(const attn_translator *t, const attn__sentence *s, const char *what, attn_status status)
{
    if (status != ATTN_ERROR_FORMAT)
        return status;
    attn__error cause = *attn__call_error(t->context);
    attn__call_forget(t->context);
    return attn__fail(t->context, status, "line %lld: %s%s", (long long)s->line + 1, what, cause.text);
}

typedef struct beginning {
    const attn_translator *t;
    attn__sentence *sentence;
    int64_t room;
    attn_status status;
} beginning;

static void take_forced(void *user, const char *token, size_t length)
{
    beginning *b = user;
    attn__sentence *s = b->sentence;
    const attn_vocab *vocab = b->t->target;
    int32_t id = attn__vocab_id(vocab, token, length);
    if (b->status != ATTN_OK)
        return;
    if (id < 0 || id == attn_vocab_special(vocab, ATTN_SPECIAL_UNK) ||
        id == attn_vocab_special(vocab, ATTN_SPECIAL_EOS))
        b->status = attn__fail(
            b->t->context, ATTN_ERROR_ARGUMENT,
            "line %lld: the translation cannot begin with \"%.*s\", which is not a word of the target vocabulary",
            (long long)s->line + 1, (int)(length < 64 ? length : 64), token);
    else if (s->nprefix == b->room)
        b->status = attn__fail(b->t->context, ATTN_ERROR_ARGUMENT,
                               "line %lld: the given beginning of the translation has more than %lld tokens, the limit",
                               (long long)s->line + 1, (long long)b->room);
    else
        s->prefix[s->nprefix++] = id;
}

/* Encodes the forced prefix of a line's translation. `most` is the maximum number of tokens of the translation,
 * including its end token. */
static attn_status begin_with(const attn_translator *t, const char *prefix, int64_t most, attn__sentence *s)
{
    beginning b = {.t = t, .sentence = s, .room = most - 1};
    char *text = NULL;
    attn_status status = attn__normalized(t, prefix, &text);
    s->prefix = attn__alloc(t->context, attn__size_mul((size_t)most, sizeof *s->prefix));
    if (status == ATTN_OK)
        status = s->prefix ? attn__vocab_split(t->target, text, take_forced, &b) : ATTN_ERROR_MEMORY;
    attn__free(t->context, text);
    return status != ATTN_OK ? at_line(t, s, "the given beginning of the translation: ", status) : b.status;
}

attn_status attn__sentence_prepare(const attn_translator *t, const char *line, const attn_translator_options *options,
                                   attn__sentence *s, attn_translation *result)
{
    char *text = NULL;
    result->unknown_words = attn__strdup(t->context, "");
    attn_status status = result->unknown_words ? attn__normalized(t, line, &text) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = encode(t, text, options->max_input, options->alignments, s, result);
    status = at_line(t, s, "", status);
    attn__free(t->context, text);
    const char *prefix = options->prefixes ? options->prefixes[s->line] : NULL;
    if (status == ATTN_OK && prefix && prefix[0])
        status = begin_with(t, prefix, options->max_len, s);
    s->most = attn__translation_limit(t, options, s);
    return status == ATTN_OK ? attn__sentence_allow(t, options, s) : status;
}
