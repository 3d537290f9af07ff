/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests what only safetensors files have: metadata, order, weights in int8, and loading into a model. What they share with
 * other formats is in test_arrays.c.
 */
#include "support/fixture.h"
#include "support/array_files.h"
#include "support/scratch.h"

#include "attn/io.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static attn_status parse(attn_named_list *list, const array_file *f, attn_config *metadata)
{
    return attn_weights_parse(list, f->bytes, f->size, "f", NULL, metadata, NULL);
}

static void metadata_and_the_order_of_the_data_are_read(void **state)
{
    attn_context *c = *state;
    attn_named_list list = {.context = c, .owns = true};
    attn_config *metadata;
    attn_config_create(&metadata, c);
    const array_file f = array_file_safetensors(
        "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        BYTES("12"));
    assert_ok(c, parse(&list, &f, metadata));
    assert_string_equal(list.items[0].name, "a");
    assert_string_equal(attn_config_text(metadata, "format", ""), "pt");
    attn_named_clear(&list);
    attn_config_destroy(metadata);
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
    static const char *const said[] = {NULL, "must have 2 axes", "one scale for each row", "scales must be of type F32",
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
        const array_file f = array_file_safetensors(headers[i], data, sizeof data);
        attn_status status = parse(&list, &f, NULL);
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
        const array_file f = array_file_safetensors(headers[0], data, sizeof data);
        assert_refused(c, parse(&list, &f, NULL), ATTN_ERROR_FORMAT, "w.int8_scale\": scale 1 is ");
    }
    attn_named_clear(&model);
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

RUN_TESTS(TEST_WITH_CONTEXT(metadata_and_the_order_of_the_data_are_read), TEST_WITH_CONTEXT(int8_weights_have_scales),
          TEST_WITH_CONTEXT(a_model_survives_a_file), TEST_WITH_CONTEXT(reading_takes_one_copy),
          TEST_WITH_CONTEXT(all_misfits_are_listed), TEST_WITH_CONTEXT(counts_of_batches_may_be_missing_or_extra))
