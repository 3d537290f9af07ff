/* SPDX-License-Identifier: MIT
 * Implements sums and messages among ranks. If one rank fails, all ranks end, because every wait also ends when another
 * rank reports a failure. */
#include "dist/ranks.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* An entry in the list of memory that MPI may still write to, because a sum is unfinished. */
typedef struct kept {
    struct kept *next;
    void *memory;
} kept;

struct attn__ranks {
    const attn__ranks_ops *ops;
    int rank, size;
    attn_status broken; /* ATTN_OK, or the status of the failure after which started sums can never finish */
    bool agreed;        /* every rank has received the error message of the failure */
    bool left;          /* rank 0 has announced that it leaves the group of ranks */
    kept *kept;
    bool (*stop)(void *user);
    void *user;
};
typedef struct attn__ranks ranks;

/* A message to all other ranks. A rank that aborts sends its error message. Rank 0 also sends a message when it leaves,
 * so that no other rank waits for rank 0 afterwards. */
typedef struct notice {
    int32_t status;
    int32_t leaving;
    char text[ATTN__RANKS_NOTICE - 2 * sizeof(int32_t)];
} notice;
_Static_assert(sizeof(notice) == ATTN__RANKS_NOTICE, "a notice is what a module sends");

int attn_ranks_rank(const attn_context *context)
{
    return context && context->ranks ? context->ranks->rank : 0;
}

int attn_ranks_size(const attn_context *context)
{
    return context && context->ranks ? context->ranks->size : 1;
}

bool attn__ranks_many(const attn_context *context)
{
    return attn_ranks_size(context) > 1;
}

bool attn__ranks_first(const attn_context *context)
{
    return attn_ranks_rank(context) == 0;
}

int64_t attn__ranks_share(const attn_context *context, int64_t n, int64_t *first)
{
    int64_t rank = attn_ranks_rank(context), size = attn_ranks_size(context);
    /* the quotient and the remainder of n / size are multiplied separately, because n * rank could overflow */
    int64_t each = n / size, rest = n % size;
    *first = each * rank + rest * rank / size;
    return each * (rank + 1) + rest * (rank + 1) / size - *first;
}

void attn_ranks_set_stop(attn_context *context, bool (*stop)(void *user), void *user)
{
    if (!context->ranks)
        return;
    context->ranks->stop = stop;
    context->ranks->user = user;
}

attn_status attn__ranks_join_with(attn_context *context, const attn__ranks_ops *ops)
{
    char why[200];
    ranks *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->ops = ops;
    int error = ops->start(&made->rank, &made->size);
    if (error) {
        ops->text(error, why, sizeof why);
        attn__free(context, made);
        return attn__fail(context, ATTN_ERROR_IO, "%s does not start: %s", ops->name, why);
    }
    context->ranks = made;
    context->leave_ranks = attn_ranks_leave;
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------- aborting */

static attn_status break_with(attn_context *context, attn_status status)
{
    context->ranks->broken = status;
    return status;
}

static const char *error_or(const attn_context *context, attn_status status)
{
    const attn__error *error = attn__call_error(context);
    return error->status != ATTN_OK ? error->text : attn_status_text(status);
}

static void tell(const attn_context *context, attn_status status, bool leaving)
{
    notice said = {.status = (int32_t)status, .leaving = leaving};
    snprintf(said.text, sizeof said.text, "%s", error_or(context, status));
    /* the result is ignored, because a rank that does not get the message still detects that this process has ended */
    (void)context->ranks->ops->tell(&said);
}

void attn__ranks_give_up(attn_context *context, attn_status status)
{
    ranks *r = context->ranks;
    if (!r || r->broken != ATTN_OK || r->agreed)
        return;
    tell(context, status, false);
    (void)break_with(context, status);
}

void attn__ranks_all_know(attn_context *context)
{
    if (context->ranks)
        context->ranks->agreed = true;
}

static attn_status fail_transport(attn_context *context, int error)
{
    char why[200];
    context->ranks->ops->text(error, why, sizeof why);
    return break_with(context,
                      attn__fail(context, ATTN_ERROR_IO, "another process of this run cannot be reached: %s", why));
}

/* Receives a message of another rank, if there is one. Returns that rank's status if it aborted. If rank 0 announces
 * that it is leaving, this is recorded in `left`. */
static attn_status hear(attn_context *context)
{
    ranks *r = context->ranks;
    notice heard;
    int from;
    bool any;
    int error = r->ops->heard(&heard, &from, &any);
    if (error)
        return fail_transport(context, error);
    if (!any)
        return ATTN_OK;
    r->left = r->left || heard.leaving;
    if (heard.leaving && heard.status == ATTN_OK)
        return ATTN_OK;
    heard.text[sizeof heard.text - 1] = '\0';
    attn_status status = (attn_status)heard.status;
    return break_with(context, attn__fail(context, status, "rank %d: %.400s", from, heard.text));
}

/* Handles messages of other ranks first, and only then calls `stop`. When a rank fails, its message and mpirun's
 * SIGTERM may arrive together. The message has the reason of the failure, so the message takes precedence. */
attn_status attn__ranks_poll(attn_context *context)
{
    ranks *r = context->ranks;
    if (!r || r->size == 1)
        return ATTN_OK;
    if (r->broken != ATTN_OK)
        return r->broken;
    attn_status status = hear(context);
    if (status == ATTN_OK && r->stop && r->stop(r->user)) {
        status = attn__fail(context, ATTN_ERROR_INTERRUPTED,
                            "this process was stopped while it waited for the other processes of the run");
        attn__ranks_give_up(context, status);
    }
    return status;
}

/* ----------------------------------------------------------------------------------------------- sums */

attn_status attn__ranks_sum_begin(attn_context *context, void *data, int64_t n, attn__ranks_sum_kind kind,
                                  attn__ranks_request *request)
{
    *request = (attn__ranks_request){{NULL, NULL}};
    if (!attn__ranks_many(context))
        return ATTN_OK;
    if (context->ranks->broken != ATTN_OK)
        return context->ranks->broken;
    int error = context->ranks->ops->sum(data, n, kind, request);
    return error ? fail_transport(context, error) : ATTN_OK;
}

attn_status attn__ranks_test(attn_context *context, attn__ranks_request *request, bool *done)
{
    *done = true;
    if (!attn__ranks_many(context))
        return ATTN_OK;
    if (context->ranks->broken != ATTN_OK)
        return context->ranks->broken;
    int error = context->ranks->ops->test(request, done);
    return error ? fail_transport(context, error) : ATTN_OK;
}

attn_status attn__ranks_wait(attn_context *context, attn__ranks_request *request)
{
    bool done = false;
    attn_status status = attn__ranks_test(context, request, &done);
    while (status == ATTN_OK && !done) {
        status = attn__ranks_poll(context);
        if (status == ATTN_OK)
            status = attn__ranks_test(context, request, &done);
        if (!done) /* let other ranks use this core, because there may be more ranks than cores */
            sched_yield();
    }
    return status;
}

attn_status attn__ranks_await(attn_context *context, bool (*done)(const void *user), const void *user)
{
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && !done(user)) {
        status = attn__ranks_poll(context);
        sched_yield();
    }
    return status;
}

