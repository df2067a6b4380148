/* Filters: what a program means, and which programs are refused. */
#include "fixture.h"

#include <string.h>

#include "queue/filter.h"
#include "queue/properties.h"

#define BYTES(...) \
    (const unsigned char[]){__VA_ARGS__}, sizeof(const unsigned char[]) { __VA_ARGS__ }
#define EQUAL_1 SHMQ_IS_EQUAL, SHMQ_CONST_INT, 0, 0, 0, 0, 0, 0, 0, 1
#define PRIORITY_1 SHMQ_OP_TEST, SHMQ_FIELD_PRIORITY, EQUAL_1
#define SIZE_1 SHMQ_OP_TEST, SHMQ_FIELD_SIZE, EQUAL_1
#define HEADER_A SHMQ_OP_TEST, SHMQ_FIELD_HEADER, 0, 1, 'a'

static const char *fault(const unsigned char *code, size_t bytes)
{
    return shmq_filter_fault(&(struct shmq_filter){code, (uint32_t)bytes});
}

static bool matches(const struct shmq_facts *facts, const unsigned char *code, size_t bytes)
{
    struct shmq_filter filter = {code, (uint32_t)bytes};

    CHECK(!shmq_filter_fault(&filter));
    return shmq_filter_matches(&filter, facts);
}

/* The same of a message with these properties. */
static bool holds(const unsigned char *meta, size_t meta_bytes, const unsigned char *code,
                  size_t bytes)
{
    return matches(&(struct shmq_facts){.meta = meta, .meta_bytes = (uint32_t)meta_bytes}, code,
                   bytes);
}

TEST("a program leaves one truth, and ends where it ends")
{
    CHECK(!fault(BYTES(PRIORITY_1)));
    CHECK(!fault(BYTES(PRIORITY_1, SIZE_1, SHMQ_OP_AND, SHMQ_OP_NOT)));
    CHECK(fault((const unsigned char *)"", 0));
    CHECK(fault(BYTES(SHMQ_OP_NOT)));
    CHECK(fault(BYTES(PRIORITY_1, SHMQ_OP_AND)));
    CHECK(fault(BYTES(PRIORITY_1, SHMQ_OP_OR)));
    CHECK(fault(BYTES(PRIORITY_1, SIZE_1)));
    CHECK(fault(BYTES(PRIORITY_1, 0)));
    CHECK(fault(BYTES(PRIORITY_1, 5)));
}

TEST("a program that is cut off anywhere is refused")
{
    static const unsigned char code[] = {HEADER_A, SHMQ_IS_EQUAL, SHMQ_CONST_TEXT, 0, 0, 0, 2,
                                         'h',      'i',           SHMQ_OP_NOT};

    CHECK(!fault(code, sizeof code));
    for (size_t bytes = 0; bytes < sizeof code - 1; bytes++) {
        unsigned char cut[sizeof code];

        memcpy(cut, code, bytes);
        CHECK(fault(cut, bytes));
    }
}

TEST("a request for what does not exist is refused")
{
    CHECK(fault(BYTES(SHMQ_OP_TEST, 0, EQUAL_1)));
    CHECK(fault(BYTES(SHMQ_OP_TEST, SHMQ_FIELDS, EQUAL_1)));
    CHECK(fault(BYTES(SHMQ_OP_TEST, SHMQ_FIELD_SIZE, 0, SHMQ_CONST_NIL)));
    CHECK(fault(BYTES(SHMQ_OP_TEST, SHMQ_FIELD_SIZE, SHMQ_RELATIONS, SHMQ_CONST_BOOL, 1)));
    CHECK(fault(BYTES(SHMQ_OP_TEST, SHMQ_FIELD_SIZE, SHMQ_IS_EQUAL, SHMQ_CONSTS)));
    CHECK(fault(BYTES(SHMQ_OP_TEST, SHMQ_FIELD_SIZE, SHMQ_IS_LESS, SHMQ_CONST_NIL)));
    CHECK(fault(BYTES(SHMQ_OP_TEST, SHMQ_FIELD_GROUP, SHMQ_IS_LIKE, SHMQ_CONST_BOOL, 1)));
}

