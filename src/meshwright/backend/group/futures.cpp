/* The optional futures of works as torch's own backends make them: typed as a list of tensors, ended from outside, with
 * a Python exception as their error.
 *
 * A torch.futures.Future made in Python holds any object and cannot be given an error that C++ sees: its reducer takes
 * the exception for the result. This extension makes one by torch's C++ interface and hands it out beside its end.
 * It also tells whether C++ still owns a work that Python is about to drop.
 */
#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

namespace torch::jit { /* of torch/csrc/jit/python/pybind_utils.h, which takes three times as long to compile */
TORCH_PYTHON_API pybind11::object toPyObject(c10::IValue value);
TORCH_PYTHON_API c10::IValue toIValue(pybind11::handle object, const c10::TypePtr &type, std::optional<int32_t> count);
} // namespace torch::jit

namespace {

namespace py = pybind11;
using Future = c10::ivalue::Future;
using FuturePointer = c10::intrusive_ptr<Future>;
const char *const END = "meshwright.future";

void forget(PyObject *end) { delete static_cast<FuturePointer *>(PyCapsule_GetPointer(end, END)); }

/* Return a future, and its end. */
py::tuple make() {
    FuturePointer future = c10::make_intrusive<Future>(c10::ListType::ofTensors());
    return py::make_tuple(torch::jit::toPyObject(c10::IValue(future)),
                          py::reinterpret_steal<py::object>(PyCapsule_New(new FuturePointer(future), END, forget)));
}

FuturePointer future_of(const py::object &end) {
    void *pointer = PyCapsule_GetPointer(end.ptr(), END);
    if (!pointer) throw py::error_already_set();
    return *static_cast<FuturePointer *>(pointer);
}

/* End a future with a list of tensors. Its callbacks run on this thread. */
void complete(const py::object &end, const py::list &tensors) {
    FuturePointer future = future_of(end);
    c10::IValue value = torch::jit::toIValue(tensors, c10::ListType::ofTensors(), std::nullopt);
    py::gil_scoped_release others_run;
    future->markCompleted(std::move(value));
}

/* End a future with an exception, which is raised in the thread that waits for it. */
void fail(const py::object &end, const py::object &exception) {
    FuturePointer future = future_of(end);
    python_error error;
    error.type = py::type::of(exception).inc_ref().ptr();
    error.value = py::object(exception).release().ptr();
    error.build_message();
    auto pointer = std::make_exception_ptr(std::move(error));
    py::gil_scoped_release others_run;
    future->setError(std::move(pointer));
}

/* Return how many own a work (a c10d::Work of Python) beside its object in Python. */
py::ssize_t other_owners(const py::object &work) {
    auto *object = reinterpret_cast<py::detail::instance *>(work.ptr());
    auto *target = static_cast<c10::intrusive_ptr_target *>(object->get_value_and_holder().value_ptr());
    return static_cast<py::ssize_t>(c10::raw::intrusive_ptr::use_count(target)) - 1;
}

} // namespace

PYBIND11_MODULE(futures, module) {
    module.def("make", &make);
    module.def("complete", &complete);
    module.def("fail", &fail);
    module.def("other_owners", &other_owners);
}
