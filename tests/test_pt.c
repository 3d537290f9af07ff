/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests PyTorch's files: those of tests/data/pt, damaged files, and malicious pickles.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/damage.h"

#include "attn/io.h"
#include "io/tensors/pickle.h"
#include "io/directory.h"
#include "io/tensors/formats.h"

#include <stdio.h>
#include <string.h>

static const char nested[] = "tests/data/pt/nested.pt", legacy[] = "tests/data/pt/legacy.pt",
                  old[] = "tests/data/pt/old.pth";

static const float *floats(const attn_named_list *list, const char *name, int64_t size)
{
    const attn_tensor *t = attn_named_find(list, name);
    if (!t)
        fail_msg("no tensor %s", name);
    assert_int_equal(attn_tensor_size(t), size);
    assert_int_equal(attn_tensor_dtype(t), ATTN_F32);
    return attn_tensor_data(t);
}

static void check_floats(const attn_named_list *list, const char *name, int64_t n, const float *expected)
{
    const float *x = floats(list, name, n);
    for (int64_t i = 0; i < n; i++)
        assert_true(x[i] == expected[i]);
}

static const float counted[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
static const float turned[12] = {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11};

static void a_nested_file_is_read(void **state)
{
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    attn_config *args;
    attn_bytes report;
    attn_config_create(&args, c);
    assert_ok(c, attn_weights_read(&list, nested, NULL, args, &report));
    assert_int_equal(list.n, 15);
    check_floats(&list, "model.weight", 12, counted);
    check_floats(&list, "model.transposed", 12, turned);
    assert_int_equal(attn_tensor_length(attn_named_find(&list, "model.transposed"), 0), 3);
    check_floats(&list, "model.column", 4, (const float[]){1, 4, 7, 10});
    check_floats(&list, "model.rows", 6, counted + 3);
    check_floats(&list, "model.bias", 2, (const float[]){0.5f, -1.5f});
    check_floats(&list, "model.half", 2, (const float[]){1.5f, -2});
    check_floats(&list, "model.brain", 2, (const float[]){1.5f, -2});
    check_floats(&list, "model.double", 1, (const float[]){0.1f});
    check_floats(&list, "model.expanded", 4, (const float[]){3, 3, 3, 3});
    check_floats(&list, "model.empty", 0, NULL);
    check_floats(&list, "states.1", 1, (const float[]){2});
    const attn_tensor *steps = attn_named_find(&list, "model.steps"), *mask = attn_named_find(&list, "model.mask");
    assert_int_equal(attn_tensor_dtype(steps), ATTN_I32);
    assert_int_equal(attn_tensor_rank(steps), 0);
    assert_int_equal(*(const int32_t *)attn_tensor_data(steps), 7);
    assert_int_equal(attn_tensor_dtype(mask), ATTN_BOOL);
    assert_memory_equal(attn_tensor_data(mask), "\1\0", 2);
    assert_memory_equal(attn_tensor_data(attn_named_find(&list, "model.bytes")), "\1\377", 2);
    assert_int_equal(attn_config_int(args, "args.embed_dim", 0), 768);
    assert_true(attn_config_real(args, "args.dropout", 0) == 0.1);
    assert_string_equal(attn_config_text(args, "args.arch", ""), "msa_transformer");
    assert_false(attn_config_bool(args, "args.use_bias", true));
    assert_int_equal(attn_config_get(args, "args.max_positions")->type, ATTN_CONFIG_TYPE_NULL);
    assert_int_equal(attn_config_get(args, "args.shape")->n, 2);
    assert_non_null(strstr(report.data, "\"device\" is of an unknown class"));
    attn_bytes_free(c, &report);
    attn_named_clear(&list);
    attn_config_destroy(args);
}

static void the_older_form_is_read(void **state)
{
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    attn_config *args;
    attn_config_create(&args, c);
    assert_ok(c, attn_weights_read(&list, legacy, NULL, args, NULL));
    assert_int_equal(list.n, 2);
    check_floats(&list, "weight", 12, counted);
    check_floats(&list, "transposed", 12, turned);
    assert_int_equal(attn_config_int(args, "n", 0), 3);
    attn_named_clear(&list);
    attn_config_destroy(args);
}

/* A training's checkpoint has weights and other entries. These are read or skipped, and later entries are still
 * read. */
static void an_old_checkpoint_is_read(void **state)
{
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    attn_config *args;
    attn_bytes report;
    attn_config_create(&args, c);
    assert_ok(c, attn_weights_read(&list, old, NULL, args, &report));
    assert_int_equal(list.n, 5);
    check_floats(&list, "model.embed.weight", 6, counted);
    check_floats(&list, "model.head.weight", 6, counted);
    check_floats(&list, "model.view", 4, counted + 2);
    check_floats(&list, "model.bias", 2, (const float[]){1.5f, -2});
    check_floats(&list, "optimizer.state.0.exp_avg", 2, (const float[]){0.25f, 0.5f});
    assert_int_equal(attn_config_int(args, "epoch", 0), 3);
    assert_string_equal(attn_config_text(args, "args.arch", ""), "detr");
    assert_non_null(strstr(report.data, "\"scheduler\" is of an unknown class"));
    attn_bytes_free(c, &report);
    attn_named_clear(&list);
    attn_config_destroy(args);
}

/* Reads files of other forms: dicts made from a dict or from pairs in lists and tuples (Python 2), tensors with
 * attributes, files without checksums, and files of the older form with another protocol than 2. */
static void other_forms_are_read(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *path, *name;
        int64_t n, tensors;
        float first;
    } cases[] = {
        {"tests/data/pt/python2.pt", "net.w", 2, 6, 0},   {"tests/data/pt/python2.pt", "net.b", 3, 6, 2},
        {"tests/data/pt/python2.pt", "ema.a", 1, 6, 6},   {"tests/data/pt/python2.pt", "ema.inner.x", 2, 6, 7},
        {"tests/data/pt/python2.pt", "given.y", 2, 6, 9}, {"tests/data/pt/python2.pt", "last", 1, 6, 5},
        {"tests/data/pt/typed.pt", "typed", 3, 2, 0},     {"tests/data/pt/typed.pt", "plain", 2, 2, 3},
        {"tests/data/pt/no_crc.pt", "x", 4, 1, 0},        {"tests/data/pt/protocol4.pt", "x", 4, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_context_clear_error(c);
        attn_named_list list = {.context = c, .owns = true};
        assert_ok(c, attn_weights_read(&list, cases[i].path, NULL, NULL, NULL));
        assert_int_equal(list.n, cases[i].tensors);
        const float *x = floats(&list, cases[i].name, cases[i].n);
        for (int64_t k = 0; k < cases[i].n; k++)
            assert_true(x[k] == cases[i].first + (float)k);
        attn_named_clear(&list);
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
    check_floats(&model, "weight", 6, counted);
    assert_true(((const double *)attn_tensor_data(bias))[1] == 1);
    attn_named_clear(&model);
}

/* ---------------------------------------------------------------------------------------------- damage */

static void damaged_files_are_read_or_refused(void **state)
{
    damage_list_file(attn_pt_parse, "tests/data/pt/linear.pt");
    damage_list_file(attn_pt_parse, legacy);
}

/* Makes a file of the older form, without storages, from the pickle of an object. */
static size_t wrap(uint8_t *out, const char *object, size_t size)
{
    static const char before[] =
        "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.",
                      after[] = "\x80\x02].";
    memcpy(out, before, sizeof before - 1);
    memcpy(out + sizeof before - 1, object, size);
    memcpy(out + sizeof before - 1 + size, after, sizeof after - 1);
    return sizeof before + sizeof after - 2 + size;
}

#define CASE(bytes, error)                                                                                             \
    {                                                                                                                  \
        bytes, sizeof bytes - 1, error                                                                                 \
    }
#define CASE2(bytes, class, help)                                                                                      \
    {                                                                                                                  \
        bytes, sizeof bytes - 1, class, help                                                                           \
    }
static void hostile_pickles_are_refused(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *object;
        size_t size;
        const char *error;
    } cases[] = {
        CASE("\x80\x02]q\x00h\x00"
             "a.",
             "contains itself"),
        CASE("\x80\x02}q\x00X\x01\x00\x00\x00"
             "ah\x00s.",
             "contains itself"),
        CASE("\x80\x02\xff.", "f: byte 27: pickle: unknown opcode 0xff"),
        CASE("\x80\x02"
             "0.",
             "f: byte 27: pickle: takes from an empty stack"),
        CASE("\x80\x02(.", "f: byte 28: pickle: stops within a mark"),
        CASE("\x80\x02h\x05.", "f: byte 27: pickle: looks up an object that was not kept"),
        CASE("\x80\x02Nr\xff\xff\xff\x7f.", "too large a number"),
        CASE("\x80\x02X\xff\xff\xff\xff"
             "a.",
             "cut off"),
        CASE("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
             "a.",
             "cut off"),
        CASE("\x80\x02\x8d\x01\0\0\0\0\0\0\0a\xff.", "f: byte 37: pickle: unknown opcode 0xff"),
        CASE("\x80\x02\x8e\x02\0\0\0\0\0\0\0ab\xff.", "f: byte 38: pickle: unknown opcode 0xff"),
        CASE("\x80\x02K\x01K\x02"
             "a.",
             "cannot hold them"),
        CASE("\x80\x02"
             "ccollections\nOrderedDict\n](]X\x01\x00\x00\x00"
             "aae\x85R.",
             "not a pair"),
        CASE("\x80\x02"
             "ccollections\nOrderedDict\n]K\x01"
             "a\x85R.",
             "not a pair"),
        CASE("\x80\x02(K\x01"
             "d.",
             "key without a value"),
        CASE("\x80\x02K\x01K\x02\x93.", "name of a class"),
        CASE("\x80\x02t.", "a mark that is not there"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_tensor_v2\n)R.",
             "is not rebuilt as PyTorch does"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))\x89NtR.",
             "has no storage"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
             "0X\x03\x00\x00\x00"
             "cpuK\x09tQK\x00))\x89NtR.",
             "the storage \"0\" is missing"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t file[512];
        size_t size = wrap(file, cases[i].object, cases[i].size);
        attn_context_clear_error(c);
        attn_named_list list = {.context = c, .owns = true};
        assert_refused(c, attn_pt_parse(&list, file, size, "f", NULL, NULL, NULL), ATTN_ERROR_FORMAT, cases[i].error);
    }
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

