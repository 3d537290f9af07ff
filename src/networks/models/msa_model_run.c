/* SPDX-License-Identifier: MIT
 *
 * Runs the MSA Transformer: embedding, layers and heads. The attention maps of a layer are processed as soon as they
 * are computed.
 */
#include "models/msa_model.h"

#include "base/context.h"
#include "tensor/linear_part.h"
#include "tensor/tensor.h"
#include "tensor/tape_state.h"

#include <string.h>

typedef struct run {
    const attn__msa *msa;
    attn_tape *tape;
    const attn__msa_wishes *wishes;
    attn__msa_results *results;
    attn__msa_tokens tokens;
    int64_t layer;
    int64_t last; /* index of the last stage to run, counted over all layers; each layer has THIRDS stages */
    bool failed;
} run;

enum { THIRDS = 3 };

/* Returns which stage of a layer computes its row maps or its column maps. This is 1 or 2, depending on the order of
 * the two attentions. Stage 3 computes the layer's result. */
static int64_t stage_of(const run *r, bool columns)
{
    return columns == r->msa->columns_first ? 1 : 2;
}

/* --------------------------------------------------------------------------------------------------- maps */

static bool keeps_maps(const run *r)
{
    return r->wishes->map_layer == 0 || r->wishes->map_layer == r->layer + 1;
}

static int64_t layers_kept(const run *r)
{
    return r->wishes->map_layer ? 1 : r->msa->layers;
}

/* Copies the maps of n heads to `all` [B,L,H,...], beginning at head `first`. `maps` is [n,B,...] for rows,
 * [n,R,B,...] for untied rows, or [n,C,B,...] for columns. */
static void put_maps(const run *r, attn_tensor *all, int64_t first, const attn_tensor *maps, bool columns)
{
    const attn__msa *msa = r->msa;
    int64_t batch = r->tokens.batch,
            groups = columns       ? r->tokens.cols
                     : msa->untied ? r->tokens.rows
                                   : 1,
            heads = attn_tensor_length(maps, 0);
    int64_t each = attn_tensor_size(maps) / (heads * groups * batch), layer = r->wishes->map_layer ? 0 : r->layer;
    size_t element = attn_dtype_size(attn_tensor_dtype(maps)), bytes = (size_t)each * element;
    for (int64_t i = 0; i < heads * groups * batch; i++) {
        int64_t b = i % batch, group = i / batch % groups, head = first + i / batch / groups;
        int64_t to = (((b * layers_kept(r) + layer) * msa->heads + head) * groups + group) * each;
        memcpy((char *)attn_tensor_data(all) + (size_t)to * element,
               (const char *)attn_tensor_data(maps) + (size_t)i * bytes, bytes);
    }
}

static void take_rows(void *user, int64_t first, const attn_tensor *maps)
{
    run *r = user;
    if (r->results->row_maps && keeps_maps(r))
        put_maps(r, r->results->row_maps, first, maps, false);
    if (r->results->contacts &&
        !attn__msa_add_contacts(r->msa, r->tape, &r->tokens, r->layer, first, maps, r->results->contacts))
        r->failed = true;
}

static void take_columns(void *user, int64_t first, const attn_tensor *maps)
{
    run *r = user;
    if (keeps_maps(r))
        put_maps(r, r->results->column_maps, first, maps, true);
}

