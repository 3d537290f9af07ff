/* SPDX-License-Identifier: MIT
 *
 * yaml.h - parses YAML text to jansson's tree, like json.h for JSON. */
#ifndef ATTN_IO_YAML_H
#define ATTN_IO_YAML_H

#include "io/json.h"

/* Parses a tree whose root is a mapping, with at most `depth` levels and `values` values. Plain scalars that look like
 * integers, numbers, true, false or null get that type. All other scalars, and all keys, are texts. Anchors, aliases,
 * tags, a second document and duplicate keys are refused. The caller frees the tree with json_decref.
 * ATTN_ERROR_FORMAT, with line and column. ATTN_ERROR_UNSUPPORTED: attn was built without libyaml.
 * ATTN_ERROR_MEMORY. */
attn_status attn__yaml_parse(json_t **root, const attn__input *text, int depth, size_t values);

#endif
