/* SPDX-License-Identifier: MIT
 *
 * Settings checked against an architecture's keys, and completed with the defaults. */
#include "models/kind.h"

#include "base/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text that stops growing when it is full. */
typedef struct line {
    size_t n;
    char text[320];
} line;

static void append(line *l, const char *separator, const char *word)
{
    int n = snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s", l->n ? separator : "", word);
    if (n > 0 && l->n + (size_t)n < sizeof l->text) {
        l->n += (size_t)n;
    }
}

static const char *const type_names[] = {
    [ATTN_VALUE_NULL] = "nothing", [ATTN_VALUE_BOOL] = "true or false", [ATTN_VALUE_INT] = "an integer",
    [ATTN_VALUE_REAL] = "a number", [ATTN_VALUE_TEXT] = "a text", [ATTN_VALUE_INTS] = "a list of integers",
    [ATTN_VALUE_TEXTS] = "a list of texts",
};

static bool is_known(const attn_architecture *a, const char *key)
{
    for (int i = 0; i < a->nkeys; i++) {
        if (strcmp(a->keys[i].name, key) == 0) {
            return true;
        }
    }
    return strcmp(key, "architecture") == 0;
}

static attn_status check_names(attn_context *context, const attn_architecture *a, const attn_config *config)
{
    for (int64_t i = 0; config && i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        if (is_known(a, key)) {
            continue;
        }
        line allowed = {0};
        for (int j = 0; j < a->nkeys; j++) {
            append(&allowed, ", ", a->keys[j].name);
        }
        return attn__fail(context, ATTN_ARGUMENT, "%s has no key \"%s\"; its keys: %s", a->name, key,
                          a->nkeys ? allowed.text : "none");
    }
    return ATTN_OK;
}

static attn_status check_choice(attn_context *context, const attn_architecture *a, const attn_key *key,
                                const char *text)
{
    line allowed = {0};
    for (int i = 0; key->choices && key->choices[i]; i++) {
        if (strcmp(key->choices[i], text) == 0) {
            return ATTN_OK;
        }
        append(&allowed, ", ", key->choices[i]);
    }
    return key->choices ? attn__fail(context, ATTN_ARGUMENT, "%s: %s is \"%.60s\"; allowed: %s", a->name, key->name,
                                     text, allowed.text)
                        : ATTN_OK;
}

static attn_status check_value(attn_context *context, const attn_architecture *a, const attn_key *key,
                               const attn_value *value)
{
    bool fits = value->type == key->type || (key->type == ATTN_VALUE_REAL && value->type == ATTN_VALUE_INT);
    if (!fits) {
        return attn__fail(context, ATTN_ARGUMENT, "%s: %s must be %s, not %s", a->name, key->name,
                          type_names[key->type], type_names[value->type]);
    }
    double number = value->type == ATTN_VALUE_INT ? (double)value->integer : value->real;
    bool is_number = key->type == ATTN_VALUE_INT || key->type == ATTN_VALUE_REAL;
    bool bounded = key->least < key->most; /* 0, 0: any */
    if (is_number && bounded && !(number >= key->least && number <= key->most)) {
        return attn__fail(context, ATTN_ARGUMENT, "%s: %s is %g; allowed: %g to %g", a->name, key->name, number,
                          key->least, key->most);
    }
    if (key->type == ATTN_VALUE_TEXT) {
        return check_choice(context, a, key, value->text);
    }
    for (int64_t i = 0; key->type == ATTN_VALUE_TEXTS && i < value->n; i++) {
        attn_status status = check_choice(context, a, key, value->texts[i]);
        if (status != ATTN_OK) {
            return status;
        }
    }
    return ATTN_OK;
}

/* An empty default leaves the key out: its reader falls back on another key. */
static attn_status set_default(attn_config *config, const attn_key *key)
{
    const char *text = key->otherwise;
    if (!text[0] && key->type != ATTN_VALUE_TEXT) {
        return ATTN_OK;
    }
    switch (key->type) {
    case ATTN_VALUE_BOOL:
        return attn_config_set_bool(config, key->name, strcmp(text, "true") == 0);
    case ATTN_VALUE_INT:
        return attn_config_set_int(config, key->name, strtoll(text, NULL, 10));
    case ATTN_VALUE_REAL:
        return attn_config_set_real(config, key->name, strtod(text, NULL));
    default:
        return text[0] ? attn_config_set_text(config, key->name, text) : ATTN_OK;
    }
}

static attn_status resolve_key(attn_context *context, const attn_architecture *a, const attn_key *key,
                               const attn_config *config, attn_config *to)
{
    const attn_value *value = config ? attn_config_get(config, key->name) : NULL;
    if (value && value->type != ATTN_VALUE_NULL) {
        attn_status status = check_value(context, a, key, value);
        return status == ATTN_OK ? attn_config_set(to, key->name, value) : status;
    }
    if (!key->otherwise) {
        return attn__fail(context, ATTN_ARGUMENT, "%s needs the key \"%s\" (%s)", a->name, key->name, key->doc);
    }
    return set_default(to, key);
}

attn_config *attn__config_resolve(attn_context *context, const attn_architecture *architecture,
                                  const attn_config *config)
{
    attn_config *to = NULL;
    attn_status status = check_names(context, architecture, config);
    if (status == ATTN_OK) {
        status = attn_config_create(&to, context);
    }
    for (int i = 0; status == ATTN_OK && i < architecture->nkeys; i++) {
        status = resolve_key(context, architecture, &architecture->keys[i], config, to);
    }
    if (status != ATTN_OK) {
        attn_config_destroy(to);
        return NULL;
    }
    return to;
}
