/* SPDX-License-Identifier: MIT
 *
 * Draws attention over a picture as an interactive page. Layers that have the same queries and keys are the layers of
 * one map.
 */
#include "apps/view/view.h"

#include "base/context.h"

#include <stdio.h>
#include <string.h>

typedef struct gathering {
    const attn__attention *attention;
    attn__block_attention rolled;
    attn_explorer_map *maps;
    char (*names)[64];
    const float **weights; /* for each head of each layer, the address of its weights */
    int64_t n, used;
} gathering;

static bool alike(const attn__block_attention *a, const attn__block_attention *b)
{
    return a->heads == b->heads && a->before == b->before && a->rows == b->rows && a->cols == b->cols &&
           a->where == b->where && a->stack == b->stack && a->key_rows == b->key_rows && a->key_cols == b->key_cols;
}

static void name_map(char *name, size_t size, const attn__block_attention *b)
{
    static const char *const kinds[] = {"Attention", "Windows", "Row and column"};
    snprintf(name, size, "%s%s, %lld x %lld", b->stack ? b->stack : kinds[b->where], b->stack ? " blocks" : "",
             (long long)b->rows, (long long)b->cols);
    if (b->where == ATTN_KEYS_PLACES && b->key_rows != b->rows)
        snprintf(name, size, "%lld x %lld to %lld x %lld", (long long)b->rows, (long long)b->cols,
                 (long long)b->key_rows, (long long)b->key_cols);
}

static attn_explorer_map *begin_map(gathering *g, const attn__block_attention *b, int64_t layer)
{
    attn_explorer_map *m = &g->maps[g->n];
    *m = (attn_explorer_map){.name = g->names[g->n],
                             .heads = b->heads,
                             .rows = attn__block_queries(b),
                             .cols = attn__block_keys(b),
                             .weights = g->weights + g->used,
                             .first_layer = layer,
                             .query_rows = b->rows,
                             .query_cols = b->cols,
                             .key_rows = b->key_rows,
                             .key_cols = b->key_cols,
                             .where = b->where,
                             .before = "class token",
                             .shifted = b->shifted};
    name_map(g->names[g->n], sizeof *g->names, b);
    g->n++;
    return m;
}

static void add_layer(gathering *g, attn_explorer_map *m, const attn__block_attention *b)
{
    int64_t size = m->rows * m->cols;
    m->layers++;
    for (int64_t h = 0; h < b->heads; h++)
        g->weights[g->used++] = b->weights + h * size;
}

static attn_status gather(gathering *g)
{
    const attn__attention *a = g->attention;
    attn_explorer_map *m = NULL;
    if (a->blocks[0].before > 0) {
        attn_status status = attn__attention_rollout(&g->rolled, a);
        if (status != ATTN_OK)
            return status;
        m = begin_map(g, &g->rolled, 1);
        snprintf(g->names[0], sizeof *g->names, "Rollout of %lld layers", (long long)a->n);
        add_layer(g, m, &g->rolled);
        m = NULL;
    }
    for (int64_t i = 0; i < a->n; i++) {
        if (!m || !alike(&a->blocks[i], &a->blocks[i - 1]))
            m = begin_map(g, &a->blocks[i], i + 1);
        add_layer(g, m, &a->blocks[i]);
    }
    return ATTN_OK;
}

static attn_status render(gathering *g, attn_bytes *page, const attn_image *picture, const char *title,
                          const char *about)
{
    attn_context *context = g->attention->context;
    attn_bytes png = {0};
    attn_status status = gather(g);
    if (status == ATTN_OK)
        status = attn_image_png(&png, context, picture);
    attn_explorer explorer = {.title = title,
                              .about = about,
                              .n = g->n,
                              .maps = g->maps,
                              .png = (const unsigned char *)png.data,
                              .png_size = png.size,
                              .width = picture->width,
                              .height = picture->height,
                              .grid_rows = g->attention->blocks[0].rows,
                              .grid_cols = g->attention->blocks[0].cols};
    if (status == ATTN_OK)
        status = attn_explorer_render(page, context, &explorer);
    attn_bytes_free(context, &png);
    return status;
}

attn_status attn__attention_page(attn_bytes *page, const attn__attention *a, const attn_image *picture,
                                 const char *title, const char *about)
{
    size_t heads = 1;
    for (int64_t i = 0; i < a->n; i++)
        heads += (size_t)a->blocks[i].heads;
    gathering g = {.attention = a,
                   .maps = attn__alloc(a->context, ((size_t)a->n + 1) * sizeof *g.maps),
                   .names = attn__alloc(a->context, ((size_t)a->n + 1) * sizeof *g.names),
                   .weights = attn__alloc(a->context, heads * sizeof *g.weights)};
    attn_status status = g.maps && g.names && g.weights ? render(&g, page, picture, title, about) : ATTN_ERROR_MEMORY;
    attn__free(a->context, g.rolled.own);
    attn__free(a->context, (void *)g.weights);
    attn__free(a->context, g.names);
    attn__free(a->context, g.maps);
    return status;
}
