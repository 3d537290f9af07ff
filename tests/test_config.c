/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests settings: their order, copies, replaced values, types, and failing allocations.
 */
#include "support/fixture.h"
#include "support/faults.h"

#include "attn/config.h"
#include "config/keys.h"

#include <stdio.h>
#include <string.h>

static void keys_keep_their_order(void **state)
{
    attn_context *c = *state;
    attn_config *config;
    assert_int_equal(attn_config_create(&config, c), ATTN_OK);
    char key[8] = "k00";
    for (int i = 0; i < 40; i++) {
        key[1] = (char)('0' + i / 10);
        key[2] = (char)('0' + i % 10);
        assert_int_equal(attn_config_set_int(config, key, i), ATTN_OK);
    }
    assert_int_equal(attn_config_set_text(config, "k03", "replaced"), ATTN_OK);
    assert_int_equal(attn_config_size(config), 40);
    assert_string_equal(attn_config_key(config, 3), "k03");
    assert_string_equal(attn_config_text(config, "k03", "no"), "replaced");
    assert_null(attn_config_key(config, 40));
    assert_null(attn_config_key(config, -1));
    assert_null(attn_config_get(config, "k40"));
    assert_int_equal(attn_config_set_int(config, "", 1), ATTN_ERROR_ARGUMENT);
    attn_config_destroy(config);
    attn_config_destroy(NULL);
}

static void values_stay_where_they_are(void **state)
{
    attn_context *c = *state;
    attn_config *config;
    assert_int_equal(attn_config_create(&config, c), ATTN_OK);
    assert_int_equal(attn_config_set_int(config, "first", 42), ATTN_OK);
    const attn_config_value *first = attn_config_get(config, "first");
    for (int i = 0; i < 100; i++) {
        char key[24];
        snprintf(key, sizeof key, "key%d", i);
        assert_int_equal(attn_config_set_int(config, key, i), ATTN_OK);
    }
    assert_ptr_equal(attn_config_get(config, "first"), first);
    assert_int_equal(first->integer, 42);
    attn_config_destroy(config);
}

/* With a linear search for each key, this test would take a quarter of an hour. */
static void many_keys_are_found(void **state)
{
    enum { KEYS = 100000 };
    attn_context *c = *state;
    attn_config *config;
    assert_int_equal(attn_config_create(&config, c), ATTN_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < KEYS; i++) {
            char key[24];
            snprintf(key, sizeof key, "id2label.%d", i);
            assert_int_equal(attn_config_set_int(config, key, i + pass), ATTN_OK);
        }
    }
    assert_int_equal(attn_config_size(config), KEYS);
    assert_string_equal(attn_config_key(config, KEYS - 1), "id2label.99999");
    assert_int_equal(attn_config_int(config, "id2label.50000", -1), 50001);
    attn_config_destroy(config);
}

static void values_are_typed(void **state)
{
    attn_context *c = *state;
    attn_config *config;
    attn_config_create(&config, c);
    attn_config_set_int(config, "int", 7);
    attn_config_set_real(config, "real", 0.5);
    attn_config_set_bool(config, "bool", true);
    attn_config_set(config, "null", &(attn_config_value){0});
    assert_int_equal(attn_config_int(config, "int", 1), 7);
    assert_true(attn_config_real(config, "int", 1) == 7.0);
    assert_true(attn_config_real(config, "real", 1) == 0.5);
    assert_int_equal(attn_config_int(config, "real", 3), 3);
    assert_true(attn_config_bool(config, "bool", false));
    assert_true(attn_config_bool(config, "int", true));
    assert_string_equal(attn_config_text(config, "null", "none"), "none");
    assert_int_equal(attn_config_get(config, "null")->type, ATTN_CONFIG_TYPE_NULL);
    attn_config_destroy(config);
}

