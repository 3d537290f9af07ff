/* SPDX-License-Identifier: MIT
 *
 * Executes the opcodes of a pickle and builds a tree of plain data.
 */
#include "io/tensors/pickle.h"

#include <string.h>

/* Limits for the memory of a pickle's tree. A node needs about a hundred bytes. A checkpoint of a thousand tensors has
 * about twenty thousand nodes. */
enum { MAX_NODES = 1 << 22, MAX_CELLS = 1 << 23 };

typedef struct list {
    uint32_t *items;
    size_t n, capacity;
} list;

typedef struct machine {
    const attn__input *input;
    attn__pickle *pickle;
    size_t opcode, at; /* offset of the current opcode, and offset of the next byte to read */
    list stack, marks, memo;
    bool stopped;
} machine;

typedef struct argument {
    uint64_t number;
    const char *text;
    size_t size;
    const char *name; /* the second line of the argument, which only GLOBAL has */
    size_t name_size;
} argument;

static attn_status fail(const machine *m, const char *what)
{
    return attn__input_fail(m->input, ATTN_ERROR_FORMAT, m->opcode, "pickle: %s", what);
}

/* ------------------------------------------------------------------------------------------ containers */

/* The capacity is doubled, so that adding an item takes constant time on average. */
static attn_status reserve(const machine *m, list *l, size_t n)
{
    if (n <= l->capacity)
        return ATTN_OK;
    size_t capacity = l->capacity ? l->capacity : 64;
    while (capacity < n)
        capacity *= 2;
    uint32_t *items = attn__realloc(m->input->context, l->items, attn__size_mul(capacity, sizeof *items));
    if (!items)
        return ATTN_ERROR_MEMORY;
    l->items = items;
    l->capacity = capacity;
    return ATTN_OK;
}

static attn_status list_push(const machine *m, list *l, uint32_t value)
{
    attn_status status = reserve(m, l, l->n + 1);
    if (status == ATTN_OK)
        l->items[l->n++] = value;
    return status;
}

static attn_status push(machine *m, uint32_t node)
{
    return list_push(m, &m->stack, node);
}

/* Returns the stack index of the first item above the last mark. Operations may take only items above the last mark. */
static size_t floor_of(const machine *m)
{
    return m->marks.n ? m->marks.items[m->marks.n - 1] : 0;
}

static attn_status pop(machine *m, uint32_t *node)
{
    if (m->stack.n <= floor_of(m))
        return fail(m, "the opcode takes an object from an empty stack");
    *node = m->stack.items[--m->stack.n];
    return ATTN_OK;
}

static attn_status top(machine *m, uint32_t *node)
{
    attn_status status = pop(m, node);
    m->stack.n += status == ATTN_OK;
    return status;
}

/* Removes the last mark from the list of marks. *begin becomes the stack index of the first item above this mark. */
static attn_status pop_mark(machine *m, size_t *begin)
{
    if (m->marks.n == 0)
        return fail(m, "the opcode needs a mark on the stack, but there is none");
    *begin = m->marks.items[--m->marks.n];
    return ATTN_OK;
}

static attn_status new_node(machine *m, const attn__pickle_node *node, uint32_t *number)
{
    attn__pickle *p = m->pickle;
    if (p->n_nodes == MAX_NODES)
        return fail(m, "there are more than 4 million objects, the limit");
    attn__pickle_node *nodes = attn__grow(p->context, p->nodes, p->n_nodes, sizeof *nodes);
    if (!nodes)
        return ATTN_ERROR_MEMORY;
    p->nodes = nodes;
    *number = p->n_nodes++;
    p->nodes[*number] = *node;
    return ATTN_OK;
}

static attn_status push_node(machine *m, const attn__pickle_node *node)
{
    uint32_t number = 0;
    attn_status status = new_node(m, node, &number);
    return status == ATTN_OK ? push(m, number) : status;
}

