/* SPDX-License-Identifier: MIT
 * Computes a local alignment with affine gaps (Smith and Waterman 1981; Gotoh 1982) of a sequence with the positions of
 * a chain. A chain from an experiment has breaks, because loops that move too much have no atoms. A gap at a break
 * costs little, and elsewhere it costs as much as in BLAST. Residues are thus not aligned across a break. A position
 * whose residue is unknown matches every letter with score 0. */
#include "data/structure.h"

#include <string.h>

enum { OPEN = 11, EXTEND = 1, OPEN_BREAK = 4 };

/* Lower half of the matrix BLOSUM62 (Henikoff and Henikoff 1992, doi:10.1073/pnas.89.22.10915). `order` is the order
 * of its rows and columns. */
static const char order[] = "ARNDCQEGHILKMFPSTWYVBZX";
/* clang-format off */
static const int8_t blosum[] = {
     4,
    -1,  5,
    -2,  0,  6,
    -2, -2,  1,  6,
     0, -3, -3, -3,  9,
    -1,  1,  0,  0, -3,  5,
    -1,  0,  0,  2, -4,  2,  5,
     0, -2,  0, -1, -3, -2, -2,  6,
    -2,  0,  1, -1, -3,  0,  0, -2,  8,
    -1, -3, -3, -3, -1, -3, -3, -4, -3,  4,
    -1, -2, -3, -4, -1, -2, -3, -4, -3,  2,  4,
    -1,  2,  0, -1, -3,  1,  1, -2, -1, -3, -2,  5,
    -1, -1, -2, -3, -1,  0, -2, -3, -2,  1,  2, -1,  5,
    -2, -3, -3, -3, -2, -3, -3, -3, -1,  0,  0, -3,  0,  6,
    -1, -2, -2, -1, -3, -1, -1, -2, -2, -3, -3, -1, -2, -4,  7,
     1, -1,  1,  0, -1,  0,  0,  0, -1, -2, -2,  0, -1, -2, -1,  4,
     0, -1,  0, -1, -1, -1, -1, -2, -2, -1, -1, -1, -1, -2, -1,  1,  5,
    -3, -3, -4, -4, -2, -2, -3, -2, -2, -3, -2, -3, -1,  1, -4, -3, -2, 11,
    -2, -2, -2, -3, -2, -1, -2, -3,  2, -1, -1, -2, -1,  3, -3, -2, -2,  2,  7,
     0, -3, -3, -3, -1, -2, -2, -3, -3,  3,  1, -2,  1, -1, -2, -2,  0, -3, -1,  4,
    -2, -1,  3,  4, -3,  0,  1, -1,  0, -3, -4,  0, -3, -3, -2,  0, -1, -4, -3, -3,  4,
    -1,  0,  0,  1, -3,  3,  4, -2,  0, -3, -3,  1, -1, -3, -1,  0, -1, -3, -2, -2,  1,  4,
     0, -1, -1, -1, -2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -2,  0,  0, -2, -1, -1, -1, -1, -1,
};
/* clang-format on */

/* Returns the index of a letter's row in BLOSUM62. Selenocysteine is scored as cysteine, pyrrolysine as lysine, and
 * 'J' (leucine or isoleucine) as leucine. Any other unlisted letter is scored as unknown. */
static int row_of(char letter)
{
    char known = letter == 'U' ? 'C' : letter == 'O' ? 'K' : letter == 'J' ? 'L' : letter;
    const char *at = strchr(order, known);
    return at ? (int)(at - order) : (int)(sizeof order - 2);
}

/* The state of an alignment. `scores` is a table of the scores of all pairs of letters, which is filled once per
 * alignment. */
typedef struct aligning {
    const char *letters;
    const attn__position *positions;
    int64_t n, m;
    int8_t scores[26][26];
    /* [m + 1], for the row above. best: the best score of an alignment that ends at the cell. skipping: the best
     * score of an alignment that ends with a skipped letter. */
    int32_t *best, *skipping;
    uint8_t *steps; /* [n + 1, m + 1] */
    int64_t end_i, end_j;
    int32_t top;
} aligning;

/* How a cell was reached: one of STOP, BOTH, SKIP_LETTER and SKIP_POSITION, in the bits FROM. The bits LETTER_OPENS
 * and POSITION_OPENS tell whether a gap that ends at this cell also begins at it. */
