/* SPDX-License-Identifier: MIT
 * Settings checked against a table of keys, and completed with the defaults. */
#include "base/keys.h"

#include "base/context.h"
#include "base/real.h"
#include "base/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One resolving. */
typedef struct work {
    attn_context *context;
    const attn__keys *keys;
    const attn_config *given;
    const char *selected[2]; /* values of the selectors */
    char prefix[300];        /* "NAME: ", or nothing */
    attn__keys_options options;
} work;

/* Text that stops growing when it is full. */
typedef struct line {
    size_t n;
    char text[320];
} line;

static void append(line *l, const char *separator, const char *word)
{
    int n = snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s", l->n ? separator : "", word);
    if (n > 0 && l->n + (size_t)n < sizeof l->text)
        l->n += (size_t)n;
}

const attn_setting *attn__key_find(const attn__keys *keys, const char *name)
{
    for (int i = 0; i < keys->n; i++) {
        if (strcmp(keys->keys[i].name, name) == 0)
            return &keys->keys[i];
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------- checking */

static attn_status check_names(const work *w)
{
    for (int64_t i = 0; w->given && i < attn_config_size(w->given); i++) {
        const char *name = attn_config_key(w->given, i);
        /* Config files of models contain the name of their architecture. */
        if (w->options.select || attn__key_find(w->keys, name) || strcmp(name, "architecture") == 0)
            continue;
        line allowed = {0};
        attn_nearest nearest = {.word = name};
        for (int j = 0; j < w->keys->n; j++) {
            append(&allowed, ", ", w->keys->keys[j].name);
            attn_nearest_offer(&nearest, w->keys->keys[j].name);
        }
        bool near = attn_nearest_found(&nearest);
        return attn__fail(w->context, w->options.refusal, "%sthere is no key \"%s\"%s%s%s; the keys are: %s", w->prefix,
                          name, near ? "; did you mean \"" : "", near ? nearest.best : "", near ? "\"?" : "",
                          w->keys->n ? allowed.text : "none");
    }
    return ATTN_OK;
}

static attn_status check_choice(const work *w, const attn_setting *key, const char *text)
{
    line allowed = {0};
    const char *quote = key->type == ATTN_CONFIG_TYPE_INT ? "" : "\"";
    for (int i = 0; key->choices && key->choices[i]; i++) {
        if (strcmp(key->choices[i], text) == 0)
            return ATTN_OK;
        append(&allowed, ", ", key->choices[i]);
    }
    return key->choices ? attn__fail(w->context, w->options.refusal, "%s%s is %s%.60s%s; allowed: %s", w->prefix,
                                     key->name, quote, text, quote, allowed.text)
                        : ATTN_OK;
}

static attn_status check_type(const work *w, const attn_setting *key, const attn_config_value *value)
{
    static const char *const names[] = {
        [ATTN_CONFIG_TYPE_NULL] = "nothing",          [ATTN_CONFIG_TYPE_BOOL] = "true or false",
        [ATTN_CONFIG_TYPE_INT] = "an integer",        [ATTN_CONFIG_TYPE_REAL] = "a number",
        [ATTN_CONFIG_TYPE_TEXT] = "a text",           [ATTN_CONFIG_TYPE_INTS] = "a list of integers",
        [ATTN_CONFIG_TYPE_TEXTS] = "a list of texts",
    };
    if (value->type == key->type || (key->type == ATTN_CONFIG_TYPE_REAL && value->type == ATTN_CONFIG_TYPE_INT))
        return ATTN_OK;
    /* Numbers with a list of choices were once written as strings ("26"); such files are still read. */
    if (key->type == ATTN_CONFIG_TYPE_INT && key->choices && value->type == ATTN_CONFIG_TYPE_TEXT)
        return ATTN_OK;
    char found[48] = "";
    if (value->type == ATTN_CONFIG_TYPE_INT)
        snprintf(found, sizeof found, ": %lld", (long long)value->integer);
    else if (value->type == ATTN_CONFIG_TYPE_REAL)
        snprintf(found, sizeof found, ": %.9g", value->real);
    else if (value->type == ATTN_CONFIG_TYPE_TEXT)
        snprintf(found, sizeof found, ": \"%.40s\"", value->text);
    else if (value->type == ATTN_CONFIG_TYPE_BOOL)
        snprintf(found, sizeof found, ": %s", value->boolean ? "true" : "false");
    return attn__fail(w->context, w->options.refusal, "%s%s must be %s, not %s%s", w->prefix, key->name,
                      names[key->type], names[value->type], found);
}

static attn_status check_value(const work *w, const attn_setting *key, const attn_config_value *value)
{
    attn_status status = check_type(w, key, value);
    if (status != ATTN_OK)
        return status;
    bool is_number = value->type == ATTN_CONFIG_TYPE_INT || value->type == ATTN_CONFIG_TYPE_REAL;
    bool bounded = key->min < key->max; /* 0, 0: any */
    if (is_number && bounded && !(value->real >= key->min && value->real <= key->max))
        return attn__fail(w->context, w->options.refusal, "%s%s is %g; allowed: %g to %g", w->prefix, key->name,
                          value->real, key->min, key->max);
    if (key->type == ATTN_CONFIG_TYPE_TEXT || (key->choices && value->type == ATTN_CONFIG_TYPE_TEXT))
        return check_choice(w, key, value->text);
    if (key->type == ATTN_CONFIG_TYPE_INT && key->choices) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)value->integer);
        return check_choice(w, key, text);
    }
    for (int64_t i = 0; key->type == ATTN_CONFIG_TYPE_TEXTS && status == ATTN_OK && i < value->n; i++)
        status = check_choice(w, key, value->texts[i]);
    return status;
}

