/* SPDX-License-Identifier: MIT
 *
 * Copies the files of a model's directory, and locks it. The lock file is never removed. The system
 * releases the lock when the process ends.
 */
#include "apps/checkpoint/model_directory.h"

#include "io/directory.h"
#include "attn/io.h"
#include "base/context.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

attn_status attn__file_copy(attn_context *context, const char *directory, const char *name, const char *to)
{
    char from[ATTN__PATH], path[ATTN__PATH];
    attn_bytes bytes = {0};
    attn_status status = attn__path(context, from, directory, name);
    if (status == ATTN_OK)
        status = attn__path(context, path, to, name);
    if (status != ATTN_OK || !attn_file_exists(from))
        return status;
    status = attn_file_read(&bytes, context, from, 0);
    if (status == ATTN_OK)
        status = attn_file_write(context, path, bytes.data, bytes.size);
    attn_bytes_free(context, &bytes);
    return status;
}

/* Reports whether a file is a temporary file for one of the names. Writers create a temporary file
 * `.NAME.PROCESS-NUMBER` and rename it to NAME. Such a file is left over only if its writer was killed. */
static bool is_leftover(const char *entry, const char *const *names)
{
    for (int i = 0; names && names[i]; i++) {
        size_t length = strlen(names[i]);
        if (entry[0] == '.' && strncmp(entry + 1, names[i], length) == 0 && entry[1 + length] == '.')
            return true;
    }
    return false;
}

static attn_status remove_leftovers(attn_context *context, const char *directory, const char *const *own_files)
{
    static const char *const names[] = {"checkpoint.safetensors", "model.safetensors", "history.tsv",
                                        "training.json",          "config.json",       "adapter_model.safetensors",
                                        "adapter_config.json",    "base.safetensors",  NULL};
    attn_entries entries;
    attn_status status = attn__directory_read(&entries, context, directory, true);
    for (int64_t i = 0; i < entries.n && status == ATTN_OK; i++) {
        char path[ATTN__PATH];
        const char *name = entries.names[i];
        if ((is_leftover(name, names) || is_leftover(name, own_files)) &&
            (status = attn__path(context, path, directory, name)) == ATTN_OK)
            unlink(path);
    }
    attn_entries_free(context, &entries);
    return status;
}

attn_status attn__directory_lock(attn_context *context, const char *directory, const char *const *own_files, int *lock)
{
    char path[ATTN__PATH];
    attn_status status = attn__path(context, path, directory, ".lock");
    if (status != ATTN_OK)
        return status;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return attn__fail(context, ATTN_ERROR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        close(file);
        return attn__fail(context, ATTN_ERROR_BUSY, "%s: another training is running in this directory", directory);
    }
    status = remove_leftovers(context, directory, own_files);
    if (status != ATTN_OK)
        close(file);
    else
        *lock = file;
    return status;
}

void attn__directory_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

attn_status attn_directory_clear(attn_context *context, const char *path, const char *const *names)
{
    ATTN__CALL(context);
    int lock = -1;
    if (!attn__is_directory(path))
        return ATTN_OK;
    attn_status status = attn__directory_lock(context, path, NULL, &lock);
    for (int i = 0; names[i] && status == ATTN_OK; i++) {
        char file[ATTN__PATH];
        status = attn__path(context, file, path, names[i]);
        if (status == ATTN_OK && unlink(file) != 0 && errno != ENOENT)
            status = attn__fail(context, ATTN_ERROR_IO, "%s: cannot be removed: %s", file, strerror(errno));
    }
    attn__directory_unlock(lock);
    return status;
}
