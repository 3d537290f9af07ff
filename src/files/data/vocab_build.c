/* SPDX-License-Identifier: MIT */
#include "data/pairs.h"
#include "data/vocab.h"

#include <stdlib.h>
#include <string.h>

/* Compares two texts by their bytes, for sorting. In UTF-8 this is the order of code points. */
static int compare_texts(const attn__word *a, const attn__word *b)
{
    uint32_t shorter = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->text, b->text, shorter);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int by_text(const void *a, const void *b)
{
    return compare_texts(a, b);
}

static int by_count(const void *a, const void *b)
{
    const attn__word *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return compare_texts(x, y);
}

static attn_status count_special(attn__words *words, attn_special special, int64_t count)
{
    const char *name = attn__special_names[special];
    return attn__words_count(words, name, strlen(name), count);
}

/* Counts the words of a sentence, except words that are written like a special token. If `steps` is not 0 (D2L
 * compatibility), <eos> is appended to the sentence, which is then cut or padded to `steps` tokens. A target sentence
 * begins with <bos>. */
static attn_status count_sentence(attn__words *words, const char *text, attn_side side, int64_t steps)
{
    const char *word;
    size_t length;
    attn_status status = ATTN_OK;
    int64_t n = 0;
    for (; status == ATTN_OK && (steps == 0 || n < steps) && attn_text_word(&text, &word, &length); n++)
        status = attn__words_count(words, word, length, 1);
    if (steps == 0 || status != ATTN_OK)
        return status;
    if (n < steps)
        status = count_special(words, ATTN_SPECIAL_EOS, 1);
    if (status == ATTN_OK && n + 1 < steps)
        status = count_special(words, ATTN_SPECIAL_PAD, steps - n - 1);
    if (status == ATTN_OK && side == ATTN_SIDE_TARGET)
        status = count_special(words, ATTN_SPECIAL_BOS, 1);
    return status;
}

static bool is_special(const attn__word *word)
{
    for (int i = 0; i < ATTN__SPECIALS; i++) {
        const char *name = attn__special_names[i];
        if (word->length == strlen(name) && memcmp(word->text, name, word->length) == 0)
            return true;
    }
    return false;
}

/* Keeps the words that are frequent enough, without changing their order. Returns the number of these words. */
static int64_t keep_frequent(attn__word *items, int64_t n, int64_t min_frequency, bool specials)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (items[i].count >= min_frequency && (specials || !is_special(&items[i])))
            items[kept++] = items[i];
    return kept;
}

/* Makes a vocabulary with D2L compatibility. <unk> is always included. <pad> and <eos> are usually frequent enough,
 * because padded sentences contain them. If sentences are very long or few, they may be missing. They are then added,
 * because encoding needs them. */
static attn_status finish_d2l(attn_vocab **vocab, attn__words *words, int64_t min_frequency)
{
    attn_status status = count_special(words, ATTN_SPECIAL_UNK, min_frequency);
    if (status == ATTN_OK)
        status = count_special(words, ATTN_SPECIAL_PAD, min_frequency);
    if (status == ATTN_OK)
        status = count_special(words, ATTN_SPECIAL_EOS, min_frequency);
    if (status != ATTN_OK)
        return status;
    int64_t n = keep_frequent(words->items, words->n, min_frequency, true);
    qsort(words->items, (size_t)n, sizeof *words->items, by_text);
    return attn__vocab_create(vocab, words->context, words->items, n);
}

