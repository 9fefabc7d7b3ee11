/* The optional short way into the helper's collectives: the usual calls of torch.distributed, from Python's objects to
 * helper.c without an interpreter in between.
 *
 * Each method returns the Work of a call that it has done, and None, with nothing done, for one that it leaves to
 * Python: profiled or under a dispatch mode, after others that have not ended, with tensors or operators that the
 * helper does not know, or asynchronous where it is not to run at once (there are processors to run it beside, or not
 * all ranks come soon). Tensors are read through DLPack's C interface (github.com/dmlc/dlpack, struct
 * DLPackExchangeAPI), so that no header of torch is needed. Python goes on with a call that waits for long, and with
 * one that finds out which way of filling slots is the cheaper.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../local/helper.h"

/* ---- DLPack, version 1: what of it is used */

enum { DL_CPU = 1, DL_INT = 0, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5 };

typedef struct {
    char *data;
    int32_t device_type, device_id;
    int32_t dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* of elements; the tensor's own */
    uint64_t offset_bytes;
} DLTensor;

typedef struct {
    uint32_t major, minor;
    void *previous;
    int (*allocate)(void);
    int (*managed_from_object)(void *, void **);
    int (*managed_to_object)(void *, void **);
    int (*from_object)(void *object, DLTensor *out);
    int (*current_stream)(int32_t, int32_t, void **);
} DLExchange;

/* ---- the object */

/* The numbers of a FlightRecord; a row: number of the collective, operation, bytes, when it began in ns. */
typedef struct {
    int64_t sequence, finished, rows[][4];
} Record;

enum { BRIEF_BYTES = 65536 }; /* up to here a collective may hold up other threads of Python while it goes on at once */
/* Their numbers in a signature, those of signature.py. */
enum { ASKS_ALL_REDUCE = 1, ASKS_REDUCE_SCATTER = 3, ASKS_BROADCAST = 4, ASKS_ALL_GATHER = 5, ASKS_ALL_TO_ALL = 8,
       ASKS_BARRIER = 9, ASKS_SUM = 1 };
enum { LEAST_ADDRESS = 1 << 20 }; /* below it lies no tensor, but what is left of one whose storage was let go */
/* What torch calls them, in the order of CALLS in calls.py. */
enum { OF_ALL_REDUCE, OF_BROADCAST, OF_ALL_GATHER, OF_ALL_GATHER_SINGLE, OF_REDUCE_SCATTER, OF_ALL_TO_ALL, OF_BARRIER,
       OPERATIONS };

typedef struct {
    PyObject_HEAD
    Group *state;
    Record *record;
    const int64_t *issued; /* how many asynchronous calls have begun; and the next, how many have ended */
    const DLExchange *exchange;
    long long operations[OPERATIONS], capacity, filling_bytes, sum;
    PyObject *options, *done, *done_work, *finish, *profiler, *modes, *tensor_type, *parameter_type;
    PyThread_type_lock lock; /* held during each call of the group, by whichever way */
    int runs_inline;         /* whether asynchronous calls run at once where all ranks come */
    int is_async;            /* whether the call that holds the lock is one */
} Calls;

/* A dense tensor on the CPU, its elements one after the other. */
typedef struct {
    char *data;
    int64_t count, bytes, rows;
    uint32_t type; /* one number for each element type */
} Memory;

static PyObject *s_async, *s_is_neg, *s_operator, *s_profiled, *s_root, *s_watched;

static int (*const collectives[COLLECTIVES])(Group *) = {
    [ALL_REDUCE] = mw_all_reduce, [ALL_GATHER] = mw_all_gather, [REDUCE_SCATTER] = mw_reduce_scatter,
    [BROADCAST] = mw_broadcast,   [ALL_TO_ALL] = mw_all_to_all, [BARRIER] = mw_barrier,
};

/* Return whether an attribute is there and is `value`. */
static int is_there(PyObject *object, PyObject *name, PyObject *value) {
    PyObject *found = PyObject_GetAttr(object, name);
    if (!found) PyErr_Clear();
    Py_XDECREF(found);
    return found == value;
}

