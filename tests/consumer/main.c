/* SPDX-License-Identifier: MIT
 * The ten lines of a user of the library; install.sh and package.sh build them where they put it. */
#include <attn/attn.h>
#include <stdio.h>
int main(void)
{
    attn_context *context;
    if (attn_context_create(&context, NULL) != ATTN_OK)
        return 1;
    printf("attn %s on %s\n", attn_version(), attn_context_isa(context));
    attn_context_destroy(context);
    return 0;
}
