/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests names files: patterns, every operation and invalid files.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/scratch.h"

#include "attn/io.h"
#include "attn/models.h"
#include "io/names/pattern.h"
#include "io/names/names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static char folder[64];

/* ------------------------------------------------------------------------------------------- patterns */

/* Returns the groups with | between them, or "no" if the pattern does not match. */
static const char *match(const char *pattern, const char *name)
{
    static char text[256];
    attn_context *c = NULL;
    attn__pattern *p;
    const char *wrong;
    attn__span groups[ATTN__GROUPS];
    attn_context_create(&c, &(attn_context_options){.threads = 1});
    if (attn__pattern_create(&p, c, pattern, strlen(pattern), &wrong) != ATTN_OK) {
        end_context(c);
        return wrong;
    }
    strcpy(text, "no");
    if (attn__pattern_matches(p, name, strlen(name), groups)) {
        size_t n = 0;
        text[0] = '\0';
        for (int i = 1; i <= attn__pattern_groups(p); i++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", i > 1 ? "|" : "",
                                  groups[i].begin <= groups[i].end ? groups[i].end - groups[i].begin : 0,
                                  name + groups[i].begin);
    }
    attn__pattern_destroy(c, p);
    end_context(c);
    return text;
}

static void patterns_match_whole_names(void **state)
{
    assert_string_equal(match("abc", "abc"), "");
    assert_string_equal(match("abc", "abcd"), "no");
    assert_string_equal(match("bc", "abc"), "no");
    assert_string_equal(match("a.c", "axc"), "");
    assert_string_equal(match("a\\.c", "axc"), "no");
    assert_string_equal(match("blocks\\.(\\d+)\\.(weight|bias)", "blocks.12.bias"), "12|bias");
    assert_string_equal(match("(.*)\\.(.*)", "a.b.c"), "a.b|c");
    assert_string_equal(match("(a|ab)(c|bcd)", "abcd"), "a|bcd");
    assert_string_equal(match("x(a+)?y", "xy"), "");
    assert_string_equal(match("[a-c_]+", "ab_c"), "");
    assert_string_equal(match("[^a-c]+", "xaz"), "no");
    assert_string_equal(match("[]x]\\d?", "]7"), "");
    assert_string_equal(match("(a*)*b", "aab"), "aa");
    assert_string_equal(match("", ""), "");
    assert_string_equal(match("a|b|", ""), "");
    char longest[ATTN__NAME_MOST + 2];
    memset(longest, 'a', ATTN__NAME_MOST + 1);
    longest[ATTN__NAME_MOST + 1] = '\0';
    assert_string_equal(match("a*", longest + 1), "");
    assert_string_equal(match("a*", longest), "no");
}

static void wrong_patterns_are_named(void **state)
{
    static const char *const wrong[][2] = {
        {"*a", "need something before them"},
        {"(a", "not closed"},
        {"a)", "has no ("},
        {"[a", "not closed"},
        {"^a", "whole name"},
        {"a{2}", "whole name"},
        {"\\w", "backslash"},
        {"a\\", "backslash"},
        {"[b-a]", "backwards"},
        {"(?:a)", "must not be followed by ?"},
        {"((((((((((a))))))))))", "9 groups"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!strstr(match(wrong[i][0], "a"), wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], match(wrong[i][0], "a"));
}

/* With backtracking, this pattern would take 2^1000 steps. It must be matched quickly. */
static void no_pattern_takes_long(void **state)
{
    static const char *const patterns[] = {"(a*)*b",    "(a|a)*b",
                                           "(a|aa)+b",  "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)b",
                                           "((a+)+)+b", "a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a*b"};
    char name[ATTN__NAME_MOST + 1];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    clock_t begin = clock();
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        assert_string_equal(match(patterns[i], name), "no");
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
}

/* ---------------------------------------------------------------------------------------------- rules */

static const char *checkpoint(void)
{
    static char path[128];
    static const struct {
        const char *name;
        int rank;
        int64_t shape[4];
    } tensors[] = {
        {"l1.qkv", 2, {6, 2}}, {"l1.W", 2, {2, 3}},  {"l1.b", 2, {1, 3}}, {"a.0", 2, {1, 2}},
        {"a.1", 2, {2, 2}},    {"table", 2, {4, 2}}, {"counter", 0, {0}},
    };
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        attn_tensor *t = NULL;
        attn_tensor_create(&t, c, ATTN_F32, tensors[i].rank, tensors[i].shape);
        for (int64_t k = 0; k < attn_tensor_size(t); k++)
            ((float *)attn_tensor_data(t))[k] = (float)k;
        attn_named_add(&list, tensors[i].name, t);
    }
    snprintf(path, sizeof path, "%s/rules.safetensors", folder);
    assert_int_equal(attn_safetensors_write(&list, path, NULL), ATTN_OK);
    attn_named_clear(&list);
    end_context(c);
    return path;
}