static attn_status append(machine *m, uint32_t container, uint32_t node)
{
    attn__pickle *p = m->pickle;
    if (p->n_cells == MAX_CELLS)
        return fail(m, "there are more than 8 million items, the limit");
    attn__cell *cells = attn__grow(p->context, p->cells, p->n_cells, sizeof *cells);
    if (!cells)
        return ATTN_ERROR_MEMORY;
    p->cells = cells;
    p->cells[0] = (attn__cell){0}; /* cell 0 means "no cell" and ends each list of cells */
    uint32_t cell = p->n_cells++;
    p->cells[cell] = (attn__cell){node, 0};
    attn__pickle_node *c = &p->nodes[container];
    if (c->last)
        p->cells[c->last].next = cell;
    else
        c->first = cell;
    c->last = cell;
    c->count++;
    return ATTN_OK;
}

static attn_status append_from(machine *m, uint32_t container, size_t begin)
{
    attn_status status = ATTN_OK;
    for (size_t i = begin; i < m->stack.n && status == ATTN_OK; i++)
        status = append(m, container, m->stack.items[i]);
    m->stack.n = begin;
    return status;
}

/* ----------------------------------------------------------------------------------------- operations */

static attn_status run_nothing(machine *m, const argument *a)
{
    (void)m;
    (void)a;
    return ATTN_OK;
}

/* Ends the pickle. The item on top of the stack is its result. */
static attn_status run_stop(machine *m, const argument *a)
{
    (void)a;
    m->stopped = true;
    return m->marks.n ? fail(m, "the opcode ends the pickle while a mark is on the stack") : pop(m, &m->pickle->root);
}

static attn_status run_mark(machine *m, const argument *a)
{
    (void)a;
    return list_push(m, &m->marks, (uint32_t)m->stack.n);
}

static attn_status run_pop(machine *m, const argument *a)
{
    (void)a;
    uint32_t node = 0;
    return pop(m, &node);
}

static attn_status run_pop_mark(machine *m, const argument *a)
{
    (void)a;
    return pop_mark(m, &m->stack.n);
}

static attn_status run_dup(machine *m, const argument *a)
{
    (void)a;
    uint32_t node = 0;
    attn_status status = top(m, &node);
    return status == ATTN_OK ? push(m, node) : status;
}

static attn_status run_none(machine *m, const argument *a)
{
    (void)a;
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_NONE});
}

static attn_status run_true(machine *m, const argument *a)
{
    (void)a;
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_BOOL, .integer = 1});
}

static attn_status run_false(machine *m, const argument *a)
{
    (void)a;
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_BOOL});
}

static attn_status run_unsigned(machine *m, const argument *a)
{
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_INT, .integer = (int64_t)a->number});
}

static attn_status run_int32(machine *m, const argument *a)
{
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_INT, .integer = (int32_t)(uint32_t)a->number});
}

/* Pushes an integer of any length, which is stored in little-endian two's complement. */
static attn_status run_long(machine *m, const argument *a)
{
    if (a->size > 8)
        return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_LONG});
    uint64_t value = a->size > 0 && (a->text[a->size - 1] & 0x80) ? UINT64_MAX : 0;
    for (size_t i = a->size; i > 0; i--)
        value = value << 8 | (unsigned char)a->text[i - 1];
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_INT, .integer = (int64_t)value});
}

/* Pushes a real, which is big-endian. All other numbers in pickles are little-endian. */
static attn_status run_real(machine *m, const argument *a)
{
    uint64_t bits = __builtin_bswap64(a->number);
    attn__pickle_node node = {.type = ATTN__NODE_REAL};
    memcpy(&node.real, &bits, sizeof bits);
    return push_node(m, &node);
}

static attn_status run_text(machine *m, const argument *a)
{
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_TEXT, .text = a->text, .size = a->size});
}

static attn_status run_bytes(machine *m, const argument *a)
{
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_BYTES, .text = a->text, .size = a->size});
}

static attn_status run_empty_list(machine *m, const argument *a)
{
    (void)a;
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_LIST});
}

