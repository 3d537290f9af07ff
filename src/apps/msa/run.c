/* SPDX-License-Identifier: MIT
 *
 * Runs an MSA Transformer. It first plans how the run fits the memory limit, and then runs the model on its own tape.
 */
#include "apps/msa/msa.h"

#include "base/context.h"
#include "nn/msa_attention.h"
#include "nn/token_parts.h"

#include <math.h>
#include <string.h>

/* Returns the index of the i-th requested layer, from 0 to L. Negative numbers in the options count from the end. If
 * the layer does not exist, sets the error and returns -1. */
static int64_t layer_at(const attn_msa *msa, const attn_msa_options *options, int64_t i)
{
    int64_t layers = attn__msa_of(msa->model)->layers, layer = options->layers[i];
    layer += layer < 0 ? layers + 1 : 0;
    if (layer >= 0 && layer <= layers)
        return layer;
    attn__fail(
        msa->context, ATTN_ERROR_ARGUMENT,
        "the representation of layer %lld is requested; allowed: 0 to %lld, or -%lld to -1, counted from the last",
        (long long)options->layers[i], (long long)layers, (long long)layers + 1);
    return -1;
}

/* --------------------------------------------------------------------------------------------- planning */

/* Sizes for planning the memory. They are doubles, because products of sizes may be too large for integers. Rounding
 * of large doubles does not matter here. */
typedef struct needs {
    double batch, rows, cols, tokens;
    /* at_once: number of tokens that a linear layer processes at once; hidden: number of tokens whose hidden
     * channels are in memory at once */
    double at_once, hidden;
    double threads;
    /* number of tokens that the model itself allows at once if there is no memory limit; 0: no limit */
    int64_t max_tokens;
    /* memory of one element of a packed weight in floats; more than 1 on AMX, where an element has three parts */
    double packed;
    const attn__msa *m;
    const attn_msa_options *o;
    bool bf16; /* true: projections are stored in bf16 and need half the memory */
    bool int8; /* true: rows of operands are quantized to int8, and products are stored before they are added */
} needs;

static double results_of(const needs *n)
{
    double maps = n->batch * (double)((n->o->map_layer ? 1 : n->m->layers) * n->m->heads) * n->cols;
    return (n->o->logits ? 2 * n->tokens * (double)n->m->vocabulary : 0) +
           (n->o->contacts ? n->batch * n->cols * n->cols : 0) + (n->o->row_maps ? maps * n->cols : 0) +
           (n->o->column_maps ? maps * n->rows * n->rows : 0) + (double)n->o->nlayers * n->tokens * (double)n->m->dim;
}

/* Returns the value of max_tokens with which the model computes `heads` heads at once. */
static int64_t tokens_for(const needs *n, int64_t heads)
{
    return (int64_t)(n->tokens * (double)heads / (double)n->m->heads) + 1;
}

static double hidden_together(const needs *n, int64_t heads)
{
    double bound = n->max_tokens > 0 ? (double)n->max_tokens : n->tokens;
    return fmin(n->hidden, heads < n->m->heads ? fmin(bound, (double)tokens_for(n, heads)) : bound);
}

/* number of floats of scratch memory per thread, for packed rows of a product and for tiles of attention */
enum { SCRATCH = 1 << 20 };

/* Returns the memory of a layer in floats. It includes x. If heads are computed in groups, it also includes a
 * normalized copy of x, because x changes after each group. Attention needs queries, keys, values, context and maps of
 * the heads that are computed at once. The feed-forward network needs the hidden channels of some tokens. Both also
 * need their packed weights. If the feed-forward network reuses the memory of attention, only the larger of the two
 * counts. */
