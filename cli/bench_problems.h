/* SPDX-License-Identifier: MIT
 *
 * bench_problems.h - NULL-terminated lists of problems.
 */
#ifndef CLI_BENCH_PROBLEMS_H
#define CLI_BENCH_PROBLEMS_H

extern const char *const bench_problems_all[], *const bench_problems_quick[];

#endif
