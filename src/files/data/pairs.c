/* SPDX-License-Identifier: MIT
 * Reads sentence pairs from tab-separated text. */
#include "data/pairs.h"

#include "base/hash.h"
#include "base/utf8.h"
#include "data/lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

attn_status attn__pairs_create(attn_pairs **pairs, attn_context *context, int64_t capacity)
{
    attn_pairs *p = attn__alloc_zero(context, sizeof *p);
    *pairs = NULL;
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->context = context;
    p->capacity = capacity;
    p->items = attn__alloc(context, attn__size_mul((size_t)capacity, sizeof *p->items));
    p->hashes = attn__alloc(context, attn__size_mul((size_t)capacity, sizeof *p->hashes));
    p->links = attn__alloc_zero(context, attn__size_mul((size_t)capacity, sizeof *p->links));
    if (!p->items || !p->hashes || !p->links) {
        attn_pairs_destroy(p);
        return ATTN_ERROR_MEMORY;
    }
    *pairs = p;
    return ATTN_OK;
}

void attn_pairs_destroy(attn_pairs *pairs)
{
    if (!pairs)
        return;
    attn__free(pairs->context, pairs->text);
    attn__free(pairs->context, pairs->items);
    attn__free(pairs->context, pairs->hashes);
    attn__free(pairs->context, pairs->links);
    attn__free(pairs->context, pairs->link);
    attn__free(pairs->context, pairs);
}

void attn__pairs_copy(attn_pairs *part, const attn_pairs *all, int64_t i)
{
    part->items[part->n] = all->items[i];
    part->links[part->n] = all->links[i];
    part->hashes[part->n++] = all->hashes[i];
}

int64_t attn_pairs_size(const attn_pairs *pairs)
{
    return pairs->n;
}

attn_pair attn_pairs_get(const attn_pairs *pairs, int64_t i)
{
    return pairs->items[i];
}

const char *attn__pairs_side(const attn_pairs *pairs, int64_t i, attn_side side)
{
    return side == ATTN_SIDE_SOURCE ? pairs->items[i].source : pairs->items[i].target;
}

/* --------------------------------------------------------------------------------------------- reading */

/* How a file writes its pairs. It is found from all lines, never from some. */
typedef struct form {
    int column[2];  /* the fields of the source and of the target */
    bool quoted;    /* fields are written as in CSV: "a", with "" for a quote inside */
    int64_t header; /* number of the line that names the columns; 0: there is none */
} form;

typedef struct reader {
    attn_pairs *pairs;
    form form;
    char *plain; /* a field without its quotes */
    const char *name, *text;
    size_t size, at; /* size of the text, and offset of the next line */
    int64_t line;    /* number of the last line that was read, counted from 1 */
    int64_t most;    /* maximum number of non-empty lines that are used */
    attn_compat compat;
    size_t max_line;
    bool keep;
    attn_pairs_bad bad;
    char *out; /* address at which the next sentence is written */
} reader;

static attn_status fail_line(const reader *r, const char *what)
{
    return attn__fail(r->pairs->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": %s", r->name, r->line, what);
}

/* Appends the text of one side of a pair to the stored sentences. If the normalized text is empty, *text becomes NULL.
 * *hash becomes the hash of the normalized text, even if the text is stored unchanged. */
static attn_status take_side(reader *r, const char *from, size_t length, const char **text, uint64_t *hash)
{
    size_t used = 0;
    attn_status status = attn_text_normalize(r->pairs->context, from, length, r->compat, r->out, 2 * length + 1, &used);
    *text = used ? r->out : NULL;
    *hash = used ? attn__hash_text(ATTN__HASH_BEGIN, r->out) : 0;
    if (r->keep && used) {
        while (*from == ' ')
            from++, length--;
        while (from[length - 1] == ' ')
            length--;
        memcpy(r->out, from, length);
        r->out[length] = '\0';
        used = length;
    }
    r->out += used + 1;
    return status;
}

static attn_status check_line(const reader *r, const char *line, size_t length)
{
    if (length > r->max_line)
        return attn__fail(r->pairs->context, ATTN_ERROR_FORMAT,
                          "%s:%" PRId64 ": the line has %zu bytes; at most %zu are supported", r->name, r->line, length,
                          r->max_line);
    size_t bad = attn__utf8_first_invalid(line, length);
    const char *zero = memchr(line, 0, length);
    if (bad != SIZE_MAX || zero)
        return attn__fail(r->pairs->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": %s at byte %zu of the line", r->name,
                          r->line, bad != SIZE_MAX ? "invalid UTF-8" : "a zero byte",
                          bad != SIZE_MAX ? bad : (size_t)(zero - line));
    return ATTN_OK;
}

