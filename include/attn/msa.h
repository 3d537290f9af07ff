/* SPDX-License-Identifier: MIT
 *
 * msa.h - the MSA Transformer as a tool (Rao et al. 2021, doi:10.1101/2021.02.12.430858). It loads a published
 * checkpoint or a directory that this library wrote. It computes logits, representations, attention maps and contacts
 * from alignments of tokens. The memory can be bounded.
 *
 *     attn_msa *msa;
 *     attn_msa_load(&msa, context, "esm_msa1b_t12_100M_UR50S.pt", NULL);
 *     attn_msa_result result;
 *     attn_msa_run(msa, tokens, B, R, C, &(attn_msa_options){.contacts = true, .memory = 2000000000}, &result);
 *     ... attn_tensor_data(result.contacts) ...
 *     attn_msa_destroy(msa);
 *
 * One thread at a time uses a model and its context.  Fixed letters: B alignments, R rows (sequences), C columns (<cls>
 * and the residues), D channels, H heads, L layers, V tokens.
 *
 * A token is an index into the 33 symbols of the ESM models (Rives et al. 2021, doi:10.1073/pnas.2016239118):
 *     0 <cls>  1 <pad>  2 <eos>  3 <unk>  4 to 29 the letters of LAGVSERTIDPKQNFYMHWCXBUZO.  30 -  31 <null_1>
 *     32 <mask> */
#ifndef ATTN_MSA_H
#define ATTN_MSA_H

#include "attn/io.h"
#include "attn/models.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------- a model */

typedef struct attn_msa attn_msa;

/* Options for loading. Zero means the default. */
typedef struct attn_msa_load_options {
    /* path of the .pt file of the contact regression; NULL: if the checkpoint's directory has a file whose name ends
     * in -contact-regression.pt, this file */
    const char *regression;
    /* true: as in ESM, the padded sizes of a batch determine the scale of tied scores and the correction of
     * contacts; false: padding changes no result */
    bool compat;
    /* for a checkpoint with foreign names: a names file (io.h), or the name of a built-in one, which must give the
     * settings; NULL: no names file */
    const char *names;
    int64_t reserved[4];
} attn_msa_load_options;

/* Loads ESM-MSA-1b or ESM-MSA-1 as downloaded (.pt), or a directory (or its model.safetensors) that a training
 * (trainer.h, kind "msa"), attn_model_save or `attn convert` wrote. A checkpoint's names are converted to the names of
 * facebookresearch/esm. Prefixes are removed. The files swap "row" and "column" in names. These are swapped back.
 * `options` may be NULL. ATTN_ERROR_NOT_FOUND: no such file; ATTN_ERROR_FORMAT: a malformed file, or a file without the
 * model's arguments; ATTN_ERROR_UNSUPPORTED: another architecture (named); ATTN_ERROR_SHAPE: parameters are missing,
 * extra or of another shape; ATTN_ERROR_MEMORY. *msa is NULL on failure. */
ATTN_API attn_status attn_msa_load(attn_msa **msa, attn_context *context, const char *path,
                                   const attn_msa_load_options *options);
ATTN_API void attn_msa_destroy(attn_msa *msa); /* Destroys a model. NULL is allowed. */

/* ------------------------------------------------------------------------------------------------- a run */

/* Options of a run. Zero means the default. By default, there is no output. */
typedef struct attn_msa_options {
    bool logits, contacts, row_maps, column_maps;
    /* The layers whose representations are returned. 0 is the embedding, and L is the last layer, which is
     * normalized. Negative numbers count from the end, so that -1 is L. */
    const int64_t *layers;
    int64_t nlayers;
    /* Maximum of the planned bytes, including parameters and results. 0: no bound. A bound changes the time a
     * little. It changes results only by rounding. */
    size_t memory;
    /* The bound in tokens, like max_tokens_per_msa of the architecture msa-transformer. 0: it follows from `memory`
     * or, without a bound, is the model's own. */
    int64_t max_tokens;
    /* if not 0, row_maps and column_maps have only this layer, counted from 1, and their L is 1; 0: all layers */
    int64_t map_layer;
    int64_t reserved[4];
} attn_msa_options;

/* The result of a run. The model owns the tensors (F32), which are valid until its next run. If an output was not
 * requested, it is NULL. */
