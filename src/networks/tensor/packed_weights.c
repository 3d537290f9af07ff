/* SPDX-License-Identifier: MIT
 *
 * Implements a list of packed weights. Searches are linear, because a decoder has only a few dozen weights. */
#include "tensor/packed_weights.h"

#include "tensor/compute_in.h"
#include "base/context.h"
#include "base/system.h"
#include "tensor/linear_part.h"
#include "tensor/op.h"

#include <pthread.h>

typedef struct entry {
    const void *weights;
    attn_dtype dtype;
    attn_precision precision; /* the precision of the products that can use the packed form */
    attn__packed *packed;     /* has memory of its own, so that its address stays valid when the list grows */
    int64_t n, k;
} entry;

struct attn__packed_weights {
    attn_context *context; /* the context that allocates all memory of the list */
    pthread_mutex_t lock;  /* locked during a search and during packing, so that each weight is packed only once */
    int tapes;
    entry *list;
    int64_t n;
};

static attn__packed_weights *make(attn_context *context)
{
    attn__packed_weights *all = attn__alloc_zero(context, sizeof *all);
    if (!all)
        return NULL;
    if (pthread_mutex_init(&all->lock, NULL) != 0) {
        attn__fail(context, ATTN_ERROR_MEMORY, "out of memory: cannot create a lock for the packed weights");
        attn__free(context, all);
        return NULL;
    }
    all->context = context;
    return all;
}

static void join(attn_tape *tape, attn__packed_weights *all)
{
    pthread_mutex_lock(&all->lock);
    all->tapes++;
    pthread_mutex_unlock(&all->lock);
    tape->packed_weights = all;
    tape->packed_begun = 1;
}

attn_status attn__packed_weights_begin(attn_tape *tape)
{
    if (tape->packed_weights) {
        tape->packed_begun++;
        return ATTN_OK;
    }
    attn__packed_weights *all = make(tape->context);
    if (!all)
        return ATTN_ERROR_MEMORY;
    join(tape, all);
    return ATTN_OK;
}

void attn__packed_weights_share(attn_tape *tape, attn_tape *owner)
{
    join(tape, owner->packed_weights);
}

static void destroy(attn__packed_weights *all)
{
    for (int64_t i = 0; i < all->n; i++) {
        attn__gemm_unpack(all->list[i].packed);
        attn__free(all->context, all->list[i].packed);
    }
    pthread_mutex_destroy(&all->lock);
    attn__free(all->context, all->list);
    attn__free(all->context, all);
}

void attn__packed_weights_end(attn_tape *tape)
{
    attn__packed_weights *all = tape->packed_weights;
    if (!all || --tape->packed_begun > 0)
        return;
    tape->packed_weights = NULL;
    pthread_mutex_lock(&all->lock);
    bool last = --all->tapes == 0;
    pthread_mutex_unlock(&all->lock);
    if (last)
        destroy(all);
}

static bool make_room(attn__packed_weights *all)
{
    entry *list = attn__grow(all->context, all->list, all->n, sizeof *list);
    all->list = list ? list : all->list;
    return list != NULL;
}

static const attn__packed *look(const attn__packed_weights *all, const attn_tensor *w, attn_precision precision)
{
    for (int64_t i = 0; i < all->n; i++) {
        const entry *e = &all->list[i];
        if (e->weights == w->data && e->dtype == w->dtype && e->precision == precision && e->n == w->shape[0] &&
            e->k == w->shape[1])
            return e->packed;
    }
    return NULL;
}

/* Returns NULL if there is no memory. The memory comes from the context, because the packed weight may outlive the tape
 * and its pool, and because only one thread may use a pool. */
static const attn__packed *pack(attn__packed_weights *all, const attn_tensor *w, attn_precision precision)
{
    attn_tape tape = {.context = all->context, .precision = precision};
    attn__packed *fresh = make_room(all) ? attn__alloc_zero(all->context, sizeof *fresh) : NULL;
    if (!fresh)
        return NULL;
    int64_t n = w->shape[0], k = w->shape[1];
    if (attn__gemm_pack(&tape, w->dtype, w->data, k, n, k, false, fresh) != ATTN_OK) {
        attn__free(all->context, fresh);
        return NULL;
    }
    all->list[all->n++] =
        (entry){.weights = w->data, .dtype = w->dtype, .precision = precision, .packed = fresh, .n = n, .k = k};
    return fresh;
}

