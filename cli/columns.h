/* SPDX-License-Identifier: MIT
 * columns.h - columns of numbers from files: tables (.tsv), arrays (.npy), the history of a training. */
#ifndef CLI_COLUMNS_H
#define CLI_COLUMNS_H

#include "command.h"

typedef struct cli_column {
    const char *name;      /* "valid_loss"; of a file without names "0", "1" */
    double *values;        /* [rows]; NaN where the field is empty */
    const char *no_number; /* a field that is none, in line `line`; NULL: all are */
    int64_t line;
} cli_column;

typedef struct cli_columns {
    const char *path;
    char label[128]; /* the file's name without its ending, or the training's */
    bool named;
    int64_t rows, n;
    cli_column *columns;
    double *values; /* of all columns */
    char *text;     /* that the names are in */
    char *numbers;  /* names of columns without names */
} cli_columns;

/* Reads a file, or the history.tsv of a training's directory.  An exit code; errors have been printed, and what was read
 * is freed by cli_columns_free in either case. */
int cli_columns_read(cli_columns *columns, const cli_call *cli, const char *path);
void cli_columns_free(cli_columns *columns);
/* The index of a column, -1 if there is none. */
int64_t cli_columns_find(const cli_columns *columns, const char *name, size_t length);

#endif
