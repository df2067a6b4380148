/*
 * A worker in C beside programs in Python, over TCP: it counts the words of each text in the queue
 * "texts", and puts "SEQUENCE WORDS" into "counts". app.py says how to run it, and
 * docs/internals/protocol.md has every frame. It runs until Ctrl-C or SIGTERM; if it is killed, its text is
 * in the queue again at once.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { CREATE = 0x10, PRODUCE = 0x20, CONSUME = 0x30, ACK = 0x40 };
enum { OK = 0, QUEUE_EMPTY = 2, QUEUE_EXISTS = 4, LEASE_EXPIRED = 7 };
enum { LARGEST = 1 << 20 };

static unsigned char answer[LARGEST + 1]; /* the payload of the last answer, and a 0 */

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void refuse(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void receive(int server, void *into, size_t size)
{
    ssize_t got;

    for (char *at = into; size; at += got, size -= (size_t)got) {
        while ((got = recv(server, at, size, 0)) < 0 && errno == EINTR)
            ; /* a signal: the answer is waited for */
        if (got < 0)
            fail("recv");
        if (!got)
            refuse("the server has closed the connection");
    }
}

/* Sends a request and waits for its answer; returns the answer's size, and sets its status. */
static uint32_t ask(int server, uint32_t type, const void *payload, uint32_t size, uint32_t *status)
{
    uint32_t head[4] = {htonl(0xDEADBEEF), htonl(size), htonl(type << 24 | 1 << 16), htonl(1)};

    if (send(server, head, sizeof head, MSG_MORE | MSG_NOSIGNAL) != sizeof head ||
        send(server, payload, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("send");
    receive(server, head, sizeof head);
    size = ntohl(head[1]);
    if (ntohl(head[0]) != 0xDEADBEEF || size > LARGEST)
        refuse("this is not an answer of shmq, or one of more than 1 MiB");
    receive(server, answer, size);
    answer[size] = 0;
    *status = ntohl(head[2]) & 0xFFFF;
    return size;
}

static void must(uint32_t status, uint32_t also)
{
    if (status != OK && status != also) {
        fprintf(stderr, "status 0x%04" PRIx32 ": %s\n", status, (char *)answer);
        exit(1);
    }
}

static unsigned words(const unsigned char *text)
{
    unsigned found = 0;

    for (; *text; text++)
        found += !isspace(*text) && (isspace(text[1]) || !text[1]);
    return found;
}

int main(int count, char **arguments)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 30};
    int server = socket(AF_INET, SOCK_STREAM, 0);
    uint32_t status, size, skip;

    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    there.sin_port = htons(count > 1 ? (uint16_t)atoi(arguments[1]) : 9999);
    setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (server < 0 || connect(server, (struct sockaddr *)&there, sizeof there))
        fail("connect");
    ask(server, CREATE, "\0\5texts", 7, &status);
    must(status, QUEUE_EXISTS);
    ask(server, CREATE, "\0\6counts", 8, &status);
    must(status, QUEUE_EXISTS);
    while (!stopped) { /* 1 message, within 1,000 (0x3E8) ms; no flags */
        char put[64] = "\0\6counts", ack[15] = "\0\5texts";
        uint64_t sequence;

        size = ask(server, CONSUME, "\0\5texts\0\0\0\1\0\0\3\xE8\0", 16, &status);
        must(status, QUEUE_EMPTY);
        if (status == QUEUE_EMPTY)
            continue;
        if (size < 20)
            refuse("the message is cut off");
        memcpy(&sequence, answer, 8);
        memcpy(ack + 7, answer + 8, 8); /* the receipt */
        skip = 20;                      /* sequence, receipt, count, priority, flags */
        if (answer[19] & 1) {           /* properties, behind their length */
            uint32_t length;

            memcpy(&length, answer + 20, 4);
            if (size < 24 || (length = ntohl(length)) > size - 24)
                refuse("the properties are cut off");
            skip = 24 + length;
        }
        size = (uint32_t)snprintf(put + 9, sizeof put - 9, "%" PRIu64 " %u", be64toh(sequence),
                                  words(answer + skip));
        ask(server, PRODUCE, put, 9 + size, &status); /* put[8] is 0: no flags */
        must(status, OK);
        ask(server, ACK, ack, sizeof ack, &status); /* after the result is there */
        must(status, LEASE_EXPIRED);                /* somebody else counts it again */
    }
}
