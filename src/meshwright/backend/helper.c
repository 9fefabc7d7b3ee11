/* The optional helper of the shared-memory engine: waiting, sums, the whole of the reductions that sum and of all-gather,
 * and those collectives that fit into one step.
 *
 * It follows the same steps as the Python code (see local.py and local_reduce.py), so that ranks with and without it
 * work together. Counters are published with release and read with acquire, which orders the slots' contents on weakly
 * ordered processors (Arm) too: a reader that sees a counter sees all that was written before it.
 *
 * A wait that takes longer than `patience_ns` returns to Python, which looks for dead ranks and calls again; `chunk`
 * and `phase` say where to go on.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bf16.h"

enum { LINE = 16, F32 = 0, F64 = 1, I32 = 2, I64 = 3, BF16 = 4, MAX_RANKS = 256, TILE = 2048, ALIGN = 64 };
enum { FIRST_NAP_NS = 50000, LAST_NAP_NS = 1000000 };

typedef struct {
    uint64_t *counters;
    char *slots;
    int64_t slot_bytes, own_bytes; /* own_bytes: from one rank's slots to the next rank's */
    int64_t rank, size;
    int64_t spins, yield_ns, patience_ns;
    int64_t chunk, phase; /* where an interrupted collective goes on */
    uint64_t awaited_rank, awaited_number;
    int64_t streams;   /* whether slots are filled past the caches */
    int64_t clocked;   /* whether to find out the next */
    int64_t waited_ns; /* of this thread's processor time, spent on waiting */
} Group;

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

static int wait_rank(Group *g, int64_t rank, uint64_t target) {
    const uint64_t *counter = g->counters + rank * LINE;
    if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) >= target) return 1;
    int64_t start = g->clocked ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
    int reached = mw_wait(counter, target, g->spins, g->yield_ns, g->patience_ns);
    if (g->clocked) g->waited_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    if (reached) return 1;
    g->awaited_rank = (uint64_t)rank;
    g->awaited_number = target;
    return 0;
}

static int wait_all(Group *g, uint64_t target) {
    for (int64_t i = 1; i < g->size; i++)
        if (!wait_rank(g, (g->rank + i) % g->size, target)) return 0;
    return 1;
}

/* Return 1 once every counter has reached `free_at`; all are known to have reached `seen`. */
static int may_fill(Group *g, uint64_t free_at, uint64_t seen) { return seen >= free_at || wait_all(g, free_at); }

