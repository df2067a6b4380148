/* Latencies of requests: counts in buckets that are a thirty-second of their value wide. */
#ifndef BENCH_LATENCY_H
#define BENCH_LATENCY_H

#include <stdint.h>

#define LATENCY_BUCKETS (64 * 32)

struct latency {
    uint64_t total;
    uint64_t counts[LATENCY_BUCKETS];
};

static inline void latency_add(struct latency *latency, int64_t ns, uint64_t times)
{
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    unsigned bucket = (unsigned)value;

    if (value >= 32) {
        unsigned shift = 63u - (unsigned)__builtin_clzll(value) - 5;

        bucket = (shift + 1) * 32 + (unsigned)(value >> shift) - 32;
    }
    latency->counts[bucket] += times;
    latency->total += times;
}

/* The time that `share` of the requests did not exceed, in ns; 0 if there were none. */
static inline double latency_at(const struct latency *latency, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)latency->total), seen = 0;

    for (unsigned bucket = 0; bucket < LATENCY_BUCKETS && latency->total; bucket++) {
        seen += latency->counts[bucket];
        if (seen > wanted || seen == latency->total) {
            if (bucket < 32)
                return bucket;
            return (double)(((uint64_t)(bucket % 32) + 32) << (bucket / 32 - 1));
        }
    }
    return 0;
}

#endif
