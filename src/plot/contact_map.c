/* SPDX-License-Identifier: MIT
 *
 * Draws a protein's contacts as a square. Probabilities are below the diagonal, and the pairs with the highest
 * probabilities are above it.
 */
#include "attn/plot.h"

#include "base/context.h"
#include "plot/canvas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double SIDE = 430, LEFT = 46, TOP = 40, BELOW = 62, RIGHT = 78, LABEL = 8.5, NAME = 9.5, HEAD = 13;
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
    cairo_rectangle(cr, LEFT + (double)column * p->cell, TOP + (double)row * p->cell, p->cell + 0.15, p->cell + 0.15);
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

/* Draws the mark of a pair. The mark is a cross if the pair is known not to be a contact, and otherwise a dot. */
static void draw_pair(const page *p, cairo_t *cr, const pair *best)
{
    const attn_contact_map *m = p->map;
    double x = LEFT + place(p, best->j), y = TOP + place(p, best->i), r = fmax(1.3, fmin(3.2, p->cell * 0.42));
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

static void draw_frame(cairo_t *cr)
{
    attn__set_colour(cr, attn__grey);
    cairo_set_line_width(cr, 0.7);
    cairo_rectangle(cr, LEFT, TOP, SIDE, SIDE);
    cairo_move_to(cr, LEFT, TOP);
    cairo_line_to(cr, LEFT + SIDE, TOP + SIDE);
    cairo_stroke(cr);
}

/* Draws the axes. Residues are numbered from 1, as is usual in biology. */
static void draw_axes(const page *p, cairo_t *cr)
{
    double ticks[12];
    int n = attn__ticks(1, (double)p->map->n, ticks);
    attn__set_colour(cr, attn__ink);
    attn__font(cr, LABEL, false);
    for (int t = 0; t < n; t++) {
        if (ticks[t] < 1 || ticks[t] > (double)p->map->n || ticks[t] != floor(ticks[t]))
            continue;
        char text[32];
        attn__tick_text(ticks[t], n > 1 ? ticks[1] - ticks[0] : 1, text, sizeof text);
        double at = place(p, (int64_t)ticks[t] - 1);
        attn__text(cr, LEFT + at, TOP + SIDE + LABEL + 6, text, ATTN_CENTRE, 0);
        attn__text(cr, LEFT - 5, TOP + at + LABEL * 0.36, text, ATTN_RIGHT, 0);
    }
    attn__set_colour(cr, attn__grey);
    attn__font(cr, NAME, false);
    attn__text(cr, LEFT + SIDE / 2, TOP + SIDE + LABEL + 22, "Residue", ATTN_CENTRE, 0);
    attn__text(cr, NAME + 3, TOP + SIDE / 2, "Residue", ATTN_CENTRE, -M_PI / 2);
}

static void draw_scale(cairo_t *cr)
{
    enum { STEPS = 128 };
    double x = LEFT + SIDE + 18, height = SIDE / 2, width = 12, y = TOP + SIDE - height;
    for (int i = 0; i < STEPS; i++) {
        attn__set_colour(cr, attn__colour_of(ATTN_COLOURS_HEAT, 1 - (i + 0.5) / STEPS));
        cairo_rectangle(cr, x, y + height * i / STEPS, width, height / STEPS + 0.3);
        cairo_fill(cr);
    }
    attn__set_colour(cr, attn__ink);
    attn__font(cr, LABEL, false);
    for (int i = 0; i <= 5; i++) {
        char text[32];
        attn__tick_text(i * 0.2, 0.2, text, sizeof text);
        attn__text(cr, x + width + 4, y + height * (1 - i * 0.2) + LABEL * 0.36, text, ATTN_LEFT, 0);
    }
    attn__set_colour(cr, attn__grey);
    attn__text(cr, x + width + 30, y + height / 2, "Probability", ATTN_CENTRE, -M_PI / 2);
}

static void draw_legend(const page *p, cairo_t *cr)
{
    char text[96];
    const char *words = p->map->distances ? "best pairs above the diagonal: dot true, cross not; grey: contacts"
                                          : "best pairs above the diagonal";
    snprintf(text, sizeof text, "%lld %s", (long long)p->nbest, words);
    attn__set_colour(cr, attn__grey);
    attn__font(cr, LABEL, false);
    attn__text(cr, LEFT + SIDE / 2, TOP + SIDE + LABEL + 38, text, ATTN_CENTRE, 0);
}

static void draw_page(void *user, cairo_t *cr)
{
    const page *p = user;
    if (p->map->title) {
        attn__set_colour(cr, attn__ink);
        attn__font(cr, HEAD, true);
        attn__text(cr, LEFT, TOP - 14, p->map->title, ATTN_LEFT, 0);
    }
    draw_cells(p, cr);
    draw_frame(cr);
    for (int64_t i = p->nbest; i-- > 0;)
        draw_pair(p, cr, &p->best[i]);
    draw_axes(p, cr);
    draw_scale(cr);
    draw_legend(p, cr);
}

attn_status attn_contact_map_render(attn_bytes *picture, attn_context *context, const attn_contact_map *map,
                                    attn_plot_format format)
{
    ATTN__CALL(context);
    *picture = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(context, map, attn_contact_map) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (map->n < 1 || map->n > MOST)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "a map of contacts has 1 to %d residues, this one %lld", MOST,
                          (long long)map->n);
    page p = {.map = map, .cell = SIDE / (double)map->n, .cutoff = map->cutoff > 0 ? map->cutoff : 8};
    p.best = attn__alloc(context, attn__size_mul(attn__size_mul((size_t)map->n, (size_t)map->n), sizeof *p.best));
    if (!p.best)
        return ATTN_ERROR_MEMORY;
    rank(&p);
    attn_status status =
        attn__canvas_render(picture, context, format, LEFT + SIDE + RIGHT, TOP + SIDE + BELOW, draw_page, &p);
    attn__free(context, p.best);
    return status;
}