static void publish(Group *g, uint64_t number) {
    __atomic_store_n(g->counters + g->rank * LINE, number, __ATOMIC_RELEASE);
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

static inline char *slot(const Group *g, int64_t rank, int64_t turn) {
    return g->slots + rank * g->own_bytes + turn * g->slot_bytes;
}

/* Write what others will read. Where processors share a cache, it goes through it; where they do not, fetching what lies
 * in another's cache takes longer than from memory. Which of the two is so, helper.py finds out. */
static inline void fill(const Group *g, char *to, const char *from, int64_t length) {
    if (g->streams) mw_stream(to, from, length);
    else memcpy(to, from, (size_t)length);
}

/* Every rank posts all it has, a slot at a time, and sums all of it. */
int mw_all_reduce_whole(Group *g, char *data, int64_t count, int64_t kind, uint64_t sequence, int64_t turn,
                        uint64_t free0, uint64_t free1, uint64_t seen) {
    int64_t item = item_bytes(kind), per_chunk = g->slot_bytes / item;
    uint64_t free_at[2] = {free0, free1};
    void *in[MAX_RANKS];
    for (int64_t c = 0, start = 0; start < count; c++, start += per_chunk) {
        int64_t length = count - start < per_chunk ? count - start : per_chunk;
        char *x = data + start * item;
        turn ^= 1;
        sequence++;
        if (c >= g->chunk) {
            if (g->phase == 0) {
                if (!may_fill(g, free_at[turn], seen)) return 0;
                fill(g, slot(g, g->rank, turn), x, length * item);
                publish(g, sequence);
                g->phase = 1;
            }
            if (!wait_all(g, sequence)) return 0;
            for (int64_t r = 0; r < g->size; r++) in[r] = r == g->rank ? x : slot(g, r, turn);
            mw_sum(kind, x, in, g->size, length);
            g->phase = 0;
            g->chunk = c + 1;
        }
        seen = sequence;
        free_at[turn] = sequence + 1;
    }
    g->chunk = g->phase = 0;
    return 1;
}

/* Each rank sums one piece of every chunk, and the others fetch it. */
int mw_all_reduce_pieces(Group *g, char *data, int64_t count, int64_t kind, uint64_t sequence, int64_t turn,
                         uint64_t free0, uint64_t free1, uint64_t seen) {
    int64_t item = item_bytes(kind), per_chunk = g->slot_bytes / item, line = ALIGN / item, n = g->size, me = g->rank;
    uint64_t free_at[2] = {free0, free1};
    void *in[MAX_RANKS];
    for (int64_t c = 0, start = 0; start < count; c++, start += per_chunk) {
        int64_t length = count - start < per_chunk ? count - start : per_chunk;
        int64_t piece = (length + n * line - 1) / (n * line) * line;
        int64_t low = me * piece < length ? me * piece : length;
        int64_t high = low + piece < length ? low + piece : length;
        char *x = data + start * item;
        turn ^= 1;
        sequence += 2;
        if (c >= g->chunk) {
            char *mine = slot(g, me, turn);
            if (g->phase == 0) {
                if (!may_fill(g, free_at[turn], seen)) return 0;
                fill(g, mine, x, low * item);
                fill(g, mine + high * item, x + high * item, (length - high) * item);
                publish(g, sequence - 1);
                g->phase = 1;
            }
            if (g->phase == 1) {
                if (!wait_all(g, sequence - 1)) return 0;
                for (int64_t from = low; from < high; from += TILE) { /* both copies while it is in the nearest cache */
                    int64_t part = high - from < TILE ? high - from : TILE;
                    for (int64_t r = 0; r < n; r++) in[r] = (r == me ? x : slot(g, r, turn)) + from * item;
                    mw_sum(kind, x + from * item, in, n, part);
                    fill(g, mine + from * item, x + from * item, part * item);
                }
                publish(g, sequence);
                g->phase = 2;
            }
            for (; g->phase <= n; g->phase++) { /* phases 2 to n: fetch the pieces of the others */
                int64_t peer = (me + g->phase - 1) % n;
                int64_t first = peer * piece < length ? peer * piece : length;
                int64_t last = first + piece < length ? first + piece : length;
                if (!wait_rank(g, peer, sequence)) return 0;
                memcpy(x + first * item, slot(g, peer, turn) + first * item, (size_t)((last - first) * item));
            }
            g->phase = 0;
            g->chunk = c + 1;
        }
        seen = sequence;
        free_at[turn] = sequence + 1;
    }
    g->chunk = g->phase = 0;
    return 1;
}

/* What of `whole` lies in the chunk from `start` on. */
static inline int64_t part(int64_t whole, int64_t start, int64_t chunk) {
    return whole - start < chunk ? (whole > start ? whole - start : 0) : chunk;
}

/* The part of a slot that is for one reader; the owner itself has none. */
static char *block(const Group *g, int64_t owner, int64_t turn, int64_t reader, int64_t block_bytes) {
    return slot(g, owner, turn) + (reader - (reader > owner)) * block_bytes;
}

/* Copy `source` of every rank to everyone's `targets`; `sizes` in bytes, by rank, `most` the largest; `streams`: past
 * the caches. */
int mw_all_gather(Group *g, const char *source, char *const *targets, const int64_t *sizes, int64_t most,
                  int64_t streams, uint64_t sequence, int64_t turn, uint64_t free0, uint64_t free1, uint64_t seen) {
    uint64_t free_at[2] = {free0, free1};
    for (int64_t c = 0, start = 0; start < most; c++, start += g->slot_bytes) {
        turn ^= 1;
        sequence++;
        if (c >= g->chunk) {
            if (g->phase == 0) {
                int64_t length = part(sizes[g->rank], start, g->slot_bytes);
                if (!may_fill(g, free_at[turn], seen)) return 0;
                fill(g, slot(g, g->rank, turn), source + start, length);
                publish(g, sequence);
                if (targets[g->rank] != source) memmove(targets[g->rank] + start, source + start, (size_t)length);
                g->phase = 1;
            }
            for (; g->phase < g->size; g->phase++) {
                int64_t peer = (g->rank + g->phase) % g->size, length = part(sizes[peer], start, g->slot_bytes);
                if (!wait_rank(g, peer, sequence)) return 0;
                if (streams) mw_stream(targets[peer] + start, slot(g, peer, turn), length);
                else memcpy(targets[peer] + start, slot(g, peer, turn), (size_t)length);
            }
            g->phase = 0;
            g->chunk = c + 1;
        }
        seen = sequence;
        free_at[turn] = sequence + 1;
    }
    g->chunk = g->phase = 0;
    return 1;
}

/* Sum block j of every rank, at sources[j], into `target` on rank j; `counts` of elements, by rank, `most` the
 * largest. */
int mw_reduce_scatter(Group *g, char *const *sources, char *target, const int64_t *counts, int64_t most, int64_t kind,
                      int64_t block_bytes, uint64_t sequence, int64_t turn, uint64_t free0, uint64_t free1,
                      uint64_t seen) {
    int64_t item = item_bytes(kind), chunk = block_bytes / item;
    uint64_t free_at[2] = {free0, free1};
    void *in[MAX_RANKS];
    for (int64_t c = 0, start = 0; start < most; c++, start += chunk) {
        turn ^= 1;
        sequence++;
        if (c >= g->chunk) {
            if (g->phase == 0) {
                if (!may_fill(g, free_at[turn], seen)) return 0;
                for (int64_t i = 1; i < g->size; i++) {
                    int64_t peer = (g->rank + i) % g->size, length = part(counts[peer], start, chunk) * item;
                    fill(g, block(g, g->rank, turn, peer, block_bytes), sources[peer] + start * item, length);
                }
                publish(g, sequence);
                g->phase = 1;
            }
            if (!wait_all(g, sequence)) return 0;
            for (int64_t r = 0; r < g->size; r++)
                in[r] = r == g->rank ? sources[r] + start * item : block(g, r, turn, g->rank, block_bytes);
            mw_sum(kind, target + start * item, in, g->size, part(counts[g->rank], start, chunk));
            g->phase = 0;
            g->chunk = c + 1;
        }
        seen = sequence;
        free_at[turn] = sequence + 1;
    }
    g->chunk = g->phase = 0;
    return 1;
}

/* The collectives of one step: what is sent fits into a slot. `number` is the step's, `free_at` what every counter must
 * have reached before the slot may be filled, `seen` what they are known to have reached. */

/* Copy `data` of the root to everyone's. */
int mw_broadcast(Group *g, char *data, int64_t length, int64_t root, uint64_t number, int64_t turn, uint64_t free_at,
                 uint64_t seen) {
    if (g->rank == root) {
        if (!may_fill(g, free_at, seen)) return 0;
        memcpy(slot(g, root, turn), data, (size_t)length);
        publish(g, number);
        return 1;
    }
    publish(g, number);
    if (!wait_rank(g, root, number)) return 0;
    memcpy(data, slot(g, root, turn), (size_t)length);
    return 1;
}

/* The first step of an all-to-all. `steps` lies after each counter, one for each slot: how many steps a rank needs; the
 * largest is left in `chunk`. */
int mw_all_to_all(Group *g, char *const *sources, const int64_t *sent, char *const *targets, const int64_t *received,
                  int64_t block_bytes, int64_t steps, uint64_t number, int64_t turn, uint64_t free_at, uint64_t seen) {
    if (g->phase == 0) {
        if (!may_fill(g, free_at, seen)) return 0;
        g->counters[g->rank * LINE + steps + turn] = 1;
        for (int64_t i = 1; i < g->size; i++) {
            int64_t peer = (g->rank + i) % g->size;
            memcpy(block(g, g->rank, turn, peer, block_bytes), sources[peer], (size_t)sent[peer]);
        }
        publish(g, number);
        memmove(targets[g->rank], sources[g->rank], (size_t)sent[g->rank]);
        g->phase = 1;
        g->chunk = 1;
    }
    for (; g->phase < g->size; g->phase++) {
        int64_t peer = (g->rank + g->phase) % g->size;
        if (!wait_rank(g, peer, number)) return 0;
        int64_t needed = (int64_t)g->counters[peer * LINE + steps + turn];
        int64_t length = received[peer] < block_bytes ? received[peer] : block_bytes;
        if (needed > g->chunk) g->chunk = needed;
        memcpy(targets[peer], block(g, peer, turn, g->rank, block_bytes), (size_t)length);
    }
    g->phase = 0;
    return 1;
}
