/* SPDX-License-Identifier: MIT
 *
 * yaml.h - YAML text to jansson's tree, as json.h does it for JSON.
 */
#ifndef ATTN_IO_YAML_H
#define ATTN_IO_YAML_H

#include "io/json.h"

/* A tree of at most `depth` levels and `values` values, its root a mapping.  Plain scalars that look like integers,
 * numbers, true, false or null are those; all others, and all keys, are texts.  Anchors, aliases, tags, a second
 * document and a key given twice are refused.  The caller drops it with json_decref.  ATTN_ERROR_FORMAT, with line
 * and column; ATTN_ERROR_UNSUPPORTED: attn was built without libyaml; ATTN_ERROR_MEMORY. */
attn_status attn__yaml_parse(json_t **root, const attn__input *text, int depth, size_t values);

#endif
