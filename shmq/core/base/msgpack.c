#include "base/msgpack.h"

/* The length of a UTF-8 sequence with this first byte, 0 if it is invalid: RFC 3629. */
static uint32_t utf8_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xC2)
        return 0;
    if (first < 0xE0)
        return 2;
    if (first < 0xF0)
        return 3;
    return first < 0xF5 ? 4 : 0;
}

/* The least and the greatest second byte: no overlong form, no surrogate, nothing beyond
 * U+10FFFF. */
static bool utf8_second(unsigned char first, unsigned char second)
{
    unsigned char least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned char most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;

    return least <= second && second <= most;
}

bool shmq_is_utf8(const unsigned char *at, uint32_t size)
{
    const unsigned char *end = at + size;

    while (end - at >= 8 && !(shmq_load64(at) & 0x8080808080808080ull)) /* ASCII */
        at += 8;
    while (at < end) {
        uint32_t length = utf8_length(*at);

        if (!length || length > (size_t)(end - at) || (length > 1 && !utf8_second(at[0], at[1])))
            return false;
        for (uint32_t i = 2; i < length; i++)
            if ((at[i] & 0xC0) != 0x80)
                return false;
        at += length;
    }
    return true;
}

static void set_int(struct shmq_msgpack *value, int64_t number)
{
    value->kind = SHMQ_MSGPACK_INT;
    value->number = number;
}

static void set_unsigned(struct shmq_msgpack *value, uint64_t number)
{
    set_int(value, number > INT64_MAX ? INT64_MAX : (int64_t)number);
}

static void set_bytes(struct shmq_reader *r, struct shmq_msgpack *value,
                      enum shmq_msgpack_kind kind, uint32_t size)
{
    value->kind = kind;
    value->bytes = shmq_read_bytes(r, size);
    value->count = value->bytes ? size : 0;
    if (value->bytes && kind == SHMQ_MSGPACK_STR && !shmq_is_utf8(value->bytes, size))
        r->bad = true;
}

/* An ext's type and its `size` bytes. */
static void set_ext(struct shmq_reader *r, struct shmq_msgpack *value, uint32_t size)
{
    (void)shmq_read8(r);
    set_bytes(r, value, SHMQ_MSGPACK_EXT, size);
}

/* Each entry takes at least one byte, so a count beyond the bytes left is bad at once. */
static void set_many(struct shmq_reader *r, struct shmq_msgpack *value, enum shmq_msgpack_kind kind,
                     uint32_t count)
{
    value->kind = kind;
    value->count = count;
    if (count > shmq_left(r) / (kind == SHMQ_MSGPACK_MAP ? 2 : 1))
        r->bad = true;
}

static void set_bool(struct shmq_msgpack *value, bool is_true)
{
    value->kind = SHMQ_MSGPACK_BOOL;
    value->number = is_true;
}

static void set_float(struct shmq_reader *r, struct shmq_msgpack *value)
{
    uint32_t bits = shmq_read32(r);
    float real;

    memcpy(&real, &bits, sizeof real);
    value->kind = SHMQ_MSGPACK_FLOAT;
    value->real = real;
}

static void set_double(struct shmq_reader *r, struct shmq_msgpack *value)
{
    uint64_t bits = shmq_read64(r);

    value->kind = SHMQ_MSGPACK_FLOAT;
    memcpy(&value->real, &bits, sizeof value->real);
}

