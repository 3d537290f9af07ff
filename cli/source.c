/* SPDX-License-Identifier: MIT
 * What --data names. */
#include "source.h"

#include <string.h>

cli_source cli_source_of(const char *data)
{
    cli_source source = {0};
    if (strcmp(data, "phrasebook") == 0)
        source.text = attn_phrasebook(&source.size);
    else if (data[0])
        source.path = data;
    return source;
}
