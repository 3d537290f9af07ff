/* SPDX-License-Identifier: MIT
 *
 * Writes the explorer: one HTML page that needs no network. The page's code is explorer.html. This file writes the
 * page's data at the place marked in explorer.html:
 *
 *     a JSON object of names, labels and sizes
 *     for each map and layer, the weights of all heads: each weight is one byte, round(255 weight / largest weight of
 *     the head), and the bytes are deflated and in base64; the page decodes a layer when it is shown
 *     the picture, if there is one */
#include "attn/plot.h"

#include "base/utf8.h"
#include "plot/sink.h"

#include <math.h>
#include <string.h>
#include <zlib.h>

extern const unsigned char attn__explorer_page[];
extern const size_t attn__explorer_page_size;

static const char mark[] = "<!-- data -->\n";
enum { MOST = 4096 };

/* ---------------------------------------------------------------------------------------------- checking */

static attn_status check_text(attn_context *context, const char *what, const char *text)
{
    if (text && attn__utf8_first_invalid(text, strlen(text)) != SIZE_MAX)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "explorer: %s is not UTF-8", what);
    return ATTN_OK;
}

static attn_status check_labels(attn_context *context, const char *const *labels, int64_t n)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; labels && i < n && status == ATTN_OK; i++)
        status = check_text(context, "a label", labels[i]);
    return status;
}

static attn_status check_map(attn_context *context, const attn_explorer_map *m)
{
    if (m->layers < 1 || m->heads < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "explorer: a map has %lld layers of %lld heads; a map needs at least one of each",
                          (long long)m->layers, (long long)m->heads);
    if (m->rows < 1 || m->cols < 1 || m->rows > MOST || m->cols > MOST)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "explorer: a map has %lld x %lld weights; each side must be 1 to %d", (long long)m->rows,
                          (long long)m->cols, MOST);
    attn_status status = check_text(context, "a map's name", m->name);
    if (status == ATTN_OK)
        status = check_text(context, "what tokens are called", m->before);
    if (status == ATTN_OK)
        status = check_labels(context, m->queries, m->rows);
    return status == ATTN_OK ? check_labels(context, m->keys, m->cols) : status;
}

/* Checks that no weight is negative or infinite, because the page stores each weight in one byte, as a share of the
 * head's largest weight. */
static attn_status check_weights(attn_context *context, const attn_explorer_map *m)
{
    for (int64_t i = 0; i < m->layers * m->heads; i++) {
        for (int64_t j = 0; j < m->rows * m->cols; j++) {
            float weight = m->weights[i][j];
            if (weight < 0 || isinf(weight))
                return attn__fail(context, ATTN_ERROR_ARGUMENT,
                                  "explorer: \"%.60s\": map %lld, row %lld, column %lld: the weight is %g; a page "
                                  "shows only finite weights of at least 0",
                                  m->name ? m->name : "Attention", (long long)i, (long long)(j / m->cols),
                                  (long long)(j % m->cols), (double)weight);
        }
    }
    return ATTN_OK;
}

typedef struct grids {
    int64_t query_rows, query_cols, key_rows, key_cols;
} grids;

static grids grids_of(const attn_explorer *e, const attn_explorer_map *m)
{
    bool own = m->query_rows > 0 && m->query_cols > 0, keys = m->key_rows > 0 && m->key_cols > 0;
    grids g = {own ? m->query_rows : e->grid_rows, own ? m->query_cols : e->grid_cols, 0, 0};
    g.key_rows = keys ? m->key_rows : g.query_rows;
    g.key_cols = keys ? m->key_cols : g.query_cols;
    return g;
}

/* Checks that a map of the kind WINDOW or CROSS fits the grids, so that it can be drawn over a picture. The map must
 * have the number of keys that follows from the grids, and at least as many rows as the grid of queries has cells. */
static attn_status check_grid(attn_context *context, const attn_explorer *e, const attn_explorer_map *m)
{
    grids g = grids_of(e, m);
    int64_t keys = m->where == ATTN_KEYS_CROSS ? g.query_rows + g.query_cols : g.key_rows * g.key_cols;
    bool fits = g.query_rows <= MOST && g.query_cols <= MOST && g.key_rows <= MOST && g.key_cols <= MOST;
    if (m->where == ATTN_KEYS_PLACES || (fits && m->cols == keys && m->rows >= g.query_rows * g.query_cols))
        return ATTN_OK;
    if (!fits)
        return attn__fail(
            context, ATTN_ERROR_ARGUMENT,
            "explorer: the grid of queries is %lld x %lld and the grid of keys %lld x %lld; each side must "
            "be at most %d",
            (long long)g.query_rows, (long long)g.query_cols, (long long)g.key_rows, (long long)g.key_cols, MOST);
    if (m->cols != keys)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "explorer: a map has %lld columns; its grids need %lld, one for each key", (long long)m->cols,
                          (long long)keys);
    return attn__fail(context, ATTN_ERROR_ARGUMENT,
                      "explorer: a map has %lld rows; expected at least one for each query of a grid of %lld x %lld",
                      (long long)m->rows, (long long)g.query_rows, (long long)g.query_cols);
}

