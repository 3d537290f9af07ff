/* SPDX-License-Identifier: MIT
 *
 * json.h - parses JSON text to a tree of jansson. Limits are checked before parsing, so that a malicious text cannot
 * use much memory.
 */
#ifndef ATTN_IO_JSON_H
#define ATTN_IO_JSON_H

#include "io/input.h"

#include <jansson.h>

/* Parses a tree whose root is an object, with at most `depth` levels and about `values` values. Duplicate keys are
 * refused. The caller frees the tree with json_decref. Error messages give the line and the column. If the text is a
 * part of a file, `offset` is its position in the file, and messages also give the byte offset in the file. */
attn_status attn__json_parse(json_t **root, const attn__input *text, int depth, size_t values, size_t offset);

/* Does the same as jansson's json_loadb, with two differences: duplicate keys are refused, and integers beyond 64
 * bits are read as reals. */
json_t *attn__json_load(const char *text, size_t size, size_t flags, json_error_t *error);

/* A callback that gets one value of a text. For an element of a list, `key` is the list's name and `index` is the
 * element's index. The name is "" if the list is the whole text. For a member that is not a list, `key` is the member's
 * name and `index` is -1. At the beginning of each list, the callback is called once with a NULL value. */
typedef attn_status (*attn__json_visit)(void *user, const char *key, int64_t index, const json_t *value);

/* Calls `visit` for the values of a text of any length in order. Only one value is in memory at a time. A value has at
 * most 16 levels and about a million values. If `skip` is not NULL, members of list elements with this name are not
 * parsed, but replaced by 0. ATTN_ERROR_FORMAT: the text is invalid; the message gives the byte offset.
 * ATTN_ERROR_MEMORY: there is no memory. If `visit` returns another status than ATTN_OK, this status is returned at
 * once. */
attn_status attn__json_stream(const attn__input *text, const char *skip, attn__json_visit visit, void *user);

/* Converts the members of an object to a config. Nested members become "outer.inner". A list of integers or a list of
 * texts becomes one value. The elements of any other list become "list.0", "list.1", and so on. At most 64 levels are
 * allowed. */
attn_status attn__json_to_config(const attn__input *text, const json_t *object, attn_config *config);

/* Writes the config to a file as one JSON object. Keys keep their order. A key with dots is written as one key. May
 * return ATTN_ERROR_IO and ATTN_ERROR_MEMORY. */
attn_status attn_config_write(const attn_config *config, attn_context *context, const char *path);

#endif
