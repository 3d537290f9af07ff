/* SPDX-License-Identifier: MIT
 *
 * exchange.h - gradients added up over the ranks (base/ranks.h) while the backward pass still runs.
 *
 * The parameters' gradients lie, from the start, in buckets of a few megabytes, in the order in which a backward pass
 * finishes them (found from the first tape; the same on all ranks, since the same operations made it).  The tape tells
 * after each operation; when the last operation that uses a parameter has gone backwards its gradient is final, and a
 * bucket of final gradients starts on its way, behind the buckets before it.  Between operations the sums under way are
 * given a chance to advance.  attn__exchange_finish waits for the rest.
 */
#ifndef ATTN_TENSOR_EXCHANGE_H
#define ATTN_TENSOR_EXCHANGE_H

#include "tensor/tape.h"

/* `parameters` must outlive it; f32 ones that need gradients are exchanged.  `bytes` of a bucket; 0: 4 MiB.  `state`:
 * what the optimiser keeps, one or two tensors for each of those parameters, in their order: where all ranks see the same
 * memory each then takes its part of the optimiser's step too (below).  NULL: none does. */
attn_status attn__exchange_create(attn__exchange **exchange, attn_context *context, const attn_named_list *parameters,
                                  const attn_named_list *state, size_t bytes);
void attn__exchange_destroy(attn__exchange *exchange); /* NULL is allowed */

/* Between a reset of the tape and the forward pass. */
void attn__exchange_begin(attn__exchange *exchange, attn_tape *tape);
/* attn_backward for `weight` times the loss, with the exchange; after it the parameters' gradients, and totals[ntotals]
 * (in double, at most ATTN__EXCHANGE_TOTALS), are sums over the ranks.  Any error: the step is to be forgotten, and with
 * attn__exchange_abandon nothing of it stays. */
enum { ATTN__EXCHANGE_TOTALS = 4 };
attn_status attn__exchange_backward(attn__exchange *exchange, attn_tape *tape, attn_tensor *loss, double weight,
                                    double *totals, int ntotals);
/* Takes back what an unfinished step changed: gradients, and running statistics of the forward pass. */
void attn__exchange_abandon(attn__exchange *exchange, attn_tape *tape);
/* Seconds spent waiting after backward passes for sums that were not there yet, and bytes of gradients of a step. */
double attn__exchange_waited(const attn__exchange *exchange);
int64_t attn__exchange_bytes(const attn__exchange *exchange);

/* Where this holds (from the first backward pass on) parameters and state lie in memory that all ranks see, elsewhere after
 * each step: nobody else may write to them, and where their data are is to be asked anew.  Gradients are not to be looked
 * at: each rank has the sums of its part of them only. */
bool attn__exchange_shared(const attn__exchange *exchange);
/* The sum of the squares of all gradients. */
double attn__exchange_squares(const attn__exchange *exchange);
/* A piece of a parameter whose step this rank takes: from p and s, which stay as they are, to p2 and s2. */
typedef struct attn__exchange_piece {
    const float *p, *s[2], *g;
    float *p2, *s2[2];
    int64_t n;
    bool past; /* p2 and s2 are more than caches hold until they are read */
} attn__exchange_piece;
/* The next of them; false: there is none, and the next call begins anew. */
bool attn__exchange_next(attn__exchange *exchange, attn__exchange_piece *piece);
/* When all ranks have taken their parts of the step, it is done, here as there.  Any error: nothing has changed. */
attn_status attn__exchange_commit(attn__exchange *exchange);

/* A parameter [out,in] as the products of m rows with it want it, if it was packed for this step (exchange_packed.c): `forward`,
 * transposed, or for the gradient of the input.  NULL: it was not.  NULL is an exchange, too. */
struct attn__packed;
const struct attn__packed *attn__exchange_packed(attn__exchange *exchange, const attn_tensor *w, bool forward,
                                                 int64_t m);

/* For the tape.  After a node went backwards: */
void attn__exchange_node(attn__exchange *exchange, attn_tape *tape, const attn__node *node);
/* False (noted) if the step is to be left: another rank gave up, or this process is asked to stop. */
bool attn__exchange_goes_on(attn__exchange *exchange);
/* Gives a parameter's gradient its place in a bucket; false (noted) without memory. */
bool attn__grad_place(attn_tensor *x);

#endif
