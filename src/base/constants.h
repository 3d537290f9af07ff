/* SPDX-License-Identifier: MIT
 *
 * constants.h - the constant log2(e). Scores are stored in base 2, so that an exponential is 2^x.
 */
#ifndef ATTN_BASE_CONSTANTS_H
#define ATTN_BASE_CONSTANTS_H

#define ATTN__LOG2E 1.44269504088896340736

#endif
