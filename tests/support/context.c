/* SPDX-License-Identifier: MIT */
#include "support/context.h"

#include <stdio.h>
#include <string.h>

static size_t destroy(attn_context *context)
{
    size_t held = 1;
    attn_context_memory(context, &held, NULL, NULL);
    attn_context_destroy(context);
    return held;
}

int close_context_of_tests(attn_context *context)
{
    size_t held = destroy(context);
    if (held == 0)
        return 0;
    print_error("%zu bytes of the tests' context were not freed\n", held);
    exit(1);
}

void end_context(attn_context *context)
{
    assert_int_equal(destroy(context), 0);
}

void assert_status(const attn_context *context, attn_status status, const char *file, int line)
{
    if (status == ATTN_OK)
        return;
    print_error("status %d: %s\n", (int)status, attn_context_error(context));
    _fail(file, line);
}

void assert_error(attn_context *context, attn_status status, attn_status expected, const char *words, const char *file,
                  int line)
{
    if (status != expected || attn_context_status(context) != status || !strstr(attn_context_error(context), words)) {
        print_error("status %d, not %d with \"%s\": %s\n", (int)status, (int)expected, words,
                    attn_context_error(context));
        _fail(file, line);
    }
    attn_context_clear_error(context);
}
