/* The event engine of engine.py in C: the same moments, the same shares, but only what changes is shared anew.

   When activities begin or end, the smallest set that must be shared anew is found from outside in: those that began,
   and those held back by a resource on which something ended. They are filled up progressively with all other rates
   left as they are. Then every resource that they touch is looked at: an activity outside the set that is no longer
   held back where it was, or that takes more than its fair share there, joins the set, and the filling is done again.
   When nobody joins, every activity is held back by a full resource on which none is faster: that allocation is the
   max-min fair one, and there is only one. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define SAME 1e-12  /* moments closer than this are one, as in engine.py */
#define FAIR 1e-11  /* relative difference of rates that counts as none */

typedef int64_t i64;

typedef struct {
    i64 n, m, g;
    const double *work, *delay, *ready;
    const i64 *use_start, *use_item;
    const double *weight, *capacity;
    const i64 *release_start, *release_item, *signal_start, *signal_item;
    double *start, *end;
    i64 *missing, *waiting;
    /* uses of one resource by activities under way, as a doubly linked list */
    i64 *head, *next, *prev, *owner;
    double *rate, *left, *since, *fresh;
    i64 *held; /* the resource that holds an activity back, or -1 */
    char *under_way, *chosen, *frozen, *listed;
    /* a heap of activities by the moment of their next event */
    double *key;
    i64 *heap, *place, heap_size;
    i64 *began, began_size, *touched, touched_size;
    i64 *set, set_size;
    double *room, *demand;
    /* a heap of resources by their share, lazily updated */
    double *share;
    i64 *full, full_size;
} Engine;

static void sift_up(Engine *e, i64 at) {
    i64 id = e->heap[at];
    while (at > 0) {
        i64 above = (at - 1) / 2;
        if (e->key[e->heap[above]] <= e->key[id]) break;
        e->heap[at] = e->heap[above];
        e->place[e->heap[at]] = at;
        at = above;
    }
    e->heap[at] = id;
    e->place[id] = at;
}

static void sift_down(Engine *e, i64 at) {
    i64 id = e->heap[at];
    for (;;) {
        i64 below = 2 * at + 1;
        if (below >= e->heap_size) break;
        if (below + 1 < e->heap_size && e->key[e->heap[below + 1]] < e->key[e->heap[below]]) below++;
        if (e->key[e->heap[below]] >= e->key[id]) break;
        e->heap[at] = e->heap[below];
        e->place[e->heap[at]] = at;
        at = below;
    }
    e->heap[at] = id;
    e->place[id] = at;
}

static void schedule(Engine *e, i64 id, double moment) {
    double before = e->key[id];
    e->key[id] = moment;
    if (e->place[id] < 0) {
        e->place[id] = e->heap_size;
        e->heap[e->heap_size++] = id;
        sift_up(e, e->place[id]);
    } else if (moment < before) {
        sift_up(e, e->place[id]);
    } else {
        sift_down(e, e->place[id]);
    }
}

static i64 pop(Engine *e) {
    i64 id = e->heap[0], last = e->heap[--e->heap_size];
    e->place[id] = -1;
    if (e->heap_size > 0) {
        e->heap[0] = last;
        e->place[last] = 0;
        sift_down(e, 0);
    }
    return id;
}

static void release(Engine *e, i64 id, double now) {
    double begin = e->ready && e->ready[id] > now ? e->ready[id] : now;
    e->start[id] = begin;
    schedule(e, id, begin + e->delay[id]);
}

static void finish(Engine *e, i64 id, double now) {
    e->end[id] = now;
    for (i64 s = e->signal_start[id]; s < e->signal_start[id + 1]; s++) {
        i64 gate = e->signal_item[s];
        if (--e->missing[gate]) continue;
        for (i64 r = e->release_start[gate]; r < e->release_start[gate + 1]; r++)
            if (!--e->waiting[e->release_item[r]]) release(e, e->release_item[r], now);
    }
}

static void touch(Engine *e, i64 resource) {
    if (e->listed[resource]) return;
    e->listed[resource] = 1;
    e->touched[e->touched_size++] = resource;
}

static void begin(Engine *e, i64 id, double now) {
    e->under_way[id] = 1;
    e->left[id] = e->work[id];
    e->since[id] = now;
    e->rate[id] = 0;
    e->held[id] = -1;
    e->began[e->began_size++] = id;
    for (i64 u = e->use_start[id]; u < e->use_start[id + 1]; u++) {
        i64 r = e->use_item[u];
        e->prev[u] = -1;
        e->next[u] = e->head[r];
        if (e->head[r] >= 0) e->prev[e->head[r]] = u;
        e->head[r] = u;
    }
}

static void leave(Engine *e, i64 id) {
    e->under_way[id] = 0;
    for (i64 u = e->use_start[id]; u < e->use_start[id + 1]; u++) {
        i64 r = e->use_item[u];
        if (e->prev[u] >= 0) e->next[e->prev[u]] = e->next[u];
        else e->head[r] = e->next[u];
        if (e->next[u] >= 0) e->prev[e->next[u]] = e->prev[u];
        touch(e, r);
    }
}

