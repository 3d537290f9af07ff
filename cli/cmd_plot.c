/* SPDX-License-Identifier: MIT
 * attn plot: draws columns of numbers as curves. */
#include "columns.h"
#include "commands.h"
#include "picture.h"

#include "base/real.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CURVES = 256, NAME = 256 };

static const cli_option options[] = {
    CLI_WRITES(TEXT, "out", 'o', "FILE", "curves.png", "the picture: its ending selects the kind; .png, .svg or .pdf"),
    CLI_TEXT("x", 'x', "COLUMN", "",
             "the column of x; default: the first of a table with names, else the number of the row, from 0"),
    CLI_TEXT(
        "y", 'y', "LIST", "",
        "the columns to draw, with commas between; 6-9 are the columns 6 to 9. Default: those whose names end in loss, "
        "or if there are none all but x"),
    CLI_TEXT("dashes", 0, "LIST", "", "which of the columns are drawn as dashed lines"),
    CLI_TEXT("dots", 0, "LIST", "", "which of the columns are drawn as dots"),
    CLI_TEXT("names", 0, "LIST", "", "what the legend calls the columns, in the order in which they are drawn"),
    CLI_TEXT("title", 't', "TEXT", "", "title above the picture"),
    CLI_TEXT("x_label", 0, "TEXT", "", "label below the x axis; default: the column's name"),
    CLI_TEXT("y_label", 0, "TEXT", "", "label left of the y axis"),
    CLI_FLAG("log_x", 0, "a logarithmic x axis"),
    CLI_FLAG("log_y", 0, "a logarithmic y axis"),
    CLI_FLAG("panels", 0, "a panel for each FILE, side by side with the same axes"),
    CLI_TEXT("size", 0, "WIDTHxHEIGHT", "",
             "size of the picture in points (in a PNG, 2 x 2 pixels each); default: 480x300, or by the panels"),
};

static const char *const usage[] = {"FILE... [-x COLUMN] [-y LIST] [--dots LIST] [--dashes LIST] [-o FILE]", NULL};

static const char description[] =
    "Draws columns of numbers as curves. A FILE is\n"
    "\n"
    "  .tsv    fields between tabs; names in the first line, or numbers from the start. "
    "An empty field or nan is a gap\n"
    "  .npy    [points] or [points, columns]\n"
    "  DIR     a training: its history.tsv\n"
    "\n"
    "Columns without names are counted from 0, as NumPy counts them. With several files "
    "all curves share the axes, and each file has its own x. Curves of one name have one "
    "colour and one entry in the legend; without --panels a column that several files have is named by its file and "
    "column.";

static const char *const examples[] = {
    "attn plot out/demo -o loss.png",
    "attn plot en-fr en-de -y valid_loss --log-y --title \"Validation\" -o compared.svg",
    "attn plot estimate.tsv points.tsv --dots y -o regression.pdf",
    "attn plot P.npy -y 6-9 --x-label position -o encoding.png",
    "attn plot sigma-*.tsv --panels --dashes truth -o widths.png",
    NULL,
};

typedef struct plotting {
    const cli_call *cli;
    cli_columns *files;
    int nfiles;
    double *counts; /* the numbers 0, 1, 2, ..., used as x values if the user names no column for x */
    attn_curve *curves;
    cli_columns **file_of;
    int64_t *column_of;
    char (*names)[NAME];
    const char **panel_names;
    int64_t n;
} plotting;

/* ------------------------------------------------------------------------------------------------- columns */

