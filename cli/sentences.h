/* SPDX-License-Identifier: MIT
 * sentences.h - sentences from the user: checked, and read from standard input as they arrive. */
#ifndef CLI_SENTENCES_H
#define CLI_SENTENCES_H

#include "command.h"

enum { CLI_SENTENCE_BYTES = 65536 }; /* longer ones are refused */

/* Prints what is wrong with a sentence of `length` bytes that came from `where` (number `number`). */
int cli_check_sentence(const cli_call *cli, const char *text, size_t length, const char *where, int64_t number);

/* Lines of standard input. */
typedef struct cli_lines {
    char *buffer; /* [begin, end) is not yet given out */
    size_t capacity, begin, end;
    bool ended, in_line; /* in_line: what comes next is the rest of a line that was too long */
    bool bad;            /* the last call failed for one line, and the next one goes on behind it */
    int64_t number;      /* of the last line given out or found bad, from 1 */
} cli_lines;
int cli_lines_begin(cli_lines *lines);
void cli_lines_end(cli_lines *lines);
/* The lines that have arrived, at most `most`, without their newlines; waits only if there is none at all.
 * *n is 0 at the end.  They live until the next call.  Errors have been said; a bad line is reported after the good
 * ones before it were given out, and is passed over.  Returns an exit code. */
int cli_lines_next(cli_lines *lines, const cli_call *cli, const char **texts, int most, int *n);

#endif
