/* SPDX-License-Identifier: MIT
 * Converts the tree of a PyTorch file to named arrays and plain data. */
#include "io/tensors/pt_tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Limits for visiting a tree whose objects can be shared or contain themselves. MAX_DEPTH ends cycles. MAX_VISITS and
 * MAX_SCANNED limit repeated visits of shared objects. MAX_KEPT limits the number of stored plain values, because a
 * config searches its keys linearly. */
enum { MAX_DEPTH = 64, MAX_NAME = 1024, MAX_VISITS = 1 << 20, MAX_SCANNED = 1 << 24, MAX_KEPT = 1 << 12 };

typedef struct frame {
    const attn__pickle_node *container;
    uint32_t cell;
    uint32_t index; /* if the container is a list: the index of the next cell */
    size_t prefix;  /* length of the container's name in walk.name */
    bool pairs;     /* true: the container is a list of pairs [key, value] */
} frame;

typedef struct walk {
    const attn__pt *pt;
    char name[MAX_NAME];
    frame stack[MAX_DEPTH];
    int depth;           /* number of frames in use */
    int visits, scanned; /* number of visited nodes, and number of list elements that were checked */
    bool full;           /* true: a note says that the limit of plain values was reached */
    char module[128];    /* class of the first skipped module; "": no module was skipped so far */
} walk;

static attn_status fail(const walk *w, const char *what)
{
    return attn__fail(w->pt->input->context, ATTN_ERROR_FORMAT, "%s: \"%.100s\": %s", w->pt->input->name, w->name,
                      what);
}

static bool is_dict(const attn__pickle_node *node)
{
    return node->type == ATTN__NODE_DICT || node->type == ATTN__NODE_CALL;
}

static attn_status enter(walk *w, const attn__pickle_node *container, bool pairs)
{
    size_t length = strlen(w->name);
    if (w->depth == MAX_DEPTH)
        return fail(w, "the value is nested more than 64 deep, or contains itself");
    if (length + 2 > MAX_NAME)
        return fail(w, "its name is too long");
    w->stack[w->depth++] = (frame){container, container->first, 0, length, pairs};
    return ATTN_OK;
}

/* If the dict is the result of a call, the items that were added to the result are visited, and also the items in the
 * call's argument, which is a dict or, in files of Python 2, a list of pairs. */
static attn_status enter_dict(walk *w, const attn__pickle_node *dict)
{
    const attn__pickle *p = w->pt->pickle;
    const attn__pickle_node *given = NULL;
    if (dict->type == ATTN__NODE_CALL)
        given = attn__pickle_item(p, &p->nodes[dict->arguments], 0);
    bool pairs = given && (given->type == ATTN__NODE_LIST || given->type == ATTN__NODE_TUPLE);
    attn_status status = enter(w, dict, false);
    return status == ATTN_OK && (pairs || (given && given->type == ATTN__NODE_DICT)) ? enter(w, given, pairs) : status;
}

/* Appends the name of a member to the name of its container. Returns false if the key is not a text or an integer. */
static bool name_member(walk *w, const frame *f, const attn__pickle_node *key)
{
    char *out = w->name + f->prefix;
    size_t room = MAX_NAME - f->prefix;
    const char *dot = f->prefix ? "." : "";
    int n = -1;
    if (!key)
        n = snprintf(out, room, "%s%" PRIu32, dot, f->index);
    else if (key->type == ATTN__NODE_INT || key->type == ATTN__NODE_BOOL)
        n = snprintf(out, room, "%s%" PRId64, dot, key->integer);
    else if (key->type == ATTN__NODE_TEXT && key->size < room && !memchr(key->text, 0, key->size))
        n = snprintf(out, room, "%s%.*s", dot, (int)key->size, key->text);
    return n >= 0 && (size_t)n < room;
}

/* --------------------------------------------------------------------------------------------- leaves */

static attn_status add_tensor(walk *w, const attn__pickle_node *arguments)
{
    attn__array array = {0};
    const char *name = *w->name ? w->name : "tensor";
    attn_status status = attn__pt_tensor(w->pt, arguments, name, &array);
    if (status != ATTN_OK)
        return status;
    array.name = attn__strdup(w->pt->input->context, name);
    return array.name ? attn__arrays_add(&w->pt->findings->arrays, &array) : ATTN_ERROR_MEMORY;
}

