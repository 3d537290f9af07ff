/* SPDX-License-Identifier: MIT
 * Computes word alignments from the probabilities of IBM Model 1 and a preference for the diagonal. A target word can
 * have several tokens. For each source word, the probabilities of these tokens are added up. */
#include "base/utf8.h"
#include "data/corpus.h"
#include "data/model1.h"
#include "data/pairs.h"
#include "data/token_words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double tension = 4, empty_share = 0.08;

typedef struct side {
    const attn_vocab *vocab;
    attn__token_words tokens;
    attn__prepared_words prepared;
    const int32_t *ids;
    int64_t n, words; /* number of tokens without <eos>, and number of words of the original text */
} side;

typedef struct aligner {
    const attn__model1 *model;
    const attn_corpus *corpus;
    const attn_pairs *pairs, *kept;
    attn_compat compat;
    side side[2];
    double *shares; /* share of the empty word, followed by the share of each source word */
    double *prior;  /* share of each source token */
    size_t room;    /* allocated size of the file's text, in bytes */
    attn_bytes *file;
} aligner;

static attn_status look_at(aligner *a, attn_side which, int64_t i)
{
    side *s = &a->side[which];
    const attn__encoded *e = &a->corpus->side[which];
    const char *text = attn__pairs_side(a->pairs, i, which);
    attn_status status = attn__token_words_fill(&s->tokens, s->vocab, text);
    if (status == ATTN_OK)
        status = attn__prepared_words_fill(&s->prepared, attn__pairs_side(a->kept, i, which), a->kept == a->pairs,
                                           a->compat);
    if (status != ATTN_OK)
        return status;
    s->ids = e->ids + e->begin[i];
    s->n = attn__corpus_length(a->corpus, which, i);
    s->n -= s->n > 0 && s->ids[s->n - 1] == attn_vocab_special(s->vocab, ATTN_SPECIAL_EOS);
    s->n = s->n < s->tokens.n ? s->n : s->tokens.n;
    s->words = s->prepared.n;
    for (int64_t k = 0; k < s->n; k++)
        s->tokens.words[k] = attn__prepared_words_origin(&s->prepared, s->tokens.words[k]);
    return ATTN_OK;
}

/* Sets prior[k] to the probability that target token j comes from source token k, independent of which tokens these
 * are. As in fast_align (Dyer et al. 2013, equation 1), the prior prefers the diagonal. It uses fast_align's initial
 * tension and its share of the empty word. */
static void expect_place(const aligner *a, int64_t j)
{
    const side *from = &a->side[ATTN_SIDE_SOURCE], *to = &a->side[ATTN_SIDE_TARGET];
    double sum = 0, place = ((double)j + 0.5) / (double)to->n;
    for (int64_t k = 0; k < from->n; k++)
        sum += a->prior[k] = exp(-tension * fabs(((double)k + 0.5) / (double)from->n - place));
    for (int64_t k = 0; k < from->n; k++)
        a->prior[k] *= (1 - empty_share) / sum;
}

/* Adds, for target token j, the share of each source token to the share of its source word. */
static void add_shares(const aligner *a, int64_t j)
{
    const side *from = &a->side[ATTN_SIDE_SOURCE];
    int32_t id = a->side[ATTN_SIDE_TARGET].ids[j];
    double empty = empty_share * attn__model1_probability(a->model, -1, id), sum = empty;
    expect_place(a, j);
    for (int64_t k = 0; k < from->n; k++)
        sum += a->prior[k] *= attn__model1_probability(a->model, from->ids[k], id);
    if (!(sum > 0))
        return;
    a->shares[0] += empty / sum;
    for (int64_t k = 0; k < from->n; k++)
        a->shares[from->tokens.words[k] + 1] += a->prior[k] / sum;
}

/* Returns whether a character is punctuation, or the mark of a space. Punctuation is that of ASCII, of U+0080 to
 * U+00BF, and of the general, Chinese and Japanese blocks. */
static bool is_punctuation(uint32_t code)
{
    bool letter = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= '0' && code <= '9');
    return (code < 0xc0 && !letter) || (code >= 0x2000 && code < 0x2070) || code == 0x2581 ||
           (code >= 0x3000 && code < 0x3040);
}

