/* SPDX-License-Identifier: MIT
 *
 * constants.h - log2(e): scores are held as powers of two, so that an exponential is 2^x.
 */
#ifndef ATTN_BASE_CONSTANTS_H
#define ATTN_BASE_CONSTANTS_H

#define ATTN__LOG2E 1.44269504088896340736

#endif