static double layer_of(const needs *n, int64_t heads)
{
    double dim = (double)n->m->dim, share = (double)heads / (double)n->m->heads, number = n->bf16 ? 0.5 : 1;
    double maps = (n->o->row_maps || n->o->contacts ? (double)heads * n->batch * n->cols * n->cols : 0) +
                  (n->o->column_maps ? (double)heads * n->batch * n->cols * n->rows * n->rows : 0);
    double wide = (double)attn_tensor_length(n->m->layer[0].fc1.weight, 0), part = n->at_once * dim;
    double copy = heads < n->m->heads ? number : 0, rounded = n->bf16 ? 0.5 * share : 0;
    double together = hidden_together(n, heads), largest = fmax(together * wide, n->packed * dim * wide);
    double quantized = n->int8 ? together * (wide + dim) / 4 : 0;
    double hidden = together * (2 * dim + wide) + quantized + 2 * n->packed * dim * wide;
    double projections = (n->int8 ? 3 : 2) * part + 3 * n->packed * share * dim * dim;
    double attention = (4 * share + rounded) * n->tokens * dim + maps + projections;
    /* the feed-forward network reuses attention's memory if its largest array is not larger than x */
    bool reused = largest <= n->tokens * dim;
    return n->tokens * dim * (1 + copy) + (reused ? fmax(attention, hidden) : attention + hidden) +
           n->threads * SCRATCH;
}

static size_t bytes_of(const attn_msa *msa, const needs *n, int64_t heads)
{
    const attn_named_list *parameters = attn_model_parameters(msa->model);
    double count = 0;
    for (int64_t i = 0; i < parameters->n; i++)
        count += (double)attn_tensor_size(parameters->items[i].tensor);
    double bytes = sizeof(float) * (count + results_of(n) + layer_of(n, heads));
    return bytes < 9e18 ? (size_t)bytes : SIZE_MAX;
}

static size_t least_of(const attn_msa *msa, const needs *n)
{
    size_t least = SIZE_MAX;
    for (int64_t heads = n->m->heads; heads > 0; heads--) {
        size_t bytes = bytes_of(msa, n, heads);
        least = bytes < least ? bytes : least;
    }
    return least;
}

static attn_status choose(const attn_msa *msa, const needs *n, attn_msa_cost *plan)
{
    int64_t all = n->m->heads;
    plan->heads = attn__msa_heads_at_once(all, (int64_t)n->tokens, n->max_tokens);
    plan->max_tokens = n->max_tokens;
    plan->smallest = least_of(msa, n);
    if (n->o->memory && n->o->max_tokens <= 0) {
        while (plan->heads > 1 && bytes_of(msa, n, plan->heads) > n->o->memory) {
            plan->max_tokens = tokens_for(n, plan->heads - 1);
            plan->heads = attn__msa_heads_at_once(all, (int64_t)n->tokens, plan->max_tokens);
        }
    }
    plan->bytes = bytes_of(msa, n, plan->heads);
    if (n->o->memory && plan->bytes > n->o->memory)
        return attn__fail(
            msa->context, ATTN_ERROR_ARGUMENT,
            "the limit of memory is %zu bytes, but %.0f x %.0f x %.0f tokens need %zu bytes with max_tokens %lld, and %zu "
            "bytes with the smallest max_tokens",
            n->o->memory, n->batch, n->rows, n->cols, plan->bytes, (long long)plan->max_tokens, plan->smallest);
    return ATTN_OK;
}

