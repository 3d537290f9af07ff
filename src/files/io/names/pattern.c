/* SPDX-License-Identifier: MIT
 *
 * Implements regular expressions. A pattern is compiled to a small program, which follows all alternatives of the
 * pattern at once. */
#include "io/names/pattern.h"

#include <string.h>

typedef enum kind { SET, SPLIT, JUMP, GROUP, END } kind;

/* An instruction of the program. a and b are relative jumps. SPLIT continues at both targets, and prefers that of a.
 * GROUP stores the current position: for even a as the begin, for odd a as the end of group a / 2. */
typedef struct instruction {
    kind kind;
    int a, b;
    uint64_t set[4]; /* a set of bytes */
} instruction;

enum { CODE_MOST = 3 * ATTN__PATTERN_MOST + 4, DEPTH_MOST = 32 };

struct attn__pattern {
    int n, groups;
    instruction code[];
};

/* ------------------------------------------------------------------------------------------- compiling */

typedef struct compiler {
    const char *at, *end;
    instruction *code;
    int n, groups, depth;
    const char *wrong;
} compiler;

static void fail(compiler *c, const char *wrong)
{
    if (!c->wrong)
        c->wrong = wrong;
}

static instruction *insert(compiler *c, int place, kind what)
{
    static instruction spare;
    if (c->n == CODE_MOST) {
        fail(c, "it is too long");
        return &spare;
    }
    memmove(&c->code[place + 1], &c->code[place], (size_t)(c->n - place) * sizeof *c->code);
    c->n++;
    c->code[place] = (instruction){.kind = what};
    return &c->code[place];
}

static void add_byte(instruction *i, unsigned char byte)
{
    i->set[byte / 64] |= (uint64_t)1 << byte % 64;
}

static void add_range(instruction *i, unsigned char first, unsigned char last)
{
    for (unsigned byte = first; byte <= last; byte++)
        add_byte(i, (unsigned char)byte);
}

static bool is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Parses the character after a backslash. If it means a class of characters, adds an instruction for the class and
 * returns false. */
static bool take_escape(compiler *c, instruction *i, char *byte)
{
    *byte = c->at < c->end ? *c->at++ : '\0';
    if (*byte == 'd') {
        add_range(i, '0', '9');
        return false;
    }
    if (*byte == '\0' || is_letter_or_digit(*byte))
        fail(c, "a backslash must precede d or a character that is neither a letter nor a digit");
    return true;
}

/* Parses one character inside of [ ]. If it is the class \d, adds the digits to the set and returns false. */
static bool take_member(compiler *c, instruction *i, char *byte)
{
    *byte = *c->at++;
    return *byte == '\\' ? take_escape(c, i, byte) : true;
}

static void take_set(compiler *c)
{
    instruction *i = insert(c, c->n, SET);
    bool inverted = c->at < c->end && *c->at == '^';
    c->at += inverted;
    for (bool first = true; c->at < c->end && (first || *c->at != ']') && !c->wrong; first = false) {
        char from, to;
        if (!take_member(c, i, &from))
            continue;
        to = from;
        if (c->end - c->at >= 2 && *c->at == '-' && c->at[1] != ']') {
            c->at++;
            if (!take_member(c, i, &to) || (unsigned char)to < (unsigned char)from)
                fail(c, "a range in [ ] must not go backwards");
        }
        if (!c->wrong)
            add_range(i, (unsigned char)from, (unsigned char)to);
    }
    if (c->at == c->end)
        fail(c, "a [ is not closed");
    else
        c->at++;
    for (int k = 0; k < 4 && inverted; k++)
        i->set[k] = ~i->set[k];
}

static void take_either(compiler *c);

static void take_group(compiler *c)
{
    int group = ++c->groups;
    if (c->at < c->end && *c->at == '?')
        fail(c, "( must not be followed by ?");
    if (group >= ATTN__GROUPS || ++c->depth > DEPTH_MOST) {
        fail(c, "more than 9 groups, the limit");
        return;
    }
    insert(c, c->n, GROUP)->a = 2 * group;
    take_either(c);
    insert(c, c->n, GROUP)->a = 2 * group + 1;
    if (c->at == c->end)
        fail(c, "a ( is not closed");
    else
        c->at++;
    c->depth--;
}

static void take_atom(compiler *c)
{
    char byte = *c->at++;
    if (strchr("*+?", byte)) {
        fail(c, "*, + and ? need something before them");
    } else if (strchr("^${}", byte)) {
        fail(c,
             "^, $, { and } are not operators, since a pattern matches the whole name; to match one of them, write \\ "
             "before it");
    } else if (byte == '(') {
        take_group(c);
    } else if (byte == '[') {
        take_set(c);
    } else {
        instruction *i = insert(c, c->n, SET);
        if (byte == '.')
            add_range(i, 0, 255);
        else if (byte != '\\' || take_escape(c, i, &byte))
            add_byte(i, (unsigned char)byte);
    }
}

static void repeat(compiler *c, int begin, char how)
{
    int length = c->n - begin;
    if (how == '+') {
        *insert(c, c->n, SPLIT) = (instruction){.kind = SPLIT, .a = -length, .b = 1};
        return;
    }
    *insert(c, begin, SPLIT) = (instruction){.kind = SPLIT, .a = 1, .b = length + (how == '*' ? 2 : 1)};
    if (how == '*')
        insert(c, c->n, JUMP)->a = -(length + 1);
}

