/* SPDX-License-Identifier: MIT
 *
 * table.h - rows of the relative tables of a problem, along the channels of its queries or values.
 */
#ifndef ATTN_ATTEND_TABLE_H
#define ATTN_ATTEND_TABLE_H

#include "attend/block/element.h"

/* The group that its channels belong to, and its strides along them. */
const attn__group *attn__table_channels(const attn__canonical *canonical, int relative);
attn__strides attn__table_strides(const attn__canonical *canonical, int relative);

/* Whether it serves all of these channels; if not, `served` is the group of those that it does. */
bool attn__table_is_whole(const attn__canonical *canonical, int relative);
void attn__table_served(const attn__canonical *canonical, int relative, attn__group *served);

/* The row at `offset` as one number for each channel, 0 for those that the table does not serve. */
void attn__table_gather(const attn__canonical *canonical, int relative, const attn__strides *strides, const void *table,
                        int64_t offset, double *row);
/* sums[offset] += factor * row, of the channels that it serves; `scratch` has room for all of them. */
void attn__table_add(const attn__canonical *canonical, int relative, const attn__strides *strides, double *sums,
                     int64_t offset, double factor, const double *row, double *scratch);

#endif
