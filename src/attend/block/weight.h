#include "attend/block/scores.h"
