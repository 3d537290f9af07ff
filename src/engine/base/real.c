/* SPDX-License-Identifier: MIT */
#include "base/real.h"

#include <locale.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

double attn__real_of_text(const char *text, char **end)
{
    enum { MOST = 1200, MARK = 8 }; /* the exact decimal text of a double has at most about 1,100 characters */
    const char *mark = localeconv()->decimal_point;
    size_t width = strlen(mark), n = strspn(text, "+-.0123456789eE"), used = 0, point = SIZE_MAX;
    char copy[MOST + MARK], *stop;
    if (width > MARK)
        mark = ".", width = 1;
    /* Copy the characters of the number, and replace the first point by the locale's decimal mark, because strtod()
     * expects this mark. */
    for (size_t i = 0; i < n && i < MOST - 1 && !(text[i] == '.' && point != SIZE_MAX); i++) {
        if (text[i] == '.') {
            point = i;
            memcpy(copy + used, mark, width);
            used += width;
        } else {
            copy[used++] = text[i];
        }
    }
    copy[used] = '\0';
    double value = strtod(copy, &stop);
    size_t read = (size_t)(stop - copy);
    if (end)
        *end = (char *)(uintptr_t)(text + (point != SIZE_MAX && read > point ? read - (width - 1) : read));
    return value;
}

void attn__text_points(char *text)
{
    const char *mark = localeconv()->decimal_point;
    size_t width = strlen(mark);
    if (width == 0 || strcmp(mark, ".") == 0)
        return;
    for (char *at = text; (at = strstr(at, mark)) != NULL; at++) {
        *at = '.';
        memmove(at + 1, at + width, strlen(at + width) + 1);
    }
}
