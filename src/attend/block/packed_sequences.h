#include "attend/block/items.h"
