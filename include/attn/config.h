/* SPDX-License-Identifier: MIT
 *
 * config.h - typed settings by name. They are the contents of a config.json, from which an architecture is built.
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
    ATTN_CONFIG_TYPE_INTS,  /* a list of integers, such as a shape */
    ATTN_CONFIG_TYPE_TEXTS, /* a list of texts, such as class names */
    ATTN_CONFIG_TYPE_REALS  /* a list of numbers, such as widths */
} attn_config_type;

typedef struct attn_config_value {
    attn_config_type type;
    bool boolean;
    int64_t integer;
    double real; /* the value of a REAL; also set for INT */
    const char *text;
    int64_t n; /* length of the list */
    const int64_t *integers;
    const char *const *texts;
    const double *reals;
} attn_config_value;

typedef struct attn_config attn_config;

/* Creates an empty config, which the caller destroys before the context. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_config_create(attn_config **config, attn_context *context);
ATTN_API void attn_config_destroy(attn_config *config); /* Destroys a config. NULL is allowed. */

/* Sets `key`; an existing key keeps its place in the order. Key and value are copied. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_config_set(attn_config *config, const char *key, const attn_config_value *value);
ATTN_API attn_status attn_config_set_int(attn_config *config, const char *key, int64_t value);
ATTN_API attn_status attn_config_set_real(attn_config *config, const char *key, double value);
ATTN_API attn_status attn_config_set_bool(attn_config *config, const char *key, bool value);
ATTN_API attn_status attn_config_set_text(attn_config *config, const char *key, const char *value);

/* Returns the number of keys in the config. */
ATTN_API int64_t attn_config_size(const attn_config *config);
/* Returns the i-th key; NULL past the end. */
ATTN_API const char *attn_config_key(const attn_config *config, int64_t i);
/* Returns the item of `key`, or NULL if there is no such key. The pointer is valid until the key is set again or the
 * config is destroyed. */
ATTN_API const attn_config_value *attn_config_get(const attn_config *config, const char *key);

/* Return the value of `key`, or `fallback` if the key is missing or has another type. */
ATTN_API int64_t attn_config_int(const attn_config *config, const char *key, int64_t fallback);
ATTN_API double attn_config_real(const attn_config *config, const char *key, double fallback);
ATTN_API bool attn_config_bool(const attn_config *config, const char *key, bool fallback);
ATTN_API const char *attn_config_text(const attn_config *config, const char *key, const char *fallback);

/* Describes one key of a config: its type and range. A table of these describes the settings of an architecture or a
 * training. `type` is BOOL, INT, REAL (an INT is accepted too), TEXT, INTS, TEXTS or REALS. INTS and REALS with a range
 * also accept a single number. REALS also accept a list of integers, and keys NAME.0, NAME.1, ..., the form of a list
 * of numbers from a config.json. */
typedef struct attn_setting {
    const char *name;
    attn_config_type type;
    /* the default as text: "0.1", "true", "gaussian". "" means that the key is optional and has no default. NULL
     * means that the key is required. */
    const char *default_text;
    double min, max; /* range of numbers and of the numbers in lists if min < max; otherwise any number is allowed */
    /* allowed texts, NULL-terminated; NULL: any text. For an INT, these are the allowed values in decimal, and the
     * value may also be given as text. */
    const char *const *choices;
    const char *doc;
} attn_setting;

#ifdef __cplusplus
}
#endif
#endif
