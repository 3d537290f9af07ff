/* SPDX-License-Identifier: MIT */
#include "io/names/names.h"

#include "base/real.h"
#include "io/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MOST = 1 << 20, RULES_MOST = 4096, WORDS_MOST = 32 };

/* One line of the file, split into words. A word that begins with # begins a comment, which is not stored. */
typedef struct line {
    attn_name_map *names;
    int number, n;
    char *words[WORDS_MOST];
} line;

static attn_status fail(const line *l, const char *what, const char *word)
{
    return attn__fail(l->names->context, ATTN_ERROR_FORMAT, "%s: line %d: %s%s%.200s%s", l->names->file, l->number,
                      what, *word ? "; found \"" : "", word, *word ? "\"" : "");
}

static attn_status split(line *l, char *text)
{
    l->n = 0;
    for (char *at = text + strspn(text, " \t\r"); *at && *at != '#'; at += strspn(at, " \t\r")) {
        if (l->n == WORDS_MOST)
            return fail(l, "the line has more than 32 words, the limit", "");
        l->words[l->n++] = at;
        at += strcspn(at, " \t\r");
        if (*at)
            *at++ = '\0';
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------- operations */

static bool read_whole(const char *text, const char *ends, int64_t *value, const char **rest)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    *value = number;
    *rest = end;
    return end != text && !errno && number > -(1LL << 40) && number < 1LL << 40 && (strchr(ends, *end) || !*end);
}

/* Parses two words: "i/n", and optionally the axis. */
static attn_status read_index(const line *l, int *at, attn__operation *o)
{
    const char *word = *at < l->n ? l->words[(*at)++] : "", *rest;
    if (!read_whole(word, "/", &o->a, &rest) || *rest != '/' || !read_whole(rest + 1, "", &o->b, &rest) || *rest ||
        o->a < 0 || o->a >= o->b || o->b > 4096)
        return fail(l, "expected i/n, part i of n with i from 0 to n - 1 and n at most 4096", word);
    return ATTN_OK;
}

static attn_status read_slice(const line *l, int *at, attn__operation *o)
{
    attn_status status = read_index(l, at, o);
    if (status == ATTN_OK && *at < l->n && l->words[*at][0] >= '0' && l->words[*at][0] <= '9') {
        const char *word = l->words[(*at)++], *rest;
        int64_t axis;
        if (!read_whole(word, "", &axis, &rest) || *rest || axis >= ATTN_MAX_RANK)
            return fail(l, "expected an axis from 0 to 7", word);
        o->axis = (int)axis;
    }
    return status;
}

static attn_status read_rows(const line *l, int *at, attn__operation *o)
{
    const char *word = *at < l->n ? l->words[(*at)++] : "", *rest = word;
    bool good = *word == ':' || read_whole(word, ":", &o->a, &rest);
    o->b = INT64_MAX;
    if (good && *rest == ':')
        good = !rest[1] || (read_whole(rest + 1, "", &o->b, &rest) && !*rest);
    else
        good = false;
    return good && o->a >= 0 && o->b > o->a ? ATTN_OK
                                            : fail(l, "expected a:b after rows, the rows from a to b - 1", word);
}

static attn_status read_shape(const line *l, int *at, attn__operation *o)
{
    const char *word = *at < l->n ? l->words[(*at)++] : "", *rest = word;
    bool good = *word != '\0';
    int open = 0;
    while (good && o->rank < ATTN_MAX_RANK) {
        int64_t *length = &o->shape[o->rank++];
        good = read_whole(rest, ",", length, &rest) && *length >= -1;
        open += good && *length == -1;
        if (!good || *rest != ',')
            break;
        rest++;
    }
    return good && !*rest && open <= 1
               ? ATTN_OK
               : fail(l, "expected lengths such as 8,-1,64 after reshape, at most one of them -1", word);
}

static bool read_real(const char *text, double *value)
{
    char *end;
    *value = attn__real_of_text(text, &end);
    return end != text && !*end && isfinite(*value);
}

static attn_status read_factor(const line *l, int *at, attn__operation *o)
{
    const char *word = *at < l->n ? l->words[(*at)++] : "";
    return read_real(word, &o->factor) ? ATTN_OK : fail(l, "expected a finite number after scale", word);
}

static attn_status read_operation(const line *l, int *at, attn__rule *rule, bool *fallback)
{
    static const struct {
        const char *name;
        attn_status (*read)(const line *l, int *at, attn__operation *o);
    } known[] = {
        [ATTN__TRANSPOSE] = {"transpose", NULL},
        [ATTN__PART] = {"part", read_slice},
        [ATTN__ROWS] = {"rows", read_rows},
        [ATTN__JOIN] = {"join", read_slice},
        [ATTN__ADD] = {"add", read_index},
        [ATTN__RESHAPE] = {"reshape", read_shape},
        [ATTN__SQUEEZE] = {"squeeze", NULL},
        [ATTN__SCALE] = {"scale", read_factor},
        [ATTN__ZERO_ROW] = {"append-zero-row", NULL},
        [ATTN__SAME] = {"same", NULL},
    };
    const char *word = l->words[(*at)++];
    if (strcmp(word, "default") == 0) {
        *fallback = true;
        return ATTN_OK;
    }
    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++) {
        if (strcmp(word, known[i].name) != 0)
            continue;
        if (rule->n == ATTN__OPERATIONS)
            return fail(l, "the rule has more than 8 operations, the limit", "");
        if (attn__rule_gathers(rule))
            return fail(l, "no operation may follow join, add or same", word);
        attn__operation *o = &rule->operations[rule->n++];
        *o = (attn__operation){.kind = (attn__operation_kind)i};
        return known[i].read ? known[i].read(l, at, o) : ATTN_OK;
    }
    return fail(l,
                "expected an operation: transpose, part, rows, join, add, reshape, squeeze, scale, append-zero-row, "
                "same or default",
                word);
}

