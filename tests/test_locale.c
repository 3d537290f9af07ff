/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests a host program whose language has a decimal comma. Numbers in problems, settings and JSON must be read and
 * written with a decimal point. The test is skipped if the machine has no such language and cannot make one.
 */
#include "support/context.h"

#include "attn/config.h"
#include "attn/io.h"
#include "attn/trainer.h"
#include "io/json_writer.h"
#include "base/real.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CONTEXT_OF_TESTS(.threads = 2)

static int choose_language(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR", "es_ES.UTF-8", "pt_BR.UTF-8"};
    const char *made = getenv("ATTN_COMMA"), *chosen = made ? setlocale(LC_NUMERIC, made) : NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !chosen; i++)
        chosen = setlocale(LC_ALL, names[i]);
    if (made && strcmp(localeconv()->decimal_point, ",") != 0)
        return -1;
    return open_context(state);
}

/* Unlike the other tests, this test needs no language with a decimal comma. */
static void numbers_are_read(void **state)
{
    static const struct {
        const char *text;
        double value;
        size_t read;
    } cases[] = {{"0.25", 0.25, 4}, {"2,causal", 2, 1}, {"0.5,lse", 0.5, 3}, {"-1.5e-3x", -1.5e-3, 7},
                 {"1.5.5", 1.5, 3}, {"x", 0, 0},        {"", 0, 0},          {".5", 0.5, 2},
                 {"5.", 5, 2},      {"1e4", 1e4, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *stop;
        assert_true(attn__real_of_text(cases[i].text, &stop) == cases[i].value);
        assert_int_equal((size_t)(stop - cases[i].text), cases[i].read);
    }
}

static void numbers_are_written(void **state)
{
    char text[64], plain[] = "no mark";
    snprintf(text, sizeof text, "%.2f\t%d\t%g\t%.1f", -1.25, 7, 0.5, 3.0);
    attn__text_points(text);
    assert_string_equal(text, "-1.25\t7\t0.5\t3.0");
    attn__text_points(plain);
    assert_string_equal(plain, "no mark");
}

static void problems_are_read(void **state)
{
    if (strcmp(localeconv()->decimal_point, ".") == 0)
        skip();
    attn_problem p;
    assert_int_equal(
        attn_problem_parse(&p, context, "b1h1q4k4d4:dropout=0.25,scale=0.5,causal", ATTN_DIRECTION_FORWARD), ATTN_OK);
    assert_true(p.dropout == 0.25 && p.scale == 0.5);
}

static void json_goes_there_and_back(void **state)
{
    if (strcmp(localeconv()->decimal_point, ".") == 0)
        skip();
    static const char text[] = "{\"x\": 0.125, \"y\": 1e-3}";
    attn_config *config = NULL;
    attn_json json;
    const char *out;
    assert_int_equal(attn_config_parse(&config, context, text, strlen(text), "text"), ATTN_OK);
    assert_true(attn_config_real(config, "x", 0) == 0.125 && attn_config_real(config, "y", 0) == 1e-3);
    attn_json_begin(&json, context, false);
    attn_json_config(&json, NULL, config);
    assert_int_equal(attn_json_finish(&json, &out), ATTN_OK);
    assert_non_null(strstr(out, "0.125"));
    attn_json_free(&json);
    attn_config_destroy(config);
}

/* Defaults of settings are texts in a table, of which "0.1" must not be read as 0. */
static void defaults_are_read(void **state)
{
    if (strcmp(localeconv()->decimal_point, ".") == 0)
        skip();
    attn_config *settings = NULL;
    assert_int_equal(attn_trainer_settings(&settings, context, "translate", NULL), ATTN_OK);
    assert_true(attn_config_real(settings, "dropout", 0) == 0.1);
    assert_true(attn_config_real(settings, "valid", 0) == 0.05);
    attn_config_destroy(settings);
}

RUN_TESTS_IN(choose_language, close_context, TEST(numbers_are_read), TEST(numbers_are_written), TEST(problems_are_read),
             TEST(json_goes_there_and_back), TEST(defaults_are_read))
