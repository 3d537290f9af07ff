/* SPDX-License-Identifier: MIT */
#include "columns.h"
#include "number.h"

#include "base/real.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_COLUMNS = 65536, LIMIT = 1 << 28, DIGITS = 8 };

int64_t cli_columns_find(const cli_columns *c, const char *name, size_t length)
{
    for (int64_t i = 0; i < c->n; i++)
        if (strlen(c->columns[i].name) == length && memcmp(c->columns[i].name, name, length) == 0)
            return i;
    return -1;
}

void cli_columns_free(cli_columns *c)
{
    free(c->columns);
    free(c->values);
    free(c->text);
    free(c->numbers);
    *c = (cli_columns){0};
}

/* Derives a name from the path of a file of columns: "out/en-fr/history.tsv" gives "en-fr", and "kernels.tsv" gives
 * "kernels". */
static void name_file(cli_columns *c, bool training)
{
    size_t end = strlen(c->path), begin;
    if (training) {
        end -= strlen("/history.tsv");
        while (end > 1 && c->path[end - 1] == '/')
            end--;
    }
    for (begin = end; begin > 0 && c->path[begin - 1] != '/'; begin--)
        ;
    const char *dot = memchr(c->path + begin, '.', end - begin);
    int length = (int)((!training && dot && dot > c->path + begin ? (size_t)(dot - c->path) : end) - begin);
    snprintf(c->label, sizeof c->label, "%.*s", length, c->path + begin);
}

static bool make_room(cli_columns *c)
{
    c->columns = calloc((size_t)c->n, sizeof *c->columns);
    c->values = calloc((size_t)c->n * (size_t)c->rows, sizeof *c->values);
    for (int64_t i = 0; c->columns && c->values && i < c->n; i++)
        c->columns[i].values = c->values + i * c->rows;
    return c->columns && c->values;
}

static int no_memory(const cli_columns *c)
{
    return cli_fail(CLI_FAILED, "%s: out of memory", c->path);
}

/* Names the columns "0", "1", ..., because NumPy counts columns from 0. */
static bool number_columns(cli_columns *c)
{
    c->numbers = calloc((size_t)c->n, DIGITS);
    for (int64_t i = 0; c->numbers && i < c->n; i++) {
        snprintf(c->numbers + i * DIGITS, DIGITS, "%d", (int)i);
        c->columns[i].name = c->numbers + i * DIGITS;
    }
    return c->numbers;
}

/* ------------------------------------------------------------------------------------------------- tables */

/* Infinity becomes NaN, which is drawn as a gap. */
static bool is_number(const char *field, double *value)
{
    static const char *const gaps[] = {"", "nan", "-nan", "inf", "+inf", "-inf"};
    char *end;
    *value = NAN;
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++)
        if (strcasecmp(field, gaps[i]) == 0)
            return true;
    *value = attn__real_of_text(field, &end);
    return end != field && *end == '\0';
}

/* Ends the next line with a 0 and returns it. Returns NULL after the last line. Empty lines at the end are ignored. */
static char *next_line(char **text)
{
    char *line = *text;
    if (!line[strspn(line, "\r\n")])
        return NULL;
    size_t length = strcspn(line, "\n");
    *text = line + length + (line[length] != '\0');
    line[length] = '\0';
    if (length > 0 && line[length - 1] == '\r')
        line[length - 1] = '\0';
    return line;
}

static char *next_field(char **line)
{
    char *field = *line;
    size_t length = strcspn(field, "\t");
    *line = field[length] ? field + length + 1 : NULL;
    field[length] = '\0';
    return field;
}

static int64_t count_fields(const char *line)
{
    int64_t n = 1;
    for (; *line; line++)
        n += *line == '\t';
    return n;
}

/* Returns true if the first line holds numbers instead of column names. */
static bool begins_with_numbers(const char *text)
{
    char *end;
    attn__real_of_text(text, &end);
    return end != text && (*end == '\t' || *end == '\n' || *end == '\r' || !*end);
}

static void read_row(cli_columns *c, char *line, int64_t row, int64_t number)
{
    for (int64_t i = 0; i < c->n && line; i++) {
        cli_column *column = &c->columns[i];
        char *field = next_field(&line);
        if (!is_number(field, &column->values[row]) && !column->no_number)
            column->no_number = field, column->line = number;
    }
}

