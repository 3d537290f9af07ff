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
    size_t length = strlen(path) + strlen(name) + 2;
    char *whole = attn__alloc(context, length);
    struct stat about;
    if (!whole) {
        *status = ATTN_ERROR_MEMORY;
        return false;
    }
    strcpy(whole, path); /* NOLINT: `whole` is large enough for the path */
    strcat(whole, "/");  /* NOLINT */
    strcat(whole, name); /* NOLINT */
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
    return attn__fail(context, status, "%s: %s", path,
                      errno == ENOTDIR ? "not a directory, where one is wanted" : strerror(errno));
}

attn_status attn_directory_list(attn_entries *entries, attn_context *context, const char *path, bool directories)
{
    attn__call_begin(context);
    attn_status status = ATTN_OK;
    *entries = (attn_entries){0};
    DIR *open = opendir(path);
    if (!open)
        return fail_open(context, path);
    for (struct dirent *entry; status == ATTN_OK && (entry = readdir(open));) {
        if (entry->d_name[0] != '.' && is_kind(context, path, entry->d_name, directories, &status))
            status = add(entries, context, entry->d_name);
    }
    closedir(open);
    if (status != ATTN_OK) {
        attn_entries_free(context, entries);
        return status;
    }
    if (entries->n > 1)
        qsort(entries->names, (size_t)entries->n, sizeof *entries->names, compare);
    return ATTN_OK;
}
