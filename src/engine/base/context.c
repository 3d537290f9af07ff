/* SPDX-License-Identifier: MIT */
#include "base/context.h"

#include "base/cgroup.h"
#include "base/integers.h"
#include "base/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- allocator */

static void *system_alloc(void *user, size_t size, size_t align)
{
    (void)user;
    return attn__system_alloc(size, align);
}

static void system_release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    attn__system_release(memory);
}

/* Each block begins with a header that holds its size. The header is as large as the alignment, so that the data after
 * it are aligned. */
enum { ALIGN = 64 };

size_t attn__size_mul(size_t a, size_t b)
{
    return b != 0 && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

size_t attn__size_add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static void count_allocation(attn_context *context, size_t size)
{
    size_t held = atomic_fetch_add(&context->held, size) + size;
    size_t peak = atomic_load(&context->peak);
    while (held > peak && !atomic_compare_exchange_weak(&context->peak, &peak, held)) {
    }
    atomic_fetch_add(&context->allocations, 1);
}

void *attn__alloc(attn_context *context, size_t size)
{
    size_t whole = attn__size_add(size, ALIGN);
    char *block = whole == SIZE_MAX ? NULL : context->allocator.alloc(context->allocator.user, whole, ALIGN);
    if (!block) {
        attn__fail_memory(context, size);
        return NULL;
    }
    memcpy(block, &size, sizeof size);
    count_allocation(context, size);
    return block + ALIGN;
}

void *attn__alloc_zero(attn_context *context, size_t size)
{
    void *memory = attn__alloc(context, size);
    return memory ? memset(memory, 0, size) : NULL;
}

static size_t block_size(const void *memory)
{
    size_t size;
    memcpy(&size, (const char *)memory - ALIGN, sizeof size);
    return size;
}

void attn__free(attn_context *context, void *memory)
{
    if (!memory)
        return;
    size_t size = block_size(memory);
    atomic_fetch_sub(&context->held, size);
    context->allocator.release(context->allocator.user, (char *)memory - ALIGN, size + ALIGN);
}

void *attn__realloc(attn_context *context, void *memory, size_t size)
{
    void *fresh = attn__alloc(context, size);
    if (fresh && memory) {
        size_t old = block_size(memory);
        memcpy(fresh, memory, old < size ? old : size);
        attn__free(context, memory);
    }
    return fresh;
}

void *attn__grow(attn_context *context, void *items, int64_t n, size_t size)
{
    enum { FIRST = 16 };
    if (items && attn__size_mul((size_t)n + 1, size) <= block_size(items))
        return items;
    return attn__realloc(context, items, attn__size_mul(2 * (size_t)n + FIRST, size));
}

void *attn__context_scratch(attn_context *context, size_t size)
{
    if (context->scratch.data && context->scratch.size >= size)
        return context->scratch.data;
    attn__free(context, context->scratch.data);
    context->scratch.data = attn__alloc(context, size);
    context->scratch.size = context->scratch.data ? size : 0;
    return context->scratch.data;
}

void attn__context_scratch_end(attn_context *context)
{
    const size_t kept = (size_t)1 << 26;
    if (context->scratch.size <= kept)
        return;
    attn__free(context, context->scratch.data);
    context->scratch.data = NULL;
    context->scratch.size = 0;
}

char *attn__strdup(attn_context *context, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = attn__alloc(context, size);
    return copy ? memcpy(copy, text, size) : NULL;
}

bool attn__ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---------------------------------------------------------------------------------------------- errors */

/* Locks the error fields, because threads that share a plan may fail at the same time. */
static void hold_error(attn_context *context)
{
    while (atomic_flag_test_and_set(&context->noting)) {
    }
}

/* Error of the last function that has no context, in this thread. */
static _Thread_local attn__error without_context;

static void record(attn__error *error, attn_status status, const char *format, va_list arguments)
{
    if (error->status != ATTN_OK)
        return;
    vsnprintf(error->text, sizeof error->text, format, arguments);
    error->status = status;
}

static void release_error(attn_context *context)
{
    atomic_flag_clear(&context->noting);
}

/* Returns the error of the last call or, if it did not fail, the error that the calls with a tape have kept. */
static const attn__error *shown(const attn_context *context)
{
    return context->last.status != ATTN_OK ? &context->last : &context->kept;
}

const attn__error *attn__call_error(const attn_context *context)
{
    if (context->depth == 0)
        return shown(context);
    return context->on_tape ? &context->kept : &context->last;
}

attn_status attn__fail(attn_context *context, attn_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (context) {
        hold_error(context);
        context->failures++;
        record((attn__error *)attn__call_error(context), status, format, arguments);
        release_error(context);
    } else {
        record(&without_context, status, format, arguments);
    }
    va_end(arguments);
    return status;
}

attn_context *attn__call_enter(attn_context *context, bool on_tape)
{
    if (!context) {
        without_context.status = ATTN_OK;
        return NULL;
    }
    hold_error(context);
    if (context->depth++ == 0) {
        context->on_tape = on_tape;
        context->last.status = ATTN_OK;
    }
    release_error(context);
    return context;
}

void attn__call_leave(attn_context *const *context)
{
    if (!*context)
        return;
    hold_error(*context);
    (*context)->depth--;
    release_error(*context);
}

void attn__call_forget(attn_context *context)
{
    hold_error(context);
    ((attn__error *)attn__call_error(context))->status = ATTN_OK;
    release_error(context);
}

void attn__kept_error_drop(attn_context *context)
{
    if (context->depth <= 1)
        context->kept.status = ATTN_OK;
}

attn_status attn__result_status(attn_context *context, const void *result)
{
    if (result)
        return ATTN_OK;
    attn_status status = attn__call_status(context);
    return status != ATTN_OK
               ? status
               : attn__fail(context, ATTN_ERROR_INTERNAL, "the result is missing, and no error was reported");
}

attn_status attn__check_choice(attn_context *context, const char *what, int value, int last)
{
    if (value >= 0 && value <= last)
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s is %d; it must be between 0 and %d", what, value, last);
}

attn_status attn__check_reserved(attn_context *context, const void *reserved, size_t size, const char *type)
{
    return attn__all_zero(reserved, size)
               ? ATTN_OK
               : attn__fail(context, ATTN_ERROR_ARGUMENT, "%s: a reserved field is not zero", type);
}

attn_status attn__fail_memory(attn_context *context, size_t size)
{
    if (size == SIZE_MAX)
        return attn__fail(context, ATTN_ERROR_MEMORY, "out of memory: the requested size overflows");
    return attn__fail(context, ATTN_ERROR_MEMORY, "out of memory: %zu bytes requested", size);
}

attn_status attn_context_status(const attn_context *context)
{
    return context ? shown(context)->status : ATTN_ERROR_ARGUMENT;
}

const char *attn_context_error(const attn_context *context)
{
    if (context)
        return attn__error_text(shown(context));
    return without_context.status != ATTN_OK ? without_context.text : "there is no context";
}

void attn_context_clear_error(attn_context *context)
{
    if (!context)
        return;
    context->last.status = ATTN_OK;
    context->kept.status = ATTN_OK;
}

void attn_context_set_progress(attn_context *context,
                               bool (*work)(void *user, const char *things, int64_t done, int64_t total), void *user)
{
    context->work = work;
    context->work_user = user;
}

void attn_context_set_inference(attn_context *context, bool inference)
{
    context->inference = inference;
}

attn_status attn__work(attn_context *context, const char *things, int64_t done, int64_t total)
{
    bool heard = context->work && !context->work_around;
    if (!heard || context->work(context->work_user, things, done, total))
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_INTERRUPTED, "stopped after %lld of %lld %s", (long long)done,
                      (long long)total, things);
}

