/* SPDX-License-Identifier: MIT
 *
 * Tests packed sequences whose keys have a second axis in addition to the packed axis. Each sequence has a mask and a
 * bias, and gets the same result as when it runs alone.
 */
#include "support/cmocka.h"

#include "attn/attn.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { SEQUENCES = 3, LONGEST = 6, POSITIONS = 13, QUERIES = 2, PLANES = 3, CHANNELS = 4 };
enum { PAIRS = SEQUENCES * QUERIES * PLANES * LONGEST, ROWS = SEQUENCES * QUERIES };

static const int32_t q_offsets[] = {0, QUERIES, 2 * QUERIES, 3 * QUERIES}, k_offsets[] = {0, 3, 7, POSITIONS};
static float q[ROWS * CHANNELS], k[PLANES * POSITIONS * CHANNELS], v[PLANES * POSITIONS * CHANNELS], bias[PAIRS];
static uint8_t mask[PAIRS];

static void fill(float *x, size_t n, attn__rng *rng)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)attn__rng_normal(rng);
}

/* Describes a problem whose keys are planes of positions. Each sequence has a mask and a bias
 * [queries][planes][longest]. */
static attn_problem describe(bool packed, int64_t keys)
{
    enum { PLANE = POSITIONS * CHANNELS };
    attn_problem p = {.ndims = 6, .flags = ATTN_WITH_MASK | ATTN_WITH_BIAS};
    int64_t across = QUERIES * PLANES * LONGEST;
    p.dims[0] = (attn_dim){.role = ATTN_ROLE_BATCH, .n = packed ? SEQUENCES : 1, .mask = across, .bias = across};
    p.dims[1] = (attn_dim){.role = ATTN_ROLE_QUERY,
                           .n = QUERIES,
                           .q = CHANNELS,
                           .o = CHANNELS,
                           .mask = PLANES * LONGEST,
                           .bias = PLANES * LONGEST};
    p.dims[2] =
        (attn_dim){.role = ATTN_ROLE_KEY, .n = PLANES, .k = PLANE, .v = PLANE, .mask = LONGEST, .bias = LONGEST};
    p.dims[3] = (attn_dim){.role = ATTN_ROLE_KEY, .n = keys, .k = CHANNELS, .v = CHANNELS, .mask = 1, .bias = 1};
    p.dims[4] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = CHANNELS, .q = 1, .k = 1};
    p.dims[5] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = CHANNELS, .v = 1, .o = 1};
    if (packed) {
        p.flags |= ATTN_WITH_PACKED;
        p.packed = (attn_packed){.batch_dim = 0, .query_dim = 1, .key_dim = 3, .queries = ROWS, .keys = POSITIONS};
    }
    return p;
}

static bool run(attn_context *c, const char *solver, bool packed, int64_t keys, const attn_arrays *arrays)
{
    attn_plan *plan;
    attn_problem p = describe(packed, keys);
    attn_status status = attn_plan_create(&plan, c, &p, &(attn_plan_options){.solver = solver});
    if (status == ATTN_ERROR_UNSUPPORTED) {
        attn_context_clear_error(c);
        return false;
    }
    if (status != ATTN_OK)
        fail_msg("%s", attn_context_error(c));
    assert_int_equal(attn_plan_execute(plan, arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
    return true;
}

static void each_sequence_has_its_own_mask_and_bias(void **state)
{
    attn_context *c;
    attn__rng rng = {.seed = 3};
    int taken = 0;
    (void)state;
    fill(q, sizeof q / sizeof *q, &rng);
    fill(k, sizeof k / sizeof *k, &rng);
    fill(v, sizeof v / sizeof *v, &rng);
    fill(bias, PAIRS, &rng);
    for (int i = 0; i < PAIRS; i++)
        mask[i] = attn__rng_normal(&rng) > 0;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    for (int s = 0; attn_solver_name(s); s++) {
        float all[ROWS * CHANNELS], alone[ROWS * CHANNELS];
        attn_arrays arrays = {.q = q, .k = k, .v = v, .bias = bias, .mask = mask, .o = all};
        arrays.q_offsets = q_offsets;
        arrays.k_offsets = k_offsets;
        if (!run(c, attn_solver_name(s), true, LONGEST, &arrays))
            continue;
        taken++;
        for (int i = 0; i < SEQUENCES; i++) {
            size_t rows = (size_t)i * QUERIES * CHANNELS, pairs = (size_t)i * QUERIES * PLANES * LONGEST;
            size_t first = (size_t)k_offsets[i] * CHANNELS;
            attn_arrays one = {
                .q = q + rows, .k = k + first, .v = v + first, .bias = bias + pairs, .mask = mask + pairs};
            one.o = alone + rows;
            assert_true(run(c, "reference", false, k_offsets[i + 1] - k_offsets[i], &one));
        }
        for (int i = 0; i < ROWS * CHANNELS; i++)
            if (!(fabsf(all[i] - alone[i]) <= 1e-5f))
                fail_msg("%s: element %d is %g, not %g", attn_solver_name(s), i, (double)all[i], (double)alone[i]);
    }
    assert_true(taken >= 2);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_sequence_has_its_own_mask_and_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
