#include "queue/filter.h"

#include "base/msgpack.h"
#include "queue/properties.h"

#define NS_PER_S 1e9
#define MS_PER_S 1e3

/* ---- values ---- */

static const struct shmq_msgpack nothing = {.kind = SHMQ_MSGPACK_NIL};

static struct shmq_msgpack of_int(uint64_t number)
{
    return (struct shmq_msgpack){
        .kind = SHMQ_MSGPACK_INT,
        .number = number > INT64_MAX ? INT64_MAX : (int64_t)number,
    };
}

static struct shmq_msgpack of_real(double real)
{
    return (struct shmq_msgpack){.kind = SHMQ_MSGPACK_FLOAT, .real = real};
}

static bool is_number(const struct shmq_msgpack *value)
{
    return value->kind == SHMQ_MSGPACK_INT || value->kind == SHMQ_MSGPACK_FLOAT;
}

/* ---- reading the properties ---- */

/* The value of a key in a map, the last one if there are several; its contents are behind
 * `value` in `inner`. No value if the bytes are not a map. */
static struct shmq_msgpack find(struct shmq_reader map, const void *name, uint32_t size,
                                struct shmq_reader *inner)
{
    struct shmq_msgpack head, key, value, found = nothing;

    shmq_msgpack_read(&map, &head);
    if (map.bad || head.kind != SHMQ_MSGPACK_MAP)
        return nothing;
    for (uint32_t i = 0; i < head.count; i++) {
        struct shmq_reader at;

        shmq_msgpack_read(&map, &key);
        shmq_msgpack_skip(&map, &key);
        at = map;
        shmq_msgpack_read(&map, &value);
        shmq_msgpack_skip(&map, &value);
        if (map.bad)
            return nothing;
        if (key.kind != SHMQ_MSGPACK_STR || key.count != size || memcmp(key.bytes, name, size))
            continue;
        found = value;
        *inner = at;
    }
    return found;
}

static struct shmq_reader properties_of(const struct shmq_facts *facts)
{
    return (struct shmq_reader){facts->meta, facts->meta + facts->meta_bytes, false};
}

static struct shmq_msgpack property(const struct shmq_facts *facts, const char *name)
{
    struct shmq_reader inner;

    if (!facts->meta_bytes)
        return nothing;
    return find(properties_of(facts), name, (uint32_t)strlen(name), &inner);
}

/* The value of a key in the map that is the property `outer`. */
static struct shmq_msgpack part(const struct shmq_facts *facts, const char *outer, const void *name,
                                uint32_t size)
{
    struct shmq_reader inner, unused;
    struct shmq_msgpack map;

    if (!facts->meta_bytes)
        return nothing;
    map = find(properties_of(facts), outer, (uint32_t)strlen(outer), &inner);
    return map.kind == SHMQ_MSGPACK_MAP ? find(inner, name, size, &unused) : nothing;
}

static struct shmq_msgpack dead(const struct shmq_facts *facts, const char *name)
{
    return part(facts, "dead", name, (uint32_t)strlen(name));
}

/* The line of the property `error`, or of that part of the property `dead`. */
static struct shmq_msgpack error_line(const struct shmq_facts *facts)
{
    static const char line[] = "line", error[] = "error";
    struct shmq_msgpack found = part(facts, error, line, sizeof line - 1), map;
    struct shmq_reader letter, inner, unused;

    if (!facts->meta_bytes || found.kind != SHMQ_MSGPACK_NIL)
        return found;
    map = find(properties_of(facts), "dead", 4, &letter);
    if (map.kind == SHMQ_MSGPACK_MAP)
        map = find(letter, error, sizeof error - 1, &inner);
    return map.kind == SHMQ_MSGPACK_MAP ? find(inner, line, sizeof line - 1, &unused) : nothing;
}

/* When the message died, in s since 1970, or how long ago that is. */
static struct shmq_msgpack died(const struct shmq_facts *facts, bool ago)
{
    struct shmq_msgpack at = dead(facts, "at");
    double moment;

    if (!is_number(&at))
        return nothing;
    moment = (at.kind == SHMQ_MSGPACK_INT ? (double)at.number : at.real) / MS_PER_S;
    return of_real(ago ? (double)facts->wall / NS_PER_S - moment : moment);
}

static struct shmq_msgpack codec(const struct shmq_facts *facts)
{
    const char *name = shmq_codec_name(facts->codec);
    struct shmq_msgpack value;

    if (!name) {
        value = property(facts, "codec");
        if (value.kind != SHMQ_MSGPACK_NIL)
            return value;
        name = shmq_codec_name(0);
    }
    return (struct shmq_msgpack){
        .kind = SHMQ_MSGPACK_STR,
        .bytes = (const unsigned char *)name,
        .count = (uint32_t)strlen(name),
    };
}