attn_status attn__work_around(attn_context *context, const char *things, int64_t done, int64_t total)
{
    context->work_around = false;
    attn_status status = total > 0 ? attn__work(context, things, done, total) : ATTN_OK;
    context->work_around = status == ATTN_OK && done < total;
    return status;
}

/* --------------------------------------------------------------------------------------------- context */

static int threads_from(const char *variable)
{
    const char *text = getenv(variable);
    long threads = text ? strtol(text, NULL, 10) : 0;
    return threads > 0 && threads <= ATTN__MAX_THREADS ? (int)threads : 0;
}

static int default_threads(void)
{
    int threads = threads_from("ATTN_THREADS");
    if (!threads)
        threads = threads_from("OMP_NUM_THREADS");
    if (!threads)
        threads = attn__process_cores(attn__usable_cores(), attn__cgroup_cores(""));
    return threads < ATTN__MAX_THREADS ? threads : ATTN__MAX_THREADS;
}

/* Chooses the instruction set: the set that `name` or ATTN_ISA names, or else the machine's best set. The best set is
 * detected only if no set is named. Detection requests AMX from the system, and then the state of AMX may not fit the
 * signal stacks of a process. */
static attn_status choose_isa(const char *name, attn__isa *isa)
{
    if (!name)
        name = getenv("ATTN_ISA");
    if (!name || !*name) {
        *isa = attn__isa_best();
        return ATTN_OK;
    }
    if (!attn__isa_parse(name, isa))
        return attn__fail(
            NULL, ATTN_ERROR_NOT_FOUND,
            "attn_context_create: there is no instruction set \"%.40s\" (isa or ATTN_ISA); supported: scalar, neon, "
            "avx2, avx512, avx512bf16, amx",
            name);
    if (attn__isa_runs_here(*isa))
        return ATTN_OK;
    return attn__fail(NULL, ATTN_ERROR_UNSUPPORTED,
                      "attn_context_create: this machine does not run the instruction set %s (isa or ATTN_ISA)", name);
}