static attn_status run_empty_tuple(machine *m, const argument *a)
{
    (void)a;
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_TUPLE});
}

static attn_status run_empty_dict(machine *m, const argument *a)
{
    (void)a;
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_DICT});
}

static attn_status run_empty_set(machine *m, const argument *a)
{
    (void)a;
    return push_node(m, &(attn__pickle_node){.type = ATTN__NODE_SET});
}

/* Pushes a new container. The stack's items from index `begin` on become its items. */
static attn_status push_group(machine *m, attn__node_type type, size_t begin)
{
    uint32_t number = 0;
    attn_status status = new_node(m, &(attn__pickle_node){.type = type}, &number);
    if (status == ATTN_OK)
        status = append_from(m, number, begin);
    return status == ATTN_OK ? push(m, number) : status;
}

static attn_status push_marked(machine *m, attn__node_type type)
{
    size_t begin = 0;
    attn_status status = pop_mark(m, &begin);
    return status == ATTN_OK ? push_group(m, type, begin) : status;
}

static attn_status run_tuple(machine *m, const argument *a)
{
    (void)a;
    return push_marked(m, ATTN__NODE_TUPLE);
}

static attn_status run_list(machine *m, const argument *a)
{
    (void)a;
    return push_marked(m, ATTN__NODE_LIST);
}

static attn_status run_frozenset(machine *m, const argument *a)
{
    (void)a;
    return push_marked(m, ATTN__NODE_SET);
}

static attn_status run_dict(machine *m, const argument *a)
{
    (void)a;
    if (m->marks.n && (m->stack.n - floor_of(m)) % 2 != 0)
        return fail(m, "a dict has a key without a value");
    return push_marked(m, ATTN__NODE_DICT);
}

static attn_status tuple_of(machine *m, size_t n)
{
    if (m->stack.n - floor_of(m) < n)
        return fail(m, "the opcode takes an object from an empty stack");
    return push_group(m, ATTN__NODE_TUPLE, m->stack.n - n);
}

static attn_status run_tuple1(machine *m, const argument *a)
{
    (void)a;
    return tuple_of(m, 1);
}

static attn_status run_tuple2(machine *m, const argument *a)
{
    (void)a;
    return tuple_of(m, 2);
}

static attn_status run_tuple3(machine *m, const argument *a)
{
    (void)a;
    return tuple_of(m, 3);
}

/* Adds the stack's items from index `begin` on to the object that is below them on the stack. The object must be a
 * container, or the result of a call. */
static attn_status extend(machine *m, size_t begin, size_t each)
{
    if (begin <= floor_of(m))
        return fail(m, "the opcode adds items to an object, but there is none on the stack");
    uint32_t container = m->stack.items[begin - 1];
    attn__node_type type = m->pickle->nodes[container].type;
    bool fits = type == ATTN__NODE_CALL ||
                (each == 2 ? type == ATTN__NODE_DICT : type == ATTN__NODE_LIST || type == ATTN__NODE_SET);
    if (!fits || (m->stack.n - begin) % each != 0)
        return fail(m, "the opcode adds items to an object that cannot hold them");
    return append_from(m, container, begin);
}

static attn_status extend_marked(machine *m, size_t each)
{
    size_t begin = 0;
    attn_status status = pop_mark(m, &begin);
    return status == ATTN_OK ? extend(m, begin, each) : status;
}

static attn_status extend_top(machine *m, size_t each)
{
    if (m->stack.n - floor_of(m) < each)
        return fail(m, "the opcode takes an object from an empty stack");
    return extend(m, m->stack.n - each, each);
}

static attn_status run_append(machine *m, const argument *a)
{
    (void)a;
    return extend_top(m, 1);
}

static attn_status run_appends(machine *m, const argument *a)
{
    (void)a;
    return extend_marked(m, 1);
}

static attn_status run_setitem(machine *m, const argument *a)
{
    (void)a;
    return extend_top(m, 2);
}

static attn_status run_setitems(machine *m, const argument *a)
{
    (void)a;
    return extend_marked(m, 2);
}

