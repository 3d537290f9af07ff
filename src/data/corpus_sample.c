/* SPDX-License-Identifier: MIT
 * Subword regularization (Kudo 2018, arXiv:1804.10959, section 3): sentences segmented in several ways, drawn from the
 * 64 best.  They are drawn when a corpus is made, so that an epoch only picks one. */
#include "data/corpus.h"

#include "base/rng.h"
#include "data/pairs.h"
#include "data/vocab.h"

#include <math.h>
#include <string.h>

enum { BEST = 64 };

/* The best segmentations of one text. */
typedef struct segmentations {
    const attn_vocab *vocab;
    int32_t *ids; /* [BEST][most] */
    int64_t n, most;
    int64_t lengths[BEST];
    double scores[BEST];
} segmentations;

static void take_piece(void *user, const char *piece, size_t length)
{
    segmentations *s = user;
    if (s->n == BEST || s->lengths[s->n] >= s->most - 1)
        return;
    int32_t id = attn__vocab_id(s->vocab, piece, length);
    s->ids[s->n * s->most + s->lengths[s->n]++] = id < 0 ? attn_vocab_special(s->vocab, ATTN_SPECIAL_UNK) : id;
}

static void end_segmentation(void *user, double score)
{
    segmentations *s = user;
    if (s->n == BEST)
        return;
    s->ids[s->n * s->most + s->lengths[s->n]++] = attn_vocab_special(s->vocab, ATTN_SPECIAL_EOS);
    s->scores[s->n++] = score;
}

/* Scores become cumulative probabilities, in proportion to exp(alpha * score). */
static void accumulate(segmentations *s, double alpha)
{
    double sum = 0, highest = s->scores[0];
    for (int64_t i = 1; i < s->n; i++)
        highest = fmax(highest, s->scores[i]);
    for (int64_t i = 0; i < s->n; i++)
        s->scores[i] = sum += exp(alpha * (s->scores[i] - highest));
}

static int64_t draw(const segmentations *s, attn__rng *rng)
{
    double at = attn__rng_uniform(rng) * s->scores[s->n - 1];
    int64_t i = 0;
    while (i < s->n - 1 && s->scores[i] <= at)
        i++;
    return i;
}

static attn_status append(attn_corpus *c, attn__encoded *e, int64_t row, int64_t *room, const int32_t *ids, int64_t n)
{
    int64_t begin = e->begin[row];
    if (begin + n > *room) {
        *room = 2 * *room + n;
        int32_t *larger = attn__realloc(c->context, e->ids, attn__size_mul((size_t)*room, sizeof *ids));
        if (!larger)
            return ATTN_ERROR_MEMORY;
        e->ids = larger;
    }
    memcpy(e->ids + begin, ids, (size_t)n * sizeof *ids);
    e->begin[row + 1] = begin + n;
    e->longest = n > e->longest ? n : e->longest;
    return ATTN_OK;
}

attn_status attn__corpus_sample(attn_corpus *c, const attn_pairs *pairs, attn_side side, const attn_vocab *vocab,
                                const attn_encode_options *options)
{
    attn__encoded *e = &c->sampled[side];
    segmentations s = {.vocab = vocab, .most = options->steps ? options->steps : 128};
    int64_t rows = c->n * c->samples, room = c->side[side].begin[c->n] * c->samples;
    e->begin = attn__alloc_zero(c->context, attn__size_mul((size_t)rows + 1, sizeof *e->begin));
    s.ids = attn__alloc(c->context, attn__size_mul((size_t)s.most * BEST, sizeof *s.ids));
    e->ids = attn__alloc(c->context, attn__size_mul((size_t)room + 1, sizeof *e->ids));
    attn_status status = e->begin && s.ids && e->ids ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < c->n && status == ATTN_OK; i++) {
        attn__rng rng = {.seed = options->seed, .stream = attn__mix64((uint64_t)(2 * i + side))};
        s.n = 0;
        memset(s.lengths, 0, sizeof s.lengths);
        status = attn__vocab_best(vocab, attn__pairs_side(pairs, i, side), BEST, take_piece, end_segmentation, &s);
        if (status == ATTN_OK && s.n == 0) /* a text without pieces */
            end_segmentation(&s, 0);
        if (status == ATTN_OK)
            accumulate(&s, options->alpha);
        for (int64_t k = 0; k < c->samples && status == ATTN_OK; k++) {
            int64_t drawn = draw(&s, &rng);
            status = append(c, e, i * c->samples + k, &room, s.ids + drawn * s.most, s.lengths[drawn]);
        }
    }
    attn__free(c->context, s.ids);
    return status;
}

attn__sentence attn__corpus_sentence(const attn_corpus *corpus, attn_side side, int64_t i, uint64_t seed, int64_t epoch)
{
    const attn__encoded *e = &corpus->side[side];
    if (corpus->samples > 0) {
        attn__rng rng = {.seed = seed, .stream = attn__mix64(attn__mix64((uint64_t)epoch) ^ (uint64_t)(2 * i + side))};
        e = &corpus->sampled[side];
        i = i * corpus->samples + (int64_t)attn__rng_below(&rng, (uint64_t)corpus->samples);
    }
    return (attn__sentence){e->ids + e->begin[i], e->begin[i + 1] - e->begin[i]};
}