static attn_status read_by(attn_context *c, attn_named_list *list, const char *rules, const char *path)
{
    attn_name_map *names;
    attn_status status = attn_name_map_parse(&names, c, rules, strlen(rules), "rules.names");
    attn_weights_options how = {.names = names};
    if (status == ATTN_OK)
        status = attn_weights_read(list, path, &how, NULL, NULL);
    attn_name_map_destroy(names);
    return status;
}

static void check(const attn_named_list *list, const char *name, int rank, const int64_t *shape, const float *numbers)
{
    const attn_tensor *t = attn_named_find(list, name);
    if (!t)
        fail_msg("no tensor %s", name);
    assert_int_equal(attn_tensor_rank(t), rank);
    assert_memory_equal(attn_tensor_shape(t), shape, (size_t)rank * sizeof *shape);
    assert_memory_equal(attn_tensor_data(t), numbers, (size_t)attn_tensor_size(t) * sizeof *numbers);
}

#define HEAD "attn names 1\n"
static const char every[] =
    "# what each operation does\n" HEAD "arch vit\nset heads=4 eps=1e-6 tied=true kind=pre # not x=1\n"
    "l(\\d+)\\.qkv   blk{\\1-1}.q  part 0/3\n"
    "l(\\d+)\\.qkv   blk{\\1-1}.v  part 2/3 scale 2\n"
    "l(\\d+)\\.W     blk\\1.w  transpose\n"
    "l\\d\\.W        flat  transpose reshape -1\n"
    "l(\\d+)\\.b     blk\\1.b  squeeze\n"
    "a\\.0 whole join 0/2\na\\.1 whole join 1/2\n"
    "a\\.0 across transpose join 0/2 1\na\\.1 across transpose join 1/2 1\n"
    "a\\.0 sum scale 3 add 1/2\na\\.1 sum rows :1 add 0/2\n"
    "table rows rows 1:3\ntable longer rows 3: append-zero-row\n"
    "nothing\\.(.*)  bias.\\1 default\n"
    "size rows_of longer 0\ncount blocks blk\nwhen tied=false whole\nwhen tied=true none\nsize tied rows 1\nsize x "
    "none 0\n"
    ".* -\n";

static void every_operation_does_what_it_says(void **state)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    assert_ok(c, read_by(c, &list, every, checkpoint()));
    assert_int_equal(list.n, 10);
    check(&list, "blk0.q", 2, (const int64_t[]){2, 2}, (const float[]){0, 1, 2, 3});
    check(&list, "blk0.v", 2, (const int64_t[]){2, 2}, (const float[]){16, 18, 20, 22});
    check(&list, "blk1.w", 2, (const int64_t[]){3, 2}, (const float[]){0, 3, 1, 4, 2, 5});
    check(&list, "flat", 1, (const int64_t[]){6}, (const float[]){0, 3, 1, 4, 2, 5});
    check(&list, "blk1.b", 1, (const int64_t[]){3}, (const float[]){0, 1, 2});
    check(&list, "whole", 2, (const int64_t[]){3, 2}, (const float[]){0, 1, 0, 1, 2, 3});
    check(&list, "across", 2, (const int64_t[]){2, 3}, (const float[]){0, 0, 2, 1, 1, 3});
    check(&list, "sum", 2, (const int64_t[]){1, 2}, (const float[]){0, 4});
    check(&list, "rows", 2, (const int64_t[]){2, 2}, (const float[]){2, 3, 4, 5});
    check(&list, "longer", 2, (const int64_t[]){2, 2}, (const float[]){6, 7, 0, 0});
    attn_named_clear(&list);
    end_context(c);
}