/* Fill `m` with what a tensor is; return 0 where it is none that can be taken as it is. */
static int read_tensor(const Calls *c, PyObject *tensor, Memory *m) {
    if ((PyObject *)Py_TYPE(tensor) != c->tensor_type && (PyObject *)Py_TYPE(tensor) != c->parameter_type) return 0;
    DLTensor t;
    if (c->exchange->from_object(tensor, &t)) {
        PyErr_Clear();
        return 0;
    }
    if (t.device_type != DL_CPU || t.code == DL_COMPLEX || t.lanes != 1 || t.bits % 8) return 0;
    m->count = 1;
    for (int32_t i = t.dims - 1; i >= 0; i--) {
        if (t.shape[i] != 1 && t.strides[i] != m->count) return 0;
        m->count *= t.shape[i];
    }
    if (!m->count || (uintptr_t)t.data < LEAST_ADDRESS) return 0;
    m->data = t.data + t.offset_bytes;
    m->bytes = m->count * (t.bits / 8);
    m->rows = t.dims ? t.shape[0] : 0;
    m->type = (uint32_t)t.code << 8 | t.bits;
    if (m->count > 1) return 1;
    PyObject *negative = PyObject_CallMethodNoArgs(tensor, s_is_neg); /* the imaginary part of a conjugate, say */
    int usable = negative == Py_False;
    if (!negative) PyErr_Clear();
    Py_XDECREF(negative);
    return usable;
}

/* The only tensor of a list or tuple of one. */
static int read_only_tensor(const Calls *c, PyObject *tensors, Memory *m) {
    return (PyList_CheckExact(tensors) || PyTuple_CheckExact(tensors)) && PySequence_Fast_GET_SIZE(tensors) == 1 &&
           read_tensor(c, PySequence_Fast_GET_ITEM(tensors, 0), m);
}

/* Return the number of an element type in the helper's sums, if these options ask for a sum; -1 if not. */
static int64_t summed_type(const Calls *c, const Memory *m, PyObject *options) {
    int64_t kind;
    switch (m->type) {
    case DL_FLOAT << 8 | 32: kind = F32; break;
    case DL_FLOAT << 8 | 64: kind = F64; break;
    case DL_INT << 8 | 32: kind = I32; break;
    case DL_INT << 8 | 64: kind = I64; break;
    case DL_BFLOAT << 8 | 16: kind = BF16; break;
    default: return -1;
    }
    PyObject *operator= PyObject_GetAttr(options, s_operator);
    Py_hash_t number = operator ? PyObject_Hash(operator) : -1; /* the hash of a ReduceOp is its number */
    Py_XDECREF(operator);
    if (PyErr_Occurred()) PyErr_Clear();
    return number == c->sum ? kind : -1;
}

/* Say that this rank has come to its next collective, and return whether the others come within its looks. One that did
 * not say so has come all the same when it is in the first step. */
static int all_come(const Group *g) {
    uint64_t number = g->sequence + 1;
    __atomic_store_n(g->counters + g->rank * LINE + HERE, number, __ATOMIC_RELEASE);
    for (int64_t i = 1; i < g->size; i++) {
        const uint64_t *there = g->counters + (g->rank + i) % g->size * LINE;
        if (__atomic_load_n(there, __ATOMIC_ACQUIRE) >= number) continue;
        if (mw_wait(there + HERE, number, g->spins, g->yield_ns, 0)) continue;
        if (__atomic_load_n(there, __ATOMIC_ACQUIRE) < number) return 0;
    }
    return 1;
}

/* Return whether a call may run at once, and then hold the group's lock; if not, Python must see to it. One that is
 * asynchronous may only if it is to run `is_inline`, where all ranks come. */
static int may_begin(Calls *c, PyObject *options, int is_inline) {
    Group *g = c->state;
    if (c->issued[0] != c->issued[1] || g->counters[g->rank * LINE + STATE] != ACTIVE) return 0;
    if (!is_there(c->profiler, s_profiled, Py_False) || !is_there(c->modes, s_watched, Py_False)) return 0;
    int is_async = !is_there(options, s_async, Py_False);
    if (is_async && (!is_inline || !is_there(options, s_async, Py_True))) return 0;
    if (!PyThread_acquire_lock(c->lock, NOWAIT_LOCK)) return 0;
    int begins = 1;
    if (is_async) {
        Py_BEGIN_ALLOW_THREADS
        begins = all_come(g);
        Py_END_ALLOW_THREADS
    }
    c->is_async = is_async;
    if (!begins) PyThread_release_lock(c->lock);
    return begins;
}

