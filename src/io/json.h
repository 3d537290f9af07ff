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

/* jansson's json_loadb, which refuses keys given twice and reads integers beyond 64 bits as reals. */
json_t *attn__json_load(const char *text, size_t size, size_t flags, json_error_t *error);

/* A value of a text: element `index` of the list `key` (the text is an object of lists), or of the one list that the text
 * is (key ""); or the member `key` that is no list (index -1).  Before the elements of each list `value` is once NULL. */
typedef attn_status (*attn__json_visit)(void *user, const char *key, int64_t index, const json_t *value);

/* Visits the values of a text of any length, in their order, and holds one at a time; an element has at most 16 levels
 * and about a million values.  Elements' members of the name `skip` are 0, whatever they are (NULL: none is skipped).  ATTN_ERROR_FORMAT, with the byte offset; ATTN_ERROR_MEMORY; what `visit` returns if that
 * is not ATTN_OK. */
attn_status attn__json_stream(const attn__input *text, const char *skip, attn__json_visit visit, void *user);

/* The members of an object into a config; nested ones under "outer.inner", and those of a list that is not of integers
 * or of texts alone under "list.0", "list.1", ...  At most 64 levels. */
attn_status attn__json_to_config(const attn__input *text, const json_t *object, attn_config *config);

/* Writes one JSON object with the keys in the config's order.  A key with dots stays one key.  ATTN_ERROR_IO;
 * ATTN_ERROR_MEMORY. */
attn_status attn_config_write(const attn_config *config, attn_context *context, const char *path);

#endif
