/* Making a segment, and deciding whether one may be trusted. */
#include "base/crc32c.h"
#include "fixture.h"
#include "queue/alter.h"
#include "queue/segment.h"

#include <stdlib.h>
#include <string.h>

#define VERSION_BYTES 4 /* of `published`: the version stands in its low half */

static int inspect(const struct shmq_header *h, uint64_t size)
{
    struct shmq_geometry geo;

    return shmq_inspect(h, SHMQ_PAGE, size, &geo);
}

/* A copy of a good header, in a page of its own. */
static struct shmq_header *copy_of(const struct shmq_queue *q)
{
    struct shmq_header *copy = aligned_alloc(SHMQ_PAGE, SHMQ_PAGE);

    CHECK(copy);
    memcpy(copy, q->h, SHMQ_PAGE);
    CHECK_EQ(inspect(copy, copy->segment_bytes), SHMQ_OK);
    return copy;
}

static void sign(struct shmq_header *h)
{
    h->crc = shmq_crc32c(0, &h->options, offsetof(struct shmq_options, policies));
    h->crc = shmq_crc32c(h->crc, &h->segment_bytes, sizeof h->segment_bytes);
}

TEST("a segment that was made can be attached to, and lies as it was laid out")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 100, .dedupe_window = SECOND, .name = "queue");
    struct shmq_geometry geo;

    CHECK_EQ(shmq_inspect(q->base, q->geo.segment_bytes, q->geo.segment_bytes, &geo), SHMQ_OK);
    CHECK(!memcmp(&geo, &q->geo, sizeof geo));
    CHECK_EQ(shmq_version_of(q->base), SHMQ_LAYOUT_VERSION);
    CHECK_WELL(q);
}

TEST("the options by which a queue ends are kept, and 0 means that it stays")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .policies[0].expires = SECOND, .auto_delete = 1,
                                     .exclusive = 1);
    const struct shmq_options *plain = &NEW_QUEUE(.capacity = 4)->h->options;

    CHECK_EQ(shmq_policies_now(q->h)->expires, SECOND);
    CHECK_EQ(q->h->options.auto_delete, 1);
    CHECK_EQ(q->h->options.exclusive, 1);
    CHECK(!plain->policies[0].expires && !plain->auto_delete && !plain->exclusive);
    CHECK_EQ(q->h->consumed, 0);
}

/* Whether the byte is of the copy of the policies that is not current, and may be anything. */
static bool is_spare(size_t at)
{
    size_t spare = offsetof(struct shmq_header, options.policies[1]);

    return at >= spare && at < spare + sizeof(struct shmq_policies);
}

TEST(
    "whatever bit of what is fixed, or of the current policies, is flipped, the segment is refused")
{
    struct shmq_header *h = copy_of(NEW_QUEUE(.name = "queue", .dead_letter = "queue.dlq"));
    unsigned char *bytes = (unsigned char *)h;
    uint64_t size = h->segment_bytes;

    for (size_t at = 0; at < offsetof(struct shmq_header, alterations); at++)
        for (int bit = 0; bit < 8; bit++) {
            int is = at < VERSION_BYTES ? SHMQ_INCOMPATIBLE : SHMQ_DAMAGED;

            bytes[at] ^= (unsigned char)(1 << bit);
            CHECK_EQ(inspect(h, size), is_spare(at) ? SHMQ_OK : is);
            bytes[at] ^= (unsigned char)(1 << bit);
        }
    CHECK_EQ(inspect(h, size), SHMQ_OK);
    free(h);
}

TEST("whatever of what is fixed is zeroed or filled with ones, the segment is refused")
{
    struct shmq_queue *q = NEW_QUEUE(.name = "queue", .dead_letter = "queue.dlq");
    struct shmq_header *h = copy_of(q);
    unsigned char *bytes = (unsigned char *)h;

    /* Any member is among them, and all options together. */
    for (size_t size = 1; size <= sizeof h->options; size = size < 8 ? 2 * size : size + 8)
        for (size_t at = 0; at + size <= offsetof(struct shmq_header, alterations);
             at += size < 8 ? size : 8)
            for (int fill = 0; fill <= 0xFF; fill += 0xFF) {
                memset(bytes + at, fill, size);
                h->options.policies[1] = q->h->options.policies[1]; /* not current */
                if (memcmp(h, q->h, SHMQ_PAGE) != 0)
                    CHECK(inspect(h, q->geo.segment_bytes) != SHMQ_OK);
                memcpy(h, q->h, SHMQ_PAGE);
            }
    free(h);
}

TEST("options out of bounds are refused though their checksum is right")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_header *h = copy_of(q);