typedef struct attn_msa_result {
    const attn_tensor *logits; /* [B,R,C,V] */
    /* probability [B,C-1,C-1] that two residues are within 8 A; outside of an alignment, 0 */
    const attn_tensor *contacts;
    const attn_tensor *row_maps;               /* [B,L,H,C,C] */
    const attn_tensor *column_maps;            /* [B,L,H,C,R,R] */
    const attn_tensor *const *representations; /* `nlayers` tensors [B,R,C,D], in the order of options.layers */
} attn_msa_result;

/* The cost of a run. It is computed before the run. */
typedef struct attn_msa_cost {
    size_t bytes;       /* planned bytes, including parameters and results; the process needs a little more */
    size_t smallest;    /* planned bytes with the smallest possible max_tokens */
    int64_t max_tokens; /* max_tokens that the run will use */
    int64_t heads;      /* number of heads, out of H, that are computed at once */
} attn_msa_cost;
/* Computes the cost of a run. ATTN_ERROR_SHAPE: a size is beyond the model's positions. ATTN_ERROR_ARGUMENT: a layer
 * is out of range, the run needs more memory than is allowed (cost->smallest is the minimum), or contacts are
 * requested without a regression. ATTN_ERROR_UNSUPPORTED: row maps or contacts are requested of a model whose rows
 * are not tied. */
ATTN_API attn_status attn_msa_estimate(const attn_msa *msa, int64_t batch, int64_t rows, int64_t cols,
                                       const attn_msa_options *options, attn_msa_cost *cost);
/* Runs the model on tokens [B,R,C]. Short rows are padded at the end with <pad> (1), and missing rows are all <pad>.
 * The first row of each alignment is its longest. `result` is overwritten. Statuses of attn_msa_estimate, and
 * ATTN_ERROR_ARGUMENT: a token is out of range. */
ATTN_API attn_status attn_msa_run(attn_msa *msa, const int32_t *tokens, int64_t batch, int64_t rows, int64_t cols,
                                  const attn_msa_options *options, attn_msa_result *result);

/* ------------------------------------------------------------------------------------------- a family */

/* Which sequences of an alignment are read. The first one, the query, always is. */
typedef enum attn_msa_choice {
    /* greedy: repeatedly the sequence with the largest mean Hamming distance to those chosen so far, as in ESM's
     * notebook */
    ATTN_MSA_DIVERSE = 0,
    ATTN_MSA_FIRST,
    ATTN_MSA_RANDOM,  /* drawn by the seed */
    ATTN_MSA_WEIGHTED /* drawn by the seed, each by the inverse number of sequences that are 80 % identical to it */
} attn_msa_choice;

/* Options for reading. Zero means the default in each field. */
typedef struct attn_msa_family_options {
    int64_t depth; /* maximum number of sequences, including the query; 0: 128; the model's own limit is 1,024 */
    attn_msa_choice choice;
    uint64_t seed;
    bool query_columns; /* true: keeps only the columns in which the query has a residue */
    int64_t reserved[4];
} attn_msa_family_options;

/* An alignment as attn_msa_run reads it. The library owns the arrays. */
typedef struct attn_msa_family {
    int64_t rows, cols;    /* R and C: sequences; <cls> and the residues */
    const int32_t *tokens; /* [R,C] */
    const char *query;     /* all residues of the first sequence, even those that are in no column */
    const int64_t
        *numbers;      /* [C-1]: the number of the query's residue in each column, from 1; 0: the query has a gap */
    int64_t sequences; /* number of sequences in the alignment, before some were chosen */
    int64_t reserved[4];
} attn_msa_family;

/* Reads an alignment from a text: A3M, A2M, FASTA, Stockholm or Clustal, recognized by its content. `name` is used in
 * messages, and its ending (.a3m, .a2m) decides if several formats fit. `options` may be NULL. `family` is overwritten
 * and freed with attn_msa_family_free. ATTN_ERROR_FORMAT: the text is no alignment, and the error has the line.
 * ATTN_ERROR_ARGUMENT: a negative depth, or an unknown choice. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_msa_family_parse(attn_msa_family *family, attn_context *context, const char *text,
                                           size_t size, const char *name, const attn_msa_family_options *options);
/* Does the same for a file, which may be compressed by gzip. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO also. */
ATTN_API attn_status attn_msa_family_read(attn_msa_family *family, attn_context *context, const char *path,
                                          const attn_msa_family_options *options);
/* Frees the arrays and empties the family. The family may be empty already. */
ATTN_API void attn_msa_family_free(attn_context *context, attn_msa_family *family);

#ifdef __cplusplus
}
#endif
#endif
