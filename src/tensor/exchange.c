/* SPDX-License-Identifier: MIT
 * The exchange of gradients: which are final, which buckets are on their way. */
#include "tensor/exchange.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/ranks.h"

#include <string.h>

typedef struct slot {
    attn_tensor *parameter;
    int64_t bucket;
    int64_t flag; /* where the bucket tells whether any rank has a gradient of it */
    int64_t uses; /* operations on the tape that have not gone backwards yet */
} slot;

typedef struct bucket {
    int64_t first, n; /* slots, in the order of places */
    int64_t open;     /* slots that are not final yet */
    float *data;      /* gradients one behind the other, then a flag for each */
    int64_t size;     /* of both, in elements */
    attn__ranks_request request;
    bool done;
} bucket;

struct attn__exchange {
    attn_context *context;
    size_t bytes;
    slot *slots; /* in the order in which they become final, once `ordered` */
    int64_t nslots;
    bool ordered;
    bucket *buckets;
    int64_t nbuckets;
    int64_t started, finished; /* buckets of this step; they start and are asked for in their order */
    int64_t hidden;            /* operations not gone backwards yet that use parameters unseen */
    float *memory;             /* of all buckets */
    attn_named_list still;     /* copies of what a forward pass changes that is no trained parameter */
    bool open;                 /* a step was begun and not finished: `still` is what stood before it */
    const attn_named_list *parameters;
    double totals[ATTN__EXCHANGE_TOTALS];
    attn__ranks_request totals_request;
    attn_status status;
    double waited;
};

static bool is_exchanged(const attn_tensor *x)
{
    return x->needs_grad && x->dtype == ATTN_F32;
}

/* ------------------------------------------------------------------------------------------------ making */

/* Slots in the list's order, until the first tape shows a better one. */
static attn_status make_slots(attn__exchange *e)
{
    for (int64_t i = 0; i < e->parameters->n; i++)
        e->nslots += is_exchanged(e->parameters->items[i].tensor);
    e->slots = attn__alloc_zero(e->context, attn__size_mul((size_t)e->nslots, sizeof *e->slots));
    e->buckets = attn__alloc_zero(e->context, attn__size_mul((size_t)e->nslots, sizeof *e->buckets));
    if (!e->slots || !e->buckets)
        return ATTN_MEMORY;
    for (int64_t i = 0, at = 0; i < e->parameters->n; i++) {
        attn_tensor *x = e->parameters->items[i].tensor;
        if (!is_exchanged(x))
            continue;
        e->slots[at].parameter = x;
        x->slot = ++at;
    }
    return ATTN_OK;
}

static attn_status copy_still(attn__exchange *e)
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

attn_status attn__exchange_create(attn__exchange **exchange, attn_context *context, const attn_named_list *parameters,
                                  size_t bytes)
{
    *exchange = NULL;
    attn__exchange *e = attn__alloc_zero(context, sizeof *e);
    if (!e)
        return ATTN_MEMORY;
    e->context = context;
    e->parameters = parameters;
    e->bytes = bytes ? bytes : (size_t)4 << 20;
    attn_status status = make_slots(e);
    if (status == ATTN_OK)
        status = copy_still(e);
    if (status != ATTN_OK) {
        attn__exchange_destroy(e);
        return status;
    }
    *exchange = e;
    return ATTN_OK;
}

void attn__exchange_destroy(attn__exchange *e)
{
    if (!e)
        return;
    for (int64_t i = 0; i < e->nslots && e->slots; i++) {
        attn_tensor *x = e->slots[i].parameter;
        if (!x)
            continue;
        if (x->place) /* a gradient in a bucket goes with it */
            attn_tensor_drop_grad(x);
        x->slot = 0;
        x->place = NULL;
    }
    attn_named_clear(&e->still);
    attn_context *context = e->context;
    attn__free(context, e->buckets);
    attn__free(context, e->slots);
    attn__ranks_free(context, e->memory); /* the last two: sums may be under way in them */
    attn__ranks_free(context, e);
}