static int refuse_column(const cli_columns *file, const char *option, const char *name, size_t length)
{
    char known[256] = "";
    for (int64_t i = 0; i < file->n && file->named; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", file->columns[i].name);
    if (!file->named)
        snprintf(known, sizeof known, "0 to %lld", (long long)file->n - 1);
    return cli_fail(CLI_BAD, "--%s: there is no column \"%.*s\" in %s; the columns are %s", option,
                    (int)(length < 80 ? length : 80), name, file->path, known);
}

/* Prints a message if a field of the column is not a number. */
static int check_numbers(const cli_columns *file, const char *option, int64_t column)
{
    const cli_column *c = &file->columns[column];
    if (!c->no_number)
        return CLI_OK;
    return cli_fail(CLI_BAD, "--%s: column \"%.80s\" of %s has \"%.40s\" in line %lld, which is not a number", option,
                    c->name, file->path, c->no_number, (long long)c->line);
}

/* Finds the columns that a word of a list names: *first to *last. The word is a column's name. For a file without
 * names, it may be a range such as "6-9". Returns false if there is no such column. */
static bool find_columns(const cli_columns *file, const char *word, size_t length, int64_t *first, int64_t *last)
{
    char *end;
    *first = *last = cli_columns_find(file, word, length);
    if (*first >= 0 || file->named)
        return *first >= 0;
    *first = strtoll(word, &end, 10);
    if (end == word || *end != '-' || *first < 0)
        return false;
    *last = strtoll(end + 1, &end, 10);
    return end == word + length && *last >= *first && *last < file->n;
}

static bool is_listed(const char *list, const cli_columns *file, int64_t column)
{
    int64_t first, last;
    for (size_t length; *list; list += length + (list[length] != '\0')) {
        length = strcspn(list, ",");
        if (find_columns(file, list, length, &first, &last) && column >= first && column <= last)
            return true;
    }
    return false;
}

static int add_curve(plotting *p, cli_columns *file, int64_t column, int64_t x)
{
    const cli_call *cli = p->cli;
    if (p->n == MOST_CURVES)
        return cli_fail(CLI_BAD, "the plot would have more than %d curves, the limit; choose columns with -y",
                        (int)MOST_CURVES);
    int code = check_numbers(file, "y", column);
    if (code != CLI_OK)
        return code;
    p->file_of[p->n] = file, p->column_of[p->n] = column;
    p->curves[p->n++] = (attn_curve){.n = file->rows,
                                     .x = x < 0 ? p->counts : file->columns[x].values,
                                     .y = file->columns[column].values,
                                     .style = is_listed(cli_text(cli, "dots"), file, column)     ? ATTN_CURVE_DOTS
                                              : is_listed(cli_text(cli, "dashes"), file, column) ? ATTN_CURVE_DASHES
                                                                                                 : ATTN_CURVE_LINE,
                                     .panel = cli_flag(cli, "panels") ? file - p->files : 0};
    return CLI_OK;
}

static bool is_loss(const cli_column *column)
{
    size_t n = strlen(column->name);
    return n >= 4 && strcmp(column->name + n - 4, "loss") == 0;
}

static int add_usual(plotting *p, cli_columns *file, int64_t x)
{
    bool losses = false;
    int code = CLI_OK;
    for (int64_t i = 0; i < file->n; i++)
        losses = losses || is_loss(&file->columns[i]);
    for (int64_t i = 0; i < file->n && code == CLI_OK; i++)
        if (i != x && !file->columns[i].no_number && (!losses || is_loss(&file->columns[i])))
            code = add_curve(p, file, i, x);
    return code;
}

static int add_listed(plotting *p, cli_columns *file, int64_t x)
{
    const char *list = cli_text(p->cli, "y");
    int code = CLI_OK;
    for (size_t length; *list && code == CLI_OK; list += length + (list[length] != '\0')) {
        int64_t first, last;
        length = strcspn(list, ",");
        if (!find_columns(file, list, length, &first, &last))
            continue;
        for (int64_t i = first; i <= last && code == CLI_OK; i++)
            code = add_curve(p, file, i, x);
    }
    return code;
}

/* Sets *x to the index of the column of x, or to -1 if x is the row number. */
static int find_x(const plotting *p, const cli_columns *file, int64_t *x)
{
    const char *name = cli_text(p->cli, "x");
    *x = file->named && file->n > 1 && !file->columns[0].no_number ? 0 : -1;
    if (!*name)
        return CLI_OK;
    *x = cli_columns_find(file, name, strlen(name));
    return *x < 0 ? refuse_column(file, "x", name, strlen(name)) : check_numbers(file, "x", *x);
}

/* Prints an error if a name in the list is in no file. */
static int check_list(const plotting *p, const char *option)
{
    const char *list = cli_text(p->cli, option);
    for (size_t length; *list; list += length + (list[length] != '\0')) {
        bool found = false;
        int64_t first, last;
        length = strcspn(list, ",");
        for (int i = 0; i < p->nfiles; i++)
            found = found || find_columns(&p->files[i], list, length, &first, &last);
        if (!found)
            return refuse_column(&p->files[0], option, list, length);
    }
    return CLI_OK;
}

/* --------------------------------------------------------------------------------------------------- names */

/* Returns true if columns of this name from two files are drawn into one panel. */
static bool is_repeated(const plotting *p, int64_t curve)
{
    const char *name = p->file_of[curve]->columns[p->column_of[curve]].name;
    for (int64_t i = 0; i < p->n; i++)
        if (p->file_of[i] != p->file_of[curve] && p->curves[i].panel == p->curves[curve].panel &&
            strcmp(name, p->file_of[i]->columns[p->column_of[i]].name) == 0)
            return true;
    return false;
}

static void name_curve(plotting *p, int64_t i)
{
    const cli_columns *file = p->file_of[i];
    const char *name = file->columns[p->column_of[i]].name;
    bool repeated = is_repeated(p, i), alone = !file->named && file->n == 1;
    if (alone)
        snprintf(p->names[i], NAME, "%s", file->label);
    else
        snprintf(p->names[i], NAME, "%s%s%s%.100s", repeated ? file->label : "", repeated ? " " : "",
                 file->named ? "" : "column ", name);
    p->curves[i].name = p->names[i];
}

/* The i-th word of --names replaces the i-th distinct name of a curve. */
static int rename_curves(plotting *p)
{
    const char *list = cli_text(p->cli, "names");
    bool named[MOST_CURVES] = {false};
    for (int64_t i = 0; i < p->n && *list; i++) {
        char old[NAME];
        if (named[i])
            continue;
        size_t length = strcspn(list, ",");
        snprintf(old, NAME, "%s", p->names[i]);
        for (int64_t j = i; j < p->n; j++) {
            if (named[j] || strcmp(p->names[j], old) != 0)
                continue;
            snprintf(p->names[j], NAME, "%.*s", (int)(length < NAME ? length : NAME - 1), list);
            named[j] = true;
        }
        list += length + (list[length] != '\0');
    }
    if (*list)
        return cli_fail(CLI_BAD, "--names: \"%.80s\" names no curve: there are more names than curves", list);
    return CLI_OK;
}

static const char *or_null(const char *text)
{
    return text && *text ? text : NULL;
}

static int read_size(const char *text, double *width, double *height)
{
    char *end;
    *width = attn__real_of_text(text, &end);
    if (!*text)
        return CLI_OK;
    *height = *end == 'x' ? attn__real_of_text(end + 1, &end) : 0;
    if (*end || !(*width > 0) || !(*height > 0))
        return cli_fail(CLI_BAD, "--size: \"%.80s\" is not WIDTHxHEIGHT, such as 480x300", text);
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------- drawing */

/* Returns the title of the x axis: the name of the x column, if it is the same in all files. */
static const char *x_name(const plotting *p)
{
    const char *given = or_null(cli_text(p->cli, "x_label")), *name = NULL;
    for (int i = 0; i < p->nfiles && !given; i++) {
        int64_t x;
        if (find_x(p, &p->files[i], &x) != CLI_OK || x < 0)
            return NULL;
        if (name && strcmp(name, p->files[i].columns[x].name) != 0)
            return NULL;
        name = p->files[i].columns[x].name;
    }
    return given ? given : name;
}

static int draw(plotting *p)
{
    const cli_call *cli = p->cli;
    bool panels = cli_flag(cli, "panels");
    attn_curves curves = {.title = or_null(cli_text(cli, "title")),
                          .x_name = x_name(p),
                          .y_name = or_null(cli_text(cli, "y_label")),
                          .n = p->n,
                          .curves = p->curves,
                          .panels = panels ? p->nfiles : 1,
                          .panel_names = panels ? p->panel_names : NULL,
                          .log_x = cli_flag(cli, "log_x"),
                          .log_y = cli_flag(cli, "log_y")};
    int code = read_size(cli_text(cli, "size"), &curves.width, &curves.height);
    return code == CLI_OK ? cli_picture_write(cli, NULL, &curves) : code;
}

static int add_files(plotting *p)
{
    static const char *const lists[] = {"y", "dots", "dashes"};
    bool listed = cli_text(p->cli, "y")[0] != '\0';
    int code = CLI_OK;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && code == CLI_OK; i++)
        code = check_list(p, lists[i]);
    for (int i = 0; i < p->nfiles && code == CLI_OK; i++) {
        int64_t x;
        code = find_x(p, &p->files[i], &x);
        if (code == CLI_OK)
            code = listed ? add_listed(p, &p->files[i], x) : add_usual(p, &p->files[i], x);
    }
    if (code == CLI_OK && p->n == 0)
        return cli_fail(CLI_BAD, "%s: there is no column of numbers to draw", p->files[0].path);
    for (int64_t i = 0; i < p->n; i++)
        name_curve(p, i);
    return code == CLI_OK ? rename_curves(p) : code;
}

static int make_room(plotting *p)
{
    int64_t most = 1;
    for (int i = 0; i < p->nfiles; i++)
        most = p->files[i].rows > most ? p->files[i].rows : most;
    p->counts = calloc((size_t)most, sizeof *p->counts);
    p->curves = calloc(MOST_CURVES, sizeof *p->curves);
    p->file_of = calloc(MOST_CURVES, sizeof *p->file_of);
    p->column_of = calloc(MOST_CURVES, sizeof *p->column_of);
    p->names = calloc(MOST_CURVES, sizeof *p->names);
    p->panel_names = calloc((size_t)p->nfiles + 1, sizeof *p->panel_names);
    if (!p->counts || !p->curves || !p->file_of || !p->column_of || !p->names || !p->panel_names)
        return cli_fail(CLI_FAILED, "out of memory");
    for (int64_t i = 0; i < most; i++)
        p->counts[i] = (double)i;
    for (int i = 0; i < p->nfiles; i++)
        p->panel_names[i] = p->files[i].label;
    return CLI_OK;
}

/* *path is freed by the caller, because the columns refer to it. */
static int read_file(plotting *p, const char *word, char **path)
{
    bool training = attn__is_directory(word);
    if (!attn_file_exists(word))
        return cli_fail(CLI_BAD, "there is no %s", word);
    *path = training ? attn__join(p->cli->context, word, "history.tsv") : attn__strdup(p->cli->context, word);
    if (!*path)
        return cli_failed(p->cli, NULL);
    if (training && !attn_file_exists(*path))
        return cli_fail(CLI_BAD, "%s is not the directory of a training: it has no history.tsv", word);
    return cli_columns_read(&p->files[p->nfiles++], p->cli, *path);
}

static int run(cli_call *cli)
{
    plotting p = {.cli = cli};
    int code = CLI_OK;
    char **paths = calloc((size_t)cli->nwords, sizeof *paths);
    p.files = calloc((size_t)cli->nwords, sizeof *p.files);
    if (!paths || !p.files)
        code = cli_fail(CLI_FAILED, "out of memory");
    for (int i = 0; paths && i < cli->nwords && code == CLI_OK; i++)
        code = read_file(&p, cli->words[i], &paths[i]);
    if (code == CLI_OK)
        code = make_room(&p);
    if (code == CLI_OK)
        code = add_files(&p);
    if (code == CLI_OK)
        code = draw(&p);
    for (int i = 0; i < p.nfiles; i++)
        cli_columns_free(&p.files[i]);
    free(p.files);
    for (int i = 0; paths && i < cli->nwords; i++)
        attn__free(cli->context, paths[i]);
    free(paths);
    free(p.counts);
    free(p.curves);
    free(p.file_of);
    free(p.column_of);
    free(p.names);
    free(p.panel_names);
    return code;
}

const cli_command cli_plot = {
    "plot", "draw columns of numbers as curves", usage, description, CLI_OPTIONS(options), NULL, examples, 1, -1, run,
};
