/* SPDX-License-Identifier: MIT
 *
 * largest.h - the k largest scores of a row (attn_problem.top_k), found by a walk over its keys, first to last.  No branch
 * depends on how a score compares with another, since no processor predicts that.
 */
#ifndef ATTN_ATTEND_LARGEST_H
#define ATTN_ATTEND_LARGEST_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct attn__largest {
    double *score, *scratch; /* scores of the candidates, in the order of their keys */
    int64_t *key;
    int64_t k, n, room; /* n candidates are kept; n < room */
    double least;       /* the smallest of the k largest scores so far; -inf if there are fewer */
    int64_t last;       /* the key of `least` */
    bool has_nan;       /* a score is NaN; then all keys are kept */
} attn__largest;

/* So many candidates that they are rarely cut. */
static inline int64_t attn__largest_room(int64_t k)
{
    return k ? 2 * k + 192 : 0;
}

/* Bytes of a row's memory, aligned to 8. */
static inline size_t attn__largest_bytes(int64_t k)
{
    return (size_t)attn__largest_room(k) * (2 * sizeof(double) + sizeof(int64_t));
}

static inline attn__largest attn__largest_start(void *memory, int64_t k)
{
    attn__largest of = {.score = memory, .k = k, .room = attn__largest_room(k), .least = (double)-INFINITY};
    of.scratch = of.score + of.room;
    of.key = (int64_t *)(void *)(of.scratch + of.room);
    return of;
}

/* The k-th largest of n numbers, k from 0 (Hoare 1961, quickselect). */
static inline double attn__select(double *x, int64_t n, int64_t k)
{
    for (int64_t low = 0;;) {
        int64_t middle = low + (n - low) / 2, place = low, equal = 0;
        double pivot = x[middle];
        for (int64_t i = low; i < n; i++) { /* larger ones first */
            double moved = x[i];
            x[i] = x[place];
            x[place] = moved;
            place += moved > pivot;
            equal += moved == pivot;
        }
        if (k < place) {
            n = place;
            continue;
        }
        if (k < place + equal)
            return pivot;
        low = place;
        for (int64_t i = place; i < n; i++) {
            double moved = x[i];
            x[i] = x[low];
            x[low] = moved;
            low += moved == pivot;
        }
    }
}

/* Reduces the candidates to the k largest; there must be at least k. */
static inline void attn__largest_cut(attn__largest *of)
{
    int64_t ties = of->k, kept = 0;
    for (int64_t i = 0; i < of->n; i++)
        of->scratch[i] = of->score[i];
    of->least = attn__select(of->scratch, of->n, of->k - 1);
    for (int64_t i = 0; i < of->n; i++)
        ties -= of->score[i] > of->least;
    for (int64_t i = 0; i < of->n; i++) {
        bool tied = (of->score[i] == of->least) & (ties > 0), takes = tied | (of->score[i] > of->least);
        of->score[kept] = of->score[i];
        of->key[kept] = of->key[i];
        of->last = tied ? of->key[i] : of->last;
        ties -= tied;
        kept += takes;
    }
    of->n = kept;
}

/* Adds keys in order: a later key never replaces an earlier one with the same score. -inf masks its key. */
static inline void attn__largest_add(attn__largest *of, double score, int64_t key)
{
    of->has_nan |= score != score;
    of->score[of->n] = score;
    of->key[of->n] = key;
    of->n += score > of->least;
    if (of->n == of->room)
        attn__largest_cut(of);
}

/* After the last key. */
static inline void attn__largest_end(attn__largest *of)
{
    if (of->n >= of->k)
        attn__largest_cut(of);
}

/* Whether a key of the row is among the k largest after all keys were added. */
static inline bool attn__largest_takes(const attn__largest *of, double score, int64_t key)
{
    return (of->n < of->k) | of->has_nan | (score > of->least) | ((score == of->least) & (key <= of->last));
}

#endif