double attn__exchange_waited(const attn__exchange *e)
{
    return e->waited;
}

int64_t attn__exchange_bytes(const attn__exchange *e)
{
    int64_t elements = 0;
    for (int64_t i = 0; i < e->nslots; i++)
        elements += e->slots[i].parameter->size;
    return elements * (int64_t)sizeof(float);
}

/* ---------------------------------------------------------------------------------------------- the order */

/* Sorts the slots by the last moment at which the pass will touch them: parameters of the last layers come first.  Those
 * that no node names (inside reversible blocks, or not used at all) come last. */
static void order_slots(attn__exchange *e, const attn_tape *tape)
{
    int64_t place = e->nslots;
    for (int64_t i = 0; i < e->nslots; i++)
        e->slots[i].flag = 0;
    /* `flag` is the moment for now: 1 for the first node of the pass, the last write wins. */
    int64_t moment = 0;
    for (const attn__node *node = tape->nodes; node; node = node->previous) {
        moment++;
        for (int i = 0; i < node->nx; i++) {
            if (node->x[i] && node->x[i]->slot > 0)
                e->slots[node->x[i]->slot - 1].flag = moment;
        }
    }
    for (int64_t i = 0; i < e->nslots; i++)
        e->slots[i].flag = e->slots[i].flag ? e->slots[i].flag : moment + place;
    for (int64_t i = 1; i < e->nslots; i++) { /* stable, and there are hundreds at most */
        slot moved = e->slots[i];
        int64_t at = i;
        for (; at > 0 && e->slots[at - 1].flag > moved.flag; at--)
            e->slots[at] = e->slots[at - 1];
        e->slots[at] = moved;
    }
    for (int64_t i = 0; i < e->nslots; i++)
        e->slots[i].parameter->slot = i + 1;
}

/* Cuts the row of slots into buckets and gives each parameter its place.  The first bucket is small, so that something
 * is under way early. */
static attn_status make_buckets(attn__exchange *e)
{
    size_t elements = 0;
    for (int64_t i = 0; i < e->nslots; i++) {
        slot *s = &e->slots[i];
        size_t full = e->nbuckets == 1 ? e->bytes / 4 : e->bytes;
        if (e->nbuckets == 0 || (size_t)e->buckets[e->nbuckets - 1].size * sizeof(float) >= full)
            e->buckets[e->nbuckets++] = (bucket){.first = i};
        bucket *b = &e->buckets[e->nbuckets - 1];
        s->bucket = e->nbuckets - 1;
        b->n++;
        b->size += s->parameter->size + 1;
        elements += (size_t)s->parameter->size + 1;
        if (b->size > INT32_MAX)
            return attn__fail(e->context, ATTN_UNSUPPORTED, "a parameter of %lld numbers is too large to be exchanged",
                              (long long)s->parameter->size);
    }
    e->memory = attn__alloc(e->context, attn__size_mul(elements, sizeof *e->memory));
    if (!e->memory)
        return ATTN_MEMORY;
    float *at = e->memory;
    for (int64_t i = 0; i < e->nbuckets; i++) {
        bucket *b = &e->buckets[i];
        b->data = at;
        for (int64_t k = 0; k < b->n; k++) {
            slot *s = &e->slots[b->first + k];
            s->parameter->place = at;
            at += s->parameter->size;
            s->flag = b->size - b->n + k;
        }
        at = b->data + b->size;
    }
    return ATTN_OK;
}

/* Ranks whose models differ would add up gradients of different things. */
static uint64_t order_fingerprint(const attn__exchange *e)
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

static attn_status make_order(attn__exchange *e, const attn_tape *tape)
{
    order_slots(e, tape);
    attn_status status = attn__ranks_same(e->context, order_fingerprint(e), "uses its parameters in another order");
    if (status == ATTN_OK)
        status = make_buckets(e);
    e->ordered = status == ATTN_OK;
    return status;
}

