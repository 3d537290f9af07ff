/* SPDX-License-Identifier: MIT
 *
 * Predicts contacts from attention maps, by a logistic regression over all heads of all layers. Each map is made symmetric and corrected for the average of its row and column (APC: Dunn et al. 2008,
 * doi:10.1093/bioinformatics/btm604). Each map is corrected separately, because the correction is not linear. The
 * regression is a weighted sum of the corrected maps. Only this sum is stored, which is one map [C,C] for C columns.
 * The original stores all maps.
 */
#include "models/contact_maps.h"

#include "base/context.h"
#include "base/parallel.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"

#include <math.h>
#include <string.h>

/* One attention map of one protein, and the sums to which it is added. */
typedef struct feature {
    const void *map; /* [cols,cols] map, including the column of <cls> */
    void *sums;      /* [places,places] sums of the regression */
    bool wide;       /* true: map and sums are f64; false: f32 */
    /* cols: number of columns of the map; places: side of the sums; residues: number of residues of the protein */
    int64_t cols, places, residues;
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
            int64_t to = (i + r) * f->places + first + j;
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

bool attn__contacts_add(const attn__contact_regression *regression, attn_tape *tape, const attn__contact_maps *maps,
                        const attn_tensor *residues, attn_tensor *sums)
{
    enum { GRAIN = 32 };
    const attn_tensor *all = maps->maps;
    int threads = attn_context_threads(attn_tape_context(tape)), outer = maps->batch_first ? 0 : 1;
    int64_t batch = attn_tensor_length(all, outer), heads = attn_tensor_length(all, 1 - outer);
    int64_t cols = attn_tensor_length(all, 2), places = attn_tensor_length(sums, 1);
    size_t element = attn_dtype_size(attn_tensor_dtype(all));
    attn_tensor *row_sums = attn_tape_tensor(tape, ATTN_F64, 1, &cols, NULL);
    for (int64_t i = 0; row_sums && i < heads * batch; i++) {
        int64_t head = maps->batch_first ? i % heads : i / batch, b = maps->batch_first ? i / heads : i % batch;
        feature f = {.map = (const char *)attn_tensor_data(all) + (size_t)(i * cols * cols) * element,
                     .sums = (char *)attn_tensor_data(sums) + (size_t)(b * places * places) * element,
                     .wide = attn_tensor_dtype(all) == ATTN_F64,
                     .cols = cols,
                     .places = places,
                     .residues = ((const int32_t *)attn_tensor_data(residues))[b],
                     .row_sums = attn_tensor_data(row_sums),
                     .weight = attn__number(regression->weight, maps->first + head)};
        attn__parallel_range(threads, f.residues, GRAIN, sum_rows, &f);
        for (int64_t r = 0; r < f.residues; r++)
            f.total += f.row_sums[r];
        attn__parallel_range(threads, f.residues, GRAIN, add_rows, &f);
    }
    return row_sums != NULL;
}

void attn__contacts_finish(const attn__contact_regression *regression, const attn_tensor *residues, attn_tensor *sums)
{
    int64_t batch = attn_tensor_length(sums, 0), places = attn_tensor_length(sums, 1);
    double bias = attn__number(regression->bias, 0);
    for (int64_t b = 0; b < batch; b++) {
        int64_t n = ((const int32_t *)attn_tensor_data(residues))[b];
        for (int64_t i = 0; i < places * places; i++) {
            int64_t at = b * places * places + i;
            bool inside = i / places < n && i % places < n;
            attn__set_number(sums, at, inside ? 1 / (1 + exp(-attn__number(sums, at) - bias)) : 0);
        }
    }
}
