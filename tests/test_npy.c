/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests .npy files: every type and order is written and read, and damaged files are refused.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/damage.h"
#include "support/scratch.h"

#include "attn/io.h"
#include "io/tensors/formats.h"

#include <stdio.h>
#include <string.h>

typedef struct file {
    uint8_t bytes[512];
    size_t size;
} file;

static file make_file(int version, const char *dict, const void *data, size_t size)
{
    file f = {.bytes = "\x93NUMPY", .size = 8};
    size_t length = strlen(dict);
    f.bytes[6] = (uint8_t)version;
    f.bytes[f.size++] = (uint8_t)length;
    f.bytes[f.size++] = (uint8_t)(length >> 8);
    f.size += version > 1 ? 2 : 0;
    memcpy(f.bytes + f.size, dict, length);
    memcpy(f.bytes + f.size + length, data, size);
    f.size += length + size;
    return f;
}

static attn_status parse(attn_tensor **t, attn_context *c, const file *f)
{
    return attn_npy_parse(t, c, f->bytes, f->size, "f");
}

#define DICT(type, order, shape) "{'descr': '" type "', 'fortran_order': " order ", 'shape': " shape ", }   \n"

static void each_type_is_read(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *dict;
        uint8_t data[8];
        size_t size;
        attn_dtype dtype;
        double value;
    } cases[] = {
        {DICT("<f4", "False", "()"), {0, 0, 0xc0, 0x3f}, 4, ATTN_F32, 1.5},
        {DICT(">f4", "False", "()"), {0x3f, 0xc0}, 4, ATTN_F32, 1.5},
        {DICT("<f8", "False", "()"), {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 8, ATTN_F64, 1.5},
        {DICT("<f2", "False", "()"), {0, 0x3e}, 2, ATTN_F32, 1.5},
        {DICT("|i1", "False", "()"), {0xfe}, 1, ATTN_I32, -2},
        {DICT("<i2", "False", "()"), {0xfe, 0xff}, 2, ATTN_I32, -2},
        {DICT(">i4", "False", "()"), {0xff, 0xff, 0xff, 0xfe}, 4, ATTN_I32, -2},
        {DICT("<i8", "False", "()"), {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 8, ATTN_I64, -2},
        {DICT("|u1", "False", "()"), {200}, 1, ATTN_U8, 200},
        {DICT("<u2", "False", "()"), {0, 0xff}, 2, ATTN_I32, 0xff00},
        {DICT("<u4", "False", "()"), {0, 0, 0, 0xff}, 4, ATTN_I64, 4278190080.0},
        {DICT("|b1", "False", "()"), {2}, 1, ATTN_BOOL, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_context_clear_error(c);
        attn_tensor *t;
        file f = make_file(1 + (int)i % 3, cases[i].dict, cases[i].data, cases[i].size);
        assert_ok(c, parse(&t, c, &f));
        const void *x = attn_tensor_data(t);
        assert_int_equal(attn_tensor_dtype(t), cases[i].dtype);
        assert_int_equal(attn_tensor_rank(t), 0);
        double value = cases[i].dtype == ATTN_F32   ? (double)*(const float *)x
                       : cases[i].dtype == ATTN_F64 ? *(const double *)x
                       : cases[i].dtype == ATTN_I32 ? *(const int32_t *)x
                       : cases[i].dtype == ATTN_I64 ? (double)*(const int64_t *)x
                                                    : *(const uint8_t *)x;
        assert_true(value == cases[i].value);
        attn_tensor_destroy(t);
    }
}

static void fortran_order_is_transposed(void **state)
{
    static const uint8_t data[6] = {1, 4, 2, 5, 3, 6};
    attn_context *c = *state;
    attn_tensor *t;
    file f = make_file(1, DICT("|u1", "True", "(2, 3)"), data, sizeof data);
    assert_int_equal(parse(&t, c, &f), ATTN_OK);
    assert_memory_equal(attn_tensor_data(t), "\1\2\3\4\5\6", 6);
    attn_tensor_destroy(t);
}

static void bad_files_are_refused(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *dict, *error;
        attn_status status;
    } cases[] = {
        {DICT("<f4", "False", "(2,)"), "need 8 bytes, but the file ends after 4", ATTN_ERROR_FORMAT},
        {DICT("|u1", "False", "(2,)"), "2 bytes after the last element", ATTN_ERROR_FORMAT},
        {DICT("<c8", "False", "()"), "\"<c8\" are not supported", ATTN_ERROR_UNSUPPORTED},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "structured types are not supported",
         ATTN_ERROR_UNSUPPORTED},
        {DICT("<f4", "Maybe", "()"), "True or False", ATTN_ERROR_FORMAT},
        {DICT("<f4", "False", "(1,1,1,1,1,1,1,1,1)"), "more than 8 axes", ATTN_ERROR_UNSUPPORTED},
        {DICT("<f4", "False", "(99999999999999999999,)"), "overflows", ATTN_ERROR_FORMAT},
        {DICT("<f4", "False", "(4611686018427387904, 4)"), "need 18446744073709551615 bytes", ATTN_ERROR_FORMAT},
        /* no elements, but strides that overflow */
        {DICT("<f4", "False", "(4294967296, 4294967296, 0)"), "need 18446744073709551615 bytes", ATTN_ERROR_FORMAT},
        {DICT("<f4", "False", "(-1,)"), "expected a length", ATTN_ERROR_FORMAT},
        {"{'descr': '<f4', 'shape': (1,)}", "descr, fortran_order or shape is missing", ATTN_ERROR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "found text behind the dict", ATTN_ERROR_FORMAT},
        {"{'descr: '<f4'", "expected", ATTN_ERROR_FORMAT},
        {"", "expected {", ATTN_ERROR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_context_clear_error(c);
        attn_tensor *t;
        file f = make_file(1, cases[i].dict, "1234", 4);
        assert_refused(c, parse(&t, c, &f), cases[i].status, cases[i].error);
        assert_null(t);
    }
}

static attn_status read_and_free(attn_context *c, const uint8_t *data, size_t size)
{
    attn_tensor *t;
    attn_status status = attn_npy_parse(&t, c, data, size, "f");
    assert_true((status == ATTN_OK) == (t != NULL));
    attn_tensor_destroy(t);
    return status;
}

static void damaged_files_are_read_or_refused(void **state)
{
    file f = make_file(1, DICT("<f4", "True", "(1, 1)"), "1234", 4);
    damage_bytes(read_and_free, f.bytes, f.size);
}

static attn_status write_and_read(attn_context *c, void *user)
{
    attn_tensor *t = NULL, *again = NULL;
    attn_status status = attn_tensor_create(&t, c, ATTN_I32, 3, (const int64_t[]){2, 1, 3});
    if (status == ATTN_OK) {
        for (int32_t i = 0; i < 6; i++)
            ((int32_t *)attn_tensor_data(t))[i] = i;
        status = attn_npy_write(t, c, user);
    }
    if (status == ATTN_OK)
        status = attn_npy_read(&again, c, user);
    if (status == ATTN_OK) {
        assert_int_equal(attn_tensor_rank(again), 3);
        assert_memory_equal(attn_tensor_data(again), attn_tensor_data(t), 24);
    }
    attn_tensor_destroy(t);
    attn_tensor_destroy(again);
    return status;
}

static void written_files_are_read_back(void **state)
{
    char folder[64], path[128];
    scratch_open(folder);
    snprintf(path, sizeof path, "%s/x.npy", folder);
    assert_true(faults_try_all(write_and_read, path) > 3);
    attn_context *c = *state;
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F64, ATTN_I64, ATTN_U8, ATTN_BOOL};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        attn_tensor *t, *again;
        assert_int_equal(attn_tensor_create(&t, c, dtypes[i], 1, (const int64_t[]){3}), ATTN_OK);
        *(uint8_t *)attn_tensor_data(t) = 1;
        assert_int_equal(attn_npy_write(t, c, path), ATTN_OK);
        assert_int_equal(attn_npy_read(&again, c, path), ATTN_OK);
        assert_int_equal(attn_tensor_dtype(again), dtypes[i] == ATTN_BF16 ? ATTN_F32 : dtypes[i]);
        assert_int_equal(attn_tensor_length(again, 0), 3);
        attn_tensor_destroy(t);
        attn_tensor_destroy(again);
    }
    assert_int_equal(scratch_close(folder), 1);
}

/* A .npy file is accepted wherever weights are read. */
static void an_array_is_read_as_weights(void **state)
{
    file f = make_file(1, DICT("<f4", "False", "(2,)"), (const float[]){1.5f, -2}, 8);
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    assert_ok(c, attn_weights_parse(&list, f.bytes, f.size, "f", NULL, NULL, NULL));
    assert_int_equal(list.n, 1);
    const attn_tensor *x = attn_named_find(&list, "array");
    assert_non_null(x);
    assert_true(attn_tensor_size(x) == 2 && ((const float *)attn_tensor_data(x))[1] == -2);
    attn_named_clear(&list);
}

RUN_TESTS(TEST_WITH_CONTEXT(each_type_is_read), TEST_WITH_CONTEXT(an_array_is_read_as_weights),
          TEST_WITH_CONTEXT(fortran_order_is_transposed), TEST_WITH_CONTEXT(bad_files_are_refused),
          TEST(damaged_files_are_read_or_refused), TEST_WITH_CONTEXT(written_files_are_read_back))
