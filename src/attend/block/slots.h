#include "attend/block/gradient_sums.h"
