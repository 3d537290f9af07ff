/* SPDX-License-Identifier: MIT
 * Counting shared n-grams by sorting them. */
#include "train/ngrams.h"

#include "base/context.h"

#include <stdlib.h>
#include <string.h>

/* An n-gram: the number of its first n - 1 words, its last word, and where it starts. */
typedef struct gram {
    int64_t head;
    const char *last;
    int64_t start;
} gram;

static int by_words(const void *a, const void *b)
{
    const gram *x = a, *y = b;
    return x->head != y->head ? (x->head > y->head) - (x->head < y->head) : strcmp(x->last, y->last);
}

/* The n-grams of a sentence whose words are numbered from `first` on in `heads`. */
static int64_t list_grams(gram *grams, const attn__words *words, const int64_t *heads, int64_t first, int n)
{
    int64_t count = words->n - n + 1;
    for (int64_t i = 0; i < count; i++)
        grams[i] = (gram){heads[first + i], words->word[i + n - 1], first + i};
    return count > 0 ? count : 0;
}

/* Sorts the n-grams of both sentences, numbers equal ones alike for the next order, and returns how many of the
 * prediction, whose starts come before `border`, are found in the reference, each of that as often as it is there. */
static int64_t match_grams(gram *grams, int64_t n, int64_t border, int64_t *heads)
{
    int64_t matches = 0, next;
    qsort(grams, (size_t)n, sizeof *grams, by_words);
    for (int64_t i = 0; i < n; i = next) {
        int64_t predicted = 0;
        for (next = i; next < n && by_words(grams + i, grams + next) == 0; next++) {
            predicted += grams[next].start < border;
            heads[grams[next].start] = i;
        }
        int64_t wanted = next - i - predicted;
        matches += predicted < wanted ? predicted : wanted;
    }
    return matches;
}

attn_status attn__ngrams_add(attn_context *context, const attn__words *prediction, const attn__words *reference,
                             attn__ngrams *orders, int n)
{
    size_t words = attn__size_add((size_t)prediction->n, (size_t)reference->n);
    gram *grams = attn__alloc(context, attn__size_mul(words, sizeof *grams));
    int64_t *heads = attn__alloc_zero(context, attn__size_mul(words, sizeof *heads));
    attn_status status = grams && heads ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int order = 1; status == ATTN_OK && order <= n; order++) {
        int64_t predicted = list_grams(grams, prediction, heads, 0, order);
        int64_t wanted = list_grams(grams + predicted, reference, heads, prediction->n, order);
        orders[order - 1].matches += match_grams(grams, predicted + wanted, prediction->n, heads);
        orders[order - 1].predicted += predicted;
        orders[order - 1].wanted += wanted;
    }
    attn__free(context, heads);
    attn__free(context, grams);
    return status;
}