static attn_status choose_precision(attn_precision given, attn_precision *precision)
{
    const char *name = getenv("ATTN_PRECISION");
    *precision = given != ATTN_PRECISION_DEFAULT ? given : ATTN_PRECISION_F32;
    if (given == ATTN_PRECISION_DEFAULT && name && *name && !attn_precision_find(precision, name))
        return attn__fail(
            NULL, ATTN_ERROR_ARGUMENT,
            "attn_context_create: there is no precision \"%.40s\" (ATTN_PRECISION); supported: f32, fma, bf16, int8",
            name);
    if ((unsigned)(*precision - 1) < ATTN_PRECISION_INT8)
        return ATTN_OK;
    return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "attn_context_create: precision is %d; it must be between 0 and %d",
                      (int)given, (int)ATTN_PRECISION_INT8);
}

static attn_status choose_batch_invariant(bool given, bool *batch_invariant)
{
    const char *text = getenv("ATTN_BATCH_INVARIANT");
    bool set = text && *text;
    *batch_invariant = given || (set && strcmp(text, "1") == 0);
    if (given || !set || strcmp(text, "0") == 0 || strcmp(text, "1") == 0)
        return ATTN_OK;
    return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "attn_context_create: ATTN_BATCH_INVARIANT is \"%.40s\", not 0 or 1",
                      text);
}

static attn_status check_options(const attn_context_options *o)
{
    /* Both functions must be given or none, because memory must be freed by the allocator that allocated it. */
    if (!o->allocator.alloc != !o->allocator.release)
        return attn__fail(NULL, ATTN_ERROR_ARGUMENT,
                          "attn_context_create: the allocator has %s, but %s is NULL; give both functions or none",
                          o->allocator.alloc ? "alloc" : "release", o->allocator.alloc ? "release" : "alloc");
    if (o->threads < 0 || o->threads > ATTN__MAX_THREADS)
        return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "attn_context_create: threads is %d; it must be 0 to %d",
                          o->threads, ATTN__MAX_THREADS);
    return attn__check_reserved(NULL, o->reserved, sizeof o->reserved, "attn_context_options");
}

attn_status attn_context_create(attn_context **context, const attn_context_options *options)
{
    static const attn_context_options defaults;
    const attn_context_options *o = options ? options : &defaults;
    attn_allocator allocator = o->allocator;
    ATTN__CALL(NULL);
    *context = NULL;
    attn__isa isa;
    attn_precision precision;
    bool batch_invariant = false;
    attn_status status = check_options(o);
    if (status == ATTN_OK)
        status = choose_isa(o->isa, &isa);
    if (status == ATTN_OK)
        status = choose_precision(o->precision, &precision);
    if (status == ATTN_OK)
        status = choose_batch_invariant(o->batch_invariant, &batch_invariant);
    if (status != ATTN_OK)
        return status;
    if (!allocator.alloc)
        allocator = (attn_allocator){system_alloc, system_release, NULL};
    attn_context *made = allocator.alloc(allocator.user, sizeof *made, ALIGN);
    if (!made)
        return attn__fail_memory(NULL, sizeof *made);
    memset(made, 0, sizeof *made);
    atomic_flag_clear(&made->noting);
    made->allocator = allocator;
    made->threads = o->threads ? o->threads : default_threads();
    made->precision = precision;
    made->batch_invariant = batch_invariant;
    /* Batch invariance excludes AMX, because the AMX code chooses its methods by sizes that depend on the batch. */
    made->isa = precision == ATTN_PRECISION_FMA || batch_invariant ? attn__isa_without_amx(isa) : isa;
    made->caches = *attn__caches_here();
    made->log = o->log;
    made->log_user = o->log_user;
    made->verbose = o->verbose;
    *context = made;
    return ATTN_OK;
}

void attn_context_destroy(attn_context *context)
{
    if (!context)
        return;
    if (context->leave_ranks)
        context->leave_ranks(context);
    if (context->release_wisdom)
        context->release_wisdom(context, context->wisdom);
    attn__free(context, context->scratch.data);
    context->allocator.release(context->allocator.user, context, sizeof *context);
}

int attn_context_threads(const attn_context *context)
{
    return context->threads;
}

const char *attn_context_isa(const attn_context *context)
{
    return attn__isa_text(context->isa);
}

attn_precision attn_context_precision(const attn_context *context)
{
    return context->precision;
}

void attn_context_memory(const attn_context *context, size_t *held, size_t *peak, uint64_t *allocations)
{
    if (held)
        *held = atomic_load(&context->held);
    if (peak)
        *peak = atomic_load(&context->peak);
    if (allocations)
        *allocations = atomic_load(&context->allocations);
}

void attn_bytes_free(attn_context *context, attn_bytes *bytes)
{
    attn__free(context, bytes->data);
    *bytes = (attn_bytes){0};
}
