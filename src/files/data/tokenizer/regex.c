/* SPDX-License-Identifier: MIT
 *
 * Compiles a regular expression to nodes, and matches by backtracking. A group's nodes lead to the node after the
 * group, so that recursion is only as deep as the expression is long. */
#include "data/tokenizer/regex.h"

#include "base/context.h"
#include "base/utf8.h"
#include "data/tokenizer/unicode.h"

#include <string.h>

enum { UNLIMITED = INT32_MAX, MOST_NODES = 4096, MOST_DEPTH = 32, MOST_REPEATS = 1000 };

/* A part of a set: a range of code points, or a class. */
typedef enum item_kind { RANGE, SPACE, DIGIT, WORD, CATEGORIES, ANY_BUT_NEWLINE } item_kind;

typedef struct item {
    item_kind kind;
    bool negated;
    uint32_t first, last; /* RANGE */
    uint32_t categories;  /* CATEGORIES: bits */
} item;

typedef enum node_kind { SET, SPLIT, AHEAD, ATOMIC, BEGIN_LINE, END_LINE, BEGIN_TEXT, END_TEXT, JUMP, MATCH } node_kind;

typedef struct node {
    node_kind kind;
    int32_t next;
    int32_t inner;         /* SPLIT: the second way; AHEAD, ATOMIC: the first node of the group */
    int32_t least, most;   /* SET: repeats */
    bool lazy, possessive; /* SET */
    bool negated;          /* SET, AHEAD */
    bool ignore_case;      /* SET */
    int32_t item, items;   /* SET: its parts */
    uint64_t ascii[2];     /* SET: whether it has each ASCII character */
} node;

struct attn__regex {
    attn_context *context;
    node *nodes;
    item *items;
    int64_t nnodes, nitems;
    int32_t first;
};

/* ---------------------------------------------------------------------------------------------------- compile */

typedef struct compiler {
    attn__regex *p;
    const char *text, *at, *end;
    const char *name, *what;
    bool ignore_case;
    int depth;
} compiler;

static attn_status refuse(const compiler *c, const char *what)
{
    return attn__fail(c->p->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: %s: the pattern \"%.200s\" is not supported: found %s at byte %zu", c->name, c->what,
                      c->text, what, (size_t)(c->at - c->text));
}

static attn_status add_node(compiler *c, node new, int32_t *index)
{
    attn__regex *p = c->p;
    if (p->nnodes >= MOST_NODES)
        return refuse(c, "more than 4096 parts");
    node *nodes = attn__grow(p->context, p->nodes, p->nnodes, sizeof *nodes);
    if (!nodes)
        return ATTN_ERROR_MEMORY;
    p->nodes = nodes;
    new.next = new.next ? new.next : -1;
    *index = (int32_t)p->nnodes;
    p->nodes[p->nnodes++] = new;
    return ATTN_OK;
}

static attn_status add_item(compiler *c, item new)
{
    attn__regex *p = c->p;
    item *items = attn__grow(p->context, p->items, p->nitems, sizeof *items);
    if (!items)
        return ATTN_ERROR_MEMORY;
    p->items = items;
    p->items[p->nitems++] = new;
    return ATTN_OK;
}

static bool at(const compiler *c, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(c->end - c->at) >= n && memcmp(c->at, text, n) == 0;
}

static bool take(compiler *c, const char *text)
{
    if (!at(c, text))
        return false;
    c->at += strlen(text);
    return true;
}

/* Reads a character of the expression, which is valid UTF-8. */
static uint32_t take_code(compiler *c)
{
    uint32_t code = 0xfffd;
    int n = c->at < c->end ? attn__utf8_decode(c->at, c->end, &code) : 0;
    c->at += n ? n : 1;
    return code;
}

