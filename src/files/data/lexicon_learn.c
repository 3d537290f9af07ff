/* SPDX-License-Identifier: MIT
 *
 * Learns translation probabilities of tokens from sentence pairs with IBM Model 1 (Brown et al. 1993, The Mathematics
 * of Statistical Machine Translation, part 4.1). The model assumes that each target token comes from one source token
 * of its sentence, or from the empty word. The probabilities t(target|source) are found by expectation maximisation. */
#include "data/model1.h"

#include "base/rng.h"
#include "data/corpus.h"
#include "data/lexicon.h"

#include <string.h>

/* A slot of a hash table, for a source token and a target token that occur in the same sentence pair. The number of
 * slots is a power of two. At most half of the slots are used. */
typedef struct pair {
    uint64_t key; /* 0: free */
    double probability, count;
} pair;

typedef struct attn__model1 {
    attn_context *context;
    const attn_corpus *corpus;
    const attn_vocab *source, *target;
    pair *pairs;
    size_t places, used;
    /* [source tokens + 1]: for each source token, the sum of its counts; the last element is that of the empty word */
    double *total;
    int32_t empty;
} model;

static uint64_t key_of(int32_t source, int32_t target)
{
    return ((uint64_t)(uint32_t)source + 1) << 32 | (uint32_t)target;
}

static pair *place_of(const model *m, int32_t source, int32_t target)
{
    uint64_t key = key_of(source, target);
    size_t at = (size_t)attn__mix64(key) & (m->places - 1);
    while (m->pairs[at].key && m->pairs[at].key != key)
        at = (at + 1) & (m->places - 1);
    return &m->pairs[at];
}

double attn__model1_probability(const attn__model1 *m, int32_t source, int32_t target)
{
    return place_of(m, source < 0 ? m->empty : source, target)->probability;
}

static bool grow(model *m)
{
    pair *old = m->pairs;
    size_t places = m->places, more = places ? 2 * places : 4096;
    m->pairs = attn__alloc_zero(m->context, attn__size_mul(more, sizeof *m->pairs));
    if (!m->pairs) {
        m->pairs = old;
        return false;
    }
    m->places = more;
    for (size_t i = 0; i < places; i++)
        if (old[i].key)
            *place_of(m, (int32_t)((old[i].key >> 32) - 1), (int32_t)(uint32_t)old[i].key) = old[i];
    attn__free(m->context, old);
    return true;
}

/* The tokens of a sentence, without <eos>. */
typedef struct sentence {
    const int32_t *ids;
    int64_t n;
} sentence;

static sentence sentence_of(const model *m, attn_side side, int64_t i)
{
    const attn__encoded *e = &m->corpus->side[side];
    sentence s = {e->ids + e->begin[i], e->begin[i + 1] - e->begin[i]};
    int32_t eos = attn_vocab_special(side == ATTN_SIDE_SOURCE ? m->source : m->target, ATTN_SPECIAL_EOS);
    while (s.n > 0 && (s.ids[s.n - 1] == eos || s.ids[s.n - 1] == e->pad))
        s.n--;
    return s;
}

static int32_t source_token(const model *m, const sentence *s, int64_t i)
{
    return i < s->n ? s->ids[i] : m->empty;
}

static bool find_pairs(model *m)
{
    for (int64_t i = 0; i < m->corpus->n; i++) {
        sentence from = sentence_of(m, ATTN_SIDE_SOURCE, i), to = sentence_of(m, ATTN_SIDE_TARGET, i);
        for (int64_t j = 0; j < to.n; j++) {
            for (int64_t k = 0; k <= from.n; k++) {
                if (2 * (m->used + 1) > m->places && !grow(m))
                    return false;
                int32_t source = source_token(m, &from, k);
                pair *p = place_of(m, source, to.ids[j]);
                m->used += !p->key;
                p->key = key_of(source, to.ids[j]);
                p->probability = 1;
            }
        }
    }
    return true;
}

/* Distributes each target token over the source tokens of its sentence, and adds the shares to the counts. */
static void expect(model *m)
{
    for (int64_t i = 0; i < m->corpus->n; i++) {
        sentence from = sentence_of(m, ATTN_SIDE_SOURCE, i), to = sentence_of(m, ATTN_SIDE_TARGET, i);
        for (int64_t j = 0; j < to.n; j++) {
            double sum = 0;
            for (int64_t k = 0; k <= from.n; k++)
                sum += place_of(m, source_token(m, &from, k), to.ids[j])->probability;
            for (int64_t k = 0; k <= from.n && sum > 0; k++) {
                int32_t source = source_token(m, &from, k);
                pair *p = place_of(m, source, to.ids[j]);
                double share = p->probability / sum;
                p->count += share;
                m->total[source] += share;
            }
        }
    }
}

