/* SPDX-License-Identifier: MIT
 *
 * Creates an all-reduce. This file determines the order in which gradients become final, the buckets, and the buckets'
 * memory. */
#include "tensor/all_reduce_inner.h"

#include "base/system.h"
#include "base/hash.h"

#include <string.h>

enum { LINE = 16, PAGE = 1024 }; /* number of f32 elements in a cache line, and in a memory page */

static bool is_exchanged(const attn_tensor *x)
{
    return x->needs_grad && x->dtype == ATTN_F32;
}

/* ------------------------------------------------------------------------------------------------ making */

/* Makes the slots in the order of the list of parameters. The first tape later gives the final order. */
static attn_status make_slots(attn__all_reduce *e)
{
    for (int64_t i = 0; i < e->parameters->n; i++)
        e->nslots += is_exchanged(e->parameters->items[i].tensor);
    e->slots = attn__alloc_zero(e->context, attn__size_mul((size_t)e->nslots, sizeof *e->slots));
    e->buckets = attn__alloc_zero(e->context, attn__size_mul((size_t)e->nslots, sizeof *e->buckets));
    if (!e->slots || !e->buckets)
        return ATTN_ERROR_MEMORY;
    e->movable = true;
    for (int64_t i = 0, at = 0; i < e->parameters->n; i++) {
        attn_tensor *x = e->parameters->items[i].tensor;
        if (!is_exchanged(x))
            continue;
        e->slots[at] = (attn__slot){.parameter = x, .index = at};
        x->slot = ++at;
        e->movable = e->movable && attn__shared_may_move(x);
        /* upper bound of the elements for this slot: its gradient, its flag, and the padding of a bucket */
        e->elements += x->size + 1 + LINE;
    }
    e->elements = (e->elements + PAGE - 1) / PAGE * PAGE;
    return ATTN_OK;
}

static attn_status copy_still(attn__all_reduce *e)
{
    attn_status status = ATTN_OK;
    e->still = (attn_named_list){.context = e->context, .owns = true};
    for (int64_t i = 0; i < e->parameters->n && status == ATTN_OK; i++) {
        const attn_tensor *x = e->parameters->items[i].tensor;
        attn_tensor *copy = NULL;
        if (x->needs_grad)
            continue;
        status = attn_tensor_create(&copy, e->context, x->dtype, x->rank, x->shape);
        if (status == ATTN_OK)
            status = attn_named_add(&e->still, e->parameters->items[i].name, copy);
        if (status != ATTN_OK)
            attn_tensor_destroy(copy);
    }
    return status;
}

attn_status attn__all_reduce_create(attn__all_reduce **all_reduce, attn_context *context,
                                    const attn_named_list *parameters, const attn_named_list *state, size_t bytes)
{
    *all_reduce = NULL;
    attn__all_reduce *e = attn__alloc_zero(context, sizeof *e);
    if (!e)
        return ATTN_ERROR_MEMORY;
    e->context = context;
    e->parameters = parameters;
    e->state = state;
    e->bytes = bytes ? bytes : (size_t)4 << 20;
    attn_status status = make_slots(e);
    if (status == ATTN_OK)
        status = copy_still(e);
    if (status == ATTN_OK)
        status = attn__shared_create(e);
    if (status != ATTN_OK) {
        attn__all_reduce_destroy(e);
        return status;
    }
    *all_reduce = e;
    return ATTN_OK;
}

void attn__all_reduce_destroy(attn__all_reduce *e)
{
    if (!e)
        return;
    for (int64_t i = 0; i < e->nslots && e->slots; i++) {
        attn_tensor *x = e->slots[i].parameter;
        if (!x)
            continue;
        if (x->place) /* drop the gradient before its memory is freed with the bucket */
            attn_tensor_drop_grad(x);
        x->slot = 0;
        x->place = NULL;
    }
    attn_named_clear(&e->still);
    attn_context *context = e->context;
    attn__shared_destroy(e);
    attn__free(context, e->buckets);
    attn__free(context, e->slots);
    /* e->memory and e are freed last, because unfinished sums may still use them */
    attn__ranks_free(context, e->memory);
    attn__ranks_free(context, e);
}

double attn__all_reduce_waited(const attn__all_reduce *e)
{
    return e->waited;
}

/* ---------------------------------------------------------------------------------------------- the order */

/* Sorts the slots by the time at which the backward pass last uses their parameter. Parameters of the network's last
 * layers come first. Parameters that are not the input of any node come last, because they are used inside reversible
 * blocks or not at all. */
