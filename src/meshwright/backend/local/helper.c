/* The optional helper of the shared-memory engine: waiting, sums, and the whole of the collectives that it knows.
 *
 * It follows the same steps as the Python code (see ranks.py and reduce.py), so that ranks with and without it
 * work together. Counters are published with release and read with acquire, which orders the slots' contents on weakly
 * ordered processors (Arm) too: a reader that sees a counter sees all that was written before it.
 *
 * A wait that takes longer than `patience_ns` returns to Python, which looks for dead ranks and calls again; `chunk`
 * and `phase` say where to go on.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bf16.h"
#include "helper.h"

enum { MAX_RANKS = 256, TILE = 2048, ALIGN = 64 };
enum { NEAR_BYTES = 2048 }; /* written to several places while it is in the nearest cache */
enum { FIRST_NAP_NS = 50000, LAST_NAP_NS = 1000000 };
enum { SPREAD_WAITS = 16 }; /* how often a rank looks where the others run */
enum { NEEDED_BITS = 24 };  /* of what a rank says in an all-to-all: its steps; above them its blocks, if all are alike */
#define LENDS ((uint64_t)1 << (NEEDED_BITS - 1)) /* among these: whether the others read its memory */
#define UNIFORM_MOST (((int64_t)1 << 39) - 2)

static inline void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Ask for turns of `ns` nanoseconds on a processor for this thread: the shorter, the sooner (Linux 6.12 and later,
 * under the usual policy). Return whether the kernel took note. */
int mw_short_turns(int64_t ns) {
#ifdef SYS_sched_setattr
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } wish = {.size = sizeof wish};
    if (syscall(SYS_sched_getattr, 0, &wish, sizeof wish, 0) || wish.policy != SCHED_OTHER) return 0;
    wish.runtime_ns = (uint64_t)ns;
    return syscall(SYS_sched_setattr, 0, &wish, 0) == 0;
#else
    return 0;
#endif
}

static long nap_ns(int64_t waited, int64_t share, int64_t longest) {
    int64_t nap = waited / share > FIRST_NAP_NS ? waited / share : FIRST_NAP_NS;
    return (long)(nap < longest ? nap : longest);
}

/* Return 1 once *counter >= target, 0 when patience is at an end: look, give the processor away, then sleep ever longer
 * (waiting.py says why). */
int mw_wait(const uint64_t *counter, uint64_t target, int64_t spins, int64_t yield_ns, int64_t patience_ns) {
    for (int64_t i = 0; i <= spins; i++) {
        if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) >= target) return 1;
        pause_cpu();
    }
    int64_t start = clock_ns(CLOCK_MONOTONIC), waited = 0;
    for (; waited < yield_ns; waited = clock_ns(CLOCK_MONOTONIC) - start) {
        for (int i = 0; i < 16; i++) {
            sched_yield();
            if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) >= target) return 1;
        }
    }
    for (; waited < patience_ns; waited = clock_ns(CLOCK_MONOTONIC) - start) {
        struct timespec t = {0, nap_ns(waited, 8, LAST_NAP_NS)};
        nanosleep(&t, NULL);
        if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) >= target) return 1;
    }
    return 0;
}

/* Return 1 once a counter has reached its target or a file is ready, 0 at a signal or the end of patience; `waited_ns` is
 * how long the caller has waited before, and a look comes late by a `share`-th of a wait or `longest_ns`. Files wake a
 * waiter, counters it has to look at. */
int mw_wait_any(const uint64_t *const *counters, const uint64_t *targets, int64_t n, struct pollfd *files, int64_t m,
                int64_t waited_ns, int64_t share, int64_t longest_ns, int64_t patience_ns) {
    int64_t start = clock_ns(CLOCK_MONOTONIC);
    for (;;) {
        for (int64_t i = 0; i < n; i++)
            if (__atomic_load_n(counters[i], __ATOMIC_ACQUIRE) >= targets[i]) return 1;
        int64_t here = clock_ns(CLOCK_MONOTONIC) - start;
        if (here >= patience_ns) return 0;
        int64_t nap = n ? nap_ns(waited_ns + here, share, longest_ns) : patience_ns - here;
        struct timespec t = {(time_t)(nap / 1000000000), (long)(nap % 1000000000)};
        int ready = ppoll(files, (nfds_t)m, &t, NULL);
        if (ready) return ready > 0; /* or a signal, which Python handles */
    }
}