/* ------------------------------------------------------------------------------------------------- a step */

void attn__exchange_begin(attn__exchange *e, attn_tape *tape)
{
    e->status = ATTN_OK;
    e->started = e->finished = 0;
    tape->exchange = e;
    for (int64_t i = 0; i < e->still.n; i++) {
        const attn_tensor *x = attn_named_find(e->parameters, e->still.items[i].name);
        memcpy(e->still.items[i].tensor->data, x->data, attn__tensor_bytes(x));
    }
    e->open = true;
}

bool attn__exchange_goes_on(attn__exchange *e)
{
    if (e->status == ATTN_OK)
        e->status = attn__ranks_poll(e->context);
    return e->status == ATTN_OK;
}

bool attn__grad_place(attn_tensor *x)
{
    x->grad->storage = attn__storage_create(x->context, NULL, 0); /* a header only: the memory is the bucket's */
    x->grad->data = x->grad->storage ? x->place : NULL;
    return x->grad->storage != NULL;
}

static bool has_gradient(const attn_tensor *x)
{
    return x->grad && x->grad->storage && !x->grad->zero_pending;
}

static void start_bucket(attn__exchange *e, bucket *b)
{
    for (int64_t k = 0; k < b->n; k++) {
        const slot *s = &e->slots[b->first + k];
        bool has = has_gradient(s->parameter);
        if (!has)
            memset(s->parameter->place, 0, attn__tensor_bytes(s->parameter));
        b->data[s->flag] = has ? 1 : 0;
    }
    b->done = false;
    e->status = attn__ranks_sum_begin(e->context, b->data, b->size, ATTN__SUM_F32, &b->request);
}

static void start_ready(attn__exchange *e)
{
    while (e->status == ATTN_OK && e->started < e->nbuckets && e->buckets[e->started].open == 0)
        start_bucket(e, &e->buckets[e->started++]);
}

/* Lets the sums under way advance: without being asked, MPI does little in the background. */
static void advance(attn__exchange *e)
{
    for (int64_t i = e->finished; e->status == ATTN_OK && i < e->started; i++) {
        bucket *b = &e->buckets[i];
        if (!b->done)
            e->status = attn__ranks_test(e->context, &b->request, &b->done);
        e->finished += b->done && e->finished == i;
    }
}

static void close_slot(attn__exchange *e, int64_t index)
{
    slot *s = &e->slots[index];
    if (--s->uses == 0 && e->hidden == 0)
        e->buckets[s->bucket].open--;
}

/* The last operation with parameters unseen has gone: those that only waited for it are final now. */
static void close_hidden(attn__exchange *e)
{
    for (int64_t i = 0; i < e->nslots; i++)
        e->buckets[e->slots[i].bucket].open -= e->slots[i].uses == 0;
}

void attn__exchange_node(attn__exchange *e, attn_tape *tape, const attn__node *node)
{
    for (int i = 0; i < node->nx && tape->section == 0; i++) {
        if (node->x[i] && node->x[i]->slot > 0)
            close_slot(e, node->x[i]->slot - 1);
    }
    if (tape->section == 0 && node->hidden && --e->hidden == 0)
        close_hidden(e);
    start_ready(e);
    advance(e);
    if (e->status == ATTN_OK)
        e->status = attn__ranks_poll(e->context);
    tape->failed = tape->failed || e->status != ATTN_OK;
}

/* Before the pass: how many operations each parameter waits for. */
static void count_uses(attn__exchange *e, const attn_tape *tape)
{
    e->hidden = 0;
    for (int64_t i = 0; i < e->nslots; i++)
        e->slots[i].uses = 0;
    for (const attn__node *node = tape->nodes; node; node = node->previous) {
        e->hidden += node->hidden;
        for (int i = 0; i < node->nx; i++) {
            if (node->x[i] && node->x[i]->slot > 0)
                e->slots[node->x[i]->slot - 1].uses++;
        }
    }
    for (int64_t i = 0; i < e->nbuckets; i++)
        e->buckets[i].open = e->buckets[i].n;
    if (e->hidden == 0) /* what no operation names is final from the start: it has no gradient here */
        close_hidden(e);
}

