/* Checks that each message of a round and each sequence number is seen once. */
#ifndef BENCH_LEDGER_H
#define BENCH_LEDGER_H

#include <stdint.h>

struct ledger {
    uint64_t most;       /* messages of a round */
    uint64_t seen;       /* bodies that came in this one */
    uint64_t *bits;      /* one for each of them */
    uint64_t told;       /* sequence numbers that came in this one */
    uint64_t *sequences;
};

void ledger_begin(struct ledger *, uint64_t messages);
void ledger_see(struct ledger *, uint64_t number);
void ledger_tell(struct ledger *, uint64_t sequence);
/* At the end of the round: check that no sequence number came twice. */
void ledger_end(struct ledger *);

#endif
