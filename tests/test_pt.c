/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests what only PyTorch's files have: settings beside tensors, the opcodes of pickles, and malicious pickles. What they
 * share with other formats is in test_arrays.c.
 */
#include "support/fixture.h"
#include "support/array_files.h"

#include "attn/io.h"
#include "io/directory.h"
#include "io/tensors/formats.h"
#include "io/tensors/pickle.h"

#include <string.h>

/* What is plain data becomes settings. An object of an unknown class is skipped, and later entries are still read. */
static void settings_and_notes_are_read(void **state)
{
    static const char *const paths[] = {"tests/data/pt/nested.pt", "tests/data/pt/legacy.pt", "tests/data/pt/old.pth"};
    attn_context *c = *state;
    attn_config *args[3];
    attn_bytes report[3];
    for (int i = 0; i < 3; i++) {
        attn_named_list list = {.context = c, .owns = true};
        assert_ok(c, attn_config_create(&args[i], c));
        assert_ok(c, attn_weights_read(&list, paths[i], NULL, args[i], &report[i]));
        attn_named_clear(&list);
    }
    assert_int_equal(attn_config_int(args[0], "args.embed_dim", 0), 768);
    assert_true(attn_config_real(args[0], "args.dropout", 0) == 0.1);
    assert_string_equal(attn_config_text(args[0], "args.arch", ""), "msa_transformer");
    assert_false(attn_config_bool(args[0], "args.use_bias", true));
    assert_int_equal(attn_config_get(args[0], "args.max_positions")->type, ATTN_CONFIG_TYPE_NULL);
    assert_int_equal(attn_config_get(args[0], "args.shape")->n, 2);
    assert_non_null(strstr(report[0].data, "\"device\" is of an unknown class"));
    assert_int_equal(attn_config_int(args[1], "n", 0), 3);
    assert_int_equal(attn_config_int(args[2], "epoch", 0), 3);
    assert_string_equal(attn_config_text(args[2], "args.arch", ""), "detr");
    assert_non_null(strstr(report[2].data, "\"scheduler\" is of an unknown class"));
    for (int i = 0; i < 3; i++) {
        attn_bytes_free(c, &report[i]);
        attn_config_destroy(args[i]);
    }
}

static void a_state_dict_fills_a_model(void **state)
{
    attn_context *c = *state;
    attn_named_list model = {.context = c, .owns = true};
    attn_tensor *weight, *bias;
    attn_tensor_create(&weight, c, ATTN_F32, 2, (const int64_t[]){2, 3});
    attn_tensor_create(&bias, c, ATTN_F64, 1, (const int64_t[]){2});
    attn_named_add(&model, "weight", weight);
    attn_named_add(&model, "bias", bias);
    assert_int_equal(attn_weights_load(&model, "tests/data/pt/linear.pt", NULL, NULL, NULL), ATTN_OK);
    for (int i = 0; i < 6; i++)
        assert_true(((const float *)attn_tensor_data(weight))[i] == (float)i);
    assert_true(((const double *)attn_tensor_data(bias))[1] == 1);
    attn_named_clear(&model);
}

static attn__pickle_node read_number(const char *bytes, size_t size)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn__pickle pickle;
    attn__input input = {.context = c, .name = "f", .data = (const uint8_t *)bytes, .size = size};
    size_t offset = 0;
    assert_ok(c, attn__pickle_read(&pickle, &input, &offset));
    assert_int_equal(offset, size);
    attn__pickle_node node = pickle.nodes[pickle.root];
    attn__pickle_clear(&pickle);
    end_context(c);
    return node;
}

static void pickled_integers_are_read_with_their_sign(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        int64_t integer;
        double real;
    } cases[] = {{"\x80\x02K\xff.", 5, 255, 0},
                 {"\x80\x02M\x01\xff.", 6, 0xff01, 0},
                 {"\x80\x02J\xfe\xff\xff\xff.", 8, -2, 0},
                 {"\x80\x02J\xff\xff\xff\x7f.", 8, INT32_MAX, 0},
                 {"\x80\x02\x8a\x00.", 5, 0, 0},
                 {"\x80\x02\x8a\x01\xff.", 6, -1, 0},
                 {"\x80\x02\x8a\x02\xff\x00.", 7, 255, 0},
                 {"\x80\x02\x8a\x05\x01\x00\x00\x00\xfe.", 10, -(INT64_C(1) << 33) + 1, 0},
                 {"\x80\x02\x8b\x05\x00\x00\x00\x01\x00\x00\x00\x02.", 13, (INT64_C(1) << 33) + 1, 0},
                 {"\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", 13, INT64_MIN, 0},
                 {"\x80\x02G\xc0\x04\x00\x00\x00\x00\x00\x00.", 12, 0, -2.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn__pickle_node node = read_number(cases[i].bytes, cases[i].size);
        assert_int_equal(node.type, cases[i].real != 0 ? ATTN__NODE_REAL : ATTN__NODE_INT);
        assert_true(node.integer == cases[i].integer && node.real == cases[i].real);
    }
}

