/* SPDX-License-Identifier: MIT
 *
 * attn show: draws the attention of a language model of alignments.
 */
#include "family.h"
#include "picture.h"
#include "show.h"

#include "apps/msa/msa.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_NAME = 24, MOST_NAMED = 40 };

typedef struct showing {
    cli_family family;
    attn_msa *msa;
    bool rows, columns;
    int64_t layers, heads, first, end;
    attn_msa_result result;
    float *means; /* column attention [shown layers, heads, R, R], which is the mean over the columns */
    char (*names)[SHORT_NAME];
    const char **labels;
    attn_panel *panels;
    attn_panel_row *panel_rows;
    char (*titles)[64];
    char (*heads_named)[32];
    int64_t n, used;
} showing;

static bool read_kinds(showing *s, const char *list)
{
    s->rows = !list || !*list || strstr(list, "rows");
    s->columns = list && strstr(list, "columns");
    return s->rows || s->columns;
}

/* Makes the labels: residues with their numbers for the first L + 1 columns, and shortened names of sequences for
 * the R rows. */
static void make_labels(showing *s)
{
    int64_t columns = s->family.cols;
    const attn_alignment *a = s->family.chosen;
    snprintf(s->names[0], SHORT_NAME, "<cls>");
    for (int64_t c = 1; c < columns; c++) {
        long long number = attn_alignment_number(a, c - 1);
        snprintf(s->names[c], SHORT_NAME, number ? "%c%lld" : "%c", attn_alignment_row(a, 0)[c - 1], number);
    }
    for (int64_t r = 0; r < s->family.rows; r++) {
        const char *name = attn_alignment_name(s->family.chosen, r);
        int length = (int)strcspn(name, " \t");
        snprintf(s->names[columns + r], SHORT_NAME, "%.*s", length < SHORT_NAME - 1 ? length : SHORT_NAME - 1, name);
    }
    for (int64_t i = 0; i < columns + s->family.rows; i++)
        s->labels[i] = s->names[i];
}

static void add_layer(showing *s, const char *kind, int64_t layer, int64_t side, const char **labels, const float *maps)
{
    attn_panel_row *row = &s->panel_rows[s->n];
    snprintf(s->titles[s->n], sizeof *s->titles, "%s attention, layer %lld", kind, (long long)layer + 1);
    *row = (attn_panel_row){.title = s->titles[s->n],
                            .n = s->heads,
                            .panels = s->panels + s->used,
                            .row_name = "Queries",
                            .col_name = "Keys"};
    /* Hundreds of labels do not fit next to a panel, so only every tenth is shown. An interactive page has room for
     * all labels. */
    if (side > MOST_NAMED && !strstr(cli_text(s->family.cli, "out"), ".html")) {
        for (int64_t i = 0; i < side; i++) {
            int64_t number = i + (labels != s->labels); /* column 0 is <cls>, and row 1 is the query */
            labels[i] = number > 0 && number % (side > 200 ? 20 : 10) == 0 ? labels[i] : "";
        }
    }
    row->row_labels = row->col_labels = labels;
    for (int64_t h = 0; h < s->heads; h++) {
        snprintf(s->heads_named[s->used], sizeof *s->heads_named, "Head %lld", (long long)h + 1);
        s->panels[s->used] = (attn_panel){s->heads_named[s->used], side, side, maps + h * side * side};
        s->used++;
    }
    s->n++;
}

/* Averages the maps [H,C,R,R] of one layer over the columns C. The result is [H,R,R]. */
static void mean_over_columns(const showing *s, const float *maps, float *to)
{
    int64_t map = s->family.rows * s->family.rows;
    for (int64_t h = 0; h < s->heads; h++) {
        for (int64_t i = 0; i < map; i++) {
            double sum = 0;
            for (int64_t c = 0; c < s->family.cols; c++)
                sum += (double)maps[(h * s->family.cols + c) * map + i];
            to[h * map + i] = (float)(sum / (double)s->family.cols);
        }
    }
}

