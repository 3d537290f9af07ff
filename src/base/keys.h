/* SPDX-License-Identifier: MIT
 *
 * keys.h - checks settings against a table of the allowed settings, and completes them with the defaults.
 *
 * Settings of architectures, of trainings and from files are all checked here, so that a value is always refused in the
 * same words.
 */
#ifndef ATTN_BASE_KEYS_H
#define ATTN_BASE_KEYS_H

#include "attn/config.h"

/* A default that depends on other settings. It applies if the selectors have these values (NULL: any value). */
typedef struct attn__preset {
    const char *values[2];
    const char *key, *otherwise;
} attn__preset;

typedef struct attn__keys {
    const attn_setting *keys;
    int n;
    const char *selectors[2];    /* keys of TEXT type whose values choose among presets; NULL: none */
    const attn__preset *presets; /* later presets override earlier ones: put special presets last */
    int npresets;
} attn__keys;

/* The wording of errors. Zero means the default. */
typedef struct attn__keys_options {
    const char *name;    /* architecture or file named in messages; NULL: the key comes first */
    attn_status refusal; /* 0: ATTN_ERROR_ARGUMENT */
    bool select;         /* true: keys that are not in the table are ignored; false: they are refused */
} attn__keys_options;

const attn_setting *attn__key_find(const attn__keys *keys, const char *name); /* NULL: there is none */

/* Returns whether `name` is a member, such as "KEY.0", of a key of type REALS. */
bool attn__key_has_member(const attn_setting *key, const char *name);

/* Makes a new config with every key of the table in its order. Values come from `given` (may be NULL; null values
 * count as not given) or from defaults. An INT given for a REAL is converted. A key with an empty default is left
 * out. *to is NULL on failure. `options` may be NULL. */
attn_status attn__keys_resolve(attn_config **to, attn_context *context, const attn__keys *keys,
                               const attn_config *given, const attn__keys_options *options);

/* Returns whether two values are equal. Their types must match, but integers and real numbers are compared as
 * numbers. */
bool attn_config_value_equal(const attn_config_value *a, const attn_config_value *b);

/* Reads height and width from a setting, which is one integer for both, or a list of two. Returns false for other
 * values. */
bool attn__config_sides(const attn_config *config, const char *key, int64_t sides[2]);
/* Reads height and width from a setting that was checked. A list of another length than two is ATTN_ERROR_ARGUMENT. The
 * recorded message begins with `before`. */
attn_status attn__config_need_sides(int64_t sides[2], attn_context *context, const attn_config *config, const char *key,
                                    const char *before);
/* Stores height and width in the form that attn__config_sides reads. Equal sides become one integer. */
attn_status attn__config_set_sides(attn_config *config, const char *key, const int64_t sides[2]);
/* Writes the sides as "8" or "[8, 12]", for messages. */
const char *attn__sides_text(char text[48], const int64_t sides[2]);

#endif