/* Return what a rank last said of where it runs. */
static uint64_t place_of(const Group *g, int64_t rank) {
    return __atomic_load_n(g->counters + rank * LINE + g->place, __ATOMIC_RELAXED);
}

/* Move this thread to the allowed processor with the fewest ranks, if `here` has at least two more. */
static void move_from(const Group *g, uint64_t here) {
    cpu_set_t allowed, there;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return; /* more processors than such a set holds */
    uint16_t ranks[CPU_SETSIZE + 1] = {0};                      /* one further: at 0 the ranks that do not say */
    for (int64_t r = 0; r < g->size; r++) ranks[place_of(g, r)]++;
    uint64_t to = here;
    for (uint64_t i = 1; i <= CPU_SETSIZE; i++)
        if (CPU_ISSET(i - 1, &allowed) && ranks[i] < ranks[to]) to = i;
    if (ranks[to] + 2 > ranks[here]) return;
    CPU_ZERO(&there);
    CPU_SET(to - 1, &there);
    sched_setaffinity(0, sizeof there, &there);
    sched_setaffinity(0, sizeof allowed, &allowed);
}

/* Say which processor this rank runs on, and now and then make sure that not too many run on the same: the kernel takes
 * tasks that give way all the time for too short of rest to be moved (docs/backend.md). Of those on one, the last moves. */
static void spread(Group *g) {
    uint64_t here = (uint64_t)sched_getcpu() + 1;
    if (here > CPU_SETSIZE) return;
    if (here != place_of(g, g->rank))
        __atomic_store_n(g->counters + g->rank * LINE + g->place, here, __ATOMIC_RELAXED);
    if (++g->waits % SPREAD_WAITS) return;
    for (int64_t r = g->rank + 1; r < g->size; r++)
        if (place_of(g, r) == here) return;
    move_from(g, here);
}

/* Where a rank leaves what the collective is that begins with a step. */
static uint64_t *call_at(const Group *g, int64_t rank, uint64_t step) {
    return g->calls + rank * g->calls_words + step % CALLS * ENTRY;
}

/* Note, before the first step of a collective, what it is; `publish` says so. Done once, however often the collective is
 * gone on with. */
static void begin(Group *g) {
    if (g->begun) return;
    g->begun = 1;
    g->lends = g->lenders = 0;
    g->first = g->sequence + 1;
    uint64_t *entry = call_at(g, g->rank, g->first), chain = g->chain;
    for (int i = 0; i < WORDS; i++) {
        chain = mw_mix(chain, g->asked[i]);
        entry[1 + i] = g->asked[i];
    }
    g->chain = chain;
    entry[0] = (chain & ~(uint64_t)0xffff) | (g->first & 0xffff);
}

/* Return whether a rank that has come to the first step of this collective is in the same collective. It may be further. */
static int agrees(const Group *g, int64_t rank) {
    uint64_t mine = *call_at(g, g->rank, g->first);
    if (__atomic_load_n(g->counters + rank * LINE + CALL, __ATOMIC_RELAXED) == mine) return 1;
    return __atomic_load_n(call_at(g, rank, g->first), __ATOMIC_RELAXED) == mine;
}

/* Return 0 and leave to Python what a wait is for. */
static int leave_wait(Group *g, int64_t rank, uint64_t target) {
    g->awaited_rank = (uint64_t)rank;
    g->awaited_number = target;
    return 0;
}

static int wait_rank(Group *g, int64_t rank, uint64_t target) {
    const uint64_t *counter = g->counters + rank * LINE;
    if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < target) {
        if (g->place) spread(g);
        int64_t start = g->clocked ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
        int reached = mw_wait(counter, target, g->spins, g->yield_ns, g->patience_ns);
        if (g->clocked) g->waited_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
        if (!reached) return leave_wait(g, rank, target);
    }
    return target != g->first || agrees(g, rank) || leave_wait(g, rank, target);
}