#define REFUSE(field, value)                            \
    do {                                                \
        h->field = (value);                             \
        sign(h);                                        \
        CHECK_EQ(inspect(h, UINT64_MAX), SHMQ_DAMAGED); \
        memcpy(h, q->h, SHMQ_PAGE);                     \
    } while (0)
    REFUSE(options.capacity, 0);
    REFUSE(options.capacity, SHMQ_MAX_CAPACITY + 1);
    REFUSE(options.capacity, UINT32_MAX);
    REFUSE(options.capacity, 5000); /* another size than the segment's */
    REFUSE(options.priorities, 0);
    REFUSE(options.priorities, SHMQ_MAX_PRIORITIES + 1);
    REFUSE(options.arena_bytes, 0);
    REFUSE(options.arena_bytes, UINT64_MAX);
    REFUSE(options.arena_bytes, (1ull << 37) + 1);
    REFUSE(segment_bytes, 0);
    REFUSE(segment_bytes, q->geo.segment_bytes + 1);
    REFUSE(segment_bytes, UINT64_MAX);
#undef REFUSE
    memset(h->options.name, 'n', sizeof h->options.name);
    sign(h);
    CHECK_EQ(inspect(h, h->segment_bytes), SHMQ_DAMAGED);
    memcpy(h, q->h, SHMQ_PAGE);
    memset(h->options.dead_letter, 'n', sizeof h->options.dead_letter);
    sign(h);
    CHECK_EQ(inspect(h, h->segment_bytes), SHMQ_DAMAGED);
    free(h);
}

TEST("an alteration is of the policies alone, and applies in every handle at once")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4, .policies[0].visibility = 9 * SECOND,
                                     .policies[0].max_message_bytes = 100);
    struct shmq_queue *other = another_handle(q);
    struct shmq_options before = q->h->options;
    struct shmq_policies policies = before.policies[0];
    struct shmq_view view;

    policies.visibility = 2 * SECOND;
    policies.max_message_bytes = 3;
    for (uint32_t n = 0; n < 5; n++) {
        policies.max_deliveries = n;
        CHECK_EQ(shmq_alter(q, &policies, n + 1), SHMQ_STALE);
        CHECK_EQ(shmq_alter(q, &policies, n), SHMQ_OK);
        CHECK_EQ(shmq_policies_now(other->h)->max_deliveries, n);
        CHECK_EQ(inspect(q->h, UINT64_MAX), SHMQ_OK);
    }
    CHECK(!memcmp(&q->h->options, &before, offsetof(struct shmq_options, policies)));
    CHECK_EQ(shmq_fits(other, 4, 0), SHMQ_TOO_LARGE);
    PUT(q, .body_bytes = 3);
    CHECK_EQ(shmq_lease(other, now, true, &view), SHMQ_OK);
    CHECK_EQ(shmq_slot_named(q, view.receipt)->deadline, now + 2 * SECOND + shmq_lag(q));
    CHECK_WELL(q);
}

TEST("of the policies only the current copy counts, and it is checked")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_policies policies = *shmq_policies_now(q->h), found;
    uint32_t alterations;

    policies.ttl = SECOND;
    for (uint32_t n = 0; n < 2; n++) {
        memset(&q->h->options.policies[(n + 1) & 1], 0xEE, sizeof policies);
        CHECK_EQ(inspect(q->h, UINT64_MAX), SHMQ_OK);
        CHECK_EQ(shmq_alter(q, &policies, n), SHMQ_OK);
        CHECK(shmq_read_policies(q->h, &found, &alterations));
        CHECK_EQ(alterations, n + 1);
        CHECK_EQ(found.ttl, SECOND);
    }
    q->h->options.policies[0].ttl++;
    CHECK(!shmq_read_policies(q->h, &found, &alterations));
    CHECK_EQ(inspect(q->h, UINT64_MAX), SHMQ_DAMAGED);
    q->h->options.policies[0].ttl--;
    CHECK_WELL(q);
}

TEST("a segment that is too short is truncated, at whatever length")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_geometry geo;
    uint64_t whole = q->geo.segment_bytes;

    for (uint64_t size = SHMQ_PAGE; size < whole; size += SHMQ_PAGE)
        CHECK_EQ(shmq_inspect(q->base, size, size, &geo), SHMQ_TRUNCATED);
    CHECK_EQ(shmq_inspect(q->base, SHMQ_PAGE, whole - 1, &geo), SHMQ_TRUNCATED);
    CHECK_EQ(shmq_inspect(q->base, SHMQ_PAGE, whole, &geo), SHMQ_OK);
    for (uint64_t size = 0; size < SHMQ_PAGE; size += 511) {
        CHECK_EQ(shmq_inspect(NULL, size, size, &geo), SHMQ_TRUNCATED);
        CHECK_EQ(shmq_inspect(NULL, size, whole, &geo), SHMQ_TRUNCATED);
    }
}

