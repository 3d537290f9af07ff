/* SPDX-License-Identifier: MIT */
#include "base/path.h"

#include "base/context.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *attn__path_last(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

size_t attn__path_folder(const char *path)
{
    return (size_t)(attn__path_last(path) - path);
}

char *attn__path_parent(attn_context *context, const char *path)
{
    size_t length = attn__path_folder(path);
    char *parent = attn__strdup(context, length > 0 ? path : ".");
    if (parent && length > 0)
        parent[length > 1 ? length - 1 : 1] = '\0';
    return parent;
}

const char *attn__path_extension(const char *path)
{
    const char *last = attn__path_last(path), *dot = strrchr(last, '.');
    return dot ? dot : path + strlen(path);
}

size_t attn__path_stem(const char *path)
{
    return (size_t)(attn__path_extension(path) - path);
}

static attn_status check(attn_context *context, int length, const char *folder)
{
    return length >= 0 && length < ATTN__PATH
               ? ATTN_OK
               : attn__fail(context, ATTN_ERROR_ARGUMENT,
                            "the path \"%.60s...\" has %d bytes; at most %d are supported", folder, length,
                            ATTN__PATH - 1);
}

attn_status attn__path(attn_context *context, char *path, const char *folder, const char *name)
{
    return check(context, snprintf(path, ATTN__PATH, "%s/%s", folder, name), folder);
}

attn_status attn__path_beside(attn_context *context, char *beside, const char *path, const char *name)
{
    int folder = (int)attn__path_folder(path);
    return check(context, snprintf(beside, ATTN__PATH, "%.*s%s", folder, path, name), path);
}

attn_status attn__path_copy(attn_context *context, char *copy, const char *path)
{
    return check(context, snprintf(copy, ATTN__PATH, "%s", path), path);
}

char *attn__join(attn_context *context, const char *folder, const char *name)
{
    size_t size = attn__size_add(strlen(folder), strlen(name) + 2);
    char *path = attn__alloc(context, size);
    if (path)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

char *attn__join_beside(attn_context *context, const char *path, const char *name)
{
    size_t folder = attn__path_folder(path);
    char *beside = attn__alloc(context, attn__size_add(folder, strlen(name) + 1));
    if (beside) {
        memcpy(beside, path, folder);
        memcpy(beside + folder, name, strlen(name) + 1);
    }
    return beside;
}

bool attn__is_directory(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}