/* ------------------------------------------------------------------------------------------------ rules */

static attn_status compile(const line *l, const char *text, attn__pattern **pattern)
{
    const char *wrong;
    attn_status status = attn__pattern_create(pattern, l->names->context, text, strlen(text), &wrong);
    return status == ATTN_ERROR_FORMAT ? attn__fail(l->names->context, status, "%s: line %d: pattern \"%.200s\": %s",
                                                    l->names->file, l->number, text, wrong)
                                       : status;
}

/* Parses a reference to a group in a target. "\1" is the text of group 1, and "{\1-1}" is its number minus 1. Sets
 * *group to the number of the group, and *add to the number that is added. Returns the length of the reference, or 0 if
 * there is none at `at`. */
static size_t reference(const char *at, int *group, int *add)
{
    bool counted = at[0] == '{';
    const char *digit = at + counted + 1;
    *add = 0;
    if (at[counted] != '\\' || *digit < '1' || *digit > '9')
        return 0;
    *group = *digit - '0';
    if (!counted)
        return 2;
    const char *sign = digit + 1, *end = sign;
    if (*sign == '+' || *sign == '-') {
        int64_t value;
        if (!read_whole(sign, "}", &value, &end) || value < -9999 || value > 9999)
            return 0;
        *add = (int)value;
    }
    return *end == '}' ? (size_t)(end + 1 - at) : 0;
}

static attn_status check_target(const line *l, const attn__rule *rule)
{
    int group, add;
    for (const char *at = rule->target; *at; at++) {
        size_t size = reference(at, &group, &add);
        if (!size && strchr("\\{}", *at))
            return fail(l, "in a target, \\ and { } may occur only as in \\1 to \\9 and in {\\1-1}", rule->target);
        if (size && group > attn__pattern_groups(rule->pattern))
            return fail(l, "the target names a group that the pattern does not have", at);
        at += size ? size - 1 : 0;
    }
    return strlen(rule->target) <= ATTN__PATTERN_MOST ? ATTN_OK : fail(l, "the target has more than 256 bytes", "");
}

/* Compiles a pattern that matches all targets that a rule can make. In it, a group becomes "any text", or "any number"
 * if a number is added to the group. */
