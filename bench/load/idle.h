/* Connections that are idle for a long time. */
#ifndef BENCH_IDLE_H
#define BENCH_IDLE_H

#include "load.h"

/* Open the connections and check each with a PING; print that they are open; hold them until
 * the standard input ends, and then check that each is still served. */
void idle(const struct plan *);

#endif