/* `name`: of a header. */
static struct shmq_msgpack value_of(const struct shmq_facts *facts, enum shmq_filter_field field,
                                    const unsigned char *name, uint32_t size)
{
    switch (field) {
    case SHMQ_FIELD_REASON: return dead(facts, "reason");
    case SHMQ_FIELD_QUEUE: return dead(facts, "queue");
    case SHMQ_FIELD_DELIVERIES: return dead(facts, "deliveries");
    case SHMQ_FIELD_AT: return died(facts, false);
    case SHMQ_FIELD_AGE: return died(facts, true);
    case SHMQ_FIELD_GROUP: return property(facts, "group");
    case SHMQ_FIELD_CORRELATION: return property(facts, "corr");
    case SHMQ_FIELD_CODEC: return codec(facts);
    case SHMQ_FIELD_PRIORITY: return of_int(facts->priority);
    case SHMQ_FIELD_SEQUENCE: return of_int(facts->seq);
    case SHMQ_FIELD_SIZE: return of_int(facts->size);
    case SHMQ_FIELD_ERROR: return error_line(facts);
    case SHMQ_FIELD_HEADER: return part(facts, "headers", name, size);
    default: return nothing;
    }
}

/* ---- comparing ---- */

#define UNORDERED 2 /* the two values have no order       */

static int order_of(double a, double b)
{
    if (a != a || b != b)
        return UNORDERED;
    return a < b ? -1 : a > b;
}

/* Compares an int and a real exactly: not every int64 is a double. */
static int order_mixed(int64_t number, double real)
{
    int64_t whole;

    if (real != real)
        return UNORDERED;
    if (real >= 0x1p63)
        return -1;
    if (real < -0x1p63)
        return 1;
    whole = (int64_t)real; /* towards 0 */
    if (number != whole)
        return number < whole ? -1 : 1;
    return order_of((double)whole, real);
}

static int order_numbers(const struct shmq_msgpack *a, const struct shmq_msgpack *b)
{
    int mixed;

    if (a->kind == SHMQ_MSGPACK_INT && b->kind == SHMQ_MSGPACK_INT)
        return a->number < b->number ? -1 : a->number > b->number;
    if (a->kind == SHMQ_MSGPACK_FLOAT && b->kind == SHMQ_MSGPACK_FLOAT)
        return order_of(a->real, b->real);
    if (a->kind == SHMQ_MSGPACK_INT)
        return order_mixed(a->number, b->real);
    mixed = order_mixed(b->number, a->real);
    return mixed == UNORDERED ? UNORDERED : -mixed;
}

/* Compares texts by code points, which is the order of their bytes in UTF-8. */
static int order_texts(const struct shmq_msgpack *a, const struct shmq_msgpack *b)
{
    uint32_t least = a->count < b->count ? a->count : b->count;
    int order = least ? memcmp(a->bytes, b->bytes, least) : 0;

    if (order)
        return order < 0 ? -1 : 1;
    return a->count < b->count ? -1 : a->count > b->count;
}

static int order(const struct shmq_msgpack *a, const struct shmq_msgpack *b)
{
    if (is_number(a) && is_number(b))
        return order_numbers(a, b);
    if (a->kind != b->kind)
        return UNORDERED;
    if (a->kind == SHMQ_MSGPACK_BOOL)
        return a->number < b->number ? -1 : a->number > b->number;
    return a->kind == SHMQ_MSGPACK_STR ? order_texts(a, b) : UNORDERED;
}

/* The first occurrence of `bytes` in a text from `at` on, or NULL. */
static const unsigned char *place_of(const unsigned char *at, const unsigned char *end,
                                     const unsigned char *bytes, size_t size)
{
    for (; (size_t)(end - at) >= size; at++)
        if (!memcmp(at, bytes, size))
            return at;
    return NULL;
}

/* `%` matches any text, and everything else only itself: the parts before the first and behind the
 * last `%` are at the ends, and each part between is at its first occurrence. */
static bool is_like(const struct shmq_msgpack *value, const struct shmq_msgpack *pattern)
{
    const unsigned char *at = value->bytes, *end = at + value->count;
    const unsigned char *p = pattern->bytes, *p_end = p + pattern->count, *next;
    size_t size;

    if (value->kind != SHMQ_MSGPACK_STR)
        return false;
    next = pattern->count ? memchr(p, '%', pattern->count) : NULL;
    if (!next)
        return !order_texts(value, pattern);
    size = (size_t)(next - p);
    if (size > value->count || memcmp(at, p, size))
        return false;
    for (at += size, p = next + 1; (next = memchr(p, '%', (size_t)(p_end - p))); p = next + 1) {
        size = (size_t)(next - p);
        if (!(at = place_of(at, end, p, size)))
            return false;
        at += size;
    }
    size = (size_t)(p_end - p);
    return size <= (size_t)(end - at) && (!size || !memcmp(end - size, p, size));
}

