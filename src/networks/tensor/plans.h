/* SPDX-License-Identifier: MIT
 *
 * plans.h - the plans of attention problems that a tape keeps.
 */
#ifndef ATTN_TENSOR_PLANS_H
#define ATTN_TENSOR_PLANS_H

#include "tensor/tensor.h"

/* Returns the plan of this problem, which is made when the problem is first used. Returns NULL and records an error if
 * the problem cannot be planned. The tape owns the plan, which is valid until the next call. */
const attn_plan *attn__plan_for(attn_tape *tape, const attn_problem *problem);

#endif
