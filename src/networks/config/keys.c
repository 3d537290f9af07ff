/* SPDX-License-Identifier: MIT */
#include "config/keys.h"

#include "base/context.h"
#include "base/real.h"
#include "config/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    attn_context *context;
    const attn__keys *keys;
    const attn_config *given;
    const char *selected[2];
    char prefix[300]; /* "NAME: ", or "" if there is no name */
    attn__keys_options options;
} work;

/* A text buffer that truncates text when it is full. */
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
    for (int i = 0; i < keys->n; i++)
        if (strcmp(keys->keys[i].name, name) == 0)
            return &keys->keys[i];
    return NULL;
}

bool attn__key_has_member(const attn_setting *key, const char *name)
{
    size_t n = strlen(key->name);
    return key->type == ATTN_CONFIG_TYPE_REALS && strncmp(name, key->name, n) == 0 && name[n] == '.' &&
           name[n + 1 + strspn(name + n + 1, "0123456789")] == '\0';
}

static bool is_known(const attn__keys *keys, const char *name)
{
    bool known = attn__key_find(keys, name) != NULL;
    for (int i = 0; !known && i < keys->n; i++)
        known = attn__key_has_member(&keys->keys[i], name);
    return known;
}

/* ------------------------------------------------------------------------------------------- checking */

