/* SPDX-License-Identifier: MIT
 *
 * Implements the tape, which owns the results of operations. They are freed at a reset or at the end of a scope. */
#include "tensor/tape.h"

#include "tensor/compute_in.h"
#include "tensor/tape_state.h"

#include <string.h>

/* ----------------------------------------------------------------------------------------------- arena */

enum { CHUNK = 64 * 1024, ARENA_ALIGN = 16 };

struct attn__chunk {
    attn__chunk *next;
    size_t size;
    _Alignas(ARENA_ALIGN) char data[];
};

static attn__chunk *chunk_with(attn_context *context, size_t size)
{
    size = size > CHUNK ? size : CHUNK;
    attn__chunk *chunk = attn__alloc(context, attn__size_add(size, sizeof *chunk));
    if (chunk) {
        chunk->next = NULL;
        chunk->size = size;
    }
    return chunk;
}

/* Continues with a chunk that has room for `size` bytes: a chunk that is already allocated, or else a new one. */
static bool arena_advance(attn_tape *tape, size_t size)
{
    attn__tape_arena *arena = &tape->arena;
    attn__chunk **link = arena->current ? &arena->current->next : &arena->first;
    while (*link && (*link)->size < size)
        link = &(*link)->next;
    if (!*link)
        *link = chunk_with(tape->context, size);
    if (!*link)
        return false;
    arena->current = *link;
    arena->used = 0;
    return true;
}

