/* SPDX-License-Identifier: MIT
 *
 * config.h - typed settings by name. They are the contents of a config.json, and an architecture is built from them.
 *
 * A config keeps its keys in the order in which they were set. Any number of threads may read a config at once. While
 * one thread changes a config, no other thread may use it. */
#ifndef ATTN_CONFIG_H
#define ATTN_CONFIG_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_config_type {
    ATTN_CONFIG_TYPE_NULL = 0,
    ATTN_CONFIG_TYPE_BOOL,
    ATTN_CONFIG_TYPE_INT,
    ATTN_CONFIG_TYPE_REAL,
    ATTN_CONFIG_TYPE_TEXT,
    ATTN_CONFIG_TYPE_INTS,  /* list of integers, such as a shape */
    ATTN_CONFIG_TYPE_TEXTS, /* list of texts, such as class names */
    ATTN_CONFIG_TYPE_REALS  /* list of real numbers, such as widths */
} attn_config_type;

/* A value. Only the fields of its type have a meaning. */
typedef struct attn_config_value {
    attn_config_type type;
    bool boolean;
    int64_t integer;
    double real; /* value of a REAL, or of an INT that attn_config_get returns */
    const char *text;
    int64_t n; /* length of the list, if the value is a list */
    const int64_t *integers;
    const char *const *texts;
    const double *reals;
} attn_config_value;

typedef struct attn_config attn_config;

/* Creates an empty config, which the caller destroys before the context. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_config_create(attn_config **config, attn_context *context);
ATTN_API void attn_config_destroy(attn_config *config); /* Destroys a config. NULL is allowed. */

/* Sets the value of `key`. If the key exists, it keeps its place in the order. Key and value are copied.
 * ATTN_ERROR_ARGUMENT: an empty key, an unknown type or a negative n. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_config_set(attn_config *config, const char *key, const attn_config_value *value);
ATTN_API attn_status attn_config_set_int(attn_config *config, const char *key, int64_t value);
ATTN_API attn_status attn_config_set_real(attn_config *config, const char *key, double value);
ATTN_API attn_status attn_config_set_bool(attn_config *config, const char *key, bool value);
ATTN_API attn_status attn_config_set_text(attn_config *config, const char *key, const char *value);

/* Returns the number of keys in the config. */
ATTN_API int64_t attn_config_size(const attn_config *config);
/* Returns the i-th key. Returns NULL past the end. */
ATTN_API const char *attn_config_key(const attn_config *config, int64_t i);
/* Returns the value of `key`. If there is no such key, returns NULL. The pointer is valid until the key is set again
 * or the config is destroyed. */
ATTN_API const attn_config_value *attn_config_get(const attn_config *config, const char *key);

/* Return the value of `key`. If the key is missing or has another type, return `fallback`. attn_config_real also
 * returns an INT. */
ATTN_API int64_t attn_config_int(const attn_config *config, const char *key, int64_t fallback);
ATTN_API double attn_config_real(const attn_config *config, const char *key, double fallback);
ATTN_API bool attn_config_bool(const attn_config *config, const char *key, bool fallback);
ATTN_API const char *attn_config_text(const attn_config *config, const char *key, const char *fallback);

/* Describes one key of a config: its type and range. A table of such keys describes the settings of an architecture or
 * a training. `type` is BOOL, INT, REAL, TEXT, INTS, TEXTS or REALS. REAL also accepts an INT. If INTS or REALS have a
 * range, they also accept a single number. REALS also accept a list of integers, and the keys NAME.0, NAME.1, ... that
 * attn_config_parse makes of a list of real numbers. */
typedef struct attn_setting {
    const char *name;
    attn_config_type type;
    /* The default as text, such as "0.1", "true" or "gaussian". "" means that the key is optional and has no
     * default. NULL means that the key is required. */
    const char *default_text;
    /* if min < max, the range of numbers and of the numbers in lists; otherwise any number is allowed */
    double min, max;
    /* NULL-terminated texts that are allowed. NULL: any text. If the type is INT, these are the allowed values in
     * decimal, and the value may also be given as text. */
    const char *const *choices;
    const char *doc;
} attn_setting;

#ifdef __cplusplus
}
#endif
#endif
