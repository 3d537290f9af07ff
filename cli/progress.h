/* SPDX-License-Identifier: MIT
 * progress.h - progress of a training on stderr: one bar redrawn in place on a terminal, else one line per epoch and at
 * least every 15 seconds. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "attn/train.h"

typedef struct cli_progress {
    bool quiet, terminal;
    const char *things;  /* the unit of speed: "tokens" */
    const char *measure; /* the metric of a validation in addition to the loss; NULL: none */
    bool drawn;          /* a bar is on the current line */
    double last;         /* time of the last output, in seconds since the start of the run */
} cli_progress;

void cli_progress_begin(cli_progress *progress, bool quiet, const char *things, const char *measure);
void cli_progress_show(cli_progress *progress, const attn_progress *at);
/* "1:02:03", "2:03"; "" if it is not known. */
void cli_time_text(double seconds, char *out, size_t size);
void cli_progress_end(cli_progress *progress); /* ends the bar and starts a new line */

#endif