static bool holds(enum shmq_filter_relation relation, const struct shmq_msgpack *value,
                  const struct shmq_msgpack *constant)
{
    int found;

    if (relation == SHMQ_IS_LIKE)
        return is_like(value, constant);
    if (constant->kind == SHMQ_MSGPACK_NIL)
        return value->kind == SHMQ_MSGPACK_NIL;
    found = order(value, constant);
    if (found == UNORDERED)
        return false;
    switch (relation) {
    case SHMQ_IS_LESS: return found < 0;
    case SHMQ_IS_AT_MOST: return found <= 0;
    case SHMQ_IS_MORE: return found > 0;
    case SHMQ_IS_AT_LEAST: return found >= 0;
    default: return !found;
    }
}

/* ---- the program ---- */

struct test {
    enum shmq_filter_field field;
    enum shmq_filter_relation relation;
    const unsigned char *name;
    uint32_t name_bytes;
    struct shmq_msgpack constant;
};

static const char *read_constant(struct shmq_reader *r, struct shmq_msgpack *constant)
{
    uint8_t kind = shmq_read8(r);
    uint64_t bits;

    *constant = nothing;
    switch (kind) {
    case SHMQ_CONST_NIL: break;
    case SHMQ_CONST_BOOL:
        constant->kind = SHMQ_MSGPACK_BOOL;
        constant->number = shmq_read8(r) != 0;
        break;
    case SHMQ_CONST_INT:
        constant->kind = SHMQ_MSGPACK_INT;
        constant->number = (int64_t)shmq_read64(r);
        break;
    case SHMQ_CONST_REAL:
        bits = shmq_read64(r);
        constant->kind = SHMQ_MSGPACK_FLOAT;
        memcpy(&constant->real, &bits, sizeof constant->real);
        break;
    case SHMQ_CONST_TEXT:
        constant->kind = SHMQ_MSGPACK_STR;
        constant->count = shmq_read32(r);
        constant->bytes = shmq_read_bytes(r, constant->count);
        break;
    default: return "no such constant exists";
    }
    return r->bad ? "the program ends within a test" : NULL;
}

static const char *read_test(struct shmq_reader *r, struct test *test)
{
    const char *wrong;

    test->field = shmq_read8(r);
    if (test->field == SHMQ_FIELD_HEADER) {
        test->name_bytes = shmq_read16(r);
        test->name = shmq_read_bytes(r, test->name_bytes);
    }
    test->relation = shmq_read8(r);
    if (r->bad)
        return "the program ends within a test";
    if (!test->field || test->field >= SHMQ_FIELDS)
        return "no such field exists";
    if (!test->relation || test->relation >= SHMQ_RELATIONS)
        return "no such relation exists";
    wrong = read_constant(r, &test->constant);
    if (wrong)
        return wrong;
    if (test->constant.kind == SHMQ_MSGPACK_NIL && test->relation != SHMQ_IS_EQUAL)
        return "nothing has no order";
    if (test->relation == SHMQ_IS_LIKE && test->constant.kind != SHMQ_MSGPACK_STR)
        return "only a text is like another";
    return NULL;
}

const char *shmq_filter_fault(const struct shmq_filter *filter)
{
    struct shmq_reader r = {filter->code, filter->code + filter->bytes, false};
    uint32_t depth = 0;
    struct test test;
    const char *wrong;

    if (filter->bytes > SHMQ_FILTER_BYTES)
        return "the program is too long";
    while (shmq_left(&r)) {
        uint8_t op = shmq_read8(&r);
        uint32_t takes = op == SHMQ_OP_TEST ? 0 : op == SHMQ_OP_NOT ? 1 : 2;

        if (op < SHMQ_OP_NOT || op > SHMQ_OP_TEST)
            return "no such operation exists";
        if (depth < takes)
            return "the stack runs dry";
        depth += 1 - takes;
        if (depth > SHMQ_FILTER_DEPTH)
            return "the stack runs over";
        if (op == SHMQ_OP_TEST && (wrong = read_test(&r, &test)))
            return wrong;
    }
    return depth == 1 ? NULL : "the program leaves not one truth";
}

bool shmq_filter_matches(const struct shmq_filter *filter, const struct shmq_facts *facts)
{
    struct shmq_reader r = {filter->code, filter->code + filter->bytes, false};
    bool stack[SHMQ_FILTER_DEPTH + 1];
    uint32_t depth = 0;
    struct test test;

    while (shmq_left(&r)) {
        struct shmq_msgpack value;

        switch (shmq_read8(&r)) {
        case SHMQ_OP_NOT: stack[depth - 1] = !stack[depth - 1]; break;
        case SHMQ_OP_AND:
            depth--;
            stack[depth - 1] = stack[depth - 1] && stack[depth];
            break;
        case SHMQ_OP_OR:
            depth--;
            stack[depth - 1] = stack[depth - 1] || stack[depth];
            break;
        default:
            (void)read_test(&r, &test);
            value = value_of(facts, test.field, test.name, test.name_bytes);
            stack[depth++] = holds(test.relation, &value, &test.constant);
        }
    }
    return stack[0];
}