static int wait_all(Group *g, uint64_t target) {
    for (int64_t i = 1; i < g->size; i++)
        if (!wait_rank(g, (g->rank + i) % g->size, target)) return 0;
    return 1;
}

/* Return what all others have reached: where they have run ahead, more than what was waited for. */
static uint64_t least_counter(const Group *g) {
    uint64_t least = UINT64_MAX;
    for (int64_t i = 1; i < g->size; i++) {
        uint64_t there = __atomic_load_n(g->counters + (g->rank + i) % g->size * LINE, __ATOMIC_ACQUIRE);
        if (there < least) least = there;
    }
    return least;
}

/* Return a rank's slot of this step. */
static inline char *slot(const Group *g, int64_t rank) {
    int64_t shorts = g->turn - LONG_SLOTS;
    int64_t offset = shorts < 0 ? g->turn * g->slot_bytes : LONG_SLOTS * g->slot_bytes + shorts * SHORT_BYTES;
    return g->slots + rank * g->own_bytes + offset;
}

/* Return where `writer` leaves in this step what `reader` alone reads: its part of the writer's slot and, the next time,
 * the writer's part of the reader's. So a rank fills what it read the last time, which lies in its cache; to take back what
 * another processor has read takes longer (docs/backend.md). */
static char *between(const Group *g, int64_t writer, int64_t reader) {
    int crossed = g->laps[g->turn] & 1;
    int64_t owner = crossed ? reader : writer, other = crossed ? writer : reader;
    return slot(g, owner) + (other - (other > owner)) * g->part_bytes;
}

/* Return where `writer` leaves in this step what all others read. */
static char *for_others(const Group *g, int64_t writer) {
    return g->size == 2 ? between(g, writer, 1 - writer) : slot(g, writer);
}

/* Take the slots of the next step, short ones or long ones. */
static void take_slots(Group *g, int is_short) {
    g->turn = is_short ? LONG_SLOTS + g->shorts % SHORT_SLOTS : g->longs % LONG_SLOTS;
}

/* Take the slots of the next step, and return 1 once they may be filled, 0 when patience is at an end. */
static int free_slots(Group *g, int is_short) {
    take_slots(g, is_short);
    if (g->seen >= g->free_at[g->turn]) return 1;
    if (!wait_all(g, g->free_at[g->turn])) return 0;
    g->seen = least_counter(g);
    return 1;
}

/* Say that this rank has entered the next step, and at the first one of a collective in the same breath what that is:
 * others look at this line all the while, and it is taken back from their caches once for both. The slots stay. */
static void publish(Group *g) {
    uint64_t *line = g->counters + g->rank * LINE;
    if (++g->sequence == g->first) __atomic_store_n(line + CALL, *call_at(g, g->rank, g->first), __ATOMIC_RELAXED);
    __atomic_store_n(line, g->sequence, __ATOMIC_RELEASE);
}

/* Enter the next step, and go on to phase 1. */
static void enter(Group *g) {
    publish(g);
    g->phase = 1;
}

/* Leave a chunk in which all counters were seen at the last step. The next chunk may go into the same slots where every
 * part of them has one reader, who is the one to fill it next. */
static void next_chunk(Group *g) {
    g->seen = g->sequence;
    g->laps[g->turn]++;
    g->phase = 0;
    g->chunk++;
}

/* Free the slots for the next step, once all ranks have left this one. */
static void pass_slots(Group *g) {
    g->free_at[g->turn] = g->sequence + 1;
    *(g->turn < LONG_SLOTS ? &g->longs : &g->shorts) += 1;
}

/* Return that a collective is done. */
static int done(Group *g) {
    g->chunk = g->begun = 0;
    return 1;
}