static void values_are_compared(void **state)
{
    const int64_t three[] = {2, 3, 4}, other[] = {2, 3, 5};
    const char *const names[] = {"a", "b"}, *const more[] = {"a", "c"};
    const attn_config_value values[] = {
        {.type = ATTN_CONFIG_TYPE_NULL},
        {.type = ATTN_CONFIG_TYPE_BOOL, .boolean = true},
        {.type = ATTN_CONFIG_TYPE_BOOL},
        {.type = ATTN_CONFIG_TYPE_INT, .integer = 7, .real = 7},
        {.type = ATTN_CONFIG_TYPE_INT, .integer = (INT64_C(1) << 60) + 1, .real = 0x1p60},
        {.type = ATTN_CONFIG_TYPE_INT,
         .integer = INT64_C(1) << 60,
         .real = 0x1p60}, /* equals the INT as a double, although the two integers differ */
        {.type = ATTN_CONFIG_TYPE_REAL, .real = 7.5},
        {.type = ATTN_CONFIG_TYPE_TEXT, .text = "7"},
        {.type = ATTN_CONFIG_TYPE_TEXT, .text = ""},
        {.type = ATTN_CONFIG_TYPE_INTS, .n = 3, .integers = three},
        {.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = three},
        {.type = ATTN_CONFIG_TYPE_INTS, .n = 3, .integers = other},
        {.type = ATTN_CONFIG_TYPE_TEXTS, .n = 2, .texts = names},
        {.type = ATTN_CONFIG_TYPE_TEXTS, .n = 2, .texts = more},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (size_t j = 0; j < sizeof values / sizeof *values; j++)
            assert_int_equal(attn_config_value_equal(&values[i], &values[j]), i == j);
    assert_true(attn_config_value_equal(&values[3], &(attn_config_value){.type = ATTN_CONFIG_TYPE_REAL, .real = 7}));
}

static void lists_are_copied(void **state)
{
    attn_context *c = *state;
    attn_config *config;
    attn_config_create(&config, c);
    int64_t shape[] = {2, 3, 4};
    char name[] = "first";
    const char *names[] = {name, "second"};
    attn_config_set(config, "shape", &(attn_config_value){.type = ATTN_CONFIG_TYPE_INTS, .n = 3, .integers = shape});
    attn_config_set(config, "names", &(attn_config_value){.type = ATTN_CONFIG_TYPE_TEXTS, .n = 2, .texts = names});
    shape[1] = 9;
    name[0] = 'F';
    const attn_config_value *value = attn_config_get(config, "shape");
    assert_int_equal(value->n, 3);
    assert_int_equal(value->integers[1], 3);
    assert_string_equal(attn_config_get(config, "names")->texts[0], "first");
    /* A value may be replaced by itself. */
    assert_int_equal(attn_config_set(config, "names", attn_config_get(config, "names")), ATTN_OK);
    assert_string_equal(attn_config_get(config, "names")->texts[1], "second");
    attn_config_destroy(config);
}

static attn_status fill(attn_context *c, void *user)
{
    attn_config *config;
    attn_status status = attn_config_create(&config, c);
    const char *names[] = {"a", "b"};
    int64_t numbers[] = {1, 2};
    if (status == ATTN_OK)
        status = attn_config_set_text(config, "text", "value");
    if (status == ATTN_OK)
        status = attn_config_set(config, "names",
                                 &(attn_config_value){.type = ATTN_CONFIG_TYPE_TEXTS, .n = 2, .texts = names});
    if (status == ATTN_OK)
        status = attn_config_set(config, "names",
                                 &(attn_config_value){.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = numbers});
    attn_config_destroy(config);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_in_range(faults_try_all(fill, NULL), 1, 100);
}

RUN_TESTS(TEST_WITH_CONTEXT(keys_keep_their_order), TEST_WITH_CONTEXT(values_stay_where_they_are),
          TEST_WITH_CONTEXT(many_keys_are_found), TEST_WITH_CONTEXT(values_are_typed), TEST(values_are_compared),
          TEST_WITH_CONTEXT(lists_are_copied), TEST(every_allocation_may_fail))
