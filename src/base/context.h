/* SPDX-License-Identifier: MIT
 *
 * context.h - the one error path and the one allocator.
 */
#ifndef ATTN_BASE_CONTEXT_H
#define ATTN_BASE_CONTEXT_H

#include "attn/attn.h"
#include "base/caches.h"
#include "base/cpu.h"
#include "base/system.h"

#include <stdarg.h>
#include <stdatomic.h>

struct attn_context {
    attn_allocator allocator;
    int threads;
    attn__isa isa;
    attn_precision precision; /* never DEFAULT */
    bool batch_invariant;
    bool inference; /* models of bf16 and int8 that are made blank here only infer */
    attn__caches caches;
    atomic_flag noting; /* held while what follows is written */
    bool noted;         /* the call that runs has failed already: its first error stays */
    uint64_t failures;  /* all that were told to attn__fail, noted or not */
    attn_status status; /* of the last call that failed since the last clear */
    char error[512];
    bool (*work)(void *user, const char *things, int64_t done, int64_t total); /* NULL: no progress is reported */
    void *work_user;
    bool work_around; /* only the outer loop of long work is reported */
    void (*log)(void *user, const char *line);
    void *log_user;
    int verbose;
    atomic_size_t held, peak;
    atomic_uint_least64_t allocations;
    /* State of a higher floor (the planner's wisdom), with the function that frees it. */
    void *wisdom;
    void (*release_wisdom)(attn_context *context, void *wisdom);
    struct attn__ranks *ranks; /* the processes that it works with; NULL: alone (dist/ranks.h) */
    void (*leave_ranks)(attn_context *context);
};

/* Notes an error, unless the same call has noted one before, and returns `status`.  `context` may be NULL.  May be
 * called from several threads at once; reading the error while others still fail may not. */
attn_status attn__fail(attn_context *context, attn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses a value of an enum that is not one of 0 to `last`: the numbers of another version, or of no version. */
attn_status attn__check_choice(attn_context *context, const char *what, int value, int last);
/* At the beginning of a public function that returns a status: its error takes the place of an earlier call's.
 * Operations on a tape and layers do not call it (attn_tape_reset does), so that the first of them that fails is the
 * one that is told. */
void attn__call_begin(attn_context *context);
/* The error noted since the call began; the context's status may be that of an earlier call. */
static inline attn_status attn__call_status(const attn_context *context)
{
    return context->noted ? context->status : ATTN_OK;
}
/* Reports to the progress callback that `done` of `total` `things` are done.  For long loops, outside of parallel
 * regions. ATTN_ERROR_INTERRUPTED: the callback requested to stop. */
attn_status attn__work(attn_context *context, const char *things, int64_t done, int64_t total);
/* The same of a loop around calls that report progress: until `done` is `total` only this loop is reported.  A loop
 * that ends early reports a total of 0. */
attn_status attn__work_around(attn_context *context, const char *things, int64_t done, int64_t total);
/* ATTN_ERROR_ARGUMENT, noted, unless the field `reserved` of a struct of that type is zero; the struct may be NULL. */
#define ATTN__CHECK_RESERVED(context, pointer, type)                                                                   \
    ((pointer) ? attn__check_reserved((context), (pointer)->reserved, sizeof(pointer)->reserved, #type) : ATTN_OK)
attn_status attn__check_reserved(attn_context *context, const void *reserved, size_t size, const char *type);
attn_status attn__fail_memory(attn_context *context, size_t size);

/* Memory aligned to 64 bytes, not cleared; NULL, with ATTN_ERROR_MEMORY noted, if there is none or size overflowed
 * (SIZE_MAX, as attn__size_mul returns it).  Size 0 gives a pointer too.  Thread safe if the allocator is. */
void *attn__alloc(attn_context *context, size_t size);
void *attn__alloc_zero(attn_context *context, size_t size);
void *attn__realloc(attn_context *context, void *memory, size_t size); /* keeps what fits; NULL leaves `memory` */
/* `items` with room behind its n items of `size` bytes: the same memory, or a copy in twice as much.  NULL leaves it. */
void *attn__grow(attn_context *context, void *items, int64_t n, size_t size);
char *attn__strdup(attn_context *context, const char *text);
void attn__free(attn_context *context, void *memory); /* NULL is allowed; thread safe */

/* Products and sums that stick at SIZE_MAX instead of wrapping. */
size_t attn__size_mul(size_t a, size_t b);
size_t attn__size_add(size_t a, size_t b);

#endif
