/* SPDX-License-Identifier: MIT
 *
 * columns.h - reads columns of numbers from files. They are tables (.tsv), arrays (.npy), or the history of a training.
 */
#ifndef CLI_COLUMNS_H
#define CLI_COLUMNS_H

#include "command.h"

typedef struct cli_column {
    const char *name;      /* name such as "valid_loss"; if the file has no names, "0", "1", ... */
    double *values;        /* values [rows], where an empty field is NaN */
    const char *no_number; /* first field that is not a number, which is on line `line`; NULL: all fields are numbers */
    int64_t line;
} cli_column;

typedef struct cli_columns {
    const char *path;
    char label[128]; /* the file's name without its ending, or the name of the training's directory */
    bool named;
    int64_t rows, n;
    cli_column *columns;
    double *values;
    char *text;
    char *numbers;
} cli_columns;

/* Reads a file, or the history.tsv of a training's directory. Returns an exit code. Errors have been printed. Call
 * cli_columns_free even after a failure. */
int cli_columns_read(cli_columns *columns, const cli_call *cli, const char *path);
void cli_columns_free(cli_columns *columns);
/* Returns the column's index, or -1 if no column has this name. */
int64_t cli_columns_find(const cli_columns *columns, const char *name, size_t length);

#endif
