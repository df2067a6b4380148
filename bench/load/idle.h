/* Connections of which nothing is heard for a long time. */
#ifndef BENCH_IDLE_H
#define BENCH_IDLE_H

#include "load.h"

/* Open the connections, each with a PING that is answered; say so; hold them until the
 * standard input ends, and then see that each is still served. */
void idle(const struct plan *);

#endif
