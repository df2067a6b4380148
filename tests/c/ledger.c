#include "ledger.h"

#include <string.h>

#include "queue/index.h"
#include "queue/transition.h"

/* ---- bytes ---- */

static uint8_t pattern(uint8_t salt, uint64_t at) { return (uint8_t)(salt + at * 7); }

void write_pattern(const unsigned char *to, uint64_t bytes, uint8_t salt)
{
    unsigned char *bytes_of = (unsigned char *)to;

    for (uint64_t at = 0; bytes_of && at < bytes; at++)
        bytes_of[at] = pattern(salt, at);
}

static volatile uint64_t bytes_seen; /* so that they are read though nobody asks */

bool has_pattern(const unsigned char *from, uint64_t bytes, uint8_t salt)
{
    uint64_t right = 0;

    for (uint64_t at = 0; from && at < bytes; at++)
        right += from[at] == pattern(salt, at);
    bytes_seen += right;
    return right == (from ? bytes : 0);
}

/* Whether the properties end with the error that do_settle adds: they need not be those of the put. */
static bool has_error(const struct shmq_view *view)
{
    static const char key[] = "\xA5"
                              "error";
    uint32_t bytes = sizeof key - 1 + ERROR_BYTES;

    return view->meta_bytes > bytes &&
           !memcmp(view->meta + view->meta_bytes - bytes, key, sizeof key - 1);
}

void check_view(struct actor *a, const struct shmq_view *view, uint64_t seq)
{
    uint8_t salt = a->puts[seq % MOST_PUTS].salt;
    bool failed = has_error(view);

    MUST(view->body && has_pattern(view->body, view->body_bytes, salt));
    MUST(failed || !view->meta_bytes ||
         has_pattern(view->meta, view->meta_bytes, (uint8_t)(salt ^ 0xFF)));
    MUST_BE(view->body_bytes, a->puts[seq % MOST_PUTS].body_bytes);
    MUST(failed || view->meta_bytes == a->puts[seq % MOST_PUTS].meta_bytes);
    if (!a->strict) {
        (void)has_pattern(view->body, view->body_bytes, 0);
        (void)has_pattern(view->meta, view->meta_bytes, 0);
    }
}

/* ---- the ledger ---- */

void enter(struct actor *a, uint64_t seq, const struct actor_receipt *r)
{
    MUST(seq < MOST_PUTS && seq == a->q->h->last_seq);
    a->puts[seq % MOST_PUTS].body_bytes = r->body_bytes;
    a->puts[seq % MOST_PUTS].meta_bytes = r->meta_bytes;
    a->puts[seq % MOST_PUTS].salt = r->salt;
    a->puts[seq % MOST_PUTS].settled = false;
}

void keep(struct actor *a, struct actor_receipt r)
{
    uint32_t at = a->receipt_count < MOST_RECEIPTS ? a->receipt_count++
                                                   : (uint32_t)below(a, MOST_RECEIPTS);

    a->receipts[at] = r;
}

struct actor_receipt pick(struct actor *a, enum shmq_state state)
{
    uint32_t from = (uint32_t)below(a, a->receipt_count + 1);

    for (uint32_t i = 0; i < a->receipt_count; i++) {
        uint32_t at = (from + i) % a->receipt_count;
        struct actor_receipt r = a->receipts[at];

        if (r.state != state && !one_in(a, 50))
            continue;
        if (!one_in(a, 10))
            a->receipts[at] = a->receipts[--a->receipt_count];
        return r;
    }
    return (struct actor_receipt){.receipt = one_in(a, 2) ? below(a, 8) : chance_next(&a->chance)};
}

bool is_good(struct actor *a, uint64_t receipt, enum shmq_state state)
{
    uint32_t at = (uint32_t)(receipt & SHMQ_RECEIPT_SLOT);
    uint64_t word;

    if (!a->strict || at >= a->q->h->slots_made)
        return false;
    word = shmq_word(&a->q->slots[at]);
    return shmq_state_of(word) == state && shmq_serial_of(word) == receipt >> SHMQ_SERIAL_SHIFT;
}

void settle_time(struct actor *a)
{
    for (int round = 0; round < 100 && shmq_next_due(a->q) <= now; round++)
        shmq_tick(a->q, now);
    MUST(shmq_next_due(a->q) > now);
}
