/* What helper.c and calls.c share: the state of one rank in a group, and the collectives that go by it. */
#include <stdint.h>

enum { LONG_SLOTS = 2, SHORT_SLOTS = 16, SHORT_BYTES = 65536 }; /* those of memory.py */
enum { LINE = 16, STATE = 1, HERE = 4, CALL = 7, ACTIVE = 1 };  /* of memory.py and ranks.py */
enum { WORDS = 3, CALLS = 32, ENTRY = 1 + WORDS };              /* of signature.py and memory.py */
enum { F32 = 0, F64 = 1, I32 = 2, I64 = 3, BF16 = 4 };          /* the element types of sums */
enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, BARRIER, COLLECTIVES }; /* as in helper.py */
enum { CHUNKS = 16 };                                           /* of ranks.py */
enum { SIZES = 64 };                                            /* as many powers of two */

enum { THROUGH, PAST, READ }; /* the ways of slot_stores.py: slots filled through the caches, past them, or not at all */

/* The way that was found for a collective and size, and for how many calls it is still to be taken. */
typedef struct {
    int64_t calls, way;
} Settled;

typedef struct {
    /* Where the steps are, by the rules of ranks.py; Python works on these too. */
    uint64_t sequence;      /* of the last step that this rank entered */
    uint64_t seen;          /* every counter is known to be at least this */
    int64_t turn;           /* the slots of the last step */
    int64_t longs, shorts;  /* how often long slots were passed on, and short ones */
    uint64_t laps[LONG_SLOTS]; /* how many chunks have gone through a long slot: odd where pairs of ranks have crossed */
    uint64_t free_at[LONG_SLOTS + SHORT_SLOTS]; /* what every counter must reach before a slot may be filled again */
    /* What this rank calls, by the rules of agreement.py. */
    uint64_t first;        /* the step that the last collective began with */
    uint64_t chain;        /* the number that says what it is, and all before it */
    uint64_t asked[WORDS]; /* what it is */
    /* Of every call: what it was given, and where an interrupted one goes on; both 0 between calls. */
    int64_t given[3];
    int64_t chunk, phase;
    int64_t begun; /* whether it has been said to the others what it is */
    int64_t lends; /* whether the others read this rank's own memory in it, in place of its slot */
    int64_t lenders; /* how many ranks do so */
    /* Of the group: tables for what a call gives for each rank, and what never changes. */
    char **sources, **targets;
    int64_t *sent, *received; /* bytes or elements */
    uint64_t *counters;
    uint64_t *calls; /* of every rank the last `CALLS` collectives, and what it sends to each in an all-to-all, and where
                      * that lies in its memory */
    int64_t *pids;   /* of the ranks */
    int64_t lend_bytes; /* from here on a rank says in an all-gather whether it lends */
    int64_t calls_words; /* from one rank's to the next rank's */
    char *slots;
    int64_t slot_bytes, own_bytes; /* own_bytes: from one rank's slots to the next rank's */
    int64_t part_bytes;            /* of a slot, for one reader */
    int64_t block_bytes;           /* of such a part that is filled at once, but for all-to-all */
    int64_t least_chunk_bytes;     /* of an all-reduce, in all its pieces */
    int64_t whole_bytes;           /* up to here every rank reads all that the others have to be reduced */
    int64_t stream_bytes;          /* results from here on leave the caches to others */
    int64_t claim_bytes;           /* up to here the readers of a broadcast claim what they read; 0: they do not */
    int64_t steps;                 /* where a rank says, for each long slot, how many steps it needs */
    int64_t rank, size;
    int64_t spins, yield_ns, patience_ns;
    uint64_t awaited_rank, awaited_number;
    Settled settled[COLLECTIVES][SIZES];
    int64_t way;       /* of the call */
    int64_t clocked;   /* whether to find out the next */
    int64_t waited_ns; /* of this thread's processor time, spent on waiting */
    int64_t place;     /* where a rank says, in its line of counters, which processor it runs on; 0: it does not say */
    int64_t waits;     /* that did not end at once, in a group that says */
    int64_t odd_rank, odd_bytes; /* one more than the rank that sends something else than this one expects, and how much */
    int64_t unread_rank; /* one more than the rank whose memory could not be read */
} Group;

/* Return a number made of two, as `mix` of signature.py does. */
static inline uint64_t mw_mix(uint64_t number, uint64_t other) {
    number = (number ^ other) * 0x9E3779B97F4A7C15u; /* odd, so that no two become one; 2^64 by the golden ratio */
    return number ^ number >> 32;
}

/* Return whether a counter has reached its target, after `patience_ns` at most. */
int mw_wait(const uint64_t *counter, uint64_t target, int64_t spins, int64_t yield_ns, int64_t patience_ns);

/* Each does a collective on what the group was given, and returns 1 once it is done, 0 when patience is at an end: then
 * it goes on where it was when it is called again. Blocks; all ranks. */
int mw_all_reduce(Group *g);
int mw_all_gather(Group *g);
int mw_reduce_scatter(Group *g);
int mw_broadcast(Group *g);
int64_t mw_broadcast_fills(const Group *g, int64_t size);
int mw_all_to_all(Group *g);
int mw_barrier(Group *g);
