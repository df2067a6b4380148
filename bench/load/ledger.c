#include "ledger.h"

#include <stdlib.h>
#include <string.h>

#include "load.h"

void ledger_begin(struct ledger *ledger, uint64_t messages)
{
    if (messages > ledger->most) {
        free(ledger->bits);
        free(ledger->sequences);
        ledger->bits = memory((messages / 64 + 1) * sizeof(uint64_t));
        ledger->sequences = memory(messages * sizeof(uint64_t));
    }
    ledger->most = messages;
    memset(ledger->bits, 0, (messages / 64 + 1) * sizeof(uint64_t));
    ledger->seen = ledger->told = 0;
}

void ledger_see(struct ledger *ledger, uint64_t number)
{
    uint64_t bit = 1ull << number % 64;

    if (number >= ledger->most)
        fail("a message came that is not of this round: number %lld", (long long)number);
    if (ledger->bits[number / 64] & bit)
        fail("message %llu came twice", (unsigned long long)number);
    ledger->bits[number / 64] |= bit;
    ledger->seen++;
}

void ledger_tell(struct ledger *ledger, uint64_t sequence)
{
    if (ledger->told == ledger->most)
        fail("more sequence numbers came than messages were put");
    ledger->sequences[ledger->told++] = sequence;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

void ledger_end(struct ledger *ledger)
{
    qsort(ledger->sequences, ledger->told, sizeof(uint64_t), by_value);
    for (uint64_t n = 1; n < ledger->told; n++)
        if (ledger->sequences[n] == ledger->sequences[n - 1])
            fail("sequence number %llu was told twice", (unsigned long long)ledger->sequences[n]);
}
