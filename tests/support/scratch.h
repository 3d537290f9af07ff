/* SPDX-License-Identifier: MIT
 *
 * scratch.h - a temporary folder for one test.
 */
#ifndef ATTN_TESTS_SCRATCH_H
#define ATTN_TESTS_SCRATCH_H

/* Makes an empty folder in the system's temporary folder. Exits the test program if that fails. */
void scratch_open(char path[64]);
/* Removes the folder and all in it. Returns the number of files. */
int scratch_close(const char *path);

#endif