/* Returns whether one more plain value is stored: metadata are requested, and the limit is not reached. */
static bool is_kept(walk *w)
{
    const attn_config *metadata = w->pt->findings->metadata;
    if (!metadata || w->full)
        return false;
    w->full = attn_config_size(metadata) >= MAX_KEPT;
    return !w->full;
}

static attn_status set_plain(walk *w, const attn_config_value *value)
{
    attn_status status = attn_config_set(w->pt->findings->metadata, *w->name ? w->name : "value", value);
    return status == ATTN_OK && attn_config_size(w->pt->findings->metadata) == MAX_KEPT
               ? attn__findings_note(w->pt->findings,
                                     "%s: only the first %d of the values that are not tensors are kept",
                                     w->pt->input->name, MAX_KEPT)
               : status;
}

static char *copy_text(const walk *w, const attn__pickle_node *node)
{
    char *copy = attn__alloc(w->pt->input->context, node->size + 1);
    if (copy) {
        memcpy(copy, node->text, node->size);
        copy[node->size] = '\0';
    }
    return copy;
}

static attn_status add_plain(walk *w, const attn__pickle_node *node)
{
    attn_config_value value = {.type = ATTN_CONFIG_TYPE_NULL, .integer = node->integer, .real = node->real};
    char *text = NULL;
    if (!is_kept(w))
        return ATTN_OK;
    if (node->type == ATTN__NODE_BOOL)
        value = (attn_config_value){.type = ATTN_CONFIG_TYPE_BOOL, .boolean = node->integer != 0};
    if (node->type == ATTN__NODE_INT)
        value.type = ATTN_CONFIG_TYPE_INT;
    if (node->type == ATTN__NODE_REAL)
        value.type = ATTN_CONFIG_TYPE_REAL;
    if (node->type == ATTN__NODE_TEXT) {
        text = copy_text(w, node);
        if (!text)
            return ATTN_ERROR_MEMORY;
        value = (attn_config_value){.type = ATTN_CONFIG_TYPE_TEXT, .text = text};
    }
    attn_status status = set_plain(w, &value);
    attn__free(w->pt->input->context, text);
    return status;
}

static bool all_of(walk *w, const attn__pickle_node *list, attn__node_type type)
{
    const attn__pickle *p = w->pt->pickle;
    uint32_t cell = list->first;
    for (; cell && p->nodes[p->cells[cell].node].type == type && w->scanned < MAX_SCANNED; cell = p->cells[cell].next)
        w->scanned++;
    return !cell;
}

/* Stores a list of integers, such as a shape, as one value. Other lists are stored with one key per element. */
static attn_status add_integers(walk *w, const attn__pickle_node *list)
{
    const attn__pickle *p = w->pt->pickle;
    if (!is_kept(w))
        return ATTN_OK;
    int64_t *integers = attn__alloc(p->context, attn__size_mul(list->count, sizeof *integers));
    if (!integers)
        return ATTN_ERROR_MEMORY;
    int64_t n = 0;
    for (uint32_t cell = list->first; cell; cell = p->cells[cell].next)
        integers[n++] = p->nodes[p->cells[cell].node].integer;
    attn_config_value value = {.type = ATTN_CONFIG_TYPE_INTS, .n = n, .integers = integers};
    attn_status status = set_plain(w, &value);
    attn__free(p->context, integers);
    return status;
}

/* An object of torch.nn.Module has a dict "_modules" among its first attributes. An object of TorchScript is recognized
 * by the name of its class. */
static bool is_module(const attn__pickle *p, const attn__pickle_node *object, const attn__pickle_node *class)
{
    static const char script[] = "__torch__";
    const attn__pickle_node *state = &p->nodes[object->state];
    if (class->size >= sizeof script - 1 && memcmp(class->text, script, sizeof script - 1) == 0)
        return true;
    for (uint32_t i = 0; state->type == ATTN__NODE_DICT && i < state->count && i < 64; i += 2)
        if (attn__node_is_text(attn__pickle_item(p, state, i), "_modules"))
            return true;
    return false;
}

/* In files before PyTorch 1.6, a module's class is inside a persistent id, together with its source code. */
static const attn__pickle_node *class_of(const attn__pickle *p, const attn__pickle_node *object)
{
    const attn__pickle_node *class = object->type == ATTN__NODE_CALL ? &p->nodes[object->function] : object;
    const attn__pickle_node *inside =
        class->type == ATTN__NODE_PERSISTENT ? attn__pickle_item(p, &p->nodes[class->arguments], 1) : NULL;
    return inside ? inside : class;
}

