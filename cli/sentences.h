/* SPDX-License-Identifier: MIT
 *
 * sentences.h - checks sentences of the user, and reads them from standard input as they arrive. It also writes samples
 * as JSON.
 */
#ifndef CLI_SENTENCES_H
#define CLI_SENTENCES_H

#include "command.h"

enum { CLI_SENTENCE_BYTES = 65536 }; /* maximum length of a sentence in bytes */

/* Checks a sentence of `length` bytes. Prints a fault together with `where`, the name of the source, and the
 * sentence's number. */
int cli_check_sentence(const cli_call *cli, const char *text, size_t length, const char *where, int64_t number);

typedef struct cli_lines {
    char *buffer; /* memory for lines; bytes [begin, end) have not been returned yet */
    size_t capacity, begin, end;
    bool ended, in_line; /* in_line: true if the next bytes belong to a line that was too long */
    bool bad;            /* the last call failed because of one line, and the next call continues after it */
    int64_t number;      /* number of the last line that was returned or refused, counted from 1 */
} cli_lines;
int cli_lines_begin(cli_lines *lines);
void cli_lines_end(cli_lines *lines);
/* Returns the lines that have arrived, without newlines, at most `most`. Waits if no line has arrived. At the end of
 * the input, *n is 0. The lines are valid until the next call. A bad line is skipped, and is reported after the good
 * lines before it. Returns an exit code. Errors have been printed. */
int cli_lines_next(cli_lines *lines, const cli_call *cli, const char **texts, int most, int *n);

/* Writes a sentence, its reference and its translation as members of the open JSON object. */
void cli_json_sample(attn_json *json, const char *source, const char *reference, const char *prediction);

#endif
