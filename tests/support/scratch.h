/* SPDX-License-Identifier: MIT
 *
 * scratch.h - a folder of the test's own.
 */
#ifndef ATTN_TESTS_SCRATCH_H
#define ATTN_TESTS_SCRATCH_H

/* Makes an empty folder below the system's temporary one; exits the test program if it cannot. */
void scratch_open(char path[64]);
/* Removes the folder and its files (no subfolders); returns the number of files. */
int scratch_close(const char *path);

#endif
