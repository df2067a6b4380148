/* Which messages of a round were seen, and which sequence numbers were told: each once. */
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
/* The round is over: nothing was told twice. */
void ledger_end(struct ledger *);

#endif
