#include "file/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

#define FILE_SHIFT 44
#define FOOTER_BYTES 32u

/* ---- memory ---- */

/* Room for one more item of `size` bytes at the end; NULL if out of memory. */
static void *append(struct shmq_replay *r, struct shmq_array *array, size_t size)
{
    if (array->count == array->room) {
        uint64_t room = array->room ? 2 * array->room : 16;
        void *items = realloc(array->items, room * size);

        if (!items) {
            r->no_memory = true;
            return NULL;
        }
        array->items = items;
        array->room = room;
    }
    return (char *)array->items + size * array->count++;
}

void shmq_replay_begin(struct shmq_replay *r, bool salvage, uint64_t first, uint64_t last)
{
    memset(r, 0, sizeof *r);
    r->salvage = salvage;
    r->first = first;
    r->last = last;
}

void shmq_replay_end(struct shmq_replay *r)
{
    shmq_live_free(&r->live);
    free(r->images.items);
    free(r->copies.items);
    free(r->taken.items);
    free(r->skipped.items);
    memset(r, 0, sizeof *r);
}

/* ---- what a record changes ---- */

static void put_of(const struct shmq_replay *r, const struct shmq_live *entry,
                   struct shmq_record *record)
{
    const struct shmq_image *images = r->images.items;
    const struct shmq_image *image = &images[entry->location >> FILE_SHIFT];
    uint64_t offset = (entry->location & ((1ull << FILE_SHIFT) - 1)) * 8;
    size_t next;

    shmq_record_read(image->bytes + offset, image->size - offset, image->salt, false, record,
                     &next);
}

static inline bool is_in_range(const struct shmq_replay *r, uint64_t seq)
{
    return r->first <= seq && seq <= r->last;
}

static struct shmq_live *find(const struct shmq_replay *r, uint64_t seq)
{
    return is_in_range(r, seq) ? shmq_live_find(&r->live, seq) : NULL;
}

static void forget(struct shmq_replay *r, struct shmq_live *entry)
{
    r->live_bytes -= 8ull * entry->size;
    shmq_live_remove(&r->live, entry);
}

static void set_state(struct shmq_live *entry, const struct shmq_record *record)
{
    entry->deliveries = record->deliveries;
    entry->flags = record->flags & SHMQ_R_UPDATABLE;
    entry->reason = record->reason;
    entry->when = record->flags & SHMQ_R_DEAD ? record->dead_at : record->until;
}

static void put(struct shmq_replay *r, uint64_t location, const struct shmq_record *record)
{
    struct shmq_live *entry;

    if (record->flags & SHMQ_R_ORIGIN) {
        struct shmq_copy *copy = append(r, &r->copies, sizeof *copy);

        if (copy)
            *copy = (struct shmq_copy){record->origin_queue, record->origin_seq, record->seq};
    }
    r->puts++;
    if (record->seq > r->last_seq)
        r->last_seq = record->seq;
    if (!is_in_range(r, record->seq))
        return;
    entry = shmq_live_add(&r->live, record->seq);
    if (!entry) {
        r->no_memory = true;
        return;
    }
    r->live_bytes -= 8ull * entry->size;
    entry->location = location;
    entry->size = (uint32_t)(shmq_record_size(record) / 8);
    set_state(entry, record);
    r->live_bytes += 8ull * entry->size;
}

static void take(struct shmq_replay *r, const struct shmq_record *record)
{
    for (uint32_t i = 0; i < record->count; i++) {
        struct shmq_taken *taken = append(r, &r->taken, sizeof *taken);

        if (!taken)
            return;
        *taken = shmq_record_taken(record, i);
    }
}

static void apply(struct shmq_replay *r, uint64_t location, const struct shmq_record *record)
{
    struct shmq_live *entry;

    r->records++;
    switch (record->type) {
    case SHMQ_R_PUT: put(r, location, record); break;
    case SHMQ_R_SETTLE:
        for (uint32_t i = 0; i < record->count; i++)
            if ((entry = find(r, shmq_record_settled(record, i))))
                forget(r, entry);
        break;
    case SHMQ_R_UPDATE:
        if ((entry = find(r, record->seq)))
            set_state(entry, record);
        break;
    case SHMQ_R_DEDUPE: take(r, record); break;
    case SHMQ_R_STATE:
        memcpy(r->totals, record->totals, sizeof r->totals);
        /* fall through */
    default:
        if (record->last_seq > r->last_seq)
            r->last_seq = record->last_seq;
        break;
    }
}

