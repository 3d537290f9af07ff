/* SPDX-License-Identifier: MIT
 *
 * sample.h - draws random parts of alignments with hidden residues.
 */
#ifndef ATTN_APPS_MSA_SAMPLE_H
#define ATTN_APPS_MSA_SAMPLE_H

#include "data/proteins.h"
#include "attn/tensor.h"

typedef struct attn__msa_sampling {
    int64_t max_tokens; /* maximum number of tokens of a part, which is rows * (1 + columns) */
    int64_t max_columns;
    int64_t max_rows; /* maximum number of rows of a part; 0: max_tokens alone limits it */
    double share;     /* share of the residues that are hidden */
    uint64_t seed;
} attn__msa_sampling;

/* A part of an alignment: how many rows and columns it has, and which ones. */
typedef struct attn__msa_part {
    const attn_alignment *alignment;
    uint64_t stream; /* random stream with which the part is drawn */
    int64_t rows, first_column, columns;
} attn__msa_part;

attn__msa_part attn__msa_part_of(const attn__msa_sampling *sampling, const attn_alignment *alignment, uint64_t stream);

typedef struct attn__msa_batch {
    /* I32 [B,R,1+L]; labels are -1 for residues that are not hidden; the tape owns both */
    attn_tensor *tokens, *labels;
    int64_t hidden;     /* number of hidden residues in this batch, which the model must predict */
    int64_t all_hidden; /* number of hidden residues in the parts of all ranks */
} attn__msa_batch;
/* Makes the batch of the parts [first, first + taken) of n parts. All parts are padded to the size of the largest of
 * the n parts. Returns false on failure. */
bool attn__msa_batch_on_tape(attn__msa_batch *batch, attn_tape *tape, const attn__msa_sampling *sampling,
                             const attn__msa_part *parts, int64_t n, int64_t first, int64_t taken);

#endif
