/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests safetensors files: writing, reading, damage, and loading into a model.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/damage.h"
#include "support/scratch.h"

#include "attn/io.h"
#include "io/tensors/formats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A file made of a header's text and of data. */
typedef struct file {
    uint8_t bytes[1024];
    size_t size;
} file;

static file make_file(const char *header, const void *data, size_t size)
{
    file f = {.size = 8 + strlen(header) + size};
    f.bytes[0] = (uint8_t)strlen(header);
    f.bytes[1] = (uint8_t)(strlen(header) >> 8);
    memcpy(f.bytes + 8, header, strlen(header));
    if (size > 0)
        memcpy(f.bytes + 8 + strlen(header), data, size);
    return f;
}

static attn_status parse(attn_named_list *list, const file *f, const attn_weights_options *options,
                         attn_config *metadata, attn_bytes *report)
{
    return attn_weights_parse(list, f->bytes, f->size, "f", options, metadata, report);
}

static const char good_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
    "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]},"
    "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[20,20]}}   ";
/* f32 1 and -2, f16 1.5 and -infinity, and the byte 7 */
static const uint8_t good_data[20] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0x3e, 0, 0xfc, 7};

static void a_good_file_is_read(void **state)
{
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    attn_config *metadata;
    attn_config_create(&metadata, c);
    file f = make_file(good_header, good_data, sizeof good_data);
    assert_int_equal(parse(&list, &f, &(attn_weights_options){0}, metadata, NULL), ATTN_OK);
    assert_int_equal(list.n, 4);
    assert_string_equal(list.items[0].name, "a");
    const attn_tensor *a = attn_named_find(&list, "a"), *b = attn_named_find(&list, "b"),
                      *s = attn_named_find(&list, "s");
    const float *x = attn_tensor_data(a), *y = attn_tensor_data(b);
    assert_int_equal(attn_tensor_rank(a), 2);
    assert_true(x[0] == 1 && x[1] == -2);
    assert_int_equal(attn_tensor_dtype(b), ATTN_F32);
    assert_true(y[0] == 1.5f && isinf(y[1]) && y[1] < 0);
    assert_int_equal(attn_tensor_dtype(s), ATTN_I32);
    assert_int_equal(attn_tensor_rank(s), 0);
    assert_int_equal(*(const int32_t *)attn_tensor_data(s), 7);
    assert_int_equal(attn_tensor_size(attn_named_find(&list, "e")), 0);
    assert_string_equal(attn_config_text(metadata, "format", ""), "pt");
    attn_named_clear(&list);
    assert_int_equal(parse(&list, &f, &(attn_weights_options){.keep_types = true}, NULL, NULL), ATTN_OK);
    assert_int_equal(attn_tensor_dtype(attn_named_find(&list, "b")), ATTN_F16);
    assert_int_equal(attn_tensor_dtype(attn_named_find(&list, "s")), ATTN_I64);
    attn_named_clear(&list);
    assert_int_equal(parse(&list, &f, &(attn_weights_options){.reals = ATTN_F64}, NULL, NULL), ATTN_OK);
    assert_true(((const double *)attn_tensor_data(attn_named_find(&list, "b")))[0] == 1.5);
    attn_named_clear(&list);
    attn_config_destroy(metadata);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* An empty tensor may begin where another tensor begins or ends, and may come before or after it in the header. */
static void empty_tensors_may_be_named_last(void **state)
{
    attn_context *c = *state;
    static const char *const headers[] = {
        "{\"e\":" T("F32", "[0]", "[0,0]") ",\"b\":" T("F32", "[2]", "[0,8]") "}",
        "{\"b\":" T("F32", "[2]", "[0,8]") ",\"e\":" T("F32", "[0]", "[0,0]") "}",
        "{\"b\":" T("F32", "[2]", "[0,8]") ",\"e\":" T("F32", "[0]", "[8,8]") "}",
    };
    for (int i = 0; i < 3; i++) {
        attn_context_clear_error(c);
        attn_named_list list = {.context = c, .owns = true};
        file f = make_file(headers[i], good_data, 8);
        if (parse(&list, &f, NULL, NULL, NULL) != ATTN_OK)
            fail_msg("%s: %s", headers[i], attn_context_error(c));
        const float *b = attn_tensor_data(attn_named_find(&list, "b"));
        assert_true(b[0] == 1 && b[1] == -2);
        assert_int_equal(attn_tensor_size(attn_named_find(&list, "e")), 0);
        attn_named_clear(&list);
    }
}

/* Integers with scales are read as the numbers that they represent. Scales that do not fit are refused with a
 * message. */
static void int8_weights_have_scales(void **state)
{
    static const char *const headers[] = {
        "{\"w\":{\"dtype\":\"I8\",\"shape\":[2,2],\"data_offsets\":[8,12]},"
        "\"w.int8_scale\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"w\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[8,12]},"
        "\"w.int8_scale\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"w\":{\"dtype\":\"I8\",\"shape\":[4,1],\"data_offsets\":[8,12]},"
        "\"w.int8_scale\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"w\":{\"dtype\":\"I8\",\"shape\":[2,2],\"data_offsets\":[8,12]},"
        "\"w.int8_scale\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}",
        "{\"w\":{\"dtype\":\"I8\",\"shape\":[2,2],\"data_offsets\":[8,12]},"
        "\"v.int8_scale\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
    };
    static const char *const said[] = {NULL, "must be I8 of two axes", "one for each row", "one for each row",
                                       "w is int8 without its scales"};
    static const float bad[] = {NAN, -1, INFINITY, 3e38f};
    uint8_t data[12] = {[4] = 0, [8] = 0x7f, 0x81, 0xff, 3};
    float scales[2] = {0.5f, 2};
    memcpy(data, scales, sizeof scales);
    attn_context *c = *state;
    attn_tensor *w;
    attn_named_list list = {.context = c, .owns = true}, model = {.context = c, .owns = true};
    attn_tensor_create(&w, c, ATTN_F32, 2, (int64_t[]){2, 2});
    attn_named_add(&model, "w", w);
    for (int i = 0; i < 5; i++) {
        file f = make_file(headers[i], data, sizeof data);
        attn_status status = parse(&list, &f, NULL, NULL, NULL);
        /* As weights of a model, the file is invalid, although it is valid as two unrelated tensors. */
        if (i == 4 && status == ATTN_OK) {
            char folder[64], path[128];
            attn_bytes report = {0};
            scratch_open(folder);
            snprintf(path, sizeof path, "%s/f.safetensors", folder);
            attn_file_write(c, path, f.bytes, f.size);
            assert_int_equal(attn_weights_load(&model, path, NULL, NULL, &report), ATTN_ERROR_SHAPE);
            assert_non_null(strstr(report.data, said[i]));
            attn_bytes_free(c, &report);
            scratch_close(folder);
        } else if (i > 0) {
            assert_non_null(strstr(attn_context_error(c), "w.int8_scale"));
            assert_refused(c, status, ATTN_ERROR_FORMAT, said[i]);
        } else {
            const float *x = attn_tensor_data(list.items[0].tensor);
            assert_int_equal(list.n, 1);
            assert_true(x[0] == 63.5f && x[1] == -63.5f && x[2] == -2 && x[3] == 6);
        }
        attn_named_clear(&list);
    }
    for (int i = 0; i < 4; i++) {
        scales[1] = bad[i];
        memcpy(data, scales, sizeof scales);
        file f = make_file(headers[0], data, sizeof data);
        assert_refused(c, parse(&list, &f, NULL, NULL, NULL), ATTN_ERROR_FORMAT, "w.int8_scale\": scale 1 is ");
    }
    attn_named_clear(&model);
}

