#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void fail(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

void *memory(size_t bytes)
{
    void *made = calloc(1, bytes ? bytes : 1);

    if (!made)
        fail("there is no memory for %zu bytes", bytes);
    return made;
}

void line_connect(struct line *line, const struct plan *plan)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)plan->port)};
    int yes = 1;

    if (inet_pton(AF_INET, plan->host, &address.sin_addr) != 1)
        fail("%s is not an IPv4 address", plan->host);
    line->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (line->fd < 0 || connect(line->fd, (struct sockaddr *)&address, sizeof(address)))
        fail("%s:%d: %s", plan->host, plan->port, strerror(errno));
    setsockopt(line->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void line_room(struct line *line, size_t bytes)
{
    line->room = bytes;
    line->out = memory(bytes);
}

void line_close(struct line *line)
{
    close(line->fd);
    free(line->out);
    free(line->in);
    free(line->stamps);
    free(line->own);
}

/* ---- output ---- */

void line_say(struct line *line, const void *bytes, size_t length)
{
    size_t at = line->tail % line->room;
    size_t first = length < line->room - at ? length : line->room - at;

    if (line->tail - line->head + length > line->room)
        fail("the output of a connection is full");
    memcpy(line->out + at, bytes, first);
    memcpy(line->out, (const uint8_t *)bytes + first, length - first);
    line->tail += length;
}

uint8_t *line_place(struct line *line, size_t length)
{
    uint8_t *place = line->out + line->tail % line->room;

    line->tail += length;
    return place;
}

bool line_send(struct line *line)
{
    while (line->head < line->tail) {
        size_t at = line->head % line->room, length = line->tail - line->head;
        size_t first = length < line->room - at ? length : line->room - at;
        struct iovec parts[2] = {{line->out + at, first}, {line->out, length - first}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1u + (length > first)};
        ssize_t sent = sendmsg(line->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (sent < 0)
            fail("send: %s", strerror(errno));
        line->head += (uint64_t)sent;
        if ((size_t)sent < length)
            return false;
    }
    return true;
}

/* ---- input ---- */

/* Move the unread input to the beginning of the buffer if that makes enough room. */
static void make_room(struct line *line)
{
    size_t left = line->in_tail - line->in_head;

    if (!left)
        line->in_head = line->in_tail = 0;
    else if (line->in_room - line->in_tail < line->in_room / 4) {
        memmove(line->in, line->in + line->in_head, left);
        line->in_head = 0;
        line->in_tail = left;
    }
    if (line->in_tail == line->in_room)
        fail("an answer is longer than %zu bytes", line->in_room);
}

bool line_receive(struct line *line)
{
    const struct work *work = line->crew->work;
    ssize_t got;
    size_t used;

    make_room(line);
    got = recv(line->fd, line->in + line->in_tail, line->in_room - line->in_tail, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got < 0)
        fail("recv: %s", strerror(errno));
    if (!got)
        fail("the server closed the connection");
    line->in_tail += (size_t)got;
    line->crew->clock = now();
    while (line->in_head < line->in_tail) {
        used = work->hear(line, line->in + line->in_head, line->in_tail - line->in_head);
        if (!used)
            break;
        line->in_head += used;
    }
    return true;
}

uint64_t line_ask(struct line *line)
{
    if (line->asked - line->answered > line->stamp_mask)
        fail("too many requests are under way on a connection");
    line->stamps[line->asked & line->stamp_mask] = line->crew->clock;
    return line->asked++;
}

uint64_t line_answer(struct line *line)
{
    struct crew *crew = line->crew;

    if (line->answered == line->asked)
        fail("an answer came that nothing had asked for");
    latency_add(&crew->latency, crew->clock - line->stamps[line->answered & line->stamp_mask], 1);
    return line->answered++;
}

/* ---- blocking calls ---- */

void line_write_all(struct line *line, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;

    while (length) {
        ssize_t sent = send(line->fd, from, length, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            fail("send: %s", strerror(errno));
        from += sent;
        length -= (size_t)sent;
    }
}

void line_read_all(struct line *line, void *bytes, size_t length)
{
    uint8_t *to = bytes;

    while (length) {
        ssize_t got = recv(line->fd, to, length, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            fail("recv: %s", got ? strerror(errno) : "the server closed the connection");
        to += got;
        length -= (size_t)got;
    }
}

size_t line_converse(struct line *line, const void *said, size_t length, char *answer, size_t room)
{
    size_t got = 0;

    line_write_all(line, said, length);
    while (got + 1 < room && (got < 2 || memcmp(answer + got - 2, "\r\n", 2)))
        line_read_all(line, answer + got++, 1);
    answer[got] = 0;
    return got;
}
