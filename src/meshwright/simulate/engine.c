/* The event engine of engine.py in C: the same moments, the same shares, but only what changes is shared anew.

   When activities begin or end, the smallest set that must be shared anew is found from outside in: those that began,
   and those held back by a resource on which something began or ended. They are filled up progressively with all other
   rates left as they are. Then every resource that they touch is looked at: an activity outside the set that is no
   longer held back where it was, or that takes more than its fair share there, joins the set, and the filling is done
   again. When nobody joins, every activity is held back by a full resource on which none is faster: that allocation is
   the max-min fair one, and there is only one.

   Of a resource with room to spare only sums are looked at, never the list of those that use it. What changes while an
   activity is under way lies in a slot that is used again after its end, so memory in use grows with what is under way
   at once, not with all activities of the program. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SAME 1e-12  /* moments closer than this are one, as in engine.py */
#define FAIR 1e-11  /* relative difference of rates that counts as none */
#define NONE (-1)
#define LINE 64 /* bytes of a cache line */
#define LARGE_PAGE (2u << 20)

typedef int64_t i64;
typedef int32_t i32;

/* What the program says of an activity and when it was, side by side: activities come in no order that memory knows. */
typedef struct {
    double work, delay, start, end;
    i32 first_use, uses;
    i32 first_signal, signals;
    i32 waiting; /* gates that it still waits for */
    char padding[LINE - 52];
} Task;

/* One resource that a task takes of; those without a limit hold nobody back and are left out. */
typedef struct {
    double weight;
    i32 resource;
} Demand;

typedef struct {
    i32 missing; /* signals that it still waits for */
    i32 first, count; /* of the tasks that it lets go */
} Gate;

/* An activity between its release and its end. */
typedef struct {
    double rate, left, since;
    double fresh;         /* the rate that a filling gives it */
    i64 id;
    i32 held, fresh_held; /* the resource that holds it back, or NONE */
    i32 uses;             /* the first of its uses */
    i32 place;            /* in the heap of moments; NONE before it is there */
    char under_way, chosen, frozen;
} Flow;

/* An activity under way on one resource. */
typedef struct {
    double weight;
    i32 resource, flow;
    i32 sibling;    /* the next use of the same activity; of a free one, the next free one */
    i32 next, prev; /* on the same resource */
} Use;

typedef struct {
    double capacity;
    double used;        /* what those under way take */
    double level;       /* the rate of those that it holds back */
    i32 head;           /* the first use by an activity under way */
    i32 users, holds;   /* activities under way on it, and those of them that it holds back */
    i32 changes;        /* of `used` since it was summed up */
    i32 open, released; /* of a filling: chosen ones not frozen yet, and chosen ones that it held back until now */
    char listed;
    double room, demand; /* of a filling, as all that follow */
    double share, taken, fastest, limit;
    char padding[2 * LINE - 104];
} Resource;

typedef struct {
    double burst;
    double debt, since; /* what it gave that did not come back yet, and since when */
    double used;        /* of its rate, since then */
} Bucket;

typedef struct {
    double key;
    i32 flow;
} Moment;

typedef struct {
    i64 n, m, g;
    const double *ready;
    const i64 *release_item, *signal_item;
    Task *tasks;
    Demand *demands;
    Gate *gates;
    Bucket *buckets; /* of each resource, or NULL */
    Flow *flows;
    Use *uses;
    Resource *resources;
    i32 flow_count, *free_flows, free_flow_count;
    i32 use_count, free_use;
    Moment *heap; /* of the next event of each activity */
    i32 heap_size;
    i32 *began, began_size, *touched, touched_size, *set, set_size;
    i32 *full, full_size; /* a heap of resources by their share, lazily updated */
} Engine;

static void put(Engine *e, i32 at, Moment moment) {
    e->heap[at] = moment;
    e->flows[moment.flow].place = at;
}

static void sift_up(Engine *e, i32 at) {
    Moment moved = e->heap[at];
    while (at > 0) {
        i32 above = (at - 1) / 2;
        if (e->heap[above].key <= moved.key) break;
        put(e, at, e->heap[above]);
        at = above;
    }
    put(e, at, moved);
}

static void sift_down(Engine *e, i32 at) {
    Moment moved = e->heap[at];
    for (;;) {
        i32 below = 2 * at + 1;
        if (below >= e->heap_size) break;
        if (below + 1 < e->heap_size && e->heap[below + 1].key < e->heap[below].key) below++;
        if (e->heap[below].key >= moved.key) break;
        put(e, at, e->heap[below]);
        at = below;
    }
    put(e, at, moved);
}