bool shmq_replay_discard(struct shmq_replay *r, uint64_t seq)
{
    struct shmq_live *entry = find(r, seq);

    if (entry)
        forget(r, entry);
    return entry != NULL;
}

/* ---- a file ---- */

/* The position in a file. */
struct walk {
    struct shmq_replay *r;
    const unsigned char *bytes;
    uint64_t size; /* that count                                                        */
    uint64_t at;
    uint64_t file;
    uint32_t salt;
    struct shmq_found *found;
};

static enum shmq_read read_at(const struct walk *w, uint64_t at, bool verify,
                              struct shmq_record *record, size_t *next)
{
    return shmq_record_read(w->bytes + at, w->size - at, w->salt, verify, record, next);
}

/* A record that is never in a batch, or only at its head. */
static bool frames(const struct shmq_record *record)
{
    return record->type == SHMQ_R_BATCH || record->type >= SHMQ_R_END;
}

static void apply_at(struct walk *w, uint64_t at, const struct shmq_record *record)
{
    apply(w->r, w->file << FILE_SHIFT | at / 8, record);
    w->found->puts += record->type == SHMQ_R_PUT;
}

/* The records of a batch whose checksum is right. Their own need not be compared, as the
 * batch's covers all their bytes. */
static bool apply_batch(struct walk *w, uint64_t at, uint64_t end)
{
    struct walk inner = *w;
    struct shmq_record record;
    size_t next;

    inner.size = end;
    for (; at < end; at += next) {
        enum shmq_read how = read_at(&inner, at, false, &record, &next);

        if (how != SHMQ_READ_OK || frames(&record)) {
            w->found->damage = at;
            w->found->how = how == SHMQ_READ_OK || how == SHMQ_READ_END ? SHMQ_READ_MALFORMED : how;
            return false;
        }
        apply_at(w, at, &record);
    }
    return true;
}

/* Whether the batch with this head is there to its end, and later than the one before. */
static bool batch_is_whole(const struct walk *w, const struct shmq_record *head, uint64_t at)
{
    return head->batch > w->r->last_batch && head->bytes <= w->size - at &&
           shmq_crc32c(0, w->bytes + at, head->bytes) == head->crc;
}

/* Whether there is a batch later than the last one anywhere behind: then the bytes here were once
 * whole, because no batch is begun before the one before it is on disk. */
static bool goes_on(const struct walk *w)
{
    static const unsigned char words[4] = {(SHMQ_BATCH_BYTES - SHMQ_RECORD_HEAD) / 8};
    struct shmq_record record;
    size_t next;

    for (uint64_t at = w->at + 8; at + SHMQ_BATCH_BYTES <= w->size; at += 8)
        if (!memcmp(w->bytes + at, words, sizeof words) &&
            w->bytes[at + SHMQ_RECORD_HEAD] == SHMQ_R_BATCH &&
            read_at(w, at, true, &record, &next) == SHMQ_READ_OK && record.batch > w->r->last_batch)
            return true;
    return false;
}

/* The next place from `at` on with a record whose checksum is right; the size if there is none.
 * Most places are ruled out without a checksum. */
static uint64_t next_record(const struct walk *w, uint64_t at)
{
    struct shmq_record record;
    size_t next;

    for (; at < w->size; at += 8)
        if (read_at(w, at, false, &record, &next) == SHMQ_READ_OK &&
            read_at(w, at, true, &record, &next) == SHMQ_READ_OK)
            return at;
    return w->size;
}

/* Lists the bytes up to `next` as skipped, and goes there. */
static void skip_to(struct walk *w, uint64_t next, enum shmq_read how)
{
    struct shmq_array *list = &w->r->skipped;
    struct shmq_skipped *last = list->count ? (struct shmq_skipped *)list->items + list->count - 1
                                            : NULL;

    if (last && last->file == w->file && last->offset + last->bytes == w->at)
        last->bytes += next - w->at;
    else if ((last = append(w->r, list, sizeof *last)))
        *last = (struct shmq_skipped){(uint32_t)w->file, how, w->at, next - w->at};
    w->at = next;
}

