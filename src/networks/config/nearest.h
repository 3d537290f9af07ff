/* SPDX-License-Identifier: MIT */
#ifndef ATTN_CONFIG_NEAREST_H
#define ATTN_CONFIG_NEAREST_H

#include <stdbool.h>

/* Finds the known word nearest to a misspelt word, for messages with "did you mean". Begin with {.word = word}. Then
 * call attn_nearest_offer for each known word. Finally attn_nearest_found tells whether `best` is near enough to be
 * suggested. */
typedef struct attn_nearest {
    const char *word;
    char best[64];
    int distance;
} attn_nearest;
void attn_nearest_offer(attn_nearest *nearest, const char *candidate);
bool attn_nearest_found(const attn_nearest *nearest);

#endif
