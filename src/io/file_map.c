/* SPDX-License-Identifier: MIT
 * Files mapped into memory for reading. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static attn_status fail_errno(attn_context *context, const char *path, const char *doing)
{
    attn_status status = errno == ENOENT || errno == ENOTDIR ? ATTN_NOT_FOUND : ATTN_IO;
    return attn__fail(context, status, "%s: cannot be %s: %s", path, doing, strerror(errno));
}

static attn_status map_descriptor(attn__input *input, int descriptor)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0)
        return fail_errno(input->context, input->name, "read");
    if (!S_ISREG(about.st_mode))
        return attn__fail(input->context, ATTN_IO, "%s: is not a file", input->name);
    if (about.st_size == 0)
        return ATTN_OK;
    void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (map == MAP_FAILED)
        return fail_errno(input->context, input->name, "mapped");
    input->data = map;
    input->size = (size_t)about.st_size;
    return ATTN_OK;
}

attn_status attn__file_map(attn__input *input, attn_context *context, const char *path)
{
    *input = (attn__input){.context = context, .name = path};
    /* Not blocking: a pipe without a writer must give an error, not wait. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return fail_errno(context, path, "opened");
    attn_status status = map_descriptor(input, descriptor);
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