/* A BATCH found while salvaging: whether to continue with whole batches from here. */
static bool salvage_batch(struct walk *w, const struct shmq_record *head, size_t next, bool first)
{
    uint64_t rest = w->size - w->at - next;

    if (head->batch <= w->r->last_batch) {
        skip_to(w, w->at + next + (head->bytes < rest ? head->bytes : rest), SHMQ_READ_MALFORMED);
        return false;
    }
    if (!first && batch_is_whole(w, head, w->at + next))
        return true;
    apply(w->r, 0, head);
    w->r->last_batch = head->batch;
    w->at += next;
    return false;
}

/* Salvages record by record from the damage on, up to a whole batch or the end. Moves on. */
static void salvage(struct walk *w, uint64_t whole)
{
    struct shmq_record record;
    size_t next;

    for (bool first = true; w->at < w->size && !w->r->no_memory; first = false) {
        enum shmq_read how = read_at(w, w->at, true, &record, &next);

        if (how != SHMQ_READ_OK) {
            skip_to(w, next_record(w, w->at + 8), how);
        } else if (record.type == SHMQ_R_BATCH) {
            if (salvage_batch(w, &record, next, first))
                return;
        } else if (record.type < SHMQ_R_END) {
            apply_at(w, w->at, &record);
            w->at += next;
        } else if (first || w->at < whole) {
            skip_to(w, w->at + next, SHMQ_READ_MALFORMED);
        } else {
            return;
        }
    }
}

static bool is_end(struct walk *w, const struct shmq_record *record)
{
    struct shmq_found *found = w->found;

    if (record->type != SHMQ_R_END)
        return false;
    found->complete = record->batches == found->batches && record->puts == found->puts;
    return true;
}

static enum shmq_fed damaged(struct walk *w, enum shmq_read how)
{
    w->found->damage = w->at;
    w->found->how = how == SHMQ_READ_OK ? SHMQ_READ_MALFORMED : how;
    return SHMQ_FED_DAMAGED;
}

/* Why the BATCH here does not count: finds its first wrong record. */
static enum shmq_fed damaged_batch(struct walk *w, const struct shmq_record *head, uint64_t at)
{
    uint64_t end = head->bytes <= w->size - at ? at + head->bytes : w->size;
    struct shmq_record record;
    size_t next;

    if (head->batch <= w->r->last_batch)
        return damaged(w, SHMQ_READ_MALFORMED);
    for (; at < end; at += next) {
        enum shmq_read how = read_at(w, at, true, &record, &next);

        if (how != SHMQ_READ_OK) {
            w->at = at;
            return damaged(w, how == SHMQ_READ_END ? SHMQ_READ_CRC : how);
        }
    }
    w->at = at;
    return damaged(w, at < w->size ? SHMQ_READ_CRC : SHMQ_READ_CUT);
}

/* Reads one more batch. OK: there was one, or `w->at` is the end. */
static enum shmq_fed step(struct walk *w, uint64_t whole, bool *over)
{
    struct shmq_record head;
    size_t next;
    enum shmq_read how = read_at(w, w->at, true, &head, &next);

    if (how == SHMQ_READ_OK && head.type == SHMQ_R_BATCH &&
        batch_is_whole(w, &head, w->at + next)) {
        if (!apply_batch(w, w->at + next, w->at + next + head.bytes))
            return SHMQ_FED_DAMAGED;
        apply(w->r, 0, &head);
        w->r->last_batch = head.batch;
        w->found->batches++;
        w->at += next + head.bytes;
        return w->r->no_memory ? SHMQ_FED_NO_MEMORY : SHMQ_FED_OK;
    }
    *over = true;
    if (w->at >= whole && how == SHMQ_READ_OK && is_end(w, &head))
        return SHMQ_FED_OK;
    if (w->at >= whole && !goes_on(w))
        return how == SHMQ_READ_END ? SHMQ_FED_OK : SHMQ_FED_TORN;
    if (how == SHMQ_READ_OK && head.type == SHMQ_R_BATCH)
        return damaged_batch(w, &head, w->at + next);
    return damaged(w, how);
}

static enum shmq_fed walk_file(struct walk *w, uint64_t whole, bool exact)
{
    uint64_t begin = w->at;