static void trailing_bytes_are_refused(void **state)
{
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    attn_bytes report;
    uint8_t data[24] = {0};
    file f = make_file(good_header, data, sizeof data);
    assert_refused(c, parse(&list, &f, NULL, NULL, &report), ATTN_ERROR_FORMAT,
                   "4 bytes more than the tensors of the header need");
    assert_int_equal(list.n, 0);
    assert_null(report.data);
}

static void each_broken_rule_is_named(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *header;
        attn_status status;
        const char *error;
    } cases[] = {
        {"", ATTN_ERROR_FORMAT, "header does not begin with {"},
        {" {}", ATTN_ERROR_FORMAT, "header does not begin with {"},
        {"{\"a\":1}", ATTN_ERROR_FORMAT, "must have \"dtype\""},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", ATTN_ERROR_FORMAT,
         "duplicate object key"},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", ATTN_ERROR_FORMAT, "begins at 4 of the data, not at 0"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", ATTN_ERROR_FORMAT,
         "begins at 0 of the data, not at 4"},
        {"{\"a\":" T("F32", "[2]", "[0,4]") "}", ATTN_ERROR_FORMAT, "need 8 bytes, the offsets give 4"},
        {"{\"a\":" T("F32", "[9]", "[0,36]") "}", ATTN_ERROR_FORMAT, "offsets 0 to 36 do not lie in the 8 bytes"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", ATTN_ERROR_FORMAT, "offsets 4 to 0"},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", ATTN_ERROR_FORMAT, "must hold integers"},
        {"{\"a\":" T("F32", "[1.5]", "[0,4]") "}", ATTN_ERROR_FORMAT, "must hold integers"},
        {"{\"a\":" T("F32", "[4294967296,4294967296,16]", "[0,8]") "}", ATTN_ERROR_FORMAT, "overflows"},
        {"{\"a\":" T("F32", "[0,9223372036854775807,9]", "[0,0]") "}", ATTN_ERROR_FORMAT, "overflows"},
        {"{\"a\":" T("F32", "[99999999999999999999]", "[0,0]") "}", ATTN_ERROR_FORMAT,
         "must hold integers of at least 0"},
        {"{\"a\":" T("F8_E5M2", "[8]", "[0,8]") "}", ATTN_ERROR_UNSUPPORTED, "\"F8_E5M2\" is not supported"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", ATTN_ERROR_UNSUPPORTED, "more than 8 axes"},
        {"{\"__metadata__\":{\"a\":1}}", ATTN_ERROR_FORMAT, "__metadata__ \"a\" is not a text"},
        {"{\"a\":[[[[[1]]]]]}", ATTN_ERROR_FORMAT, "nested too deep"},
        {"{\"a\":" T("F32", "[1]", "[0,4]"), ATTN_ERROR_FORMAT, "'}' expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_context_clear_error(c);
        attn_named_list list = {.context = c, .owns = true};
        uint8_t data[8] = {0};
        file f = make_file(cases[i].header, data, sizeof data);
        attn_status status = parse(&list, &f, NULL, NULL, NULL);
        assert_int_equal(strncmp(attn_context_error(c), "f: byte ", 8), 0);
        assert_refused(c, status, cases[i].status, cases[i].error);
        assert_int_equal(list.n, 0);
        attn_named_clear(&list);
    }
}

