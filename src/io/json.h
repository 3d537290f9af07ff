/* SPDX-License-Identifier: MIT
 *
 * json.h - JSON text to jansson's tree, with bounds that a hostile text meets before it costs memory.
 */
#ifndef ATTN_IO_JSON_H
#define ATTN_IO_JSON_H

#include "io/input.h"

#include <jansson.h>

/* A tree of at most `depth` levels and about `values` values, its root an object; duplicate keys are
 * rejected.  The caller drops it with json_decref.  The error gives line and column, and the byte offset
 * where `offset` (of the text in its file) is not 0. */
attn_status attn__json_parse(json_t **root, const attn__input *text, int depth, size_t values, size_t offset);

/* The members of an object into a config; nested ones under "outer.inner", and those of a list that is not of integers
 * or of texts alone under "list.0", "list.1", ...  At most 64 levels. */
attn_status attn__json_to_config(const attn__input *text, const json_t *object, attn_config *config);

/* Writes one JSON object with the keys in the config's order.  A key with dots stays one key.  ATTN_ERROR_IO;
 * ATTN_ERROR_MEMORY. */
attn_status attn_config_write(const attn_config *config, attn_context *context, const char *path);

#endif