static attn_status run_global(machine *m, const argument *a)
{
    return push_node(
        m,
        &(attn__pickle_node){
            .type = ATTN__NODE_GLOBAL, .text = a->text, .size = a->size, .name = a->name, .name_size = a->name_size});
}

static attn_status run_stack_global(machine *m, const argument *a)
{
    (void)a;
    uint32_t name = 0, module = 0;
    attn_status status = pop(m, &name);
    if (status == ATTN_OK)
        status = pop(m, &module);
    if (status != ATTN_OK)
        return status;
    const attn__pickle_node *x = &m->pickle->nodes[module], *y = &m->pickle->nodes[name];
    if (x->type != ATTN__NODE_TEXT || y->type != ATTN__NODE_TEXT)
        return fail(m, "the name of a class is not a text");
    attn__pickle_node node = {
        .type = ATTN__NODE_GLOBAL, .text = x->text, .size = x->size, .name = y->text, .name_size = y->size};
    return push_node(m, &node);
}

/* Pushes a record of the call that opcode REDUCE or NEWOBJ would make. */
static attn_status run_call(machine *m, const argument *a)
{
    (void)a;
    attn__pickle_node node = {.type = ATTN__NODE_CALL};
    attn_status status = pop(m, &node.arguments);
    if (status == ATTN_OK)
        status = pop(m, &node.function);
    return status == ATTN_OK ? push_node(m, &node) : status;
}

/* Pushes a record of the call that opcode NEWOBJ_EX would make. Keyword arguments are ignored. */
static attn_status run_call_keywords(machine *m, const argument *a)
{
    uint32_t keywords = 0;
    attn_status status = pop(m, &keywords);
    return status == ATTN_OK ? run_call(m, a) : status;
}

/* Records the state that opcode BUILD gives to an object. The object itself is not changed. */
static attn_status run_build(machine *m, const argument *a)
{
    (void)a;
    uint32_t state = 0, object = 0;
    attn_status status = pop(m, &state);
    if (status == ATTN_OK)
        status = top(m, &object);
    if (status == ATTN_OK)
        m->pickle->nodes[object].state = state;
    return status;
}

static attn_status run_persistent(machine *m, const argument *a)
{
    (void)a;
    attn__pickle_node node = {.type = ATTN__NODE_PERSISTENT};
    attn_status status = pop(m, &node.arguments);
    return status == ATTN_OK ? push_node(m, &node) : status;
}

static attn_status run_get(machine *m, const argument *a)
{
    if (a->number >= m->memo.n || !m->memo.items[a->number])
        return fail(m, "the opcode takes an object from the memo that was never put there");
    return push(m, m->memo.items[a->number]);
}

static attn_status put(machine *m, uint64_t index)
{
    uint32_t node = 0;
    attn_status status = top(m, &node);
    if (status != ATTN_OK)
        return status;
    /* Refuse indices that are not smaller than the size of the pickle. Writers count indices from 0 and use at least
     * two bytes for each, so a valid index is smaller. */
    if (index >= m->input->size)
        return fail(m, "the opcode puts an object into the memo under too large a number");
    status = reserve(m, &m->memo, (size_t)index + 1);
    if (status != ATTN_OK)
        return status;
    while (m->memo.n <= index)
        m->memo.items[m->memo.n++] = 0;
    m->memo.items[index] = node;
    return ATTN_OK;
}

static attn_status run_put(machine *m, const argument *a)
{
    return put(m, a->number);
}

/* Stores the top item of the stack in the memo under the next free index (protocol 4). */
static attn_status run_memoize(machine *m, const argument *a)
{
    (void)a;
    return put(m, m->memo.n);
}

/* -------------------------------------------------------------------------------------------- dispatch */

typedef enum format {
    NO_ARGUMENT,
    BYTES1, /* the argument is an unsigned integer; BYTES4, for example, has 4 bytes */
    BYTES2,
    BYTES4,
    BYTES8,
    TEXT1, /* the argument is a length and a text of this length; in TEXT4, for example, the length has 4 bytes */
    TEXT4,
    TEXT8,
    LINES /* the argument is two lines of text */
} format;

