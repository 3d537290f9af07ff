/* SPDX-License-Identifier: MIT
 *
 * plot.h - draws pictures of attention (heatmaps or an interactive page), of a protein's contacts, and of curves. The
 * caller describes a picture by plain data. The picture is rendered into memory as PNG, SVG or PDF, which have the same
 * content, and which the caller frees with attn_bytes_free. Text is UTF-8; an SVG has the outlines of the letters, not
 * the text. No state is kept between calls; different contexts are independent.
 *
 * A library that was built without cairo writes pages (ATTN_PLOT_HTML) only: everything else is ATTN_ERROR_UNSUPPORTED.
 *
 * One thread at a time uses a context. */
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
    ATTN_PLOT_HTML /* interactive page, for heatmaps and for the attention of classifiers only */
} attn_plot_format;

/* Finds the format from the ending of a file's name: ".png", ".svg", ".pdf" or ".html", in upper or lower case.
 * ATTN_ERROR_ARGUMENT: another ending. */
ATTN_API attn_status attn_plot_format_from_path(attn_plot_format *format, attn_context *context, const char *path);

/* Colours of the values of a heatmap. All except HEAT are computed in Oklab (Ottosson 2020), where steps of equal size
 * look equally large. */
typedef enum attn_colours {
    ATTN_COLOURS_HEAT = 0, /* from cream over orange to dark red */
    ATTN_COLOURS_BLUES,    /* from white to dark blue */
    ATTN_COLOURS_REDS,     /* from white to dark red */
    ATTN_COLOURS_DIVERGING /* blue below 0, white at 0, red above 0 */
} attn_colours;

/* A map of weights. Queries are rows and keys are columns, values[row * cols + col]. If a value is not finite, it is
 * drawn grey, because it marks a masked key. */
typedef struct attn_panel {
    const char *title; /* NULL: none */
    int64_t rows, cols;
    const float *values;
} attn_panel;

/* Maps side by side that have the same labels, such as the heads of one layer. */
typedef struct attn_panel_row {
    const char *title; /* title above the row; NULL: none */
    /* labels of the queries (`rows` labels) and of the keys (`cols` labels); NULL: positions, which count from 0. A
     * label "" leaves its position without a label. Panels grow to fit the labels. */
    const char *const *row_labels, *const *col_labels;
    const char *row_name, *col_name; /* titles of the axes; NULL: "Queries" and "Keys" */
    int64_t n;
    const attn_panel *panels;
} attn_panel_row;

typedef struct attn_heatmaps {
    const char *title; /* NULL: none */
    int64_t n;
    const attn_panel_row *rows;
    /* The range of the colour scale of all panels. If both are 0, it begins at 0, or at the smallest value if that
     * is negative, and ends at the largest value. With DIVERGING, it is symmetric around 0. */
    double low, high;
    int64_t per_line; /* number of panels side by side before a row is wrapped; 0: 8 */
    attn_colours colours;
    int64_t reserved[4];
} attn_heatmaps;

/* Renders heatmaps. ATTN_PLOT_HTML gives an interactive page (attn_explorer_render below). In the page, rows of panels
 * with the same labels are the layers of one map. The map's name is the first title up to ", layer".
 * ATTN_ERROR_ARGUMENT (nothing to draw, more than 4,096 rows or columns in a map, text that is not UTF-8),
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_heatmaps_render(attn_bytes *picture, attn_context *context, const attn_heatmaps *heatmaps,
                                          attn_plot_format format);

/* Contacts of a protein. All probabilities are drawn below the diagonal. The pairs with the best scores are drawn
 * above it, as dots. If distances are known, the dot of a true contact is filled, and the dot of a false one is
 * crossed. The true contacts are drawn in grey behind the dots. */
typedef struct attn_contact_map {
    const char *title; /* NULL: none */
    int64_t n;
    const float *probabilities; /* [n,n] */
    const float *distances;     /* distances [n,n] in angstrom, where NaN means unknown; NULL: there is no structure */
    double cutoff;              /* true contacts are closer than this distance in angstrom; 0: 8 */
    /* number of pairs that are shown (0: n), and minimum distance of the two residues in the sequence (0: 6) */
    int64_t top, min_separation;
    int64_t reserved[4];
} attn_contact_map;
/* Renders contacts. ATTN_ERROR_ARGUMENT (no residues, more than 4,096 residues, text that is not UTF-8),
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_contact_map_render(attn_bytes *picture, attn_context *context, const attn_contact_map *map,
                                             attn_plot_format format);

/* How the keys of a map are placed in the picture. */
typedef enum attn_explorer_keys {
    /* keys are cells of a grid over the whole picture: the last key_rows * key_cols keys of the map */
    ATTN_KEYS_PLACES = 0,
    /* keys are a window of key_rows x key_cols cells of the queries' grid, with the query in the middle */
    ATTN_KEYS_WINDOW,
    /* keys are the query_cols cells of the query's row, and then the query_rows cells of its column */
    ATTN_KEYS_CROSS
} attn_explorer_keys;

