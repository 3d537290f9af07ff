/* SPDX-License-Identifier: MIT
 *
 * plot.h - pictures: attention as heatmaps and as a page to explore, contacts of a protein, curves.
 *
 * A picture is described by plain data of the caller's and rendered into memory as PNG, SVG or PDF, all the
 * same drawing.  Text is UTF-8.  Nothing is kept between calls; different contexts are independent.
 *
 * One thread at a time uses a context.
 */
#ifndef ATTN_PLOT_H
#define ATTN_PLOT_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_plot_format {
    ATTN_PLOT_PNG = 0,
    ATTN_PLOT_SVG,
    ATTN_PLOT_PDF,
    ATTN_PLOT_HTML /* a page to explore; of heatmaps, and of what classifiers attend to */
} attn_plot_format;

/* The format that a file's ending names (".png", ".svg", ".pdf", ".html", any case).  ATTN_ERROR_ARGUMENT: another
 * ending. */
ATTN_API attn_status attn_plot_format_from_path(attn_plot_format *format, attn_context *context, const char *path);

/* Colours of the values of a heatmap.  Those but HEAT are computed in Oklab (Ottosson 2020), in which steps of equal size
 * look alike. */
typedef enum attn_colours {
    ATTN_COLOURS_HEAT = 0, /* from cream over orange to dark red */
    ATTN_COLOURS_BLUES,    /* from white to dark blue */
    ATTN_COLOURS_REDS,     /* from white to dark red */
    ATTN_COLOURS_DIVERGING /* blue below 0, white at it, red above */
} attn_colours;

/* One map: weights of queries (rows) over keys (columns), values[row * cols + col].  A value that
 * is not finite is drawn grey: a key that a query may not see. */
typedef struct attn_panel {
    const char *title; /* NULL: none */
    int64_t rows, cols;
    const float *values;
} attn_panel;

/* Maps side by side that share their labels: the heads of one layer. */
typedef struct attn_panel_row {
    const char *title;                                 /* above the row; NULL: none */
    const char *const *row_labels, *const *col_labels; /* queries and keys; NULL: none.  rows and cols of them; ""
                                                       * leaves a place without: panels grow to fit the others */
    const char *row_name, *col_name;                   /* of the axes; NULL: "Queries", "Keys" */
    int64_t n;
    const attn_panel *panels;
} attn_panel_row;

typedef struct attn_heatmaps {
    const char *title; /* NULL: none */
    int64_t n;
    const attn_panel_row *rows;
    /* The one colour scale of all panels.  Both 0: from 0, or the least value if one is below it, to the largest;
     * DIVERGING: as far below 0 as above. */
    double low, high;
    int64_t per_line; /* panels side by side before a row wraps; 0: 8 */
    attn_colours colours;
    int64_t reserved[4];
} attn_heatmaps;

/* As ATTN_PLOT_HTML it is a page to explore (attn_explorer_render below), in which rows of panels with the same
 * labels are the layers of one map, called as the first one's title up to ", layer".  ATTN_ERROR_ARGUMENT (nothing
 * to draw, more than 4,096 rows or columns in a map, text that is not UTF-8), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_heatmaps_render(attn_bytes *picture, attn_context *context, const attn_heatmaps *heatmaps,
                                          attn_plot_format format);

/* Contacts of a protein: below the diagonal every probability, above it the best-scored pairs as dots; with known
 * distances these are true (filled) or not (crossed), and the true contacts are drawn behind them in grey. */
typedef struct attn_contact_map {
    const char *title;           /* NULL: none */
    int64_t n;                   /* residues */
    const float *probabilities;  /* [n,n] */
    const float *distances;      /* [n,n] in angstrom, NaN where not known; NULL: no structure */
    double cutoff;               /* of a true contact; 0: 8 */
    int64_t top, min_separation; /* pairs shown (0: n), and how far apart in the sequence they are at least (0: 6) */
    int64_t reserved[4];
} attn_contact_map;
/* ATTN_ERROR_ARGUMENT (no residues, more than 4,096, text that is not UTF-8), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_contact_map_render(attn_bytes *picture, attn_context *context, const attn_contact_map *map,
                                             attn_plot_format format);

/* Positions of the keys of a map on a picture. */
typedef enum attn_explorer_keys {
    ATTN_KEYS_PLACES = 0, /* the last key_rows * key_cols keys are cells of a grid over the whole picture */
    ATTN_KEYS_WINDOW, /* key_rows x key_cols cells of the queries' grid, of which the one in the middle is the query */
    ATTN_KEYS_CROSS   /* the query_cols cells of the query's row, then the query_rows cells of its column */
} attn_explorer_keys;

