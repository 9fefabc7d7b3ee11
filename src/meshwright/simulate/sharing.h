/* What the event engine keeps of activities and resources, and how it shares the resources anew.

   The smallest set of activities that must be shared anew is found from outside in: activities that began, and those held
   back by a resource on which something began or ended. They are filled up progressively with all other rates left as
   they are. Then every resource that they touch is looked at: an activity outside the set that is no longer held back
   where it was, or that takes more than its fair share there, joins the set, and the filling is done again. When nobody
   joins, every activity is held back by a full resource on which none is faster: that allocation is the max-min fair
   one, and there is only one.

   Of a resource with room to spare only sums are looked at, never the list of its users. What changes while an
   activity is under way lies in a slot that is used again after its end, so memory in use grows with what is under way
   at once, not with all activities of the program. */

#include <math.h>
#include <stdint.h>

#define FAIR 1e-11  /* relative difference of rates that counts as none */
#define NONE (-1)
#define LINE 64 /* bytes of a cache line */
#define WAYS 4  /* of the heap of moments: four of them fit into a cache line */

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
    double level;       /* the rate of the activities that it holds back */
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
    i64 id;
    i32 flow;
} Begun;

typedef struct {
    i64 n, m, g;
    const double *ready;
    const i32 *release_item, *signal_item;
    Task *tasks;
    i32 *demands;    /* the resources that the tasks take of; those without a limit hold nobody back, and are left out */
    double *weights; /* of each demand, or NULL: 1 */
    Gate *gates;
    Bucket *buckets; /* of each resource, or NULL */
    Flow *flows;
    Use *uses;
    Resource *resources;
    i32 flow_count, *free_flows, free_flow_count;
    i32 use_count, free_use;
    Moment *heap; /* of the next event of each activity */
    i32 heap_size;
    Begun *began;
    i32 began_size, *touched, touched_size, *set, set_size;
    i32 *full, full_size; /* a heap of resources by their share, lazily updated */
} Engine;

static void put(Engine *e, i32 at, Moment moment) {
    e->heap[at] = moment;
    e->flows[moment.flow].place = at;
}

static void sift_up(Engine *e, i32 at) {
    Moment moved = e->heap[at];
    while (at > 0) {
        i32 above = (at - 1) / WAYS;
        if (e->heap[above].key <= moved.key) break;
        put(e, at, e->heap[above]);
        at = above;
    }
    put(e, at, moved);
}

static void sift_down(Engine *e, i32 at) {
    Moment moved = e->heap[at];
    for (;;) {
        i32 first = WAYS * at + 1, below = first;
        if (first >= e->heap_size) break;
        for (i32 other = first + 1; other < first + WAYS && other < e->heap_size; other++)
            below = e->heap[other].key < e->heap[below].key ? other : below;
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

static void touch(Engine *e, i32 resource) {
    if (e->resources[resource].listed) return;
    e->resources[resource].listed = 1;
    e->touched[e->touched_size++] = resource;
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

static double share_at(const Engine *e, i32 at) { return e->resources[e->full[at]].share; }

static void full_down(Engine *e, i32 at) {
    i32 moved = e->full[at];
    double share = e->resources[moved].share;
    for (;;) {
        i32 below = 2 * at + 1;
        if (below >= e->full_size) break;
        if (below + 1 < e->full_size && share_at(e, below + 1) < share_at(e, below)) below++;
        if (share_at(e, below) >= share) break;
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