static void a_file_says_what_the_model_is(void **state)
{
    attn_context *c = NULL;
    attn_name_map *names;
    attn_context_create(&c, NULL);
    assert_int_equal(attn_name_map_parse(&names, c, every, strlen(every), "n"), ATTN_OK);
    const attn_config *settings = attn_name_map_settings(names);
    assert_string_equal(attn_name_map_architecture(names), "vit");
    assert_int_equal(attn_config_int(settings, "heads", 0), 4);
    assert_true(attn_config_real(settings, "eps", 0) == 1e-6);
    assert_true(attn_config_bool(settings, "tied", false));
    assert_string_equal(attn_config_text(settings, "kind", ""), "pre");
    assert_int_equal(attn_config_size(settings), 4);
    attn_name_map_destroy(names);
    end_context(c);
}

/* A parameter without a tensor stays zero if a rule allows it. Otherwise the error names the missing parameter. */
static void defaults_become_zeros(void **state)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list model = {.context = c, .owns = true};
    attn_name_map *names;
    static const char *const parameters[] = {"rows", "bias.x"};
    for (int i = 0; i < 2; i++) {
        attn_tensor *t = NULL;
        attn_tensor_create(&t, c, ATTN_F32, 2, (const int64_t[]){2, 2});
        ((float *)attn_tensor_data(t))[0] = 9;
        attn_named_add(&model, parameters[i], t);
    }
    assert_int_equal(attn_name_map_parse(&names, c, every, strlen(every), "n"), ATTN_OK);
    attn_weights_options how = {.names = names, .allow_extra = true};
    assert_int_equal(attn_weights_load(&model, checkpoint(), &how, NULL, NULL), ATTN_OK);
    check(&model, "bias.x", 2, (const int64_t[]){2, 2}, (const float[]){0, 0, 0, 0});
    check(&model, "rows", 2, (const int64_t[]){2, 2}, (const float[]){2, 3, 4, 5});
    attn_name_map_destroy(names);
    attn_named_clear(&model);
    end_context(c);
}

/* Makes a file of tensors of shape [1]. The value of the i-th tensor is i, from 0. */
static const char *numbered(const char *const *tensors)
{
    static char path[96];
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    for (int i = 0; tensors[i]; i++) {
        attn_tensor *t = NULL;
        attn_tensor_create(&t, c, ATTN_F32, 1, (const int64_t[]){1});
        *(float *)attn_tensor_data(t) = (float)i;
        attn_named_add(&list, tensors[i], t);
    }
    snprintf(path, sizeof path, "%s/numbered.safetensors", folder);
    assert_int_equal(attn_safetensors_write(&list, path, NULL), ATTN_OK);
    attn_named_clear(&list);
    end_context(c);
    return path;
}

/* Prefixes that training programs add are removed, in any order. An average replaces the weights. A full name that
 * fits, or a target of a rule, has precedence. */
