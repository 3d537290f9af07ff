/* SPDX-License-Identifier: MIT
 * A lock that the system releases when its holder dies, on a file that stays. */
#include "apps/lock.h"

#include "apps/translator.h"
#include "base/context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Writers put `.NAME.PROCESS-NUMBER` beside NAME and rename it; only a killed one leaves it there. */
static void remove_leftovers(attn_context *context, const char *directory)
{
    static const char *const names[] = {".checkpoint.safetensors.", ".model.safetensors.", ".history.tsv.",
                                        ".training.json.", ".config.json.", ".source.vocab.", ".target.vocab."};
    DIR *entries = opendir(directory);
    struct dirent *entry;
    while (entries && (entry = readdir(entries))) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            char path[ATTN__PATH];
            if (strncmp(entry->d_name, names[i], strlen(names[i])) == 0 &&
                attn__path(context, path, directory, entry->d_name) == ATTN_OK)
                unlink(path);
        }
    }
    if (entries)
        closedir(entries);
}

attn_status attn__directory_lock(attn_context *context, const char *directory, int *lock)
{
    char path[ATTN__PATH];
    attn_status status = attn__path(context, path, directory, ".lock");
    if (status != ATTN_OK)
        return status;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return attn__fail(context, ATTN_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        close(file);
        return attn__fail(context, ATTN_BUSY, "%s: another training is at work in this directory", directory);
    }
    remove_leftovers(context, directory);
    *lock = file;
    return ATTN_OK;
}

void attn__directory_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}
