/* SPDX-License-Identifier: MIT
 *
 * downloaded.h - detects that a clone or a download has left a Git LFS pointer or a web page in place of a file. */
#ifndef ATTN_BASE_DOWNLOADED_H
#define ATTN_BASE_DOWNLOADED_H

#include "attn/attn.h"

/* Returns ATTN_ERROR_FORMAT if the bytes are a Git LFS pointer or a web page instead of the file `name`. */
attn_status attn__check_downloaded(attn_context *context, const char *name, const void *data, size_t whole);

#endif