static void wrapper_prefixes_are_removed(void **state)
{
    static const struct {
        const char *tensors[6];
        float a, b; /* indices of the tensors that fill parameters a and b */
        const char *rules, *note;
    } cases[] = {
        {{"module.a", "module.b"}, 0, 1, "", ""},
        {{"_orig_mod.a", "_orig_mod.module.b"}, 0, 1, "", ""},
        {{"state_dict.model._orig_mod.module.model.a", "state_dict.model.b"}, 0, 1, "", ""},
        {{"state_dict.model.a", "model.b", "optimizer_states.0.state.1.exp_avg", "callbacks.x.best", "loops.y"},
         0,
         1,
         "",
         "3 tensors of the optimizer and the training were skipped"},
        {{"module.a", "module.b", "n_averaged"}, 0, 1, "", "1 tensors of the optimizer and the training"},
        {{"model.a", "model.b", "model_ema.module.a", "model_ema.module.b", "model_ema.n_averaged"},
         2,
         3,
         "",
         "the moving average of the weights (model_ema) is used, as timm does; 3 other tensors were skipped"},
        {{"state_dict.a", "state_dict.b", "state_dict_ema.a", "state_dict_ema.b", "amp_scaler.z"},
         2,
         3,
         "",
         "(state_dict_ema) is used"},
        {{"model.a", "a", "b"}, 1, 2, "model\\.a other\n", ""},
        {{"module.a", "b", "module.c"}, 0, 1, ".* -\n", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char rules[128];
        attn_context *c = NULL;
        attn_name_map *names;
        attn_bytes report = {0};
        attn_context_create(&c, NULL);
        attn_named_list list = {.context = c, .owns = true};
        snprintf(rules, sizeof rules, HEAD "(a|b) target.\\1\n%s", cases[i].rules);
        assert_int_equal(attn_name_map_parse(&names, c, rules, strlen(rules), "n"), ATTN_OK);
        attn_weights_options how = {.names = names};
        if (attn_weights_read(&list, numbered(cases[i].tensors), &how, NULL, &report) != ATTN_OK)
            fail_msg("case %zu: %s", i, attn_context_error(c));
        check(&list, "target.a", 1, (const int64_t[]){1}, &cases[i].a);
        check(&list, "target.b", 1, (const int64_t[]){1}, &cases[i].b);
        if (*cases[i].note ? !report.size || !strstr(report.data, cases[i].note) : report.size > 0)
            fail_msg("case %zu: noted \"%s\"", i, report.size ? report.data : "");
        attn_bytes_free(c, &report);
        attn_name_map_destroy(names);
        attn_named_clear(&list);
        end_context(c);
    }
}

static void refuse_as(attn_status status, const char *rules, const char *words)
{
    attn_context *c = NULL;
    attn_context_create(&c, NULL);
    attn_named_list list = {.context = c, .owns = true};
    assert_refused(c, read_by(c, &list, rules, checkpoint()), status, words);
    assert_int_equal(list.n, 0);
    end_context(c);
}

static void refuse(const char *rules, const char *words)
{
    refuse_as(ATTN_ERROR_FORMAT, rules, words);
}

static void wrong_tensors_are_refused(void **state)
{
    refuse_as(ATTN_ERROR_UNSUPPORTED, HEAD "l1\\.qkv q\n", "no rule of rules.names matches \"");
    refuse(HEAD ".* x\n", "\"x\" is filled twice: by \"");
    refuse(HEAD "a\\.0 w join 0/2\n.* -\n", "slice 1 of \"w\" is missing");
    refuse(HEAD "a\\.1 w join 1/2\n.* -\n", "slice 0 of \"w\" is missing");
    refuse(HEAD "a\\.0 w join 0/2\na\\.1 w join 0/2\n.* -\n", "slice 0 of \"w\" is given twice");
    refuse(HEAD "a\\.0 w join 0/2\na\\.1 w\n.* -\n", "twice");
    refuse(HEAD "a\\.0 w join 0/2\nl1\\.b w join 1/2\n.* -\n", "do not fit together");
    refuse(HEAD "a\\.0 w add 0/2\nl1\\.b w add 1/2\n.* -\n", "do not fit together");
    refuse(HEAD "a\\.0 w add 0/2\na\\.1 w add 1/2\n.* -\n", "do not fit together");
    refuse(HEAD "a\\.0 w add 0/2\na\\.0 w join 1/2\n.* -\n", "the rules of the slices of \"w\" differ");
    refuse(HEAD "a\\.0 w add 0/2\n.* -\n", "slice 1 of \"w\" is missing");
    refuse(HEAD "a\\.0 w join 0/2 3\na\\.1 w join 1/2 3\n.* -\n", "the rule joins along axis 3");
    refuse(HEAD "l1\\.qkv w part 0/4\n.* -\n", "axis 0 has length 6, which is not divisible by 4, the number of parts");
    refuse(HEAD "l1\\.qkv w part 0/2 2\n.* -\n", "the rule gives axis 2, but the tensor has 2 axes");
    refuse(HEAD "counter w transpose\n.* -\n", "only a matrix");
    refuse(HEAD "table w rows 3:9\n.* -\n", "the rule needs at least 9 rows, but the tensor has ");
    refuse(HEAD "table w reshape 3,-1\n.* -\n", "has a multiple of 3 elements, but the tensor has ");
    refuse(HEAD "(.*) {\\1-1}\n", "a group in { } matches no number");
}

static void wrong_files_are_refused(void **state)
{
    refuse("", "expected \"attn names 1\"");
    refuse("a b\n", "line 1: expected \"attn names 1\"");
    refuse("attn names 2\n", "only version 1 of names files is supported; found \"2\"");
    refuse(HEAD "# c\nx\n", "line 3: a rule needs a pattern and a target; found \"x\"");
    refuse(HEAD "(a b\n", "line 2: pattern \"(a\": a ( is not closed");
    refuse(HEAD "a \\1\n", "the target names a group that the pattern does not have");
    refuse(HEAD "a b{\n", "in a target, \\ and { } may occur only as in");
    refuse(HEAD "a b turn\n", "same or default; found \"turn\"");
    refuse(HEAD "a b part 3/3\n", "expected i/n");
    refuse(HEAD "a b part x\n", "expected i/n");
    refuse(HEAD "a b rows 3:3\n", "expected a:b after rows");
    refuse(HEAD "a b reshape 2,-1,-1\n", "after reshape, at most one of them -1; found \"2,-1,-1\"");
    refuse(HEAD "a b scale inf\n", "finite number");
    refuse(HEAD "a b join 0/2 transpose\n", "no operation may follow join, add or same");
    refuse(HEAD "a b add 0/2 squeeze\n", "no operation may follow join, add or same");
    refuse(HEAD "a b same squeeze\n", "no operation may follow join, add or same");
    refuse(HEAD "a b add 0/2 1\n", "expected an operation: transpose, part, rows");
    refuse(HEAD "a - transpose\n", "no operation may follow it");
    refuse(HEAD "arch a\narch b\n", "the architecture is given twice; found \"b\"");
    refuse(HEAD "set x\n", "KEY=VALUE");
    refuse(HEAD "size x y\n", "expected size KEY TARGET AXIS");
    refuse(HEAD "size x y 8\n", "expected an axis from 0 to 7; found \"8\"");
    refuse(HEAD "size x y 0 1.5\n", "expected a whole number; found \"1.5\"");
    refuse(HEAD "when x y\n", "when KEY=VALUE TARGET");
    refuse(HEAD "count x y z\n", "count KEY PREFIX");
}

static attn_status read_all(attn_context *c, void *user)
{
    attn_named_list list = {.context = c, .owns = true};
    attn_status status = read_by(c, &list, every, user);
    attn_named_clear(&list);
    return status;
}

static attn_status measure_all(attn_context *c, void *user);

static void every_allocation_may_fail(void **state)
{
    assert_true(faults_try_all(measure_all, (void *)(uintptr_t)checkpoint()) > 50);
    assert_true(faults_try_all(read_all, (void *)(uintptr_t)checkpoint()) > 50);
}

/* ------------------------------------------------------------------------------------------- carried files */

static attn_model *model_by_names(attn_context *c, const char *names_file, const char *path)
{
    attn_name_map *names;
    attn_checkpoint *weights;
    attn_config *config;
    attn_model *model;
    assert_ok(c, attn_name_map_read(&names, c, names_file));
    attn_weights_options how = {.names = names, .allow_extra = true};
    assert_ok(c, attn_checkpoint_open(&weights, c, path, &how, NULL));
    assert_ok(c, attn_config_create(&config, c));
    assert_ok(c, attn_config_set_int(config, "num_heads", 2));
    assert_ok(c, attn_name_map_infer_config(names, weights, config));
    assert_ok(c, attn_model_create(&model, c, attn_name_map_architecture(names), config,
                                   &(attn_model_options){.blank = true}));
    how.allow_extra = false;
    assert_ok(c, attn_weights_load(attn_model_parameters(model), path, &how, NULL, NULL));
    attn_config_destroy(config);
    attn_checkpoint_close(weights);
    attn_name_map_destroy(names);
    return model;
}

static void compare(const attn_tensor *found, const attn_tensor *expected)
{
    const float *a = attn_tensor_data(found), *b = attn_tensor_data(expected);
    double most = 0, off = 0;
    assert_int_equal(attn_tensor_size(found), attn_tensor_size(expected));
    for (int64_t i = 0; i < attn_tensor_size(found); i++) {
        most = fmax(most, fabs(b[i]));
        off = fmax(off, fabs((double)a[i] - b[i]));
    }
    assert_true(off <= 1e-5 * most);
}

static attn_status measure(attn_context *c, const char *text, const char *path, attn_config **config)
{
    attn_name_map *names = NULL;
    attn_checkpoint *weights = NULL;
    *config = NULL;
    attn_status status = attn_name_map_parse(&names, c, text, strlen(text), "names");
    attn_weights_options how = {.names = names};
    if (status == ATTN_OK)
        status = attn_checkpoint_open(&weights, c, path, &how, NULL);
    if (status == ATTN_OK)
        status = attn_config_create(config, c);
    if (status == ATTN_OK)
        status = attn_config_set_int(*config, "x", 7);
    if (status == ATTN_OK)
        status = attn_name_map_infer_config(names, weights, *config);
    attn_checkpoint_close(weights);
    attn_name_map_destroy(names);
    return status;
}

static void settings_are_read_from_shapes(void **state)
{
    attn_context *c;
    attn_config *config;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    assert_ok(c, measure(c, every, checkpoint(), &config));
    assert_int_equal(attn_config_int(config, "rows_of", 0), 2);
    assert_int_equal(attn_config_int(config, "blocks", 0), 2);
    assert_false(attn_config_bool(config, "tied", true));
    assert_int_equal(attn_config_int(config, "x", 0), 7);
    assert_int_equal(attn_config_int(config, "heads", 0), 4);
    assert_int_equal(attn_config_size(config), 7);
    attn_config_destroy(config);
    end_context(c);
}

static attn_status measure_all(attn_context *c, void *user)
{
    attn_config *config;
    attn_status status = measure(c, every, user, &config);
    attn_config_destroy(config);
    return status;
}

/* tests/parity/family.py wrote the weights of original models to one file, and inputs and outputs to another. There,
 * "=NAME" is an output, with which this library's output is compared. */
static void carried_files_give_the_originals_outputs(void **state)
{
    static const char *const cases[][2] = {{"torch", "torch-transformer"},
                                           {"fairseq", "fairseq-transformer"},
                                           {"marian-native", "marian-native"},
                                           {"bert-masked", "bert-huggingface"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char path[128];
        attn_context *c;
        attn_tape *tape;
        assert_int_equal(attn_context_create(&c, &(attn_context_options){.threads = 1}), ATTN_OK);
        attn_named_list all = {.context = c, .owns = true}, in = {.context = c}, out = in;
        snprintf(path, sizeof path, "tests/data/names/%s.npz", cases[k][0]);
        attn_model *model = model_by_names(c, cases[k][1], path);
        snprintf(path, sizeof path, "tests/data/names/%s-case.npz", cases[k][0]);
        assert_ok(c, attn_weights_read(&all, path, NULL, NULL, NULL));
        for (int64_t i = 0; i < all.n; i++) {
            bool expected = all.items[i].name[0] == '=';
            assert_ok(c, attn_named_add(expected ? &out : &in, all.items[i].name + expected,
                                        expected ? NULL : all.items[i].tensor));
        }
        assert_int_equal(out.n, 1);
        assert_ok(c, attn_tape_create(&tape, c));
        assert_ok(c, attn_model_forward(model, tape, &in, &out));
        for (int64_t i = 0; i < all.n; i++)
            if (all.items[i].name[0] == '=')
                compare(attn_named_find(&out, all.items[i].name + 1), all.items[i].tensor);
        attn_tape_destroy(tape);
        attn_model_destroy(model);
        attn_named_clear(&all);
        attn_named_clear(&in);
        attn_named_clear(&out);
        end_context(c);
    }
}

/* The family of a file must be found even if names have a prefix, or if some full names belong to another family. */
static void the_family_of_a_file_is_found(void **state)
{
    static const char *const tensors[] = {"model.transformer.encoder.layers.0.linear1.weight",
                                          "model.transformer.encoder.layers.0.norm1.weight",
                                          "model.backbone.0.body.conv1.weight",
                                          "model.input_proj.weight",
                                          "model.class_embed.weight",
                                          "model.bbox_embed.layers.0.weight",
                                          NULL};
    for (int prefixed = 0; prefixed < 2; prefixed++) {
        const char *names[7] = {NULL}, *found;
        int64_t known;
        attn_context *c = NULL;
        attn_checkpoint *weights;
        attn_context_create(&c, NULL);
        for (int i = 0; tensors[i]; i++)
            names[i] = tensors[i] + (prefixed ? 0 : strlen("model."));
        assert_int_equal(attn_checkpoint_open(&weights, c, numbered(names), NULL, NULL), ATTN_OK);
        assert_int_equal(attn_name_map_detect(&found, weights, &known, NULL), ATTN_OK);
        assert_non_null(found);
        assert_string_equal(found, "detr-facebook");
        assert_int_equal(known, 6);
        attn_checkpoint_close(weights);
        end_context(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(patterns_match_whole_names),
                                       TEST(settings_are_read_from_shapes),
                                       TEST(carried_files_give_the_originals_outputs),
                                       TEST(wrong_patterns_are_named),
                                       TEST(no_pattern_takes_long),
                                       TEST(every_operation_does_what_it_says),
                                       TEST(a_file_says_what_the_model_is),
                                       TEST(defaults_become_zeros),
                                       TEST(wrapper_prefixes_are_removed),
                                       TEST(the_family_of_a_file_is_found),
                                       TEST(wrong_tensors_are_refused),
                                       TEST(wrong_files_are_refused),
                                       TEST(every_allocation_may_fail)};
    scratch_open(folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(folder);
    return failed;
}
