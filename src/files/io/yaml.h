/* SPDX-License-Identifier: MIT
 *
 * yaml.h - parses YAML text to a tree of jansson, as json.h does with JSON.
 */
#ifndef ATTN_IO_YAML_H
#define ATTN_IO_YAML_H

#include "io/json.h"

/* Parses a tree whose root is a mapping, with at most `depth` levels and `values` values. A plain scalar that looks
 * like an integer, a real, true, false or null gets this type. All other scalars, and all keys, are texts. An
 * alias has the value of its anchor. Tags, merge keys (<<), a second document and duplicate keys are refused. The
 * caller frees the tree with json_decref. ATTN_ERROR_FORMAT: the text is invalid; the message gives line and column.
 * ATTN_ERROR_UNSUPPORTED: this build has no libyaml. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn__yaml_parse(json_t **root, const attn__input *text, int depth, size_t values);
/* Does the same, but all scalars are texts as they are written: 007 and 1.50 may be names. */
attn_status attn__yaml_parse_texts(json_t **root, const attn__input *text, int depth, size_t values);

#endif