/* Maps that have the same queries and keys, which are all layers and heads of one attention. */
typedef struct attn_explorer_map {
    const char *name; /* name such as "Encoder self-attention"; NULL: "Attention" */
    /* true: values are probabilities of pairs; false: values are attention weights that sum to 1 */
    bool contacts;
    int64_t layers, heads, rows, cols;        /* queries are rows, and keys are columns */
    const char *const *queries, *const *keys; /* labels; NULL: positions counted from 0 */
    /* layers * heads pointers to maps [rows, cols]; NaN marks a missing weight */
    const float *const *weights;
    int64_t first_layer; /* number of the first layer; 0 means 1 */
    /* For maps over a picture. The grids of queries and of keys; 0 means the explorer's grid. The label of queries
     * and keys that come before the grid; NULL means "token". Whether windows at the border are shifted inwards. */
    int64_t query_rows, query_cols, key_rows, key_cols;
    attn_explorer_keys where;
    const char *before;
    bool shifted;
} attn_explorer_map;
typedef struct attn_explorer {
    const char *title, *about; /* NULL: none */
    int64_t n;
    const attn_explorer_map *maps;
    /* A PNG picture. The last grid_rows * grid_cols queries and keys are its cells. If a cell has no label, its name
     * is its row and column. NULL: there is no picture. */
    const unsigned char *png;
    size_t png_size;
    int64_t width, height, grid_rows, grid_cols;
    attn_colours colours;
    int64_t reserved[4];
} attn_explorer;
/* Renders one HTML page that loads nothing from a network. It shows all heads of all layers as small maps and one map
 * enlarged. Pointing at a query shows its weights as lines, as a matrix or over the picture. Weights are rounded to
 * 1/255 of their head's largest weight. The page is freed like a picture. ATTN_ERROR_ARGUMENT (nothing to show, sizes,
 * a weight below 0 or infinite, text that is not UTF-8), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_explorer_render(attn_bytes *page, attn_context *context, const attn_explorer *explorer);

/* A picture with a map of weights over it. weights[row * cols + col] is drawn over the part of the picture that is
 * at the same place. The largest weight, in per cent, follows the title. */
typedef struct attn_overlay {
    const char *title; /* NULL: none */
    int64_t width, height;
    int channels;                /* 1: grey; 3: red, green and blue */
    const unsigned char *pixels; /* pixels [height][width][channels], which are drawn in grey */
    int64_t rows, cols;
    /* weights, which are scaled from 0 to the map's largest weight; where a weight is NaN or 0, the picture is
     * unchanged; NULL: there is no map */
    const float *weights;
    int64_t query_row, query_col;   /* row and column of the query's cell, which gets a frame; negative: no frame */
    int64_t query_rows, query_cols; /* grid that contains the query's cell; 0 means rows and cols */
} attn_overlay;
typedef struct attn_overlays {
    const char *title; /* NULL: none */
    int64_t n;
    const attn_overlay *items;
    int64_t per_line; /* number of pictures side by side before a row is wrapped; 0: 5 */
    int64_t reserved[4];
} attn_overlays;
/* Renders overlays. ATTN_ERROR_ARGUMENT (nothing to draw, a side not in 1 to 4,096, an unsupported number of channels),
 * ATTN_ERROR_UNSUPPORTED (ATTN_PLOT_HTML), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_overlays_render(attn_bytes *picture, attn_context *context, const attn_overlays *overlays,
                                          attn_plot_format format);

typedef enum attn_curve_style { ATTN_CURVE_LINE = 0, ATTN_CURVE_DASHES, ATTN_CURVE_DOTS } attn_curve_style;

/* A curve through the points (x[i], y[i]). If a point is not finite, it is left out, and the line has a gap. */
typedef struct attn_curve {
    /* name in the legend; NULL: no entry. Curves with the same name share one entry and one colour. */
    const char *name;
    int64_t n;
    const double *x, *y;
    attn_curve_style style;
    int64_t panel; /* index of the curve's panel, which counts from 0 */
} attn_curve;

/* Panels side by side that have the same axes. */
typedef struct attn_curves {
    const char *title, *x_name, *y_name; /* NULL: none */
    int64_t n;                           /* number of curves, which have at most 8 different colours */
    const attn_curve *curves;
    int64_t panels;                 /* number of panels; 0 means 1 */
    const char *const *panel_names; /* title above each panel; NULL: none */
    bool log_x, log_y;
    /* width and height of the picture in points; 0: 480 x 300, or for several panels 210 times their number x 250. The
     * picture is larger if its texts would leave no room for the curves. */
    double width, height;
    int64_t reserved[4];
} attn_curves;
/* Renders curves. ATTN_ERROR_ARGUMENT (no curves or too many, no finite point, a number that is not above 0 on a
 * logarithmic axis, a panel or a side out of range, text that is not UTF-8), ATTN_ERROR_UNSUPPORTED (ATTN_PLOT_HTML),
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_curves_render(attn_bytes *picture, attn_context *context, const attn_curves *curves,
                                        attn_plot_format format);

#ifdef __cplusplus
}
#endif
#endif