static attn_status check_names(const work *w)
{
    for (int64_t i = 0; w->given && i < attn_config_size(w->given); i++) {
        const char *name = attn_config_key(w->given, i);
        /* "architecture" is no key of the table, but it is accepted, because a model's config file contains it */
        if (w->options.select || is_known(w->keys, name) || strcmp(name, "architecture") == 0)
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

static bool is_list_of_numbers(const attn_setting *key)
{
    return key->type == ATTN_CONFIG_TYPE_INTS || key->type == ATTN_CONFIG_TYPE_REALS;
}

static attn_config_type element_of(const attn_setting *list)
{
    return list->type == ATTN_CONFIG_TYPE_INTS ? ATTN_CONFIG_TYPE_INT : ATTN_CONFIG_TYPE_REAL;
}

static bool takes(attn_config_type wanted, attn_config_type given)
{
    return given == wanted || (wanted == ATTN_CONFIG_TYPE_REAL && given == ATTN_CONFIG_TYPE_INT) ||
           (wanted == ATTN_CONFIG_TYPE_REALS && given == ATTN_CONFIG_TYPE_INTS);
}

static attn_status check_type(const work *w, const attn_setting *key, const attn_config_value *value)
{
    static const char *const names[] = {
        [ATTN_CONFIG_TYPE_NULL] = "nothing",          [ATTN_CONFIG_TYPE_BOOL] = "true or false",
        [ATTN_CONFIG_TYPE_INT] = "an integer",        [ATTN_CONFIG_TYPE_REAL] = "a number",
        [ATTN_CONFIG_TYPE_TEXT] = "a text",           [ATTN_CONFIG_TYPE_INTS] = "a list of integers",
        [ATTN_CONFIG_TYPE_TEXTS] = "a list of texts", [ATTN_CONFIG_TYPE_REALS] = "a list of numbers",
    };
    /* if the key is a list and has a range, a single number is accepted in place of the list */
    bool single = is_list_of_numbers(key) && key->min < key->max;
    if (takes(key->type, value->type) || (single && takes(element_of(key), value->type)))
        return ATTN_OK;
    /* Earlier versions wrote integers with a list of choices as strings ("26"). Such files are still accepted. */
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
    return attn__fail(w->context, w->options.refusal, "%s%s must be %s%s%s, not %s%s", w->prefix, key->name,
                      single ? names[element_of(key)] : "", single ? " or " : "", names[key->type], names[value->type],
                      found);
}

/* If the key has a range, checks each number of the list against it, and refuses an empty list. */
static attn_status check_list(const work *w, const attn_setting *key, const attn_config_value *value)
{
    bool bounded = key->min < key->max;
    if (bounded && value->n == 0)
        return attn__fail(w->context, w->options.refusal, "%s%s must not be an empty list", w->prefix, key->name);
    for (int64_t i = 0; bounded && i < value->n; i++) {
        double number = value->type == ATTN_CONFIG_TYPE_INTS ? (double)value->integers[i] : value->reals[i];
        if (!(number >= key->min && number <= key->max))
            return attn__fail(w->context, w->options.refusal, "%s%s[%lld] is %g; allowed: %g to %g", w->prefix,
                              key->name, (long long)i, number, key->min, key->max);
    }
    return ATTN_OK;
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
    if (value->type == ATTN_CONFIG_TYPE_INTS || value->type == ATTN_CONFIG_TYPE_REALS)
        return check_list(w, key, value);
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

/* A key whose default is "" is not set. */
static attn_status set_default(attn_config *config, const attn_setting *key, const char *text)
{
    if (!text[0])
        return ATTN_OK;
    switch (key->type) {
    case ATTN_CONFIG_TYPE_BOOL:
        return attn_config_set_bool(config, key->name, strcmp(text, "true") == 0);
    case ATTN_CONFIG_TYPE_INT:
    case ATTN_CONFIG_TYPE_INTS:
        return attn_config_set_int(config, key->name, strtoll(text, NULL, 10));
    case ATTN_CONFIG_TYPE_REAL:
    case ATTN_CONFIG_TYPE_REALS:
        return attn_config_set_real(config, key->name, attn__real_of_text(text, NULL));
    default:
        return attn_config_set_text(config, key->name, text);
    }
}

/* Collects the settings NAME.0, NAME.1, ... in one list, which is set in `to`. A JSON list of numbers that are not all
 * integers is stored as such settings, one per number. *found becomes true if there is at least one of the settings. */
static attn_status collect_members(const work *w, const attn_setting *key, attn_config *to, bool *found)
{
    enum { MOST = 64 };
    double numbers[MOST];
    attn_config_value list = {.type = ATTN_CONFIG_TYPE_REALS, .reals = numbers};
    int64_t members = 0;
    for (int64_t i = 0; w->given && i < attn_config_size(w->given); i++)
        members += attn__key_has_member(key, attn_config_key(w->given, i));
    *found = members > 0;
    for (; list.n < members; list.n++) {
        char name[128];
        snprintf(name, sizeof name, "%s.%lld", key->name, (long long)list.n);
        const attn_config_value *value = attn_config_get(w->given, name);
        if (list.n == MOST)
            return attn__fail(w->context, w->options.refusal,
                              "%s%s is a list of %lld; at most %d numbers are supported", w->prefix, key->name,
                              (long long)members, MOST);
        if (!value || !takes(ATTN_CONFIG_TYPE_REAL, value->type))
            return attn__fail(w->context, w->options.refusal, "%s%s[%lld] %s; %s must be a number or a list of numbers",
                              w->prefix, key->name, (long long)list.n, value ? "is not a number" : "is missing",
                              key->name);
        numbers[list.n] = value->real;
    }
    attn_status status = *found ? check_value(w, key, &list) : ATTN_OK;
    return *found && status == ATTN_OK ? attn_config_set(to, key->name, &list) : status;
}

static attn_status resolve_key(const work *w, const attn_setting *key, attn_config *to)
{
    const attn_config_value *value = w->given ? attn_config_get(w->given, key->name) : NULL;
    if (!value && key->type == ATTN_CONFIG_TYPE_REALS) {
        bool found;
        attn_status status = collect_members(w, key, to, &found);
        if (found)
            return status;
    }
    if (!value || value->type == ATTN_CONFIG_TYPE_NULL) {
        const char *otherwise = default_of(w, key);
        return otherwise ? set_default(to, key, otherwise)
                         : attn__fail(w->context, w->options.refusal, "%sthe key \"%s\" is missing (%s)", w->prefix,
                                      key->name, key->doc);
    }
    attn_status status = check_value(w, key, value);
    if (status != ATTN_OK)
        return status;
    if (takes(ATTN_CONFIG_TYPE_REAL, value->type) &&
        (key->type == ATTN_CONFIG_TYPE_REAL || key->type == ATTN_CONFIG_TYPE_REALS))
        return attn_config_set_real(to, key->name, value->real);
    return key->type == ATTN_CONFIG_TYPE_INT && value->type == ATTN_CONFIG_TYPE_TEXT
               ? set_default(to, key, value->text)
               : attn_config_set(to, key->name, value);
}

/* Finds the values of the selectors, which choose among the defaults. Must be called before defaults are filled in. */
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

/* *same becomes true if `value` is the default of the key for these selectors. */
static attn_status is_default(const work *w, const attn_setting *key, const attn_config_value *value, bool *same)
{
    attn_config *config;
    attn_status status = attn_config_create(&config, w->context);
    if (status == ATTN_OK)
        status = set_default(config, key, default_of(w, key));
    const attn_config_value *otherwise = status == ATTN_OK ? attn_config_get(config, key->name) : NULL;
    *same = otherwise && attn_config_value_equal(value, otherwise);
    attn_config_destroy(config);
    return status;
}

static attn_status check_need(const work *w, const attn__key_need *need, const attn_config *settings)
{
    const attn_setting *key = attn__key_find(w->keys, need->key);
    const attn_config_value *value = key && w->given ? attn_config_get(w->given, key->name) : NULL;
    const char *other = attn_config_text(settings, need->other, "auto");
    bool met = !value || value->type == ATTN_CONFIG_TYPE_NULL || strcmp(other, "auto") == 0;
    line values = {0};
    for (int i = 0; need->values[i]; i++) {
        met = met || strcmp(need->values[i], other) == 0;
        append(&values, " or ", need->values[i]);
    }
    attn_status status = met ? ATTN_OK : is_default(w, key, value, &met);
    return met || status != ATTN_OK
               ? status
               : attn__fail(w->context, ATTN_ERROR_ARGUMENT,
                            "%s has an effect only if %s is %s, but %s is %s: leave out %s, or change %s", key->name,
                            need->other, values.text, need->other, other, key->name, need->other);
}

attn_status attn__keys_check_needs(attn_context *context, const attn__keys *keys, const attn__key_need *needs,
                                   int nneeds, const attn_config *given, const attn_config *settings)
{
    work w = {.context = context, .keys = keys, .given = given};
    attn_status status = ATTN_OK;
    select_presets(&w);
    for (int i = 0; i < nneeds && status == ATTN_OK; i++)
        status = check_need(&w, &needs[i], settings);
    return status;
}

bool attn__config_sides(const attn_config *config, const char *key, int64_t sides[2])
{
    const attn_config_value *value = attn_config_get(config, key);
    bool both = value && value->type == ATTN_CONFIG_TYPE_INTS && value->n == 2;
    if (!both && (!value || value->type != ATTN_CONFIG_TYPE_INT))
        return false;
    for (int i = 0; i < 2; i++)
        sides[i] = both ? value->integers[i] : value->integer;
    return true;
}

attn_status attn__config_need_sides(int64_t sides[2], attn_context *context, const attn_config *config, const char *key,
                                    const char *before)
{
    if (attn__config_sides(config, key, sides))
        return ATTN_OK;
    const attn_config_value *value = attn_config_get(config, key);
    return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s%s is a list of %lld; allowed: an integer, or [height, width]",
                      before, key, (long long)(value ? value->n : 0));
}

attn_status attn__config_set_sides(attn_config *config, const char *key, const int64_t sides[2])
{
    const attn_config_value list = {.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = sides};
    return sides[0] == sides[1] ? attn_config_set_int(config, key, sides[0]) : attn_config_set(config, key, &list);
}

const char *attn__sides_text(char text[48], const int64_t sides[2])
{
    snprintf(text, 48, sides[0] == sides[1] ? "%lld" : "[%lld, %lld]", (long long)sides[0], (long long)sides[1]);
    return text;
}