static void maximise(model *m)
{
    for (size_t i = 0; i < m->places; i++) {
        pair *p = &m->pairs[i];
        double total = p->key ? m->total[(p->key >> 32) - 1] : 0;
        double share = total > 0 ? p->count / total : 0;
        p->probability = share < 1 ? share : 1;
        p->count = 0;
    }
    memset(m->total, 0, ((size_t)m->empty + 1) * sizeof *m->total);
}

/* Keeps only the likeliest `best` entries of each source token. */
static void prune(attn_lexicon *l, int64_t best)
{
    int64_t kept = 0, of = 0;
    attn__lexicon_sort(l);
    for (int64_t i = 0; i < l->n; i++) {
        of = i > 0 && l->entries[i].source == l->entries[i - 1].source ? of + 1 : 0;
        if (of < best)
            l->entries[kept++] = l->entries[i];
    }
    l->n = kept;
    attn__lexicon_sort(l);
}

/* Returns whether the entry can be written to a file: neither token contains a character that separates the fields
 * of a line. */
static bool can_be_written(const model *m, int32_t source, int32_t target)
{
    const char *from = attn_vocab_token(m->source, source), *to = attn_vocab_token(m->target, target);
    return *from && *to && !strpbrk(from, " \t\r\n") && !strpbrk(to, " \t\r\n");
}

static attn_status write(const model *m, const attn_lexicon_options *o, attn_lexicon *l)
{
    double least = o && o->min_probability > 0 ? o->min_probability : 1e-4;
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < m->places && status == ATTN_OK; i++) {
        const pair *p = &m->pairs[i];
        int32_t source = (int32_t)((p->key >> 32) - 1);
        int32_t target = (int32_t)(uint32_t)p->key;
        if (p->key && source != m->empty && p->probability >= least && can_be_written(m, source, target))
            status = attn__lexicon_add(l, (attn__lexicon_entry){source, target, (float)p->probability});
    }
    if (status == ATTN_OK)
        prune(l, o && o->best > 0 ? o->best : 100);
    return status;
}

static attn_status learn(model *m, int64_t iterations)
{
    m->total = attn__alloc_zero(m->context, attn__size_mul((size_t)m->empty + 1, sizeof *m->total));
    if (!m->total || !find_pairs(m))
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < iterations; i++) {
        attn_status status = attn__work(m->context, "iterations", i, iterations);
        if (status != ATTN_OK)
            return status;
        expect(m);
        maximise(m);
    }
    return ATTN_OK;
}

attn_status attn__model1_learn(attn__model1 **learned, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, int64_t iterations)
{
    model *m = attn__alloc(corpus->context, sizeof *m);
    *learned = NULL;
    if (!m)
        return ATTN_ERROR_MEMORY;
    *m = (model){.context = corpus->context,
                 .corpus = corpus,
                 .source = source,
                 .target = target,
                 .empty = (int32_t)attn_vocab_size(source)};
    attn_status status = learn(m, iterations > 0 ? iterations : 5);
    if (status == ATTN_OK)
        *learned = m;
    else
        attn__model1_free(m);
    return status;
}

void attn__model1_free(attn__model1 *m)
{
    if (!m)
        return;
    attn__free(m->context, m->pairs);
    attn__free(m->context, m->total);
    attn__free(m->context, m);
}

attn_status attn__model1_lexicon(attn_lexicon **lexicon, const attn__model1 *m, const attn_lexicon_options *options)
{
    *lexicon = attn__lexicon_create(m->context, m->source, m->target);
    attn_status status = *lexicon ? write(m, options, *lexicon) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && (*lexicon)->n == 0)
        status =
            attn__fail(m->context, ATTN_ERROR_ARGUMENT, "the sentence pairs have no tokens to learn a lexicon from");
    if (status != ATTN_OK) {
        attn_lexicon_destroy(*lexicon);
        *lexicon = NULL;
    }
    return status;
}

attn_status attn_lexicon_learn(attn_lexicon **lexicon, const attn_corpus *corpus, const attn_vocab *source,
                               const attn_vocab *target, const attn_lexicon_options *options)
{
    ATTN__CALL(corpus->context);
    attn__model1 *m;
    *lexicon = NULL;
    attn_status status = attn__model1_learn(&m, corpus, source, target, options ? options->iterations : 0);
    if (status == ATTN_OK)
        status = attn__model1_lexicon(lexicon, m, options);
    attn__model1_free(m);
    return status;
}