/* Maximum number of rows of a product for which panels are kept. In larger products, packing takes only a small part of
 * the time, so kept panels are not worth their memory. Slices are always kept, because they make products of any size
 * faster and exist only in packed form. */
enum { MOST_ROWS = 1024 };

static bool is_worth_keeping(const attn_tape *tape, const attn_tensor *w, int64_t rows)
{
    return rows <= MOST_ROWS || attn__gemm_packs_slices(tape, w->dtype, w->shape[0], w->shape[1]);
}

static bool own_fits(const attn_tape *tape, const attn_tensor *w)
{
    return !tape->options.record && attn__gemm_packed_fits(tape, w->dtype, w->packed);
}

static bool fail_unfit(attn_tape *tape, const attn_tensor *w)
{
    attn__fail(
        tape->context, ATTN_ERROR_ARGUMENT,
        "linear: the weights [%lld,%lld] are kept only as packed for inference, so they support no other precision and "
        "no gradients",
        (long long)w->shape[0], (long long)w->shape[1]);
    return false;
}

/* Gets the packed form that belongs to the tensor, if this product can read it. Returns false and records an error if
 * the product cannot read it and the tensor has no other form. */
static bool find_own(attn_tape *tape, const attn_tensor *w, const attn__packed **packed)
{
    bool fits = own_fits(tape, w);
    *packed = fits && !w->packed->rows ? w->packed : NULL;
    return fits || w->data || fail_unfit(tape, w);
}

bool attn__packed_weights_find(attn_tape *tape, attn_tensor *w, int64_t rows, const attn__packed **packed)
{
    attn__packed_weights *all = tape->packed_weights;
    *packed = NULL;
    if (w->packed && !find_own(tape, w, packed))
        return false;
    if (*packed || !w->data)
        return true;
    /* Weights that an operation made are not packed. The packed form is found by the address of the weight, and a later
     * result may have the same address. */
    bool is_made = !w->storage || w->storage->pool;
    if (!all || tape->options.record || is_made || !is_worth_keeping(tape, w, rows))
        return true;
    pthread_mutex_lock(&all->lock);
    *packed = look(all, w, tape->precision);
    if (!*packed)
        *packed = pack(all, w, tape->precision);
    pthread_mutex_unlock(&all->lock);
    if (!*packed)
        attn__fail(tape->context, ATTN_ERROR_MEMORY, "out of memory: cannot pack weights of %lld x %lld",
                   (long long)w->shape[0], (long long)w->shape[1]);
    return *packed != NULL;
}

void attn__packed_weights_forget(attn_tape *tape, const attn_tensor *w)
{
    attn__packed_weights *all = tape->packed_weights;
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    for (int64_t i = 0; i < all->n;) {
        if (all->list[i].weights != w->data) {
            i++;
            continue;
        }
        attn__gemm_unpack(all->list[i].packed);
        attn__free(all->context, all->list[i].packed);
        all->list[i] = all->list[--all->n];
    }
    pthread_mutex_unlock(&all->lock);
}

/* ------------------------------------------------------------------------------------------- for good */

/* Returns whether the packed form may replace the data. It may if the data's memory is not shared, and no product needs
 * both forms. A table's rows must also be readable from the packed form. */
static bool may_take(const attn_tape *tape, const attn_tensor *w, bool rows)
{
    bool alone = !w->tape && !w->grad && atomic_load(&w->storage->refs) == 1;
    bool serves = rows || !attn__gemm_packs_slices(tape, w->dtype, w->shape[0], w->shape[1]);
    return alone && serves && (!w->table || (w->dtype == ATTN_F32 && !attn__rounds(tape)) || w->dtype == ATTN_F64);
}