bool attn__ranks_together(const attn_context *context)
{
    return attn__ranks_many(context) && context->ranks->ops->together && context->ranks->ops->together();
}

void attn__ranks_free(attn_context *context, void *memory)
{
    ranks *r = context->ranks;
    if (!memory || !r || r->broken == ATTN_OK) {
        attn__free(context, memory);
        return;
    }
    kept *k = attn__alloc(context, sizeof *k);
    /* If there is no memory for the list entry, `memory` is never freed. This is harmless, because the process is about
     * to end. */
    if (k) {
        *k = (kept){r->kept, memory};
        r->kept = k;
    }
}

/* Copies the data, so that the caller can free them before the sum ends. */
static void *copy_of(attn_context *context, const void *data, size_t bytes)
{
    void *copy = attn__alloc(context, bytes);
    if (copy)
        memcpy(copy, data, bytes);
    else
        attn__ranks_give_up(context, ATTN_ERROR_MEMORY);
    return copy;
}

static attn_status bring_back(attn_context *context, attn_status status, void *data, void *copy, size_t bytes)
{
    if (status == ATTN_OK)
        memcpy(data, copy, bytes);
    attn__ranks_free(context, copy);
    return status;
}

attn_status attn__ranks_sum(attn_context *context, void *data, int64_t n, attn__ranks_sum_kind kind)
{
    attn__ranks_request request;
    size_t bytes = attn__size_mul((size_t)n, kind == ATTN__SUM_F32 ? sizeof(float) : sizeof(double));
    if (!attn__ranks_many(context))
        return ATTN_OK;
    void *copy = copy_of(context, data, bytes);
    if (!copy)
        return ATTN_ERROR_MEMORY;
    attn_status status = attn__ranks_sum_begin(context, copy, n, kind, &request);
    if (status == ATTN_OK)
        status = attn__ranks_wait(context, &request);
    return bring_back(context, status, data, copy, bytes);
}

attn_status attn__ranks_broadcast(attn_context *context, void *data, size_t bytes, int from)
{
    attn__ranks_request request = {{NULL, NULL}};
    if (context->ranks->broken != ATTN_OK)
        return context->ranks->broken;
    void *copy = copy_of(context, data, bytes);
    if (!copy)
        return ATTN_ERROR_MEMORY;
    int error = context->ranks->ops->broadcast(copy, (int64_t)bytes, from, &request);
    attn_status status = error ? fail_transport(context, error) : attn__ranks_wait(context, &request);
    return bring_back(context, status, data, copy, bytes);
}

/* ---------------------------------------------------------------------------------------------- agreeing */

