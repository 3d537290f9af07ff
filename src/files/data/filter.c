/* SPDX-License-Identifier: MIT
 * Filters sentence pairs: duplicates, and pairs of too different lengths. */
#include "data/pairs.h"

#include "base/hash.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

/* Returns the number of characters of a text. It counts all bytes except the continuation bytes of UTF-8. */
static int64_t characters(const char *text)
{
    int64_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

static bool too_unlike(const attn_pair *pair, double ratio)
{
    double a = (double)characters(pair->source), b = (double)characters(pair->target);
    return ratio > 0 && (a > ratio * b || b > ratio * a);
}

/* ------------------------------------------------------------------------------------------ duplicates */

typedef struct seen {
    uint64_t hash;
    int64_t index;
    const attn_pair *pair;
} seen;

/* Equal pairs become adjacent and stay in the order of the file. */
static int by_text(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    int order = strcmp(x->pair->source, y->pair->source);
    order = order ? order : strcmp(x->pair->target, y->pair->target);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Sets dropped[i] to true for every pair that equals an earlier pair. */
static attn_status find_duplicates(const attn_pairs *all, bool *dropped)
{
    seen *order = attn__alloc(all->context, attn__size_mul((size_t)all->n, sizeof *order));
    if (!order)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < all->n; i++) {
        const attn_pair *pair = &all->items[i];
        uint64_t hash = attn__hash_text(attn__hash_text(ATTN__HASH_BEGIN, pair->source), pair->target);
        order[i] = (seen){hash, i, pair};
    }
    qsort(order, (size_t)all->n, sizeof *order, by_text);
    for (int64_t i = 1; i < all->n; i++) {
        const attn_pair *one = order[i - 1].pair, *two = order[i].pair;
        if (order[i - 1].hash == order[i].hash && strcmp(one->source, two->source) == 0 &&
            strcmp(one->target, two->target) == 0)
            dropped[order[i].index] = true;
    }
    attn__free(all->context, order);
    return ATTN_OK;
}

/* ---------------------------------------------------------------------------------------------- public */

attn_status attn_pairs_filter(attn_pairs **kept, attn_pairs_filtered *counts, const attn_pairs *all,
                              const attn_pairs_filter_options *options)
{
    ATTN__CALL(all->context);
    *kept = NULL;
    *counts = (attn_pairs_filtered){0};
    if (options->max_ratio != 0 && !(options->max_ratio >= 1))
        return attn__fail(all->context, ATTN_ERROR_ARGUMENT, "filter: the ratio is %g; it must be at least 1",
                          options->max_ratio);
    bool *dropped = attn__alloc_zero(all->context, attn__size_add((size_t)all->n, 1));
    attn_status status = !dropped ? ATTN_ERROR_MEMORY : options->unique ? find_duplicates(all, dropped) : ATTN_OK;
    for (int64_t i = 0; i < all->n && status == ATTN_OK; i++) {
        bool unlike = !dropped[i] && too_unlike(&all->items[i], options->max_ratio);
        counts->duplicates += dropped[i];
        counts->unlike += unlike;
        dropped[i] = dropped[i] || unlike;
    }
    if (status == ATTN_OK)
        status = attn__pairs_create(kept, all->context, all->n - counts->duplicates - counts->unlike);
    for (int64_t i = 0; i < all->n && status == ATTN_OK; i++)
        if (!dropped[i])
            attn__pairs_copy(*kept, all, i);
    attn__free(all->context, dropped);
    return status;
}

attn_status attn_pairs_mix(attn_pairs **mixed, const attn_pairs *own, const attn_pairs *other, int64_t n, uint64_t seed)
{
    ATTN__CALL(own->context);
    *mixed = NULL;
    n = n < other->n ? n : other->n;
    if (n < 0)
        return attn__fail(own->context, ATTN_ERROR_ARGUMENT,
                          "mix: the number of pairs is %lld; it must not be negative", (long long)n);
    int64_t *order = attn__alloc(own->context, attn__size_mul((size_t)other->n, sizeof *order));
    if (!order)
        return ATTN_ERROR_MEMORY;
    attn__rng rng = {.seed = seed, .stream = 0x6d6978};
    for (int64_t i = 0; i < other->n; i++)
        order[i] = i;
    attn__rng_shuffle(&rng, order, other->n);
    attn_status status = attn__pairs_create(mixed, own->context, own->n + n);
    for (int64_t i = 0; i < own->n && status == ATTN_OK; i++)
        attn__pairs_copy(*mixed, own, i);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        attn__pairs_copy(*mixed, other, order[i]);
    attn__free(own->context, order);
    return status;
}
