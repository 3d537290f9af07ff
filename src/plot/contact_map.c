/* SPDX-License-Identifier: MIT
 *
 * Draws a protein's contacts as a square. Probabilities are below the diagonal, and the pairs with the highest
 * probabilities are above it.
 */
#include "attn/plot.h"

#include "base/context.h"
#include "plot/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double SIDE = 430, MARGIN = 14, LABEL = 8.5, NAME = 9.5, HEAD = 13;
static const attn__scale scale = {.colours = ATTN_COLOURS_HEAT, .low = 0, .high = 1, .name = "Probability"};
static const attn__colour right = {0.05, 0.35, 0.75}, wrong = {0.85, 0.25, 0.15}, known = {0.80, 0.80, 0.80};
enum { MOST = 4096 };

typedef struct pair {
    float probability;
    int64_t i, j;
} pair;

typedef struct page {
    const attn_contact_map *map;
    pair *best;
    int64_t nbest;
    double cell, cutoff;
    double left, top, legend, width, height; /* legend: y of the legend's first line */
} page;

static int compare(const void *left, const void *other)
{
    const pair *a = left, *b = other;
    if (a->probability != b->probability)
        return a->probability < b->probability ? 1 : -1;
    return a->i != b->i ? (a->i > b->i) - (a->i < b->i) : (a->j > b->j) - (a->j < b->j);
}

/* Sorts the pairs of residues by probability, highest first, and keeps the first `top` pairs. Pairs are ignored if
 * their residues are too close to each other in the sequence. */
static void rank(page *p)
{
    const attn_contact_map *m = p->map;
    int64_t least = m->min_separation > 0 ? m->min_separation : 6, top = m->top > 0 ? m->top : m->n;
    for (int64_t i = 0; i < m->n; i++) {
        for (int64_t j = i + least; j < m->n; j++) {
            float probability = m->probabilities[i * m->n + j];
            if (!isnan(probability))
                p->best[p->nbest++] = (pair){probability, i, j};
        }
    }
    qsort(p->best, (size_t)p->nbest, sizeof *p->best, compare);
    p->nbest = p->nbest < top ? p->nbest : top;
}

static double place(const page *p, int64_t i)
{
    return ((double)i + 0.5) * p->cell;
}

static void fill_cell(const page *p, cairo_t *cr, int64_t row, int64_t column, attn__colour colour)
{
    attn__set_colour(cr, colour);
    cairo_rectangle(cr, p->left + (double)column * p->cell, p->top + (double)row * p->cell, p->cell + 0.15,
                    p->cell + 0.15);
    cairo_fill(cr);
}

static void draw_cells(const page *p, cairo_t *cr)
{
    const attn_contact_map *m = p->map;
    for (int64_t i = 0; i < m->n; i++) {
        for (int64_t j = i + 1; j < m->n; j++) {
            double probability = (double)m->probabilities[i * m->n + j];
            fill_cell(p, cr, j, i, isnan(probability) ? attn__absent : attn__colour_of(ATTN_COLOURS_HEAT, probability));
            if (m->distances && (double)m->distances[i * m->n + j] < p->cutoff)
                fill_cell(p, cr, i, j, known);
        }
    }
}

/* The mark is a cross if the pair is known not to be a contact, and otherwise a dot. */
static void draw_pair(const page *p, cairo_t *cr, const pair *best)
{
    const attn_contact_map *m = p->map;
    double x = p->left + place(p, best->j), y = p->top + place(p, best->i), r = fmax(1.3, fmin(3.2, p->cell * 0.42));
    float distance = m->distances ? m->distances[best->i * m->n + best->j] : NAN;
    if (isnan(distance) || (double)distance < p->cutoff) {
        attn__set_colour(cr, m->distances && isnan(distance) ? attn__grey : right);
        cairo_arc(cr, x, y, r, 0, 2 * M_PI);
        cairo_fill(cr);
        return;
    }
    attn__set_colour(cr, wrong);
    cairo_set_line_width(cr, 0.9);
    cairo_move_to(cr, x - r, y - r);
    cairo_line_to(cr, x + r, y + r);
    cairo_move_to(cr, x - r, y + r);
    cairo_line_to(cr, x + r, y - r);
    cairo_stroke(cr);
}