static bool make_maps(run *r)
{
    const attn__msa *m = r->msa;
    const attn__msa_wishes *w = r->wishes;
    int64_t b = r->tokens.batch, c = r->tokens.cols, n = r->tokens.rows;
    attn_dtype dtype = attn_tensor_dtype(m->embed_tokens.weight);
    attn__msa_results *to = r->results;
    if (w->contacts && m->untied) {
        attn__fail(attn_tape_context(r->tape), ATTN_ERROR_UNSUPPORTED,
                   "contacts are computed from tied row attention, but the setting tied is false");
        return false;
    }
    if (w->row_maps) {
        to->row_maps =
            m->untied ? attn_tape_tensor(r->tape, dtype, 6, (int64_t[]){b, layers_kept(r), m->heads, n, c, c}, NULL)
                      : attn_tape_tensor(r->tape, dtype, 5, (int64_t[]){b, layers_kept(r), m->heads, c, c}, NULL);
    }
    if (w->column_maps)
        to->column_maps = attn_tape_tensor(r->tape, dtype, 6, (int64_t[]){b, layers_kept(r), m->heads, c, n, n}, NULL);
    if (w->contacts)
        to->contacts = attn_tape_tensor(r->tape, dtype, 3, (int64_t[]){b, c - 1, c - 1}, NULL);
    return (!w->row_maps || to->row_maps) && (!w->column_maps || to->column_maps) && (!w->contacts || to->contacts);
}

/* ------------------------------------------------------------------------------------------------- layers */

static bool records(const run *r)
{
    attn_tape_options mode = attn_tape_mode(r->tape);
    return mode.record || mode.train;
}

static attn_tensor *layer_recorded(run *r, attn_tensor *x)
{
    r->tape->examples = 2;
    attn_tensor *rows = NULL, *columns = NULL;
    bool wants_rows = r->results->row_maps || r->results->contacts;
    x = attn_nn_msa_layer_forward(&r->msa->layer[r->layer], r->tape, x, r->tokens.keep, wants_rows ? &rows : NULL,
                                  r->results->column_maps ? &columns : NULL);
    if (rows)
        take_rows(r, 0, rows);
    if (columns)
        take_columns(r, 0, columns);
    return x;
}

static attn_tensor *layer_in_place(run *r, attn_tensor *x)
{
    attn_nn_msa_layer_run how = {
        .keep = r->tokens.keep, .max_tokens = r->wishes->max_tokens, .bf16 = attn__rounds(r->tape), .user = r};
    how.rows = (r->results->row_maps && keeps_maps(r)) || r->results->contacts ? take_rows : NULL;
    how.columns = r->results->column_maps && keeps_maps(r) ? take_columns : NULL;
    int64_t left = r->last - r->layer * THIRDS;
    how.end = left == stage_of(r, false)  ? ATTN_NN_MSA_ROW_MAPS
              : left == stage_of(r, true) ? ATTN_NN_MSA_COLUMN_MAPS
                                          : ATTN_NN_MSA_RESULT;
    return attn_nn_msa_layer_apply(&r->msa->layer[r->layer], r->tape, x, &how) ? x : NULL;
}

/* Stores x [R,C,B,D] as representation i, in the shape [B,R,C,D], if the caller requested it. This is always a copy,
 * because later layers change x. */
static bool note_hidden(run *r, int64_t i, attn_tensor *x)
{
    if (r->wishes->hidden[i]) {
        r->results->hidden[i] = attn_permute(r->tape, x, (int[]){2, 0, 1, 3});
        return r->results->hidden[i] != NULL;
    }
    return true;
}

/* Returns the last stage that a requested output needs. Later stages are skipped. For contacts, the last layer stops
 * at its row maps, because its result is not needed. Computing that result would be a fourteenth of the work. */
static int64_t last_stage(const run *r)
{
    const attn__msa_wishes *w = r->wishes;
    int64_t layers = r->msa->layers, last = 0, mapped = (w->map_layer ? w->map_layer : layers) - 1;
    int64_t rows = w->contacts ? layers - 1 : mapped;
    if (w->logits)
        return layers * THIRDS;
    for (int64_t i = 0; i <= layers; i++)
        last = w->hidden[i] ? i * THIRDS : last;
    if ((w->contacts || w->row_maps) && rows * THIRDS + stage_of(r, false) > last)
        last = rows * THIRDS + stage_of(r, false);
    if (w->column_maps && mapped * THIRDS + stage_of(r, true) > last)
        last = mapped * THIRDS + stage_of(r, true);
    return last;
}

