#include "queue/find_by_sequence.h"

#include <string.h>

uint64_t shmq_search_room(uint32_t count)
{
    uint64_t room = 16;

    while (room < 2ull * count)
        room *= 2;
    return room;
}

/* The entry of `seq`, or the empty entry for it: linear probing, at most half full. */
static uint32_t *entry_of(const uint64_t *seqs, uint32_t *table, uint64_t room, uint64_t seq)
{
    uint64_t at = seq * 0x9E3779B97F4A7C15ull >> 20 & (room - 1);

    while (table[at] != SHMQ_NIL && seqs[table[at]] != seq)
        at = (at + 1) & (room - 1);
    return &table[at];
}

static bool is_live(uint64_t word)
{
    enum shmq_state state = shmq_state_of(word);

    return state == SHMQ_READY || state == SHMQ_DELAYED || state == SHMQ_LEASED;
}

void shmq_search(const struct shmq_queue *q, const uint64_t *seqs, uint32_t count, uint32_t *at,
                 uint32_t *table, uint64_t room)
{
    memset(table, 0xFF, room * sizeof *table);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *entry = entry_of(seqs, table, room, seqs[i]);

        at[i] = SHMQ_NIL;
        if (*entry == SHMQ_NIL)
            *entry = i;
    }
    for (uint32_t slot = 0; slot < GET_ATOMIC(q->h->slots_made) && slot < q->capacity; slot++) {
        const struct shmq_slot *s = &q->slots[slot];

        if (is_live(shmq_word(s))) {
            uint32_t i = *entry_of(seqs, table, room, GET_ATOMIC(s->seq));

            if (i != SHMQ_NIL)
                at[i] = slot;
        }
    }
}