static void take_row(compiler *c)
{
    while (c->at < c->end && *c->at != '|' && *c->at != ')' && !c->wrong) {
        int begin = c->n;
        take_atom(c);
        for (; c->at < c->end && *c->at && strchr("*+?", *c->at) && !c->wrong; c->at++)
            repeat(c, begin, *c->at);
    }
}

static void take_either(compiler *c)
{
    int begin = c->n;
    take_row(c);
    while (c->at < c->end && *c->at == '|' && !c->wrong) {
        c->at++;
        int length = c->n - begin;
        *insert(c, begin, SPLIT) = (instruction){.kind = SPLIT, .a = 1, .b = length + 2};
        int jump = c->n;
        insert(c, jump, JUMP);
        take_row(c);
        if (!c->wrong)
            c->code[jump].a = c->n - jump;
    }
}

attn_status attn__pattern_create(attn__pattern **pattern, attn_context *context, const char *text, size_t size,
                                 const char **wrong)
{
    compiler c = {.at = text, .end = text + size};
    *pattern = NULL;
    *wrong =
        size > ATTN__PATTERN_MOST || memchr(text, 0, size) ? "it is longer than 256 bytes, or has a zero byte" : NULL;
    if (*wrong)
        return ATTN_ERROR_FORMAT;
    c.code = attn__alloc(context, CODE_MOST * sizeof *c.code);
    if (!c.code)
        return ATTN_ERROR_MEMORY;
    take_either(&c);
    if (c.at < c.end)
        fail(&c, "a ) has no (");
    insert(&c, c.n, END);
    *wrong = c.wrong;
    attn__pattern *made = c.wrong ? NULL : attn__alloc(context, sizeof *made + (size_t)c.n * sizeof *c.code);
    if (made) {
        made->n = c.n;
        made->groups = c.groups;
        memcpy(made->code, c.code, (size_t)c.n * sizeof *c.code);
    }
    attn__free(context, c.code);
    *pattern = made;
    return made ? ATTN_OK : c.wrong ? ATTN_ERROR_FORMAT : ATTN_ERROR_MEMORY;
}

void attn__pattern_destroy(attn_context *context, attn__pattern *pattern)
{
    attn__free(context, pattern);
}

int attn__pattern_groups(const attn__pattern *pattern)
{
    return pattern->groups;
}

int64_t attn__pattern_steps(const attn__pattern *pattern, size_t size)
{
    return (int64_t)(size < ATTN__NAME_MOST ? size + 1 : 1) * pattern->n;
}

/* -------------------------------------------------------------------------------------------- matching */

typedef struct way {
    int at;
    attn__span groups[ATTN__GROUPS];
} way;

typedef struct ways {
    way list[CODE_MOST];
    int n;
    uint16_t seen[CODE_MOST]; /* seen[i]: 1 + the last position at which instruction i was reached */
} ways;

typedef struct search {
    const attn__pattern *pattern;
    ways *next;
    size_t place;
    attn__span groups[ATTN__GROUPS]; /* groups of the alternative that is being followed */
} search;

/* Follows the instructions that consume no character, from instruction `at` on. If several alternatives reach an
 * instruction at the same position, only the one with the highest preference continues. */
static void follow(search *s, int at)
{
    ways *to = s->next;
    const instruction *i = &s->pattern->code[at];
    if (to->seen[at] == s->place + 1)
        return;
    to->seen[at] = (uint16_t)(s->place + 1);
    if (i->kind == JUMP) {
        follow(s, at + i->a);
    } else if (i->kind == SPLIT) {
        follow(s, at + i->a);
        follow(s, at + i->b);
    } else if (i->kind == GROUP) {
        attn__span before = s->groups[i->a / 2];
        if (i->a % 2)
            s->groups[i->a / 2].end = (uint16_t)s->place;
        else
            s->groups[i->a / 2] = (attn__span){(uint16_t)s->place, 0};
        follow(s, at + 1);
        s->groups[i->a / 2] = before;
    } else {
        way *w = &to->list[to->n++];
        w->at = at;
        memcpy(w->groups, s->groups, sizeof s->groups);
    }
}

static void advance(search *s, const ways *now, unsigned char byte)
{
    for (int k = 0; k < now->n; k++) {
        const way *w = &now->list[k];
        const instruction *i = &s->pattern->code[w->at];
        if (i->kind != SET || !(i->set[byte / 64] >> byte % 64 & 1))
            continue;
        memcpy(s->groups, w->groups, sizeof s->groups);
        follow(s, w->at + 1);
    }
}

bool attn__pattern_matches(const attn__pattern *pattern, const char *name, size_t size, attn__span groups[ATTN__GROUPS])
{
    ways both[2];
    search s = {.pattern = pattern, .next = &both[0]};
    if (size > ATTN__NAME_MOST)
        return false;
    for (int k = 0; k < 2; k++) {
        both[k].n = 0;
        memset(both[k].seen, 0, (size_t)pattern->n * sizeof *both[k].seen);
    }
    for (int k = 0; k < ATTN__GROUPS; k++)
        s.groups[k] = (attn__span){1, 0};
    follow(&s, 0);
    for (; s.place < size && s.next->n > 0;) {
        const ways *now = s.next;
        s.next = now == &both[0] ? &both[1] : &both[0];
        s.next->n = 0;
        unsigned char byte = (unsigned char)name[s.place++];
        advance(&s, now, byte);
    }
    for (int k = 0; s.place == size && k < s.next->n; k++) {
        if (pattern->code[s.next->list[k].at].kind != END)
            continue;
        if (groups) {
            memcpy(groups, s.next->list[k].groups, sizeof s.groups);
            groups[0] = (attn__span){0, (uint16_t)size};
        }
        return true;
    }
    return false;
}
