/* SPDX-License-Identifier: MIT
 *
 * config.h - typed settings by name: what a config.json holds, what an architecture is built from.
 *
 * A config keeps its keys in the order in which they were set.  Any number of threads may read a config at once; no
 * other thread may use it while one changes it. */
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
    ATTN_CONFIG_TYPE_INTS,  /* a list of integers: shapes */
    ATTN_CONFIG_TYPE_TEXTS, /* a list of texts: factors, class names */
    ATTN_CONFIG_TYPE_REALS  /* a list of numbers: widths */
} attn_config_type;

typedef struct attn_config_value {
    attn_config_type type;
    bool boolean;
    int64_t integer;
    double real; /* also set for INT */
    const char *text;
    int64_t n; /* of the lists */
    const int64_t *integers;
    const char *const *texts;
    const double *reals;
} attn_config_value;

typedef struct attn_config attn_config;

/* An empty config, which the caller destroys before the context.  ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_config_create(attn_config **config, attn_context *context);
ATTN_API void attn_config_destroy(attn_config *config); /* NULL is allowed */

/* Sets `key`, in place if it is there.  Everything is copied.  ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_config_set(attn_config *config, const char *key, const attn_config_value *value);
ATTN_API attn_status attn_config_set_int(attn_config *config, const char *key, int64_t value);
ATTN_API attn_status attn_config_set_real(attn_config *config, const char *key, double value);
ATTN_API attn_status attn_config_set_bool(attn_config *config, const char *key, bool value);
ATTN_API attn_status attn_config_set_text(attn_config *config, const char *key, const char *value);

/* How many keys it holds. */
ATTN_API int64_t attn_config_size(const attn_config *config);
ATTN_API const char *attn_config_key(const attn_config *config, int64_t i); /* NULL past the end */
/* NULL if there is no such key.  Lives until the key is set again or the config is destroyed. */
ATTN_API const attn_config_value *attn_config_get(const attn_config *config, const char *key);

/* The value of `key`, or `fallback` if there is no such key or it is of another type. */
ATTN_API int64_t attn_config_int(const attn_config *config, const char *key, int64_t fallback);
ATTN_API double attn_config_real(const attn_config *config, const char *key, double fallback);
ATTN_API bool attn_config_bool(const attn_config *config, const char *key, bool fallback);
ATTN_API const char *attn_config_text(const attn_config *config, const char *key, const char *fallback);

/* The type and range of a key of a config: one line of the table that describes an architecture's or a training's
 * settings. `type` BOOL, INT, REAL (an INT is taken too), TEXT, INTS, TEXTS or REALS.  INTS and REALS with a range take a
 * single number too, which stays one; REALS take a list of integers, and the members NAME.0, NAME.1, ... that a list of
 * numbers has in a config.json. */
typedef struct attn_setting {
    const char *name;
    attn_config_type type;
    const char *default_text;   /* the default, as text: "0.1", "true", "gaussian"; "" if none is needed;
                                 * NULL: the key is required */
    double min, max;            /* of numbers, of lists too, where min < max; else any */
    const char *const *choices; /* of texts, NULL-terminated; NULL: any.  For an INT of which only some values are
                                 * allowed: these, as decimals; such a number is also taken as a text */
    const char *doc;
} attn_setting;

#ifdef __cplusplus
}
#endif
#endif