enum { STOP, BOTH, SKIP_LETTER, SKIP_POSITION, FROM = 3, LETTER_OPENS = 4, POSITION_OPENS = 8 };

static void fill_scores(aligning *a)
{
    for (int x = 0; x < 26; x++) {
        for (int y = 0; y < 26; y++) {
            int i = row_of((char)('A' + x)), j = row_of((char)('A' + y)), low = i < j ? i : j, high = i < j ? j : i;
            a->scores[x][y] = blosum[high * (high + 1) / 2 + low];
        }
    }
}

/* Returns whether the chain is broken after its first j positions. */
static bool breaks(const aligning *a, int64_t j)
{
    const attn__position *p = a->positions + j;
    return j < a->m && (p->broken || p->letter == 0 || p[-1].letter == 0);
}

static int score_of(const aligning *a, int64_t i, int64_t j)
{
    char letter = a->positions[j].letter;
    return letter ? a->scores[a->letters[i] - 'A'][letter - 'A'] : 0;
}

static void fill_row(aligning *a, int64_t i)
{
    int32_t diagonal = 0, over = INT32_MIN / 2; /* over: best score of an alignment that ends with a skipped position */
    uint8_t *step = a->steps + i * (a->m + 1);
    for (int64_t j = 1; j <= a->m; j++) {
        bool here = breaks(a, j), absent = a->positions[j - 1].letter == 0;
        uint8_t how = 0;
        int32_t both = diagonal + score_of(a, i - 1, j - 1);
        int32_t extend = here ? 0 : EXTEND, opened = a->best[j] - extend - (here ? OPEN_BREAK : OPEN);
        int32_t letter = a->skipping[j] - extend;
        if (opened >= letter) {
            letter = opened;
            how |= LETTER_OPENS;
        }
        extend = absent ? 0 : EXTEND;
        over -= extend;
        opened = a->best[j - 1] - extend - (absent ? OPEN_BREAK : OPEN);
        if (opened >= over) {
            over = opened;
            how |= POSITION_OPENS;
        }
        int32_t best = both >= letter && both >= over ? both : letter >= over ? letter : over;
        how |= best <= 0 ? STOP : best == both ? BOTH : best == letter ? SKIP_LETTER : SKIP_POSITION;
        diagonal = a->best[j];
        a->best[j] = best > 0 ? best : 0;
        a->skipping[j] = letter;
        step[j] = how;
        if (best > a->top) {
            a->top = best;
            a->end_i = i;
            a->end_j = j;
        }
    }
}

static void trace(const aligning *a, int64_t *to)
{
    int64_t i = a->end_i, j = a->end_j;
    int gap = BOTH; /* kind of the gap in which the current path is; BOTH: it is in no gap */
    while (i > 0 && j > 0) {
        uint8_t step = a->steps[i * (a->m + 1) + j];
        int how = gap == BOTH ? step & FROM : gap;
        if (how == STOP)
            break;
        if (how == BOTH) {
            to[--i] = --j;
            continue;
        }
        bool opens = step & (how == SKIP_LETTER ? LETTER_OPENS : POSITION_OPENS);
        gap = opens ? BOTH : how;
        i -= how == SKIP_LETTER;
        j -= how == SKIP_POSITION;
    }
}

attn_status attn__structure_align(attn_context *context, const char *letters, int64_t n,
                                  const attn__position *positions, int64_t m, int64_t *to, int64_t *score)
{
    aligning a = {.letters = letters, .positions = positions, .n = n, .m = m};
    size_t row = (size_t)m + 1;
    a.best = attn__alloc_zero(context, attn__size_mul(row, sizeof *a.best));
    a.skipping = attn__alloc(context, attn__size_mul(row, sizeof *a.skipping));
    a.steps = attn__alloc(context, attn__size_mul((size_t)n + 1, row));
    attn_status status = a.best && a.skipping && a.steps ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK) {
        fill_scores(&a);
        for (int64_t j = 0; j <= m; j++)
            a.skipping[j] = INT32_MIN / 2;
        for (int64_t i = 0; i < n; i++)
            to[i] = -1;
        for (int64_t i = 1; i <= n; i++)
            fill_row(&a, i);
        trace(&a, to);
        *score = a.top;
    }
    attn__free(context, a.steps);
    attn__free(context, a.skipping);
    attn__free(context, a.best);
    return status;
}