/* Leave a call to Python after all. */
static PyObject *leave(Calls *c) {
    PyThread_release_lock(c->lock);
    Py_RETURN_NONE;
}

/* Write the beginning of a call into the flight record, as FlightRecord.begin does. */
static int note(Calls *c, int operation, int64_t moved_bytes, PyObject *options) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t number = c->record->sequence + 1, *row = c->record->rows[number % c->capacity];
    row[0] = number;
    row[1] = c->operations[operation];
    row[2] = moved_bytes;
    row[3] = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    c->record->sequence = number;
    return PyList_SetItem(c->options, 0, Py_NewRef(options));
}

/* Choose how slots are filled; return 0 where that is to be found out by a trial, of which Python knows. */
static int settle(Calls *c, int collective, int64_t filled_bytes) {
    if (filled_bytes < c->filling_bytes) return 1;
    Settled *settled = &c->state->settled[collective][SIZES - __builtin_clzll((unsigned long long)filled_bytes)];
    if (!settled->calls) return 0;
    settled->calls--;
    c->state->way = settled->way;
    return 1;
}

/* Do a collective as far as it goes at once, or within the looks of a rank that has a processor of its own; return
 * whether it is done. */
static int try_at_once(Group *g, int collective) {
    int64_t yield_ns = g->yield_ns, patience_ns = g->patience_ns;
    g->yield_ns = g->patience_ns = 0;
    int done = collectives[collective](g);
    g->yield_ns = yield_ns, g->patience_ns = patience_ns;
    return done;
}

/* Return the tensors of a result as torch hands them over, in a list or tuple. */
static PyObject *listed(PyObject *result) {
    return PyList_CheckExact(result) || PyTuple_CheckExact(result) ? Py_NewRef(result) : Py_BuildValue("[O]", result);
}

/* Do a collective on what the group was given, with the lock held, and let go of it; return its Work. To let other
 * threads run meanwhile takes as long as a small collective for which all ranks are there. */
static PyObject *run(Calls *c, int operation, int collective, int64_t moved_bytes, int64_t filled_bytes,
                     PyObject *options, PyObject *result) {
    Group *g = c->state;
    int done = 0;
    PyObject *results = c->is_async ? listed(result) : Py_NewRef(Py_None), *work = NULL;
    if (!results || note(c, operation, moved_bytes, options)) goto end;
    if (settle(c, collective, filled_bytes)) {
        if (g->spins && moved_bytes <= BRIEF_BYTES) done = try_at_once(g, collective);
        if (!done) {
            Py_BEGIN_ALLOW_THREADS
            done = collectives[collective](g);
            Py_END_ALLOW_THREADS
        }
        g->way = 0;
        filled_bytes = 0; /* it is under way */
    }
    if (done) {
        c->record->finished = c->record->sequence;
    } else {
        long long number = c->operations[operation], filled = filled_bytes;
        work = PyObject_CallFunction(c->finish, "LiLO", number, collective, filled, results);
    }
end:
    PyThread_release_lock(c->lock);
    if (done) work = results == Py_None ? Py_NewRef(c->done) : PyObject_CallOneArg(c->done_work, results);
    Py_XDECREF(results);
    return work;
}

/* Say what is called, as `signature` of signature.py does; `root` is one more than the rank, or 0. */
static void ask(Calls *c, uint64_t collective, uint64_t type, uint64_t operator, uint64_t root, int64_t bytes,
                uint64_t sizes) {
    uint64_t *asked = c->state->asked;
    asked[0] = collective | type << 8 | operator << 24 | root << 32;
    asked[1] = (uint64_t)bytes;
    asked[2] = sizes;
}

/* Return whether two tensors have memory in common. */
static int meet(const Memory *a, const Memory *b) { return a->data < b->data + b->bytes && b->data < a->data + a->bytes; }

static void give(Calls *c, int64_t first, int64_t second, int64_t third) {
    c->state->given[0] = first, c->state->given[1] = second, c->state->given[2] = third;
}

#define EXPECT(n, what)                                                      \
    if (count != (n)) {                                                      \
        PyErr_SetString(PyExc_TypeError, "expected " what);                  \
        return NULL;                                                         \
    }