/* Returns the bits of a category such as L, Lu or Letter. 0: unknown. */
static uint32_t categories_of(const char *name, size_t n)
{
    static const struct {
        const char *name;
        attn__general_category first, last;
    } known[] = {
        {"L", ATTN__LU, ATTN__LO},  {"Lu", ATTN__LU, ATTN__LU}, {"Ll", ATTN__LL, ATTN__LL}, {"Lt", ATTN__LT, ATTN__LT},
        {"Lm", ATTN__LM, ATTN__LM}, {"Lo", ATTN__LO, ATTN__LO}, {"M", ATTN__MN, ATTN__ME},  {"Mn", ATTN__MN, ATTN__MN},
        {"Mc", ATTN__MC, ATTN__MC}, {"Me", ATTN__ME, ATTN__ME}, {"N", ATTN__ND, ATTN__NO},  {"Nd", ATTN__ND, ATTN__ND},
        {"Nl", ATTN__NL, ATTN__NL}, {"No", ATTN__NO, ATTN__NO}, {"P", ATTN__PC, ATTN__PO},  {"Pc", ATTN__PC, ATTN__PC},
        {"Pd", ATTN__PD, ATTN__PD}, {"Ps", ATTN__PS, ATTN__PS}, {"Pe", ATTN__PE, ATTN__PE}, {"Pi", ATTN__PI, ATTN__PI},
        {"Pf", ATTN__PF, ATTN__PF}, {"Po", ATTN__PO, ATTN__PO}, {"S", ATTN__SM, ATTN__SO},  {"Sm", ATTN__SM, ATTN__SM},
        {"Sc", ATTN__SC, ATTN__SC}, {"Sk", ATTN__SK, ATTN__SK}, {"So", ATTN__SO, ATTN__SO}, {"Z", ATTN__ZS, ATTN__ZP},
        {"Zs", ATTN__ZS, ATTN__ZS}, {"Zl", ATTN__ZL, ATTN__ZL}, {"Zp", ATTN__ZP, ATTN__ZP}, {"Cc", ATTN__CC, ATTN__CC},
        {"Cf", ATTN__CF, ATTN__CF}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && memcmp(known[i].name, name, n) == 0)
            return (UINT32_C(2) << known[i].last) - (UINT32_C(1) << known[i].first);
    return 0;
}

/* Reads \p{..} after its p or P. */
static attn_status parse_property(compiler *c, bool negated)
{
    const char *close = c->at < c->end ? memchr(c->at, '}', (size_t)(c->end - c->at)) : NULL;
    if (!take(c, "{") || !close)
        return refuse(c, "\\p without braces");
    if (take(c, "^"))
        negated = !negated;
    uint32_t categories = categories_of(c->at, (size_t)(close - c->at));
    if (!categories)
        return refuse(c, "a \\p{..} that names no general category");
    c->at = close + 1;
    return add_item(c, (item){.kind = CATEGORIES, .negated = negated, .categories = categories});
}

