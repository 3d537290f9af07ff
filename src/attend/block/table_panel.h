#include "attend/block/table.h"