/* The numbers 1000, 1001, ... are stored in the memo in every way, from index 0 on. One of them is then looked up. */
static void pickle_memo_finds_any_object(void **state)
{
    enum { KEPT = 300 };
    static const struct {
        int64_t number;
        const char *lookup;
        size_t size;
    } cases[] = {{0, "h\x00.", 3}, {255, "h\xff.", 3}, {34, "j\x22\x00\x00\x00.", 6}, {290, "j\x22\x01\x00\x00.", 6}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char bytes[16 + KEPT * 9] = "\x80\x02";
        size_t n = 2;
        for (int k = 0; k < KEPT; k++) {
            const char push[] = {'M', (char)((1000 + k) & 0xff), (char)((1000 + k) >> 8)}, pop = '0';
            const char keep[] = {'r', (char)(k & 0xff), (char)(k >> 8), 0, 0}, memoize = '\x94';
            memcpy(bytes + n, push, sizeof push), n += sizeof push;
            memcpy(bytes + n, i % 2 ? &memoize : keep, i % 2 ? 1 : sizeof keep), n += i % 2 ? 1 : sizeof keep;
            bytes[n++] = pop;
        }
        memcpy(bytes + n, cases[i / 2].lookup, cases[i / 2].size);
        assert_int_equal(read_number(bytes, n + cases[i / 2].size).integer, 1000 + cases[i / 2].number);
    }
}

/* A pickle that calls os.system must not execute it. */
static void pickle_calls_no_function(void **state)
{
    static const char object[] = "\x80\x02"
                                 "cos\nsystem\nX\x12\x00\x00\x00touch /tmp/x-pickl\x85R.";
    const array_file file = array_file_pt(object, sizeof object - 1, NULL, 0);
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    attn_bytes report;
    assert_int_equal(attn_pt_parse(&list, file.bytes, file.size, "f", NULL, NULL, &report), ATTN_OK);
    assert_non_null(strstr(report.data, "skipped"));
    assert_false(attn_file_exists("/tmp/x-pickl"));
    attn_bytes_free(c, &report);
}

/* The lists l0 = [], l1 = [l0, l0], ... have 2^60 leaves in 400 bytes. */
static void exponentially_shared_lists_are_refused(void **state)
{
    char object[600] = "\x80\x02]q\x01"
                       "0";
    size_t size = 6;
    for (int i = 1; i < 60; i++) {
        const char step[] = {']', 'q', (char)(i + 1), 'h', (char)i, 'a', 'h', (char)i, 'a', '0'};
        memcpy(object + size, step, sizeof step);
        size += i < 59 ? sizeof step : sizeof step - 1;
    }
    object[size++] = '.';
    const array_file file = array_file_pt(object, size, NULL, 0);
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    assert_refused(c, attn_pt_parse(&list, file.bytes, file.size, "f", NULL, NULL, NULL), ATTN_ERROR_FORMAT,
                   "the file has more than a million values, the limit");
    attn_config *plain;
    attn_context_clear_error(c);
    assert_int_equal(attn_config_create(&plain, c), ATTN_OK);
    assert_int_equal(attn_pt_parse(&list, file.bytes, file.size, "f", NULL, plain, NULL), ATTN_ERROR_FORMAT);
    assert_int_equal(attn_config_size(plain), 4096);
    attn_config_destroy(plain);
}

RUN_TESTS(TEST_WITH_CONTEXT(settings_and_notes_are_read), TEST_WITH_CONTEXT(a_state_dict_fills_a_model),
          TEST(pickled_integers_are_read_with_their_sign), TEST(pickle_memo_finds_any_object),
          TEST_WITH_CONTEXT(pickle_calls_no_function), TEST_WITH_CONTEXT(exponentially_shared_lists_are_refused))
