/* SPDX-License-Identifier: MIT */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static attn_status fail_errno(attn_context *context, const char *path, const char *doing)
{
    attn_status status = errno == ENOENT || errno == ENOTDIR ? ATTN_ERROR_NOT_FOUND : ATTN_ERROR_IO;
    return attn__fail(context, status, "%s: cannot be %s: %s", path, doing, strerror(errno));
}

static attn_status fail_changed(const attn__input *input)
{
    return attn__fail(input->context, ATTN_ERROR_IO, "%s: the file was changed while it was read", input->name);
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)                    ? "a directory"
           : S_ISFIFO(mode)                 ? "a pipe"
           : S_ISSOCK(mode)                 ? "a socket"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "something unknown";
}

attn_status attn__file_open(attn_context *context, const char *path, int *descriptor, size_t *size)
{
    /* without O_NONBLOCK, opening a pipe would wait until another process writes to the pipe */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;
    *descriptor = -1;
    if (opened < 0)
        return fail_errno(context, path, "opened");
    attn_status status = ATTN_OK;
    if (fstat(opened, &about) != 0)
        status = fail_errno(context, path, "read");
    else if (!S_ISREG(about.st_mode))
        status =
            attn__fail(context, ATTN_ERROR_IO, "%s: is %s; only regular files are read", path, kind_of(about.st_mode));
    if (status == ATTN_OK && context->opened)
        status = context->opened(context->files_user, context, path, &about);
    if (status != ATTN_OK) {
        close(opened);
        return status;
    }
    *descriptor = opened;
    *size = (size_t)about.st_size;
    return ATTN_OK;
}

/* Reads a whole small file, so that nothing that happens to the file later can end this process. */
static attn_status read_whole(attn__input *input, int descriptor, size_t size)
{
    uint8_t *data = attn__alloc(input->context, size);
    size_t have = 0;
    while (data && have < size) {
        ssize_t n = pread(descriptor, data + have, size - have, (off_t)have);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR) {
            attn_status status = fail_errno(input->context, input->name, "read");
            attn__free(input->context, data);
            return status;
        }
        have += n > 0 ? (size_t)n : 0;
    }
    if (data && have < size) {
        attn__free(input->context, data);
        return fail_changed(input);
    }
    input->data = data;
    input->size = data ? size : 0;
    return data ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status map_whole(attn__input *input, int descriptor, size_t size)
{
    struct stat about;
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (map == MAP_FAILED)
        return fail_errno(input->context, input->name, "mapped");
    input->data = map;
    input->size = size;
    input->mapped = true;
    if (fstat(descriptor, &about) != 0)
        return fail_errno(input->context, input->name, "read");
    input->device = (uint64_t)about.st_dev;
    input->inode = (uint64_t)about.st_ino;
    input->seconds = about.st_mtim.tv_sec;
    input->nanoseconds = about.st_mtim.tv_nsec;
    return (size_t)about.st_size == size ? ATTN_OK : fail_changed(input);
}

attn_status attn__file_map(attn__input *input, attn_context *context, const char *path)
{
    /* reading so little takes as long as mapping it and touching its pages for the first time */
    enum { SMALL = 1 << 18 };
    int descriptor = -1;
    size_t size = 0;
    *input = (attn__input){.context = context, .name = path};
    attn_status status = attn__file_open(context, path, &descriptor, &size);
    if (status != ATTN_OK)
        return status;
    if (size > 0)
        status = size <= SMALL ? read_whole(input, descriptor, size) : map_whole(input, descriptor, size);
    close(descriptor);
    return status;
}

attn_status attn__file_unchanged(const attn__input *input)
{
    struct stat about;
    if (!input->mapped || stat(input->name, &about) != 0 || (uint64_t)about.st_dev != input->device ||
        (uint64_t)about.st_ino != input->inode)
        return ATTN_OK;
    bool same = (size_t)about.st_size == input->size && about.st_mtim.tv_sec == input->seconds &&
                about.st_mtim.tv_nsec == input->nanoseconds;
    return same ? ATTN_OK : fail_changed(input);
}

void attn__file_unmap(attn__input *input)
{
    if (input->mapped)
        munmap((void *)(uintptr_t)input->data, input->size);
    else if (input->data)
        attn__free(input->context, (void *)(uintptr_t)input->data);
    input->data = NULL;
    input->size = 0;
    input->mapped = false;
}
