#include "attend/block/rows.h"