/* A gradient that no rank has stays none: the optimiser leaves such a parameter alone. */
static attn_status settle_gradients(attn__exchange *e)
{
    for (int64_t i = 0; i < e->nslots; i++) {
        const slot *s = &e->slots[i];
        attn_tensor *x = s->parameter;
        bool some = e->buckets[s->bucket].data[s->flag] > 0;
        if (some && !has_gradient(x)) { /* others have it */
            if (!x->grad && !(x->grad = attn__alloc_zero(x->context, sizeof *x->grad)))
                return ATTN_MEMORY;
            attn_status status = attn__tensor_describe(x->context, x->grad, x->dtype, x->rank, x->shape);
            if (status != ATTN_OK || (!x->grad->storage && !attn__grad_place(x)))
                return ATTN_MEMORY;
            x->grad->zero_pending = false;
        }
    }
    return ATTN_OK;
}

static attn_status finish(attn__exchange *e, double *totals, int ntotals)
{
    double began = attn__now();
    for (int64_t i = 0; i < e->nbuckets; i++)
        e->buckets[i].open = 0;
    start_ready(e);
    for (int64_t i = e->finished; e->status == ATTN_OK && i < e->nbuckets; i++) {
        bucket *b = &e->buckets[i];
        if (!b->done)
            e->status = attn__ranks_wait(e->context, &b->request);
        b->done = true;
    }
    if (e->status == ATTN_OK)
        e->status = attn__ranks_wait(e->context, &e->totals_request);
    e->waited += attn__seconds_since(began);
    if (e->status != ATTN_OK)
        return e->status;
    memcpy(totals, e->totals, (size_t)ntotals * sizeof *totals);
    return settle_gradients(e);
}

attn_status attn__exchange_backward(attn__exchange *e, attn_tape *tape, attn_tensor *loss, double weight,
                                    double *totals, int ntotals)
{
    const float given = (float)weight;
    if (loss->dtype != ATTN_F32)
        return attn__fail(e->context, ATTN_UNSUPPORTED, "gradients of %s are not exchanged; f32 wanted",
                          attn_dtype_name(loss->dtype));
    if (e->status == ATTN_OK && !e->ordered)
        e->status = make_order(e, tape);
    memcpy(e->totals, totals, (size_t)ntotals * sizeof *totals);
    if (e->status == ATTN_OK)
        e->status = attn__ranks_sum_begin(e->context, e->totals, ntotals, ATTN__SUM_F64, &e->totals_request);
    if (e->status != ATTN_OK)
        return e->status;
    count_uses(e, tape);
    attn_tensor seed = *loss;
    seed.zero_pending = false;
    seed.data = (void *)(uintptr_t)&given;
    attn_status status = attn_backward_from(tape, loss, &seed);
    if (e->status != ATTN_OK || status != ATTN_OK)
        return e->status != ATTN_OK ? e->status : status;
    status = finish(e, totals, ntotals);
    e->open = status != ATTN_OK;
    tape->exchange = NULL;
    return status;
}

void attn__exchange_abandon(attn__exchange *e, attn_tape *tape)
{
    tape->exchange = NULL;
    for (int64_t i = 0; i < e->nslots; i++)
        attn_tensor_drop_grad(e->slots[i].parameter);
    for (int64_t i = 0; i < e->still.n && e->open; i++) {
        attn_tensor *x = attn_named_find(e->parameters, e->still.items[i].name);
        memcpy(x->data, e->still.items[i].tensor->data, attn__tensor_bytes(x));
    }
    e->open = false;
}
