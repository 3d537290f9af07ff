/* SPDX-License-Identifier: MIT */
#include "support/table_problem.h"

#define TABLE(...)                                                                                                     \
    {                                                                                                                  \
        true, __VA_ARGS__                                                                                              \
    }
#define QUERY TABLE(ATTN_RELATIVE_QUERY)
#define KEY   TABLE(ATTN_RELATIVE_KEY)
#define VALUE TABLE(ATTN_RELATIVE_VALUE)

/* The fields of TABLE(...) are kind, axis, begin, end, gap, per_head, per_batch, slack. */
/* clang-format off */
const table_shape table_shapes[TABLE_SHAPES + 4] = {
    {.q = {1}, .k = {1}, .dim = 1, .dim_value = 1, .tables = {QUERY}},
    {.q = {2}, .k = {1}, .dim = 8, .dim_value = 20, .tables = {VALUE}},
    {.q = {1}, .k = {300}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .heads = 2},
    {.q = {15}, .k = {2}, .dim = 20, .dim_value = 20, .tables = {QUERY}, .batch = 2, .heads = 2},
    {.q = {15}, .k = {65}, .dim = 64, .dim_value = 8, .tables = {QUERY, VALUE}, .heads = 2},
    {.q = {64}, .k = {64}, .dim = 64, .dim_value = 64, .tables = {QUERY}, .heads = 2},
    {.q = {65}, .k = {15}, .dim = 8, .dim_value = 8, .tables = {KEY}, .batch = 2},
    {.q = {65}, .k = {97}, .dim = 20, .dim_value = 24, .tables = {VALUE}, .batch = 2, .heads = 3},
    {.q = {97}, .k = {200}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .batch = 2},
    {.q = {200}, .k = {64}, .dim = 64, .dim_value = 20, .tables = {QUERY}},
    {.q = {300}, .k = {200}, .dim = 20, .dim_value = 1, .tables = {QUERY, VALUE}},
    {.q = {200}, .k = {300}, .dim = 1, .dim_value = 64, .tables = {QUERY, VALUE}},
    {.q = {300}, .k = {2}, .dim = 8, .dim_value = 8, .tables = {VALUE, KEY}},
    /* from index 13: several tables of a kind, for parts of the channels, with gaps, for each head and batch index */
    {.q = {70}, .k = {97}, .dim = 20, .dim_value = 20, .batch = 2, .heads = 2,
     .tables = {TABLE(ATTN_RELATIVE_QUERY, 0, 3, 11, 5, 0, 0), TABLE(ATTN_RELATIVE_QUERY, 0, 0, 0, 0, 1, 0),
     TABLE(ATTN_RELATIVE_VALUE, 0, 7, 20, 2, 0, 1), TABLE(ATTN_RELATIVE_VALUE, 0, 0, 1, 0, 1, 1),
     TABLE(ATTN_RELATIVE_QUERY, 0, 19, 20, 0, 0, 0)}},
    {.q = {130}, .k = {65}, .dim = 64, .dim_value = 64, .heads = 2, .group = 3,
     .tables = {TABLE(ATTN_RELATIVE_QUERY, 0, 0, 0, 3, 1, 0), TABLE(ATTN_RELATIVE_VALUE, 0, 0, 0, 0, 1, 0)}},
    {.q = {97}, .k = {97}, .dim = 8, .dim_value = 8, .group = 2, .tables = {QUERY, VALUE}, .batch = 2},
    {.q = {7, 11}, .k = {7, 11}, .dim = 20, .dim_value = 20, .heads = 2,
     .tables = {TABLE(ATTN_RELATIVE_QUERY, 0, 0, 10, 0, 0, 0), TABLE(ATTN_RELATIVE_QUERY, 1, 10, 20, 0, 0, 0)}},
    {.q = {5, 20}, .k = {9, 8}, .dim = 8, .dim_value = 8, .batch = 2, .tables = {QUERY,
     TABLE(ATTN_RELATIVE_QUERY, 1, 0, 0, 0, 1, 0), VALUE, TABLE(ATTN_RELATIVE_VALUE, .axis = 1)}},
    {.q = {6, 12}, .k = {6, 12}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .banded = 1, .lo = -3, .hi = 0},
    /* from index 19: bands, with tables that have only the rows of the band */
    {.q = {97}, .k = {97}, .dim = 20, .dim_value = 20, .tables = {QUERY, VALUE}, .banded = 1, .lo = INT64_MIN,
     .hi = 0},
    {.q = {65}, .k = {200}, .dim = 64, .dim_value = 64, .tables = {QUERY, VALUE}, .banded = 1, .lo = INT64_MIN,
     .hi = 135, .heads = 2},
    {.q = {300}, .k = {300}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .banded = 1, .lo = -9, .hi = 4},
    {.q = {200}, .k = {97}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .banded = 1, .lo = 3,
     .hi = INT64_MAX},
    {.q = {97}, .k = {130}, .dim = 8, .dim_value = 8, .tables = {QUERY}, .banded = 1, .lo = 0, .hi = 0},
    {.q = {65}, .k = {97}, .dim = 20, .dim_value = 20, .batch = 3, .tables = {QUERY, VALUE}, .with = ATTN_WITH_LENS},
    {.q = {97}, .k = {200}, .dim = 8, .dim_value = 8, .batch = 2, .heads = 2, .tables = {VALUE, QUERY},
     .with = ATTN_WITH_LENS, .lens_by_query = 1},
    {.q = {97}, .k = {130}, .dim = 20, .dim_value = 8, .batch = 2, .heads = 2, .tables = {QUERY, VALUE},
     .with = ATTN_WITH_MASK},
    {.q = {70}, .k = {65}, .dim = 64, .dim_value = 64, .heads = 2, .tables = {QUERY, VALUE}, .with = ATTN_WITH_BIAS,
     .scale = 0.3, .dropout = 0.3},
    {.q = {97}, .k = {97}, .dim = 8, .dim_value = 20, .batch = 2, .tables = {QUERY, VALUE}, .softcap = 1.5,
     .with = ATTN_WITH_BIAS | ATTN_WITH_LENS | ATTN_WITH_MASK},
    {.q = {200}, .k = {200}, .dim = 20, .dim_value = 20, .tables = {QUERY, VALUE}, .dropout = 0.5, .banded = 1,
     .lo = INT64_MIN, .hi = 0, .accumulate = 1, .softcap = 4},
    /* from index 30: only some gradients, accumulated gradients, or other strides */
    {.q = {65}, .k = {130}, .dim = 20, .dim_value = 20, .tables = {QUERY, VALUE}, .heads = 2,
     .want = ATTN_WANT_DTABLES},
    {.q = {65}, .k = {130}, .dim = 20, .dim_value = 20, .tables = {QUERY, VALUE}, .want = ATTN_WANT_DQ},
    {.q = {65}, .k = {130}, .dim = 20, .dim_value = 20, .tables = {QUERY, VALUE}, .heads = 2,
     .want = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV},
    {.q = {65}, .k = {130}, .dim = 20, .dim_value = 20, .tables = {QUERY, VALUE},
     .want = ATTN_WANT_DK | ATTN_WANT_DTABLES, .accumulate = 1},
    {.q = {97}, .k = {65}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .batch = 2, .group = 2,
     .accumulate = 1, .with = ATTN_WITH_LENS},
    {.q = {97}, .k = {65}, .dim = 20, .dim_value = 8, .tables = {QUERY, VALUE}, .batch = 2, .heads = 2, .gap = 3},
    {.q = {65}, .k = {97}, .dim = 20, .dim_value = 20, .tables = {QUERY, VALUE}, .heads = 2, .step = 2, .gap = 1},
    {.q = {65}, .k = {0}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}},
    {.q = {0}, .k = {65}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}},
    {.q = {65}, .k = {65}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .no_batch = 1},
    {.q = {65}, .k = {0}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .accumulate = 1},
    {.q = {65}, .k = {65}, .dim = 8, .dim_value = 8, .tables = {QUERY, VALUE}, .no_batch = 1, .accumulate = 1},
    /* from index 42: table rows that only one batch index reads, or none */
    {.q = {65}, .k = {130}, .dim = 20, .dim_value = 20, .batch = 2, .with = ATTN_WITH_LENS,
     .tables = {TABLE(ATTN_RELATIVE_QUERY, 0, 0, 0, 0, 1, 1), TABLE(ATTN_RELATIVE_VALUE, 0, 0, 0, 0, 0, 1)}},
    {.q = {97}, .k = {97}, .dim = 20, .dim_value = 20, .heads = 2, .tables = {QUERY, VALUE}, .with = ATTN_WITH_MASK,
     .causal_mask = 1},
    {.q = {97}, .k = {130}, .dim = 8, .dim_value = 8, .heads = 2, .banded = 1, .lo = -20, .hi = 33,
     .tables = {TABLE(ATTN_RELATIVE_QUERY, .slack = 40), TABLE(ATTN_RELATIVE_VALUE, .slack = 3)}},
    {.q = {97}, .k = {65}, .dim = 64, .dim_value = 64, .heads = 2,
     .tables = {TABLE(ATTN_RELATIVE_QUERY, .slack = 70), TABLE(ATTN_RELATIVE_VALUE, .slack = 1)}},
    {.q = {65}, .k = {97}, .dim = 20, .dim_value = 20, .heads = 2, .group = 2, .accumulate = 1,
     .tables = {TABLE(ATTN_RELATIVE_QUERY, .per_head = 1), VALUE}},
    {.q = {16}, .k = {16}, .dim = 4, .dim_value = 4, .tables = {QUERY}, .with = ATTN_WITH_LENS},
    {.q = {16}, .k = {16}, .dim = 4, .dim_value = 4, .tables = {VALUE}, .with = ATTN_WITH_LENS},
    {.q = {65}, .k = {97}, .dim = 20, .dim_value = 20, .tables = {KEY}, .with = ATTN_WITH_LENS},
    {.q = {65}, .k = {65}, .dim = 20, .dim_value = 20, .tables = {VALUE, KEY}, .with = ATTN_WITH_MASK, .causal_mask = 1},
};
/* clang-format on */
