/* The queue of a run, made before the run and deleted after it. */
#ifndef BENCH_QUEUE_H
#define BENCH_QUEUE_H

#include "load.h"

void queue_create(struct line *);
void queue_delete(struct line *);

#endif