static PyObject *all_reduce(Calls *c, PyObject *const *arguments, Py_ssize_t count) {
    EXPECT(2, "tensors, options")
    PyObject *options = arguments[1];
    Memory m;
    if (!read_only_tensor(c, arguments[0], &m)) Py_RETURN_NONE;
    int64_t kind = summed_type(c, &m, options);
    if (kind < 0) Py_RETURN_NONE;
    if (!may_begin(c, options, c->runs_inline)) Py_RETURN_NONE;
    give(c, (int64_t)m.data, m.count, kind);
    ask(c, ASKS_ALL_REDUCE, m.type, ASKS_SUM, 0, m.bytes, 0);
    return run(c, OF_ALL_REDUCE, ALL_REDUCE, m.bytes, m.bytes, options, arguments[0]);
}

static PyObject *broadcast(Calls *c, PyObject *const *arguments, Py_ssize_t count) {
    EXPECT(2, "tensors, options")
    PyObject *options = arguments[1];
    Memory m;
    if (!read_only_tensor(c, arguments[0], &m)) Py_RETURN_NONE;
    PyObject *root = PyObject_GetAttr(options, s_root);
    long number = root ? PyLong_AsLong(root) : -1;
    Py_XDECREF(root);
    if (PyErr_Occurred()) PyErr_Clear();
    if (number < 0 || number >= c->state->size) Py_RETURN_NONE;
    if (!may_begin(c, options, c->runs_inline)) Py_RETURN_NONE;
    give(c, (int64_t)m.data, m.bytes, number);
    ask(c, ASKS_BROADCAST, m.type, 0, (uint64_t)number + 1, m.bytes, 0);
    return run(c, OF_BROADCAST, BROADCAST, m.bytes, mw_broadcast_fills(c->state, m.bytes), options, arguments[0]);
}

/* Do an all-gather into targets of which the group's tables hold address and size. */
static PyObject *gather_into(Calls *c, int operation, const Memory *source, PyObject *options, PyObject *result) {
    const int64_t *sizes = c->state->received;
    int64_t most = 0, all = 0;
    uint64_t number = 0;
    for (int64_t r = 0; r < c->state->size; r++) {
        all += sizes[r];
        if (sizes[r] > most) most = sizes[r];
        number = mw_mix(number, (uint64_t)sizes[r]);
    }
    if (most * c->state->size == all) ask(c, ASKS_ALL_GATHER, source->type, 0, 0, most, 0);
    else ask(c, ASKS_ALL_GATHER, source->type, 0, 0, all, number ? number : 1);
    give(c, (int64_t)source->data, 0, 0);
    return run(c, operation, ALL_GATHER, all, most, options, result);
}

static PyObject *all_gather_single(Calls *c, PyObject *const *arguments, Py_ssize_t count) {
    EXPECT(3, "output, input, options")
    PyObject *options = arguments[2];
    Memory out, in;
    Group *g = c->state;
    if (!read_tensor(c, arguments[0], &out) || !read_tensor(c, arguments[1], &in) || in.type != out.type ||
        out.count != in.count * g->size || (meet(&out, &in) && in.data != out.data + g->rank * in.bytes))
        Py_RETURN_NONE;
    if (!may_begin(c, options, c->runs_inline)) Py_RETURN_NONE;
    for (int64_t r = 0; r < g->size; r++) g->targets[r] = out.data + r * in.bytes, g->received[r] = in.bytes;
    return gather_into(c, OF_ALL_GATHER_SINGLE, &in, options, arguments[0]);
}

/* Return whether target `r` has no memory in common with those before it. Usually they rise, each above the last. */
static int is_apart(const Group *g, int64_t r) {
    const char *start = g->targets[r], *end = start + g->received[r];
    for (int64_t i = r - 1; i >= 0; i--)
        if (start < g->targets[i] + g->received[i] && g->targets[i] < end) return 0;
    return 1;
}