static attn_status compile_fallback(const line *l, attn__rule *rule)
{
    char text[2 * ATTN__PATTERN_MOST + 8];
    size_t n = 0;
    for (const char *at = rule->target; *at && n < sizeof text - 8;) {
        int group, add;
        size_t size = reference(at, &group, &add);
        if (size) {
            const char *any = *at == '{' ? "\\d+" : ".*";
            memcpy(text + n, any, strlen(any));
            n += strlen(any);
            at += size;
            continue;
        }
        if (strchr(".[]()|*+?^$-", *at))
            text[n++] = '\\';
        text[n++] = *at++;
    }
    text[n] = '\0';
    return compile(l, text, &rule->fallback);
}

static attn_status add_rule(const line *l)
{
    attn_name_map *names = l->names;
    bool fallback = false;
    if (l->n < 2)
        return fail(l, "a rule needs a pattern and a target", l->words[0]);
    if (names->n == RULES_MOST)
        return fail(l, "the file has more than 4096 rules, the limit", "");
    attn__rule *rules = attn__grow(names->context, names->rules, names->n, sizeof *rules);
    if (!rules)
        return ATTN_ERROR_MEMORY;
    names->rules = rules;
    attn__rule *rule = &names->rules[names->n++];
    *rule = (attn__rule){.line = l->number};
    attn_status status = compile(l, l->words[0], &rule->pattern);
    if (status == ATTN_OK && strcmp(l->words[1], "-") == 0)
        return l->n == 2 ? ATTN_OK
                         : fail(l, "the target - drops the tensor, so no operation may follow it", l->words[2]);
    if (status == ATTN_OK) {
        rule->target = attn__strdup(names->context, l->words[1]);
        status = rule->target ? check_target(l, rule) : ATTN_ERROR_MEMORY;
    }
    for (int at = 2; at < l->n && status == ATTN_OK;)
        status = read_operation(l, &at, rule, &fallback);
    return status == ATTN_OK && fallback ? compile_fallback(l, rule) : status;
}

/* ------------------------------------------------------------------------------------------------ lines */

attn_status attn__names_set(attn_config *settings, const char *word, const char *value)
{
    char *end;
    double real;
    errno = 0;
    long long whole = strtoll(value, &end, 10);
    if (*value && !*end && !errno)
        return attn_config_set_int(settings, word, whole);
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        return attn_config_set_bool(settings, word, *value == 't');
    if (read_real(value, &real))
        return attn_config_set_real(settings, word, real);
    return attn_config_set_text(settings, word, value);
}

static attn_status set_value(const line *l, char *word)
{
    char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return fail(l, "expected KEY=VALUE after set", word);
    *equals = '\0';
    return attn__names_set(l->names->settings, word, equals + 1);
}

