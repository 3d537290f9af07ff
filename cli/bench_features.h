/* SPDX-License-Identifier: MIT
 * bench_features.h - what each feature of a problem costs: its time divided by that of the plain problem. */
#ifndef CLI_BENCH_FEATURES_H
#define CLI_BENCH_FEATURES_H

#include "command.h"

/* Prints the table for the problems of the call, or for a list of its own.  An exit code; a cost above its limit is no failure. */
int bench_features(const cli_call *cli, double seconds);

#endif
