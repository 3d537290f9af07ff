/* SPDX-License-Identifier: MIT
 *
 * Parameters in slices (gemm_slices.h), packed once a step for all ranks that see the same memory.
 *
 * Each product of a linear layer packs its weights, however few rows a rank has: what ranks divide among themselves is
 * the rows.  So that this work is divided, too, each weight is packed by one of them at the beginning of a step, for
 * the forward product and for the gradient of the input, if a first step showed that there are such products.
 *
 * Between the beginning of a step and its end nobody may write to a parameter; what was written before, by a step, a
 * file that was read or a hand, is packed.  A parameter that points elsewhere meanwhile is not taken for what it was.
 */
#include "tensor/all_reduce_inner.h"

#include "base/integers.h"
#include "gemm/slices.h"
#include "tensor/gemm_slices.h"
#include "tensor/op.h"

enum { LINE = 64 }; /* bytes */

/* Written by the rank that packs, behind the slices. */
typedef struct found {
    bool usable;
} found;

struct attn__weight_cache {
    attn__ranks_memory memory;
    float *copies; /* of columns, while they are packed */
};

/* B of a parameter's products. */
static attn__gemm_args product_with(const attn_tensor *w, int way)
{
    bool forward = way == ATTN__PACKED_FORWARD;
    return (attn__gemm_args){.dtype = ATTN_F32,
                             .transpose_b = forward,
                             .n = w->shape[forward ? 0 : 1],
                             .k = w->shape[forward ? 1 : 0],
                             .b = w->data,
                             .ldb = w->shape[1]};
}

const attn__packed *attn__weight_cache_find(attn__all_reduce *e, const attn_tensor *w, bool forward, int64_t m)
{
    int way = forward ? ATTN__PACKED_FORWARD : ATTN__PACKED_BACKWARD;
    if (!e || !e->shared || w->slot == 0)
        return NULL;
    attn__slot *slot = &e->slots[w->slot - 1];
    attn__gemm_args g = product_with(w, way);
    if (!attn__gemm_slices_takes(e->context, m, g.n, g.k)) /* nor would it be, were it not there: the same bits */
        return NULL;
    slot->kept[way].wanted = true;
    bool there = slot->kept[way].packed.hold.data && attn__shared_holds(e, slot);
    return there ? &slot->kept[way].packed : NULL;
}

/* ------------------------------------------------------------------------------------------------ places */

static int64_t bytes_of(const attn__all_reduce *e, const attn__gemm_args *g)
{
    return attn__round_up((int64_t)attn__gemm_slices_packed_bytes(e->context, g), LINE) + LINE;
}

static attn__kept *kept_at(const attn__all_reduce *e, int64_t i)
{
    return &e->slots[i / ATTN__PACKED_WAYS].kept[i % ATTN__PACKED_WAYS];
}

static attn__gemm_args b_of(const attn__all_reduce *e, int64_t i)
{
    return product_with(e->slots[i / ATTN__PACKED_WAYS].parameter, (int)(i % ATTN__PACKED_WAYS));
}

/* What any rank has seen products with; nothing, where some rank was told to do without AMX and cannot pack. */
static attn_status agree(attn__all_reduce *e)
{
    int64_t n = e->nslots * ATTN__PACKED_WAYS;
    uint64_t *wanted = attn__alloc_zero(e->context, attn__size_mul((size_t)n + 1, sizeof *wanted));
    if (!wanted)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        wanted[i] = kept_at(e, i)->wanted;
    wanted[n] = !attn__slices_for(e->context->isa);
    attn_status status = attn__ranks_sum(e->context, wanted, n + 1, ATTN__MAX_U64);
    for (int64_t i = 0; i < n; i++)
        kept_at(e, i)->wanted = wanted[i] > 0 && wanted[n] == 0;
    attn__free(e->context, wanted);
    return status;
}

/* Gives each that is wanted its place from `data` on, and its work to a rank, so that each has as many bytes of `all`
 * to fill; all decide alike.  Returns how many there are; with NULL it does just that. */
static int64_t give_places(attn__all_reduce *e, char *data, int64_t all)
{
    int64_t at = 0;
    for (int64_t i = 0; i < e->nslots * ATTN__PACKED_WAYS; i++) {
        attn__kept *kept = kept_at(e, i);
        if (!kept->wanted)
            continue;
        attn__gemm_args g = b_of(e, i);
        int64_t bytes = bytes_of(e, &g);
        if (data) {
            kept->data = data + at;
            kept->rank = (int)((at + bytes / 2) * attn_ranks_size(e->context) / all);
        }
        at += bytes;
    }
    return at;
}

/* Once: what comes later is packed by each product, as before. */
static attn_status make(attn__all_reduce *e)
{
    attn__weight_cache *made = e->packing = attn__alloc_zero(e->context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->memory.file = -1;
    attn_status status = agree(e);
    int64_t bytes = status == ATTN_OK ? give_places(e, NULL, 0) : 0;
    if ((size_t)bytes > e->pack_from)
        status = attn__ranks_memory_make(e->context, (size_t)bytes, &made->memory);
    if (status != ATTN_OK || !made->memory.data)
        return status;
    (void)give_places(e, made->memory.data, bytes);
    made->copies = attn__alloc(e->context, attn__gemm_slices_copies_bytes(e->context));
    return made->copies ? ATTN_OK : ATTN_ERROR_MEMORY;
}

void attn__weight_cache_clear(attn__all_reduce *e)
{
    if (!e->packing)
        return;
    attn__ranks_memory_free(&e->packing->memory);
    attn__free(e->context, e->packing->copies);
    attn__free(e->context, e->packing);
    e->packing = NULL;
}

/* ----------------------------------------------------------------------------------------------- packing */

static found *found_of(const attn__all_reduce *e, const attn__kept *kept, const attn__gemm_args *g)
{
    return (found *)(void *)(kept->data + bytes_of(e, g) - LINE);
}

attn_status attn__weight_cache_fill(attn__all_reduce *e)
{
    attn_status status = e->packing ? ATTN_OK : make(e);
    if (status != ATTN_OK || !e->packing->memory.data)
        return status;
    for (int64_t i = 0; i < e->nslots * ATTN__PACKED_WAYS; i++) {
        attn__kept *kept = kept_at(e, i);
        if (!kept->data || kept->rank != attn_ranks_rank(e->context))
            continue;
        attn__gemm_args g = b_of(e, i);
        found *to = found_of(e, kept, &g);
        to->usable = attn__gemm_slices_pack_to(e->context, &g, e->packing->copies, kept->data);
    }
    status = attn__shared_packed(e);
    for (int64_t i = 0; i < e->nslots * ATTN__PACKED_WAYS && status == ATTN_OK; i++) {
        attn__kept *kept = kept_at(e, i);
        if (!kept->data)
            continue;
        attn__gemm_args g = b_of(e, i);
        const found *is = found_of(e, kept, &g);
        kept->packed = (attn__packed){ATTN_F32, g.n, g.k, {NULL, is->usable ? kept->data : NULL}, .slices = true};
    }
    return status;
}