TEST("a segment is not ready until the version, which is stored last, is there")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_header *h = copy_of(q);

    atomic_store(&h->published, 0);
    CHECK_EQ(inspect(h, h->segment_bytes), SHMQ_NOT_READY);
    memset(h, 0, SHMQ_PAGE);
    CHECK_EQ(inspect(h, q->geo.segment_bytes), SHMQ_NOT_READY);
    free(h);
}

TEST("another layout version is incompatible, not damaged, and can be told")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 4);
    struct shmq_header *h = copy_of(q);

    memset(&h->options, 0xEE, sizeof h->options); /* it may look quite different */
    atomic_store(&h->published, (uint64_t)SHMQ_MAGIC << 32 | 17);
    CHECK_EQ(inspect(h, q->geo.segment_bytes), SHMQ_INCOMPATIBLE);
    CHECK_EQ(shmq_version_of(h), 17);
    free(h);
}

TEST("noise is never taken for a segment")
{
    struct shmq_header *h = copy_of(NEW_QUEUE(.capacity = 4));
    struct chance chance = chance_of(5);
    uint64_t published = atomic_load(&h->published);

    for (int round = 0; round < 2000; round++) {
        for (size_t at = 0; at < SHMQ_PAGE; at += 8) {
            uint64_t word = chance_next(&chance);

            memcpy((char *)h + at, &word, 8);
        }
        CHECK_EQ(inspect(h, UINT64_MAX), SHMQ_DAMAGED);
        atomic_store(&h->published, published);
        CHECK_EQ(inspect(h, UINT64_MAX), SHMQ_DAMAGED);
    }
    free(h);
}

/* ---- where everything lies ---- */

static void check_layout(const struct shmq_options *o)
{
    struct shmq_geometry g;
    uint64_t n = o->capacity, end = SHMQ_PAGE;

    shmq_lay_out(o, &g);
#define REGION(offset, bytes)             \
    do {                                  \
        CHECK(g.offset % SHMQ_PAGE == 0); \
        CHECK(g.offset >= end);           \
        end = g.offset + (bytes);         \
    } while (0)
    REGION(attachments, SHMQ_MAX_ATTACHMENTS * sizeof(struct shmq_attachment));
    REGION(slots, n * sizeof(struct shmq_slot));
    REGION(timer_keys, n * 8);
    REGION(timer_slots, n * 4);
    REGION(order_keys, n * 8);
    REGION(order_slots, n * 4);
    REGION(groups, n * sizeof(struct shmq_group));
    REGION(group_buckets, g.group_buckets_max * 4ull);
    REGION(dedupe, (uint64_t)g.dedupe_max * sizeof(struct shmq_dedupe));
    REGION(dedupe_buckets, g.dedupe_max * 4ull);
    REGION(bitmap, (g.units + 63ull) / 64 * 8);
    REGION(arena, (uint64_t)g.units * SHMQ_UNIT);
#undef REGION
    CHECK(g.segment_bytes >= end && g.segment_bytes % SHMQ_PAGE == 0);
    CHECK((uint64_t)g.units * SHMQ_UNIT >= o->arena_bytes);
    CHECK(g.group_buckets_max && !(g.group_buckets_max & (g.group_buckets_max - 1)));
    CHECK(!(g.dedupe_max & (g.dedupe_max - 1)));
    CHECK((g.dedupe_max != 0) == (o->dedupe_window != 0));
}

TEST("the regions follow each other without overlap, whatever the options")
{
    for (uint64_t capacity = 1; capacity <= SHMQ_MAX_CAPACITY; capacity = capacity * 3 + 1)
        for (uint64_t arena = 1; arena <= 1ull << 37; arena = arena * 5 + 3)
            for (int64_t window = 0; window <= 1; window++)
                check_layout(&(struct shmq_options){
                    .capacity = (uint32_t)capacity, .arena_bytes = arena, .dedupe_window = window});
    check_layout(&(struct shmq_options){
        .capacity = SHMQ_MAX_CAPACITY, .dedupe_window = 1, .arena_bytes = 1ull << 37});
}

TEST("a queue of one message and one byte works as any other")
{
    struct shmq_queue *q = NEW_QUEUE(.capacity = 1, .arena_bytes = 1, .priorities = 1);

    for (int i = 0; i < 3; i++) {
        put_text(q, "x");
        CHECK_EQ(put_status(q, &(struct shmq_put){0}, &(uint64_t){0}), SHMQ_FULL);
        CHECK_WELL(q);
        CHECK_EQ(drain(q), 1);
    }
}
