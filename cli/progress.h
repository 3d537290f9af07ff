/* SPDX-License-Identifier: MIT
 *
 * progress.h - shows the progress of a training on stderr. On a terminal, one bar is redrawn in place. Without a
 * terminal, a line is printed for each epoch and at least every 15 seconds.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "attn/train.h"

typedef struct cli_progress {
    bool quiet, terminal;
    const char *things;  /* unit of the speed, such as "tokens" (per second) */
    const char *measure; /* name of a validation's metric in addition to the loss; NULL: none */
    bool drawn;          /* true if a bar is on the current line */
    double last;         /* time of the last output, in seconds since the start of the run */
} cli_progress;

void cli_progress_begin(cli_progress *progress, bool quiet, const char *things, const char *measure);
void cli_progress_show(cli_progress *progress, const attn_progress *at);
void cli_time_text(double seconds, char *out, size_t size);
void cli_progress_end(cli_progress *progress);

#endif