/* Gathers each rank's `value` in a new array *values, with one element per rank. The caller frees the array. */
static attn_status all_values(attn_context *context, uint64_t value, uint64_t **values)
{
    const ranks *r = context->ranks;
    *values = attn__alloc_zero(context, attn__size_mul((size_t)r->size, sizeof **values));
    if (!*values) /* not known yet */
        attn__ranks_give_up(context, ATTN_ERROR_MEMORY);
    else
        (*values)[r->rank] = value;
    return *values ? attn__ranks_sum(context, *values, r->size, ATTN__MAX_U64) : ATTN_ERROR_MEMORY;
}

attn_status attn__ranks_same(attn_context *context, uint64_t value, const char *what)
{
    if (!attn__ranks_many(context))
        return ATTN_OK;
    uint64_t *values;
    attn_status status = all_values(context, value, &values);
    for (int i = 1; status == ATTN_OK && i < context->ranks->size; i++) {
        if (values[i] != values[0]) {
            status = attn__fail(context, ATTN_ERROR_ARGUMENT, "rank %d %s", i, what);
            attn__ranks_all_know(context);
        }
    }
    attn__free(context, values);
    return status;
}

attn_status attn_ranks_agree(attn_context *context, attn_status status, const char *text)
{
    if (!attn__ranks_many(context) || context->ranks->broken != ATTN_OK || context->ranks->agreed)
        return status;
    uint64_t *values;
    attn_status asked = all_values(context, (uint64_t)status, &values);
    int failed = 0;
    while (asked == ATTN_OK && failed < context->ranks->size && values[failed] == (uint64_t)ATTN_OK)
        failed++;
    attn_status first = asked == ATTN_OK && failed < context->ranks->size ? (attn_status)values[failed] : ATTN_OK;
    attn__free(context, values);
    if (asked != ATTN_OK || first == ATTN_OK)
        return asked;
    char line[512];
    snprintf(line, sizeof line, "%s", text ? text : error_or(context, first));
    asked = attn__ranks_broadcast(context, line, sizeof line, failed);
    if (asked != ATTN_OK)
        return asked;
    attn__ranks_all_know(context);
    if (context->ranks->rank == failed)
        return first;
    attn__call_forget(context); /* the error of the lowest failed rank replaces this rank's own error */
    line[sizeof line - 1] = '\0';
    return attn__fail(context, first, "rank %d: %.480s", failed, line);
}

/* Broadcasts data in pieces. Pieces are needed because an MPI module counts bytes in an int, and copies each piece
 * while it is sent. */
static attn_status broadcast_pieces(attn_context *context, char *data, size_t bytes, int from)
{
    attn_status status = ATTN_OK;
    for (size_t at = 0; at < bytes && status == ATTN_OK; at += ATTN__RANKS_PIECE) {
        size_t left = bytes - at;
        status = attn__ranks_broadcast(context, data + at, left < ATTN__RANKS_PIECE ? left : ATTN__RANKS_PIECE, from);
    }
    return status;
}

attn_status attn_ranks_text(attn_context *context, int from, char **text, size_t *size)
{
    if (!attn__ranks_many(context))
        return ATTN_OK;
    bool mine = attn_ranks_rank(context) == from;
    uint64_t length = mine ? *size : 0;
    attn_status status = attn__ranks_sum(context, &length, 1, ATTN__MAX_U64);
    if (status != ATTN_OK)
        return status;
    if (!mine) {
        *size = (size_t)length;
        *text = attn__alloc_zero(context, attn__size_add((size_t)length, 1));
    }
    if (!*text) { /* without memory, this rank must abort, because the other ranks wait for this rank */
        attn__ranks_give_up(context, ATTN_ERROR_MEMORY);
        return ATTN_ERROR_MEMORY;
    }
    status = broadcast_pieces(context, *text, (size_t)length, from);
    if (status != ATTN_OK && !mine) {
        attn__free(context, *text);
        *text = NULL;
    }
    return status;
}

void attn_ranks_text_free(attn_context *context, char *text)
{
    attn__free(context, text);
}

/* ----------------------------------------------------------------------------------------------- parting */

/* Waits at most 20 seconds until rank 0 announces that it is leaving. Rank 0 must first save and print its results, and
 * mpirun ends all processes when one process ends. */
static void await_first(attn_context *context)
{
    enum { MILLISECONDS = 20000 };
    ranks *r = context->ranks;
    for (int i = 0; i < MILLISECONDS && !r->left; i++) {
        (void)hear(context);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

void attn_ranks_leave(attn_context *context)
{
    ranks *r = context->ranks;
    if (!r)
        return;
    /* All ranks call attn_ranks_agree before they leave, unless they have agreed on a failure already. The other ranks
     * wait in that call. */
    if (r->broken == ATTN_OK && !r->agreed)
        (void)attn_ranks_agree(context, attn_context_status(context), NULL);
    if (r->broken == ATTN_OK)
        r->ops->finish();
    else if (r->rank == 0)
        tell(context, r->broken, true);
    else
        await_first(context);
    context->ranks = NULL;
    while (r->kept) {
        kept *k = r->kept;
        r->kept = k->next;
        attn__free(context, k->memory);
        attn__free(context, k);
    }
    attn__free(context, r);
}
