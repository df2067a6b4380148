#include "base/clock.h"

int64_t shmq_clock_set;