TEST("the stack is as deep as it may be, and no deeper")
{
    static const unsigned char test[] = {PRIORITY_1};
    static unsigned char code[(SHMQ_FILTER_DEPTH + 1) * (sizeof test + 1)];
    size_t bytes = 0;

    for (uint32_t i = 0; i < SHMQ_FILTER_DEPTH; i++, bytes += sizeof test)
        memcpy(code + bytes, test, sizeof test);
    memset(code + bytes, SHMQ_OP_OR, SHMQ_FILTER_DEPTH - 1);
    CHECK(!fault(code, bytes + SHMQ_FILTER_DEPTH - 1));
    CHECK(matches(&(struct shmq_facts){.priority = 1}, code, bytes + SHMQ_FILTER_DEPTH - 1));
    memcpy(code + bytes, test, sizeof test);
    bytes += sizeof test;
    memset(code + bytes, SHMQ_OP_OR, SHMQ_FILTER_DEPTH);
    CHECK(fault(code, bytes + SHMQ_FILTER_DEPTH));
}

TEST("truths are joined")
{
    for (uint8_t priority = 0; priority < 2; priority++)
        for (uint32_t size = 0; size < 2; size++) {
            struct shmq_facts facts = {.priority = priority, .size = size};

            CHECK_EQ(matches(&facts, BYTES(PRIORITY_1, SIZE_1, SHMQ_OP_AND)), priority && size);
            CHECK_EQ(matches(&facts, BYTES(PRIORITY_1, SIZE_1, SHMQ_OP_OR)), priority || size);
            CHECK_EQ(matches(&facts, BYTES(PRIORITY_1, SHMQ_OP_NOT)), !priority);
        }
}

TEST("a header is compared with what is of its kind")
{
#define IS(...) BYTES(HEADER_A, __VA_ARGS__)
#define HAS(...) BYTES(0x81, 0xA7, 'h', 'e', 'a', 'd', 'e', 'r', 's', 0x81, 0xA1, 'a', __VA_ARGS__)
    CHECK(holds(HAS(1), IS(EQUAL_1)));
    CHECK(holds(HAS(0xCA, 0x3F, 0x80, 0, 0), IS(EQUAL_1)));                  /* 1.0f */
    CHECK(holds(HAS(0xCB, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0), IS(EQUAL_1)));      /* 1.0  */
    CHECK(!holds(HAS(0xC3), IS(EQUAL_1)));                                   /* true */
    CHECK(!holds(HAS(0xA1, '1'), IS(EQUAL_1)));
    CHECK(!holds(HAS(0xCB, 0x7F, 0xF8, 0, 0, 0, 0, 0, 0), IS(EQUAL_1)));     /* nan  */
    CHECK(holds(HAS(0xC3), IS(SHMQ_IS_EQUAL, SHMQ_CONST_BOOL, 1)));
    CHECK(!holds(HAS(0xC2), IS(SHMQ_IS_EQUAL, SHMQ_CONST_BOOL, 1)));
    CHECK(holds(HAS(0xC0), IS(SHMQ_IS_EQUAL, SHMQ_CONST_NIL)));
    CHECK(holds((const unsigned char *)"", 0, IS(SHMQ_IS_EQUAL, SHMQ_CONST_NIL)));
    CHECK(!holds(HAS(0x91, 0xC0), IS(SHMQ_IS_EQUAL, SHMQ_CONST_NIL)));
    CHECK(holds(HAS(0xA2, 'a', 'b'), IS(SHMQ_IS_LIKE, SHMQ_CONST_TEXT, 0, 0, 0, 2, 'a', '%')));
    CHECK(!holds(HAS(0xC4, 1, 'a'), IS(SHMQ_IS_EQUAL, SHMQ_CONST_TEXT, 0, 0, 0, 1, 'a')));
}

