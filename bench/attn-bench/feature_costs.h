/* SPDX-License-Identifier: MIT
 * feature_costs.h - the cost of each feature of a problem: its time divided by the time of the plain problem. */
#ifndef BENCH_FEATURE_COSTS_H
#define BENCH_FEATURE_COSTS_H

#include "command.h"

/* Prints the table for the problems of the command line, or for a default list. Returns an exit code. A cost above
 * its limit is not an error. */
int bench_features(const cli_call *cli, double seconds);

#endif
