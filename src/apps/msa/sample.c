/* SPDX-License-Identifier: MIT */
#include "apps/msa/sample.h"

#include "base/context.h"
#include "base/integers.h"
#include "base/rng.h"
#include "tensor/tape_state.h"

#include <string.h>

/* Random streams of one part. They choose its columns, its rows and its hidden residues. */
enum { OF_COLUMNS, OF_ROWS, OF_MASK, STREAMS };

attn__msa_part attn__msa_part_of(const attn__msa_sampling *sampling, const attn_alignment *alignment, uint64_t stream)
{
    int64_t columns = attn_alignment_columns(alignment), taken = attn__min(columns, sampling->max_columns);
    attn__rng rng = {.seed = sampling->seed, .stream = stream * STREAMS + OF_COLUMNS};
    int64_t depth = sampling->max_tokens / (taken + 1);
    if (sampling->max_rows > 0)
        depth = attn__min(depth, sampling->max_rows);
    return (attn__msa_part){.alignment = alignment,
                            .stream = stream,
                            .columns = taken,
                            .first_column = (int64_t)attn__rng_below(&rng, (uint64_t)(columns - taken + 1)),
                            .rows = attn__min(attn_alignment_rows(alignment), depth > 1 ? depth : 1)};
}

/* Lists the rows of an alignment in random order. The part consists of the first rows of this list. The query is
 * always first. */
static bool draw_rows(const attn__msa_sampling *sampling, const attn__msa_part *part, attn_context *context,
                      int64_t **rows)
{
    int64_t n = attn_alignment_rows(part->alignment);
    *rows = attn__alloc(context, attn__size_mul((size_t)n, sizeof **rows));
    if (!*rows)
        return false;
    for (int64_t i = 0; i < n; i++)
        (*rows)[i] = i;
    attn__rng rng = {.seed = sampling->seed, .stream = part->stream * STREAMS + OF_ROWS};
    attn__rng_shuffle(&rng, *rows + 1, n - 1);
    return true;
}

/* Writes the tokens of a part to the rows of `tokens`. The distance between two rows is `line` elements. */
static bool fill(const attn__msa_sampling *sampling, const attn__msa_part *part, attn_context *context, int64_t line,
                 int32_t *tokens)
{
    int64_t *rows;
    if (!draw_rows(sampling, part, context, &rows))
        return false;
    for (int64_t r = 0; r < part->rows; r++) {
        const char *row = attn_alignment_row(part->alignment, rows[r]) + part->first_column;
        int32_t *to = tokens + r * line;
        *to++ = ATTN_RESIDUE_CLS;
        for (int64_t c = 0; c < part->columns; c++)
            to[c] = attn_residue_id(row[c]);
    }
    attn__free(context, rows);
    return true;
}

/* Hides random residues of a part, and returns how many. If chance has chosen none, the first residue is hidden, so
 * that every part has a loss. */
static int64_t hide(const attn__msa_sampling *sampling, uint64_t stream, int64_t n, int32_t *tokens, int32_t *labels)
{
    attn_masking masking = {sampling->share, sampling->seed, stream * STREAMS + OF_MASK};
    int64_t hidden = attn_mask_residues(&masking, n, tokens, labels);
    if (hidden > 0)
        return hidden;
    labels[1] = tokens[1];
    tokens[1] = ATTN_RESIDUE_MASK;
    return 1;
}

bool attn__msa_batch_on_tape(attn__msa_batch *batch, attn_tape *tape, const attn__msa_sampling *sampling,
                             const attn__msa_part *parts, int64_t n, int64_t first, int64_t taken)
{
    attn_context *context = attn_tape_context(tape);
    int64_t rows = 0, columns = 0;
    for (int64_t i = 0; i < n; i++) {
        rows = parts[i].rows > rows ? parts[i].rows : rows;
        columns = parts[i].columns > columns ? parts[i].columns : columns;
    }
    int64_t line = columns + 1, map = rows * line, shape[] = {taken, rows, line};
    batch->tokens = attn_tape_tensor(tape, ATTN_I32, 3, shape, NULL);
    batch->labels = attn_tape_tensor(tape, ATTN_I32, 3, shape, NULL);
    batch->hidden = batch->all_hidden = 0;
    /* Residues are also hidden in the parts of other ranks, because the loss is divided by the number of hidden
     * residues of all ranks. */
    int32_t *others = taken < n ? attn__alloc(context, attn__size_mul((size_t)map, 2 * sizeof *others)) : NULL;
    bool done = batch->tokens && batch->labels && (taken == n || others);
    for (int64_t i = 0; i < n && done; i++) {
        bool mine = !others || (i >= first && i < first + taken);
        int32_t *tokens = mine ? (int32_t *)attn_tensor_data(batch->tokens) + (i - first) * map : others;
        int32_t *labels = mine ? (int32_t *)attn_tensor_data(batch->labels) + (i - first) * map : others + map;
        for (int64_t k = 0; k < map; k++)
            tokens[k] = ATTN_RESIDUE_PAD;
        done = fill(sampling, &parts[i], context, line, tokens);
        int64_t hidden = done ? hide(sampling, parts[i].stream, map, tokens, labels) : 0;
        batch->hidden += mine ? hidden : 0;
        batch->all_hidden += hidden;
    }
    attn__free(context, others);
    return done;
}