/* -------------------------------------------------------------------------------------------- filling */

static const char *default_of(const work *w, const attn_setting *key)
{
    const char *otherwise = key->default_text;
    for (int i = 0; i < w->keys->npresets; i++) {
        const attn__preset *p = &w->keys->presets[i];
        bool holds = strcmp(p->key, key->name) == 0;
        for (int s = 0; s < 2; s++)
            holds = holds && (!p->values[s] || (w->selected[s] && strcmp(p->values[s], w->selected[s]) == 0));
        if (holds)
            otherwise = p->otherwise;
    }
    return otherwise;
}

/* An empty default leaves the key out: its reader falls back on another key. */
static attn_status set_default(attn_config *config, const attn_setting *key, const char *text)
{
    if (!text[0])
        return ATTN_OK;
    switch (key->type) {
    case ATTN_CONFIG_TYPE_BOOL:
        return attn_config_set_bool(config, key->name, strcmp(text, "true") == 0);
    case ATTN_CONFIG_TYPE_INT:
        return attn_config_set_int(config, key->name, strtoll(text, NULL, 10));
    case ATTN_CONFIG_TYPE_REAL:
        return attn_config_set_real(config, key->name, attn__real_of_text(text, NULL));
    default:
        return attn_config_set_text(config, key->name, text);
    }
}

static attn_status resolve_key(const work *w, const attn_setting *key, attn_config *to)
{
    const attn_config_value *value = w->given ? attn_config_get(w->given, key->name) : NULL;
    if (!value || value->type == ATTN_CONFIG_TYPE_NULL) {
        const char *otherwise = default_of(w, key);
        return otherwise ? set_default(to, key, otherwise)
                         : attn__fail(w->context, w->options.refusal, "%sthe key \"%s\" is needed (%s)", w->prefix,
                                      key->name, key->doc);
    }
    attn_status status = check_value(w, key, value);
    if (status != ATTN_OK)
        return status;
    if (key->type == ATTN_CONFIG_TYPE_REAL)
        return attn_config_set_real(to, key->name, value->real);
    return key->type == ATTN_CONFIG_TYPE_INT && value->type == ATTN_CONFIG_TYPE_TEXT
               ? set_default(to, key, value->text)
               : attn_config_set(to, key->name, value);
}

/* Selectors choose defaults, so they are looked up before anything is filled in. */
static void select_presets(work *w)
{
    for (int s = 0; s < 2; s++) {
        const attn_setting *key = w->keys->selectors[s] ? attn__key_find(w->keys, w->keys->selectors[s]) : NULL;
        if (key)
            w->selected[s] = w->given ? attn_config_text(w->given, key->name, key->default_text) : key->default_text;
    }
}

attn_status attn__keys_resolve(attn_config **to, attn_context *context, const attn__keys *keys,
                               const attn_config *given, const attn__keys_options *options)
{
    work w = {.context = context, .keys = keys, .given = given};
    w.options = options ? *options : (attn__keys_options){0};
    w.options.refusal = w.options.refusal ? w.options.refusal : ATTN_ERROR_ARGUMENT;
    if (w.options.name)
        snprintf(w.prefix, sizeof w.prefix, "%.290s: ", w.options.name);
    *to = NULL;
    select_presets(&w);
    attn_status status = check_names(&w);
    if (status == ATTN_OK)
        status = attn_config_create(to, context);
    for (int i = 0; status == ATTN_OK && i < keys->n; i++)
        status = resolve_key(&w, &keys->keys[i], *to);
    if (status != ATTN_OK) {
        attn_config_destroy(*to);
        *to = NULL;
    }
    return status;
}