static attn_status check(attn_context *context, const attn_explorer *e)
{
    if (e->n < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "explorer: there are no maps to show: n is %lld; it must be at least 1", (long long)e->n);
    if (e->png && (e->width < 1 || e->height < 1))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "explorer: the picture has %lld x %lld pixels; each side must be at least 1",
                          (long long)e->width, (long long)e->height);
    if (e->png && (e->grid_rows < 1 || e->grid_cols < 1))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "explorer: the picture's grid is %lld x %lld; each side must be at least 1",
                          (long long)e->grid_rows, (long long)e->grid_cols);
    attn_status status = attn__check_choice(context, "the colours of a page", (int)e->colours, ATTN_COLOURS_DIVERGING);
    if (status == ATTN_OK)
        status = check_text(context, "the title", e->title);
    if (status == ATTN_OK)
        status = check_text(context, "the text below it", e->about);
    for (int64_t i = 0; i < e->n && status == ATTN_OK; i++)
        status = check_map(context, &e->maps[i]);
    for (int64_t i = 0; i < e->n && status == ATTN_OK; i++)
        status = check_grid(context, e, &e->maps[i]);
    for (int64_t i = 0; i < e->n && status == ATTN_OK; i++)
        status = check_weights(context, &e->maps[i]);
    return status;
}

/* --------------------------------------------------------------------------------------------- the object */

static void put_labels(attn__sink *sink, const char *name, const char *const *labels, int64_t n)
{
    attn__sink_text(sink, name);
    attn__sink_text(sink, "[");
    for (int64_t i = 0; labels && i < n; i++) {
        attn__sink_text(sink, i ? "," : "");
        attn__sink_json(sink, labels[i]);
    }
    attn__sink_text(sink, "]");
}

static void put_count(attn__sink *sink, const char *name, int64_t n)
{
    attn__sink_text(sink, name);
    attn__sink_number(sink, (double)n);
}

static double peak_of(const float *weights, int64_t n)
{
    double peak = 0;
    for (int64_t i = 0; i < n; i++)
        peak = fmax(peak, (double)weights[i]); /* fmax ignores the NaN of a masked key */
    return peak;
}

static void put_peaks(attn__sink *sink, const attn_explorer_map *m)
{
    attn__sink_text(sink, ",\"peaks\":[");
    for (int64_t i = 0; i < m->layers * m->heads; i++) {
        attn__sink_text(sink, i == 0 ? "[" : i % m->heads == 0 ? "],[" : ",");
        attn__sink_number(sink, peak_of(m->weights[i], m->rows * m->cols));
    }
    attn__sink_text(sink, "]]");
}

/* Writes where the map's queries and keys are in the picture. */
static void put_places(attn__sink *sink, const attn_explorer *e, const attn_explorer_map *m)
{
    static const char *const names[] = {"places", "window", "cross"};
    grids g = grids_of(e, m);
    put_count(sink, ",\"grid\":[", g.query_rows);
    put_count(sink, ",", g.query_cols);
    put_count(sink, ",", g.key_rows);
    put_count(sink, ",", g.key_cols);
    attn__sink_text(sink, "],\"where\":");
    attn__sink_json(sink, names[m->where]);
    attn__sink_text(sink, ",\"before\":");
    attn__sink_json(sink, m->before ? m->before : "token");
    attn__sink_text(sink, m->shifted ? ",\"shifted\":true" : "");
}

static void put_map(attn__sink *sink, const attn_explorer *e, const attn_explorer_map *m)
{
    attn__sink_text(sink, "{\"name\":");
    attn__sink_json(sink, m->name ? m->name : "Attention");
    attn__sink_text(sink, m->contacts ? ",\"kind\":\"contacts\"" : ",\"kind\":\"attention\"");
    put_count(sink, ",\"layers\":", m->layers);
    put_count(sink, ",\"heads\":", m->heads);
    put_count(sink, ",\"rows\":", m->rows);
    put_count(sink, ",\"cols\":", m->cols);
    put_count(sink, ",\"first\":", m->first_layer > 0 ? m->first_layer : 1);
    put_labels(sink, ",\"queries\":", m->queries, m->rows);
    put_labels(sink, ",\"keys\":", m->keys, m->cols);
    put_peaks(sink, m);
    if (e->png)
        put_places(sink, e, m);
    attn__sink_text(sink, "}");
}