static PyObject *all_gather(Calls *c, PyObject *const *arguments, Py_ssize_t count) {
    EXPECT(3, "lists of outputs, inputs, options")
    PyObject *options = arguments[2], *lists = arguments[0];
    Memory out, in;
    Group *g = c->state;
    if (!read_only_tensor(c, arguments[1], &in) || !PyList_CheckExact(lists) || PyList_GET_SIZE(lists) != 1)
        Py_RETURN_NONE;
    PyObject *outputs = PyList_GET_ITEM(lists, 0);
    if (!PyList_CheckExact(outputs) || PyList_GET_SIZE(outputs) != g->size) Py_RETURN_NONE;
    if (!may_begin(c, options, c->runs_inline)) Py_RETURN_NONE;
    for (int64_t r = 0; r < g->size; r++) {
        if (!read_tensor(c, PyList_GET_ITEM(outputs, r), &out) || out.type != in.type ||
            (r == g->rank ? out.count != in.count || (out.data != in.data && meet(&out, &in)) : meet(&out, &in)))
            return leave(c);
        g->targets[r] = out.data, g->received[r] = out.bytes;
        if (!is_apart(g, r)) return leave(c);
    }
    return gather_into(c, OF_ALL_GATHER, &in, options, lists);
}

static PyObject *reduce_scatter_single(Calls *c, PyObject *const *arguments, Py_ssize_t count) {
    EXPECT(3, "output, input, options")
    PyObject *options = arguments[2];
    Memory out, in;
    Group *g = c->state;
    if (!read_tensor(c, arguments[0], &out) || !read_tensor(c, arguments[1], &in) || in.type != out.type ||
        in.count != out.count * g->size || (meet(&out, &in) && out.data != in.data + g->rank * out.bytes))
        Py_RETURN_NONE;
    int64_t kind = summed_type(c, &in, options);
    if (kind < 0) Py_RETURN_NONE;
    if (!may_begin(c, options, c->runs_inline)) Py_RETURN_NONE;
    for (int64_t r = 0; r < g->size; r++) g->sources[r] = in.data + r * out.bytes, g->sent[r] = out.count;
    give(c, (int64_t)out.data, kind, 0);
    ask(c, ASKS_REDUCE_SCATTER, in.type, ASKS_SUM, 0, out.bytes, 0);
    return run(c, OF_REDUCE_SCATTER, REDUCE_SCATTER, in.bytes, out.bytes, options, arguments[0]);
}

static PyObject *all_to_all_single(Calls *c, PyObject *const *arguments, Py_ssize_t count) {
    EXPECT(3, "output, input, options")
    PyObject *options = arguments[2];
    Memory out, in;
    Group *g = c->state;
    if (!read_tensor(c, arguments[0], &out) || !read_tensor(c, arguments[1], &in) || in.type != out.type ||
        in.count != out.count || !in.rows || in.rows % g->size || !out.rows || out.rows % g->size || meet(&out, &in))
        Py_RETURN_NONE;
    if (!may_begin(c, options, c->runs_inline)) Py_RETURN_NONE;
    int64_t size = in.bytes / g->size;
    for (int64_t r = 0; r < g->size; r++) {
        g->sources[r] = in.data + r * size, g->targets[r] = out.data + r * size;
        g->sent[r] = g->received[r] = size;
    }
    ask(c, ASKS_ALL_TO_ALL, in.type, 0, 0, 0, 0);
    return run(c, OF_ALL_TO_ALL, ALL_TO_ALL, in.bytes, in.bytes, options, arguments[0]);
}

static PyObject *barrier(Calls *c, PyObject *const *arguments, Py_ssize_t count) {
    EXPECT(1, "options")
    if (!may_begin(c, arguments[0], 0)) Py_RETURN_NONE; /* an asynchronous one holds up nobody */
    ask(c, ASKS_BARRIER, 0, 0, 0, 0, 0);
    return run(c, OF_BARRIER, BARRIER, 0, 0, arguments[0], Py_None);
}

/* ---- the group's lock, for calls that go the long way */

static PyObject *hold(Calls *c, PyObject *Py_UNUSED(nothing)) {
    PyLockStatus status = PyThread_acquire_lock_timed(c->lock, 0, 0);
    while (status != PY_LOCK_ACQUIRED) {
        Py_BEGIN_ALLOW_THREADS
        status = PyThread_acquire_lock_timed(c->lock, -1, 1);
        Py_END_ALLOW_THREADS
        if (status == PY_LOCK_INTR && PyErr_CheckSignals()) return NULL;
    }
    return Py_NewRef((PyObject *)c);
}

