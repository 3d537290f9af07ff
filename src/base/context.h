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

struct stat;

struct attn_context {
    attn_allocator allocator;
    int threads;
    attn__isa isa;
    attn_precision precision; /* never DEFAULT */
    bool batch_invariant;
    bool inference; /* bf16 and int8 models created without weights in this context cannot be trained */
    attn__caches caches;
    atomic_flag noting; /* locked while an error is recorded in the fields below */
    /* an error of the current call is recorded; later errors of this call are not recorded */
    bool noted;
    uint64_t failures;  /* number of all errors passed to attn__fail, recorded or not */
    attn_status status; /* status of the last call that failed since the error was last cleared */
    char error[512];
    /* reports progress; NULL: no progress is reported */
    bool (*work)(void *user, const char *things, int64_t done, int64_t total);
    void *work_user;
    /* true: only an outer loop reports progress; the functions that this loop calls do not report their own progress */
    bool work_around;
    void (*log)(void *user, const char *line);
    void *log_user;
    int verbose;
    atomic_size_t held, peak;
    atomic_uint_least64_t allocations;
    /* State of a higher layer, the planner's wisdom, and the function that frees this state. */
    void *wisdom;
    void (*release_wisdom)(attn_context *context, void *wisdom);
    /* Are told of each file that is opened for reading, and of each file before it is written. They refuse the file by
     * returning an error. They may be called by several threads at once. NULL: no file is refused. */
    attn_status (*opened)(void *user, attn_context *context, const char *path, const struct stat *about);
    attn_status (*writes)(void *user, attn_context *context, const char *path, const char *target);
    void *files_user;
    struct attn__ranks *ranks; /* the group of processes; NULL: one process alone (dist/ranks.h) */
    void (*leave_ranks)(attn_context *context);
};

/* Records an error, unless the same call has recorded one before, and returns `status`. `context` may be NULL. Several
 * threads may call this at once, but no thread may read the error at that time. */
attn_status attn__fail(attn_context *context, attn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses an enum value outside of 0 to `last`, which a caller built for another version may pass. */
attn_status attn__check_choice(attn_context *context, const char *what, int value, int last);
/* Lets the next error replace the error of an earlier call. Each public function that returns a status must call this
 * first. Layers and operations on a tape do not call it, but attn_tape_reset does, so that the error of the first
 * failed operation of a pass is kept. */
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
/* Checks that the field `reserved` of a struct is zero. If it is not, records an error and returns ATTN_ERROR_ARGUMENT.
 * `pointer` is the struct's address and may be NULL. `type` is the struct's type. */
#define ATTN__CHECK_RESERVED(context, pointer, type)                                                                   \
    ((pointer) ? attn__check_reserved((context), (pointer)->reserved, sizeof(pointer)->reserved, #type) : ATTN_OK)
attn_status attn__check_reserved(attn_context *context, const void *reserved, size_t size, const char *type);
attn_status attn__fail_memory(attn_context *context, size_t size);

/* Allocates memory aligned to 64 bytes, not cleared. Returns NULL and records ATTN_ERROR_MEMORY if there is no memory
 * or the size overflowed (attn__size_mul returns SIZE_MAX). Size 0 also gives a valid pointer. Thread-safe if the
 * allocator is thread-safe. */
void *attn__alloc(attn_context *context, size_t size);
void *attn__alloc_zero(attn_context *context, size_t size);
/* keeps the contents; if it fails, returns NULL and `memory` stays valid */
void *attn__realloc(attn_context *context, void *memory, size_t size);
/* Makes room for one more item after n items of `size` bytes each. Returns the same memory, or a copy in memory of
 * twice the size. If it returns NULL, `items` is unchanged. */
void *attn__grow(attn_context *context, void *items, int64_t n, size_t size);
char *attn__strdup(attn_context *context, const char *text);
void attn__free(attn_context *context, void *memory); /* `memory` may be NULL; thread-safe */

/* Multiply or add two sizes. If the result is too large for size_t, they return SIZE_MAX. */
size_t attn__size_mul(size_t a, size_t b);
size_t attn__size_add(size_t a, size_t b);

#endif
