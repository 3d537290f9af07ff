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

typedef struct attn__error {
    attn_status status;
    char text[512]; /* of the newest error, also after the status has become ATTN_OK */
} attn__error;

struct attn_context {
    attn_allocator allocator;
    int threads;
    attn__isa isa;
    attn_precision precision; /* never DEFAULT */
    bool batch_invariant;
    bool inference; /* bf16 and int8 models created without weights in this context cannot be trained */
    attn__caches caches;
    atomic_flag noting; /* locked while one of the five fields below is read or written */
    int depth;          /* number of calls (ATTN__CALL) that are in progress, one inside of the other */
    bool on_tape;       /* the outermost of these calls takes a tape */
    attn__error last;   /* error of the outermost call, or of the last one if none is in progress */
    attn__error kept;   /* first error of the calls that take a tape, since attn_tape_reset */
    uint64_t failures;  /* number of all errors passed to attn__fail, recorded or not */
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
    struct {
        void *data;
        size_t size;
    } scratch; /* of attn__context_scratch */
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

/* Records an error, unless the outermost call has recorded one before, and returns `status`. If `context` is NULL, the
 * error is that of a function without a context, and attn_context_error(NULL) returns it in this thread. Several
 * threads may call this at once, but no thread may read the error at that time. */
attn_status attn__fail(attn_context *context, attn_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses an enum value outside of 0 to `last`, which a caller built for another version may pass. */
attn_status attn__check_choice(attn_context *context, const char *what, int value, int last);

/* Implements the rule of attn_context_status (attn.h). Each public function that can fail begins with one of these two
 * statements. ATTN__TAPE_CALL is for functions that take a tape, and ATTN__CALL for all others. The call ends where its
 * block ends. If the library calls a public function, the outermost call alone clears and keeps the error. */
#define ATTN__CALL(context)      ATTN__CALL_OF(context, false)
#define ATTN__TAPE_CALL(context) ATTN__CALL_OF(context, true)
#define ATTN__CALL_OF(context, on_tape)                                                                                \
    attn_context *attn__caller __attribute__((cleanup(attn__call_leave), unused)) =                                    \
        attn__call_enter((context), (on_tape))
attn_context *attn__call_enter(attn_context *context, bool on_tape);
void attn__call_leave(attn_context *const *context);
/* Returns the error of the outermost call, whose status is ATTN_OK if nothing has failed. Outside of calls, as in a
 * layer that a test runs alone, it is the error that attn_context_status shows. */
const attn__error *attn__call_error(const attn_context *context);
static inline attn_status attn__call_status(const attn_context *context)
{
    return attn__call_error(context)->status;
}
static inline const char *attn__error_text(const attn__error *error)
{
    return error->status != ATTN_OK ? error->text : "";
}
/* Clears the error of the outermost call. Use it where the library recovers from an error. */
void attn__call_forget(attn_context *context);
/* Returns the status of a function that returns `result`, or NULL if it fails. The status is that of the error of this
 * call, and ATTN_ERROR_INTERNAL if the function returned NULL without an error. */
attn_status attn__result_status(attn_context *context, const void *result);
/* Discards the error that the earlier calls with a tape have kept, if the caller is the outermost call. */
void attn__kept_error_drop(attn_context *context);

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
bool attn__ends_with(const char *text, const char *end);
void attn__free(attn_context *context, void *memory); /* `memory` may be NULL; thread-safe */

/* Returns at least `size` bytes of scratch memory, aligned to 64 bytes, not cleared. The memory stays valid until the next
 * call or attn__context_scratch_end. Returns NULL and records ATTN_ERROR_MEMORY if there is no memory. */
void *attn__context_scratch(attn_context *context, size_t size);
/* Ends the use of the scratch memory. A few megabytes of it are kept for the next call. */
void attn__context_scratch_end(attn_context *context);

/* Multiply or add two sizes. If the result is too large for size_t, they return SIZE_MAX. */
size_t attn__size_mul(size_t a, size_t b);
size_t attn__size_add(size_t a, size_t b);

#endif