static attn_tensor *run_layers(run *r, attn_tensor *x)
{
    r->last = last_stage(r);
    for (r->layer = 0; x && r->layer < r->msa->layers; r->layer++) {
        if (!note_hidden(r, r->layer, x))
            return NULL;
        if (r->layer * THIRDS >= r->last)
            break;
        x = records(r) ? layer_recorded(r, x) : layer_in_place(r, x);
        if (x && !records(r) &&
            attn__work(attn_tape_context(r->tape), "layers", r->layer + 1, (r->last + THIRDS - 1) / THIRDS) != ATTN_OK)
            return NULL;
    }
    return r->failed ? NULL : x;
}

/* --------------------------------------------------------------------------------------------------- head */

/* Computes the logits. The weight of the last product is the table of the token embedding, because the two are tied. */
static attn_tensor *head(const attn__msa *msa, attn_tape *tape, attn_tensor *x)
{
    attn_tensor *h = attn_linear(tape, x, msa->dense.weight, msa->dense.bias, ATTN_ACTIVATION_GELU_ERF);
    h = attn_nn_layer_norm_forward(&msa->head_norm, tape, h);
    return attn_linear(tape, h, msa->embed_tokens.weight, msa->head_bias, ATTN_ACTIVATION_IDENTITY);
}

/* Computes the logits. If the tape does not record, the rows are processed one by one, because the hidden channels
 * of all rows would take as much memory as x. */
static attn_tensor *head_in_parts(const run *r, attn_tensor *x)
{
    int64_t rows = attn_tensor_length(x, 0),
            shape[] = {rows, attn_tensor_length(x, 1), attn_tensor_length(x, 2), r->msa->vocabulary};
    attn_tensor *logits = attn_tape_tensor(r->tape, attn_tensor_dtype(x), 4, shape, NULL);
    bool fine = logits != NULL;
    for (int64_t row = 0; row < rows && fine; row++) {
        attn_scope_begin(r->tape);
        attn_tensor *part = head(r->msa, r->tape, attn__part_of(r->tape, x, row, row + 1));
        fine = part != NULL;
        if (fine) {
            size_t bytes = (size_t)attn_tensor_size(part) * attn_dtype_size(attn_tensor_dtype(part));
            memcpy((char *)attn_tensor_data(logits) + (size_t)row * bytes, attn_tensor_data(part), bytes);
        }
        attn_scope_end(r->tape, NULL);
    }
    return fine ? logits : NULL;
}

static bool finish(run *r, attn_tensor *x)
{
    const attn__msa_wishes *w = r->wishes;
    if (w->contacts && !attn__msa_finish_contacts(r->msa, r->tape, &r->tokens, r->results->contacts))
        return false;
    if (!w->logits && !w->hidden[r->msa->layers])
        return true;
    x = attn_nn_layer_norm_forward(&r->msa->norm_after, r->tape, x);
    if (!x || !note_hidden(r, r->msa->layers, x))
        return false;
    if (w->logits) {
        attn_tensor *logits = records(r) ? head(r->msa, r->tape, x) : head_in_parts(r, x);
        r->results->logits = attn_permute(r->tape, logits, (int[]){2, 0, 1, 3});
    }
    return !w->logits || r->results->logits;
}

bool attn__msa_run(const attn__msa *msa, attn_tape *tape, const attn_tensor *tokens, const attn__msa_wishes *wishes,
                   attn__msa_results *results)
{
    run r = {.msa = msa, .tape = tape, .wishes = wishes, .results = results};
    *results = (attn__msa_results){0};
    if (!attn__msa_tokens_check(msa, tape, tokens, &r.tokens) || !make_maps(&r))
        return false;
    attn_tensor *x = run_layers(&r, attn__msa_embed(msa, tape, &r.tokens));
    return x && finish(&r, x);
}