/* The single tags from 0xC0 to 0xDF. */
static void read_tagged(struct shmq_reader *r, struct shmq_msgpack *value, uint8_t tag)
{
    switch (tag) {
    case 0xC0: value->kind = SHMQ_MSGPACK_NIL; break;
    case 0xC2:
    case 0xC3: set_bool(value, tag & 1); break;
    case 0xC4: set_bytes(r, value, SHMQ_MSGPACK_BIN, shmq_read8(r)); break;
    case 0xC5: set_bytes(r, value, SHMQ_MSGPACK_BIN, shmq_read16(r)); break;
    case 0xC6: set_bytes(r, value, SHMQ_MSGPACK_BIN, shmq_read32(r)); break;
    case 0xC7: set_ext(r, value, shmq_read8(r)); break;
    case 0xC8: set_ext(r, value, shmq_read16(r)); break;
    case 0xC9: set_ext(r, value, shmq_read32(r)); break;
    case 0xCA: set_float(r, value); break;
    case 0xCB: set_double(r, value); break;
    case 0xCC: set_unsigned(value, shmq_read8(r)); break;
    case 0xCD: set_unsigned(value, shmq_read16(r)); break;
    case 0xCE: set_unsigned(value, shmq_read32(r)); break;
    case 0xCF: set_unsigned(value, shmq_read64(r)); break;
    case 0xD0: set_int(value, (int8_t)shmq_read8(r)); break;
    case 0xD1: set_int(value, (int16_t)shmq_read16(r)); break;
    case 0xD2: set_int(value, (int32_t)shmq_read32(r)); break;
    case 0xD3: set_int(value, (int64_t)shmq_read64(r)); break;
    case 0xD4:
    case 0xD5:
    case 0xD6:
    case 0xD7:
    case 0xD8: set_ext(r, value, 1u << (tag - 0xD4)); break;
    case 0xD9: set_bytes(r, value, SHMQ_MSGPACK_STR, shmq_read8(r)); break;
    case 0xDA: set_bytes(r, value, SHMQ_MSGPACK_STR, shmq_read16(r)); break;
    case 0xDB: set_bytes(r, value, SHMQ_MSGPACK_STR, shmq_read32(r)); break;
    case 0xDC: set_many(r, value, SHMQ_MSGPACK_ARRAY, shmq_read16(r)); break;
    case 0xDD: set_many(r, value, SHMQ_MSGPACK_ARRAY, shmq_read32(r)); break;
    case 0xDE: set_many(r, value, SHMQ_MSGPACK_MAP, shmq_read16(r)); break;
    case 0xDF: set_many(r, value, SHMQ_MSGPACK_MAP, shmq_read32(r)); break;
    default: r->bad = true; /* 0xC1 is never used */
    }
}

void shmq_msgpack_read_any(struct shmq_reader *r, struct shmq_msgpack *value)
{
    uint8_t tag = shmq_read8(r);

    memset(value, 0, sizeof *value);
    if (r->bad)
        return;
    if (tag < 0x80)
        set_int(value, tag);
    else if (tag < 0x90)
        set_many(r, value, SHMQ_MSGPACK_MAP, tag & 0x0F);
    else if (tag < 0xA0)
        set_many(r, value, SHMQ_MSGPACK_ARRAY, tag & 0x0F);
    else if (tag < 0xC0)
        set_bytes(r, value, SHMQ_MSGPACK_STR, tag & 0x1F);
    else if (tag >= 0xE0)
        set_int(value, (int8_t)tag);
    else
        read_tagged(r, value, tag);
}

/* An array or a map that is being skipped. */
struct level {
    uint64_t left; /* values; a key counts as one */
    bool is_map;
};

static bool is_many(const struct shmq_msgpack *value)
{
    return value->kind == SHMQ_MSGPACK_ARRAY || value->kind == SHMQ_MSGPACK_MAP;
}

static struct level level_of(const struct shmq_msgpack *value)
{
    bool is_map = value->kind == SHMQ_MSGPACK_MAP;

    return (struct level){(uint64_t)value->count << is_map, is_map};
}

void shmq_msgpack_skip_many(struct shmq_reader *r, const struct shmq_msgpack *value)
{
    struct level levels[SHMQ_MSGPACK_DEPTH];
    struct shmq_msgpack next;
    uint32_t depth = 1;

    levels[0] = level_of(value);
    while (depth && !r->bad) {
        struct level *level = &levels[depth - 1];
        bool is_key;

        if (!level->left) {
            depth--;
            continue;
        }
        is_key = level->is_map && !(level->left & 1);
        level->left--;
        shmq_msgpack_read(r, &next);
        if (!is_many(&next))
            continue;
        if (is_key || depth == SHMQ_MSGPACK_DEPTH)
            r->bad = true;
        else
            levels[depth++] = level_of(&next);
    }
}

bool shmq_msgpack_is_map(const void *bytes, size_t size)
{
    struct shmq_reader r = {bytes, (const unsigned char *)bytes + size, false};
    struct shmq_msgpack map;

    shmq_msgpack_read(&r, &map);
    if (r.bad || map.kind != SHMQ_MSGPACK_MAP)
        return false;
    shmq_msgpack_skip(&r, &map);
    return !r.bad && r.at == r.end;
}
