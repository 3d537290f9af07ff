/* SPDX-License-Identifier: MIT
 * progress.h - how far a training is, on stderr: one bar redrawn in place on a terminal, else a line an
 * epoch and at least every 15 seconds. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "attn/train.h"

typedef struct cli_progress {
    bool quiet, terminal;
    const char *things;  /* what speed is counted in: "tokens" */
    const char *measure; /* the metric of a validation in addition to the loss; NULL: nothing */
    bool drawn;          /* a bar is on the current line */
    double last;         /* seconds of the run when something was shown */
} cli_progress;

void cli_progress_begin(cli_progress *progress, bool quiet, const char *things, const char *measure);
void cli_progress_show(cli_progress *progress, const attn_progress *at);
/* "1:02:03", "2:03"; "" if it is not known. */
void cli_time_text(double seconds, char *out, size_t size);
void cli_progress_end(cli_progress *progress); /* leaves the bar and starts a new line */

#endif