void *attn__tape_take(attn_tape *tape, size_t size)
{
    attn__tape_arena *arena = &tape->arena;
    size = (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if ((!arena->current || arena->current->size - arena->used < size) && !arena_advance(tape, size))
        return NULL;
    void *memory = arena->current->data + arena->used;
    arena->used += size;
    return memset(memory, 0, size);
}

static void arena_destroy(attn_tape *tape)
{
    while (tape->arena.first) {
        attn__chunk *chunk = tape->arena.first;
        tape->arena.first = chunk->next;
        attn__free(tape->context, chunk);
    }
}

/* --------------------------------------------------------------------------------------------- handles */

attn_tensor *attn__handle_take(attn_tape *tape)
{
    attn_tensor *tensor = tape->idle;
    if (tensor)
        tape->idle = tensor->next;
    else
        tensor = attn__tape_take(tape, sizeof *tensor);
    if (!tensor)
        return NULL;
    *tensor = (attn_tensor){.context = tape->context, .tape = tape, .section = tape->section, .next = tape->tensors};
    tape->tensors = tensor;
    return tensor;
}

void attn__handle_drop_data(attn_tensor *tensor)
{
    attn__storage_unref(tensor->storage);
    tensor->storage = NULL;
    tensor->data = NULL;
}

void attn__grad_drop(attn_tensor *tensor)
{
    if (!tensor->grad)
        return;
    attn__handle_drop_data(tensor->grad);
    tensor->grad = NULL;
}

/* ------------------------------------------------------------------------------------------------ tape */

attn_status attn_tape_create(attn_tape **tape, attn_context *context)
{
    ATTN__CALL(context);
    attn_tape *made = *tape = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->context = context;
    made->pool = attn__pool_create(context);
    if (made->pool)
        return ATTN_OK;
    attn__free(context, made);
    *tape = NULL;
    return ATTN_ERROR_MEMORY;
}

void attn__node_release(attn__node *node)
{
    for (int i = 0; i < node->nsaved; i++) {
        if (node->saved[i].storage) {
            node->saved[i].storage->saves--;
            attn__storage_unref(node->saved[i].storage);
        }
        node->saved[i] = (attn__hold){0};
    }
}

static void restart(attn_tape *tape, const attn_tape_options *options)
{
    for (attn__node *node = tape->nodes; node; node = node->previous)
        attn__node_release(node);
    for (attn_tensor *tensor = tape->tensors; tensor; tensor = tensor->next)
        attn__handle_drop_data(tensor);
    tape->nodes = NULL;
    tape->tensors = tape->idle = NULL;
    tape->arena.current = NULL;
    tape->arena.used = 0;
    tape->depth = 0;
    tape->stream = 0;
    tape->moved = 0;
    tape->section = tape->sections = 0;
    tape->again = false;
    tape->failed = false;
    tape->precision = ATTN_PRECISION_DEFAULT;
    tape->share = (attn_shard){0};
    tape->examples = 0;
    tape->options = options ? *options : (attn_tape_options){0};
}

void attn_tape_reset(attn_tape *tape, const attn_tape_options *options)
{
    ATTN__TAPE_CALL(tape->context);
    attn__kept_error_drop(tape->context);
    /* the function returns no status: the error is kept, as that of an operation */
    (void)ATTN__CHECK_RESERVED(tape->context, options, attn_tape_options);
    restart(tape, options);
}

void attn_tape_compute_in(attn_tape *tape, attn_precision precision)
{
    tape->precision = precision;
}

void attn_tape_destroy(attn_tape *tape)
{
    if (!tape)
        return;
    restart(tape, NULL);
    if (tape->release_plans)
        tape->release_plans(tape);
    attn__pool_destroy(tape->pool);
    arena_destroy(tape);
    attn__free(tape->context, tape);
}

void attn_tape_shard(attn_tape *tape, attn_shard share)
{
    tape->share = share;
}

attn_context *attn_tape_context(const attn_tape *tape)
{
    return tape->context;
}

uint64_t attn_tape_copied(const attn_tape *tape)
{
    return tape->moved;
}

attn_tape_options attn_tape_mode(const attn_tape *tape)
{
    return tape->options;
}

/* -------------------------------------------------------------------------------------------- sections */

attn__section attn__section_begin(attn_tape *tape)
{
    attn__section outer = {tape->tensors, tape->idle,  tape->nodes,          tape->arena.current, tape->arena.used,
                           tape->section, tape->depth, tape->options.record, tape->again};
    /* the section needs its own list, because the memory of its handles is freed at its end */
    tape->idle = NULL;
    tape->nodes = NULL;
    tape->section = ++tape->sections;
    return outer;
}

/* Ends a section. Its handles and nodes are freed, because nothing outside of the section refers to them. In a deep
 * stack of blocks, they would otherwise need much memory. */
void attn__section_end(attn_tape *tape, const attn__section *outer)
{
    for (attn__node *node = tape->nodes; node; node = node->previous)
        attn__node_release(node);
    for (attn_tensor *tensor = tape->tensors; tensor != outer->tensors; tensor = tensor->next) {
        attn__grad_drop(tensor);
        attn__handle_drop_data(tensor);
    }
    tape->tensors = outer->tensors;
    tape->idle = outer->idle;
    tape->nodes = outer->nodes;
    tape->arena.current = outer->chunk;
    tape->arena.used = outer->used;
    tape->section = outer->section;
    tape->depth = outer->depth;
    tape->options.record = outer->record;
    tape->again = outer->again;
}

/* ---------------------------------------------------------------------------------------------- scopes */

void attn_scope_begin(attn_tape *tape)
{
    if (tape->depth < ATTN__MAX_SCOPES)
        tape->scopes[tape->depth] = tape->tensors;
    tape->depth++;
}

/* Frees the data of the tensors that were made after `mark`, except `keep`. Their handles are also freed, unless the
 * tape records, because recorded nodes refer to them. */
static void scope_free(attn_tape *tape, const attn_tensor *mark, const attn_tensor *keep)
{
    attn_tensor **link = &tape->tensors;
    while (*link != mark) {
        attn_tensor *tensor = *link;
        if (tensor == keep || tensor->storage == NULL || (tape->options.record && !tensor->computed)) {
            link = &tensor->next;
            continue;
        }
        attn__handle_drop_data(tensor);
        if (tape->options.record) {
            link = &tensor->next;
            continue;
        }
        *link = tensor->next;
        tensor->next = tape->idle;
        tape->idle = tensor;
    }
}

attn_tensor *attn_scope_clear(attn_tape *tape, attn_tensor *keep)
{
    if (tape->depth == 0)
        attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "attn_scope_end was called without attn_scope_begin");
    else if (tape->depth <= ATTN__MAX_SCOPES)
        scope_free(tape, tape->scopes[tape->depth - 1], keep);
    return keep;
}

attn_tensor *attn_scope_end(attn_tape *tape, attn_tensor *keep)
{
    attn_scope_clear(tape, keep);
    tape->depth -= tape->depth > 0;
    return keep;
}