/* Returns false if there is none left. */
static bool next_field(const char **at, const char *end, const char **field, size_t *length)
{
    if (!*at)
        return false;
    const char *tab = memchr(*at, '\t', (size_t)(end - *at));
    *field = *at;
    *length = (size_t)((tab ? tab : end) - *at);
    *at = tab ? tab + 1 : NULL;
    return true;
}

/* Quotes inside are doubled. Returns SIZE_MAX if it is no quoted field. */
static size_t unquote(const char *field, size_t length, char *plain)
{
    size_t n = 0;
    if (length < 2 || field[0] != '"' || field[length - 1] != '"')
        return SIZE_MAX;
    for (size_t i = 1; i + 1 < length; i++) {
        if (field[i] == '"' && (++i + 1 >= length || field[i] != '"'))
            return SIZE_MAX;
        if (plain)
            plain[n] = field[i];
        n++;
    }
    return n;
}

static attn_status take_line(reader *r, const char *line, size_t length)
{
    attn_status status = check_line(r, line, length);
    if (status != ATTN_OK)
        return status;
    const char *at = line, *end = line + length, *field, *sides[2] = {NULL, NULL};
    size_t size, sizes[2] = {0};
    for (int i = 0; next_field(&at, end, &field, &size); i++) {
        for (int side = 0; side < 2; side++) {
            if (r->form.column[side] == i) {
                sides[side] = field;
                sizes[side] = size;
            }
        }
    }
    if (!sides[0] || !sides[1])
        return fail_line(r, "expected a tab between two sentences");
    attn_pair *pair = &r->pairs->items[r->pairs->n];
    const char **texts[] = {&pair->source, &pair->target};
    uint64_t unused, *const hashes[] = {&r->pairs->hashes[r->pairs->n], &unused};
    for (int side = 0; side < 2 && status == ATTN_OK; side++) {
        size_t plain = r->form.quoted ? unquote(sides[side], sizes[side], r->plain) : SIZE_MAX;
        bool quoted = plain != SIZE_MAX;
        status = take_side(r, quoted ? r->plain : sides[side], quoted ? plain : sizes[side], texts[side], hashes[side]);
    }
    if (status != ATTN_OK)
        return status;
    if (!pair->source || !pair->target)
        return fail_line(r, pair->source ? "the sentence after the tab is missing"
                                         : "the sentence before the tab is missing");
    r->pairs->n++;
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ form */

static bool is_number(const char *field, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (field[i] < '0' || field[i] > '9')
            return false;
    return length > 0;
}

/* Reports whether a word is a name that files give to a column of sentences, such as "source", "English" or "fr". */
static bool is_known_name(const char *field, size_t length)
{
    static const char names[] =
        " source target src tgt trg input output sentence translation text sentence1 sentence2 source_text target_text "
        "original translated reference english french german spanish italian portuguese dutch russian chinese japanese "
        "korean arabic turkish polish czech swedish danish norwegian finnish greek hebrew hindi hungarian romanian "
        "ukrainian vietnamese indonesian esperanto latin en fr de es it pt nl ru zh ja ko ar tr pl cs sv da fi el he "
        "hi "
        "hu ro uk vi eng fra fre deu ger spa ita por nld rus zho jpn kor ara tur pol ces swe ";
    char word[32];
    if (length == 0 || length + 3 > sizeof word || memchr(field, ' ', length) || memchr(field, '"', length))
        return false;
    word[0] = ' ';
    for (size_t i = 0; i < length; i++)
        word[i + 1] = (char)(field[i] >= 'A' && field[i] <= 'Z' ? field[i] + ('a' - 'A') : field[i]);
    word[length + 1] = ' ';
    word[length + 2] = '\0';
    return strstr(names, word) != NULL;
}

/* Reports whether a field names a column of sentences: a known name, also with a country or a script behind it
 * ("en_US", "eng_Latn"), or with "sentence" or "text" ("English sentence"). */
static bool is_column_name(const char *field, size_t length)
{
    if (unquote(field, length, NULL) != SIZE_MAX) {
        field++;
        length -= 2;
    }
    size_t first = 0, rest;
    while (first < length && !strchr("_- ", field[first]))
        first++;
    if (first >= length || is_known_name(field, length))
        return is_known_name(field, length);
    const char *behind = field + first + 1;
    rest = length - first - 1;
    if (!is_known_name(field, first))
        return false;
    bool letters = field[first] != ' ' && (rest == 2 || rest == 4);
    for (size_t i = 0; i < rest && letters; i++)
        letters = (behind[i] >= 'a' && behind[i] <= 'z') || (behind[i] >= 'A' && behind[i] <= 'Z');
    return letters || (rest == 8 && memcmp(behind, "sentence", 8) == 0) ||
           (rest == 4 && memcmp(behind, "text", 4) == 0);
}

/* The columns that a file may have its sentences in: the first two; behind a number each; both behind one number. */
enum { LAYOUTS = 3 };
static const int columns[LAYOUTS][2] = {{0, 1}, {1, 3}, {1, 2}};

/* What holds for all lines so far, for each of the layouts. */
typedef struct forms {
    bool numbered, counted, quoted[LAYOUTS], doubled[LAYOUTS], opened[LAYOUTS];
} forms;

/* A file is quoted if each of its sentences is, or if each that begins with a quote is and one has quotes inside. */
static void look_at_line(forms *f, const char *line, size_t length)
{
    const char *at = line, *field;
    size_t size;
    int n = 0;
    for (; next_field(&at, line + length, &field, &size); n++) {
        bool number = is_number(field, size);
        if ((n == 0 || n == 2) && !number)
            f->numbered = false;
        if ((n == 0) != number && n < 3)
            f->counted = false;
        for (int k = 0; k < LAYOUTS; k++) {
            if (n != columns[k][0] && n != columns[k][1])
                continue;
            size_t plain = unquote(field, size, NULL);
            f->quoted[k] = f->quoted[k] && plain != SIZE_MAX;
            f->opened[k] = f->opened[k] || (size > 0 && field[0] == '"' && plain == SIZE_MAX);
            f->doubled[k] = f->doubled[k] || (plain != SIZE_MAX && plain + 2 < size);
        }
    }
    f->numbered = f->numbered && n > 3;
    f->counted = f->counted && n > 2;
}

/* Returns which of the columns are the two that a header names, if it names two and no more, and these are a layout
 * that differs from `layout`. Otherwise returns `layout`. */
static int layout_of_header(const char *line, size_t length, int layout)
{
    const char *at = line, *field;
    size_t size;
    int named[2] = {0}, n = 0;
    for (int i = 0; next_field(&at, line + length, &field, &size); i++) {
        if (!is_column_name(field, size))
            continue;
        if (n == 2)
            return layout;
        named[n++] = i;
    }
    for (int k = 0; k < LAYOUTS && n == 2; k++)
        if (columns[k][0] == named[0] && columns[k][1] == named[1])
            return k;
    return layout;
}

static int layout_of(const forms *f)
{
    return f->numbered ? 1 : f->counted ? 2 : 0;
}

static form find_form(const char *text, size_t size)
{
    forms f = {.numbered = true, .counted = true, .quoted = {true, true, true}};
    const char *line, *first = NULL;
    size_t at = 0, length, first_length = 0;
    int64_t number = 0, header = 0, lines = 0;
    while (attn__next_line(text, size, &at, &line, &length)) {
        number++;
        if (length == 0)
            continue;
        if (!first) {
            first = line;
            first_length = length;
            header = number;
            continue;
        }
        look_at_line(&f, line, length);
        lines++;
    }
    if (!first)
        return (form){{0, 1}, false, 0};
    forms with = f;
    look_at_line(&with, first, first_length);
    with.counted = with.counted && lines > 0; /* one line may be a pair with an attribution, such as of 3 and "three" */
    int layout = lines > 0 ? layout_of_header(first, first_length, layout_of(&f)) : layout_of(&with), n = 0;
    bool named = lines > 0;
    const int *column = columns[layout];
    const char *next = first, *field;
    size_t field_length;
    for (; next_field(&next, first + first_length, &field, &field_length); n++)
        if ((n == column[0] || n == column[1]) && !is_column_name(field, field_length))
            named = false;
    named = named && n > column[1];
    const forms *all = named ? &f : &with;
    if (!named)
        layout = layout_of(all);
    column = columns[layout];
    return (form){{column[0], column[1]},
                  all->quoted[layout] || (all->doubled[layout] && !all->opened[layout]),
                  named ? header : 0};
}

/* Tells how the file is read, if it is not read as it is written. */
static void tell_form(const reader *r)
{
    char text[512];
    if (!r->bad.tell || (!r->form.quoted && !r->form.header && r->form.column[0] == 0))
        return;
    int n = snprintf(text, sizeof text, "%.300s:", r->name);
    if (r->form.column[1] == 3)
        n += snprintf(text + n, sizeof text - (size_t)n, " each sentence has a number before it, which is left out;");
    else if (r->form.column[0] == 1)
        n += snprintf(text + n, sizeof text - (size_t)n, " the first field of each line is left out;");
    if (r->form.quoted)
        n += snprintf(text + n, sizeof text - (size_t)n, " the quotes around the fields are left out;");
    if (r->form.header)
        n += snprintf(text + n, sizeof text - (size_t)n, " line %" PRId64 " names the columns and is left out;",
                      r->form.header);
    text[n - 1] = '\0';
    r->bad.tell(r->bad.user, 0, text);
}

/* Skips an invalid line if the caller only counts such lines. Otherwise returns the error. */
static attn_status pass_over(const reader *r, attn_status status)
{
    attn_context *context = r->pairs->context;
    if (status != ATTN_ERROR_FORMAT || !r->bad.tell)
        return status;
    r->bad.tell(r->bad.user, r->line, attn__error_text(attn__call_error(context)));
    attn__call_forget(context);
    return ATTN_OK;
}

/* Counts the non-empty lines, but at most `most`. *bytes becomes the offset of the end of the last counted line. */
static int64_t count_lines(const char *text, size_t size, int64_t most, size_t *bytes)
{
    int64_t lines = 0;
    const char *line;
    size_t length;
    *bytes = 0;
    while (lines < most && attn__next_line(text, size, bytes, &line, &length))
        lines += length > 0;
    return lines;
}

static attn_status read_lines(reader *r)
{
    const char *line;
    size_t length;
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && r->pairs->n < r->most && attn__next_line(r->text, r->size, &r->at, &line, &length)) {
        r->line++;
        if (length > 0 && r->line != r->form.header)
            status = pass_over(r, take_line(r, line, length));
    }
    if (status == ATTN_OK && r->pairs->n == 0)
        status = attn__fail(r->pairs->context, ATTN_ERROR_FORMAT, "%s: there are no sentence pairs", r->name);
    return status;
}

