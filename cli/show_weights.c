/* SPDX-License-Identifier: MIT
 *
 * attn show: draws attention weights from a .npy file, which attn run or NumPy wrote.
 */
#include "number.h"
#include "picture.h"
#include "show.h"

#include "attn/io.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PANELS = 4096 };

/* Weights to draw. The last two axes are queries and keys, and the axis before them is heads. Each index of the axes
 * before the heads (examples, layers) gives one row of panels. */
typedef struct drawing {
    const cli_call *cli;
    attn_tensor *tensor;
    int64_t groups, heads, rows, cols;
    float *values;
    attn_panel *panels;
    attn_panel_row *panel_rows;
    char (*titles)[48];
    char (*heads_named)[32];
} drawing;

static int read_shape(drawing *d, const char *path)
{
    const attn_tensor *t = d->tensor;
    char shape[ATTN__SHAPE_TEXT];
    int rank = attn_tensor_rank(t);
    attn_dtype dtype = attn_tensor_dtype(t);
    if (dtype != ATTN_F32 && dtype != ATTN_F64)
        return cli_fail(CLI_BAD, "%s: expected weights that are real numbers, found %s", path, attn_dtype_name(dtype));
    if (rank < 2)
        return cli_fail(CLI_BAD,
                        "%s: the array has %d axes; weights need at least 2, queries and keys, as the last two", path,
                        rank);
    if (attn_tensor_size(t) == 0) /* The product of the other axes could overflow if one axis is empty. */
        return cli_fail(CLI_BAD, "%s: the array is empty: its shape is %s", path, attn__shape_text(t, shape));
    d->rows = attn_tensor_length(t, rank - 2), d->cols = attn_tensor_length(t, rank - 1);
    d->heads = rank > 2 ? attn_tensor_length(t, rank - 3) : 1;
    d->groups = 1;
    for (int i = 0; i < rank - 3; i++)
        d->groups *= attn_tensor_length(t, i);
    long long maps = d->groups * d->heads;
    if (maps > MOST_PANELS)
        return cli_fail(CLI_BAD, "%s: the array has %lld maps; a picture takes at most %d", path, maps,
                        (int)MOST_PANELS);
    return CLI_OK;
}

/* Numbers that are not finite become NaN, which is drawn as missing. */
static void read_values(drawing *d)
{
    int64_t n = attn_tensor_size(d->tensor);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)cli_number_at(d->tensor, i);
        d->values[i] = isfinite(x) ? x : NAN;
    }
}

static bool make_room(drawing *d)
{
    size_t panels = (size_t)(d->groups * d->heads);
    d->values = calloc((size_t)attn_tensor_size(d->tensor), sizeof *d->values);
    d->panels = calloc(panels, sizeof *d->panels);
    d->heads_named = calloc(panels, sizeof *d->heads_named);
    d->panel_rows = calloc((size_t)d->groups, sizeof *d->panel_rows);
    d->titles = calloc((size_t)d->groups, sizeof *d->titles);
    return d->values && d->panels && d->heads_named && d->panel_rows && d->titles;
}

/* Formats the indices of the axes before the heads, counted from 1, as in "Weights 1, 3". */
static void name_group(const drawing *d, int64_t group, char *title, size_t size)
{
    int axes = attn_tensor_rank(d->tensor) - 3;
    int64_t left = d->groups, n = 0;
    for (int i = 0; i < axes && n < (int64_t)size; i++) {
        int64_t length = attn_tensor_length(d->tensor, i);
        left /= length;
        long long index = group / left % length;
        n += snprintf(title + n, size - (size_t)n, "%s%lld", i ? ", " : "Weights ", index + 1);
    }
}

static const char *given(const drawing *d, const char *option, const char *otherwise)
{
    const char *text = cli_text(d->cli, option);
    return text && *text ? text : otherwise;
}

static void add_panels(drawing *d)
{
    int64_t map = d->rows * d->cols, used = 0;
    for (int64_t g = 0; g < d->groups; g++) {
        attn_panel_row *row = &d->panel_rows[g];
        *row = (attn_panel_row){.n = d->heads,
                                .panels = d->panels + used,
                                .row_name = given(d, "y_label", "Queries"),
                                .col_name = given(d, "x_label", "Keys")};
        name_group(d, g, d->titles[g], sizeof *d->titles);
        row->title = d->titles[g][0] ? d->titles[g] : NULL;
        for (int64_t h = 0; h < d->heads; h++, used++) {
            bool many = d->groups * d->heads > 1;
            snprintf(d->heads_named[used], sizeof *d->heads_named, "Head %lld", (long long)h + 1);
            d->panels[used] =
                (attn_panel){many ? d->heads_named[used] : NULL, d->rows, d->cols, d->values + used * map};
        }
    }
}

static int write_picture(const drawing *d, const char *path)
{
    char title[320];
    snprintf(title, sizeof title, "%.200s: %lld queries, %lld keys", attn__path_last(path), (long long)d->rows,
             (long long)d->cols);
    attn_heatmaps maps = {.title = given(d, "title", title), .n = d->groups, .rows = d->panel_rows, .per_line = 4};
    return cli_picture_write(d->cli, &maps, NULL);
}

static int draw(drawing *d, const char *path)
{
    int code = read_shape(d, path);
    if (code != CLI_OK)
        return code;
    if (!make_room(d))
        return cli_fail(CLI_FAILED, "out of memory");
    read_values(d);
    add_panels(d);
    return write_picture(d, path);
}

bool cli_is_array(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".npy") == 0;
}

int cli_show_weights(cli_call *cli)
{
    drawing d = {.cli = cli};
    if (attn_npy_read(&d.tensor, cli->context, cli->words[0]) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = draw(&d, cli->words[0]);
    free(d.values);
    free(d.panels);
    free(d.heads_named);
    free(d.panel_rows);
    free(d.titles);
    attn_tensor_destroy(d.tensor);
    return code;
}
