/* SPDX-License-Identifier: MIT
 *
 * keys.h - checks settings against a table of the allowed settings, and fills in the defaults. Settings of
 * architectures, trainings and files are all checked here, so that they have the same error messages. */
#ifndef ATTN_CONFIG_KEYS_H
#define ATTN_CONFIG_KEYS_H

#include "attn/config.h"

/* A default that depends on the values of other settings, the selectors. It applies if selector i has the value
 * values[i]. NULL stands for any value. */
typedef struct attn__preset {
    const char *values[2];
    const char *key, *otherwise;
} attn__preset;

/* A setting that has an effect only while another setting has one of these values (up to three, then NULL). */
typedef struct attn__key_need {
    const char *key, *other;
    const char *values[4];
} attn__key_need;

typedef struct attn__keys {
    const attn_setting *keys;
    int n;
    const char *selectors[2];    /* keys of TEXT type whose values choose among presets; NULL: none */
    const attn__preset *presets; /* later presets override earlier ones: put special presets last */
    int npresets;
    const attn__key_need *needs;
    int nneeds;
} attn__keys;

/* Options of attn__keys_resolve. A field that is zero has its default. */
typedef struct attn__keys_options {
    const char *name;    /* architecture or file that begins each message; NULL: each message begins with the key */
    attn_status refusal; /* status that is returned for a refused value; 0: ATTN_ERROR_ARGUMENT */
    bool select;         /* true: keys that are not in the table are ignored; false: they are refused */
} attn__keys_options;

const attn_setting *attn__key_find(const attn__keys *keys, const char *name);

/* Returns whether `name` has the form "KEY.0", where KEY is the name of `key` and the type of `key` is REALS. */
bool attn__key_has_member(const attn_setting *key, const char *name);

/* Makes a new config with every key of the table in its order. Each value comes from `given` or, if `given` does not
 * have the key, from the default. `given` may be NULL, and a null value in it counts as absent. An integer is converted
 * if the key's type is REAL. A key with an empty default is left out. *to is NULL on failure. `options` may be NULL. */
attn_status attn__keys_resolve(attn_config **to, attn_context *context, const attn__keys *keys,
                               const attn_config *given, const attn__keys_options *options);

/* Refuses a value in `given`, other than the setting's default, that has no effect with the resolved `settings`:
 * one of `needs` is not met. A need whose other setting is "auto", and so not decided yet, is not checked. */
attn_status attn__keys_check_needs(attn_context *context, const attn__keys *keys, const attn__key_need *needs,
                                   int nneeds, const attn_config *given, const attn_config *settings);

/* Returns whether two values are equal. An integer and a real are compared as numbers. Other values of different types
 * are not equal. */
bool attn_config_value_equal(const attn_config_value *a, const attn_config_value *b);

/* Reads height and width from a setting, which is one integer for both, or a list of two. Returns false for other
 * values. */
bool attn__config_sides(const attn_config *config, const char *key, int64_t sides[2]);
/* Reads height and width from a setting whose type was checked. ATTN_ERROR_ARGUMENT: the setting is a list whose
 * length is not two. The recorded message begins with `before`. */
attn_status attn__config_need_sides(int64_t sides[2], attn_context *context, const attn_config *config, const char *key,
                                    const char *before);
/* Stores height and width in the form that attn__config_sides reads. Equal sides become one integer. */
attn_status attn__config_set_sides(attn_config *config, const char *key, const int64_t sides[2]);
/* Writes height and width in `text` for messages: as "8" if they are equal, otherwise as "[8, 12]". Returns `text`. */
const char *attn__sides_text(char text[48], const int64_t sides[2]);

#endif