attn_status attn_pairs_parse(attn_pairs **pairs, attn_context *context, const char *text, size_t size, const char *name,
                             const attn_pairs_options *options)
{
    ATTN__CALL(context);
    static const attn_pairs_options defaults;
    const attn_pairs_options *o = options ? options : &defaults;
    *pairs = NULL;
    attn_status known = attn__check_choice(context, "compat", (int)o->compat, ATTN_COMPAT_D2L);
    if (known != ATTN_OK)
        return known;
    if (o->max_examples < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "max_examples is negative: %" PRId64, o->max_examples);
    /* D2L compatibility uses one line more than the maximum, because it counts lines from 0. */
    const form found = find_form(text, size);
    int64_t most = o->max_examples ? o->max_examples + (o->compat == ATTN_COMPAT_D2L) : INT64_MAX;
    size_t bytes;
    int64_t lines =
        count_lines(text, size, o->bad.tell || most == INT64_MAX ? INT64_MAX : most + (found.header > 0), &bytes);
    reader r = {.name = name,
                .text = text,
                .size = size,
                .most = most,
                .compat = o->compat,
                .keep = o->keep_text,
                .bad = o->bad,
                .max_line = o->max_line ? o->max_line : 65536,
                .form = found};
    attn_status status = attn__pairs_create(&r.pairs, context, lines + 1);
    if (status != ATTN_OK)
        return status;
    /* Normalization may insert a space before each byte. Each of the two sides ends with a 0. */
    r.out = r.pairs->text = attn__alloc(context, attn__size_add(attn__size_mul(bytes, 2), 2 * (size_t)lines + 2));
    r.plain = attn__alloc(context, r.form.quoted ? r.max_line : 1);
    status = r.out && r.plain ? read_lines(&r) : ATTN_ERROR_MEMORY;
    attn__free(context, r.plain);
    if (status == ATTN_OK)
        tell_form(&r);
    r.pairs->lines = r.pairs->n < most ? r.pairs->n : count_lines(text, size, INT64_MAX, &bytes) - (found.header > 0);
    if (status == ATTN_OK)
        *pairs = r.pairs;
    else
        attn_pairs_destroy(r.pairs);
    return status;
}
