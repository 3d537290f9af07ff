/* SPDX-License-Identifier: MIT
 *
 * json.h - parses JSON text to a tree of jansson. Limits are checked before a hostile text can use much memory. */
#ifndef ATTN_IO_JSON_H
#define ATTN_IO_JSON_H

#include "io/input.h"

#include <jansson.h>

/* Parses a tree whose root is an object, with at most `depth` levels and about `values` values. Duplicate keys are
 * refused. The caller frees the tree with json_decref. The error gives line and column, and the byte offset if `offset`
 * (the text's offset in its file) is not 0. */
attn_status attn__json_parse(json_t **root, const attn__input *text, int depth, size_t values, size_t offset);

/* Parses like jansson's json_loadb, but duplicate keys are refused and integers beyond 64 bits are read as reals. */
json_t *attn__json_load(const char *text, size_t size, size_t flags, json_error_t *error);

/* A callback for a value of a text. The value is element `index` of the list `key` of an object, or of the list that is
 * the whole text (key ""), or the member `key` that is no list (index -1). Before the elements of each list, the
 * callback is called once with `value` NULL. */
typedef attn_status (*attn__json_visit)(void *user, const char *key, int64_t index, const json_t *value);

/* Visits the values of a text of any length in order, with one value in memory at a time. An element has at most 16
 * levels and about a million values. Members of elements with the name `skip` (NULL: none) are replaced by 0 without
 * parsing. ATTN_ERROR_FORMAT, with the byte offset. ATTN_ERROR_MEMORY. If `visit` returns another status than ATTN_OK,
 * this status is returned. */
attn_status attn__json_stream(const attn__input *text, const char *skip, attn__json_visit visit, void *user);

/* Converts the members of an object to a config. Nested members become "outer.inner". Lists of integers and lists of
 * texts become one value. Other lists become "list.0", "list.1", ... At most 64 levels. */
attn_status attn__json_to_config(const attn__input *text, const json_t *object, attn_config *config);

/* Writes one JSON object with the keys in the config's order. A key with dots stays one key. ATTN_ERROR_IO,
 * ATTN_ERROR_MEMORY. */
attn_status attn_config_write(const attn_config *config, attn_context *context, const char *path);

#endif
