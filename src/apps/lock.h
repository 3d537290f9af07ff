/* SPDX-License-Identifier: MIT
 * lock.h - one training at a time in a directory. */
#ifndef ATTN_APPS_LOCK_H
#define ATTN_APPS_LOCK_H

#include "attn/attn.h"

/* Takes the directory for this process, until *lock is given to attn__directory_unlock or the process ends, however
 * it ends; then removes what a killed process may have left half written.  ATTN_BUSY: another process has it;
 * ATTN_IO. */
attn_status attn__directory_lock(attn_context *context, const char *directory, int *lock);
void attn__directory_unlock(int lock); /* -1 is allowed */

#endif
