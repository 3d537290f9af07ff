/* SPDX-License-Identifier: MIT */
#include "support/faults.h"

#include <stdio.h>
#include <stdlib.h>

static void *alloc(void *user, size_t size, size_t align)
{
    faults *f = user;
    f->calls++;
    if (f->fail_at && (f->calls == f->fail_at || (f->forever && f->calls > f->fail_at)))
        return NULL;
    /* A request above 1 GiB fails, because it shows that the code did not check a size. */
    void *memory = NULL;
    if (size > (size_t)1 << 30 || posix_memalign(&memory, align, size) != 0)
        return NULL;
    f->held++;
    return memory;
}

static void release(void *user, void *memory, size_t size)
{
    (void)size;
    ((faults *)user)->held--;
    free(memory);
}

attn_allocator faults_allocator(faults *f)
{
    return (attn_allocator){alloc, release, f};
}

attn_context *faults_context(faults *f)
{
    attn_context *context = NULL;
    attn_context_create(&context, &(attn_context_options){.allocator = faults_allocator(f), .threads = 1});
    return context;
}

long faults_try_all(attn_status (*work)(attn_context *context, void *user), void *user)
{
    for (long at = 2;; at++) { /* The first failing allocation is number 2, because number 1 is the context itself. */
        faults f = {.fail_at = at};
        attn_context *context = faults_context(&f);
        attn_status status = work(context, user);
        bool failed = f.calls >= at;
        if (failed ? status != ATTN_ERROR_MEMORY : status != ATTN_OK) {
            fprintf(stderr, "allocation %ld failing: status %d, \"%s\"\n", at, (int)status,
                    attn_context_error(context));
            return -1;
        }
        attn_context_destroy(context);
        if (f.held != 0) {
            fprintf(stderr, "allocation %ld failing: %ld blocks are still held\n", at, f.held);
            return -1;
        }
        if (!failed)
            return f.calls - 1;
    }
}
