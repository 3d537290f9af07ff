/* SPDX-License-Identifier: MIT
 * Counts shared n-grams by sorting them. */
#include "train/ngrams.h"

#include "base/context.h"

#include <stdlib.h>
#include <string.h>

/* An n-gram of a text. Text 0 is the prediction. `head` is the number of its first n - 1 words, so that n-grams are
 * equal if heads and last words are equal. */
typedef struct gram {
    int64_t head;
    const char *last;
    int64_t start, text;
} gram;

static int by_words(const gram *x, const gram *y)
{
    return x->head != y->head ? (x->head > y->head) - (x->head < y->head) : strcmp(x->last, y->last);
}

static int by_words_and_text(const void *a, const void *b)
{
    const gram *x = a, *y = b;
    int words = by_words(x, y);
    return words ? words : (x->text > y->text) - (x->text < y->text);
}

/* Lists the n-grams of a text in `grams`, and returns how many there are. heads[first + i] is the number of the (n -
 * 1)-gram that begins at word i. */
static int64_t list_grams(gram *grams, const attn__tokens *words, int64_t text, const int64_t *heads, int64_t first,
                          int n)
{
    int64_t count = words->n - n + 1;
    for (int64_t i = 0; i < count; i++)
        grams[i] = (gram){heads[first + i], words->word[i + n - 1], first + i, text};
    return count > 0 ? count : 0;
}

/* Sorts the n-grams of all texts. In `heads`, gives each distinct n-gram a number, for the next order. Returns how many
 * of the prediction's n-grams match a reference. A match counts at most as often as the n-gram occurs in the reference
 * that has it most often. */
static int64_t match_grams(gram *grams, int64_t n, int64_t *heads)
{
    int64_t matches = 0, next;
    qsort(grams, (size_t)n, sizeof *grams, by_words_and_text);
    for (int64_t i = 0; i < n; i = next) {
        int64_t predicted = 0, wanted = 0, run = 0;
        for (next = i; next < n && by_words(grams + i, grams + next) == 0; next++) {
            run = next > i && grams[next].text == grams[next - 1].text ? run + 1 : 1;
            if (grams[next].text == 0)
                predicted = run;
            else
                wanted = run > wanted ? run : wanted;
            heads[grams[next].start] = i;
        }
        matches += predicted < wanted ? predicted : wanted;
    }
    return matches;
}

attn_status attn__ngrams_add(attn_context *context, const attn__tokens *prediction, const attn__tokens *references,
                             int64_t nreferences, attn__ngrams *orders, int n)
{
    size_t words = (size_t)prediction->n;
    for (int64_t r = 0; r < nreferences; r++)
        words = attn__size_add(words, (size_t)references[r].n);
    gram *grams = attn__alloc(context, attn__size_mul(words, sizeof *grams));
    int64_t *heads = attn__alloc_zero(context, attn__size_mul(words, sizeof *heads));
    attn_status status = grams && heads ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int order = 1; status == ATTN_OK && order <= n; order++) {
        int64_t predicted = list_grams(grams, prediction, 0, heads, 0, order), all = predicted, first = prediction->n;
        for (int64_t r = 0; r < nreferences; first += references[r++].n)
            all += list_grams(grams + all, &references[r], r + 1, heads, first, order);
        orders[order - 1].matches += match_grams(grams, all, heads);
        orders[order - 1].predicted += predicted;
        orders[order - 1].wanted += all - predicted;
    }
    attn__free(context, heads);
    attn__free(context, grams);
    return status;
}

/* Sorts the n-grams of all texts. In `heads`, gives each distinct n-gram a number, for the next order. Adds to shared[x
 * * n + y] the number of n-grams that texts x and y have in common. own[t] is scratch memory for the count of one
 * n-gram in text t. */
static void share_grams(gram *grams, int64_t all, int64_t *heads, int64_t n, int64_t *own, int64_t *shared)
{
    int64_t next;
    qsort(grams, (size_t)all, sizeof *grams, by_words_and_text);
    for (int64_t at = 0; at < all; at = next) {
        /* from here, grams[at + k].text for k < texts is overwritten: it lists the texts that contain this n-gram */
        int64_t texts = 0;
        for (next = at; next < all && by_words(grams + at, grams + next) == 0; next++) {
            heads[grams[next].start] = at;
            if (next == at || grams[next].text != grams[at + texts - 1].text) {
                grams[at + texts++].text = grams[next].text;
                own[grams[next].text] = 0;
            }
            own[grams[next].text]++;
        }
        for (int64_t i = 0; i < texts; i++) {
            int64_t x = grams[at + i].text;
            for (int64_t j = 0; j < texts; j++) {
                int64_t y = grams[at + j].text;
                shared[x * n + y] += own[x] < own[y] ? own[x] : own[y];
            }
        }
    }
}

attn_status attn__ngrams_shared(attn_context *context, const attn__tokens *texts, int64_t n, int orders,
                                int64_t *counts, int64_t *shared)
{
    size_t words = 0;
    for (int64_t i = 0; i < n; i++)
        words = attn__size_add(words, (size_t)texts[i].n);
    gram *grams = attn__alloc(context, attn__size_mul(words, sizeof *grams));
    int64_t *heads = attn__alloc_zero(context, attn__size_mul(attn__size_add(words, (size_t)n), sizeof *heads));
    attn_status status = grams && heads ? ATTN_OK : ATTN_ERROR_MEMORY;
    memset(shared, 0, (size_t)(orders * n * n) * sizeof *shared);
    for (int order = 1; status == ATTN_OK && order <= orders; order++, counts += n, shared += n * n) {
        int64_t all = 0, first = 0;
        for (int64_t i = 0; i < n; first += texts[i++].n) {
            counts[i] = list_grams(grams + all, &texts[i], i, heads, first, order);
            all += counts[i];
        }
        share_grams(grams, all, heads, n, heads + words, shared);
    }
    attn__free(context, heads);
    attn__free(context, grams);
    return status;
}

attn_status attn__reference_counts_fit(attn_context *context, const int64_t *counts, int64_t n)
{
    for (int64_t i = 0; counts && i < n; i++)
        if (counts[i] < 1)
            return attn__fail(context, ATTN_ERROR_ARGUMENT, "prediction %lld has %lld references; expected at least 1",
                              (long long)i, (long long)counts[i]);
    return ATTN_OK;
}