static int read_rows(cli_columns *c, char *text)
{
    int64_t row = 0, number = 0;
    for (char *line; (line = next_line(&text)) != NULL;) {
        number++;
        if (count_fields(line) != c->n)
            return cli_fail(CLI_BAD, "%s: line %lld has %lld fields, but the first line has %lld", c->path,
                            (long long)number, (long long)count_fields(line), (long long)c->n);
        if (number > 1 || !c->named) {
            read_row(c, line, row++, number);
            continue;
        }
        for (int64_t i = 0; i < c->n && line; i++)
            c->columns[i].name = next_field(&line);
    }
    c->rows = row;
    return row > 0 ? CLI_OK : cli_fail(CLI_BAD, "%s: the table has no rows", c->path);
}

static int read_table(cli_columns *c, const cli_call *cli)
{
    attn_bytes file = {0};
    if (attn_file_read(&file, cli->context, c->path, LIMIT) != ATTN_OK)
        return cli_failed(cli, NULL);
    bool text = !file.size || !memchr(file.data, '\0', file.size);
    c->text = calloc(file.size + 1, 1);
    if (c->text && file.size)
        memcpy(c->text, file.data, file.size);
    attn_bytes_free(cli->context, &file);
    if (!c->text)
        return no_memory(c);
    if (!text)
        return cli_fail(CLI_BAD,
                        "%s: the file is not a table in text; attn plot reads .tsv, .npy and directories of trainings",
                        c->path);
    size_t first = strcspn(c->text, "\n");
    if (!c->text[strspn(c->text, "\r\n")] || first == 0)
        return cli_fail(CLI_BAD, "%s: the table is empty", c->path);
    c->named = !begins_with_numbers(c->text);
    c->n = 1;
    for (size_t i = 0; i < first; i++)
        c->n += c->text[i] == '\t';
    for (const char *at = c->text; *at; at++)
        c->rows += *at == '\n';
    c->rows++;
    if (c->n > MOST_COLUMNS)
        return cli_fail(CLI_BAD, "%s: the table has %lld columns; at most %d are supported", c->path, (long long)c->n,
                        (int)MOST_COLUMNS);
    if (!make_room(c))
        return no_memory(c);
    int code = read_rows(c, c->text);
    return code == CLI_OK && !c->named && !number_columns(c) ? no_memory(c) : code;
}

/* ------------------------------------------------------------------------------------------------- arrays */

/* Reads an array of shape [rows] or [rows, columns], after any leading axes of length 1. */
static int fill_columns(cli_columns *c, const attn_tensor *t)
{
    char shape[ATTN__SHAPE_TEXT];
    int rank = attn_tensor_rank(t), first = 0;
    while (rank - first > 2 && attn_tensor_length(t, first) == 1)
        first++;
    if (rank - first > 2 || rank == 0)
        return cli_fail(CLI_BAD,
                        "%s: the array has %d axes; expected [points] or [points, columns], a curve for each column",
                        c->path, rank);
    if (attn_tensor_size(t) == 0)
        return cli_fail(CLI_BAD, "%s: the array is empty: its shape is %s", c->path, attn__shape_text(t, shape));
    c->rows = attn_tensor_length(t, first), c->n = rank - first == 2 ? attn_tensor_length(t, first + 1) : 1;
    if (c->n > MOST_COLUMNS)
        return cli_fail(CLI_BAD, "%s: the table has %lld columns; at most %d are supported", c->path, (long long)c->n,
                        (int)MOST_COLUMNS);
    if (!make_room(c) || !number_columns(c))
        return no_memory(c);
    for (int64_t i = 0; i < c->rows * c->n; i++)
        c->columns[i % c->n].values[i / c->n] = cli_number_at(t, i);
    return CLI_OK;
}

static int read_array(cli_columns *c, const cli_call *cli)
{
    attn_tensor *tensor;
    if (attn_npy_read(&tensor, cli->context, c->path) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = fill_columns(c, tensor);
    attn_tensor_destroy(tensor);
    return code;
}

int cli_columns_read(cli_columns *c, const cli_call *cli, const char *path)
{
    size_t n = strlen(path);
    bool training = n >= 12 && strcmp(path + n - 12, "/history.tsv") == 0;
    *c = (cli_columns){.path = path};
    name_file(c, training);
    return n > 4 && strcmp(path + n - 4, ".npy") == 0 ? read_array(c, cli) : read_table(c, cli);
}