#define SAME(x) (x)
/* out = ((in[0] + in[1]) + in[2]) + ..., element by element, so that out may be one of the inputs. */
#define DEFINE_SUM(name, T, W, UP, DOWN)                                                                   \
    static void name(T *out, T *const *in, int64_t n, int64_t count) {                                     \
        const T *a = in[0], *b = in[1];                                                                    \
        if (n == 2) {                                                                                      \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) out[i] = DOWN(UP(a[i]) + UP(b[i]));   \
        } else if (n == 3) {                                                                               \
            const T *c = in[2];                                                                            \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++)                                       \
                out[i] = DOWN((UP(a[i]) + UP(b[i])) + UP(c[i]));                                           \
        } else if (n == 4) {                                                                               \
            const T *c = in[2], *d = in[3];                                                                \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++)                                       \
                out[i] = DOWN(((UP(a[i]) + UP(b[i])) + UP(c[i])) + UP(d[i]));                              \
        } else {                                                                                           \
            W total[TILE];                                                                                 \
            for (int64_t start = 0; start < count; start += TILE) {                                        \
                int64_t length = count - start < TILE ? count - start : TILE;                              \
                for (int64_t i = 0; i < length; i++) total[i] = UP(a[start + i]) + UP(b[start + i]);       \
                for (int64_t r = 2; r < n; r++)                                                            \
                    for (int64_t i = 0; i < length; i++) total[i] += UP(in[r][start + i]);                 \
                for (int64_t i = 0; i < length; i++) out[start + i] = DOWN(total[i]);                      \
            }                                                                                              \
        }                                                                                                  \
    }
DEFINE_SUM(sum_f32, float, float, SAME, SAME)
DEFINE_SUM(sum_f64, double, double, SAME, SAME)
DEFINE_SUM(sum_i32, uint32_t, uint32_t, SAME, SAME)
DEFINE_SUM(sum_i64, uint64_t, uint64_t, SAME, SAME)
DEFINE_SUM(sum_bf16, uint16_t, float, bf16_up, bf16_down)

static int64_t item_bytes(int64_t kind) { return kind == BF16 ? 2 : kind == F32 || kind == I32 ? 4 : 8; }

/* Copy to memory that is not read again soon: past the caches, so that no line is fetched only to be overwritten. */
void mw_stream(char *to, const char *from, int64_t length) {
#if defined(__SSE2__)
    for (; length > 0 && ((uintptr_t)to & 15); length--) *to++ = *from++;
    for (; length >= 64; length -= 64, to += 64, from += 64)
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)to + i, _mm_loadu_si128((const __m128i *)from + i));
    _mm_sfence(); /* before the counter that another thread may go by */
#endif
    memcpy(to, from, (size_t)length);
}

/* Sum `n` >= 2 inputs in their order; out may be one of them. */
void mw_sum(int64_t kind, void *out, void *const *in, int64_t n, int64_t count) {
    switch (kind) {
    case F32: sum_f32(out, (float *const *)in, n, count); break;
    case F64: sum_f64(out, (double *const *)in, n, count); break;
    case I32: sum_i32(out, (uint32_t *const *)in, n, count); break;
    case I64: sum_i64(out, (uint64_t *const *)in, n, count); break;
    default: sum_bf16(out, (uint16_t *const *)in, n, count); break;
    }
}

/* Write what others will read. Where processors share a cache, it goes through it; where they do not, fetching what lies
 * in another's cache takes longer than from memory. Which of the two is so, helper.py finds out. */
static inline void fill(const Group *g, char *to, const char *from, int64_t length) {
    if (g->way == PAST) mw_stream(to, from, length);
    else memcpy(to, from, (size_t)length);
}

/* ---- reading a peer's memory: one copy in place of two, but the kernel looks up every page of it (docs/backend-why.md) */

/* Return whether this process may read another's memory. Nothing lies at address 0, so that only leave is tried. */
int mw_may_read(int64_t pid) {
    char byte;
    struct iovec to = {&byte, 1}, from = {NULL, 1};
    return process_vm_readv((pid_t)pid, &to, 1, &from, 1, 0) >= 0 || errno == EFAULT;
}

/* Where a rank leaves, in the first step of a collective, where in its memory what each reads begins; 0: in its slot. */
static uint64_t *lent_at(const Group *g, int64_t rank) {
    return g->calls + rank * g->calls_words + CALLS * ENTRY + (LONG_SLOTS + g->turn) * g->size;
}

/* Copy out of a peer's memory; return 0 and leave to Python that it cannot be had. A peer that has given up may have let
 * go of it meanwhile. */