TEST("an int and a real are compared exactly")
{
    static const unsigned char two_to_53[] = {SHMQ_CONST_REAL, 0x43, 0x40, 0, 0, 0, 0, 0, 0};
    unsigned char code[5 + 1 + sizeof two_to_53] = {HEADER_A, SHMQ_IS_EQUAL};

    memcpy(code + 6, two_to_53, sizeof two_to_53);
    CHECK(holds(HAS(0xCF, 0, 0x20, 0, 0, 0, 0, 0, 0), code, sizeof code));
    CHECK(!holds(HAS(0xCF, 0, 0x20, 0, 0, 0, 0, 0, 1), code, sizeof code));
    code[5] = SHMQ_IS_MORE;
    CHECK(holds(HAS(0xCF, 0, 0x20, 0, 0, 0, 0, 0, 1), code, sizeof code));
    CHECK(holds(HAS(0xCF, 0xFF, 0, 0, 0, 0, 0, 0, 0), code, sizeof code));
}

TEST("of a key that is there twice the last one counts")
{
    CHECK(holds(
        BYTES(0x81, 0xA7, 'h', 'e', 'a', 'd', 'e', 'r', 's', 0x82, 0xA1, 'a', 2, 0xA1, 'a', 1),
        IS(EQUAL_1)));
}

TEST("properties that are no map have nothing, and nothing is read beyond their end")
{
    static const unsigned char whole[] = {0x81, 0xA7, 'h',  'e', 'a',  'd', 'e', 'r',
                                          's',  0x81, 0xA1, 'a', 0xCD, 0,   1};

    CHECK(holds(whole, sizeof whole, IS(EQUAL_1)));
    for (size_t bytes = 0; bytes < sizeof whole; bytes++)
        CHECK(!holds(whole, bytes, IS(EQUAL_1)));
    CHECK(!holds(BYTES(0x91, 1), IS(EQUAL_1)));
    CHECK(!holds(BYTES(0x81, 0xA7, 'h', 'e', 'a', 'd', 'e', 'r', 's', 1), IS(EQUAL_1)));
}

TEST("a codec is called by its name, wherever that stands")
{
#define CODEC_IS(n, ...) \
    BYTES(SHMQ_OP_TEST, SHMQ_FIELD_CODEC, SHMQ_IS_EQUAL, SHMQ_CONST_TEXT, 0, 0, 0, n, __VA_ARGS__)
    struct shmq_facts facts = {.codec = 3};

    CHECK(matches(&facts, CODEC_IS(4, 'j', 's', 'o', 'n')));
    facts.codec = SHMQ_CODEC_OTHER;
    CHECK(matches(&facts, CODEC_IS(5, 'b', 'y', 't', 'e', 's')));
    CHECK(!matches(&facts, CODEC_IS(4, 'j', 's', 'o', 'n')));
    facts.meta = (const unsigned char *)"\x81\xA5"
                                        "codec\xA2pb";
    facts.meta_bytes = 10;
    CHECK(matches(&facts, CODEC_IS(2, 'p', 'b')));
}

TEST("any bytes are refused, or can be run")
{
    struct chance chance = chance_of(7);
    uint32_t good = 0;

    for (int round = 0; round < 200000; round++) {
        unsigned char code[24], meta[24];
        struct shmq_filter filter = {code, (uint32_t)chance_below(&chance, sizeof code)};
        struct shmq_facts facts = {.meta = meta, .meta_bytes = sizeof meta};

        for (uint32_t i = 0; i < sizeof code; i++) {
            code[i] = (unsigned char)chance_below(&chance, i % 3 ? 6 : 16);
            meta[i] = (unsigned char)chance_next(&chance);
        }
        meta[0] = 0x81;
        if (chance_below(&chance, 2))
            code[0] = SHMQ_OP_TEST;
        if (shmq_filter_fault(&filter))
            continue;
        good++;
        (void)shmq_filter_matches(&filter, &facts);
    }
    CHECK(good > 100);
}
