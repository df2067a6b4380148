/* Sealed receipts. */
#include "harness.h"

#include "queue/receipt.h"

TEST("what is sealed opens again, and nothing stays nothing")
{
    struct chance chance = chance_of(21);
    struct shmq_seal seal;

    for (int round = 0; round < 1000; round++) {
        shmq_seal_init(&seal, chance_next(&chance));
        CHECK_EQ(shmq_seal(&seal, 0), 0);
        for (int i = 0; i < 100; i++) {
            uint64_t receipt = chance_next(&chance) >> chance_below(&chance, 64);

            CHECK_EQ(shmq_unseal(&seal, shmq_seal(&seal, receipt)), receipt);
            CHECK_EQ(shmq_seal(&seal, shmq_unseal(&seal, receipt)), receipt);
        }
    }
}

/* Receipts of few slots and small serials, as two young queues give them, opened by the
 * other's seal: whether any names a slot of a queue of the largest capacity that is ever
 * likely, under a serial that it may have given. */
TEST("a receipt of one queue opens to none of another")
{
    struct shmq_seal mine, other;

    shmq_seal_init(&mine, 3);
    shmq_seal_init(&other, 5);
    for (uint64_t serial = 1; serial < 1000; serial++)
        for (uint64_t slot = 0; slot < 100; slot++) {
            uint64_t opened = shmq_unseal(&other, shmq_seal(&mine, serial << 24 | slot));

            CHECK(opened >> 24 >= 1000 || (opened & 0xFFFFFF) >= 100);
        }
}