static void schedule(Engine *e, i32 flow, double moment) {
    i32 at = e->flows[flow].place;
    if (at == NONE) {
        at = e->heap_size++;
        e->heap[at] = (Moment){moment, flow};
        sift_up(e, at);
        return;
    }
    double before = e->heap[at].key;
    e->heap[at].key = moment;
    if (moment < before) sift_up(e, at);
    else sift_down(e, at);
}

static i32 pop(Engine *e) {
    i32 flow = e->heap[0].flow;
    Moment last = e->heap[--e->heap_size];
    e->flows[flow].place = NONE;
    if (e->heap_size > 0) {
        e->heap[0] = last;
        sift_down(e, 0);
    }
    return flow;
}

static void release(Engine *e, i64 id, double now) {
    i32 slot = e->free_flow_count ? e->free_flows[--e->free_flow_count] : e->flow_count++;
    double begin = e->ready && e->ready[id] > now ? e->ready[id] : now;
    e->flows[slot] = (Flow){.id = id, .held = NONE, .fresh_held = NONE, .uses = NONE, .place = NONE};
    Task *task = &e->tasks[id];
    task->start = begin;
    __builtin_prefetch(&e->demands[task->first_use]);
    __builtin_prefetch(&e->signal_item[task->first_signal]);
    schedule(e, slot, begin + task->delay);
}

static void open_gate(Engine *e, const Gate *gate, double now) {
    for (i32 r = gate->first; r < gate->first + gate->count; r++)
        if (!--e->tasks[e->release_item[r]].waiting) release(e, e->release_item[r], now);
}

static void finish(Engine *e, i32 slot, double now) {
    Task *task = &e->tasks[e->flows[slot].id];
    e->free_flows[e->free_flow_count++] = slot;
    task->end = now;
    for (i32 s = 0; s < task->signals; s++) {
        Gate *gate = &e->gates[e->signal_item[task->first_signal + s]];
        if (!--gate->missing) open_gate(e, gate, now);
    }
}

static void touch(Engine *e, i32 resource) {
    if (e->resources[resource].listed) return;
    e->resources[resource].listed = 1;
    e->touched[e->touched_size++] = resource;
}

/* Let an activity take its share from now on. */
static void begin(Engine *e, i32 slot, double now) {
    Flow *f = &e->flows[slot];
    const Task *task = &e->tasks[f->id];
    f->under_way = 1;
    f->left = task->work;
    f->since = now;
    e->began[e->began_size++] = slot;
    for (i32 u = 0; u < task->uses; u++) {
        const Demand *demand = &e->demands[task->first_use + u];
        Resource *r = &e->resources[demand->resource];
        i32 at = e->free_use;
        if (at == NONE) at = e->use_count++;
        else e->free_use = e->uses[at].sibling;
        e->uses[at] = (Use){demand->weight, demand->resource, slot, f->uses, r->head, NONE};
        if (r->head != NONE) e->uses[r->head].prev = at;
        r->head = f->uses = at;
        r->users++;
    }
}

static void sum_up(Engine *e, Resource *r) {
    r->used = 0;
    r->changes = 0;
    for (i32 u = r->head; u != NONE; u = e->uses[u].next) r->used += e->uses[u].weight * e->flows[e->uses[u].flow].rate;
}

/* Change what is taken of a resource; rounding does not pile up, for now and then it is summed up. */
static void take(Engine *e, Resource *r, double more) {
    r->used += more;
    if (++r->changes > r->users + 16) sum_up(e, r);
}

static void leave(Engine *e, i32 slot) {
    Flow *f = &e->flows[slot];
    double rate = f->rate;
    f->rate = 0;
    f->under_way = 0;
    if (f->held != NONE) e->resources[f->held].holds--;
    for (i32 u = f->uses, following; u != NONE; u = following) {
        Use *use = &e->uses[u];
        Resource *r = &e->resources[use->resource];
        following = use->sibling;
        if (use->prev != NONE) e->uses[use->prev].next = use->next;
        else r->head = use->next;
        if (use->next != NONE) e->uses[use->next].prev = use->prev;
        r->users--;
        take(e, r, -use->weight * rate);
        touch(e, use->resource);
        use->sibling = e->free_use;
        e->free_use = u;
    }
}

static void choose(Engine *e, i32 slot) {
    Flow *f = &e->flows[slot];
    if (f->chosen) return;
    f->chosen = 1;
    e->set[e->set_size++] = slot;
    for (i32 u = f->uses; u != NONE; u = e->uses[u].sibling) touch(e, e->uses[u].resource);
}

