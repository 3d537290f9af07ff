/* SPDX-License-Identifier: MIT
 *
 * Finds the positions of keys on a picture, and computes attention rollout.
 */
#include "apps/view/view.h"

#include "base/context.h"

#include <string.h>

attn__block_attention *attn__attention_add(attn__attention *a)
{
    attn__block_attention *grown = attn__alloc_zero(a->context, attn__size_mul((size_t)a->n + 1, sizeof *grown));
    if (!grown)
        return NULL;
    if (a->n > 0)
        memcpy(grown, a->blocks, (size_t)a->n * sizeof *grown);
    attn__free(a->context, a->blocks);
    a->blocks = grown;
    return &grown[a->n++];
}

attn_status attn__attention_begin(attn__attention *a, attn_context *context)
{
    *a = (attn__attention){.context = context, .outputs = {.context = context}};
    return attn_tape_create(&a->tape, context);
}

attn_status attn__attention_run(attn__attention *a, attn_model *model, const attn_named_list *inputs)
{
    const attn_architecture *architecture = attn_model_architecture(model);
    attn_status status = ATTN_OK;
    for (int i = 0; i < architecture->noutputs && status == ATTN_OK; i++)
        if (architecture->outputs[i].optional)
            status = attn_named_add(&a->outputs, architecture->outputs[i].name, NULL);
    return status == ATTN_OK ? attn_model_forward(model, a->tape, inputs, &a->outputs) : status;
}

attn_status attn__attention_take_cross(const attn__attention *a, attn__block_attention *b, const float *weights)
{
    int64_t keys = b->rows + b->cols, queries = b->heads * b->rows * b->cols;
    b->own = attn__alloc(a->context, attn__size_mul((size_t)(queries * keys), sizeof *b->own));
    if (!b->own)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < queries; i++) {
        memcpy(b->own + i * keys, weights + i * keys + b->rows, (size_t)b->cols * sizeof *weights);
        memcpy(b->own + i * keys + b->cols, weights + i * keys, (size_t)b->rows * sizeof *weights);
    }
    b->weights = b->own;
    return ATTN_OK;
}

void attn__attention_free(attn__attention *a)
{
    for (int64_t i = 0; i < a->n; i++)
        attn__free(a->context, a->blocks[i].own);
    attn__free(a->context, a->blocks);
    attn_named_clear(&a->outputs);
    attn_tape_destroy(a->tape);
}

/* ------------------------------------------------------------------------------------------------- keys */

int64_t attn__block_queries(const attn__block_attention *block)
{
    return block->before + block->rows * block->cols;
}

int64_t attn__block_keys(const attn__block_attention *block)
{
    if (block->where == ATTN_KEYS_CROSS)
        return block->rows + block->cols;
    return (block->where == ATTN_KEYS_PLACES ? block->before : 0) + block->key_rows * block->key_cols;
}

/* Returns the first row or column of a window of `taps` rows or columns around `centre`. n is the number of rows or
 * columns of the grid. */
static int64_t window_start(const attn__block_attention *b, int64_t centre, int64_t taps, int64_t n)
{
    int64_t start = centre - taps / 2;
    if (b->shifted) {
        start = start + taps > n ? n - taps : start;
        start = start < 0 ? 0 : start;
    }
    return start;
}

bool attn__block_place(const attn__block_attention *b, int64_t row, int64_t col, int64_t key, int64_t *key_row,
                       int64_t *key_col)
{
    if (b->where == ATTN_KEYS_CROSS) {
        *key_row = key < b->cols ? row : key - b->cols;
        *key_col = key < b->cols ? key : col;
        return true;
    }
    if (b->where == ATTN_KEYS_PLACES) {
        *key_row = (key - b->before) / b->key_cols;
        *key_col = (key - b->before) % b->key_cols;
        return key >= b->before;
    }
    *key_row = window_start(b, row, b->key_rows, b->rows) + key / b->key_cols;
    *key_col = window_start(b, col, b->key_cols, b->cols) + key % b->key_cols;
    return *key_row >= 0 && *key_row < b->rows && *key_col >= 0 && *key_col < b->cols;
}

/* ----------------------------------------------------------------------------------------------- rollout */

/* Computes the matrix (M + identity) / 2, where M is the mean of the weights over all heads. The result `to` is
 * [T,T]. */
static void mix_heads(const attn__block_attention *b, int64_t t, float *to)
{
    for (int64_t i = 0; i < t * t; i++) {
        double sum = 0;
        for (int64_t h = 0; h < b->heads; h++)
            sum += (double)b->weights[h * t * t + i];
        to[i] = (float)((sum / (double)b->heads + (i / t == i % t)) / 2);
    }
}

/* Computes the matrix product `to` = `mixed` * `rolled`. All three matrices are [T,T]. */
static void multiply(const float *mixed, const float *rolled, int64_t t, float *to)
{
    memset(to, 0, (size_t)(t * t) * sizeof *to);
    for (int64_t i = 0; i < t; i++) {
        for (int64_t k = 0; k < t; k++) {
            float w = mixed[i * t + k];
            for (int64_t j = 0; j < t; j++)
                to[i * t + j] += w * rolled[k * t + j];
        }
    }
}

attn_status attn__attention_rollout(attn__block_attention *rolled, const attn__attention *a)
{
    int64_t t = attn__block_queries(&a->blocks[0]);
    size_t bytes = attn__size_mul((size_t)(t * t), sizeof(float));
    float *now = attn__alloc(a->context, bytes), *next = attn__alloc(a->context, bytes);
    float *mixed = attn__alloc(a->context, bytes);
    for (int64_t i = 0; now && next && mixed && i < a->n; i++) {
        mix_heads(&a->blocks[i], t, i ? mixed : now);
        if (i > 0) {
            multiply(mixed, now, t, next);
            float *last = now;
            now = next;
            next = last;
        }
    }
    bool made = now && next && mixed;
    attn__free(a->context, next);
    attn__free(a->context, mixed);
    if (!made) {
        attn__free(a->context, now);
        return ATTN_ERROR_MEMORY;
    }
    *rolled = a->blocks[0];
    rolled->heads = 1;
    rolled->weights = rolled->own = now;
    return ATTN_OK;
}