static PyObject *let_go(Calls *c, PyObject *Py_UNUSED(error)) {
    PyThread_release_lock(c->lock);
    Py_RETURN_NONE;
}

/* ---- the type and the module */

#define EVERY_OBJECT(c, do)    \
    do((c)->options);          \
    do((c)->done);             \
    do((c)->done_work);        \
    do((c)->finish);           \
    do((c)->profiler);         \
    do((c)->modes);            \
    do((c)->tensor_type);      \
    do((c)->parameter_type);

static int visit_all(Calls *c, visitproc visit, void *arg) {
    EVERY_OBJECT(c, Py_VISIT)
    return 0;
}

static int clear(Calls *c) {
    EVERY_OBJECT(c, Py_CLEAR)
    return 0;
}

static void deallocate(Calls *c) {
    PyTypeObject *type = Py_TYPE(c);
    PyObject_GC_UnTrack(c);
    clear(c);
    if (c->lock) PyThread_free_lock(c->lock);
    type->tp_free(c);
    Py_DECREF(type);
}

static int initialise(Calls *c, PyObject *arguments, PyObject *named) {
    static char *names[] = {"state", "issued", "record", "capacity", "operations", "filling_bytes", "sum", "exchange",
                            "options", "done", "done_work", "finish", "profiler", "modes", "tensor_type",
                            "parameter_type", "runs_inline", NULL};
    unsigned long long state, issued, record;
    long long *o = c->operations;
    PyObject *exchange, *options, *done, *done_work, *finish, *profiler, *modes, *tensor_type, *parameter_type;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "KKKL(LLLLLLL)LLOO!OOOOOOOp", names, &state, &issued, &record,
                                     &c->capacity, &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &o[6], &c->filling_bytes,
                                     &c->sum, &exchange, &PyList_Type, &options, &done, &done_work, &finish, &profiler,
                                     &modes, &tensor_type, &parameter_type, &c->runs_inline))
        return -1;
    const DLExchange *api = PyCapsule_GetPointer(exchange, "dlpack_exchange_api");
    if (!api) return -1;
    if (api->major != 1) {
        PyErr_Format(PyExc_ImportError, "DLPack %u: expected version 1", api->major);
        return -1;
    }
    if (!c->lock && !(c->lock = PyThread_allocate_lock())) {
        PyErr_NoMemory();
        return -1;
    }
    clear(c);
    c->state = (Group *)(uintptr_t)state;
    c->issued = (const int64_t *)(uintptr_t)issued;
    c->record = (Record *)(uintptr_t)record;
    c->exchange = api;
    c->options = options;
    c->done = done;
    c->done_work = done_work;
    c->finish = finish;
    c->profiler = profiler;
    c->modes = modes;
    c->tensor_type = tensor_type;
    c->parameter_type = parameter_type;
    EVERY_OBJECT(c, Py_INCREF)
    return 0;
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    METHOD(all_reduce), METHOD(broadcast), METHOD(all_gather), METHOD(all_gather_single), METHOD(reduce_scatter_single),
    METHOD(all_to_all_single), METHOD(barrier), {"__enter__", (PyCFunction)(void (*)(void))hold, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))let_go, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The usual calls of one group, and its lock."},
    {Py_tp_init, initialise},
    {Py_tp_dealloc, deallocate},
    {Py_tp_traverse, visit_all},
    {Py_tp_clear, clear},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec specification = {
    .name = "calls.Calls",
    .basicsize = sizeof(Calls),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "calls", .m_size = -1};

PyMODINIT_FUNC PyInit_calls(void) {
    struct {
        PyObject **at;
        const char *text;
    } names[] = {
        {&s_async, "asyncOp"},
        {&s_is_neg, "is_neg"},
        {&s_operator, "reduceOp"},
        {&s_profiled, "_is_profiler_enabled"},
        {&s_root, "rootRank"},
        {&s_watched, "_is_in_torch_dispatch_mode"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*names[i].at = PyUnicode_InternFromString(names[i].text))) return NULL;
    PyObject *module = PyModule_Create(&definition), *type = module ? PyType_FromSpec(&specification) : NULL;
    if (!type || PyModule_AddObjectRef(module, "Calls", type)) Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