/* Choose all that a resource holds back. */
static void choose_held(Engine *e, i32 resource) {
    if (!e->resources[resource].holds) return;
    for (i32 u = e->resources[resource].head; u != NONE; u = e->uses[u].next)
        if (e->flows[e->uses[u].flow].held == resource) choose(e, e->uses[u].flow);
}

static double share_of(const Resource *r) { return (r->room > 0 ? r->room : 0) / r->demand; }

static void full_down(Engine *e, i32 at) {
    i32 moved = e->full[at];
    double share = e->resources[moved].share;
    for (;;) {
        i32 below = 2 * at + 1;
        if (below >= e->full_size) break;
        if (below + 1 < e->full_size && e->resources[e->full[below + 1]].share < e->resources[e->full[below]].share) below++;
        if (e->resources[e->full[below]].share >= share) break;
        e->full[at] = e->full[below];
        at = below;
    }
    e->full[at] = moved;
}

/* Give each chosen activity on a resource that it fills this share. */
static void freeze(Engine *e, i32 resource, double share) {
    e->resources[resource].limit = share;
    for (i32 u = e->resources[resource].head; u != NONE && e->resources[resource].open; u = e->uses[u].next) {
        Flow *f = &e->flows[e->uses[u].flow];
        if (!f->chosen || f->frozen) continue;
        f->frozen = 1;
        f->fresh = share;
        f->fresh_held = resource;
        for (i32 v = f->uses; v != NONE; v = e->uses[v].sibling) {
            Resource *r = &e->resources[e->uses[v].resource];
            r->room -= e->uses[v].weight * share;
            r->demand -= e->uses[v].weight;
            r->open--;
            r->taken += e->uses[v].weight * share;
            if (share > r->fastest) r->fastest = share;
        }
    }
}

/* Fill up the chosen activities, all others as they are. */
static void fill(Engine *e) {
    for (i32 t = 0; t < e->touched_size; t++) {
        Resource *r = &e->resources[e->touched[t]];
        r->taken = r->used;
        r->demand = r->fastest = 0;
        r->open = r->released = 0;
        r->limit = INFINITY;
    }
    for (i32 s = 0; s < e->set_size; s++) {
        Flow *f = &e->flows[e->set[s]];
        f->frozen = 0;
        f->fresh = INFINITY;
        f->fresh_held = NONE;
        if (f->held != NONE) e->resources[f->held].released++;
        for (i32 u = f->uses; u != NONE; u = e->uses[u].sibling) {
            Resource *r = &e->resources[e->uses[u].resource];
            r->taken -= e->uses[u].weight * f->rate;
            r->demand += e->uses[u].weight;
            r->open++;
        }
    }
    e->full_size = 0;
    for (i32 t = 0; t < e->touched_size; t++) {
        Resource *r = &e->resources[e->touched[t]];
        r->room = r->capacity - r->taken;
        if (!r->open) continue;
        r->share = share_of(r);
        e->full[e->full_size++] = e->touched[t];
    }
    for (i32 i = e->full_size / 2 - 1; i >= 0; i--) full_down(e, i);
    while (e->full_size) {
        i32 first = e->full[0];
        Resource *r = &e->resources[first];
        double share = r->open ? share_of(r) : 0;
        if (r->open && share > r->share) { /* others on it were frozen since: it comes later */
            r->share = share;
            full_down(e, 0);
            continue;
        }
        e->full[0] = e->full[--e->full_size];
        if (e->full_size) full_down(e, 0);
        if (r->open) freeze(e, first, share);
    }
}

/* Let those join that the filling does wrong; return how many. */
static i32 widen(Engine *e) {
    i32 before = e->set_size, resources = e->touched_size;
    for (i32 t = 0; t < resources; t++) {
        i32 number = e->touched[t];
        Resource *r = &e->resources[number];
        int full = r->taken >= r->capacity * (1 - FAIR);
        int loose = r->holds > r->released && (!full || r->level < r->fastest * (1 - FAIR));
        int unfair = isfinite(r->limit) && (!r->holds || r->level > r->limit * (1 + FAIR));
        for (i32 u = loose || unfair ? r->head : NONE; u != NONE; u = e->uses[u].next) {
            const Flow *f = &e->flows[e->uses[u].flow];
            if (f->chosen) continue;
            if ((loose && f->held == number) || f->rate > r->limit * (1 + FAIR)) choose(e, e->uses[u].flow);
        }
    }
    return e->set_size - before;
}