/* Parses one of these lines of a names file: size KEY TARGET AXIS [ADD], count KEY PREFIX, or when KEY=VALUE TARGET. */
static attn_status add_measure(const line *l, attn__measure_kind kind)
{
    enum { MOST = 256 };
    attn_name_map *names = l->names;
    attn_context *context = names->context;
    int64_t axis = 0, add = 0;
    const char *rest;
    const bool adds = kind == ATTN__SIZE && l->n == 5;
    char *value = kind == ATTN__WHEN && l->n > 1 ? strchr(l->words[1], '=') : NULL;
    static const char *const forms[] = {[ATTN__SIZE] = "expected size KEY TARGET AXIS [ADD]",
                                        [ATTN__COUNT_OF] = "expected count KEY PREFIX",
                                        [ATTN__WHEN] = "expected when KEY=VALUE TARGET"};
    if (l->n != (kind == ATTN__SIZE ? 4 : 3) + adds || (kind == ATTN__WHEN && !value))
        return fail(l, forms[kind], "");
    if (names->nmeasures == MOST)
        return fail(l, "the file has more than 256 lines of size, count and when, the limit", "");
    if (kind == ATTN__SIZE && (!read_whole(l->words[3], "", &axis, &rest) || axis < 0 || axis >= ATTN_MAX_RANK))
        return fail(l, "expected an axis from 0 to 7", l->words[3]);
    if (adds && (!read_whole(l->words[4], "", &add, &rest) || add < -INT32_MAX || add > INT32_MAX))
        return fail(l, "expected a whole number", l->words[4]);
    if (value)
        *value++ = '\0';
    attn__measure *more = attn__grow(context, names->measures, names->nmeasures, sizeof *more);
    if (!more)
        return ATTN_ERROR_MEMORY;
    names->measures = more;
    attn__measure *made = &more[names->nmeasures++];
    *made = (attn__measure){.kind = kind,
                            .key = attn__strdup(context, l->words[1]),
                            .target = attn__strdup(context, l->words[2]),
                            .axis = (int)axis,
                            .add = add};
    if (value)
        made->value = attn__strdup(context, value);
    return made->key && made->target && (!value || made->value) ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status take_line(line *l)
{
    attn_name_map *names = l->names;
    attn_status status = ATTN_OK;
    if (l->n == 0)
        return ATTN_OK;
    if (strcmp(l->words[0], "set") == 0) {
        for (int i = 1; i < l->n && status == ATTN_OK; i++)
            status = set_value(l, l->words[i]);
        return status;
    }
    static const char *const measures[] = {[ATTN__SIZE] = "size", [ATTN__COUNT_OF] = "count", [ATTN__WHEN] = "when"};
    for (int i = 0; i < 3; i++)
        if (strcmp(l->words[0], measures[i]) == 0)
            return add_measure(l, (attn__measure_kind)i);
    if (strcmp(l->words[0], "arch") != 0)
        return add_rule(l);
    if (l->n != 2)
        return fail(l, l->n < 2 ? "expected an architecture after arch" : "expected one architecture after arch",
                    l->n > 2 ? l->words[2] : "");
    if (names->architecture)
        return fail(l, "the architecture is given twice", l->words[1]);
    names->architecture = attn__strdup(names->context, l->words[1]);
    return names->architecture ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* The first line that is not a comment must contain the name of the format. */
static attn_status take_lines(attn_name_map *names, char *text)
{
    line l = {.names = names};
    bool begun = false;
    attn_status status = ATTN_OK;
    for (char *next = text; next && status == ATTN_OK;) {
        char *at = next, *end = strchr(next, '\n');
        next = end ? end + 1 : NULL;
        if (end)
            *end = '\0';
        l.number++;
        status = split(&l, at);
        if (status != ATTN_OK || l.n == 0)
            continue;
        if (begun)
            status = take_line(&l);
        else if (l.n != 3 || strcmp(l.words[0], "attn") != 0 || strcmp(l.words[1], "names") != 0)
            status = fail(&l, "expected \"attn names 1\" on the first line of a names file", "");
        else if (strcmp(l.words[2], "1") != 0)
            status = fail(&l, "only version 1 of names files is supported", l.words[2]);
        begun = true;
    }
    if (status == ATTN_OK && !begun)
        status = fail(&l, "expected \"attn names 1\" on the first line of a names file", "");
    return status;
}

attn_status attn_name_map_parse(attn_name_map **names, attn_context *context, const char *text, size_t size,
                                const char *name)
{
    ATTN__CALL(context);
    *names = NULL;
    if (size > SIZE_MOST)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: not a names file: the file has %zu bytes; at most %d are supported", name, size,
                          (int)SIZE_MOST);
    if (memchr(text, 0, size))
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: not a names file: the file has a zero byte", name);
    attn_name_map *made = attn__alloc_zero(context, sizeof *made);
    char *copy = attn__alloc(context, size + 1);
    attn_status status = made && copy ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK) {
        memcpy(copy, text, size);
        copy[size] = '\0';
        made->context = context;
        made->file = attn__strdup(context, name);
        status = made->file ? attn_config_create(&made->settings, context) : ATTN_ERROR_MEMORY;
    }
    if (status == ATTN_OK)
        status = take_lines(made, copy);
    attn__free(context, copy);
    if (status == ATTN_OK)
        *names = made;
    else if (made && made->context)
        attn_name_map_destroy(made);
    else
        attn__free(context, made);
    return status;
}

