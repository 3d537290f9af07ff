/* SPDX-License-Identifier: MIT
 *
 * nearest.h - finds the word that was probably meant.
 */
#ifndef ATTN_BASE_NEAREST_H
#define ATTN_BASE_NEAREST_H

#include <stdbool.h>

/* Finds the known word nearest to a misspelt word, for "did you mean". Begin with {.word = word} and offer each known
 * word. Then check whether `best` is near enough to be suggested. These functions cannot fail. */
typedef struct attn_nearest {
    const char *word;
    char best[64];
    int distance;
} attn_nearest;
void attn_nearest_offer(attn_nearest *nearest, const char *candidate);
bool attn_nearest_found(const attn_nearest *nearest);

#endif
