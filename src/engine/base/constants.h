/* SPDX-License-Identifier: MIT
 *
 * constants.h - the constant log2(e). Attention scores are multiplied by log2(e), so that e^score is computed as a
 * power of 2.
 */
#ifndef ATTN_BASE_CONSTANTS_H
#define ATTN_BASE_CONSTANTS_H

#define ATTN__LOG2E 1.44269504088896340736

#endif
