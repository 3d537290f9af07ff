/* SPDX-License-Identifier: MIT
 *
 * Writes files, and makes directories. A written file replaces an older file only when it is complete. */
#include "io/file.h"
#include "io/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void output_fail(attn__output *output, const char *what)
{
    bool link = output->target && strcmp(output->path, output->target) != 0;
    output->status = attn__fail(output->context, ATTN_ERROR_IO, "%s%s%s: cannot be %s: %s", output->path,
                                link ? ": a symbolic link to " : "", link ? output->target : "", what, strerror(errno));
}

int attn__standard_stream(const char *path)
{
    struct stat link, about, open;
    if (lstat(path, &link) != 0 || !S_ISLNK(link.st_mode) || stat(path, &about) != 0)
        return -1;
    for (int descriptor = STDOUT_FILENO; descriptor <= STDERR_FILENO; descriptor++)
        if (fstat(descriptor, &open) == 0 && open.st_dev == about.st_dev && open.st_ino == about.st_ino)
            return descriptor;
    return -1;
}

/* If the path is not a regular file, opens it directly and returns true. A device such as /dev/null must not be
 * replaced, because a file renamed to its path would remove the device for all programs. A directory is also opened
 * directly, because the error then has the right message. */
static bool open_in_place(attn__output *output)
{
    struct stat about;
    if (stat(output->path, &about) != 0)
        return false;
    int standard = attn__standard_stream(output->path);
    if (S_ISREG(about.st_mode) && standard < 0)
        return false;
    /* a standard stream is not opened again, because opening it would overwrite its earlier output */
    output->in_place = true;
    output->descriptor = standard < 0 ? open(output->path, O_WRONLY | O_CLOEXEC | O_NOCTTY)
                                      : fcntl(standard, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (output->descriptor < 0)
        output_fail(output, "written");
    return true;
}

/* Returns the path to which the symbolic link `path` leads, whose text has `size` bytes. The caller frees it. */
static char *read_link(attn_context *context, const char *path, size_t size)
{
    enum { SPARE = 256 }; /* the size of some links, such as those of /proc, is reported as 0 */
    size_t folder = attn__path_folder(path), room = attn__size_add(size, SPARE);
    char *to = attn__alloc(context, attn__size_add(folder, room));
    if (!to)
        return NULL;
    ssize_t length = readlink(path, to + folder, room);
    if (length < 0 || (size_t)length == room) {
        attn__fail(context, ATTN_ERROR_IO, "%s: the symbolic link cannot be read: %s", path,
                   strerror(length < 0 ? errno : ENAMETOOLONG));
        attn__free(context, to);
        return NULL;
    }
    to[folder + (size_t)length] = '\0';
    if (to[folder] == '/') /* an absolute path */
        memmove(to, to + folder, (size_t)length + 1);
    else
        memcpy(to, path, folder);
    return to;
}

attn_status attn__link_target(char **target, attn_context *context, const char *path)
{
    enum { MAX_LINKS = 40 }; /* the limit of Linux */
    struct stat about;
    *target = attn__strdup(context, path);
    for (int i = 0; *target && lstat(*target, &about) == 0 && S_ISLNK(about.st_mode); i++) {
        char *next = i < MAX_LINKS ? read_link(context, *target, (size_t)about.st_size) : NULL;
        if (i == MAX_LINKS)
            attn__fail(context, ATTN_ERROR_IO, "%s: cannot be written: %s", path, strerror(ELOOP));
        attn__free(context, *target);
        *target = next;
    }
    return *target ? ATTN_OK : attn__call_status(context);
}

/* Opens a new temporary file in the folder of the path, for exclusive use. Its name begins with a dot, so that listings
 * and globs do not show it. A killed process may have left a file with the chosen name. Then another name is tried. */
static void open_temporary(attn__output *output, size_t size)
{
    const char *target = output->target;
    size_t folder = attn__path_folder(target);
    for (int attempt = 0; attempt < 1000; attempt++) {
        snprintf(output->temporary, size, "%.*s.%s.%ld-%d", (int)folder, target, target + folder, (long)getpid(),
                 attempt);
        output->descriptor = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (output->descriptor >= 0 || errno != EEXIST)
            break;
    }
    if (output->descriptor < 0)
        output_fail(output, "written");
}

attn_status attn__output_begin(attn__output *output, attn_context *context, const char *path)
{
    *output = (attn__output){.context = context, .path = path, .descriptor = -1};
    if (open_in_place(output))
        return output->status;
    output->status = attn__link_target(&output->target, context, path);
    if (output->status == ATTN_OK && context->writes)
        output->status = context->writes(context->files_user, context, path, output->target);
    if (output->status != ATTN_OK)
        return output->status;
    size_t size = attn__size_add(strlen(output->target), 64);
    output->temporary = attn__alloc(context, size);
    if (output->temporary)
        open_temporary(output, size);
    else
        output->status = ATTN_ERROR_MEMORY;
    return output->status;
}

void attn__output_write(attn__output *output, const void *data, size_t size)
{
    const char *p = data;
    while (size > 0 && output->status == ATTN_OK) {
        ssize_t n = write(output->descriptor, p, size < 1u << 30 ? size : 1u << 30);
        if (n < 0 && errno != EINTR)
            output_fail(output, "written");
        if (n > 0)
            p += n, size -= (size_t)n;
    }
}

/* Gives the new file the mode of the file that it replaces. */
static void keep_mode(attn__output *output)
{
    struct stat about;
    if (stat(output->path, &about) == 0 && fchmod(output->descriptor, about.st_mode & 07777) != 0 && errno != EPERM)
        output_fail(output, "given its mode");
}

/* Flushes the folder. Otherwise a crash could lose the file's new name. A failure is ignored, because some file systems
 * cannot flush folders. */
static void flush_folder(attn__output *output)
{
    size_t folder = attn__path_folder(output->target);
    memcpy(output->temporary, folder ? output->target : ".", folder ? folder : 1);
    output->temporary[folder ? folder : 1] = '\0';
    int descriptor = open(output->temporary, O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) {
        (void)!fsync(descriptor);
        close(descriptor);
    }
}

static void put_into_place(attn__output *output)
{
    if (output->status == ATTN_OK && rename(output->temporary, output->target) != 0)
        output_fail(output, "renamed into place");
    if (output->status == ATTN_OK)
        flush_folder(output);
    else
        unlink(output->temporary);
}

attn_status attn__output_end(attn__output *output)
{
    if (output->descriptor >= 0) {
        if (output->status == ATTN_OK && !output->in_place)
            keep_mode(output);
        /* EINVAL is not an error: the output is then a pipe or a device, which need not be flushed. */
        if (output->status == ATTN_OK && fsync(output->descriptor) != 0 && errno != EINVAL)
            output_fail(output, "flushed to the disk");
        if (close(output->descriptor) != 0 && output->status == ATTN_OK)
            output_fail(output, "closed");
        if (!output->in_place)
            put_into_place(output);
    }
    attn__free(output->context, output->temporary);
    attn__free(output->context, output->target);
    output->temporary = output->target = NULL;
    output->descriptor = -1;
    return output->status;
}

attn_status attn_file_write(attn_context *context, const char *path, const void *data, size_t size)
{
    ATTN__CALL(context);
    attn__output output;
    attn__output_begin(&output, context, path);
    attn__output_write(&output, data, size);
    return attn__output_end(&output);
}

/* If stat fails for another reason than a missing file, returns true. Opening the file then reports the reason. */
bool attn_file_exists(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

const char *attn__file_in(const char *directory, const char *const *names, size_t n)
{
    char path[ATTN__PATH];
    for (size_t i = 0; i < n; i++)
        if (snprintf(path, sizeof path, "%s/%s", directory, names[i]) < ATTN__PATH && attn_file_exists(path))
            return names[i];
    return NULL;
}

attn_status attn_directory_create(attn_context *context, const char *path)
{
    ATTN__CALL(context);
    char *partial = attn__strdup(context, path);
    if (!partial)
        return ATTN_ERROR_MEMORY;
    attn_status status =
        *path ? ATTN_OK : attn__fail(context, ATTN_ERROR_ARGUMENT, "the name of the directory is empty");
    for (char *p = partial; *p && status == ATTN_OK; p++) {
        bool last = p[1] == '\0';
        if (!last && (p[1] != '/' || *p == '/'))
            continue;
        char after = p[1];
        p[1] = '\0';
        /* store errno before attn__is_directory overwrites it */
        int reason = mkdir(partial, 0777) == 0 ? 0 : errno;
        if (reason && !attn__is_directory(partial))
            status = attn__fail(context, ATTN_ERROR_IO, "%s: directory cannot be made: %s", partial, strerror(reason));
        p[1] = after;
    }
    attn__free(context, partial);
    return status;
}