    for (;;) {
        enum shmq_fed fed = SHMQ_FED_OK;
        bool over = false;

        w->found->end = w->at;
        if (exact && w->at == whole)
            return SHMQ_FED_OK;
        if (w->r->most && w->at >= begin + w->r->most)
            return SHMQ_FED_MORE;
        fed = step(w, whole, &over);
        if (fed == SHMQ_FED_DAMAGED && w->r->salvage && w->found->end < w->size) {
            w->at = w->found->end;
            salvage(w, whole);
            if (w->r->no_memory)
                return SHMQ_FED_NO_MEMORY;
            continue;
        }
        if (fed == SHMQ_FED_DAMAGED && w->r->salvage) {
            skip_to(w, whole, SHMQ_READ_CUT);
            return SHMQ_FED_OK;
        }
        if (fed != SHMQ_FED_OK || over)
            return fed;
    }
}

enum shmq_fed shmq_replay_feed(struct shmq_replay *r, const unsigned char *bytes, uint64_t size,
                               uint64_t start, uint32_t salt, uint64_t first_batch, uint64_t whole,
                               bool exact, struct shmq_found *found)
{
    struct walk w = {.r = r, .bytes = bytes, .salt = salt, .at = start, .found = found};
    enum shmq_fed fed;

    if (r->more) {
        w.at = found->end;
    } else {
        struct shmq_image *image = append(r, &r->images, sizeof *image);

        memset(found, 0, sizeof *found);
        if (!image)
            return SHMQ_FED_NO_MEMORY;
        *image = (struct shmq_image){bytes, size, salt};
        r->last_batch = first_batch ? first_batch - 1 : 0;
    }
    w.file = r->images.count - 1;
    w.size = exact && whole < size ? whole : size;
    w.size -= w.size % 8;
    if (w.size < start) /* cut within what stands before the records */
        w.at = w.size;
    fed = walk_file(&w, whole, exact);
    r->more = fed == SHMQ_FED_MORE;
    return fed;
}

uint64_t shmq_replay_closed(const unsigned char *bytes, uint64_t size, uint64_t start,
                            uint32_t salt)
{
    struct shmq_record record;
    size_t next;

    if (size % 8 || size < FOOTER_BYTES || size - FOOTER_BYTES < start ||
        shmq_record_read(bytes + size - FOOTER_BYTES, FOOTER_BYTES, salt, true, &record, &next) !=
            SHMQ_READ_OK)
        return 0;
    return record.type == SHMQ_R_FOOTER && record.end >= start && record.end < size ? record.end
                                                                                    : 0;
}

/* ---- the outcome ---- */

static int by_taken(const void *one, const void *other)
{
    const struct shmq_taken *a = one, *b = other;

    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return memcmp(a->hash, b->hash, sizeof a->hash);
}

static void sort_taken(struct shmq_replay *r, int64_t wall)
{
    struct shmq_taken *taken = r->taken.items;
    uint64_t kept = 0;

    for (uint64_t i = 0; i < r->taken.count; i++)
        if (taken[i].until > wall)
            taken[kept++] = taken[i];
    r->taken.count = kept;
    if (!kept)
        return;
    qsort(taken, kept, sizeof *taken, by_taken);
    kept = 1;
    for (uint64_t i = 1; i < r->taken.count; i++)
        if (by_taken(&taken[i], &taken[kept - 1]))
            taken[kept++] = taken[i];
    r->taken.count = kept;
}

bool shmq_replay_span(const struct shmq_replay *r, uint64_t *least, uint64_t *greatest)
{
    *least = UINT64_MAX;
    *greatest = 0;
    for (uint64_t i = 0; i < r->live.used; i++) {
        const struct shmq_live *entry = &r->live.at[i];

        if (entry->size && entry->seq < *least)
            *least = entry->seq;
        if (entry->size && entry->seq > *greatest)
            *greatest = entry->seq;
    }
    return *greatest > 0;
}

void shmq_replay_spread(const struct shmq_replay *r, uint64_t first, uint64_t width, uint64_t *sums,
                        uint64_t count)
{
    for (uint64_t i = 0; i < r->live.used; i++) {
        const struct shmq_live *entry = &r->live.at[i];

        if (entry->size && entry->seq >= first && (entry->seq - first) / width < count)
            sums[(entry->seq - first) / width] += 8ull * entry->size;
    }
}

bool shmq_replay_sort(struct shmq_replay *r, int64_t wall)
{
    if (r->no_memory)
        return false;
    if (r->sorted)
        return true;
    shmq_live_sort(&r->live);
    sort_taken(r, wall);
    r->sorted = true;
    return true;
}

