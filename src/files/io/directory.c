/* SPDX-License-Identifier: MIT */
#include "attn/io.h"
#include "io/directory.h"
#include "base/context.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void attn_entries_free(attn_context *context, attn_entries *entries)
{
    for (int64_t i = 0; i < entries->n; i++)
        attn__free(context, entries->names[i]);
    attn__free(context, entries->names);
    *entries = (attn_entries){0};
}

static int compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Returns whether the entry is of the requested kind: a directory if `directories` is true, otherwise a file. Returns
 * false for an entry that cannot be examined. */
static bool is_kind(attn_context *context, const char *path, const char *name, bool directories, attn_status *status)
{
    char *whole = attn__join(context, path, name);
    struct stat about;
    if (!whole) {
        *status = ATTN_ERROR_MEMORY;
        return false;
    }
    bool known = stat(whole, &about) == 0;
    attn__free(context, whole);
    return known && (directories ? S_ISDIR(about.st_mode) : S_ISREG(about.st_mode));
}

static attn_status add(attn_entries *entries, attn_context *context, const char *name)
{
    char **names = attn__grow(context, entries->names, entries->n, sizeof *names);
    if (!names)
        return ATTN_ERROR_MEMORY;
    entries->names = names;
    entries->names[entries->n] = attn__strdup(context, name);
    if (!entries->names[entries->n])
        return ATTN_ERROR_MEMORY;
    entries->n++;
    return ATTN_OK;
}

static attn_status fail_open(attn_context *context, const char *path)
{
    attn_status status = errno == ENOENT || errno == ENOTDIR ? ATTN_ERROR_NOT_FOUND : ATTN_ERROR_IO;
    if (errno == ENOTDIR)
        return attn__fail(context, status, "%s: expected a directory, found a file", path);
    return attn__fail(context, status, "%s: the directory cannot be opened: %s", path, strerror(errno));
}

/* Reads the names of the entries, in the order of the file system. readdir returns NULL at the end and after an error,
 * and only errno tells which. */
static attn_status read_names(attn_entries *entries, attn_context *context, DIR *open, const char *path, bool hidden)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(open);
        if (!entry)
            return errno == 0 ? ATTN_OK
                              : attn__fail(context, ATTN_ERROR_IO, "%s: the directory cannot be read: %s", path,
                                           strerror(errno));
        const char *name = entry->d_name;
        bool itself = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        bool shown = name[0] != '.' && strcmp(name, "__MACOSX") != 0;
        attn_status status = shown || (hidden && !itself) ? add(entries, context, name) : ATTN_OK;
        if (status != ATTN_OK)
            return status;
    }
}

attn_status attn__directory_read(attn_entries *entries, attn_context *context, const char *path, bool hidden)
{
    *entries = (attn_entries){0};
    DIR *open = opendir(path);
    if (!open)
        return fail_open(context, path);
    attn_status status = read_names(entries, context, open, path, hidden);
    closedir(open);
    if (status != ATTN_OK)
        attn_entries_free(context, entries);
    else if (entries->n > 1)
        qsort(entries->names, (size_t)entries->n, sizeof *entries->names, compare);
    return status;
}

attn_status attn_directory_list(attn_entries *entries, attn_context *context, const char *path, bool directories)
{
    ATTN__CALL(context);
    attn_status status = attn__directory_read(entries, context, path, false);
    int64_t kept = 0;
    for (int64_t i = 0; i < entries->n; i++)
        if (status == ATTN_OK && is_kind(context, path, entries->names[i], directories, &status))
            entries->names[kept++] = entries->names[i];
        else
            attn__free(context, entries->names[i]);
    entries->n = kept;
    if (status != ATTN_OK)
        attn_entries_free(context, entries);
    return status;
}
