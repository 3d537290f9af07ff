/* SPDX-License-Identifier: MIT
 *
 * Finds the tokens that a translation may contain by means of a lexicon, and makes lexicons for a translator.
 */
#include "apps/translator/lines.h"

#include "base/context.h"
#include "data/lexicon.h"
#include "data/model1.h"
#include "data/vocab.h"

#include <string.h>

attn_status attn__shortlist_fits(const attn_translator *t, const attn_translator_options *options)
{
    const attn_lexicon *lexicon = options->shortlist;
    if (lexicon && (lexicon->source != t->source || lexicon->target != t->target))
        return attn__fail(t->context, ATTN_ERROR_ARGUMENT, "the shortlist's lexicon belongs to another translator");
    return ATTN_OK;
}

static void mark(unsigned char *marks, int32_t token)
{
    if (token >= 0)
        marks[token] = 1;
}

/* Marks the `first` most frequent tokens, or all tokens if there are fewer. These are the first tokens of a vocabulary,
 * because vocabularies are sorted by frequency or likelihood. attn's vocabularies of pieces begin with special tokens
 * and bytes, which are skipped. */
static void mark_first(const attn_vocab *vocab, int64_t first, unsigned char *marks)
{
    int64_t size = attn_vocab_size(vocab);
    for (int64_t i = 0; i < size && first > 0; i++) {
        if (attn__vocab_is_text(vocab, i)) {
            marks[i] = 1;
            first--;
        }
    }
    if (first > 0)
        memset(marks, 1, (size_t)size);
}

static void mark_all(const attn_translator *t, const attn_translator_options *o, const attn__sentence *s,
                     unsigned char *marks, int64_t size)
{
    int64_t first = o->shortlist_first > 0 ? o->shortlist_first : 100;
    int64_t best = o->shortlist_best > 0 ? o->shortlist_best : 100;
    memset(marks, 0, (size_t)size);
    mark_first(t->target, first, marks);
    mark(marks, attn_vocab_special(t->target, ATTN_SPECIAL_EOS));
    mark(marks, attn_vocab_special(t->target, ATTN_SPECIAL_UNK));
    for (int64_t i = 0; i < s->nprefix; i++)
        mark(marks, s->prefix[i]);
    for (int64_t i = 0; i < s->n; i++)
        attn__lexicon_mark(o->shortlist, s->ids[i], best, marks);
}

attn_status attn__sentence_allow(const attn_translator *t, const attn_translator_options *options, attn__sentence *s)
{
    int64_t size = attn_vocab_size(t->target), n = 0;
    if (!options->shortlist || s->n == 0)
        return ATTN_OK;
    unsigned char *marks = attn__alloc(t->context, (size_t)size);
    if (!marks)
        return ATTN_ERROR_MEMORY;
    mark_all(t, options, s, marks, size);
    for (int64_t i = 0; i < size; i++)
        n += marks[i];
    s->allowed = attn__alloc(t->context, attn__size_mul((size_t)n, sizeof *s->allowed));
    for (int64_t i = 0; i < size && s->allowed; i++)
        if (marks[i])
            s->allowed[s->nallowed++] = (int32_t)i;
    attn__free(t->context, marks);
    return s->allowed ? ATTN_OK : ATTN_ERROR_MEMORY;
}

attn_status attn_translator_lexicon(attn_lexicon **lexicon, const attn_translator *t, const char *path)
{
    ATTN__CALL(t->context);
    attn_bytes bytes = {0};
    *lexicon = NULL;
    attn_status status = attn_file_read(&bytes, t->context, path, 0);
    if (status == ATTN_OK)
        status = attn_lexicon_parse(lexicon, t->context, bytes.data, bytes.size, path, t->source, t->target);
    attn_bytes_free(t->context, &bytes);
    return status;
}

/* Writes the word alignments of all pairs: for each target word, its source word. */
static attn_status align(const attn_translator *t, const attn__model1 *model, const attn_pairs_source *data,
                         attn_split part, const attn_pairs *all, attn_bytes *file)
{
    attn_pairs_options reading = {
        .compat = t->compat, .max_examples = attn__translator_most(t, part), .keep_text = true};
    attn_encode_options encoding = attn__encoding(t);
    attn_pairs *kept = NULL;
    attn_corpus *corpus = NULL;
    attn_status status = attn_corpus_create(&corpus, all, t->source, t->target, &encoding);
    if (status == ATTN_OK && !attn_vocab_has_subwords(t->source))
        status = attn__pairs_read(&kept, t->context, data, &reading, NULL);
    if (status == ATTN_OK)
        status = attn__model1_align(model, corpus, t->source, t->target, all, kept ? kept : all, t->compat, file);
    attn_corpus_destroy(corpus);
    attn_pairs_destroy(kept);
    return status;
}

attn_status attn_translator_learn_lexicon(attn_lexicon **lexicon, attn_translator *t, const attn_pairs_source *data,
                                          attn_split part, const attn_lexicon_options *options, int64_t *pairs)
{
    ATTN__CALL(t->context);
    attn_pairs *all = NULL, *chosen = NULL;
    attn_corpus *corpus = NULL;
    attn__model1 *model = NULL;
    attn_encode_options encoding = attn__encoding(t);
    *lexicon = NULL;
    if (options && options->alignments)
        *options->alignments = (attn_bytes){0};
    attn_status status = attn__translator_part(t, data, part, &all, &chosen);
    if (status == ATTN_OK)
        status = attn_corpus_create(&corpus, chosen, t->source, t->target, &encoding);
    if (status == ATTN_OK)
        status = attn__model1_learn(&model, corpus, t->source, t->target, options ? options->iterations : 0);
    if (status == ATTN_OK)
        status = attn__model1_lexicon(lexicon, model, options);
    if (status == ATTN_OK && options && options->alignments)
        status = align(t, model, data, part, all, options->alignments);
    if (status == ATTN_OK && pairs)
        *pairs = attn_pairs_size(chosen);
    if (status != ATTN_OK) {
        attn_lexicon_destroy(*lexicon);
        *lexicon = NULL;
        if (options && options->alignments)
            attn_bytes_free(t->context, options->alignments);
    }
    attn__model1_free(model);
    attn_corpus_destroy(corpus);
    attn_pairs_destroy(chosen);
    attn_pairs_destroy(all);
    return status;
}