void shmq_replay_message(const struct shmq_replay *r, uint64_t at, struct shmq_record *record)
{
    const struct shmq_live *entry = &r->live.at[at];

    put_of(r, entry, record);
    record->flags = (record->flags & ~SHMQ_R_UPDATABLE) | entry->flags;
    record->deliveries = entry->deliveries;
    record->reason = entry->reason;
    record->until = entry->flags & SHMQ_R_DELAYED ? entry->when : 0;
    record->dead_at = entry->flags & SHMQ_R_DEAD ? entry->when : 0;
}

/* ---- columns ---- */

static int64_t micros(int64_t ns) { return ns / 1000; }

static bool is_selected(const struct shmq_file_columns *e, const struct shmq_record *r)
{
    int64_t put_at = micros(r->put_at);

    return r->seq >= e->least_seq && r->seq <= e->most_seq && put_at >= e->least_put_at &&
           put_at <= e->most_put_at;
}

static bool fits(const struct shmq_file_columns *e, const struct shmq_record *r)
{
    uint64_t size = SHMQ_COLUMNS_HEAD + SHMQ_COLUMNS_PADDING +
                    (e->count + 1ull) * SHMQ_COLUMNS_ROW + e->body_bytes + r->body_bytes +
                    e->meta_bytes + r->meta_bytes;

    return size <= e->max_bytes;
}

/* The first message from `at` on whose number is selected: they are sorted. */
static uint64_t first_of(const struct shmq_replay *r, const struct shmq_file_columns *e,
                         uint64_t at, uint64_t end)
{
    while (at < end) {
        uint64_t middle = at + (end - at) / 2;

        if (r->live.at[middle].seq < e->least_seq)
            at = middle + 1;
        else
            end = middle;
    }
    return at;
}

bool shmq_file_columns_count(const struct shmq_replay *r, struct shmq_file_columns *e, uint64_t *at,
                             uint64_t end)
{
    struct shmq_record record;

    for (*at = first_of(r, e, *at, end); *at < end; ++*at) {
        if (r->live.at[*at].seq > e->most_seq) {
            *at = end;
            return true;
        }
        shmq_replay_message(r, *at, &record);
        if (!is_selected(e, &record))
            continue;
        if (record.body_bytes > INT32_MAX || record.meta_bytes > INT32_MAX)
            return e->count != 0;
        if (e->count && !fits(e, &record))
            return true;
        e->count++;
        e->body_bytes += record.body_bytes;
        e->meta_bytes += record.meta_bytes;
    }
    return true;
}

static void row_of(const struct shmq_record *r, struct shmq_row *row)
{
    bool is_dead = r->flags & SHMQ_R_DEAD, is_delayed = r->flags & SHMQ_R_DELAYED;

    *row = (struct shmq_row){
        .sequence = r->seq,
        .put_at = micros(r->put_at),
        .visible_at = is_delayed ? micros(r->until) : 0,
        .expires = r->flags & SHMQ_R_TTL ? micros(r->expires) : 0,
        .dead_at = is_dead ? micros(r->dead_at) : 0,
        .deliveries = r->deliveries,
        .priority = r->priority,
        .state = is_dead      ? SHMQ_IS_DYING
                 : is_delayed ? SHMQ_IS_DELAYED
                              : SHMQ_IS_READY,
        .reason = is_dead ? r->reason & 3 : 0,
        .codec = r->codec,
        .body_bytes = r->body_bytes,
        .meta_bytes = r->meta_bytes,
    };
}

void shmq_file_columns_copy(const struct shmq_replay *r, const struct shmq_file_columns *e,
                            uint64_t at, uint64_t end, struct shmq_columns *c)
{
    struct shmq_record record;
    struct shmq_row row;
    unsigned char *body, *meta;

    for (at = first_of(r, e, at, end); at < end; at++) {
        shmq_replay_message(r, at, &record);
        if (!is_selected(e, &record) ||
            !shmq_columns_next(c, record.body_bytes, record.meta_bytes, &body, &meta))
            continue;
        row_of(&record, &row);
        memcpy(body, record.body, record.body_bytes);
        if (record.meta_bytes)
            memcpy(meta, record.meta, record.meta_bytes);
        shmq_columns_add(c, &row);
    }
}