static attn_status finish(attn_vocab **vocab, attn__words *words, int64_t min_frequency, int64_t max_size)
{
    attn__word *all = attn__alloc(words->context, attn__size_mul((size_t)words->n + ATTN__SPECIALS, sizeof *all));
    if (!all)
        return ATTN_ERROR_MEMORY;
    for (int i = 0; i < ATTN__SPECIALS; i++)
        all[i] = (attn__word){attn__special_names[i], (uint32_t)strlen(attn__special_names[i]), 0};
    memcpy(all + ATTN__SPECIALS, words->items, (size_t)words->n * sizeof *all);
    int64_t n = keep_frequent(all + ATTN__SPECIALS, words->n, min_frequency, false);
    qsort(all + ATTN__SPECIALS, (size_t)n, sizeof *all, by_count);
    n += ATTN__SPECIALS;
    attn_status status = attn__vocab_create(vocab, words->context, all, max_size && n > max_size ? max_size : n);
    attn__free(words->context, all);
    return status;
}

/* Learns pieces from the sentences of one side, or of both sides together. */
static attn_status build_subwords(attn_vocab **vocab, const attn_pairs *pairs, attn_side side,
                                  const attn_vocab_options *o)
{
    int64_t n = 0, size = o->max_size ? o->max_size : 8000;
    const char **texts =
        attn__alloc(pairs->context, attn__size_mul(attn__size_mul((size_t)pairs->n, 2), sizeof *texts));
    attn__subword *subword = NULL;
    if (!texts)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < pairs->n; i++) {
        if (o->joint || side == ATTN_SIDE_SOURCE)
            texts[n++] = pairs->items[i].source;
        if (o->joint || side == ATTN_SIDE_TARGET)
            texts[n++] = pairs->items[i].target;
    }
    attn_status status = attn__subword_train(
        &subword, pairs->context, texts, n, o->kind == ATTN_VOCAB_BPE ? "bpe" : "unigram", size, o->character_coverage);
    if (status == ATTN_OK)
        status = attn__vocab_of_subwords(vocab, pairs->context, subword, "vocabulary");
    attn__free(pairs->context, texts);
    return status;
}

attn_status attn_vocab_build(attn_vocab **vocab, const attn_pairs *pairs, attn_side side,
                             const attn_vocab_options *options)
{
    ATTN__CALL(pairs->context);
    static const attn_vocab_options defaults;
    const attn_vocab_options *o = options ? options : &defaults;
    bool d2l = o->compat == ATTN_COMPAT_D2L;
    int64_t min_frequency = o->min_frequency ? o->min_frequency : 2;
    *vocab = NULL;
    attn_status known = attn__check_choice(pairs->context, "side", (int)side, ATTN_SIDE_TARGET);
    if (known == ATTN_OK)
        known = attn__check_choice(pairs->context, "the kind of vocabulary", (int)o->kind, ATTN_VOCAB_BPE);
    if (known == ATTN_OK)
        known = attn__check_choice(pairs->context, "compat", (int)o->compat, ATTN_COMPAT_D2L);
    if (known != ATTN_OK)
        return known;
    if (min_frequency < 0 || o->steps < 0)
        return attn__fail(pairs->context, ATTN_ERROR_ARGUMENT, "vocabulary: %s is %lld; it must not be negative",
                          min_frequency < 0 ? "min_frequency" : "steps",
                          (long long)(min_frequency < 0 ? min_frequency : o->steps));
    if (o->max_size < 0 || (o->max_size && o->max_size < ATTN__SPECIALS))
        return attn__fail(pairs->context, ATTN_ERROR_ARGUMENT,
                          "vocabulary: max_size is %lld; it must be 0 or at least %d", (long long)o->max_size,
                          (int)ATTN__SPECIALS);
    if (o->kind != ATTN_VOCAB_WORDS)
        return build_subwords(vocab, pairs, side, o);
    attn__words words;
    attn_status status = attn__words_create(&words, pairs->context);
    for (int64_t i = 0; i < pairs->n && status == ATTN_OK; i++)
        status = count_sentence(&words, attn__pairs_side(pairs, i, side), side, !d2l ? 0 : o->steps ? o->steps : 9);
    if (status == ATTN_OK)
        status = d2l ? finish_d2l(vocab, &words, min_frequency) : finish(vocab, &words, min_frequency, o->max_size);
    attn__words_destroy(&words);
    return status;
}
