/* SPDX-License-Identifier: MIT
 *
 * context.h - the context, through which all errors are reported and all memory is allocated.
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
    bool inference; /* bf16 and int8 models that are created without weights in this context are only for inference */
    attn__caches caches;
    atomic_flag noting; /* locked while the following error fields are written */
    /* an error of the current call is already recorded, so later errors of this call are not recorded */
    bool noted;
    uint64_t failures;  /* number of all errors passed to attn__fail, recorded or not */
    attn_status status; /* status of the last call that failed since the error was last cleared */
    char error[512];
    bool (*work)(void *user, const char *things, int64_t done, int64_t total); /* NULL: no progress is reported */
    void *work_user;
    bool work_around; /* true: only the outer loop reports progress, and the calls inside the loop do not */
    void (*log)(void *user, const char *line);
    void *log_user;
    int verbose;
    atomic_size_t held, peak;
    atomic_uint_least64_t allocations;
    /* State of a higher layer (wisdom of the planner), and the function that frees it. */
    void *wisdom;
    void (*release_wisdom)(attn_context *context, void *wisdom);
    struct attn__ranks *ranks; /* the group of processes; NULL: one process alone (dist/ranks.h) */
    void (*leave_ranks)(attn_context *context);
};

/* Records an error, unless the same call has recorded one before, and returns `status`. `context` may be NULL. Several
 * threads may call this at once, but no thread may read the error at that time. */
attn_status attn__fail(attn_context *context, attn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses an enum value outside of 0 to `last`, which a caller built for another version may pass. */
attn_status attn__check_choice(attn_context *context, const char *what, int value, int last);
/* Must be called first in a public function that returns a status, so that its error replaces the error of an earlier
 * call. Layers and operations on a tape do not call this, but attn_tape_reset does. The error of the first failed
 * operation of a pass is thus kept. */
void attn__call_begin(attn_context *context);
/* Returns the status of the error that the current call has recorded, or ATTN_OK. The context's own status may be
 * that of an earlier call. */
static inline attn_status attn__call_status(const attn_context *context)
{
    return context->noted ? context->status : ATTN_OK;
}
/* Reports to the progress callback that `done` of `total` `things` are done. Call this only in long loops outside of
 * parallel regions. ATTN_ERROR_INTERRUPTED: the callback requested to stop. */
attn_status attn__work(attn_context *context, const char *things, int64_t done, int64_t total);
/* Reports progress as attn__work does, for a loop whose body calls functions that also report progress. Until `done`
 * is `total`, only this loop's progress is reported. A loop that ends early must report a total of 0. */
attn_status attn__work_around(attn_context *context, const char *things, int64_t done, int64_t total);
/* Returns ATTN_ERROR_ARGUMENT, with an error recorded, if the field `reserved` of the struct at `pointer` is not
 * zero. `type` is the type of the struct. `pointer` may be NULL. */
#define ATTN__CHECK_RESERVED(context, pointer, type)                                                                   \
    ((pointer) ? attn__check_reserved((context), (pointer)->reserved, sizeof(pointer)->reserved, #type) : ATTN_OK)
attn_status attn__check_reserved(attn_context *context, const void *reserved, size_t size, const char *type);
attn_status attn__fail_memory(attn_context *context, size_t size);

/* Allocates memory aligned to 64 bytes, not cleared. Returns NULL and records ATTN_ERROR_MEMORY if there is no memory
 * or the size overflowed (attn__size_mul returns SIZE_MAX). Size 0 also gives a valid pointer. Thread-safe if the
 * allocator is thread-safe. */
void *attn__alloc(attn_context *context, size_t size);
void *attn__alloc_zero(attn_context *context, size_t size);
/* keeps the contents up to the new size; on failure `memory` stays valid */
void *attn__realloc(attn_context *context, void *memory, size_t size);
/* Makes room for one more item after n items of `size` bytes each. Returns the same memory, or a copy in memory of
 * twice the size. If it returns NULL, `items` is unchanged. */
void *attn__grow(attn_context *context, void *items, int64_t n, size_t size);
char *attn__strdup(attn_context *context, const char *text);
void attn__free(attn_context *context, void *memory); /* NULL is allowed; thread safe */

/* Computes a product or a sum that saturates at SIZE_MAX instead of wrapping. */
size_t attn__size_mul(size_t a, size_t b);
size_t attn__size_add(size_t a, size_t b);

#endif
