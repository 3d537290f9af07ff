/* SPDX-License-Identifier: MIT
 *
 * number.h - reads elements of tensors of any type as numbers.
 */
#ifndef CLI_NUMBER_H
#define CLI_NUMBER_H

#include "attn/tensor.h"

double cli_number_at(const attn_tensor *tensor, int64_t index);

#endif