static void drop_data(attn_tensor *w)
{
    /* release the pages now, because the allocator may keep the freed memory */
    attn__system_drop_pages(w->data, attn__tensor_bytes(w));
    attn__storage_unref(w->storage);
    w->storage = NULL;
    w->data = NULL;
}

/* Returns whether the weight can be packed for this precision. *rows is true if it is packed as rows of bf16 instead of
 * panels. Rows are used if the machine's fastest kernel multiplies f32, because panels would then have f32 elements. */
static bool has_form(const attn_tensor *w, attn_precision precision, bool *rows)
{
    bool rounds = w->dtype == ATTN_F32 && !w->table && precision == ATTN_PRECISION_BF16;
    bool wide = attn__gemm_packed_size(ATTN_BF16, w->context->isa) > (int)sizeof(uint16_t);
    *rows = w->in_parts || (rounds && wide);
    return (w->linear || w->tied) && w->rank == 2 && w->size > 0 && !w->low_rank && (!w->in_parts || rounds);
}

bool attn__weight_can_pack_on_load(const attn_tensor *w, attn_precision precision)
{
    bool rows;
    return has_form(w, precision, &rows) && !w->table && w->dtype == ATTN_F32;
}

static attn_status pack_rows(attn_tape *tape, const attn_tensor *w, attn__packed *packed)
{
    attn__hold hold = attn__scratch(tape, (size_t)w->size * sizeof(uint16_t));
    *packed =
        (attn__packed){.weights = {.dtype = ATTN_BF16, .n = w->shape[0], .k = w->shape[1]}, .hold = hold, .rows = true};
    if (!hold.data)
        return ATTN_ERROR_MEMORY;
    attn__round_to_bf16(tape->context, w->data, w->size, hold.data);
    return ATTN_OK;
}

/* Packs a weight as rows or as panels. `takes` is true if the packed form will replace the weight's data. */
static attn_status pack_weight(attn_tape *tape, const attn_tensor *w, bool rows, bool takes, attn__packed *packed)
{
    return rows ? pack_rows(tape, w, packed)
                : attn__gemm_pack(tape, w->dtype, w->data, w->shape[1], w->shape[0], w->shape[1], takes, packed);
}

attn_status attn__weight_pack(attn_tensor *w, attn_precision precision)
{
    attn_tape tape = {.context = w->context, .precision = precision};
    bool rows;
    if (w->packed || !w->storage || !has_form(w, precision, &rows))
        return ATTN_OK;
    bool takes = may_take(&tape, w, rows);
    if (rows && !takes)
        return ATTN_OK;
    attn__packed *packed = attn__alloc_zero(w->context, sizeof *packed);
    if (!packed)
        return ATTN_ERROR_MEMORY;
    attn_status status = pack_weight(&tape, w, rows, takes, packed);
    if (status != ATTN_OK) {
        attn__free(w->context, packed);
        return status;
    }
    w->packed = packed;
    if (takes)
        drop_data(w);
    return ATTN_OK;
}

attn_status attn_tensor_pack_weights(attn_tensor *w, attn_precision precision)
{
    w->linear = true;
    return attn__weight_pack(w, precision);
}

const void *attn__weight_rows(attn_tape *tape, const attn_tensor *w, bool *bf16)
{
    *bf16 = !w->data && w->packed && w->packed->rows;
    if (!*bf16)
        return w->data;
    return own_fits(tape, w) || fail_unfit(tape, w) ? w->packed->hold.data : NULL;
}

attn_status attn__weight_fill(attn_tensor *w)
{
    if (w->data || !w->packs_on_load)
        return ATTN_OK;
    return attn__tensor_allocate(w, NULL) ? ATTN_OK : ATTN_ERROR_MEMORY;
}

attn_status attn__weight_filled(attn_tensor *w)
{
    attn_precision precision = w->packs_on_load;
    w->packs_on_load = ATTN_PRECISION_DEFAULT;
    return precision ? attn__weight_pack(w, precision) : ATTN_OK;
}
