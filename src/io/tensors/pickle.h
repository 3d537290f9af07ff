/* SPDX-License-Identifier: MIT
 *
 * pickle.h - reads Python's pickles as an inert tree, in which calls are only recorded, never made.
 *
 * Protocols 2 to 5 are read (Python's pickletools describes the opcodes). Memory grows at most linearly with the
 * pickle. Objects may be shared or contain themselves, so code that visits the tree must limit its visits. */
#ifndef ATTN_IO_PICKLE_H
#define ATTN_IO_PICKLE_H

#include "io/input.h"

typedef enum attn__node_type {
    ATTN__NODE_NONE,
    ATTN__NODE_BOOL,
    ATTN__NODE_INT,
    ATTN__NODE_LONG, /* an integer of more than 8 bytes, stored in text and size */
    ATTN__NODE_REAL,
    ATTN__NODE_TEXT,
    ATTN__NODE_BYTES,
    ATTN__NODE_LIST,
    ATTN__NODE_TUPLE,
    ATTN__NODE_SET,
    ATTN__NODE_DICT,
    ATTN__NODE_GLOBAL,     /* text "module", name "qualified name" */
    ATTN__NODE_CALL,       /* function(arguments), and the items and state given to its result */
    ATTN__NODE_PERSISTENT, /* arguments: the persistent id */
} attn__node_type;

/* Nodes and cells are numbered from 1; 0 means none. */
typedef struct attn__pickle_node {
    attn__node_type type;
    uint32_t first, last, count;         /* cells of a container; keys and values alternate in a dict */
    uint32_t function, arguments, state; /* numbers of nodes */
    int64_t integer;                     /* value of BOOL and INT */
    double real;
    const char *text; /* points into the pickle */
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

/* Reads one pickle that begins at *offset of the input, and moves *offset past it. The tree points into the input. */
attn_status attn__pickle_read(attn__pickle *pickle, const attn__input *input, size_t *offset);
void attn__pickle_clear(attn__pickle *pickle);

/* Returns the i-th item of a list or tuple, or NULL past the end. */
const attn__pickle_node *attn__pickle_item(const attn__pickle *pickle, const attn__pickle_node *container, uint32_t i);
bool attn__node_is_global(const attn__pickle_node *node, const char *module, const char *name);
bool attn__node_is_text(const attn__pickle_node *node, const char *text);

#endif
