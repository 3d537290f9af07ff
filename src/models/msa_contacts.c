/* SPDX-License-Identifier: MIT
 *
 * Contacts from the maps of tied rows: a logistic regression over all heads of all layers, of maps made symmetric and
 * corrected for the average of their row and column (APC: Dunn et al. 2008, doi:10.1093/bioinformatics/btm604).
 *
 * The correction is not linear in a map, so each map is corrected by itself; the regression is, so that its sum is kept
 * instead of the maps: [C,C] numbers where the original stacks H*L*[C,C], and all column maps beside them. */
#include "models/msa.h"

#include "base/context.h"
#include "base/parallel.h"
#include "tensor/number.h"

#include <math.h>

/* One map of one alignment, and where its sums are. */
typedef struct feature {
    const attn_tensor *maps;
    attn_tensor *sums;
    int64_t base, to;       /* their first elements */
    int64_t cols, residues; /* of the map, with <cls>; of the alignment */
    double weight, total;
    double *row_sums;       /* of S, [residues]; those of its columns are the same */
} feature;

/* S = map + map^T without <cls>: the sum, not the mean, as the regression was fitted. */
static double symmetric(const feature *f, int64_t i, int64_t j)
{
    return attn__number(f->maps, f->base + (i + 1) * f->cols + j + 1) +
           attn__number(f->maps, f->base + (j + 1) * f->cols + i + 1);
}

static void sum_rows(void *user, int64_t begin, int64_t end)
{
    const feature *f = user;
    for (int64_t i = begin; i < end; i++) {
        f->row_sums[i] = 0;
        for (int64_t j = 0; j < f->residues; j++) {
            f->row_sums[i] += symmetric(f, i, j);
        }
    }
}

/* A map of zeros has no average to be corrected for. */
static void add_rows(void *user, int64_t begin, int64_t end)
{
    const feature *f = user;
    for (int64_t i = begin; i < end; i++) {
        double share = f->total != 0 ? f->row_sums[i] / f->total : 0;
        for (int64_t j = 0; j < f->residues; j++) {
            int64_t to = f->to + i * (f->cols - 1) + j;
            double corrected = symmetric(f, i, j) - share * f->row_sums[j];
            attn__set_number(f->sums, to, attn__number(f->sums, to) + f->weight * corrected);
        }
    }
}

/* The original takes the padded size, so that padding changes its contacts. */
static int64_t residues(const attn__msa *msa, const attn__msa_tokens *tokens, int64_t b)
{
    return (msa->compat ? tokens->cols : attn__msa_columns(tokens, b)) - 1;
}

bool attn__msa_add_contacts(const attn__msa *msa, attn_tape *tape, const attn__msa_tokens *tokens, int64_t layer,
                            int64_t first, const attn_tensor *maps, attn_tensor *sums)
{
    enum { GRAIN = 32 };
    int threads = attn_context_threads(attn_tape_context(tape));
    int64_t cols = tokens->cols, heads = attn_tensor_dim(maps, 0), wide = cols - 1;
    attn_tensor *row_sums = attn_tensor_make(tape, ATTN_F64, 1, &cols, NULL);
    for (int64_t i = 0; row_sums && i < heads * tokens->batch; i++) {
        int64_t head = first + i / tokens->batch, b = i % tokens->batch;
        feature f = {.maps = maps, .sums = sums, .base = i * cols * cols, .to = b * wide * wide, .cols = cols,
                     .residues = residues(msa, tokens, b), .row_sums = attn_tensor_data(row_sums),
                     .weight = attn__number(msa->regression.weight, layer * msa->heads + head)};
        attn__parallel_range(threads, f.residues, GRAIN, sum_rows, &f);
        for (int64_t r = 0; r < f.residues; r++) {
            f.total += f.row_sums[r];
        }
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
