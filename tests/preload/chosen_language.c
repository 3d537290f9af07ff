/* SPDX-License-Identifier: MIT
 *
 * A library to preload (LD_PRELOAD). It sets the language of the environment before main, as a library may have done.
 * It ends the program with code 99 if that language has no decimal comma, because a test would then show nothing.
 */
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
