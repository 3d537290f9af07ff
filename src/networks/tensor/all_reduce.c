/* SPDX-License-Identifier: MIT
 *
 * Exchanges gradients between ranks during the backward pass. This file tracks which gradients are final and which
 * buckets are being summed. */
#include "tensor/all_reduce_inner.h"

#include "base/clock.h"
#include "tensor/parts.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------- a step */

void attn__all_reduce_begin(attn__all_reduce *e, attn_tape *tape, bool more)
{
    tape->all_reduce = e;
    if (more)
        return;
    e->status = ATTN_OK;
    e->started = e->finished = 0;
    for (int64_t i = 0; i < e->still.n; i++) {
        const attn_tensor *x = attn_named_find(e->parameters, e->still.items[i].name);
        memcpy(e->still.items[i].tensor->data, x->data, attn__tensor_bytes(x));
    }
    e->open = true;
}

/* Polls the other ranks between operations. If ranks share memory, it polls only once per millisecond, because sums
 * then need no messages. A poll of MPI costs a microsecond, and small networks have hundreds of operations. */
static void listen(attn__all_reduce *e)
{
    const double often = 1e-3;
    double now = e->shared ? attn__now() : 0;
    if (e->status != ATTN_OK || (e->shared && now - e->listened < often))
        return;
    e->listened = now;
    e->status = attn__ranks_poll(e->context);
}

bool attn__all_reduce_continues(attn__all_reduce *e)
{
    listen(e);
    return e->status == ATTN_OK;
}

bool attn__grad_place(attn_tensor *x)
{
    /* the storage has no data, because the gradient's memory belongs to the bucket */
    x->grad->storage = attn__storage_create(x->context, NULL, 0);
    x->grad->data = x->grad->storage ? x->place : NULL;
    return x->grad->storage != NULL;
}

static bool has_gradient(const attn_tensor *x)
{
    return x->grad && x->grad->storage && !x->grad->zero_pending;
}

static void start_bucket(attn__all_reduce *e, int64_t index)
{
    attn__bucket *b = &e->buckets[index];
    for (int64_t k = 0; k < b->n; k++) {
        const attn__slot *s = &e->slots[b->first + k];
        bool has = has_gradient(s->parameter);
        if (!has)
            memset(s->parameter->place, 0, attn__tensor_bytes(s->parameter));
        b->data[s->flag] = has ? 1 : 0;
    }
    b->done = false;
    if (e->shared)
        attn__shared_send(e, index);
    else
        e->status = attn__ranks_sum_begin(e->context, b->data, b->size, ATTN__SUM_F32, &b->request);
}

static void start_ready(attn__all_reduce *e)
{
    while (e->status == ATTN_OK && e->started < e->nbuckets && e->buckets[e->started].open == 0)
        start_bucket(e, e->started++);
}

/* Polls the sums that have started, because MPI hardly advances a sum that is not polled. */
static void advance(attn__all_reduce *e)
{
    for (int64_t i = e->finished; e->status == ATTN_OK && i < e->started; i++) {
        attn__bucket *b = &e->buckets[i];
        if (e->shared && !(b->done = attn__shared_test(e, i)))
            /* leave the loop: buckets must finish in order, so that their sums of squares are always added in the same
             * order */
            break;
        if (!b->done)
            e->status = attn__ranks_test(e->context, &b->request, &b->done);
        e->finished += b->done && e->finished == i;
    }
}

static void close_slot(attn__all_reduce *e, int64_t index)
{
    attn__slot *s = &e->slots[index];
    if (--s->uses == 0 && e->hidden == 0)
        e->buckets[s->bucket].open--;
}

/* Marks slots as final after the last node with hidden parameters, which are parameters that are not among the node's
 * inputs. Before that node, no slot is final, because any parameter may be hidden. Slots with other unfinished nodes
 * stay open. */
static void close_hidden(attn__all_reduce *e)
{
    for (int64_t i = 0; i < e->nslots; i++)
        e->buckets[e->slots[i].bucket].open -= e->slots[i].uses == 0;
}

void attn__all_reduce_node(attn__all_reduce *e, attn_tape *tape, const attn__node *node)
{
    for (int i = 0; i < node->nx && tape->section == 0; i++)
        if (node->x[i] && node->x[i]->slot > 0)
            close_slot(e, node->x[i]->slot - 1);
    if (tape->section == 0 && node->hidden && --e->hidden == 0)
        close_hidden(e);
    start_ready(e);
    advance(e);
    listen(e);
    tape->failed = tape->failed || e->status != ATTN_OK;
}

/* Counts for each parameter the operations that must run before its gradient is final. Must be called before the
 * backward pass. */
static void count_uses(attn__all_reduce *e, const attn_tape *tape)
{
    e->hidden = 0;
    for (int64_t i = 0; i < e->nslots; i++)
        e->slots[i].uses = 0;
    for (const attn__node *node = tape->nodes; node; node = node->previous) {
        e->hidden += node->hidden;
        for (int i = 0; i < node->nx; i++)
            if (node->x[i] && node->x[i]->slot > 0)
                e->slots[node->x[i]->slot - 1].uses++;
    }
    for (int64_t i = 0; i < e->nbuckets; i++)
        e->buckets[i].open = e->buckets[i].n;
    /* a parameter that is not the input of any operation gets no gradient in this pass, so its slot is final at once */
    if (e->hidden == 0)
        close_hidden(e);
}

