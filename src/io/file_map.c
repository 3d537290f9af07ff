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

attn_status attn__file_map(attn__input *input, attn_context *context, const char *path)
{
    int descriptor = -1;
    size_t size = 0;
    *input = (attn__input){.context = context, .name = path};
    attn_status status = attn__file_open(context, path, &descriptor, &size);
    if (status != ATTN_OK || size == 0) {
        if (status == ATTN_OK)
            close(descriptor);
        return status;
    }
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (map == MAP_FAILED) {
        status = fail_errno(context, path, "mapped");
    } else {
        input->data = map;
        input->size = size;
    }
    close(descriptor);
    return status;
}

void attn__file_unmap(attn__input *input)
{
    if (input->data)
        munmap((void *)(uintptr_t)input->data, input->size);
    input->data = NULL;
    input->size = 0;
}