/* A tensor of shape [2^62, 2^62, 0] has no elements, but strides that overflow. */
static void shapes_that_overflow_are_refused(void **state)
{
    static const char object[] =
        "\x80\x02"
        "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
        "0X\x03\x00\x00\x00"
        "cpuK\x00tQK\x00(\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40"
        "K\x00t(K\x00K\x00K\x01t\x89NtR.";
    static const char storages[] = "\x80\x02]X\x01\x00\x00\x00"
                                   "0a.\0\0\0\0\0\0\0";
    uint8_t file[512];
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    size_t size = wrap(file, object, sizeof object - 1) - 4;
    memcpy(file + size, storages, sizeof storages);
    assert_refused(c, attn_pt_parse(&list, file, size + sizeof storages, "f", NULL, NULL, NULL), ATTN_ERROR_FORMAT,
                   "its size overflows");
}

/* torch.save stores x.conj().imag as x's storage with {"neg": True}. */
static void negated_storages_are_refused(void **state)
{
    static const char object[] =
        "\x80\x02"
        "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00"
        "0X\x03\x00\x00\x00"
        "cpuK\x01tQK\x00))\x89N}X\x03\x00\x00\x00neg\x88stR.";
    uint8_t file[512];
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    size_t size = wrap(file, object, sizeof object - 1);
    assert_refused(c, attn_pt_parse(&list, file, size, "f", NULL, NULL, NULL), ATTN_ERROR_UNSUPPORTED, "resolve_neg()");
}