/* Gives each parameter a gradient if any rank has one for it. A parameter without a gradient on all ranks is skipped by
 * the optimizer. */
static attn_status settle_gradients(attn__all_reduce *e)
{
    for (int64_t i = 0; i < e->nslots; i++) {
        const attn__slot *s = &e->slots[i];
        attn_tensor *x = s->parameter;
        bool some = e->buckets[s->bucket].data[s->flag] > 0;
        if (some && !has_gradient(x)) { /* others have it */
            if (!x->grad && !(x->grad = attn__alloc_zero(x->context, sizeof *x->grad)))
                return ATTN_ERROR_MEMORY;
            attn_status status = attn__tensor_describe(x->context, x->grad, x->dtype, x->rank, x->shape);
            if (status != ATTN_OK || (!x->grad->storage && !attn__grad_place(x)))
                return ATTN_ERROR_MEMORY;
            x->grad->zero_pending = false;
        }
    }
    return ATTN_OK;
}

static attn_status finish_shared(attn__all_reduce *e)
{
    for (int64_t i = e->finished; e->status == ATTN_OK && i < e->nbuckets; i++)
        if (!e->buckets[i].done)
            e->status = attn__shared_wait(e, i);
    return e->status == ATTN_OK ? attn__shared_finish(e) : e->status;
}

static attn_status finish(attn__all_reduce *e)
{
    double began = attn__now();
    for (int64_t i = e->finished; e->status == ATTN_OK && i < e->nbuckets; i++) {
        attn__bucket *b = &e->buckets[i];
        if (!b->done)
            e->status = attn__ranks_wait(e->context, &b->request);
        b->done = true;
    }
    if (e->status == ATTN_OK)
        e->status = attn__ranks_wait(e->context, &e->totals_request);
    e->waited += attn__seconds_since(began);
    return e->status == ATTN_OK ? settle_gradients(e) : e->status;
}

/* Checks the loss, and prepares a backward pass. In the first pass, this function also determines where each gradient
 * is stored. */
static attn_status prepare(attn__all_reduce *e, const attn_tensor *loss, attn_tape *tape)
{
    if (loss->dtype != ATTN_F32)
        return attn__fail(e->context, ATTN_ERROR_UNSUPPORTED, "gradients of %s cannot be exchanged; expected f32",
                          attn_dtype_name(loss->dtype));
    if (e->status == ATTN_OK && !e->ordered)
        e->status = attn__all_reduce_order(e, tape);
    return e->status;
}

static attn_status backward(attn_tape *tape, attn_tensor *loss, double weight)
{
    const float given = (float)weight;
    attn_tensor seed = *loss;
    seed.zero_pending = false;
    seed.data = (void *)(uintptr_t)&given;
    return attn_backward_from(tape, loss, &seed);
}

attn_status attn__all_reduce_keep(attn__all_reduce *e, attn_tape *tape, attn_tensor *loss, double weight)
{
    attn_status status = prepare(e, loss, tape);
    /* without this pointer, the pass starts no sums over ranks; the last pass of the step adds to the gradients and
     * starts the sums */
    tape->all_reduce = NULL;
    return status == ATTN_OK ? backward(tape, loss, weight) : status;
}

attn_status attn__all_reduce_backward(attn__all_reduce *e, attn_tape *tape, attn_tensor *loss, double weight,
                                      double *totals, int ntotals)
{
    attn_status status = prepare(e, loss, tape);
    if (status != ATTN_OK)
        return status;
    memcpy(e->totals, totals, (size_t)ntotals * sizeof *totals);
    if (e->shared)
        attn__shared_begin(e);
    else if (e->status == ATTN_OK)
        e->status = attn__ranks_sum_begin(e->context, e->totals, ntotals, ATTN__SUM_F64, &e->totals_request);
    if (e->status != ATTN_OK)
        return e->status;
    count_uses(e, tape);
    status = backward(tape, loss, weight);
    if (e->status != ATTN_OK || status != ATTN_OK)
        return e->status != ATTN_OK ? e->status : status;
    for (int64_t i = 0; i < e->nbuckets; i++)
        e->buckets[i].open = 0;
    start_ready(e);
    status = e->shared ? finish_shared(e) : finish(e);
    if (status == ATTN_OK)
        memcpy(totals, e->totals, (size_t)ntotals * sizeof *totals);
    /* the step remains open after an error, or if attn__all_reduce_commit is still needed to end it */
    e->open = status != ATTN_OK || e->shared;
    tape->all_reduce = NULL;
    return status;
}

void attn__all_reduce_abandon(attn__all_reduce *e, attn_tape *tape)
{
    tape->all_reduce = NULL;
    for (int64_t i = 0; i < e->nslots; i++)
        attn_tensor_drop_grad(e->slots[i].parameter);
    for (int64_t i = 0; i < e->still.n && e->open; i++) {
        attn_tensor *x = attn_named_find(e->parameters, e->still.items[i].name);
        memcpy(x->data, e->still.items[i].tensor->data, attn__tensor_bytes(x));
    }
    e->open = false;
}
