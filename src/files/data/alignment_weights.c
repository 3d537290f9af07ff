/* SPDX-License-Identifier: MIT
 *
 * Computes weights for the sequences of an alignment. They depend on the number of similar sequences, or on the rarity
 * of residues.
 */
#include "data/alignment.h"

#include "base/parallel.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- by identity */

/* Rows are compared in blocks of BLOCK rows, so that a row is read BLOCK times while it is in the cache. Comparing
 * two rows stops when they differ too much. For most pairs this is the case after a quarter of the columns. */
enum { BLOCK = 64 };

typedef struct comparing {
    const attn_alignment *a;
    int64_t most; /* maximum number of columns in which similar rows differ */
    int64_t blocks;
    int64_t first;   /* first block of the current part */
    uint32_t *alike; /* [rows] */
} comparing;

static int64_t last_of(const comparing *w, int64_t block)
{
    int64_t end = (block + 1) * BLOCK;
    return end < w->a->rows ? end : w->a->rows;
}

/* The counts are written to memory only once per block, because other threads write to the same memory. The order of
 * these sums does not matter, because they are integers. */
static void compare_blocks(void *user, int64_t item, int thread)
{
    const comparing *w = user;
    int64_t first = w->first + item / w->blocks, second = item % w->blocks;
    uint32_t mine[BLOCK] = {0}, theirs[BLOCK] = {0};
    (void)thread;
    for (int64_t i = first * BLOCK; second >= first && i < last_of(w, first); i++) {
        const char *row = attn_alignment_row(w->a, i);
        for (int64_t j = second == first ? i + 1 : second * BLOCK; j < last_of(w, second); j++) {
            const char *other = attn_alignment_row(w->a, j);
            uint32_t alike = attn__differing_columns(row, other, w->a->columns, w->most) <= w->most;
            mine[i % BLOCK] += alike;
            theirs[j % BLOCK] += alike;
        }
    }
    for (int64_t i = 0; second >= first && i < BLOCK; i++) {
        if (mine[i])
            __atomic_fetch_add(&w->alike[first * BLOCK + i], mine[i], __ATOMIC_RELAXED);
        if (theirs[i])
            __atomic_fetch_add(&w->alike[second * BLOCK + i], theirs[i], __ATOMIC_RELAXED);
    }
}

/* Compares all pairs of blocks, in parts of about equal work for the progress report. A block is compared only with
 * later blocks, so the last blocks have the least work. Therefore later parts contain more blocks. */
static attn_status compare_all(comparing *w)
{
    /* PARTS: number of progress reports. FEW: if there are fewer blocks than this, all of them are one part, because
     * comparing them takes no noticeable time. */
    enum { PARTS = 32, FEW = 128 };
    int64_t all = w->blocks * (w->blocks + 1) / 2, done = 0;
    attn_context *context = w->a->context;
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && w->first < w->blocks) {
        int64_t part = 0, n = 0;
        while (w->first + n < w->blocks && (w->blocks < FEW || n == 0 || part < all / PARTS))
            part += w->blocks - w->first - n++;
        attn__parallel_items(context->threads, n * w->blocks, compare_blocks, w);
        w->first += n;
        done += part;
        status = attn__work(context, "blocks of sequence pairs", done, all);
    }
    return status;
}

attn_status attn_alignment_weights(const attn_alignment *alignment, double identity, double *weights)
{
    ATTN__CALL(alignment->context);
    int64_t rows = alignment->rows;
    identity = identity == 0 ? 0.8 : identity;
    if (!(identity > 0 && identity <= 1))
        return attn__fail(alignment->context, ATTN_ERROR_ARGUMENT, "identity is %g; it must be above 0 and at most 1",
                          identity);
    /* The number of agreeing columns is rounded up: 0.8 of 7 columns are 6. The factor below 1 is needed because
     * 0.55 * 100 is slightly above 55 in double, but must give 55. */
    int64_t agreeing = (int64_t)ceil(identity * (double)alignment->columns * (1 - 1e-12));
    comparing w = {alignment, alignment->columns - agreeing, (rows + BLOCK - 1) / BLOCK, 0, NULL};
    w.alike = attn__alloc_zero(alignment->context, attn__size_mul((size_t)rows, sizeof *w.alike));
    if (!w.alike)
        return ATTN_ERROR_MEMORY;
    attn_status status = compare_all(&w);
    for (int64_t i = 0; status == ATTN_OK && i < rows; i++)
        weights[i] = 1.0 / (1.0 + (double)w.alike[i]);
    attn__free(alignment->context, w.alike);
    return status;
}

/* ---------------------------------------------------------------------------------------------- by position */

enum { LETTERS = 26 };

/* Returns the index of a letter in the alphabet, or -1 for a gap and for letters other than the twenty amino acids. */
static int letter_of(char residue)
{
    return residue < 'A' || residue > 'Z' || strchr("BJOUXZ", residue) ? -1 : residue - 'A';
}

/* Computes shares [L,26]. The share of a letter in a column is 1 / (kinds of letters in the column * number of rows
 * with this letter). */
static void measure_columns(const attn_alignment *a, double *shares)
{
    for (int64_t r = 0; r < a->rows; r++) {
        const char *row = attn_alignment_row(a, r);
        for (int64_t c = 0; c < a->columns; c++) {
            int letter = letter_of(row[c]);
            if (letter >= 0)
                shares[c * LETTERS + letter] += 1;
        }
    }
    for (int64_t c = 0; c < a->columns; c++) {
        double *share = shares + c * LETTERS;
        int kinds = 0;
        for (int i = 0; i < LETTERS; i++)
            kinds += share[i] > 0;
        for (int i = 0; i < LETTERS; i++)
            share[i] = share[i] > 0 ? 1 / (kinds * share[i]) : 0;
    }
}

static double weight_of(const attn_alignment *a, int64_t r, const double *shares)
{
    const char *row = attn_alignment_row(a, r);
    int64_t residues = 0;
    double sum = 0;
    for (int64_t c = 0; c < a->columns; c++) {
        int letter = letter_of(row[c]);
        sum += letter >= 0 ? shares[c * LETTERS + letter] : 0;
        residues += letter >= 0;
    }
    return residues > 0 ? sum / (double)residues : 0;
}

attn_status attn_alignment_position_weights(const attn_alignment *alignment, double *weights)
{
    ATTN__CALL(alignment->context);
    attn_context *context = alignment->context;
    double *shares =
        attn__alloc_zero(context, attn__size_mul(attn__size_mul((size_t)alignment->columns, LETTERS), sizeof *shares));
    double all = 0;
    if (!shares)
        return ATTN_ERROR_MEMORY;
    measure_columns(alignment, shares);
    for (int64_t r = 0; r < alignment->rows; r++)
        all += weights[r] = weight_of(alignment, r, shares);
    for (int64_t r = 0; r < alignment->rows && all > 0; r++)
        weights[r] *= (double)alignment->rows / all;
    attn__free(context, shares);
    return ATTN_OK;
}
