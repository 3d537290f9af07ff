/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests files, directories and JSON.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/scratch.h"

#include "attn/io.h"
#include "io/json_writer.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/json.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

typedef struct fixture {
    attn_context *c;
    char folder[64], path[128];
} fixture;

static void set_up(fixture *f)
{
    f->c = NULL;
    attn_context_create(&f->c, NULL);
    scratch_open(f->folder);
    snprintf(f->path, sizeof f->path, "%s/file", f->folder);
}

static int tear_down(fixture *f)
{
    end_context(f->c);
    return scratch_close(f->folder);
}

static void check_holds(const fixture *f, const char *text)
{
    attn_bytes bytes;
    assert_int_equal(attn_file_read(&bytes, f->c, f->path, 0), ATTN_OK);
    assert_int_equal(bytes.size, strlen(text));
    assert_string_equal(bytes.data, text);
    attn_bytes_free(f->c, &bytes);
}

static void files_are_written_read_and_replaced(void **state)
{
    fixture f;
    set_up(&f);
    assert_false(attn_file_exists(f.path));
    assert_int_equal(attn_file_write(f.c, f.path, "one", 3), ATTN_OK);
    check_holds(&f, "one");
    chmod(f.path, 0640);
    assert_int_equal(attn_file_write(f.c, f.path, "", 0), ATTN_OK);
    check_holds(&f, "");
    struct stat about;
    assert_int_equal(stat(f.path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    assert_int_equal(tear_down(&f), 1);
}

/* Devices and pipes are written in place, because a new file in their place would cut them off from other programs. */
static void pipes_and_devices_are_written_in_place(void **state)
{
    fixture f;
    struct stat about;
    char text[8] = "";
    set_up(&f);
    assert_int_equal(mkfifo(f.path, 0600), 0);
    int reader = open(f.path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_int_equal(attn_file_write(f.c, f.path, "piped", 5), ATTN_OK);
    assert_int_equal(read(reader, text, sizeof text - 1), 5);
    assert_string_equal(text, "piped");
    close(reader);
    assert_int_equal(stat(f.path, &about), 0);
    assert_true(S_ISFIFO(about.st_mode));
    assert_refused(f.c, attn_file_write(f.c, f.folder, "x", 1), ATTN_ERROR_IO, f.folder);
    assert_int_equal(unlink(f.path), 0);
    assert_int_equal(tear_down(&f), 0);
}

/* A link to standard output, such as /dev/stdout, stays a link, even if standard output is a regular file. */
static void link_to_standard_output_is_kept(void **state)
{
    fixture f;
    struct stat about;
    char link[160];
    set_up(&f);
    snprintf(link, sizeof link, "%s/stdout", f.folder);
    assert_int_equal(symlink(f.path, link), 0);
    int to = open(f.path, O_WRONLY | O_CREAT | O_TRUNC, 0600), kept = dup(STDOUT_FILENO);
    assert_true(to >= 0 && kept >= 0 && dup2(to, STDOUT_FILENO) == STDOUT_FILENO);
    ssize_t before = write(STDOUT_FILENO, "before ", 7);
    attn_status status = attn_file_write(f.c, link, "written ", 8);
    ssize_t behind = write(STDOUT_FILENO, "behind", 6);
    assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
    close(kept);
    close(to);
    assert_int_equal(status, ATTN_OK);
    assert_true(before == 7 && behind == 6);
    check_holds(&f, "before written behind");
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(attn_file_write(f.c, link, "anew", 4), ATTN_OK);
    check_holds(&f, "anew");
    assert_int_equal(tear_down(&f), 2);
}

/* Writes through the links f.folder/last -> middle -> `to`. Checks that both links are still links. */
static attn_status write_through(const fixture *f, const char *to)
{
    char last[160], middle[160];
    struct stat about;
    snprintf(last, sizeof last, "%s/last", f->folder);
    snprintf(middle, sizeof middle, "%s/middle", f->folder);
    assert_int_equal(symlink("middle", last), 0);
    assert_int_equal(symlink(to, middle), 0);
    attn_status status = attn_file_write(f->c, last, "new", 3);
    assert_int_equal(lstat(last, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(lstat(middle, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    unlink(last);
    unlink(middle);
    return status;
}

static void a_symbolic_link_stays_and_its_target_is_written(void **state)
{
    fixture f;
    struct stat about;
    (void)state;
    set_up(&f);
    assert_ok(f.c, write_through(&f, "file")); /* there is no file yet */
    check_holds(&f, "new");
    assert_int_equal(attn_file_write(f.c, f.path, "old", 3), ATTN_OK);
    chmod(f.path, 0640);
    assert_ok(f.c, write_through(&f, f.path));
    check_holds(&f, "new");
    assert_int_equal(stat(f.path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0640);
    assert_refused(f.c, write_through(&f, "nowhere/file"), ATTN_ERROR_IO, "last: a symbolic link to");
    assert_refused(f.c, write_through(&f, "last"), ATTN_ERROR_IO, "last: cannot be written: Too many levels");
    assert_int_equal(tear_down(&f), 1);
}

/* A small file is read at once. A large file is mapped, and a change is noticed, unless it was replaced as a whole. */
static void a_file_that_changes_while_it_is_read_is_refused(void **state)
{
    enum { SMALL = 1000, LARGE = 300000 };
    fixture f;
    attn__input input;
    (void)state;
    set_up(&f);
    char *text = calloc(1, LARGE);
    assert_non_null(text);
    memset(text, 'x', LARGE);
    assert_ok(f.c, attn_file_write(f.c, f.path, text, SMALL));
    assert_ok(f.c, attn__file_map(&input, f.c, f.path));
    assert_int_equal(truncate(f.path, 0), 0);
    assert_int_equal(input.size, SMALL);
    assert_memory_equal(input.data, text, SMALL);
    assert_ok(f.c, attn__file_unchanged(&input));
    attn__file_unmap(&input);
    assert_ok(f.c, attn_file_write(f.c, f.path, text, LARGE));
    assert_ok(f.c, attn__file_map(&input, f.c, f.path));
    assert_ok(f.c, attn__file_unchanged(&input));
    assert_int_equal(truncate(f.path, LARGE - 1), 0); /* the rest of the last page reads as zeros, without a signal */
    assert_refused(f.c, attn__file_unchanged(&input), ATTN_ERROR_IO, "changed while it was read");
    assert_ok(f.c, attn_file_write(f.c, f.path, text, SMALL));
    attn_context_clear_error(f.c);
    assert_ok(f.c, attn__file_unchanged(&input));
    assert_int_equal(input.data[LARGE - 2], 'x');
    attn__file_unmap(&input);
    free(text);
    assert_int_equal(tear_down(&f), 1);
}

/* Tensors are read from a mapped checkpoint one by one. */
static void a_tensor_of_a_changed_checkpoint_is_refused(void **state)
{
    fixture f;
    attn_tensor *tensor = NULL;
    attn_checkpoint *weights = NULL;
    (void)state;
    set_up(&f);
    attn_named_list list = {.context = f.c, .owns = true};
    assert_ok(f.c, attn_tensor_create(&tensor, f.c, ATTN_F32, 1, (int64_t[]){100000}));
    assert_ok(f.c, attn_named_add(&list, "a", tensor));
    assert_ok(f.c, attn_safetensors_write(&list, f.path, NULL));
    /* the time is old, because two writes may be within one tick of the file system's clock */
    assert_int_equal(utimensat(AT_FDCWD, f.path, (struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}, 0), 0);
    assert_ok(f.c, attn_checkpoint_open(&weights, f.c, f.path, NULL, NULL));
    assert_ok(f.c, attn_checkpoint_tensor(&tensor, weights, 0));
    attn_tensor_destroy(tensor);
    int file = open(f.path, O_WRONLY);
    assert_true(file >= 0 && pwrite(file, "abcd", 4, 200000) == 4);
    close(file);
    assert_refused(f.c, attn_checkpoint_tensor(&tensor, weights, 0), ATTN_ERROR_IO, "changed while it was read");
    assert_null(tensor);
    attn_checkpoint_close(weights);
    attn_named_clear(&list);
    assert_int_equal(tear_down(&f), 1);
}

static void missing_files_and_folders_are_named(void **state)
{
    attn_context *c = *state;
    attn_bytes bytes;
    assert_int_equal(attn_file_read(&bytes, c, "/nowhere/x", 0), ATTN_ERROR_NOT_FOUND);
    assert_string_equal(attn_context_error(c), "/nowhere/x: cannot be opened: No such file or directory");
    attn_context_clear_error(c);
    assert_int_equal(attn_file_write(c, "/nowhere/x", "a", 1), ATTN_ERROR_IO);
    assert_string_equal(attn_context_error(c), "/nowhere/x: cannot be written: No such file or directory");
    attn_context_clear_error(c);
    assert_int_equal(attn_file_read(&bytes, c, "/tmp", 0), ATTN_ERROR_IO);
}

/* A limit on file sizes simulates a full disk: write() fails in the middle of the file. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    fixture f;
    set_up(&f);
    assert_int_equal(attn_file_write(f.c, f.path, "old", 3), ATTN_OK);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &small);
    char *data = calloc(1, 100000);
    attn_status status = attn_file_write(f.c, f.path, data, 100000);
    setrlimit(RLIMIT_FSIZE, &before);
    free(data);
    assert_refused(f.c, status, ATTN_ERROR_IO, "File too large");
    check_holds(&f, "old");
    assert_int_equal(tear_down(&f), 1);
}

static void gzip_is_read_and_checked(void **state)
{
    fixture f;
    set_up(&f);
    gzFile gz = gzopen(f.path, "wb");
    for (int i = 0; i < 1000; i++)
        gzprintf(gz, "line %d\n", i);
    gzclose(gz);
    attn_bytes text, packed;
    assert_int_equal(attn_file_read(&text, f.c, f.path, 0), ATTN_OK);
    assert_memory_equal(text.data, "line 0\nline 1\n", 14);
    assert_int_equal(text.size, 8890);
    attn_bytes_free(f.c, &text);
    assert_refused(f.c, attn_file_read(&text, f.c, f.path, 8889), ATTN_ERROR_FORMAT,
                   "more than the limit of 8889 bytes");
    assert_int_equal(attn_file_read(&text, f.c, f.path, 8890), ATTN_OK);
    attn_bytes_free(f.c, &text);
    /* A file that is cut at any byte, or has a flipped bit, is refused. */
    FILE *in = fopen(f.path, "rb");
    char raw[8192] = {0};
    packed = (attn_bytes){raw, fread(raw, 1, sizeof raw - 100, in)};
    fclose(in);
    /* zero bytes behind it are padding, other bytes are not */
    assert_int_equal(attn_file_write(f.c, f.path, raw, packed.size + 100), ATTN_OK);
    assert_int_equal(attn_file_read(&text, f.c, f.path, 0), ATTN_OK);
    assert_int_equal(text.size, 8890);
    attn_bytes_free(f.c, &text);
    raw[packed.size + 99] = 1;
    assert_int_equal(attn_file_write(f.c, f.path, raw, packed.size + 100), ATTN_OK);
    assert_refused(f.c, attn_file_read(&text, f.c, f.path, 0), ATTN_ERROR_FORMAT, "gzip data are damaged");
    memset(raw + packed.size, 0, 100);
    for (size_t cut = 2; cut < packed.size; cut += 97) {
        attn_context_clear_error(f.c);
        assert_int_equal(attn_file_write(f.c, f.path, raw, cut), ATTN_OK);
        assert_int_equal(attn_file_read(&text, f.c, f.path, 0), ATTN_ERROR_FORMAT);
        assert_null(text.data);
    }
    raw[packed.size / 2] ^= 4;
    assert_int_equal(attn_file_write(f.c, f.path, raw, packed.size), ATTN_OK);
    assert_int_equal(attn_file_read(&text, f.c, f.path, 0), ATTN_ERROR_FORMAT);
    assert_int_equal(tear_down(&f), 1);
}

static void directories_are_made(void **state)
{
    fixture f;
    set_up(&f);
    char deep[160];
    snprintf(deep, sizeof deep, "%s/a/b/", f.folder);
    assert_int_equal(attn_directory_create(f.c, deep), ATTN_OK);
    assert_int_equal(attn_directory_create(f.c, deep), ATTN_OK);
    assert_true(attn_file_exists(deep));
    rmdir(deep);
    snprintf(deep, sizeof deep, "%s/a", f.folder);
    rmdir(deep);
    assert_int_equal(attn_file_write(f.c, deep, "x", 1), ATTN_OK);
    assert_int_equal(attn_directory_create(f.c, deep), ATTN_ERROR_IO);
    assert_int_equal(tear_down(&f), 1);
}

/* ------------------------------------------------------------------------------------------------ JSON */

static void directories_are_listed(void **state)
{
    fixture f;
    attn_entries entries;
    char path[200];
    set_up(&f);
    static const char *const files[] = {"b", "a10", "a9", ".hidden", "__MACOSX"};
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", f.folder, files[i]);
        assert_int_equal(attn_file_write(f.c, path, "x", 1), ATTN_OK);
    }
    snprintf(path, sizeof path, "%s/sub", f.folder);
    assert_int_equal(attn_directory_create(f.c, path), ATTN_OK);
    assert_int_equal(attn_directory_list(&entries, f.c, f.folder, false), ATTN_OK);
    assert_int_equal(entries.n, 3);
    assert_string_equal(entries.names[0], "a10");
    assert_string_equal(entries.names[1], "a9");
    assert_string_equal(entries.names[2], "b");
    attn_entries_free(f.c, &entries);
    assert_int_equal(attn_directory_list(&entries, f.c, f.folder, true), ATTN_OK);
    assert_int_equal(entries.n, 1);
    assert_string_equal(entries.names[0], "sub");
    attn_entries_free(f.c, &entries);
    snprintf(path, sizeof path, "%s/b", f.folder);
    assert_refused(f.c, attn_directory_list(&entries, f.c, path, false), ATTN_ERROR_NOT_FOUND, path);
    snprintf(path, sizeof path, "%s/sub", f.folder);
    rmdir(path);
    assert_int_equal(tear_down(&f), 5);
}

/* Only the files with the given names are removed. A folder with such a name is an error. */
static void directories_are_cleared(void **state)
{
    static const char *const names[] = {"a", "b", "c", NULL};
    fixture f;
    char path[200];
    (void)state;
    set_up(&f);
    for (int i = 1; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%c", f.folder, "abcd"[i]);
        assert_int_equal(attn_file_write(f.c, path, "x", 1), ATTN_OK);
    }
    assert_ok(f.c, attn_directory_clear(f.c, f.folder, names));
    for (int i = 1; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%c", f.folder, "abcd"[i]);
        assert_int_equal(access(path, F_OK) == 0, i == 3);
    }
    snprintf(path, sizeof path, "%s/b", f.folder);
    assert_int_equal(attn_directory_create(f.c, path), ATTN_OK);
    assert_refused(f.c, attn_directory_clear(f.c, f.folder, names), ATTN_ERROR_IO, "/b: cannot be removed");
    assert_ok(f.c, attn_directory_clear(f.c, "/nowhere/at/all", names));
    rmdir(path);
    assert_int_equal(tear_down(&f), 2);
}

static void json_is_written(void **state)
{
    attn_context *c = *state;
    for (int pretty = 0; pretty < 2; pretty++) {
        attn_json json;
        const char *text;
        attn_json_begin(&json, c, pretty);
        attn_json_object(&json, NULL);
        attn_json_text(&json, "t", "a\"\\\n\x01\xc3\xa9\xff");
        attn_json_array(&json, "l");
        attn_json_int(&json, NULL, INT64_MIN);
        attn_json_real(&json, NULL, 0.1);
        attn_json_real(&json, NULL, 3);
        attn_json_real(&json, NULL, (double)NAN);
        attn_json_bool(&json, NULL, true);
        attn_json_end(&json);
        attn_json_object(&json, "o");
        attn_json_end(&json);
        attn_json_end(&json);
        assert_int_equal(attn_json_finish(&json, &text), ATTN_OK);
        assert_string_equal(text,
                            pretty ? "{\n  \"t\": \"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\",\n  \"l\": [\n    "
                                     "-9223372036854775808,\n    0.1,\n    3.0,\n    null,\n    true\n  ],\n"
                                     "  \"o\": {}\n}\n"
                                   : "{\"t\":\"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd\",\"l\":[-9223372036854775808,"
                                     "0.1,3.0,null,true],\"o\":{}}\n");
        attn_json_free(&json);
    }
}

static void misuse_of_the_writer_is_refused(void **state)
{
    attn_context *c = *state;
    for (int kind = 0; kind < 5; kind++) {
        attn_context_clear_error(c);
        attn_json json;
        const char *text;
        attn_json_begin(&json, c, true);
        if (kind != 4)
            attn_json_object(&json, NULL);
        if (kind == 0)
            attn_json_int(&json, NULL, 1);
        if (kind != 1 && kind != 4)
            attn_json_end(&json);
        if (kind == 2)
            attn_json_end(&json);
        if (kind == 3)
            attn_json_int(&json, NULL, 1);
        assert_int_equal(attn_json_finish(&json, &text), ATTN_ERROR_ARGUMENT);
        assert_null(text);
        attn_json_free(&json);
    }
}

static void configs_survive_a_file(void **state)
{
    fixture f;
    set_up(&f);
    static const char text[] = "{\"b\": true, \"i\": -3, \"r\": 1e-9, \"t\": \"\\u00e9\", \"n\": null,\n"
                               "\"ints\": [1, 2], \"texts\": [\"a\", \"b\"], \"none\": [],\n"
                               "\"in\": {\"x\": 1, \"y\": {\"z\": \"deep\"}}}";
    attn_config *config, *again;
    assert_int_equal(attn_config_parse(&config, f.c, text, sizeof text - 1, "c.json"), ATTN_OK);
    assert_int_equal(attn_config_size(config), 10);
    assert_int_equal(attn_config_write(config, f.c, f.path), ATTN_OK);
    assert_int_equal(attn_config_read(&again, f.c, f.path), ATTN_OK);
    assert_int_equal(attn_config_size(again), 10);
    assert_true(attn_config_bool(again, "b", false));
    assert_int_equal(attn_config_int(again, "i", 0), -3);
    assert_true(attn_config_real(again, "r", 0) == 1e-9);
    assert_true(attn_config_real(again, "i", 0) == -3);
    assert_string_equal(attn_config_text(again, "t", ""), "\xc3\xa9");
    assert_int_equal(attn_config_get(again, "n")->type, ATTN_CONFIG_TYPE_NULL);
    assert_int_equal(attn_config_get(again, "ints")->integers[1], 2);
    assert_string_equal(attn_config_get(again, "texts")->texts[1], "b");
    assert_int_equal(attn_config_get(again, "none")->n, 0);
    assert_string_equal(attn_config_text(again, "in.y.z", ""), "deep");
    for (int64_t i = 0; i < 10; i++)
        assert_string_equal(attn_config_key(again, i), attn_config_key(config, i));
    attn_config_destroy(config);
    attn_config_destroy(again);
    assert_int_equal(tear_down(&f), 1);
}

static void bad_json_is_placed(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *text, *error;
        attn_status status;
    } cases[] = {
        {"{\"a\": 1,\n \"a\": 2}", "c.json:2:4: duplicate object key", ATTN_ERROR_FORMAT},
        {"{\"a\": }", "c.json:1:7: unexpected token", ATTN_ERROR_FORMAT},
        {"{\"a\": 1", "c.json:1:7: '}' expected", ATTN_ERROR_FORMAT},
        {"[1]", "c.json:1:1: the JSON must be an object", ATTN_ERROR_FORMAT},
        {"", "c.json:1:0: '[' or '{' expected", ATTN_ERROR_FORMAT},
        {"{\"a\": [[1]], \"a.0\": 2}", "c.json: key \"a.0\" is given twice", ATTN_ERROR_FORMAT},
        {"{\"a.b\": 1, \"a\": {\"b\": 2}}", "c.json: key \"a.b\" is given twice", ATTN_ERROR_FORMAT},
        {"{\"a\": \"\xff\"}", "c.json:1:7: unable to decode byte 0xff", ATTN_ERROR_FORMAT},
        {"{\"a\": 1e999}", "real number overflow", ATTN_ERROR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_context_clear_error(c);
        attn_config *config;
        assert_refused(c, attn_config_parse(&config, c, cases[i].text, strlen(cases[i].text), "c.json"),
                       cases[i].status, cases[i].error);
        assert_null(config);
    }
}

/* A reader must accept values that it does not expect: lists of reals or of mixed types, objects in lists, and
 * integers of any length. */
static void every_kind_of_json_is_read(void **state)
{
    static const char text[] =
        "{\"mean\": [0.5, 0, 1e-1], \"mixed\": [1, \"x\", null, [2, 3], [], {\"in\": [true, {\"deep\": 4}]}],\n"
        "\"lists\": [[1], [\"y\"]], \"long\": 1000000000000000019884624838656, \"minus\": -99999999999999999999,\n"
        "\"wide\": [99999999999999999999, 1], \"real\": 0.1234567890123456789012, \"power\": "
        "1e0000000000000000000001,\n"
        "\"text\": \"99999999999999999999 \\\" 99999999999999999999\", \"large\": 9223372036854775807}";
    attn_context *c = *state;
    attn_config *config;
    assert_ok(c, attn_config_parse(&config, c, text, sizeof text - 1, "c.json"));
    assert_true(attn_config_real(config, "mean.0", 0) == 0.5 && attn_config_real(config, "mean.1", 1) == 0);
    assert_true(attn_config_real(config, "mean.2", 0) == 0.1);
    assert_int_equal(attn_config_int(config, "mixed.0", 0), 1);
    assert_string_equal(attn_config_text(config, "mixed.1", ""), "x");
    assert_int_equal(attn_config_get(config, "mixed.2")->type, ATTN_CONFIG_TYPE_NULL);
    assert_int_equal(attn_config_get(config, "mixed.3")->integers[1], 3);
    assert_int_equal(attn_config_get(config, "mixed.4")->n, 0);
    assert_true(attn_config_bool(config, "mixed.5.in.0", false));
    assert_int_equal(attn_config_int(config, "mixed.5.in.1.deep", 0), 4);
    assert_int_equal(attn_config_get(config, "lists.0")->integers[0], 1);
    assert_string_equal(attn_config_get(config, "lists.1")->texts[0], "y");
    assert_true(attn_config_real(config, "long", 0) == 1e30 && attn_config_real(config, "minus", 0) == -1e20);
    assert_true(attn_config_real(config, "wide.0", 0) == 1e20 && attn_config_int(config, "wide.1", 0) == 1);
    assert_true(attn_config_real(config, "real", 0) == 0.1234567890123456789012);
    assert_true(attn_config_real(config, "power", 0) == 10);
    assert_string_equal(attn_config_text(config, "text", ""), "99999999999999999999 \" 99999999999999999999");
    assert_true(attn_config_int(config, "large", 0) == INT64_MAX);
    attn_config_destroy(config);
}

static void deep_json_is_refused_before_it_costs(void **state)
{
    enum { DEPTH = 100000 };
    attn_context *c = *state;
    char *text = malloc(6 * DEPTH);
    for (int i = 0; i < DEPTH; i++)
        memcpy(text + (size_t)i * 5, "{\"a\":", 5);
    attn_config *config;
    assert_int_equal(attn_config_parse(&config, c, text, 5 * DEPTH, "c.json"), ATTN_ERROR_FORMAT);
    assert_string_equal(attn_context_error(c),
                        "c.json:1:321: values are nested too deep; at most 64 levels are supported");
    free(text);
}

static void long_keys_are_refused_with_the_names_around_them(void **state)
{
    attn_context *c = *state;
    attn_config *config;
    char text[1200];
    int n = snprintf(text, sizeof text, "{\"%01023d\": 1}", 0);
    assert_refused(c, attn_config_parse(&config, c, text, (size_t)n, "c.json"), ATTN_ERROR_FORMAT,
                   "has 1023 bytes; at most 1022 are supported");
    n = snprintf(text, sizeof text, "{\"a\": {\"b\": {\"%01019d\": 1}}}", 0);
    attn_context_clear_error(c);
    assert_refused(c, attn_config_parse(&config, c, text, (size_t)n, "c.json"), ATTN_ERROR_FORMAT,
                   "\", joined by a dot, have 1023 bytes; at most 1022 are supported");
}

/* A text of 256 MB is read, and one of a byte more is refused. */
static void long_json_is_refused(void **state)
{
    enum { MOST = 1 << 28, DEPTH = 65 };
    attn_context *c = *state;
    char *text = calloc(MOST + 1, 1);
    json_t *root;
    assert_non_null(text);
    memset(text, '[', DEPTH);
    attn__input input = {.context = c, .name = "c.json", .data = (const uint8_t *)text, .size = MOST};
    assert_refused(c, attn__json_parse(&root, &input, DEPTH - 1, MOST, 0), ATTN_ERROR_FORMAT,
                   "c.json:1:65: values are nested too deep; at most 64 levels are supported");
    input.size++;
    assert_refused(c, attn__json_parse(&root, &input, DEPTH - 1, MOST, 0), ATTN_ERROR_FORMAT,
                   "c.json: the JSON has 268435457 bytes; at most 268435456 are supported");
    free(text);
}

static attn_status write_read_config(attn_context *c, void *user)
{
    static const char text[] = "{\"a\": [1], \"b\": [\"x\"], \"c\": {\"d\": \"y\"}}";
    attn_config *config = NULL, *again = NULL;
    attn_status status = attn_config_parse(&config, c, text, sizeof text - 1, "c");
    if (status == ATTN_OK)
        status = attn_config_write(config, c, user);
    if (status == ATTN_OK)
        status = attn_config_read(&again, c, user);
    attn_config_destroy(config);
    attn_config_destroy(again);
    return status;
}

static attn_status write_to_link(attn_context *c, void *user)
{
    const fixture *f = user;
    char link[160];
    snprintf(link, sizeof link, "%s/link", f->folder);
    unlink(link);
    assert_int_equal(symlink("file", link), 0);
    return attn_file_write(c, link, "x", 1);
}

static attn_status list_files(attn_context *c, void *folder)
{
    attn_entries entries;
    attn_status status = attn_directory_list(&entries, c, folder, false);
    if (status == ATTN_OK)
        assert_int_equal(entries.n, 1);
    attn_entries_free(c, &entries);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    fixture f;
    set_up(&f);
    assert_true(faults_try_all(write_read_config, f.path) > 20);
    assert_true(faults_try_all(list_files, f.folder) > 1);
    assert_int_equal(faults_try_all(write_to_link, &f), 3);
    assert_int_equal(tear_down(&f), 2);
}

RUN_TESTS(TEST(files_are_written_read_and_replaced), TEST(pipes_and_devices_are_written_in_place),
          TEST(link_to_standard_output_is_kept), TEST(a_symbolic_link_stays_and_its_target_is_written),
          TEST(a_file_that_changes_while_it_is_read_is_refused), TEST(a_tensor_of_a_changed_checkpoint_is_refused),
          TEST_WITH_CONTEXT(missing_files_and_folders_are_named), TEST(a_full_disk_leaves_the_old_file),
          TEST(gzip_is_read_and_checked), TEST(directories_are_made), TEST(directories_are_listed),
          TEST(directories_are_cleared), TEST_WITH_CONTEXT(json_is_written),
          TEST_WITH_CONTEXT(misuse_of_the_writer_is_refused), TEST(configs_survive_a_file),
          TEST_WITH_CONTEXT(bad_json_is_placed), TEST_WITH_CONTEXT(every_kind_of_json_is_read),
          TEST_WITH_CONTEXT(deep_json_is_refused_before_it_costs),
          TEST_WITH_CONTEXT(long_keys_are_refused_with_the_names_around_them), TEST_WITH_CONTEXT(long_json_is_refused),
          TEST(every_allocation_may_fail))
