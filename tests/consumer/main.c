/* SPDX-License-Identifier: MIT
 *
 * A minimal program that uses the library. install.sh and package.sh build it against the files that they installed.
 */
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
