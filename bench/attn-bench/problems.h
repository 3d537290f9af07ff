/* SPDX-License-Identifier: MIT
 *
 * problems.h - NULL-terminated lists of problems.
 */
#ifndef BENCH_PROBLEMS_H
#define BENCH_PROBLEMS_H

extern const char *const bench_problems_all[], *const bench_problems_quick[];

#endif