attn_status attn_name_map_read(attn_name_map **names, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    attn__input input;
    const char *text;
    size_t size;
    *names = NULL;
    if (attn__names_builtin_size(path, &text, &size))
        return attn_name_map_parse(names, context, text, size, path);
    attn_status status = attn__file_map(&input, context, path);
    if (status == ATTN_OK)
        status = attn_name_map_parse(names, context, input.data ? (const char *)input.data : "", input.size, path);
    attn__file_unmap(&input);
    return status;
}

void attn_name_map_destroy(attn_name_map *names)
{
    if (!names)
        return;
    for (int i = 0; i < names->n; i++) {
        attn__pattern_destroy(names->context, names->rules[i].pattern);
        attn__pattern_destroy(names->context, names->rules[i].fallback);
        attn__free(names->context, names->rules[i].target);
    }
    for (int i = 0; i < names->nmeasures; i++) {
        attn__free(names->context, names->measures[i].key);
        attn__free(names->context, names->measures[i].target);
        attn__free(names->context, names->measures[i].value);
    }
    attn__free(names->context, names->measures);
    attn__free(names->context, names->rules);
    attn__free(names->context, names->file);
    attn__free(names->context, names->architecture);
    attn_config_destroy(names->settings);
    attn__free(names->context, names);
}

const char *attn_name_map_architecture(const attn_name_map *names)
{
    return names->architecture;
}

const attn_config *attn_name_map_settings(const attn_name_map *names)
{
    return names->settings;
}

/* --------------------------------------------------------------------------------------------- questions */

const char *attn__rule_target(const attn__rule *rule, const char *name, const attn__span *groups,
                              char target[ATTN__NAME_MOST + 1])
{
    size_t n = 0;
    for (const char *at = rule->target; *at;) {
        int group, add;
        size_t size = reference(at, &group, &add);
        const char *text = at;
        size_t length = 1;
        char number[32];
        if (size) {
            const attn__span *g = &groups[group];
            text = name + g->begin;
            length = g->begin <= g->end ? (size_t)(g->end - g->begin) : 0;
        }
        if (size && *at == '{') {
            char digits[12] = "";
            if (length == 0 || length > 9 || strspn(text, "0123456789") < length)
                return "a group in { } matches no number of at most 9 digits";
            memcpy(digits, text, length);
            long value = strtol(digits, NULL, 10) + add;
            if (value < 0)
                return "a number in { } is below 0";
            length = (size_t)snprintf(number, sizeof number, "%ld", value);
            text = number;
        }
        if (length > ATTN__NAME_MOST - n)
            return "the name would have more than 1024 bytes, the limit";
        memcpy(target + n, text, length);
        n += length;
        at += size ? size : 1;
    }
    target[n] = '\0';
    return n > 0 ? NULL : "the name would be empty";
}

const char *attn__name_unwrapped(const char *name)
{
    static const char *const wrappers[] = {"state_dict.", "model.", "module.", "_orig_mod."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (strncmp(name, wrappers[i], strlen(wrappers[i])) == 0)
            return name + strlen(wrappers[i]);
    return NULL;
}

int attn__names_rule(const attn_name_map *names, const char *name, bool wrapped)
{
    for (; name; name = wrapped ? attn__name_unwrapped(name) : NULL)
        for (int i = 0; i < names->n; i++)
            if (names->rules[i].target && attn__pattern_matches(names->rules[i].pattern, name, strlen(name), NULL))
                return i;
    return -1;
}

bool attn__names_know(const attn_name_map *names, const char *name, bool wrapped)
{
    return attn__names_rule(names, name, wrapped) >= 0;
}

bool attn__names_default(const attn_name_map *names, const char *target)
{
    for (int i = 0; i < names->n; i++)
        if (names->rules[i].fallback && attn__pattern_matches(names->rules[i].fallback, target, strlen(target), NULL))
            return true;
    return false;
}