static void damaged_files_are_read_or_refused(void **state)
{
    file f = make_file(good_header, good_data, sizeof good_data);
    assert_true(damage_list(attn_safetensors_parse, f.bytes, f.size) > 100);
}

/* ------------------------------------------------------------------------------------------------ files */

static attn_tensor *tensor(attn_named_list *list, const char *name, attn_dtype dtype, int rank, const int64_t *shape)
{
    attn_tensor *t;
    assert_int_equal(attn_tensor_create(&t, list->context, dtype, rank, shape), ATTN_OK);
    assert_int_equal(attn_named_add(list, name, t), ATTN_OK);
    return t;
}

/* Makes two weights and a bias with the numbers `first`, `first` + 1, ... */
static attn_named_list small_model(attn_context *c, float first)
{
    attn_named_list list = {.context = c, .owns = true};
    tensor(&list, "enc.weight", ATTN_F32, 2, (const int64_t[]){3, 5});
    tensor(&list, "enc.bias", ATTN_F32, 1, (const int64_t[]){3});
    tensor(&list, "dec.weight", ATTN_F32, 2, (const int64_t[]){2, 3});
    for (int64_t i = 0; i < list.n; i++) {
        float *x = attn_tensor_data(list.items[i].tensor);
        for (int64_t j = 0; j < attn_tensor_size(list.items[i].tensor); j++)
            x[j] = first++;
    }
    return list;
}

static bool same_numbers(const attn_named_list *a, const attn_named_list *b)
{
    for (int64_t i = 0; i < a->n; i++) {
        const attn_tensor *x = a->items[i].tensor, *y = attn_named_find(b, a->items[i].name);
        if (!y || memcmp(attn_tensor_data(x), attn_tensor_data(y), (size_t)attn_tensor_size(x) * 4) != 0)
            return false;
    }
    return true;
}