/* Tests a module of PyTorch in the older form, a module in a dict, and a TorchScript program. */
static void pickled_modules_are_refused_with_help(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *object;
        size_t size;
        const char *class, *help;
    } cases[] = {
        CASE2("\x80\x02"
              "cshop\nNet\n)\x81}(X\x08\x00\x00\x00_modules}ub.",
              "(shop.Net)", "torch.save(model.state_dict(), FILE)"),
        CASE2("\x80\x02"
              "(X\x06\x00\x00\x00modulecshop\nNet\nNNtQ)\x81}(X\x08\x00\x00\x00_modules}ub.",
              "(shop.Net)", "torch.save(model.state_dict(), FILE)"),
        CASE2("\x80\x02}X\x05\x00\x00\x00modelcshop\nNet\n)\x81}(X\x08\x00\x00\x00_modules}ubs.", "(shop.Net)",
              "torch.save(model.state_dict(), FILE)"),
        CASE2("\x80\x02"
              "c__torch__.shop\nNet\n)\x81}b.",
              "TorchScript", "torch.jit.load(THIS).state_dict()"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t file[512];
        attn_context_clear_error(c);
        attn_named_list list = {.context = c, .owns = true};
        size_t size = wrap(file, cases[i].object, cases[i].size);
        assert_int_equal(attn_weights_parse(&list, file, size, "f", NULL, NULL, NULL), ATTN_ERROR_UNSUPPORTED);
        if (!strstr(attn_context_error(c), cases[i].class) || !strstr(attn_context_error(c), cases[i].help))
            fail_msg("case %zu: \"%s\"", i, attn_context_error(c));
    }
}

