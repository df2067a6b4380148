/* Any bytes for what reads .dmsq files, under libFuzzer: nothing is read outside of them, and
 * whatever is taken for a message is one that can be written again.
 *
 * The first byte says how the file is read. With bit 0 the checksums are made right where
 * they can be, so that the fuzzer gets behind them. */
#include "base/crc32c.h"
#include "file/replay.h"

#include <stdlib.h>
#include <string.h>

#define SALT 7u

enum { SEAL = 1, SALVAGE = 2, EXACT = 4, WHOLE = 8, TWICE = 16 };

static size_t words_at(const unsigned char *at)
{
    uint32_t words;

    memcpy(&words, at, 4);
    return words;
}

/* Makes the checksums right: of each record, then of each batch over what follows it. */
static void seal(unsigned char *bytes, size_t size)
{
    for (int turn = 0; turn < 2; turn++) {
        for (size_t at = 0; at + 8 <= size;) {
            size_t words = words_at(bytes + at), end = at + 8 + 8 * words;
            struct shmq_record r;
            size_t next;

            if (!words || words > (size - at - 8) / 8)
                break;
            if (shmq_record_read(bytes + at, size - at, SALT, false, &r, &next) == SHMQ_READ_OK &&
                r.type == SHMQ_R_BATCH) {
                r.bytes = r.bytes <= size - end ? r.bytes : size - end;
                r.crc = shmq_crc32c(0, bytes + end, r.bytes);
                shmq_record_write(bytes + at, SALT, &r);
            }
            shmq_record_seal(bytes + at, SALT);
            at = end;
        }
    }
}

static void look_at_messages(struct shmq_replay *r)
{
    static unsigned char copy[1 << 17];

    if (!shmq_replay_sort(r, 0))
        abort();
    for (uint64_t i = 0, before = 0; i < r->count; i++) {
        struct shmq_record message;

        shmq_replay_message(r, i, &message);
        if (message.seq <= before || message.type != SHMQ_R_PUT)
            abort();
        before = message.seq;
        if (shmq_record_size(&message) <= sizeof copy)
            shmq_record_write(copy, SALT, &message);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct shmq_replay r;
    struct shmq_found found;
    unsigned char *bytes;
    unsigned how;

    if (!size)
        return 0;
    how = data[0];
    size--;
    bytes = malloc(size ? size : 1);
    memcpy(bytes, data + 1, size);
    if (how & SEAL)
        seal(bytes, size);
    shmq_replay_begin(&r, how & SALVAGE, 0, UINT64_MAX);
    for (int turn = 0; turn < (how & TWICE ? 2 : 1); turn++) {
        enum shmq_fed fed = shmq_replay_feed(&r, bytes, size, 0, SALT, 1,
                                             how & WHOLE ? size + (how >> 5) * 8 : 0, how & EXACT,
                                             &found);

        if (found.end > size || (fed == SHMQ_FED_DAMAGED && found.damage > size) ||
            (fed == SHMQ_FED_DAMAGED && how & SALVAGE))
            abort();
    }
    shmq_replay_closed(bytes, size, 0, SALT);
    look_at_messages(&r);
    shmq_replay_end(&r);
    free(bytes);
    return 0;
}