static void choose(Engine *e, i64 id) {
    if (e->chosen[id]) return;
    e->chosen[id] = 1;
    e->set[e->set_size++] = id;
    for (i64 u = e->use_start[id]; u < e->use_start[id + 1]; u++) touch(e, e->use_item[u]);
}

static double share_of(const Engine *e, i64 r) { return (e->room[r] > 0 ? e->room[r] : 0) / e->demand[r]; }

static void full_down(Engine *e, i64 at) {
    i64 id = e->full[at];
    for (;;) {
        i64 below = 2 * at + 1;
        if (below >= e->full_size) break;
        if (below + 1 < e->full_size && e->share[e->full[below + 1]] < e->share[e->full[below]]) below++;
        if (e->share[e->full[below]] >= e->share[id]) break;
        e->full[at] = e->full[below];
        at = below;
    }
    e->full[at] = id;
}

/* Fill up the chosen activities, all others as they are. */
static void fill(Engine *e) {
    e->full_size = 0;
    for (i64 t = 0; t < e->touched_size; t++) {
        i64 r = e->touched[t];
        double room = e->capacity[r], demand = 0;
        for (i64 u = e->head[r]; u >= 0; u = e->next[u]) {
            i64 id = e->owner[u];
            if (e->chosen[id]) demand += e->weight[u];
            else room -= e->weight[u] * e->rate[id];
        }
        e->room[r] = room;
        e->demand[r] = demand;
        if (demand > 0 && isfinite(room)) {
            e->share[r] = share_of(e, r);
            e->full[e->full_size++] = r;
        }
    }
    for (i64 i = e->full_size / 2 - 1; i >= 0; i--) full_down(e, i);
    for (i64 s = 0; s < e->set_size; s++) {
        e->frozen[e->set[s]] = 0;
        e->fresh[e->set[s]] = INFINITY;
        e->held[e->set[s]] = -1;
    }
    while (e->full_size) {
        i64 r = e->full[0], any = 0;
        for (i64 u = e->head[r]; u >= 0 && !any; u = e->next[u]) any = e->chosen[e->owner[u]] && !e->frozen[e->owner[u]];
        double share = any ? share_of(e, r) : 0;
        if (any && share > e->share[r]) { /* others on it were frozen since: it comes later */
            e->share[r] = share;
            full_down(e, 0);
            continue;
        }
        e->full[0] = e->full[--e->full_size];
        if (e->full_size) full_down(e, 0);
        for (i64 u = any ? e->head[r] : -1; u >= 0; u = e->next[u]) {
            i64 id = e->owner[u];
            if (!e->chosen[id] || e->frozen[id]) continue;
            e->frozen[id] = 1;
            e->fresh[id] = share;
            e->held[id] = r;
            for (i64 v = e->use_start[id]; v < e->use_start[id + 1]; v++) {
                e->room[e->use_item[v]] -= e->weight[v] * share;
                e->demand[e->use_item[v]] -= e->weight[v];
            }
        }
    }
}

/* Let those join that the filling does wrong; return how many. */
static i64 widen(Engine *e) {
    i64 before = e->set_size, resources = e->touched_size;
    for (i64 t = 0; t < resources; t++) {
        i64 r = e->touched[t];
        if (!isfinite(e->capacity[r])) continue;
        double used = 0, fastest = 0, limit = INFINITY;
        for (i64 u = e->head[r]; u >= 0; u = e->next[u]) {
            i64 id = e->owner[u];
            double rate = e->chosen[id] ? e->fresh[id] : e->rate[id];
            used += e->weight[u] * rate;
            if (rate > fastest) fastest = rate;
            if (e->chosen[id] && e->held[id] == r) limit = rate;
        }
        int full = used >= e->capacity[r] * (1 - FAIR);
        for (i64 u = e->head[r]; u >= 0; u = e->next[u]) {
            i64 id = e->owner[u];
            if (e->chosen[id]) continue;
            int loose = e->held[id] == r && (!full || e->rate[id] < fastest * (1 - FAIR));
            if (loose || e->rate[id] > limit * (1 + FAIR)) choose(e, id);
        }
    }
    return e->set_size - before;
}

