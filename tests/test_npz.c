/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests .npz files: those of tests/data/npz, damaged files, and archives that must be refused.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/damage.h"

#include "attn/io.h"
#include "io/tensors/formats.h"

#include <stdio.h>
#include <string.h>

static const char stored[] = "tests/data/npz/stored.npz", deflated[] = "tests/data/npz/deflated.npz";

static void check_file(const char *path)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    assert_ok(c, attn_weights_read(&list, path, NULL, NULL, NULL));
    assert_int_equal(list.n, 4);
    const attn_tensor *w = attn_named_find(&list, "encoder_l1_self_Wq"), *half = attn_named_find(&list, "half");
    const attn_tensor *columns = attn_named_find(&list, "columns"), *text = attn_named_find(&list, "special:model.yml");
    assert_true(w && half && columns && text);
    assert_int_equal(attn_tensor_length(w, 0), 2);
    assert_int_equal(attn_tensor_length(w, 1), 3);
    for (int i = 0; i < 6; i++)
        assert_true(((const float *)attn_tensor_data(w))[i] == (float)i);
    assert_memory_equal(attn_tensor_data(half), ((const float[]){1.5f, -2}), 8);
    assert_memory_equal(attn_tensor_data(columns), ((const float[]){0, 1, 2, 3, 4, 5}), 24);
    assert_int_equal(attn_tensor_size(text), 11);
    assert_int_equal(((const int32_t *)attn_tensor_data(text))[0], 't');
    attn_named_clear(&list);
    end_context(c);
}

static void stored_and_deflated_archives_are_read(void **state)
{
    check_file(stored);
    check_file(deflated);
}

static size_t read_bytes(const char *path, uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, size, file);
    fclose(file);
    return n;
}

static attn_status parse(const uint8_t *data, size_t size, char error[512])
{
    attn_context *c = NULL;
    attn_context_create(&c, &(attn_context_options){.threads = 1});
    attn_named_list list = {.context = c, .owns = true};
    attn_status status = attn_npz_parse(&list, data, size, "f.npz", NULL, NULL, NULL);
    if (error)
        snprintf(error, 512, "%s", attn_context_error(c));
    if (status != ATTN_OK)
        assert_int_equal(list.n, 0);
    attn_named_clear(&list);
    end_context(c);
    return status;
}

static void damaged_files_are_read_or_refused(void **state)
{
    damage_list_file(attn_npz_parse, deflated);
}

/* If members are not arrays, the error lists them as skipped. */
static void errors_name_the_member(void **state)
{
    uint8_t bytes[4096];
    char error[512];
    size_t size = read_bytes("tests/data/npz/objects.npz", bytes, sizeof bytes);
    assert_int_equal(parse(bytes, size, error), ATTN_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error, "f.npz(objects.npy)"));
    assert_non_null(strstr(error, "\"|O\" are not supported"));
    size = read_bytes("tests/data/npz/huge.npz", bytes, sizeof bytes);
    assert_int_equal(parse(bytes, size, error), ATTN_ERROR_FORMAT);
    assert_non_null(strstr(error, "f.npz(huge.npy)"));
    size = read_bytes(stored, bytes, sizeof bytes);
    static const struct {
        size_t at; /* place in an entry of the directory */
        uint8_t byte;
        attn_status status;
        const char *text;
    } wrong[] = {{8, 1, ATTN_ERROR_UNSUPPORTED, "zip: encrypted entries are not supported"},
                 {10, 9, ATTN_ERROR_UNSUPPORTED, "zip: compression method 9 is not supported"},
                 {24, 7, ATTN_ERROR_FORMAT, "is stored as it is, but its two sizes differ"}};
    size_t entry = 0;
    while (memcmp(bytes + entry, "PK\1\2", 4) != 0)
        entry++;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t right = bytes[entry + wrong[i].at];
        bytes[entry + wrong[i].at] = wrong[i].byte;
        assert_int_equal(parse(bytes, size, error), wrong[i].status);
        assert_non_null(strstr(error, wrong[i].text));
        bytes[entry + wrong[i].at] = right;
    }
    assert_int_equal(parse((const uint8_t *)"nothing of a zip", 16, error), ATTN_ERROR_FORMAT);
    assert_non_null(strstr(error, "not a .npz file"));
}

static attn_status read_file(attn_context *c, void *user)
{
    attn_named_list list = {.context = c, .owns = true};
    attn_status status = attn_weights_read(&list, user, NULL, NULL, NULL);
    attn_named_clear(&list);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_true(faults_try_all(read_file, (void *)(uintptr_t)deflated) > 10);
}

RUN_TESTS(TEST(stored_and_deflated_archives_are_read), TEST(damaged_files_are_read_or_refused),
          TEST(errors_name_the_member), TEST(every_allocation_may_fail))
