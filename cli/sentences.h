/* SPDX-License-Identifier: MIT
 *
 * sentences.h - checks sentences of the user, reads them from standard input as they arrive, and writes samples as
 * JSON.
 */
#ifndef CLI_SENTENCES_H
#define CLI_SENTENCES_H

#include "command.h"

enum { CLI_SENTENCE_BYTES = 65536 }; /* maximum length of a sentence; longer sentences are refused */

/* Checks a sentence of `length` bytes. Prints a fault with the source `where` and the number `number` of the
 * sentence. */
int cli_check_sentence(const cli_call *cli, const char *text, size_t length, const char *where, int64_t number);

/* The lines of standard input. */
typedef struct cli_lines {
    char *buffer; /* buffer; bytes [begin, end) have not been returned yet */
    size_t capacity, begin, end;
    bool ended, in_line; /* in_line: the next bytes are the rest of a line that was too long */
    bool bad;            /* the last call failed for one line, and the next call continues after that line */
    int64_t number;      /* number of the last line that was returned or refused, from 1 */
} cli_lines;
int cli_lines_begin(cli_lines *lines);
void cli_lines_end(cli_lines *lines);
/* Returns the lines that have arrived, at most `most`, without their newlines. Waits only if no line has arrived. *n
 * is 0 at the end. The lines are valid until the next call. A bad line is skipped; it is reported after the good
 * lines before it were returned. Errors have been printed. Returns an exit code. */
int cli_lines_next(cli_lines *lines, const cli_call *cli, const char **texts, int most, int *n);

/* Writes a sentence, its reference and its translation as texts of the open JSON object. */
void cli_json_sample(attn_json *json, const char *source, const char *reference, const char *prediction);

#endif
