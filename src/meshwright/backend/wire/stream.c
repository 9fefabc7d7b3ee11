/* The optional helper of the TCP transport: moves the messages of one exchange, and stores or adds what comes in.
 *
 * It follows the same steps as transport_tcp.py and speaks the same bytes, so that ranks with and without it work
 * together. Every `slice_ms` it returns to Python, which looks for signals and for the end of its patience, and calls
 * again: all that it has to remember lies in the messages.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "../local/bf16.h"

enum { HEADER = 16, MOST = 64 }; /* bytes; messages of one exchange, one bit of `after` each */
enum { SEND, STORE, ADD_F32, ADD_F64, ADD_BF16, WIDEN_BF16 };
enum { OVER, MOVED, IDLE, CLOSED, OUT_OF_STEP, FAILED };

typedef struct {
    char *data; /* what is sent, or where what comes in is stored or added */
    int64_t size; /* bytes on the wire, header included */
    int64_t done; /* of these, how many have been moved */
    uint64_t after; /* the messages that come before this one: what both bring to an element is applied in order */
    int32_t descriptor, way;
    char header[HEADER]; /* as it is sent, or must come */
    char come[HEADER]; /* as it has come */
    char torn[8]; /* bytes of an element whose rest is still to come */
} Message;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t element_bytes(int32_t way) {
    return way == STORE ? 1 : way == ADD_F32 ? 4 : way == ADD_F64 ? 8 : 2;
}

/* Apply `bytes` of whole elements; the first is element `at` of the message. */
static void apply(const Message *m, int64_t at, const void *stage, int64_t bytes) {
    int64_t count = bytes / element_bytes(m->way);
    if (m->way == ADD_F64) {
        double *to = (double *)m->data + at;
        const double *from = stage;
        for (int64_t i = 0; i < count; i++) to[i] += from[i];
        return;
    }
    float *to = (float *)m->data + at;
    const float *exact = stage;
    const uint16_t *rounded = stage;
    if (m->way == ADD_F32)
        for (int64_t i = 0; i < count; i++) to[i] += exact[i];
    else if (m->way == ADD_BF16)
        for (int64_t i = 0; i < count; i++) to[i] += bf16_up(rounded[i]);
    else
        for (int64_t i = 0; i < count; i++) to[i] = bf16_up(rounded[i]);
}

/* Each returns how many bytes it moved, 0 where it would have to wait, or the negative of a reason to give up. */
static int64_t give(Message *m) {
    int64_t head = m->done < HEADER ? HEADER - m->done : 0;
    struct iovec parts[2] = {{m->header + HEADER - head, (size_t)head},
                             {m->data + (m->done + head - HEADER), (size_t)(m->size - m->done - head)}};
    struct msghdr all = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t count = sendmsg(m->descriptor, &all, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR ? 0 : -FAILED;
    m->done += count;
    return count;
}

/* Return how many bytes of a message may be moved by now. One that adds to what another adds to follows it element by
 * element; others are over before it. */
static int64_t allowed(const Message *messages, int64_t i, uint64_t open) {
    const Message *m = &messages[i];
    int64_t bytes = m->size - m->done;
    for (uint64_t before = m->after & open; before; before &= before - 1) {
        const Message *other = &messages[__builtin_ctzll(before)];
        if (other->descriptor == m->descriptor || other->data != m->data || other->way != m->way) return 0;
        if (other->done - m->done < bytes) bytes = other->done - m->done;
    }
    return bytes;
}

static int64_t take(Message *m, int64_t most, char *stage, int64_t stage_bytes) {
    int64_t head = m->done < HEADER ? HEADER - m->done : 0;
    int64_t at = m->done + head - HEADER, left = most - head;
    int64_t element = element_bytes(m->way), torn = at % element, room = stage_bytes - torn;
    int stored = m->way == STORE;
    if (torn) memcpy(stage, m->torn, (size_t)torn);
    struct iovec parts[2] = {{m->come + HEADER - head, (size_t)head},
                             {stored ? m->data + at : stage + torn, (size_t)(stored || left < room ? left : room)}};
    struct msghdr all = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t count = recvmsg(m->descriptor, &all, MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR ? 0 : -FAILED;
    if (count == 0) return -CLOSED;
    m->done += count;
    if (m->done < HEADER) return count;
    if (head && memcmp(m->come, m->header, HEADER)) return -OUT_OF_STEP;
    int64_t bytes = torn + count - head, whole = bytes - bytes % element;
    if (!stored) {
        if (whole) apply(m, at / element, stage, whole);
        memcpy(m->torn, stage + whole, (size_t)(bytes - whole));
    }
    return count;
}

/* Move what can be moved for `slice_ms`. Where nothing can, give the processor away at each look for `yield_ns` from the
 * last move on, then sleep until a connection is ready: to be woken takes longer than most messages. Returns OVER, MOVED
 * (something), IDLE (nothing), or why it cannot succeed; `which` is then the message, and errno says more of FAILED. */
int mw_exchange(Message *messages, int64_t n, char *stage, int64_t stage_bytes, int64_t slice_ms, int64_t yield_ns,
                int64_t *which) {
    int64_t moved_at = now_ns(), end = moved_at + slice_ms * 1000000, total = 0;
    for (;;) {
        struct pollfd waits[MOST];
        int waiting = 0;
        int64_t moved = 0;
        uint64_t open = 0;
        for (int64_t i = 0; i < n; i++)
            if (messages[i].done < messages[i].size) open |= (uint64_t)1 << i;
        for (int64_t i = 0; i < n; i++) {
            Message *m = &messages[i];
            if (!(open >> i & 1)) continue;
            int64_t most = allowed(messages, i, open);
            if (most <= HEADER && most < m->size - m->done) continue;
            int64_t count = m->way == SEND ? give(m) : take(m, most, stage, stage_bytes);
            if (count < 0) {
                *which = i;
                return (int)-count;
            }
            moved += count;
            if (m->done == m->size) open &= ~((uint64_t)1 << i);
            else waits[waiting++] = (struct pollfd){m->descriptor, m->way == SEND ? POLLOUT : POLLIN, 0};
        }
        if (!open) return OVER;
        int64_t now = now_ns(), left_ms = (end - now) / 1000000;
        total += moved;
        if (left_ms <= 0) return total ? MOVED : IDLE;
        if (moved) moved_at = now;
        else if (now - moved_at < yield_ns) sched_yield();
        else if (poll(waits, (nfds_t)waiting, (int)left_ms) < 0) return total ? MOVED : IDLE; /* a signal */
    }
}

/* Round `count` floats to `out`, and, where `keep` is set, at home too. */
void mw_narrow(float *data, uint16_t *out, int64_t count, int keep) {
    for (int64_t i = 0; i < count; i++) out[i] = bf16_down(data[i]);
    if (keep)
        for (int64_t i = 0; i < count; i++) data[i] = bf16_up(out[i]);
}