static int hex_digit(char digit)
{
    const char *digits = "0123456789abcdef", *found = digit ? strchr(digits, digit | (digit >= 'A' ? 0x20 : 0)) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Reads the code point of \x{..}, \xHH or \uHHHH after its x or u. */
static attn_status parse_hex(compiler *c, bool long_form, uint32_t *code)
{
    bool braces = !long_form && take(c, "{");
    int n = 0, most = braces ? 6 : long_form ? 4 : 2, digit;
    *code = 0;
    while (n < most && c->at < c->end && (digit = hex_digit(*c->at)) >= 0) {
        *code = *code << 4 | (uint32_t)digit;
        c->at++;
        n++;
    }
    if (n == 0 || (braces && !take(c, "}")) || *code > 0x10ffff)
        return refuse(c, "a \\x or \\u without a valid code point");
    return ATTN_OK;
}

/* Reads an escape after its backslash. It becomes an item, or if *single becomes true, it is the code point *code. */
static attn_status parse_escape(compiler *c, bool *single, uint32_t *code)
{
    static const char classes[] = "sSdDwW", controls[] = "nrtfve", values[] = "\n\r\t\f\v\x1b";
    static const item_kind kinds[] = {SPACE, DIGIT, WORD};
    if (c->at == c->end)
        return refuse(c, "a backslash that escapes nothing");
    char letter = *c->at;
    const char *class = strchr(classes, letter), *control = strchr(controls, letter);
    *single = false;
    if (letter && class) {
        c->at++;
        return add_item(c, (item){.kind = kinds[(class - classes) / 2], .negated = (class - classes) % 2});
    }
    if (letter == 'p' || letter == 'P') {
        c->at++;
        return parse_property(c, letter == 'P');
    }
    *single = true;
    if (letter == 'x' || letter == 'u') {
        c->at++;
        return parse_hex(c, letter == 'u', code);
    }
    if (letter && control) {
        c->at++;
        *code = (uint32_t)values[control - controls];
        return ATTN_OK;
    }
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9'))
        return refuse(c, "an unknown escape");
    *code = take_code(c);
    return ATTN_OK;
}

/* Reads one character, or a class if *single becomes false. */
static attn_status parse_member(compiler *c, bool *single, uint32_t *code)
{
    if (take(c, "\\"))
        return parse_escape(c, single, code);
    *single = true;
    *code = take_code(c);
    return ATTN_OK;
}

/* Reads [..] after its bracket. */
static attn_status parse_set(compiler *c, node *set)
{
    set->negated = take(c, "^");
    for (bool first = true; !take(c, "]"); first = false) {
        bool single = false, last_single = false;
        uint32_t code = 0, last;
        if (c->at == c->end)
            return refuse(c, "a [ without its ]");
        if ((*c->at == '[' || at(c, "&&")) || (first && *c->at == ']'))
            return refuse(c, "a set in a set");
        attn_status status = parse_member(c, &single, &code);
        if (status != ATTN_OK)
            return status;
        if (!single)
            continue;
        last = code;
        if (at(c, "-") && !at(c, "-]")) {
            c->at++;
            if (c->at == c->end)
                return refuse(c, "a [ without its ]");
            status = parse_member(c, &last_single, &last);
            if (status == ATTN_OK && (!last_single || last < code))
                return refuse(c, "an empty range of characters");
        }
        if (status == ATTN_OK)
            status = add_item(c, (item){.kind = RANGE, .first = code, .last = last});
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

static attn_status parse_number(compiler *c, int32_t *number)
{
    int32_t n = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && n <= MOST_REPEATS)
        n = 10 * n + (*c->at++ - '0');
    *number = n;
    return n > MOST_REPEATS ? refuse(c, "more than 1000 repeats") : ATTN_OK;
}

/* Reads a quantifier, if there is one. Its repeats are 1 to 1 otherwise. */
static attn_status parse_quantifier(compiler *c, node *set)
{
    attn_status status = ATTN_OK;
    set->least = set->most = 1;
    bool interval = false;
    if (take(c, "*"))
        set->least = 0, set->most = UNLIMITED;
    else if (take(c, "+"))
        set->most = UNLIMITED;
    else if (take(c, "?"))
        set->least = 0;
    else if (take(c, "{")) {
        interval = true;
        bool has_least = !at(c, ",");
        status = parse_number(c, &set->least);
        set->most = set->least;
        if (status == ATTN_OK && take(c, ",")) {
            bool has_most = !at(c, "}");
            status = parse_number(c, &set->most);
            if (!has_most)
                set->most = UNLIMITED;
            else if (set->most < set->least)
                return refuse(c, "{n,m} with m less than n");
        } else if (!has_least)
            return refuse(c, "{ } without a number");
        if (status == ATTN_OK && !take(c, "}"))
            return refuse(c, "a { without its }");
    } else
        return ATTN_OK;
    if (status == ATTN_OK && take(c, "?"))
        set->lazy = true;
    else if (status == ATTN_OK && !interval && take(c, "+"))
        set->possessive = true;
    if (status == ATTN_OK && c->at < c->end && strchr("*+?{", *c->at))
        return refuse(c, "a quantifier of a quantifier");
    return status;
}

static bool set_has(const attn__regex *p, const node *set, uint32_t code);

static attn_status parse_alternatives(compiler *c, int32_t *first, int32_t after);

/* Appends `index` to a chain of nodes, whose last node is *last. */
static void chain(compiler *c, int32_t *first, int32_t *last, int32_t index)
{
    if (*last < 0)
        *first = index;
    else
        c->p->nodes[*last].next = index;
    *last = index;
}

static attn_status parse_one_set(compiler *c, int32_t *index)
{
    node set = {.kind = SET, .ignore_case = c->ignore_case, .item = (int32_t)c->p->nitems};
    attn_status status;
    if (take(c, "["))
        status = parse_set(c, &set);
    else if (take(c, "."))
        status = add_item(c, (item){.kind = ANY_BUT_NEWLINE});
    else {
        bool single = false;
        uint32_t code = 0;
        status = parse_member(c, &single, &code);
        if (status == ATTN_OK && single)
            status = add_item(c, (item){.kind = RANGE, .first = code, .last = code});
    }
    set.items = (int32_t)c->p->nitems - set.item;
    if (status == ATTN_OK)
        status = parse_quantifier(c, &set);
    for (uint32_t code = 0; code < 0x80 && status == ATTN_OK; code++)
        if (set_has(c->p, &set, code))
            set.ascii[code / 64] |= UINT64_C(1) << code % 64;
    return status == ATTN_OK ? add_node(c, set, index) : status;
}

/* Reads a group after its parenthesis. Its nodes lead to the node *end, a JUMP, whose target is set later. */
static attn_status parse_group(compiler *c, int32_t *begin, int32_t *end)
{
    node outer = {.kind = JUMP};
    bool before = c->ignore_case;
    int32_t inner = -1;
    if (take(c, "?:")) {
    } else if (take(c, "?i:")) {
        c->ignore_case = true;
    } else if (take(c, "?=")) {
        outer.kind = AHEAD;
    } else if (take(c, "?!")) {
        outer.kind = AHEAD;
        outer.negated = true;
    } else if (take(c, "?>")) {
        outer.kind = ATOMIC;
    } else if (at(c, "?") || at(c, "*"))
        return refuse(c, "a group of an unknown kind");
    if (++c->depth > MOST_DEPTH)
        return refuse(c, "groups nested more than 32 deep");
    attn_status status = add_node(c, outer, end);
    int32_t after = *end;
    if (status == ATTN_OK && outer.kind != JUMP)
        status = add_node(c, (node){.kind = MATCH}, &after);
    if (status == ATTN_OK)
        status = parse_alternatives(c, &inner, after);
    if (status == ATTN_OK && !take(c, ")"))
        return refuse(c, "a ( without its )");
    if (status != ATTN_OK)
        return status;
    c->depth--;
    c->ignore_case = before;
    *begin = inner;
    if (outer.kind != JUMP) {
        c->p->nodes[*end].inner = inner;
        *begin = *end;
    }
    if (take(c, "?")) {
        if (outer.kind == AHEAD || (c->at < c->end && strchr("*+?{", *c->at)))
            return refuse(c, outer.kind == AHEAD ? "a lookahead with a quantifier" : "a quantifier of a quantifier");
        int32_t split = -1;
        status = add_node(c, (node){.kind = SPLIT, .inner = *end}, &split);
        if (status == ATTN_OK && outer.kind != JUMP) {
            /* the second way must pass the group */
            int32_t join = -1;
            status = add_node(c, (node){.kind = JUMP}, &join);
            if (status != ATTN_OK)
                return status;
            c->p->nodes[*end].next = join;
            c->p->nodes[split].inner = join;
            *end = join;
        }
        if (status == ATTN_OK) {
            c->p->nodes[split].next = *begin;
            *begin = split;
        }
    } else if (c->at < c->end && strchr("*+{", *c->at))
        return refuse(c, "*, + or { behind a group");
    return status;
}

/* Reads a sequence up to |, ) or the end. The sequence leads to the node `after`. */
static attn_status parse_sequence(compiler *c, int32_t *first, int32_t after)
{
    int32_t last = -1;
    attn_status status = ATTN_OK;
    *first = after;
    while (status == ATTN_OK && c->at < c->end && *c->at != '|' && *c->at != ')') {
        int32_t begin = -1, end = -1;
        static const struct {
            const char *text;
            node_kind kind;
        } anchors[] = {{"^", BEGIN_LINE}, {"$", END_LINE}, {"\\A", BEGIN_TEXT}, {"\\z", END_TEXT}};
        size_t anchor = 0;
        while (anchor < 4 && !at(c, anchors[anchor].text))
            anchor++;
        if (anchor < 4) {
            c->at += strlen(anchors[anchor].text);
            status = add_node(c, (node){.kind = anchors[anchor].kind}, &begin);
            end = begin;
        } else if (take(c, "(")) {
            status = parse_group(c, &begin, &end);
        } else if (strchr("*+?{", *c->at)) {
            status = refuse(c, "a quantifier with nothing before it");
        } else {
            status = parse_one_set(c, &begin);
            end = begin;
        }
        if (status == ATTN_OK) {
            chain(c, first, &last, begin);
            last = end;
        }
    }
    if (status == ATTN_OK && last >= 0)
        c->p->nodes[last].next = after;
    return status;
}

static attn_status parse_alternatives(compiler *c, int32_t *first, int32_t after)
{
    attn_status status = parse_sequence(c, first, after);
    int32_t split = -1, way = -1;
    int32_t previous = -1;
    while (status == ATTN_OK && take(c, "|")) {
        status = parse_sequence(c, &way, after);
        if (status == ATTN_OK)
            status = add_node(c, (node){.kind = SPLIT, .inner = way}, &split);
        if (status != ATTN_OK)
            break;
        if (previous < 0) {
            c->p->nodes[split].next = *first;
            *first = split;
        } else {
            c->p->nodes[split].next = c->p->nodes[previous].inner;
            c->p->nodes[previous].inner = split;
        }
        previous = split;
    }
    return status;
}

attn_status attn__regex_create(attn__regex **pattern, attn_context *context, const char *text, size_t size,
                               bool literal, const char *name, const char *what)
{
    *pattern = NULL;
    attn__regex *p = attn__alloc_zero(context, sizeof *p);
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->context = context;
    compiler c = {.p = p, .text = text, .at = text, .end = text + size, .name = name, .what = what};
    int32_t end = -1, last = -1, index = -1;
    attn_status status = add_node(&c, (node){.kind = MATCH}, &end);
    p->first = end;
    if (literal) {
        while (status == ATTN_OK && c.at < c.end) {
            node set = {.kind = SET, .least = 1, .most = 1, .item = (int32_t)p->nitems, .items = 1};
            uint32_t code = take_code(&c);
            if (code < 0x80)
                set.ascii[code / 64] |= UINT64_C(1) << code % 64;
            status = add_item(&c, (item){.kind = RANGE, .first = code, .last = code});
            if (status == ATTN_OK)
                status = add_node(&c, set, &index);
            if (status == ATTN_OK)
                chain(&c, &p->first, &last, index);
        }
        if (status == ATTN_OK && last >= 0)
            p->nodes[last].next = end;
    } else {
        status = status == ATTN_OK ? parse_alternatives(&c, &p->first, end) : status;
        if (status == ATTN_OK && c.at < c.end)
            status = refuse(&c, "a ) without its (");
    }
    if (status == ATTN_OK)
        *pattern = p;
    else
        attn__regex_destroy(p);
    return status;
}

void attn__regex_destroy(attn__regex *pattern)
{
    if (!pattern)
        return;
    attn__free(pattern->context, pattern->nodes);
    attn__free(pattern->context, pattern->items);
    attn__free(pattern->context, pattern);
}

/* ------------------------------------------------------------------------------------------------------ match */

static bool item_has(const item *i, uint32_t code)
{
    switch (i->kind) {
    case RANGE:
        return code >= i->first && code <= i->last;
    case SPACE:
        return attn__unicode_space(code) != i->negated;
    case DIGIT:
        return (attn__unicode_category(code) == ATTN__ND) != i->negated;
    case WORD:
        return attn__unicode_word(code, false) != i->negated;
    case CATEGORIES:
        return (i->categories >> attn__unicode_category(code) & 1) != i->negated;
    case ANY_BUT_NEWLINE:
        return code != '\n';
    }
    return false;
}

static bool items_have(const attn__regex *p, const node *set, uint32_t code)
{
    for (int32_t i = 0; i < set->items; i++)
        if (item_has(&p->items[set->item + i], code))
            return true;
    return false;
}

static bool set_has(const attn__regex *p, const node *set, uint32_t code)
{
    bool has = items_have(p, set, code);
    if (!has && set->ignore_case) {
        /* a set has the characters whose folding equals the folding of one that it lists */
        uint32_t folded = attn__unicode_fold(code);
        has = items_have(p, set, folded);
        for (int32_t i = 0; i < set->items && !has; i++) {
            const item *one = &p->items[set->item + i];
            has = one->kind == RANGE && one->first == one->last && attn__unicode_fold(one->first) == folded;
        }
    }
    return has != set->negated;
}

typedef struct matcher {
    const attn__regex *p;
    const char *text;
    size_t size;
    int64_t *steps;
} matcher;

/* Returns the length of the character at `at` if the set has it, otherwise 0. */
static size_t step(const matcher *m, const node *set, size_t at)
{
    if (at >= m->size)
        return 0;
    unsigned char byte = (unsigned char)m->text[at];
    if (byte < 0x80)
        return set->ascii[byte / 64] >> byte % 64 & 1;
    uint32_t code;
    int n = attn__utf8_decode(m->text + at, m->text + m->size, &code);
    return n && set_has(m->p, set, code) ? (size_t)n : 0;
}

static size_t step_back(const matcher *m, size_t at)
{
    do
        at--;
    while (((unsigned char)m->text[at] & 0xc0) == 0x80);
    return at;
}

/* Returns the end of a match that begins at `at` with the node `index`, or SIZE_MAX. */
static size_t match(const matcher *m, int32_t index, size_t at);

static size_t match_set(const matcher *m, const node *set, size_t at)
{
    int32_t n = 0;
    size_t length;
    while (n < (set->lazy ? set->least : set->most) && (length = step(m, set, at)) > 0) {
        at += length;
        n++;
        --*m->steps;
    }
    if (n < set->least)
        return SIZE_MAX;
    if (set->lazy) {
        for (;;) {
            size_t end = match(m, set->next, at);
            if (end != SIZE_MAX || n >= set->most || *m->steps <= 0 || (length = step(m, set, at)) == 0)
                return end;
            at += length;
            n++;
        }
    }
    for (;;) {
        size_t end = match(m, set->next, at);
        if (end != SIZE_MAX || n == set->least || set->possessive || *m->steps <= 0)
            return end;
        at = step_back(m, at);
        n--;
    }
}

static size_t match(const matcher *m, int32_t index, size_t at)
{
    for (;;) {
        const node *n = &m->p->nodes[index];
        if (--*m->steps <= 0)
            return SIZE_MAX;
        switch (n->kind) {
        case MATCH:
            return at;
        case SET: {
            if (n->least != 1 || n->most != 1)
                return match_set(m, n, at);
            size_t length = step(m, n, at);
            if (length == 0)
                return SIZE_MAX;
            at += length;
            break;
        }
        case SPLIT: {
            size_t end = match(m, n->next, at);
            if (end != SIZE_MAX)
                return end;
            index = n->inner;
            continue;
        }
        case AHEAD:
            if ((match(m, n->inner, at) != SIZE_MAX) == n->negated)
                return SIZE_MAX;
            break;
        case ATOMIC:
            at = match(m, n->inner, at);
            if (at == SIZE_MAX)
                return SIZE_MAX;
            break;
        case BEGIN_LINE:
            if (at > 0 && m->text[at - 1] != '\n')
                return SIZE_MAX;
            break;
        case END_LINE:
            if (at < m->size && m->text[at] != '\n')
                return SIZE_MAX;
            break;
        case BEGIN_TEXT:
            if (at > 0)
                return SIZE_MAX;
            break;
        case END_TEXT:
            if (at < m->size)
                return SIZE_MAX;
            break;
        case JUMP:
            break;
        }
        index = n->next;
    }
}

bool attn__regex_find(const attn__regex *pattern, const char *text, size_t size, size_t from, size_t *begin,
                      size_t *end, int64_t *steps)
{
    matcher m = {.p = pattern, .text = text, .size = size, .steps = steps};
    for (size_t at = from; at<size && * steps> 0; at++) {
        if (((unsigned char)text[at] & 0xc0) == 0x80)
            continue;
        size_t stop = match(&m, pattern->first, at);
        if (stop != SIZE_MAX && stop > at) {
            *begin = at;
            *end = stop;
            return true;
        }
    }
    return false;
}