/* Skips an object of an unknown class. Its content cannot be interpreted without the code of the class, which is
 * never run. */
static attn_status pass_over(walk *w, const attn__pickle_node *node)
{
    enum { MOST = 60 };
    const attn__pickle *p = w->pt->pickle;
    const attn__pickle_node *class = class_of(p, node);
    char name[sizeof w->module] = "";
    if (class->type == ATTN__NODE_GLOBAL)
        snprintf(name, sizeof name, "%.*s.%.*s", class->size < MOST ? (int)class->size : MOST, class->text,
                 class->name_size < MOST ? (int)class->name_size : MOST, class->name);
    if (*name && !*w->module && is_module(p, node, class))
        memcpy(w->module, name, sizeof name);
    return attn__findings_note(w->pt->findings, "%s: \"%s\" is of an unknown class%s%s and was skipped",
                               w->pt->input->name, w->name, *name ? ", " : "", name);
}

/* Refuses a file in which only a whole module was saved. Only the code of the module, which is not run, could find the
 * module's tensors. */
static attn_status check_modules(const walk *w)
{
    bool script = strncmp(w->module, "__torch__", 9) == 0;
    if (!*w->module || w->pt->findings->arrays.n > 0)
        return ATTN_OK;
    return attn__fail(w->pt->input->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: the file holds %s (%s), but no tensors by name; save the tensors with "
                      "torch.save(%s.state_dict(), FILE)",
                      w->pt->input->name,
                      script ? "a TorchScript program" : "a whole module, whose code the file does not hold", w->module,
                      script ? "torch.jit.load(THIS)" : "model");
}

static attn_status visit(walk *w, const attn__pickle_node *node)
{
    bool tensor;
    if (++w->visits > MAX_VISITS || w->scanned >= MAX_SCANNED)
        return fail(w, "the file has more than a million values, the limit");
    const attn__pickle_node *known = attn__pt_resolve(w->pt, node, &tensor);
    if (!known)
        return pass_over(w, node);
    if (tensor)
        return add_tensor(w, known);
    if (is_dict(known))
        return enter_dict(w, known);
    if (known->type != ATTN__NODE_LIST && known->type != ATTN__NODE_TUPLE)
        return known->type <= ATTN__NODE_TEXT && known->type != ATTN__NODE_LONG ? add_plain(w, known) : ATTN_OK;
    return all_of(w, known, ATTN__NODE_INT) ? add_integers(w, known) : enter(w, known, false);
}

/* ------------------------------------------------------------------------------------------------ walk */

static attn_status visit_next(walk *w, frame *f)
{
    const attn__pickle *p = w->pt->pickle;
    const attn__cell *cell = &p->cells[f->cell];
    const attn__pickle_node *key = NULL, *member = &p->nodes[cell->node];
    if (is_dict(f->container)) {
        key = member;
        cell = &p->cells[cell->next]; /* there is a next cell, because a dict has an even number of cells */
        member = &p->nodes[cell->node];
    } else if (f->pairs) {
        key = attn__pickle_item(p, member, 0);
        member = attn__pickle_item(p, member, 1);
        if (!member || p->nodes[cell->node].count != 2)
            return fail(w, "a dict has an item that is not a pair");
    }
    f->cell = cell->next;
    bool named = name_member(w, f, key);
    f->index++;
    if (!named)
        return attn__findings_note(
            w->pt->findings, "%s: a member of \"%.*s\" was skipped: its key is neither a short text nor an integer",
            w->pt->input->name, (int)f->prefix, w->name);
    return visit(w, member);
}

attn_status attn__pt_walk(const attn__pt *pt)
{
    walk *w = attn__alloc_zero(pt->input->context, sizeof *w);
    if (!w)
        return ATTN_ERROR_MEMORY;
    w->pt = pt;
    attn_status status = visit(w, &pt->pickle->nodes[pt->pickle->root]);
    while (status == ATTN_OK && w->depth > 0) {
        frame *f = &w->stack[w->depth - 1];
        if (f->cell)
            status = visit_next(w, f);
        else
            w->depth--;
    }
    if (status == ATTN_OK)
        status = check_modules(w);
    attn__free(pt->input->context, w);
    return status;
}