static int fetch(Group *g, int64_t peer, char *to, uint64_t from, int64_t length) {
    while (length > 0) {
        struct iovec here = {to, (size_t)length}, there = {(void *)from, (size_t)length};
        ssize_t copied = process_vm_readv((pid_t)g->pids[peer], &here, 1, &there, 1, 0);
        if (copied < 0 && errno == EINTR) continue;
        if (copied <= 0) {
            g->unread_rank = peer + 1;
            return leave_wait(g, peer, g->sequence + 1);
        }
        to += copied, from += (uint64_t)copied, length -= copied;
    }
    g->unread_rank = 0;
    if (__atomic_load_n(g->counters + peer * LINE + STATE, __ATOMIC_ACQUIRE) == ACTIVE) return 1;
    return leave_wait(g, peer, g->sequence + 1);
}

/* Return whether `length` bytes at `one` and at `other` have nothing in common. */
static int apart(const char *one, int64_t length, const char *other, int64_t other_length) {
    return one + length <= other || other + other_length <= one;
}

/* At the end of a collective in which ranks read each other's memory, say that this rank has done so, and return 1 once
 * nobody reads its own any more; 0 when patience is at an end. */
static int give_back(Group *g) {
    if (!g->lenders) return 1;
    if (g->phase == 0) enter(g);
    if (g->lends && !wait_all(g, g->sequence)) return 0;
    g->phase = 0;
    return 1;
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Take what this rank alone has read out of its owner's cache, by writing to each line what it holds. On AMD's
 * processors a line that another core has written to can be had back soon, and one that it has only read cannot: with
 * this, 64 KiB are filled again in 1.7 us in place of 7, or of 25 where the cores share no cache. */
static void claim(char *at, int64_t length) {
    for (uint64_t *line = (uint64_t *)at; (char *)line < at + length; line += ALIGN / sizeof *line)
        __atomic_store_n(line, __atomic_load_n(line, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* Return whether claiming pays on this processor. */
int mw_claims(void) {
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_is("amd") != 0;
#else
    return 0;
#endif
}

/* Every rank posts all it has, which fits into a slot, and sums all of it. */
static int all_reduce_whole(Group *g) {
    char *data = (char *)g->given[0];
    int64_t count = g->given[1], kind = g->given[2], bytes = count * item_bytes(kind), me = g->rank;
    void *in[MAX_RANKS];
    if (g->phase == 0) {
        if (!free_slots(g, 0)) return 0;
        memcpy(for_others(g, me), data, (size_t)bytes);
        enter(g);
    }
    if (!wait_all(g, g->sequence)) return 0;
    for (int64_t r = 0; r < g->size; r++) in[r] = r == me ? data : for_others(g, r);
    mw_sum(kind, data, in, g->size, count);
    next_chunk(g);
    pass_slots(g);
    return done(g);
}

/* Return how much of a payload all ranks work on between two steps, as `chunk_bytes` of ranks.py does. */
static int64_t chunk_bytes(const Group *g, int64_t payload_bytes) {
    int64_t share = payload_bytes / CHUNKS / ALIGN * ALIGN;
    return least(share > g->least_chunk_bytes ? share : g->least_chunk_bytes, g->slot_bytes);
}

/* Each rank sums one piece of every chunk, and leaves the sum in the slots out of which it took what it summed: what a
 * processor has just read it writes to faster than to what others have read. Everyone fetches the sums from its own slot.
 * The last chunk comes first: of a long tensor that was just written, as a bucket of gradients is, the end is still in
 * the cache. */
static int all_reduce_pieces(Group *g) {
    char *data = (char *)g->given[0];
    int64_t count = g->given[1], kind = g->given[2], item = item_bytes(kind);
    int64_t per_chunk = chunk_bytes(g, count * item) / item, chunks = (count + per_chunk - 1) / per_chunk;
    int64_t line = ALIGN / item, n = g->size, me = g->rank;
    void *in[MAX_RANKS];
    for (; g->chunk < chunks; next_chunk(g)) {
        int64_t start = (chunks - 1 - g->chunk) * per_chunk, length = least(count - start, per_chunk);
        int64_t piece = (length + n * line - 1) / (n * line) * line;
        int64_t low = least(me * piece, length), high = least(low + piece, length);
        char *x = data + start * item;
        if (g->phase == 0) {
            if (!free_slots(g, 0)) return 0;
            char *mine = slot(g, me);
            fill(g, mine, x, low * item);
            fill(g, mine + high * item, x + high * item, (length - high) * item);
            enter(g);
        }
        if (g->phase == 1) {
            if (!wait_all(g, g->sequence)) return 0;
            for (int64_t from = low; from < high; from += NEAR_BYTES / item) {
                int64_t part = least(high - from, NEAR_BYTES / item);
                for (int64_t r = 0; r < n; r++) in[r] = (r == me ? x : slot(g, r)) + from * item;
                mw_sum(kind, x + from * item, in, n, part);
                for (int64_t r = 0; r < n; r++)
                    if (r != me) fill(g, in[r], x + from * item, part * item);
            }
            publish(g);
            g->phase = 2;
        }
        for (; g->phase <= n; g->phase++) { /* phases 2 to n: fetch the pieces of the others */
            int64_t peer = (me + g->phase - 1) % n;
            int64_t first = least(peer * piece, length), last = least(first + piece, length);
            if (!wait_rank(g, peer, g->sequence)) return 0;
            memcpy(x + first * item, slot(g, me) + first * item, (size_t)((last - first) * item));
        }
    }
    pass_slots(g);
    return done(g);
}

/* Sum data of all ranks in place. Given: data, count, kind. */
int mw_all_reduce(Group *g) {
    begin(g);
    return g->given[1] * item_bytes(g->given[2]) <= g->whole_bytes ? all_reduce_whole(g) : all_reduce_pieces(g);
}

/* What of `whole` lies in the chunk from `start` on. */
static inline int64_t part(int64_t whole, int64_t start, int64_t chunk) {
    return whole > start ? least(whole - start, chunk) : 0;
}

static int64_t total(const int64_t *sizes, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += sizes[i];
    return sum;
}

static int64_t largest(const int64_t *sizes, int64_t n) {
    int64_t most = sizes[0];
    for (int64_t i = 1; i < n; i++)
        if (sizes[i] > most) most = sizes[i];
    return most;
}

/* Copy what others sent to where the caller wants it. */
static inline void land(int streams, char *to, const char *from, int64_t length) {
    if (streams) mw_stream(to, from, length);
    else memcpy(to, from, (size_t)length);
}

/* Say whether the others read the source of an all-gather itself; its own target may be the same memory. */
static void say_lent(Group *g, const char *source) {
    g->lends = g->way == READ && g->received[g->rank] > 0;
    for (int64_t r = 0; r < g->size; r++)
        if (r != g->rank && !apart(source, g->received[g->rank], g->targets[r], g->received[r])) g->lends = 0;
    lent_at(g, g->rank)[0] = g->lends ? (uint64_t)source : 0;
    g->lenders += g->lends;
}

/* Copy the source of every rank to everyone's targets; `received` are the sizes of all; a size becomes 0 where all
 * of it was read at once. Given: the source, and a place for the largest size. */
int mw_all_gather(Group *g) {
    const char *source = (const char *)g->given[0];
    int64_t me = g->rank, *most = &g->given[1], pair = g->size == 2;
    int64_t chunk = pair ? g->block_bytes : g->slot_bytes;
    int streams = total(g->received, g->size) >= g->stream_bytes;
    if (!g->begun) *most = largest(g->received, g->size);
    int may_lend = *most >= g->lend_bytes;
    begin(g);
    for (int64_t start; (start = g->chunk * chunk) < *most; next_chunk(g)) {
        if (g->phase == 0) {
            int64_t length = part(g->received[me], start, chunk);
            char *own = g->targets[me];
            if (!free_slots(g, 0)) return 0;
            if (may_lend && start == 0) say_lent(g, source);
            if (!g->lends) fill(g, for_others(g, me), source + start, length);
            enter(g);
            if (g->lends) length = g->received[me], g->received[me] = 0;
            if (own != source) memmove(own + start, source + start, (size_t)length);
        }
        for (; g->phase < g->size; g->phase++) {
            int64_t peer = (me + g->phase) % g->size, length = part(g->received[peer], start, chunk);
            if (!wait_rank(g, peer, g->sequence)) return 0;
            if (may_lend && start == 0 && lent_at(g, peer)[0]) {
                if (!fetch(g, peer, g->targets[peer], lent_at(g, peer)[0], g->received[peer])) return 0;
                g->received[peer] = 0;
                g->lenders++;
                continue;
            }
            land(streams, g->targets[peer] + start, for_others(g, peer), length);
        }
        if (!pair) pass_slots(g);
        if (g->lenders) *most = largest(g->received, g->size);
    }
    if (!give_back(g)) return 0;
    if (pair) pass_slots(g);
    return done(g);
}

/* Sum source j of every rank into the target of rank j; `sent` are the elements of each source. Given: target, kind. */
int mw_reduce_scatter(Group *g) {
    char *target = (char *)g->given[0];
    int64_t kind = g->given[1], item = item_bytes(kind), chunk = g->block_bytes / item;
    int64_t most = largest(g->sent, g->size);
    void *in[MAX_RANKS];
    begin(g);
    for (int64_t start; (start = g->chunk * chunk) < most; next_chunk(g)) {
        if (g->phase == 0) {
            if (!free_slots(g, 0)) return 0;
            for (int64_t i = 1; i < g->size; i++) {
                int64_t peer = (g->rank + i) % g->size, length = part(g->sent[peer], start, chunk) * item;
                fill(g, between(g, g->rank, peer), g->sources[peer] + start * item, length);
            }
            enter(g);
        }
        if (!wait_all(g, g->sequence)) return 0;
        for (int64_t r = 0; r < g->size; r++)
            in[r] = r == g->rank ? g->sources[r] + start * item : between(g, r, g->rank);
        mw_sum(kind, target + start * item, in, g->size, part(g->sent[g->rank], start, chunk));
    }
    pass_slots(g);
    return done(g);
}

/* Return how many bytes of a broadcast fill slots in one of two ways: all where readers would claim and it is too much. */
int64_t mw_broadcast_fills(const Group *g, int64_t size) {
    return g->claim_bytes && least(size, g->slot_bytes) > g->claim_bytes ? size : 0;
}

/* Copy data of the root to everyone's. Given: data, bytes, root. The root is at most as many chunks ahead of the slowest
 * reader as there are slots: short ones, so that it seldom waits for others to read a small message, where that fits. */
int mw_broadcast(Group *g) {
    char *data = (char *)g->given[0];
    int64_t size = g->given[1], root = g->given[2];
    int is_short = size <= SHORT_BYTES, streams = size >= g->stream_bytes;
    int64_t per_chunk = is_short ? SHORT_BYTES : g->slot_bytes;
    begin(g);
    for (int64_t start; (start = g->chunk * per_chunk) < size; g->chunk++) {
        int64_t length = least(size - start, per_chunk);
        if (g->rank == root) {
            if (!free_slots(g, is_short)) return 0;
            fill(g, slot(g, root), data + start, length);
            enter(g);
        } else {
            if (g->phase == 0) {
                take_slots(g, is_short);
                enter(g);
            }
            char *from = slot(g, root);
            if (!wait_rank(g, root, g->sequence)) return 0;
            land(streams, data + start, from, length);
            if (length <= g->claim_bytes) claim(from, length); /* the last one wins */
        }
        pass_slots(g);
        g->phase = 0;
    }
    return done(g);
}

/* Where a rank leaves, in the first step of an all-to-all, how many bytes it sends to each. */
static uint64_t *sent_at(const Group *g, int64_t rank) {
    return g->calls + rank * g->calls_words + CALLS * ENTRY + g->turn * g->size;
}

/* Find out whether the others read what this rank sends where it lies, and say where that is. */
static void lend_sources(Group *g) {
    g->lends = g->way == READ;
    for (int64_t i = 0; g->lends && i < g->size; i++)
        for (int64_t j = 0; j < g->size; j++)
            if ((i != g->rank || j != g->rank) && !apart(g->sources[i], g->sent[i], g->targets[j], g->received[j]))
                g->lends = 0;
    if (!g->lends) return;
    for (int64_t r = 0; r < g->size; r++) lent_at(g, g->rank)[r] = (uint64_t)g->sources[r];
    g->lenders++;
}

/* Return how many steps this rank needs for what it sends, and say so for this step, with what it sends to each. */
static int64_t say_needed(Group *g) {
    int64_t needed = 1, uniform = g->sent[0];
    for (int64_t r = 0; r < g->size; r++) {
        int64_t blocks = r == g->rank || g->lends ? 0 : (g->sent[r] + g->part_bytes - 1) / g->part_bytes;
        if (blocks > needed) needed = blocks;
        if (g->sent[r] != uniform) uniform = -1;
    }
    if (uniform < 0 || uniform > UNIFORM_MOST) {
        uniform = -1;
        for (int64_t r = 0; r < g->size; r++) sent_at(g, g->rank)[r] = (uint64_t)g->sent[r];
    }
    g->counters[g->rank * LINE + g->steps + g->turn] = (uint64_t)(uniform + 1) << NEEDED_BITS | (g->lends ? LENDS : 0) |
                                                        (uint64_t)needed;
    return needed;
}

/* Return how many steps a rank needs, or -1, and which rank it is, where it sends something else than expected. */
static int64_t needed_by(Group *g, int64_t rank) {
    uint64_t said = g->counters[rank * LINE + g->steps + g->turn];
    int64_t uniform = (int64_t)(said >> NEEDED_BITS) - 1;
    int64_t bytes = uniform >= 0 ? uniform : (int64_t)sent_at(g, rank)[g->rank];
    if (bytes == g->received[rank]) return (int64_t)(said & (LENDS - 1));
    g->odd_rank = rank + 1, g->odd_bytes = bytes;
    return -1;
}

/* Copy source j of rank i to target i of rank j; all tables are of bytes. No rank knows all sizes, so each says how many
 * steps it needs, and the largest number counts; it is kept in the place of the first of the given. */
int mw_all_to_all(Group *g) {
    int64_t me = g->rank, *needed = &g->given[0];
    int streams = total(g->received, g->size) >= g->stream_bytes;
    begin(g);
    while (g->chunk == 0 || g->chunk < *needed) {
        int64_t start = g->chunk * g->part_bytes;
        int is_first = g->chunk == 0;
        if (g->phase == 0) {
            if (!free_slots(g, 0)) return 0;
            if (is_first) lend_sources(g);
            for (int64_t i = 1; i < g->size && !g->lends; i++) {
                int64_t peer = (me + i) % g->size, length = part(g->sent[peer], start, g->part_bytes);
                fill(g, between(g, me, peer), g->sources[peer] + start, length);
            }
            if (is_first) *needed = say_needed(g); /* last, as others look at that line too */
            enter(g);
            if (is_first && g->targets[me] != g->sources[me])
                land(streams, g->targets[me], g->sources[me], g->sent[me]);
        }
        for (; g->phase < g->size; g->phase++) {
            int64_t peer = (me + g->phase) % g->size, length = part(g->received[peer], start, g->part_bytes);
            if (!wait_rank(g, peer, g->sequence)) return 0;
            if (is_first) {
                int64_t theirs = needed_by(g, peer);
                if (theirs < 0) return leave_wait(g, peer, g->sequence);
                if (theirs > *needed) *needed = theirs;
                if (g->counters[peer * LINE + g->steps + g->turn] & LENDS) {
                    if (!fetch(g, peer, g->targets[peer], lent_at(g, peer)[me], g->received[peer])) return 0;
                    g->received[peer] = 0; /* it is here */
                    g->lenders++;
                    continue;
                }
            }
            land(streams, g->targets[peer] + start, between(g, peer, me), length);
        }
        next_chunk(g);
    }
    if (!give_back(g)) return 0;
    pass_slots(g);
    return done(g);
}

/* Return when every rank has come. */
int mw_barrier(Group *g) {
    begin(g);
    if (g->phase == 0) {
        publish(g);
        g->phase = 1;
    }
    if (!wait_all(g, g->sequence)) return 0;
    g->seen = g->sequence;
    g->phase = g->begun = 0;
    return 1;
}
