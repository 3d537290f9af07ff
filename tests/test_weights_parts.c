/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests weights in several files: an index and its parts, invalid indices and directories.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/scratch.h"

#include "attn/io.h"

#include <stdio.h>
#include <string.h>

typedef struct names {
    const char *index, *part[2];
} names;

static char folder[64];

static const names *files(void)
{
    static char paths[3][128];
    static names all;
    static const char *const name[] = {"parts.safetensors.index.json", "parts-1.safetensors", "parts-2.safetensors"};
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, name[i]);
    all = (names){paths[0], {paths[1], paths[2]}};
    return &all;
}

/* Writes one of the files, with tensors whose names are `letter` and a number. Each tensor has `n` numbers. */
static void write_part(const char *path, char letter, int n)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    for (int i = 0; i < n; i++) {
        attn_tensor *t = NULL;
        char name[16];
        snprintf(name, sizeof name, "%c%d", letter, i);
        attn_tensor_create(&t, c, ATTN_F32, 1, (const int64_t[]){2});
        ((float *)attn_tensor_data(t))[0] = (float)letter;
        ((float *)attn_tensor_data(t))[1] = (float)i;
        attn_named_add(&list, name, t);
    }
    assert_int_equal(attn_safetensors_write(&list, path, NULL), ATTN_OK);
    attn_named_clear(&list);
    end_context(c);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_all(void)
{
    write_part(files()->part[0], 'a', 2);
    write_part(files()->part[1], 'b', 1);
}

#define A "\"parts-1.safetensors\""
#define B "\"parts-2.safetensors\""
static const char good[] =
    "{\"metadata\": {\"total_size\": 24}, \"weight_map\": {\"b0\": " B ", \"a0\": " A ", \"a1\": " A "}}";

static void parts_are_read_as_one(void **state)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    write_all();
    write_text(files()->index, good);
    assert_ok(c, attn_weights_read(&list, files()->index, NULL, NULL, NULL));
    assert_int_equal(list.n, 3);
    assert_true(((float *)attn_tensor_data(attn_named_find(&list, "a1")))[1] == 1);
    assert_true(((float *)attn_tensor_data(attn_named_find(&list, "b0")))[0] == 'b');
    ((float *)attn_tensor_data(attn_named_find(&list, "b0")))[0] = 0;
    assert_int_equal(attn_weights_load(&list, files()->index, NULL, NULL, NULL), ATTN_OK);
    assert_true(((float *)attn_tensor_data(attn_named_find(&list, "b0")))[0] == 'b');
    attn_named_clear(&list);
    end_context(c);
}

static void refuse(const char *index, attn_status status, const char *words)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    write_text(files()->index, index);
    assert_refused(c, attn_weights_read(&list, files()->index, NULL, NULL, NULL), status, words);
    assert_int_equal(list.n, 0);
    end_context(c);
}

static void contradictions_are_refused(void **state)
{
    write_all();
    refuse("{\"weight_map\": {\"b0\": " B ", \"a0\": " A "}}", ATTN_ERROR_FORMAT,
           "the file has the tensor \"a1\", which");
    refuse("{\"weight_map\": {\"b0\": " A ", \"a0\": " A ", \"a1\": " A "}}", ATTN_ERROR_FORMAT,
           "the file lacks the tensor \"b0\"");
    refuse("{\"weight_map\": {\"b0\": " B ", \"b1\": " B ", \"a0\": " A ", \"a1\": " A "}}", ATTN_ERROR_FORMAT,
           "the file lacks the tensor \"b1\"");
    refuse("{\"weight_map\": {\"c\": \"parts-3.safetensors\"}}", ATTN_ERROR_NOT_FOUND, "parts-3.safetensors");
    refuse("{\"weight_map\": {\"a0\": \"../parts-1.safetensors\"}}", ATTN_ERROR_FORMAT, "a name without a directory");
    refuse("{\"weight_map\": {\"a0\": 1}}", ATTN_ERROR_FORMAT, "a name without a directory");
    refuse("{\"weight_map\": {}}", ATTN_ERROR_FORMAT, "weight_map");
    refuse("{}", ATTN_ERROR_FORMAT, "weight_map");
    refuse("[", ATTN_ERROR_FORMAT, "parts.safetensors.index.json");
    refuse("{\"weight_map\": {\"a0\": \"parts.safetensors.index.json\"}}", ATTN_ERROR_FORMAT,
           "parts.safetensors.index.json");
}

static attn_status read_index(attn_context *c, void *user)
{
    attn_named_list list = {.context = c, .owns = true};
    attn_bytes report;
    attn_status status = attn_weights_read(&list, user, NULL, NULL, &report);
    attn_bytes_free(c, &report);
    attn_named_clear(&list);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    write_all();
    write_text(files()->index, good);
    assert_true(faults_try_all(read_index, (void *)(uintptr_t)files()->index) > 10);
}

static void a_directory_without_weights_is_named(void **state)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    assert_refused(c, attn_weights_read(&list, "tests/data", NULL, NULL, NULL), ATTN_ERROR_NOT_FOUND,
                   "tests/data: the directory has no weights");
    end_context(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(parts_are_read_as_one), TEST(contradictions_are_refused),
                                       TEST(every_allocation_may_fail), TEST(a_directory_without_weights_is_named)};
    scratch_open(folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(folder);
    return failed;
}
