/* SPDX-License-Identifier: MIT
 *
 * Predicts contacts from the attention maps of tied row attention, by a logistic regression over all heads of all
 * layers. Each map is made symmetric and corrected for the average of its row and column (APC: Dunn et al. 2008,
 * doi:10.1093/bioinformatics/btm604). Each map is corrected separately, because the correction is not linear. The
 * regression is a weighted sum of the corrected maps. Only this sum is stored, which is one map [C,C] for C columns.
 * The original stores all row maps (L layers times H heads) and all column maps.
 */
#include "models/msa_model.h"

#include "base/context.h"
#include "base/parallel.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"

#include <math.h>
#include <string.h>

/* One attention map of one alignment, and the sums to which it is added. */
typedef struct feature {
    const void *map;        /* [cols,cols] map, including the column of <cls> */
    void *sums;             /* [cols - 1,cols - 1] sums of the regression */
    bool wide;              /* true: map and sums are f64; false: f32 */
    int64_t cols, residues; /* cols: number of columns of the map; residues: number of residues of the alignment */
    double weight, total;
    /* [residues] sums of the rows of the symmetric map S; the sums of its columns are equal to these */
    double *row_sums;
} feature;

/* Number of rows that are computed together. Reading the map's columns then uses whole cache lines. */
enum { TOGETHER = 16 };

static inline double number_at(const void *data, bool wide, int64_t i)
{
    return wide ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* Computes a block of the symmetric map S = map + map^T. The column and row of <cls> are left out. s[j - first][r]
 * becomes S[i + r,j] for r in [0, rows) and j in [first, last). S is the sum and not the mean, because the
 * regression was fitted to the sum. */
static inline void symmetric(const feature *f, bool wide, int64_t i, int64_t rows, int64_t first, int64_t last,
                             double s[TOGETHER][TOGETHER])
{
    for (int64_t j = first; j < last; j++)
        for (int64_t r = 0; r < rows; r++)
            s[j - first][r] = number_at(f->map, wide, (j + 1) * f->cols + i + r + 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = first; j < last; j++)
            s[j - first][r] += number_at(f->map, wide, (i + r + 1) * f->cols + j + 1);
}

static int64_t rows_at(const feature *f, int64_t i, int64_t end)
{
    int64_t most = end < f->residues ? end : f->residues;
    return most - i < TOGETHER ? most - i : TOGETHER;
}

/* Computes the sums of rows [begin, end) of S. The columns of a row are added in order. */
static void sum_rows(void *user, int64_t begin, int64_t end)
{
    const feature *f = user;
    double s[TOGETHER][TOGETHER];
    for (int64_t i = begin; i < end; i += TOGETHER) {
        double sums[TOGETHER] = {0};
        int64_t rows = rows_at(f, i, end);
        for (int64_t first = 0; first < f->residues; first += TOGETHER) {
            int64_t n = rows_at(f, first, f->residues);
            f->wide ? symmetric(f, true, i, rows, first, first + n, s)
                    : symmetric(f, false, i, rows, first, first + n, s);
            for (int64_t j = 0; j < n; j++)
                for (int64_t r = 0; r < rows; r++)
                    sums[r] += s[j][r];
        }
        memcpy(f->row_sums + i, sums, (size_t)rows * sizeof *sums);
    }
}

/* Corrects the block s of the symmetric map by APC. Adds f->weight times the corrected block to the regression's
 * sums, from row i and column `first` on. */
static void add_block(const feature *f, int64_t i, int64_t rows, int64_t first, int64_t n, double s[TOGETHER][TOGETHER])
{
    for (int64_t r = 0; r < rows; r++) {
        /* 0 for a map of zeros, whose average needs no correction */
        double share = f->total != 0 ? f->row_sums[i + r] / f->total : 0;
        for (int64_t j = 0; j < n; j++) {
            double corrected = s[j][r] - share * f->row_sums[first + j];
            int64_t to = (i + r) * (f->cols - 1) + first + j;
            if (f->wide)
                ((double *)f->sums)[to] += f->weight * corrected;
            else
                ((float *)f->sums)[to] = (float)((double)((float *)f->sums)[to] + f->weight * corrected);
        }
    }
}

static void add_rows(void *user, int64_t begin, int64_t end)
{
    const feature *f = user;
    double s[TOGETHER][TOGETHER];
    for (int64_t i = begin; i < end; i += TOGETHER) {
        int64_t rows = rows_at(f, i, end);
        for (int64_t first = 0; first < f->residues; first += TOGETHER) {
            int64_t n = rows_at(f, first, f->residues);
            f->wide ? symmetric(f, true, i, rows, first, first + n, s)
                    : symmetric(f, false, i, rows, first, first + n, s);
            add_block(f, i, rows, first, n, s);
        }
    }
}

/* Returns the number of residues of alignment b, without padding. If `compat` is set, padded columns are counted
 * too, as in the original, although this changes the contacts. */
static int64_t residues(const attn__msa *msa, const attn__msa_tokens *tokens, int64_t b)
{
    return (msa->compat ? tokens->cols : attn__msa_columns(tokens, b)) - 1;
}

bool attn__msa_add_contacts(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens, int64_t layer,
                            int64_t first, const attn_tensor *maps, attn_tensor *sums)
{
    enum { GRAIN = 32 };
    int threads = attn_context_threads(attn_tape_context(tape));
    int64_t cols = tokens->cols, heads = attn_tensor_length(maps, 0), wide = cols - 1;
    size_t element = attn_dtype_size(attn_tensor_dtype(maps));
    attn_tensor *row_sums = attn_tape_tensor(tape, ATTN_F64, 1, &cols, NULL);
    for (int64_t i = 0; row_sums && i < heads * tokens->batch; i++) {
        int64_t head = first + i / tokens->batch, b = i % tokens->batch;
        feature f = {.map = (const char *)attn_tensor_data(maps) + (size_t)(i * cols * cols) * element,
                     .sums = (char *)attn_tensor_data(sums) + (size_t)(b * wide * wide) * element,
                     .wide = attn_tensor_dtype(maps) == ATTN_F64,
                     .cols = cols,
                     .residues = residues(msa, tokens, b),
                     .row_sums = attn_tensor_data(row_sums),
                     .weight = attn__number(msa->regression.weight, layer * msa->heads + head)};
        attn__parallel_range(threads, f.residues, GRAIN, sum_rows, &f);
        for (int64_t r = 0; r < f.residues; r++)
            f.total += f.row_sums[r];
        attn__parallel_range(threads, f.residues, GRAIN, add_rows, &f);
    }
    return row_sums != NULL;
}

void attn__msa_finish_contacts(const attn__msa *msa, const attn__msa_tokens *tokens, attn_tensor *sums)
{
    int64_t wide = tokens->cols - 1;
    double bias = attn__number(msa->regression.bias, 0);
    for (int64_t b = 0; b < tokens->batch; b++) {
        int64_t n = residues(msa, tokens, b);
        for (int64_t i = 0; i < wide * wide; i++) {
            int64_t at = b * wide * wide + i;
            bool inside = i / wide < n && i % wide < n;
            attn__set_number(sums, at, inside ? 1 / (1 + exp(-attn__number(sums, at) - bias)) : 0);
        }
    }
}