/* A pickle that calls os.system must not execute it. */
static void pickle_calls_no_function(void **state)
{
    static const char object[] = "\x80\x02"
                                 "cos\nsystem\nX\x12\x00\x00\x00touch /tmp/x-pickl\x85R.";
    uint8_t file[512];
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    attn_bytes report;
    assert_int_equal(attn_pt_parse(&list, file, wrap(file, object, sizeof object - 1), "f", NULL, NULL, &report),
                     ATTN_OK);
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
    uint8_t file[800];
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    assert_refused(c, attn_pt_parse(&list, file, wrap(file, object, size), "f", NULL, NULL, NULL), ATTN_ERROR_FORMAT,
                   "more than a million values");
    attn_config *plain;
    attn_context_clear_error(c);
    assert_int_equal(attn_config_create(&plain, c), ATTN_OK);
    assert_int_equal(attn_pt_parse(&list, file, wrap(file, object, size), "f", NULL, plain, NULL), ATTN_ERROR_FORMAT);
    assert_int_equal(attn_config_size(plain), 4096);
    attn_config_destroy(plain);
}

static attn_status read_file(attn_context *c, void *user)
{
    attn_named_list list = {.context = c, .owns = true};
    attn_config *args = NULL;
    attn_bytes report = {0};
    attn_status status = attn_config_create(&args, c);
    if (status == ATTN_OK)
        status = attn_weights_read(&list, user, NULL, args, &report);
    attn_bytes_free(c, &report);
    attn_named_clear(&list);
    attn_config_destroy(args);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_true(faults_try_all(read_file, (void *)(uintptr_t)nested) > 50);
    assert_true(faults_try_all(read_file, (void *)(uintptr_t)legacy) > 10);
    assert_true(faults_try_all(read_file, (void *)(uintptr_t)old) > 10);
    assert_true(faults_try_all(read_file, (void *)(uintptr_t) "tests/data/pt/python2.pt") > 10);
}

RUN_TESTS(TEST_WITH_CONTEXT(a_nested_file_is_read), TEST_WITH_CONTEXT(the_older_form_is_read),
          TEST_WITH_CONTEXT(an_old_checkpoint_is_read), TEST_WITH_CONTEXT(other_forms_are_read),
          TEST_WITH_CONTEXT(a_state_dict_fills_a_model), TEST(damaged_files_are_read_or_refused),
          TEST_WITH_CONTEXT(hostile_pickles_are_refused), TEST(pickled_integers_are_read_with_their_sign),
          TEST(pickle_memo_finds_any_object), TEST_WITH_CONTEXT(negated_storages_are_refused),
          TEST_WITH_CONTEXT(pickled_modules_are_refused_with_help), TEST_WITH_CONTEXT(pickle_calls_no_function),
          TEST_WITH_CONTEXT(exponentially_shared_lists_are_refused), TEST(every_allocation_may_fail),
          TEST_WITH_CONTEXT(shapes_that_overflow_are_refused))
