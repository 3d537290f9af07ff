/* SPDX-License-Identifier: MIT */
#include "support/failing.h"

#include <stdlib.h>

static void *give(void *user, size_t size, size_t align)
{
    failing *state = user;
    void *memory = NULL;
    if (++state->calls == state->fail_at || posix_memalign(&memory, align, size) != 0)
        return NULL;
    state->held++;
    return memory;
}

static void take_back(void *user, void *memory, size_t size)
{
    (void)size;
    ((failing *)user)->held--;
    free(memory);
}

attn_allocator failing_allocator(failing *state)
{
    return (attn_allocator){give, take_back, state};
}
