/* SPDX-License-Identifier: MIT
 * PyTorch's torch.save. */
#include "io/weights.h"

attn_status attn__pt_find(attn__findings *findings, const attn__input *input)
{
    (void)findings;
    return attn__input_fail(input, ATTN_UNSUPPORTED, 0, "PyTorch files are not read yet");
}