static void a_model_survives_a_file(void **state)
{
    char folder[64], path[128];
    attn_context *c = *state;
    scratch_open(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    attn_named_list model = small_model(c, 1), other = small_model(c, 100), list = {.context = c, .owns = true};
    attn_config *metadata, *back;
    attn_config_create(&metadata, c);
    attn_config_create(&back, c);
    attn_config_set_text(metadata, "format", "pt");
    attn_config_set_int(metadata, "epoch", 12);
    assert_int_equal(attn_safetensors_write(&model, path, metadata), ATTN_OK);
    assert_int_equal(attn_weights_read(&list, path, NULL, back, NULL), ATTN_OK);
    assert_int_equal(list.n, model.n);
    assert_true(same_numbers(&model, &list));
    assert_string_equal(attn_config_text(back, "epoch", ""), "12");
    assert_int_equal(attn_weights_load(&other, path, NULL, NULL, NULL), ATTN_OK);
    assert_true(same_numbers(&model, &other));
    attn_bytes bytes;
    assert_int_equal(attn_file_read(&bytes, c, path, 0), ATTN_OK);
    assert_int_equal((8 + (unsigned char)bytes.data[0] + 256 * (unsigned char)bytes.data[1]) % 64, 0);
    attn_bytes_free(c, &bytes);
    assert_int_equal(attn_named_add(&model, "enc.bias", NULL), ATTN_OK);
    assert_int_equal(attn_safetensors_write(&model, path, NULL), ATTN_ERROR_ARGUMENT);
    attn_named_clear(&model);
    attn_named_clear(&other);
    attn_named_clear(&list);
    attn_config_destroy(metadata);
    attn_config_destroy(back);
    assert_int_equal(scratch_close(folder), 1);
}

static void all_misfits_are_listed(void **state)
{
    attn_context *c = *state;
    attn_named_list model = small_model(c, 1), before = small_model(c, 1), source = {.context = c, .owns = true};
    tensor(&source, "enc.weight", ATTN_F32, 2, (const int64_t[]){5, 3});
    tensor(&source, "dec.weight", ATTN_F32, 2, (const int64_t[]){2, 3});
    tensor(&source, "head", ATTN_F32, 1, (const int64_t[]){9});
    attn_bytes report;
    assert_int_equal(attn_weights_assign(&model, &source, NULL, &report), ATTN_ERROR_SHAPE);
    assert_string_equal(report.data, "misshapen: enc.weight expected [3,5], found [5,3]\n"
                                     "missing: enc.bias [3]\n"
                                     "extra: head [9]\n");
    assert_says(c, "1 parameters missing, 1 extra, 1 misshapen");
    assert_true(same_numbers(&model, &before));
    attn_bytes_free(c, &report);
    attn_named_clear(&source);
    tensor(&source, "dec.weight", ATTN_F64, 2, (const int64_t[]){2, 3});
    tensor(&source, "head", ATTN_F32, 1, (const int64_t[]){9});
    attn_weights_options lenient = {.allow_missing = true, .allow_extra = true};
    assert_int_equal(attn_weights_assign(&model, &source, &lenient, NULL), ATTN_OK);
    assert_true(((float *)attn_tensor_data(attn_named_find(&model, "dec.weight")))[5] == 0);
    assert_true(((float *)attn_tensor_data(attn_named_find(&model, "enc.weight")))[0] == 1);
    attn_named_clear(&model);
    attn_named_clear(&before);
    attn_named_clear(&source);
}

/* PyTorch's older files lack the count of batches of a batch norm, and its frozen norms ignore it. */
static void counts_of_batches_may_be_missing_or_extra(void **state)
{
    attn_context *c = *state;
    const int64_t three = 3;
    for (int has = 0; has < 2; has++) {
        attn_named_list model = {.context = c, .owns = true}, source = {.context = c, .owns = true};
        attn_named_list *counted = has ? &source : &model;
        tensor(&model, "bn.running_var", ATTN_F32, 1, &three);
        tensor(&source, "bn.running_var", ATTN_F32, 1, &three);
        tensor(counted, "bn.num_batches_tracked", ATTN_F32, 0, NULL);
        assert_int_equal(attn_weights_assign(&model, &source, NULL, NULL), ATTN_OK);
        tensor(counted, "other.num_batches_tracked", ATTN_F32, 0, NULL);
        assert_int_equal(attn_weights_assign(&model, &source, NULL, NULL), ATTN_ERROR_SHAPE);
        assert_says(c, has ? "0 parameters missing, 1 extra" : "1 parameters missing, 0 extra");
        attn_named_clear(&model);
        attn_named_clear(&source);
    }
}

static attn_status write_read_load(attn_context *c, void *user)
{
    const char *path = user;
    attn_named_list list = {.context = c, .owns = true}, again = {.context = c, .owns = true};
    attn_config *metadata = NULL;
    attn_tensor *t = NULL;
    attn_status status = attn_config_create(&metadata, c);
    if (status == ATTN_OK)
        status = attn_config_set_text(metadata, "format", "pt");
    if (status == ATTN_OK)
        status = attn_tensor_create(&t, c, ATTN_F32, 1, (const int64_t[]){3});
    if (status == ATTN_OK && (status = attn_named_add(&list, "x", t)) != ATTN_OK)
        attn_tensor_destroy(t);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, metadata);
    if (status == ATTN_OK)
        status = attn_weights_read(&again, path, NULL, metadata, NULL);
    if (status == ATTN_OK)
        status = attn_weights_load(&list, path, NULL, NULL, NULL);
    attn_named_clear(&list);
    attn_named_clear(&again);
    attn_config_destroy(metadata);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    char folder[64], path[128];
    scratch_open(folder);
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    assert_true(faults_try_all(write_read_load, path) > 20);
    assert_int_equal(scratch_close(folder), 1);
}

