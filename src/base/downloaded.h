/* SPDX-License-Identifier: MIT
 * downloaded.h - what a clone or a download leaves in a file's place. */
#ifndef ATTN_BASE_DOWNLOADED_H
#define ATTN_BASE_DOWNLOADED_H

#include "attn/attn.h"

/* ATTN_ERROR_FORMAT if the bytes are a Git LFS pointer or a web page instead of the file `name`. */
attn_status attn__check_downloaded(attn_context *context, const char *name, const void *data, size_t whole);

#endif
