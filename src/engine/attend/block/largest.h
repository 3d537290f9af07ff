/* SPDX-License-Identifier: MIT
 *
 * largest.h - finds the k largest scores of a row (attn_problem.top_k) in one pass over the keys.  No branch depends on
 * a comparison of scores, because branch prediction would fail there.
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
    int64_t k, n, room; /* k: number of scores to find; n: number of candidates, less than `room`; room: capacity */
    double least;       /* minimum of the k largest scores so far; -inf while there are fewer than k */
    int64_t last;       /* the last key whose score is `least` */
    bool has_nan;       /* true if a score is NaN; attn__largest_takes then accepts all keys */
} attn__largest;

/* Returns the capacity for candidates. It is much larger than k, so that attn__largest_cut is rarely called. */
static inline int64_t attn__largest_room(int64_t k)
{
    return k ? 2 * k + 192 : 0;
}

/* Returns the size in bytes of the memory of one row. The memory must be aligned to 8 bytes. */
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

/* Returns the element of x[n] with rank k, where rank 0 is the maximum. The algorithm is quickselect (Hoare 1961). */
static inline double attn__select(double *x, int64_t n, int64_t k)
{
    for (int64_t low = 0;;) {
        int64_t middle = low + (n - low) / 2, place = low, equal = 0;
        double pivot = x[middle];
        for (int64_t i = low; i < n; i++) { /* moves numbers larger than the pivot to the front */
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

/* Keeps only the k largest candidates. There must be at least k candidates. */
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

/* Keys are added in order, and an earlier key wins a tie. A masked key has the score -infinity. */
static inline void attn__largest_add(attn__largest *of, double score, int64_t key)
{
    of->has_nan |= score != score;
    of->score[of->n] = score;
    of->key[of->n] = key;
    of->n += score > of->least;
    if (of->n == of->room)
        attn__largest_cut(of);
}

static inline void attn__largest_end(attn__largest *of)
{
    if (of->n >= of->k)
        attn__largest_cut(of);
}

/* Reports whether a key of the row is among the k largest. All keys of the row must have been added before. */
static inline bool attn__largest_takes(const attn__largest *of, double score, int64_t key)
{
    return (of->n < of->k) | of->has_nan | (score > of->least) | ((score == of->least) & (key <= of->last));
}

#endif
