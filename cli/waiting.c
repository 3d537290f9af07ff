/* SPDX-License-Identifier: MIT
 *
 * How threads wait for each other.  GNU's OpenMP lets an idle thread spin for milliseconds, which on a machine
 * that has other work to do makes every small step wait for a thread that is not running: ten times slower.
 * A few microseconds lose nothing where the cores are free and give them away where they are not.
 */
#include "command.h"

#include <stdlib.h>
#include <unistd.h>

void cli_wait_politely(char **argv)
{
#ifdef __linux__
    char self[4096];
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return;
    self[length] = '\0';
    /* OpenMP reads its environment when it is loaded, before main: only a fresh start makes it see this.  If
     * there is none, everything works as well, only slower. */
    if (setenv("GOMP_SPINCOUNT", "2000", 0) == 0)
        execv(self, argv);
#else
    (void)argv;
#endif
}