static void share_anew(Engine *e, double now) {
    i64 dirty = e->touched_size;
    e->set_size = 0;
    for (i64 t = 0; t < dirty; t++)
        for (i64 u = e->head[e->touched[t]]; u >= 0; u = e->next[u])
            if (e->held[e->owner[u]] == e->touched[t]) choose(e, e->owner[u]);
    for (i64 b = 0; b < e->began_size; b++) choose(e, e->began[b]);
    if (e->set_size) {
        do fill(e);
        while (widen(e));
    }
    for (i64 s = 0; s < e->set_size; s++) {
        i64 id = e->set[s];
        e->chosen[id] = 0;
        if (e->fresh[id] == e->rate[id]) continue;
        double moved = e->rate[id] * (now - e->since[id]);
        e->left[id] = e->left[id] > moved ? e->left[id] - moved : 0;
        e->since[id] = now;
        e->rate[id] = e->fresh[id];
        schedule(e, id, e->rate[id] > 0 ? now + e->left[id] / e->rate[id] : INFINITY);
    }
    for (i64 b = 0; b < e->began_size; b++)
        if (e->place[e->began[b]] < 0) schedule(e, e->began[b], INFINITY); /* of rate 0: a cut link */
    for (i64 t = 0; t < e->touched_size; t++) e->listed[e->touched[t]] = 0;
    e->began_size = e->touched_size = 0;
}

static void loop(Engine *e) {
    for (i64 gate = 0; gate < e->g; gate++)
        if (!e->missing[gate])
            for (i64 r = e->release_start[gate]; r < e->release_start[gate + 1]; r++) e->waiting[e->release_item[r]]--;
    for (i64 id = 0; id < e->n; id++)
        if (!e->waiting[id]) release(e, id, 0);
    while (e->heap_size && isfinite(e->key[e->heap[0]])) {
        double now = e->key[e->heap[0]];
        while (e->heap_size && e->key[e->heap[0]] <= now * (1 + SAME)) {
            i64 id = pop(e);
            if (e->under_way[id]) {
                leave(e, id);
                finish(e, id, now);
            } else if (e->work[id] > 0) {
                begin(e, id, now);
            } else {
                finish(e, id, now);
            }
        }
        share_anew(e, now);
    }
}

static void *room_for(i64 count, size_t size, int *failed) {
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    if (!memory) *failed = 1;
    return memory;
}

/* Fill start and end (given as infinite); return 0, or 1 if there is not enough memory. */
int mw_simulate(i64 n, i64 m, i64 g, const double *work, const double *delay, const double *ready, const i64 *use_start,
                const i64 *use_item, const double *weight, const double *capacity, const i64 *release_start,
                const i64 *release_item, const i64 *signal_start, const i64 *signal_item, double *start, double *end) {
    i64 uses = use_start[n];
    int failed = 0;
    Engine e = {.n = n, .m = m, .g = g, .work = work, .delay = delay, .ready = ready, .use_start = use_start,
                .use_item = use_item, .weight = weight, .capacity = capacity, .release_start = release_start,
                .release_item = release_item, .signal_start = signal_start, .signal_item = signal_item, .start = start,
                .end = end};
    struct { void **field; i64 count; size_t size; } fields[] = {
        {(void **)&e.missing, g, sizeof(i64)}, {(void **)&e.waiting, n, sizeof(i64)},
        {(void **)&e.head, m, sizeof(i64)}, {(void **)&e.next, uses, sizeof(i64)},
        {(void **)&e.prev, uses, sizeof(i64)}, {(void **)&e.owner, uses, sizeof(i64)},
        {(void **)&e.rate, n, sizeof(double)}, {(void **)&e.left, n, sizeof(double)},
        {(void **)&e.since, n, sizeof(double)}, {(void **)&e.fresh, n, sizeof(double)},
        {(void **)&e.held, n, sizeof(i64)}, {(void **)&e.under_way, n, 1}, {(void **)&e.chosen, n, 1},
        {(void **)&e.frozen, n, 1}, {(void **)&e.listed, m, 1}, {(void **)&e.key, n, sizeof(double)},
        {(void **)&e.heap, n, sizeof(i64)}, {(void **)&e.place, n, sizeof(i64)}, {(void **)&e.began, n, sizeof(i64)},
        {(void **)&e.touched, m, sizeof(i64)}, {(void **)&e.set, n, sizeof(i64)}, {(void **)&e.room, m, sizeof(double)},
        {(void **)&e.demand, m, sizeof(double)}, {(void **)&e.share, m, sizeof(double)},
        {(void **)&e.full, m, sizeof(i64)},
    };
    const int count = sizeof fields / sizeof *fields;
    for (int f = 0; f < count; f++) *fields[f].field = room_for(fields[f].count, fields[f].size, &failed);
    if (!failed) {
        for (i64 r = 0; r < m; r++) e.head[r] = -1;
        for (i64 id = 0; id < n; id++) {
            e.place[id] = e.held[id] = -1;
            for (i64 u = use_start[id]; u < use_start[id + 1]; u++) e.owner[u] = id;
            for (i64 s = signal_start[id]; s < signal_start[id + 1]; s++) e.missing[signal_item[s]]++;
        }
        for (i64 r = 0; r < release_start[g]; r++) e.waiting[release_item[r]]++;
        loop(&e);
    }
    for (int f = 0; f < count; f++) free(*fields[f].field);
    return failed;
}