/* Returns the peak memory of this process in kB, including pages of mapped files. */
static long peak(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Tests tensors of 4 MB. Pages of the file must not stay in memory after they were read into tensors. */
static void reading_takes_one_copy(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    enum { TENSORS = 24, NUMBERS = 1 << 20, EACH = NUMBERS / 256 /* kB */ };
    attn_context *c = *state;
    attn_named_list list = {.owns = true};
    char folder[64], path[128];
    scratch_open(folder);
    snprintf(path, sizeof path, "%s/large.safetensors", folder);
    list.context = c;
    for (int i = 0; i < TENSORS; i++) {
        attn_tensor *t;
        char name[8];
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(attn_tensor_create(&t, c, ATTN_F32, 1, (int64_t[]){NUMBERS}), ATTN_OK);
        assert_int_equal(attn_named_add(&list, name, t), ATTN_OK);
    }
    assert_int_equal(attn_safetensors_write(&list, path, NULL), ATTN_OK);
    attn_named_clear(&list);
    int reports[2];
    assert_int_equal(pipe(reports), 0);
    pid_t child = fork(); /* A child process reads the file, so that the peak is its own. */
    if (child == 0) {
        long before = peak();
        long taken = attn_weights_read(&list, path, NULL, NULL, NULL) == ATTN_OK ? peak() - before : -1;
        _exit(write(reports[1], &taken, sizeof taken) == sizeof taken ? 0 : 1);
    }
    long taken;
    int ended;
    assert_int_equal(read(reports[0], &taken, sizeof taken), sizeof taken);
    assert_int_equal(waitpid(child, &ended, 0), child);
    close(reports[0]);
    close(reports[1]);
    assert_in_range(taken, 1, (TENSORS + 8) * (long)EACH);
    assert_int_equal(scratch_close(folder), 1);
}

RUN_TESTS(TEST_WITH_CONTEXT(int8_weights_have_scales), TEST_WITH_CONTEXT(a_good_file_is_read),
          TEST_WITH_CONTEXT(empty_tensors_may_be_named_last), TEST_WITH_CONTEXT(trailing_bytes_are_refused),
          TEST_WITH_CONTEXT(each_broken_rule_is_named), TEST(damaged_files_are_read_or_refused),
          TEST_WITH_CONTEXT(a_model_survives_a_file), TEST_WITH_CONTEXT(reading_takes_one_copy),
          TEST_WITH_CONTEXT(all_misfits_are_listed), TEST_WITH_CONTEXT(counts_of_batches_may_be_missing_or_extra),
          TEST(every_allocation_may_fail))
