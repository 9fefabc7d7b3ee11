/* The event engine of engine.py in C: the same moments, the same shares, but only what changes is shared anew
   (sharing.h), and the next moment comes from a heap. */

#include <stdlib.h>
#include <sys/mman.h>

#include "sharing.h"

#define SAME 1e-12 /* moments closer than this are one, as in engine.py */
#define LARGE_PAGE (2u << 20)

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

/* Let an activity take its share from now on. */
static void begin(Engine *e, i32 slot, double now) {
    Flow *f = &e->flows[slot];
    const Task *task = &e->tasks[f->id];
    f->under_way = 1;
    f->left = task->work;
    f->since = now;
    e->began[e->began_size++] = (Begun){f->id, slot};
    for (i32 u = 0; u < task->uses; u++) {
        i32 number = task->first_use + u, resource = e->demands[number];
        double weight = e->weights ? e->weights[number] : 1;
        Resource *r = &e->resources[resource];
        i32 at = e->free_use;
        if (at == NONE) at = e->use_count++;
        else e->free_use = e->uses[at].sibling;
        e->uses[at] = (Use){weight, resource, slot, f->uses, r->head, NONE};
        if (r->head != NONE) e->uses[r->head].prev = at;
        r->head = f->uses = at;
        r->users++;
    }
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
        i32 slot = e->began[b].flow;
        choose(e, slot);
        for (i32 u = e->flows[slot].uses; u != NONE; u = e->uses[u].sibling) choose_held(e, e->uses[u].resource);
    }
    if (e->set_size) {
        do fill(e);
        while (widen(e));
    }
    for (i32 s = 0; s < e->set_size; s++) change(e, e->set[s], now);
    for (i32 b = 0; b < e->began_size; b++) {
        i32 slot = e->began[b].flow;
        if (e->flows[slot].place == NONE) schedule(e, slot, INFINITY); /* of rate 0: a cut link */
    }
    for (i32 t = 0; t < e->touched_size; t++) {
        i32 r = e->touched[t];
        e->resources[r].listed = 0;
        if (!e->buckets) continue;
        fill_bucket(e, r, now);
        e->buckets[r].used = e->resources[r].used;
    }
    e->began_size = e->touched_size = 0;
}

static int by_number(const void *a, const void *b) {
    i64 x = ((const Begun *)a)->id, y = ((const Begun *)b)->id;
    return (x > y) - (x < y);
}

/* Let what began take the tokens that are left, the first come first; end what is done by that. */
static void spend_tokens(Engine *e, double now) {
    i32 kept = 0;
    qsort(e->began, (size_t)e->began_size, sizeof(Begun), by_number);
    for (i32 b = 0; b < e->began_size; b++) {
        i32 slot = e->began[b].flow;
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
            e->began[kept++] = e->began[b];
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
    for (i64 gate = 0; gate < e->g; gate++) /* a gate that nothing signals is open from the start */
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

/* Return memory that begins with a cache line, not cleared; in large pages where there is much of it. NULL for none. */
static void *room_for(i64 count, size_t size, int *failed) {
    if (!count) return NULL;
    size_t bytes = (size_t)count * size, unit = bytes < LARGE_PAGE ? LINE : LARGE_PAGE;
    size_t whole = (bytes / unit + 1) * unit;
    void *memory = aligned_alloc(unit, whole);
    if (!memory) *failed = 1;
#ifdef MADV_HUGEPAGE
    else if (unit == LARGE_PAGE) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    return memory;
}

/* Fill start and end (infinite for what never comes); return 0, or 1 if there is not enough memory. `weight` may be
   NULL: every use counts once. */
int mw_simulate(i64 n, i64 m, i64 g, const double *work, const double *delay, const double *ready, const i32 *use_start,
                const i32 *use_item, const double *weight, const double *capacity, const double *burst,
                const i32 *release_start, const i32 *release_item, const i32 *signal_start, const i32 *signal_item,
                double *start, double *end) {
    i64 uses = use_start[n];
    if (n > INT32_MAX || m > INT32_MAX || g > INT32_MAX) return 1;
    int failed = 0;
    Engine e = {.n = n, .m = m, .g = g, .ready = ready, .release_item = release_item, .signal_item = signal_item,
                .free_use = NONE};
    struct { void **field; i64 count; size_t size; } fields[] = {
        {(void **)&e.tasks, n, sizeof(Task)}, {(void **)&e.demands, uses, sizeof(i32)},
        {(void **)&e.weights, weight ? uses : 0, sizeof(double)},
        {(void **)&e.gates, g, sizeof(Gate)}, {(void **)&e.flows, n, sizeof(Flow)},
        {(void **)&e.uses, uses, sizeof(Use)}, {(void **)&e.resources, m, sizeof(Resource)},
        {(void **)&e.buckets, burst ? m : 0, sizeof(Bucket)}, {(void **)&e.free_flows, n, sizeof(i32)},
        {(void **)&e.heap, n, sizeof(Moment)}, {(void **)&e.began, n, sizeof(Begun)},
        {(void **)&e.touched, m, sizeof(i32)}, {(void **)&e.set, n, sizeof(i32)}, {(void **)&e.full, m, sizeof(i32)},
    };
    const int count = sizeof fields / sizeof *fields;
    for (int f = 0; f < count; f++) *fields[f].field = room_for(fields[f].count, fields[f].size, &failed);
    if (!failed) {
        for (i64 r = 0; r < m; r++) {
            e.resources[r] = (Resource){.capacity = capacity[r], .head = NONE};
            if (burst) e.buckets[r] = (Bucket){.burst = burst[r]};
        }
        for (i64 gate = 0; gate < g; gate++)
            e.gates[gate] = (Gate){0, release_start[gate], release_start[gate + 1] - release_start[gate]};
        i32 demands = 0;
        for (i64 id = 0; id < n; id++) {
            Task *task = &e.tasks[id];
            *task = (Task){work[id], delay[id], INFINITY, INFINITY, demands, 0, signal_start[id],
                           signal_start[id + 1] - signal_start[id], 0, {0}};
            for (i32 u = use_start[id]; u < use_start[id + 1]; u++) {
                if (!isfinite(capacity[use_item[u]])) continue;
                if (weight) e.weights[demands] = weight[u];
                e.demands[demands++] = use_item[u];
            }
            task->uses = demands - task->first_use;
        }
        for (i32 s = 0; s < signal_start[n]; s++) e.gates[signal_item[s]].missing++;
        for (i64 gate = 0; gate < g; gate++)
            if (!e.gates[gate].missing) e.gates[gate].missing = NONE;
        for (i32 r = 0; r < release_start[g]; r++) e.tasks[release_item[r]].waiting++;
        loop(&e);
    }
    for (int f = 1; f < count; f++) free(*fields[f].field); /* all but the tasks, before the results need room */
    for (i64 id = 0; id < n && !failed; id++) {
        start[id] = e.tasks[id].start;
        end[id] = e.tasks[id].end;
    }
    free(e.tasks);
    return failed;
}