attn_status attn_msa_estimate(const attn_msa *msa, int64_t batch, int64_t rows, int64_t cols,
                              const attn_msa_options *options, attn_msa_cost *plan)
{
    ATTN__CALL(msa->context);
    if (ATTN__CHECK_RESERVED(msa->context, options, attn_msa_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    const attn__msa *m = attn__msa_of(msa->model);
    attn_msa_options none = {0};
    needs n = {
        .batch = (double)batch, .rows = (double)rows, .cols = (double)cols, .m = m, .o = options ? options : &none};
    n.tokens = n.batch * n.rows * n.cols;
    n.bf16 = msa->model->precision == ATTN_PRECISION_BF16;
    n.int8 = msa->model->precision == ATTN_PRECISION_INT8;
    bool narrow = n.bf16 || n.int8;
    *plan = (attn_msa_cost){0};
    n.packed = attn__tokens_packed(msa->context, narrow);
    n.threads = msa->context->threads;
    n.max_tokens = n.o->max_tokens > 0 ? n.o->max_tokens : m->layer[0].max_tokens;
    n.at_once = fmin(n.tokens, (double)attn__tokens_at_once(msa->context, narrow));
    if (!attn__msa_sizes_fit(m, msa->context, batch, rows, cols))
        return ATTN_ERROR_SHAPE;
    int64_t wide = attn_tensor_length(m->layer[0].fc1.weight, 0);
    n.hidden = fmin(n.tokens, (double)attn__tokens_hidden(msa->context, narrow, (int64_t)n.tokens, m->dim, wide));
    if (n.o->contacts && !msa->has_regression)
        return attn__fail(
            msa->context, ATTN_ERROR_ARGUMENT,
            "the model has no contact regression, which contacts need; ESM's checkpoints have it in a second file, "
            "*-contact-regression.pt, and attn train contacts fits one for other models");
    if (n.o->nlayers > m->layers + 1)
        return attn__fail(msa->context, ATTN_ERROR_ARGUMENT, "%lld representations are requested; the model has %lld",
                          (long long)n.o->nlayers, (long long)m->layers + 1);
    if (n.o->map_layer < 0 || n.o->map_layer > m->layers)
        return attn__fail(msa->context, ATTN_ERROR_ARGUMENT,
                          "the attention maps of layer %lld are requested; allowed: 1 to %lld, 0 for all",
                          (long long)n.o->map_layer, (long long)m->layers);
    if (m->untied && (n.o->row_maps || n.o->contacts))
        return attn__fail(msa->context, ATTN_ERROR_UNSUPPORTED,
                          "row attentions and contacts need tied rows, but \"tied\" is false in this model's config");
    for (int64_t i = 0; i < n.o->nlayers; i++)
        if (layer_at(msa, n.o, i) < 0)
            return ATTN_ERROR_ARGUMENT;
    return choose(msa, &n, plan);
}

/* ----------------------------------------------------------------------------------------------- running */

attn_status attn_msa_run(attn_msa *msa, const int32_t *tokens, int64_t batch, int64_t rows, int64_t cols,
                         const attn_msa_options *options, attn_msa_result *result)
{
    ATTN__CALL(msa->context);
    attn_msa_options o = options ? *options : (attn_msa_options){0};
    attn_msa_cost plan;
    *result = (attn_msa_result){0};
    attn_status status = attn_msa_estimate(msa, batch, rows, cols, &o, &plan);
    if (status != ATTN_OK)
        return status;
    attn__msa_wishes wishes = {.logits = o.logits,
                               .contacts = o.contacts,
                               .row_maps = o.row_maps,
                               .column_maps = o.column_maps,
                               .map_layer = o.map_layer,
                               .max_tokens = plan.max_tokens};
    for (int64_t i = 0; i < o.nlayers; i++)
        wishes.hidden[layer_at(msa, &o, i)] = true;
    attn_tape_reset(msa->tape, &(attn_tape_options){0});
    attn__msa_results made;
    attn_tensor *ids = attn_tape_tensor(msa->tape, ATTN_I32, 3, (int64_t[]){batch, rows, cols}, tokens);
    bool done = ids && attn__model_begin(msa->model, msa->tape);
    if (done) {
        done = attn__msa_run(attn__msa_of(msa->model), msa->tape, ids, &wishes, &made);
        attn__model_end(msa->tape);
    }
    if (!done)
        return attn__result_status(msa->context, NULL);
    *result = (attn_msa_result){.logits = made.logits,
                                .contacts = made.contacts,
                                .row_maps = made.row_maps,
                                .column_maps = made.column_maps,
                                .representations = o.nlayers > 0 ? msa->representations : NULL};
    for (int64_t i = 0; i < o.nlayers; i++)
        msa->representations[i] = made.hidden[layer_at(msa, &o, i)];
    return ATTN_OK;
}