/* Maps of the same queries and keys: all layers and heads of one attention. */
typedef struct attn_explorer_map {
    const char *name;                         /* "Encoder self-attention"; NULL: "Attention" */
    bool contacts;                            /* probabilities of pairs instead of weights that sum to 1 */
    int64_t layers, heads, rows, cols;        /* queries are rows, keys columns */
    const char *const *queries, *const *keys; /* labels; NULL: counted from 1 */
    const float *const *weights;              /* [layers * heads] pointers to [rows, cols]; NaN is not there */
    int64_t first_layer;                      /* its number; 0: 1 */
    /* Over a picture: the grids of the queries and keys, 0: the explorer's; what those before the grid are called
     * (NULL: "token"); whether windows at the border are pushed inwards. */
    int64_t query_rows, query_cols, key_rows, key_cols;
    attn_explorer_keys where;
    const char *before;
    bool shifted;
} attn_explorer_map;
typedef struct attn_explorer {
    const char *title, *about; /* NULL: none */
    int64_t n;
    const attn_explorer_map *maps;
    /* A PNG picture whose cells are the last grid_rows * grid_cols queries and keys; png NULL: none.  There, places
     * without labels are called by their row and column. */
    const unsigned char *png;
    size_t png_size;
    int64_t width, height, grid_rows, grid_cols;
    attn_colours colours;
    int64_t reserved[4];
} attn_explorer;
/* One HTML page without anything from a network: all heads of all layers as small maps, one of them enlarged; point at a
 * query to see what it attends to, as lines, as a matrix or over the picture.  Weights are kept to 1/255 of their head's
 * largest.  The page is freed as a picture is.  ATTN_ERROR_ARGUMENT (nothing to show, sizes, a weight below 0 or
 * infinite, text that is not UTF-8), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_explorer_render(attn_bytes *page, attn_context *context, const attn_explorer *explorer);

/* A picture with a map of weights over it: weights[row * cols + col] is drawn over the part of the picture in the same
 * place. The title is followed by the largest weight in per cent. */
typedef struct attn_overlay {
    const char *title; /* NULL: none */
    int64_t width, height;
    int channels;                /* 1: grey, 3: red, green, blue */
    const unsigned char *pixels; /* [height][width][channels]; drawn grey */
    int64_t rows, cols;
    const float *weights; /* drawn from 0 to the map's largest; NaN and 0 leave the picture as it is; NULL: no map */
    int64_t query_row, query_col;   /* the query's cell, framed; negative: none */
    int64_t query_rows, query_cols; /* of the grid that it is counted in; 0: rows, cols */
} attn_overlay;
typedef struct attn_overlays {
    const char *title; /* NULL: none */
    int64_t n;
    const attn_overlay *items;
    int64_t per_line; /* side by side before a row wraps; 0: 5 */
    int64_t reserved[4];
} attn_overlays;
/* ATTN_ERROR_ARGUMENT (nothing to draw, a side not in 1 to 4,096, other channels), ATTN_ERROR_UNSUPPORTED
 * (ATTN_PLOT_HTML), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_overlays_render(attn_bytes *picture, attn_context *context, const attn_overlays *overlays,
                                          attn_plot_format format);

typedef enum attn_curve_style { ATTN_CURVE_LINE = 0, ATTN_CURVE_DASHES, ATTN_CURVE_DOTS } attn_curve_style;

/* y[i] at x[i]; a point that is not finite is left out, and a line has a gap there. */
typedef struct attn_curve {
    const char *name; /* in the legend; curves of one name have one entry and one colour; NULL: no entry */
    int64_t n;
    const double *x, *y;
    attn_curve_style style;
    int64_t panel; /* in which it is drawn, from 0 */
} attn_curve;

/* Panels side by side with the same axes. */
typedef struct attn_curves {
    const char *title, *x_name, *y_name; /* NULL: none */
    int64_t n;                           /* at most 8 colours */
    const attn_curve *curves;
    int64_t panels;                 /* 0: 1 */
    const char *const *panel_names; /* above each; NULL: none */
    bool log_x, log_y;
    double width, height; /* of the picture in points; 0: 480 x 300, or with several panels 210 for each x 250 */
    int64_t reserved[4];
} attn_curves;
/* ATTN_ERROR_ARGUMENT (no curves, or too many; no finite point; a number that is not above 0 on a logarithmic axis; a
 * panel or a side out of range; text that is not UTF-8), ATTN_ERROR_UNSUPPORTED (ATTN_PLOT_HTML), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_curves_render(attn_bytes *picture, attn_context *context, const attn_curves *curves,
                                        attn_plot_format format);

#ifdef __cplusplus
}
#endif
#endif