typedef struct operation {
    attn_status (*run)(machine *m, const argument *a);
    format format;
} operation;

static const operation operations[256] = {
    [0x80] = {run_nothing, BYTES1}, /* PROTO */
    [0x95] = {run_nothing, BYTES8}, /* FRAME */
    ['.'] = {run_stop, NO_ARGUMENT},
    ['('] = {run_mark, NO_ARGUMENT},
    ['0'] = {run_pop, NO_ARGUMENT},
    ['1'] = {run_pop_mark, NO_ARGUMENT},
    ['2'] = {run_dup, NO_ARGUMENT},
    ['N'] = {run_none, NO_ARGUMENT},
    [0x88] = {run_true, NO_ARGUMENT},
    [0x89] = {run_false, NO_ARGUMENT},
    ['J'] = {run_int32, BYTES4},
    ['K'] = {run_unsigned, BYTES1},
    ['M'] = {run_unsigned, BYTES2},
    [0x8a] = {run_long, TEXT1},
    [0x8b] = {run_long, TEXT4},
    ['G'] = {run_real, BYTES8},
    ['T'] = {run_text, TEXT4}, /* a str of Python 2, which can be text or bytes */
    ['U'] = {run_text, TEXT1},
    ['X'] = {run_text, TEXT4},
    [0x8c] = {run_text, TEXT1},
    [0x8d] = {run_text, TEXT8},
    ['B'] = {run_bytes, TEXT4},
    ['C'] = {run_bytes, TEXT1},
    [0x8e] = {run_bytes, TEXT8},
    [0x96] = {run_bytes, TEXT8}, /* BYTEARRAY8 */
    [']'] = {run_empty_list, NO_ARGUMENT},
    [')'] = {run_empty_tuple, NO_ARGUMENT},
    ['}'] = {run_empty_dict, NO_ARGUMENT},
    [0x8f] = {run_empty_set, NO_ARGUMENT},
    ['l'] = {run_list, NO_ARGUMENT},
    ['t'] = {run_tuple, NO_ARGUMENT},
    ['d'] = {run_dict, NO_ARGUMENT},
    [0x91] = {run_frozenset, NO_ARGUMENT},
    [0x85] = {run_tuple1, NO_ARGUMENT},
    [0x86] = {run_tuple2, NO_ARGUMENT},
    [0x87] = {run_tuple3, NO_ARGUMENT},
    ['a'] = {run_append, NO_ARGUMENT},
    ['e'] = {run_appends, NO_ARGUMENT},
    [0x90] = {run_appends, NO_ARGUMENT}, /* ADDITEMS */
    ['s'] = {run_setitem, NO_ARGUMENT},
    ['u'] = {run_setitems, NO_ARGUMENT},
    ['c'] = {run_global, LINES},
    [0x93] = {run_stack_global, NO_ARGUMENT},
    ['R'] = {run_call, NO_ARGUMENT},
    [0x81] = {run_call, NO_ARGUMENT},
    [0x92] = {run_call_keywords, NO_ARGUMENT},
    ['b'] = {run_build, NO_ARGUMENT},
    ['Q'] = {run_persistent, NO_ARGUMENT},
    ['h'] = {run_get, BYTES1},
    ['j'] = {run_get, BYTES4},
    ['q'] = {run_put, BYTES1},
    ['r'] = {run_put, BYTES4},
    [0x94] = {run_memoize, NO_ARGUMENT},
};

static attn_status take_number(machine *m, size_t bytes, uint64_t *number)
{
    if (m->input->size - m->at < bytes)
        return fail(m, "cut off");
    *number = 0;
    for (size_t i = 0; i < bytes; i++)
        *number |= (uint64_t)m->input->data[m->at + i] << 8 * i;
    m->at += bytes;
    return ATTN_OK;
}