static void put_object(attn__sink *sink, const attn_explorer *e)
{
    attn__sink_text(sink, "<script type=\"application/json\" id=\"attn-page\">{\"title\":");
    attn__sink_json(sink, e->title ? e->title : "Attention");
    attn__sink_text(sink, ",\"about\":");
    attn__sink_json(sink, e->about);
    if (e->colours != ATTN_COLOURS_HEAT)
        attn__sink_text(sink, e->colours == ATTN_COLOURS_BLUES ? ",\"colours\":\"blues\"" : ",\"colours\":\"reds\"");
    if (e->png) {
        put_count(sink, ",\"image\":{\"width\":", e->width);
        put_count(sink, ",\"height\":", e->height);
        put_count(sink, ",\"rows\":", e->grid_rows);
        put_count(sink, ",\"columns\":", e->grid_cols);
        attn__sink_text(sink, "}");
    }
    attn__sink_text(sink, ",\"maps\":[");
    for (int64_t i = 0; i < e->n; i++) {
        attn__sink_text(sink, i ? "," : "");
        put_map(sink, e, &e->maps[i]);
    }
    attn__sink_text(sink, "]}</script>\n");
}

/* -------------------------------------------------------------------------------------------- the weights */

static void quantize(unsigned char *to, const float *weights, int64_t n)
{
    double peak = peak_of(weights, n);
    for (int64_t i = 0; i < n; i++) {
        double share = peak > 0 ? (double)weights[i] / peak : 0;
        to[i] = share > 0 ? (unsigned char)lrint(255 * fmin(share, 1)) : 0;
    }
}

static void put_id(attn__sink *sink, int64_t map, int64_t layer)
{
    put_count(sink, "<script type=\"text/plain\" id=\"w", map);
    put_count(sink, "-", layer);
    attn__sink_text(sink, "\">");
}

static void put_layer(attn__sink *sink, const attn_explorer_map *m, int64_t map, int64_t layer)
{
    int64_t size = m->rows * m->cols;
    size_t bytes = attn__size_mul((size_t)size, (size_t)m->heads);
    uLongf packed = compressBound((uLong)bytes);
    unsigned char *plain = attn__alloc(sink->context, bytes), *deflated = attn__alloc(sink->context, packed);
    if (!plain || !deflated) {
        sink->status = ATTN_ERROR_MEMORY;
    } else {
        for (int64_t h = 0; h < m->heads; h++)
            quantize(plain + h * size, m->weights[layer * m->heads + h], size);
        if (compress2(deflated, &packed, plain, (uLong)bytes, 6) != Z_OK)
            sink->status = attn__fail_memory(sink->context, packed);
        put_id(sink, map, layer);
        attn__sink_base64(sink, deflated, packed);
        attn__sink_text(sink, "</script>\n");
    }
    attn__free(sink->context, deflated);
    attn__free(sink->context, plain);
}

static void put_data(attn__sink *sink, const attn_explorer *e)
{
    put_object(sink, e);
    for (int64_t i = 0; i < e->n; i++)
        for (int64_t layer = 0; layer < e->maps[i].layers && sink->status == ATTN_OK; layer++)
            put_layer(sink, &e->maps[i], i, layer);
    if (e->png) {
        attn__sink_text(sink, "<script type=\"text/plain\" id=\"attn-image\">");
        attn__sink_base64(sink, e->png, e->png_size);
        attn__sink_text(sink, "</script>\n");
    }
}

attn_status attn_explorer_render(attn_bytes *page, attn_context *context, const attn_explorer *explorer)
{
    ATTN__CALL(context);
    *page = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(context, explorer, attn_explorer) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_status status = check(context, explorer);
    if (status != ATTN_OK)
        return status;
    const char *html = (const char *)attn__explorer_page, *place = strstr(html, mark);
    size_t before = place ? (size_t)(place - html) : attn__explorer_page_size;
    attn__sink sink = {.context = context, .picture = page};
    attn__sink_put(&sink, html, before);
    put_data(&sink, explorer);
    if (place)
        attn__sink_text(&sink, place + sizeof mark - 1);
    if (sink.status != ATTN_OK)
        attn_bytes_free(context, page);
    return sink.status;
}
