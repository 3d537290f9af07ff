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

/* `parameters` must outlive it; f32 ones that need gradients are exchanged.  `bytes` of a bucket; 0: 4 MiB. */
attn_status attn__exchange_create(attn__exchange **exchange, attn_context *context, const attn_named_list *parameters,
                                  size_t bytes);
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

/* For the tape.  After a node went backwards: */
void attn__exchange_node(attn__exchange *exchange, attn_tape *tape, const attn__node *node);
/* False (noted) if the step is to be left: another rank gave up, or this process is asked to stop. */
bool attn__exchange_goes_on(attn__exchange *exchange);
/* Gives a parameter's gradient its place in a bucket; false (noted) without memory. */
bool attn__grad_place(attn_tensor *x);

#endif