/* Let a chosen activity go at its new rate. */
static void change(Engine *e, i32 slot, double now) {
    Flow *f = &e->flows[slot];
    f->chosen = 0;
    if (f->held != f->fresh_held) {
        if (f->held != NONE) e->resources[f->held].holds--;
        if (f->fresh_held != NONE) e->resources[f->fresh_held].holds++;
        f->held = f->fresh_held;
    }
    if (f->held != NONE) e->resources[f->held].level = f->fresh;
    if (f->fresh == f->rate) return;
    double moved = f->rate * (now - f->since), more = f->fresh - f->rate;
    f->left = f->left > moved ? f->left - moved : 0;
    f->since = now;
    f->rate = f->fresh;
    for (i32 u = f->uses; u != NONE; u = e->uses[u].sibling)
        take(e, &e->resources[e->uses[u].resource], e->uses[u].weight * more);
    schedule(e, slot, f->rate > 0 ? now + f->left / f->rate : INFINITY);
}

/* Let a token bucket fill up with what was not used of its rate. */
static void fill_bucket(Engine *e, i32 resource, double now) {
    Bucket *b = &e->buckets[resource];
    double back = (e->resources[resource].capacity - b->used) * (now - b->since);
    b->debt = b->debt > back ? b->debt - back : 0;
    b->since = now;
}

static void share_anew(Engine *e, double now) {
    i32 dirty = e->touched_size;
    e->set_size = 0;
    for (i32 t = 0; t < dirty; t++) choose_held(e, e->touched[t]);
    for (i32 b = 0; b < e->began_size; b++) {
        choose(e, e->began[b]);
        for (i32 u = e->flows[e->began[b]].uses; u != NONE; u = e->uses[u].sibling) choose_held(e, e->uses[u].resource);
    }
    if (e->set_size) {
        do fill(e);
        while (widen(e));
    }
    for (i32 s = 0; s < e->set_size; s++) change(e, e->set[s], now);
    for (i32 b = 0; b < e->began_size; b++)
        if (e->flows[e->began[b]].place == NONE) schedule(e, e->began[b], INFINITY); /* of rate 0: a cut link */
    for (i32 t = 0; t < e->touched_size; t++) {
        i32 r = e->touched[t];
        e->resources[r].listed = 0;
        if (!e->buckets) continue;
        fill_bucket(e, r, now);
        e->buckets[r].used = e->resources[r].used;
    }
    e->began_size = e->touched_size = 0;
}

static const Flow *flows_to_sort;

static int by_number(const void *a, const void *b) {
    i64 x = flows_to_sort[*(const i32 *)a].id, y = flows_to_sort[*(const i32 *)b].id;
    return (x > y) - (x < y);
}

/* Let what began take the tokens that are left, the first come first; end what is done by that. */
static void spend_tokens(Engine *e, double now) {
    i32 kept = 0;
    flows_to_sort = e->flows;
    qsort(e->began, (size_t)e->began_size, sizeof(i32), by_number);
    for (i32 b = 0; b < e->began_size; b++) {
        i32 slot = e->began[b];
        Flow *f = &e->flows[slot];
        double free = f->uses == NONE ? 0 : f->left;
        for (i32 u = f->uses; u != NONE; u = e->uses[u].sibling) {
            const Bucket *bucket = &e->buckets[e->uses[u].resource];
            fill_bucket(e, e->uses[u].resource, now);
            double tokens = (bucket->burst - bucket->debt) / e->uses[u].weight;
            if (tokens < free) free = tokens;
        }
        if (free < 0) free = 0;
        for (i32 u = f->uses; u != NONE; u = e->uses[u].sibling)
            e->buckets[e->uses[u].resource].debt += free * e->uses[u].weight;
        f->left -= free;
        if (f->left > 0) {
            e->began[kept++] = slot;
        } else {
            leave(e, slot);
            finish(e, slot, now);
        }
    }
    e->began_size = kept;
}

static void loop(Engine *e) {
    for (i64 id = 0; id < e->n; id++)
        if (!e->tasks[id].waiting) release(e, id, 0);
    for (i64 gate = 0; gate < e->g; gate++) /* those that nothing signals are open from the start */
        if (e->gates[gate].missing == NONE) open_gate(e, &e->gates[gate], 0);
    while (e->heap_size && isfinite(e->heap[0].key)) {
        double now = e->heap[0].key;
        while (e->heap_size && e->heap[0].key <= now * (1 + SAME)) {
            i32 slot = pop(e);
            if (e->heap_size) __builtin_prefetch(&e->tasks[e->flows[e->heap[0].flow].id]);
            if (e->flows[slot].under_way) {
                leave(e, slot);
                finish(e, slot, now);
            } else if (e->tasks[e->flows[slot].id].work > 0) {
                begin(e, slot, now);
            } else {
                finish(e, slot, now);
            }
        }
        if (e->buckets) spend_tokens(e, now);
        share_anew(e, now);
    }
}

