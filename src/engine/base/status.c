/* SPDX-License-Identifier: MIT */
#include "attn/attn.h"

#define TEXT_OF(x)      #x
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *attn_version(void)
{
    return DOTTED(ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
}

const char *attn_status_text(attn_status status)
{
    switch (status) {
#define ATTN_X(name, code, text)                                                                                       \
    case ATTN_##name:                                                                                                  \
        return text;
        ATTN_STATUS_MAP(ATTN_X)
#undef ATTN_X
    }
    return "unknown status";
}