static attn_status take_text(machine *m, size_t length_bytes, argument *a)
{
    uint64_t size = 0;
    attn_status status = take_number(m, length_bytes, &size);
    if (status != ATTN_OK)
        return status;
    if (size > m->input->size - m->at)
        return fail(m, "cut off");
    a->text = (const char *)m->input->data + m->at;
    a->size = (size_t)size;
    m->at += a->size;
    return ATTN_OK;
}

static attn_status take_line(machine *m, const char **text, size_t *size)
{
    *text = (const char *)m->input->data + m->at;
    const char *end = memchr(*text, '\n', m->input->size - m->at);
    if (!end)
        return fail(m, "cut off");
    *size = (size_t)(end - *text);
    m->at += *size + 1;
    return ATTN_OK;
}

static attn_status take_argument(machine *m, format kind, argument *a)
{
    static const size_t bytes[] = {
        [BYTES1] = 1, [BYTES2] = 2, [BYTES4] = 4, [BYTES8] = 8, [TEXT1] = 1, [TEXT4] = 4, [TEXT8] = 8};
    *a = (argument){0};
    if (kind == NO_ARGUMENT)
        return ATTN_OK;
    if (kind <= BYTES8)
        return take_number(m, bytes[kind], &a->number);
    if (kind <= TEXT8)
        return take_text(m, bytes[kind], a);
    attn_status status = take_line(m, &a->text, &a->size);
    return status == ATTN_OK ? take_line(m, &a->name, &a->name_size) : status;
}

/* All opcodes that import code, and all that no writer of weights uses, are unknown here and refused. */
static attn_status step(machine *m)
{
    m->opcode = m->at;
    if (m->at == m->input->size)
        return fail(m, "cut off");
    uint8_t code = m->input->data[m->at++];
    const operation *o = &operations[code];
    if (!o->run)
        return attn__input_fail(m->input, ATTN_ERROR_FORMAT, m->opcode, "pickle: unknown opcode 0x%02x", code);
    argument a;
    attn_status status = take_argument(m, o->format, &a);
    return status == ATTN_OK ? o->run(m, &a) : status;
}

attn_status attn__pickle_read(attn__pickle *pickle, const attn__input *input, size_t *offset)
{
    /* cell 0 is reserved for "no cell" */
    *pickle = (attn__pickle){.context = input->context, .n_cells = 1};
    machine m = {.input = input, .pickle = pickle, .at = *offset};
    /* node 0 is reserved for "no node" */
    uint32_t none;
    attn_status status = new_node(&m, &(attn__pickle_node){.type = ATTN__NODE_NONE}, &none);
    while (status == ATTN_OK && !m.stopped)
        status = step(&m);
    *offset = m.at;
    attn__free(input->context, m.stack.items);
    attn__free(input->context, m.marks.items);
    attn__free(input->context, m.memo.items);
    return status;
}

void attn__pickle_clear(attn__pickle *pickle)
{
    attn__free(pickle->context, pickle->nodes);
    attn__free(pickle->context, pickle->cells);
    *pickle = (attn__pickle){0};
}

const attn__pickle_node *attn__pickle_item(const attn__pickle *pickle, const attn__pickle_node *container, uint32_t i)
{
    if (i >= container->count)
        return NULL;
    uint32_t cell = container->first;
    while (i-- > 0)
        cell = pickle->cells[cell].next;
    return &pickle->nodes[pickle->cells[cell].node];
}

bool attn__node_is_global(const attn__pickle_node *node, const char *module, const char *name)
{
    return node->type == ATTN__NODE_GLOBAL && node->size == strlen(module) && node->name_size == strlen(name) &&
           memcmp(node->text, module, node->size) == 0 && memcmp(node->name, name, node->name_size) == 0;
}

bool attn__node_is_text(const attn__pickle_node *node, const char *text)
{
    return node->type == ATTN__NODE_TEXT && node->size == strlen(text) && memcmp(node->text, text, node->size) == 0;
}