/* Return memory that begins with a cache line, not cleared; in large pages where there is much of it. */
static void *room_for(i64 count, size_t size, int *failed) {
    size_t bytes = (size_t)count * size, unit = bytes < LARGE_PAGE ? LINE : LARGE_PAGE;
    size_t whole = (bytes / unit + 1) * unit;
    void *memory = aligned_alloc(unit, whole);
    if (!memory) *failed = 1;
#ifdef MADV_HUGEPAGE
    else if (unit == LARGE_PAGE) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    return memory;
}

/* Fill start and end (given as infinite); return 0, or 1 if there is not enough memory (or there are 2^31 uses). */
int mw_simulate(i64 n, i64 m, i64 g, const double *work, const double *delay, const double *ready, const i64 *use_start,
                const i64 *use_item, const double *weight, const double *capacity, const double *burst,
                const i64 *release_start, const i64 *release_item, const i64 *signal_start, const i64 *signal_item,
                double *start, double *end) {
    i64 uses = use_start[n];
    if (n > INT32_MAX || m > INT32_MAX || g > INT32_MAX || uses > INT32_MAX) return 1;
    if (release_start[g] > INT32_MAX || signal_start[n] > INT32_MAX) return 1;
    int failed = 0;
    Engine e = {.n = n, .m = m, .g = g, .ready = ready, .release_item = release_item, .signal_item = signal_item,
                .free_use = NONE};
    struct { void **field; i64 count; size_t size; } fields[] = {
        {(void **)&e.tasks, n, sizeof(Task)}, {(void **)&e.demands, uses, sizeof(Demand)},
        {(void **)&e.gates, g, sizeof(Gate)}, {(void **)&e.flows, n, sizeof(Flow)},
        {(void **)&e.uses, uses, sizeof(Use)}, {(void **)&e.resources, m, sizeof(Resource)},
        {(void **)&e.buckets, burst ? m : 0, sizeof(Bucket)}, {(void **)&e.free_flows, n, sizeof(i32)},
        {(void **)&e.heap, n, sizeof(Moment)}, {(void **)&e.began, n, sizeof(i32)},
        {(void **)&e.touched, m, sizeof(i32)}, {(void **)&e.set, n, sizeof(i32)}, {(void **)&e.full, m, sizeof(i32)},
    };
    const int count = sizeof fields / sizeof *fields;
    for (int f = 0; f < count; f++) *fields[f].field = room_for(fields[f].count, fields[f].size, &failed);
    if (!failed) {
        void *buckets = e.buckets;
        if (!burst) e.buckets = NULL;
        for (i64 r = 0; r < m; r++) {
            e.resources[r] = (Resource){.capacity = capacity[r], .head = NONE};
            if (burst) e.buckets[r] = (Bucket){.burst = burst[r]};
        }
        for (i64 gate = 0; gate < g; gate++)
            e.gates[gate] = (Gate){0, (i32)release_start[gate], (i32)(release_start[gate + 1] - release_start[gate])};
        i32 demands = 0;
        for (i64 id = 0; id < n; id++) {
            Task *task = &e.tasks[id];
            *task = (Task){work[id], delay[id], start[id], end[id], demands, 0, (i32)signal_start[id],
                           (i32)(signal_start[id + 1] - signal_start[id]), 0, {0}};
            for (i64 u = use_start[id]; u < use_start[id + 1]; u++)
                if (isfinite(capacity[use_item[u]])) e.demands[demands++] = (Demand){weight[u], (i32)use_item[u]};
            task->uses = demands - task->first_use;
        }
        for (i64 s = 0; s < signal_start[n]; s++) e.gates[signal_item[s]].missing++;
        for (i64 gate = 0; gate < g; gate++)
            if (!e.gates[gate].missing) e.gates[gate].missing = NONE;
        for (i64 r = 0; r < release_start[g]; r++) e.tasks[release_item[r]].waiting++;
        loop(&e);
        for (i64 id = 0; id < n; id++) {
            start[id] = e.tasks[id].start;
            end[id] = e.tasks[id].end;
        }
        e.buckets = buckets;
    }
    for (int f = 0; f < count; f++) free(*fields[f].field);
    return failed;
}
