/* SPDX-License-Identifier: MIT
 *
 * Loaded before the command (LD_PRELOAD): chooses the language of the environment before main, as a library may have
 * done.  Ends with code 99 where that language has no decimal comma: a test with it would show nothing. */
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void)
{
    char number[16];
    setlocale(LC_ALL, "");
    snprintf(number, sizeof number, "%.1f", 1.5);
    if (strcmp(number, "1,5") != 0)
        _exit(99);
}