static void draw_frame(const page *p, cairo_t *cr)
{
    attn__set_colour(cr, attn__grey);
    cairo_set_line_width(cr, 0.7);
    cairo_rectangle(cr, p->left, p->top, SIDE, SIDE);
    cairo_move_to(cr, p->left, p->top);
    cairo_line_to(cr, p->left + SIDE, p->top + SIDE);
    cairo_stroke(cr);
}

/* Residues are numbered from 1, as is usual in biology. */
static void draw_axes(const page *p, cairo_t *cr)
{
    double bottom = p->top + SIDE + attn__positions_height();
    attn__positions_draw(cr, 1, p->map->n, p->cell, p->left, p->top, true);
    attn__positions_draw(cr, 1, p->map->n, p->cell, p->left, p->top + SIDE, false);
    attn__set_colour(cr, attn__grey);
    attn__font(cr, NAME, false);
    attn__text(cr, p->left + SIDE / 2, bottom + NAME + 4, "Residue", ATTN_CENTRE, 0);
    attn__text(cr, NAME + 3, p->top + SIDE / 2, "Residue", ATTN_CENTRE, -M_PI / 2);
}

static void write_legend(const page *p, char text[96])
{
    const char *words = p->map->distances ? "best pairs above the diagonal: dot true, cross not; grey: contacts"
                                          : "best pairs above the diagonal";
    snprintf(text, 96, "%lld %s", (long long)p->nbest, words);
}

/* The measuring and the drawing of a text use the same style. */
static attn__text_style head_style(const page *p)
{
    return (attn__text_style){.size = HEAD, .width = p->width - p->left - MARGIN, .bold = true};
}

static attn__text_style legend_style(void)
{
    return (attn__text_style){.size = LABEL, .width = SIDE, .anchor = ATTN_CENTRE};
}

static void measure(page *p, cairo_t *cr)
{
    char text[96];
    write_legend(p, text);
    p->left = NAME + 10 + attn__positions_width(cr, p->map->n);
    p->width = p->left + SIDE + MARGIN + attn__scale_width(cr, &scale) + MARGIN;
    const attn__text_style head = head_style(p), legend = legend_style();
    int lines = attn__text_lines(cr, 0, 0, p->map->title, &head, false);
    p->top = MARGIN + lines * attn__leading(HEAD) + (lines > 0 ? 4 : 0);
    p->legend = p->top + SIDE + attn__positions_height() + attn__leading(NAME) + 8 + LABEL;
    p->height = p->legend + attn__text_lines(cr, 0, 0, text, &legend, false) * attn__leading(LABEL);
}

static void draw_page(void *user, cairo_t *cr)
{
    const page *p = user;
    char text[96];
    const attn__text_style head = head_style(p), legend = legend_style();
    attn__set_colour(cr, attn__ink);
    attn__text_lines(cr, p->left, MARGIN + HEAD, p->map->title, &head, true);
    draw_cells(p, cr);
    draw_frame(p, cr);
    for (int64_t i = p->nbest; i-- > 0;)
        draw_pair(p, cr, &p->best[i]);
    draw_axes(p, cr);
    attn__scale_draw(cr, &scale, p->left + SIDE + MARGIN, p->top, SIDE);
    write_legend(p, text);
    attn__set_colour(cr, attn__grey);
    attn__text_lines(cr, p->left + SIDE / 2, p->legend, text, &legend, true);
}

attn_status attn_contact_map_render(attn_bytes *picture, attn_context *context, const attn_contact_map *map,
                                    attn_plot_format format)
{
    ATTN__CALL(context);
    *picture = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(context, map, attn_contact_map) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (map->n < 1 || map->n > MOST)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "a map of contacts must have 1 to %d residues, but this one has %lld", MOST,
                          (long long)map->n);
    page p = {.map = map, .cell = SIDE / (double)map->n, .cutoff = map->cutoff > 0 ? map->cutoff : 8};
    p.best = attn__alloc(context, attn__size_mul(attn__size_mul((size_t)map->n, (size_t)map->n), sizeof *p.best));
    if (!p.best)
        return ATTN_ERROR_MEMORY;
    rank(&p);
    cairo_t *measuring = attn__measuring();
    measure(&p, measuring);
    cairo_destroy(measuring);
    attn_status status = attn__canvas_render(picture, context, format, p.width, p.height, draw_page, &p);
    attn__free(context, p.best);
    return status;
}
