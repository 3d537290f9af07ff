/* SPDX-License-Identifier: MIT
 *
 * pickle.h - reads Python's pickles (protocols 2 to 5, described in Python's pickletools) as a tree of plain data.
 * Calls are recorded in the tree, but never executed. The memory is at most proportional to the size of the pickle.
 * Objects may be shared or contain themselves, so code that visits the tree must limit its visits. */
#ifndef ATTN_IO_PICKLE_H
#define ATTN_IO_PICKLE_H

#include "io/input.h"

typedef enum attn__node_type {
    ATTN__NODE_NONE,
    ATTN__NODE_BOOL,
    ATTN__NODE_INT,
    ATTN__NODE_LONG, /* an integer of more than 8 bytes; its value is not kept */
    ATTN__NODE_REAL,
    ATTN__NODE_TEXT,
    ATTN__NODE_BYTES,
    ATTN__NODE_LIST,
    ATTN__NODE_TUPLE,
    ATTN__NODE_SET,
    ATTN__NODE_DICT,
    ATTN__NODE_GLOBAL, /* a name of a Python object; `text` is the module, and `name` the name in the module */
    /* a recorded call of `function` with `arguments`; `state` and the cells were given to its result */
    ATTN__NODE_CALL,
    ATTN__NODE_PERSISTENT, /* an object outside of the pickle; `arguments` is its persistent id */
} attn__node_type;

/* Nodes and cells are numbered from 1; number 0 means "none". */
typedef struct attn__pickle_node {
    attn__node_type type;
    /* the first and the last cell of a container, and how many cells it has; in a dict, keys and values alternate */
    uint32_t first, last, count;
    uint32_t function, arguments, state;
    int64_t integer;
    double real;
    const char *text;
    size_t size;
    const char *name;
    size_t name_size;
} attn__pickle_node;

typedef struct attn__cell {
    uint32_t node, next;
} attn__cell;

typedef struct attn__pickle {
    attn_context *context;
    attn__pickle_node *nodes;
    uint32_t n_nodes;
    attn__cell *cells;
    uint32_t n_cells;
    uint32_t root;
} attn__pickle;

/* Reads the pickle that begins at *offset in the input. Sets *offset to the end of the pickle. The tree contains
 * addresses in the input, so the input must outlive the tree. */
attn_status attn__pickle_read(attn__pickle *pickle, const attn__input *input, size_t *offset);
void attn__pickle_clear(attn__pickle *pickle);

/* Returns item i of a list or tuple, or NULL if there is none. */
const attn__pickle_node *attn__pickle_item(const attn__pickle *pickle, const attn__pickle_node *container, uint32_t i);
bool attn__node_is_global(const attn__pickle_node *node, const char *module, const char *name);
bool attn__node_is_text(const attn__pickle_node *node, const char *text);

#endif