static void order_slots(attn__all_reduce *e, const attn_tape *tape)
{
    int64_t place = e->nslots;
    for (int64_t i = 0; i < e->nslots; i++)
        e->slots[i].flag = 0;
    /* here `flag` holds the sort key: the number of the last node that uses the parameter in the backward pass, counted
     * from 1 */
    int64_t moment = 0;
    for (const attn__node *node = tape->nodes; node; node = node->previous) {
        moment++;
        for (int i = 0; i < node->nx; i++)
            if (node->x[i] && node->x[i]->slot > 0)
                e->slots[node->x[i]->slot - 1].flag = moment;
    }
    for (int64_t i = 0; i < e->nslots; i++)
        e->slots[i].flag = e->slots[i].flag ? e->slots[i].flag : moment + place;
    /* insertion sort: stable, and fast enough for a few hundred slots */
    for (int64_t i = 1; i < e->nslots; i++) {
        attn__slot moved = e->slots[i];
        int64_t at = i;
        for (; at > 0 && e->slots[at - 1].flag > moved.flag; at--)
            e->slots[at] = e->slots[at - 1];
        e->slots[at] = moved;
    }
    for (int64_t i = 0; i < e->nslots; i++)
        e->slots[i].parameter->slot = i + 1;
}

/* Divides the slots into buckets, and computes each parameter's offset in its bucket. The first bucket is smaller, so
 * that its sum starts early. */
static attn_status make_buckets(attn__all_reduce *e)
{
    for (int64_t i = 0; i < e->nslots; i++) {
        attn__slot *s = &e->slots[i];
        size_t full = e->nbuckets == 1 ? e->bytes / 4 : e->bytes;
        if (e->nbuckets == 0 || (size_t)e->buckets[e->nbuckets - 1].elements * sizeof(float) >= full)
            e->buckets[e->nbuckets++] = (attn__bucket){.first = i};
        attn__bucket *b = &e->buckets[e->nbuckets - 1];
        s->bucket = e->nbuckets - 1;
        s->at = b->elements;
        s->flag = b->n++;
        b->elements += s->parameter->size;
        b->size = (b->elements + b->n + LINE - 1) / LINE * LINE;
        if (b->size > INT32_MAX)
            return attn__fail(e->context, ATTN_ERROR_UNSUPPORTED,
                              "a parameter of %lld numbers is too large to be exchanged; fewer than 2^31 are supported",
                              (long long)s->parameter->size);
    }
    return ATTN_OK;
}

static attn_status make_memory(attn__all_reduce *e)
{
    if (!e->shared)
        e->memory = attn__alloc_zero(e->context, attn__size_mul((size_t)e->elements, sizeof *e->memory));
    return e->memory ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static void make_places(attn__all_reduce *e)
{
    float *at = e->memory;
    for (int64_t i = 0; i < e->nbuckets; i++) {
        attn__bucket *b = &e->buckets[i];
        b->data = at;
        at += b->size;
        for (int64_t k = 0; k < b->n; k++) {
            attn__slot *s = &e->slots[b->first + k];
            s->parameter->place = b->data + s->at;
            s->flag += b->elements;
        }
    }
}

/* Returns a hash of the order of the parameters. The ranks compare their hashes, because ranks with different models
 * would add up unrelated gradients. */
static uint64_t order_fingerprint(const attn__all_reduce *e)
{
    uint64_t hash = ATTN__HASH_BEGIN;
    for (int64_t i = 0; i < e->nslots; i++) {
        int64_t index = 0;
        while (e->parameters->items[index].tensor != e->slots[i].parameter)
            index++;
        hash = (hash ^ (uint64_t)index) * ATTN__HASH_PRIME;
        hash = (hash ^ (uint64_t)e->slots[i].parameter->size) * ATTN__HASH_PRIME;
    }
    return hash;
}

attn_status attn__all_reduce_order(attn__all_reduce *e, const attn_tape *tape)
{
    order_slots(e, tape);
    attn_status status = attn__ranks_same(e->context, order_fingerprint(e), "uses its parameters in another order");
    if (status == ATTN_OK)
        status = make_buckets(e);
    if (status == ATTN_OK)
        status = make_memory(e);
    if (status == ATTN_OK)
        make_places(e);
    if (status == ATTN_OK && e->shared)
        status = attn__shared_adopt(e);
    e->ordered = status == ATTN_OK;
    return status;
}