static void add_all(showing *s)
{
    int64_t columns = s->family.cols, rows = s->family.rows, first = s->first;
    for (int64_t layer = s->first; s->rows && layer < s->end; layer++)
        add_layer(s, "Row", layer, columns, s->labels,
                  (const float *)attn_tensor_data(s->result.row_maps) + (layer - first) * s->heads * columns * columns);
    for (int64_t layer = s->first; s->columns && layer < s->end; layer++) {
        float *mean = s->means + (layer - first) * s->heads * rows * rows;
        const float *maps = attn_tensor_data(s->result.column_maps);
        mean_over_columns(s, maps + (layer - first) * s->heads * columns * rows * rows, mean);
        add_layer(s, "Column", layer, rows, s->labels + columns, mean);
    }
}

static bool make_room(showing *s)
{
    size_t shown = (size_t)(s->end - s->first) * 2, panels = shown * (size_t)s->heads;
    size_t labels = (size_t)(s->family.cols + s->family.rows), rows = (size_t)s->family.rows;
    s->names = calloc(labels, sizeof *s->names);
    s->labels = calloc(labels, sizeof *s->labels);
    s->panels = calloc(panels, sizeof *s->panels);
    s->heads_named = calloc(panels, sizeof *s->heads_named);
    s->panel_rows = calloc(shown, sizeof *s->panel_rows);
    s->titles = calloc(shown, sizeof *s->titles);
    s->means = s->columns ? calloc(panels * rows * rows, sizeof *s->means) : NULL;
    return s->names && s->labels && s->panels && s->heads_named && s->panel_rows && s->titles &&
           (s->means || !s->columns);
}

static int write_picture(const showing *s)
{
    char title[320], stem[256];
    snprintf(title, sizeof title, "%.200s: %lld sequences of %lld columns", cli_family_stem(s->family.path, stem),
             (long long)s->family.rows, (long long)s->family.cols - 1);
    attn_heatmaps maps = {.title = title, .n = s->n, .rows = s->panel_rows, .per_line = 4};
    return cli_picture_write(s->family.cli, &maps, NULL);
}

static int choose_layers(showing *s)
{
    const attn_config *config = attn_model_config(attn_msa_model(s->msa));
    int64_t layer = cli_int(s->family.cli, "layer");
    s->layers = attn_config_int(config, "layers", 0);
    s->heads = attn_config_int(config, "attention_heads", 0);
    s->first = layer ? layer - 1 : 0;
    s->end = layer ? layer : s->layers;
    return layer <= s->layers ? CLI_OK
                              : cli_fail(CLI_BAD, "--layer is %lld, but the model has only %lld layers",
                                         (long long)layer, (long long)s->layers);
}

static int draw(showing *s)
{
    attn_msa_options how = {
        .row_maps = s->rows, .column_maps = s->columns, .map_layer = cli_int(s->family.cli, "layer")};
    int code = choose_layers(s);
    if (code == CLI_OK && !make_room(s))
        code = cli_fail(CLI_FAILED, "out of memory");
    if (code == CLI_OK)
        code = cli_family_run(&s->family, s->msa, &how, &s->result);
    if (code != CLI_OK)
        return code;
    make_labels(s);
    add_all(s);
    return write_picture(s);
}

static void release(showing *s)
{
    free(s->names);
    free(s->labels);
    free(s->panels);
    free(s->heads_named);
    free(s->panel_rows);
    free(s->titles);
    free(s->means);
    cli_family_free(&s->family);
    attn_msa_destroy(s->msa);
}

int cli_show_family(cli_call *cli)
{
    showing s = {.family = {.cli = cli}};
    if (!read_kinds(&s, cli_text(cli, "kinds")))
        return cli_fail(CLI_BAD, "--kinds is \"%.60s\"; expected rows or columns for an alignment",
                        cli_text(cli, "kinds"));
    const char *names = cli_text(cli, "names");
    attn_msa_load_options how = {.names = *names ? names : NULL};
    if (attn_msa_load(&s.msa, cli->context, cli->words[0], &how) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = cli_family_read(&s.family, cli, cli->words[1]);
    if (code == CLI_OK)
        code = draw(&s);
    release(&s);
    return code;
}
