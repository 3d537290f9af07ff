/* SPDX-License-Identifier: MIT */
#include "config/nearest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Returns the number of edits that change a to b. An edit inserts, deletes or changes one byte, or swaps two adjacent
 * bytes (optimal string alignment). */
static int edits(const char *a, const char *b)
{
    int rows[3][LONGEST + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST || m > LONGEST)
        return n > m ? n : m;
    int *before = rows[0], *above = rows[1], *row = rows[2];
    for (int j = 0; j <= m; j++)
        above[j] = j;
    for (int i = 1; i <= n; i++) {
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[m];
}

void attn_nearest_offer(attn_nearest *nearest, const char *candidate)
{
    int distance = edits(nearest->word, candidate);
    /* a name that begins with the typed word counts as one edit away from the typed word */
    if (nearest->word[0] && strncmp(candidate, nearest->word, strlen(nearest->word)) == 0)
        distance = 1;
    if (nearest->best[0] && distance >= nearest->distance)
        return;
    nearest->distance = distance;
    snprintf(nearest->best, sizeof nearest->best, "%s", candidate);
}

bool attn_nearest_found(const attn_nearest *nearest)
{
    int length = (int)strlen(nearest->word);
    return nearest->best[0] && nearest->distance <= (length < 4 ? 1 : length / 2);
}
