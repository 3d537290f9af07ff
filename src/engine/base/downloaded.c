/* SPDX-License-Identifier: MIT */
#include "base/downloaded.h"

#include "base/context.h"

#include <string.h>
#include <strings.h>

/* Returns whether the text `data` begins with `start`, ignoring case. `data` may be cut off. */
static bool text_begins(const char *data, const char *start)
{
    return strncasecmp(data, start, strlen(start)) == 0;
}

attn_status attn__check_downloaded(attn_context *context, const char *name, const void *data, size_t whole)
{
    char head[160];
    size_t size = whole < sizeof head ? whole : sizeof head - 1;
    if (size > 0)
        memcpy(head, data, size);
    head[size] = '\0';
    const char *text = head + (text_begins(head, "\xef\xbb\xbf") ? 3 : 0);
    text += strspn(text, " \t\r\n");
    if (text_begins(text, "version http") && strstr(text, "git-lfs"))
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: this is a Git LFS pointer, not the file; git lfs pull fetches the file", name);
    if (text_begins(text, "<!doctype html") || text_begins(text, "<html"))
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: this is an HTML page, not the file; download the file itself", name);
    return ATTN_OK;
}
