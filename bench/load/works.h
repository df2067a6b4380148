/* The works, by the protocol that they speak. */
#ifndef BENCH_WORKS_H
#define BENCH_WORKS_H

#include "load.h"

extern const struct work ping, echo;                           /* ping.c */
extern const struct work produce, batch;                       /* produce.c */
extern const struct work consume, subscribe;                   /* consume.c */
extern const struct work redis_push, redis_move;               /* redis.c */
extern const struct work redis_add, redis_group;               /* streams.c */
extern const struct work beanstalkd_put, beanstalkd_reserve;   /* beanstalkd.c */
extern const struct work nats_publish, nats_fetch;             /* nats.c */

#endif