static bool has_letters(const char *token)
{
    const char *end = token + strlen(token);
    while (token < end) {
        uint32_t code;
        int n = attn__utf8_decode(token, end, &code);
        if (n <= 0 || !is_punctuation(code))
            return true;
        token += n;
    }
    return false;
}

static bool counts(const side *s, int64_t j, int64_t word, bool letters)
{
    return s->tokens.words[j] == word && has_letters(attn_vocab_token(s->vocab, s->ids[j])) == letters;
}

/* Adds the shares of all tokens of a target word. Punctuation tokens are skipped, unless the whole word is
 * punctuation. Punctuation after a word would be aligned with punctuation in the source, which would outweigh the
 * word itself. */
static void add_word(const aligner *a, int64_t word)
{
    const side *to = &a->side[ATTN_SIDE_TARGET];
    bool letters = false;
    for (int64_t j = 0; j < to->n && !letters; j++)
        letters = counts(to, j, word, true);
    for (int64_t j = 0; j < to->n; j++)
        if (counts(to, j, word, letters))
            add_shares(a, j);
}

/* Returns the source word of target word `word`, or -1 if there is none. */
static int64_t source_of(const aligner *a, int64_t word)
{
    int64_t words = a->side[ATTN_SIDE_SOURCE].words, best = -1;
    memset(a->shares, 0, (size_t)(words + 1) * sizeof *a->shares);
    add_word(a, word);
    for (int64_t k = 0; k < words; k++)
        best = a->shares[k + 1] > a->shares[best + 1] ? k : best;
    return best;
}

static attn_status append(aligner *a, const char *text)
{
    attn_context *context = a->corpus->context;
    size_t length = strlen(text);
    if (a->file->size + length + 1 > a->room) {
        size_t more = 2 * a->room + length + 4096;
        char *larger = attn__realloc(context, a->file->data, more);
        if (!larger)
            return ATTN_ERROR_MEMORY;
        a->file->data = larger;
        a->room = more;
    }
    memcpy(a->file->data + a->file->size, text, length + 1);
    a->file->size += length;
    return ATTN_OK;
}

static attn_status align_pair(aligner *a, int64_t i)
{
    attn_status status = look_at(a, ATTN_SIDE_SOURCE, i);
    if (status == ATTN_OK)
        status = look_at(a, ATTN_SIDE_TARGET, i);
    if (status != ATTN_OK)
        return status;
    attn_context *context = a->corpus->context;
    size_t words = (size_t)a->side[ATTN_SIDE_SOURCE].words + 1, tokens = (size_t)a->side[ATTN_SIDE_SOURCE].n;
    a->shares = attn__alloc(context, attn__size_mul(attn__size_add(words, tokens), sizeof *a->shares));
    a->prior = a->shares ? a->shares + words : NULL;
    status = a->shares ? ATTN_OK : ATTN_ERROR_MEMORY;
    const char *space = "";
    for (int64_t j = 0; j < a->side[ATTN_SIDE_TARGET].words && status == ATTN_OK; j++) {
        char text[64];
        int64_t source = source_of(a, j);
        if (source < 0)
            continue;
        snprintf(text, sizeof text, "%s%lld-%lld", space, (long long)source, (long long)j);
        status = append(a, text);
        space = " ";
    }
    attn__free(context, a->shares);
    return status == ATTN_OK ? append(a, "\n") : status;
}

attn_status attn__model1_align(const attn__model1 *model, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, const attn_pairs *pairs, const attn_pairs *kept,
                               attn_compat compat, attn_bytes *file)
{
    attn_context *context = corpus->context;
    aligner a = {.model = model,
                 .corpus = corpus,
                 .pairs = pairs,
                 .kept = kept,
                 .compat = compat,
                 .side = {{.vocab = source, .tokens = {.context = context}, .prepared = {.context = context}},
                          {.vocab = target, .tokens = {.context = context}, .prepared = {.context = context}}},
                 .file = file};
    *file = (attn_bytes){0};
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < pairs->n && status == ATTN_OK; i++)
        status = align_pair(&a, i);
    for (int s = 0; s < 2; s++) {
        attn__token_words_free(&a.side[s].tokens);
        attn__prepared_words_free(&a.side[s].prepared);
    }
    return status;
}
