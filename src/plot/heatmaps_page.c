/* SPDX-License-Identifier: MIT
 *
 * Renders heatmaps as an interactive page. Rows of panels with the same labels become the layers of one map. */
#include "plot/heatmaps.h"

#include "base/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 96, MOST = 4096 };

static attn_status check_row(attn_context *context, const attn_panel_row *row, int64_t index)
{
    if (row->n < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "heatmaps: row %lld has no panels", (long long)index);
    for (int64_t p = 0; p < row->n; p++) {
        int64_t rows = row->panels[p].rows, cols = row->panels[p].cols;
        if (rows < 1 || cols < 1 || rows > MOST || cols > MOST)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "heatmaps: row %lld, panel %lld has %lld x %lld weights; each side must be 1 to %d",
                              (long long)index, (long long)p, (long long)rows, (long long)cols, MOST);
    }
    return ATTN_OK;
}

attn_status attn__heatmaps_check(attn_context *context, const attn_heatmaps *maps)
{
    if (maps->n < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "heatmaps: there are no rows of panels to draw: n is %lld; it must be at least 1",
                          (long long)maps->n);
    attn_status status =
        attn__check_choice(context, "the colours of heatmaps", (int)maps->colours, ATTN_COLOURS_DIVERGING);
    for (int64_t i = 0; i < maps->n && status == ATTN_OK; i++)
        status = check_row(context, &maps->rows[i], i);
    return status;
}

typedef struct gathered {
    attn_explorer_map *maps;
    const float **weights; /* weights[i]: values of panel i; panels are numbered row by row */
    char (*names)[NAME];
    int64_t n, used;
} gathered;

static bool same_size(const attn_panel_row *row, const attn_explorer_map *map)
{
    for (int64_t i = 0; i < row->n; i++)
        if (row->panels[i].rows != map->rows || row->panels[i].cols != map->cols)
            return false;
    return true;
}

static bool continues(const attn_panel_row *row, const attn_explorer_map *map)
{
    return row->n == map->heads && row->row_labels == map->queries && row->col_labels == map->keys &&
           same_size(row, map);
}

static void name_of(char *name, const char *title)
{
    const char *layer = title ? strstr(title, ", layer") : NULL;
    snprintf(name, NAME, "%.*s", layer ? (int)(layer - title) : NAME - 1, title ? title : "Attention");
}

/* Returns the number after ", layer" in a title, or 0 if there is none. */
static int64_t layer_of(const char *title)
{
    const char *layer = title ? strstr(title, ", layer ") : NULL;
    return layer ? strtoll(layer + strlen(", layer "), NULL, 10) : 0;
}

/* Removes the number of a layer from a map's name ("Weights 1" becomes "Weights"), because the map has several
 * layers. */
static void drop_number(char *name)
{
    size_t n = strlen(name), digits = n;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    if (digits < n && digits > 1 && name[digits - 1] == ' ')
        name[digits - 1] = '\0';
}

/* The map has the size of the panel `first`. */
static void begin_map(gathered *g, const attn_panel_row *row, const attn_panel *first, int64_t heads)
{
    name_of(g->names[g->n], row->title);
    g->maps[g->n] = (attn_explorer_map){.name = g->names[g->n],
                                        .heads = heads,
                                        .rows = first->rows,
                                        .cols = first->cols,
                                        .queries = row->row_labels,
                                        .keys = row->col_labels,
                                        .weights = g->weights + g->used,
                                        .first_layer = layer_of(row->title)};
    g->n++;
}

/* Adds a row of panels as a layer of a map. If panels of the row differ in size, each panel becomes a map. */
static void add_row(gathered *g, const attn_panel_row *row)
{
    const attn_explorer_map first = {.rows = row->panels[0].rows, .cols = row->panels[0].cols};
    bool even = same_size(row, &first);
    if (even && !(g->n > 0 && continues(row, &g->maps[g->n - 1])))
        begin_map(g, row, &row->panels[0], row->n);
    if (even && ++g->maps[g->n - 1].layers == 2)
        drop_number(g->names[g->n - 1]);
    for (int64_t i = 0; i < row->n; i++) {
        if (!even) {
            begin_map(g, row, &row->panels[i], 1);
            g->maps[g->n - 1].layers = 1;
        }
        g->weights[g->used++] = row->panels[i].values;
    }
}

attn_status attn__heatmaps_page(attn_bytes *page, attn_context *context, const attn_heatmaps *heatmaps)
{
    size_t panels = 0;
    for (int64_t i = 0; i < heatmaps->n; i++)
        panels += (size_t)heatmaps->rows[i].n;
    gathered g = {.maps = attn__alloc(context, attn__size_mul(panels, sizeof *g.maps)),
                  .weights = attn__alloc(context, attn__size_mul(panels, sizeof *g.weights)),
                  .names = attn__alloc(context, attn__size_mul(panels, sizeof *g.names))};
    attn_status status = g.maps && g.weights && g.names ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < heatmaps->n && status == ATTN_OK; i++)
        add_row(&g, &heatmaps->rows[i]);
    attn_explorer explorer = {.title = heatmaps->title, .n = g.n, .maps = g.maps, .colours = heatmaps->colours};
    if (status == ATTN_OK)
        status = attn_explorer_render(page, context, &explorer);
    attn__free(context, g.names);
    attn__free(context, g.weights);
    attn__free(context, g.maps);
    return status;
}
