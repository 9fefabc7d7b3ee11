// An accelerator made of the host's memory, for tests on machines without one: torch's PrivateUse1, named "fakegpu".
//
// Its tensors are on a device of their own, as on a GPU: one of the host beside it in a call is refused, as CUDA
// refuses it. Kernels are the CPU's over the same memory and run when they are called, but the device is busy with each
// for `kernel_s` more of the clock's seconds: what waits for the device waits that long, what forgets to wait measures
// next to nothing. Copies to the host that are told not to block arrive when the host waits for their stream, not
// before; new memory holds NaNs. A stream that reads or writes what another has written, without an event between them,
// is an error that names the call. What makes the host wait is counted by name.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/set.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto FAKE = c10::DeviceType::PrivateUse1;
constexpr auto KEY = c10::DispatchKey::PrivateUse1;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// ---- the device: streams, what each knows of the others, and who wrote which memory ----

using Known = std::map<int64_t, int64_t>;  // by stream: how many of its calls are known to be done

struct Lane {
  int64_t calls = 0;
  double busy_until = 0;
  Known known;
  std::vector<std::pair<int64_t, std::function<void()>>> arriving;  // copies to the host, by call, done when it waits
};

struct Mark {
  int64_t stream = 0, calls = 0;
  double time = 0;
  Known known;
};

struct Written {
  int64_t stream, call;
  std::string by;
};

std::recursive_mutex lock;  // the device's state: any thread may call
std::map<int64_t, Lane> lanes;
std::map<const void*, Written> written;  // by start of memory
std::map<std::string, int64_t> waits;    // of the host, by cause
Known host_known;
double kernel_s = 0;
int64_t devices = 1, next_stream = 1, live_bytes = 0, peak_bytes = 0;
thread_local int64_t current_stream = 0;
thread_local c10::DeviceIndex current_device = 0;

using Locked = std::lock_guard<std::recursive_mutex>;

void merge(Known& into, const Known& from) {
  for (auto& [stream, calls] : from) into[stream] = std::max(into[stream], calls);
}

void wait_for(int64_t stream, const char* cause) {
  double until;
  {
    Locked guard(lock);
    waits[cause]++;
    until = lanes[stream].busy_until;
  }
  double left = until - now();
  if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
  Locked guard(lock);
  auto& lane = lanes[stream];
  auto arriving = std::move(lane.arriving);
  lane.arriving.clear();
  for (auto& [call, copy] : arriving) copy();
  merge(host_known, lane.known);
  host_known[stream] = lane.calls;
}

void touch(const at::Tensor& tensor, const std::string& name, bool writes) {
  if (!tensor.defined() || tensor.device().type() != FAKE || !tensor.has_storage()) return;
  const void* start = tensor.storage().data();
  if (!start) return;
  auto& lane = lanes[current_stream];
  auto found = written.find(start);
  if (found != written.end() && found->second.stream != current_stream) {
    auto [stream, call, by] = found->second;
    TORCH_CHECK(
        lane.known[stream] >= call || host_known[stream] >= call, "fakegpu: ", name, " on stream ", current_stream,
        " uses what ", by, " wrote on stream ", stream, " with no event between them");
  }
  if (writes) written[start] = {current_stream, lane.calls, name};
}

void launch(const std::string& name) {
  auto& lane = lanes[current_stream];
  lane.calls++;
  lane.busy_until = std::max(lane.busy_until, now()) + kernel_s;
}

// ---- memory ----

struct Block {
  void* data;
  size_t bytes;
};

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  {
    Locked guard(lock);
    live_bytes -= block->bytes;
    written.erase(block->data);
  }
  free(block->data);
  delete block;
}

struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::Device device(FAKE, current_device);
    if (!bytes) return {nullptr, nullptr, &free_block, device};
    void* data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(data, 0xff, bytes);  // NaN in every floating type
    Locked guard(lock);
    live_bytes += bytes;
    peak_bytes = std::max(peak_bytes, live_bytes);
    return {data, new Block{data, bytes}, &free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    Locked guard(lock);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = live_bytes;
    stats.allocated_bytes[0].peak = peak_bytes;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    Locked guard(lock);
    peak_bytes = live_bytes;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override { return {size_t(8) << 30, size_t(16) << 30}; }
};
Memory memory;
REGISTER_ALLOCATOR(FAKE, &memory);

// ---- what torch asks of a device ----

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return FAKE; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    current_device = device.index() < 0 ? current_device : device.index();
    return before;
  }
  c10::Device getDevice() const override { return {FAKE, current_device}; }
  void setDevice(c10::Device device) const override { exchangeDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { exchangeDevice(device); }
  c10::Stream at_id(int64_t id) const { return c10::Stream(c10::Stream::UNSAFE, getDevice(), id); }
  c10::Stream getStream(c10::Device) const override { return at_id(current_stream); }
  c10::Stream getDefaultStream(c10::Device) const override { return at_id(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device, int) const override {
    Locked guard(lock);
    return at_id(next_stream++);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = at_id(current_stream);
    current_stream = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return c10::DeviceIndex(devices); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Mark*>(event); }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    Locked guard(lock);
    if (!*event) *event = new Mark();
    auto& lane = lanes[stream.id()];
    *static_cast<Mark*>(*event) = {stream.id(), lane.calls, std::max(lane.busy_until, now()), lane.known};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    Locked guard(lock);
    auto& mark = *static_cast<Mark*>(event);
    auto& lane = lanes[stream.id()];
    merge(lane.known, mark.known);
    lane.known[mark.stream] = std::max(lane.known[mark.stream], mark.calls);
    lane.busy_until = std::max(lane.busy_until, mark.time);
  }
  bool queryEvent(void* event) const override { return !event || static_cast<Mark*>(event)->time <= now(); }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    auto& mark = *static_cast<Mark*>(event);
    {
      Locked guard(lock);
      waits["event"]++;
    }
    double left = mark.time - now();
    if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
    Locked guard(lock);
    auto& waiting = lanes[mark.stream].arriving;
    auto later = std::stable_partition(
        waiting.begin(), waiting.end(), [&](auto& each) { return each.first <= mark.calls; });
    for (auto each = waiting.begin(); each != later; each++) each->second();
    waiting.erase(waiting.begin(), later);
    merge(host_known, mark.known);
    host_known[mark.stream] = std::max(host_known[mark.stream], mark.calls);
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    auto *first = static_cast<Mark*>(start), *last = static_cast<Mark*>(end);
    TORCH_CHECK(last->time <= now(), "fakegpu: the time between events was asked for before the last was reached");
    return (last->time - first->time) * 1e3;
  }
  bool queryStream(const c10::Stream& stream) const override {
    Locked guard(lock);
    return lanes[stream.id()].busy_until <= now();
  }
  void synchronizeStream(const c10::Stream& stream) const override { wait_for(stream.id(), "stream"); }
  void synchronizeDevice(c10::DeviceIndex) const override {
    std::vector<int64_t> streams;
    {
      Locked guard(lock);
      for (auto& [stream, _] : lanes) streams.push_back(stream);
      if (streams.empty()) waits["device"]++;
    }
    for (auto stream : streams) wait_for(stream, "device");
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// A generator of the device: the CPU's numbers, so that a seed means the same on both.
struct FakeGenerator final : c10::GeneratorImpl {
  at::Generator host;
  explicit FakeGenerator(at::Generator host, c10::DeviceIndex index)
      : c10::GeneratorImpl(c10::Device(FAKE, index), c10::DispatchKeySet(KEY)), host(std::move(host)) {}
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  uint64_t get_offset() const override { return host.get_offset(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.unsafeGetGeneratorImpl()->seed(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host.unsafeGetGeneratorImpl()->get_state();
  }
  FakeGenerator* clone_impl() const override { return new FakeGenerator(host.clone(), device().index()); }
};

at::Generator make_generator(c10::DeviceIndex index) {
  return at::make_generator<FakeGenerator>(at::detail::createCPUGenerator(), index < 0 ? current_device : index);
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::map<c10::DeviceIndex, at::Generator> known;
  Locked guard(lock);
  auto at = index < 0 ? current_device : index;
  if (!known.count(at)) known[at] = make_generator(at);
  return known[at];
}

at::Generator host_generator(const at::Generator& generator) {
  return static_cast<FakeGenerator*>(generator.unsafeGetGeneratorImpl())->host;
}

// ---- memory of the host that the device copies from and to at its full rate ----

std::set<const void*> pinned;

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto* owner = new c10::DataPtr(c10::GetAllocator(c10::kCPU)->allocate(bytes));
    void* start = owner->get();
    Locked guard(lock);
    if (start) pinned.insert(start);
    return {start, owner, &release, c10::kCPU};
  }
  static void release(void* held) {
    auto* owner = static_cast<c10::DataPtr*>(held);
    {
      Locked guard(lock);
      pinned.erase(owner->get());
    }
    delete owner;
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

PinnedAllocator pinned_memory;

struct Hooks final : at::PrivateUse1HooksInterface {
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return make_generator(index); }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return c10::DeviceIndex(devices); }
  void setCurrentDevice(c10::DeviceIndex device) const override { current_device = device; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    auto before = current_device;
    current_device = device;
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* start) const override {
    Locked guard(lock);
    return pinned.count(start) > 0;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  c10::Device getDeviceFromPtr(void*) const override { return {FAKE, 0}; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* impl = storage.unsafeGetStorageImpl();
    auto fresh = memory.allocate(bytes);
    if (size_t kept = std::min(bytes, impl->nbytes())) memcpy(fresh.get(), impl->data(), kept);
    impl->set_data_ptr_noswap(std::move(fresh));
    impl->set_nbytes(bytes);
  }
};

// ---- calls: the CPU's kernels over the same memory ----

struct Owner {
  c10::Storage storage;
};

at::Tensor over(const at::Tensor& tensor, c10::Device device, c10::DispatchKey key) {
  auto* owner = new Owner{tensor.storage()};
  c10::DataPtr data(
      const_cast<void*>(tensor.storage().data()), owner, [](void* p) { delete static_cast<Owner*>(p); }, device);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), tensor.storage().nbytes(), std::move(data), c10::GetAllocator(device.type()),
      /*resizable=*/true);
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(key), tensor.dtype());
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  at::Tensor made(std::move(impl));
  if (tensor.is_conj()) made._set_conj(true);
  if (tensor.is_neg()) made._set_neg(true);
  return made;
}

at::Tensor on_host(const at::Tensor& tensor) { return over(tensor, c10::kCPU, c10::DispatchKey::CPU); }

struct Call {
  std::string name;
  std::vector<at::Tensor> originals, aliases;  // of the device, and over the same memory for the CPU
  bool indexes = false;                        // torch takes indices from the host

  at::Tensor argument(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined()) return tensor;
    if (tensor.device().type() != FAKE) {
      TORCH_CHECK(
          tensor.dim() == 0 || indexes, "Expected all tensors to be on the same device, but ", name, " got one of ",
          tensor.sizes(), " on ", tensor.device(), " beside those on fakegpu");
      return tensor;
    }
    touch(tensor, name, writes);
    for (size_t i = 0; i < originals.size(); i++)
      if (originals[i].is_same(tensor)) return aliases[i];
    originals.push_back(tensor);
    aliases.push_back(on_host(tensor));
    return aliases.back();
  }

  at::Tensor result(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() == FAKE) return tensor;
    for (size_t i = 0; i < aliases.size(); i++) {
      if (aliases[i].is_same(tensor)) return originals[i];
      if (tensor.has_storage() && tensor.storage().data() && tensor.storage().is_alias_of(aliases[i].storage())) {
        auto impl = c10::make_intrusive<c10::TensorImpl>(
            c10::Storage(originals[i].storage()), c10::DispatchKeySet(KEY), tensor.dtype());
        impl->set_storage_offset(tensor.storage_offset());
        impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
        return at::Tensor(std::move(impl));
      }
    }
    auto made = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::Device(FAKE, current_device)));
    if (tensor.numel()) on_host(made).copy_(tensor);
    touch(made, name, true);
    return made;
  }

  void outputs_resized() {
    for (size_t i = 0; i < aliases.size(); i++) {
      auto &mine = originals[i], &his = aliases[i];
      if (mine.sizes() == his.sizes() && mine.storage().data() == his.storage().data()) continue;
      at::native::resize_(mine, his.sizes());
      on_host(mine).copy_(his);
    }
  }
};

bool is_product(const std::string& name, const std::string& overload) {
  return overload.empty() && (name == "aten::mm" || name == "aten::bmm" || name == "aten::addmm");
}

// A product of bf16 is computed in float32 and rounded at its end, as on a GPU: CPUs without such products take minutes.
bool widen(std::vector<torch::jit::IValue>& given) {
  bool found = false;
  for (auto& value : given) {
    if (!value.isTensor() || value.toTensor().scalar_type() != at::kBFloat16) continue;
    value = value.toTensor().to(at::kFloat);
    found = true;
  }
  return found;
}

void run(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  Call call{schema.name()};
  call.indexes = call.name.find("index") != std::string::npos || call.name.find("copy") != std::string::npos ||
      call.name.find("set_") != std::string::npos;
  std::unique_lock<std::recursive_mutex> guard(lock);
  launch(call.name);
  auto count = schema.arguments().size();
  auto arguments = torch::jit::last(*stack, count);
  std::vector<torch::jit::IValue> given;
  for (size_t i = 0; i < count; i++) {
    auto value = arguments[i];
    bool writes = schema.arguments()[i].alias_info() && schema.arguments()[i].alias_info()->isWrite();
    if (value.isTensor()) {
      value = call.argument(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(call.argument(tensor, writes));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& tensor : value.toOptionalTensorVector())
        list.push_back(tensor ? std::optional<at::Tensor>(call.argument(*tensor, writes)) : std::nullopt);
      value = list;
    } else if (value.isGenerator() && value.toGenerator().device().type() == FAKE) {
      value = host_generator(value.toGenerator());
    } else if (value.isNone() && schema.arguments()[i].name() == "generator") {
      value = host_generator(default_generator(-1));
    } else if (value.isDevice() && value.toDevice().type() == FAKE) {
      value = c10::Device(c10::kCPU);
    }
    given.push_back(std::move(value));
  }
  bool widened = is_product(call.name, schema.overload_name()) && widen(given);
  torch::jit::drop(*stack, count);
  for (auto& value : given) stack->push_back(std::move(value));
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (widened) stack->back() = stack->back().toTensor().to(at::kBFloat16);
  call.outputs_resized();
  auto returned = schema.returns().size();
  auto values = torch::jit::last(*stack, returned);
  std::vector<torch::jit::IValue> results;
  for (size_t i = 0; i < returned; i++) {
    auto value = values[i];
    if (value.isTensor()) {
      value = call.result(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(call.result(tensor));
      value = list;
    }
    results.push_back(std::move(value));
  }
  torch::jit::drop(*stack, returned);
  for (auto& value : results) stack->push_back(std::move(value));
}

at::Tensor empty(
    c10::SymIntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  Locked guard(lock);
  if (device && device->index() >= 0) current_device = device->index();
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(sizes), &memory, c10::DispatchKeySet(KEY), c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), &memory, c10::DispatchKeySet(KEY),
      c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  {
    Locked guard(lock);
    launch("copy");
    touch(from, "copy", false);
    touch(to, "copy", true);
  }
  auto source = from.device().type() == FAKE ? on_host(from) : from;
  if (to.device().type() == FAKE) {
    auto target = on_host(to);
    target.copy_(source);
  } else if (non_blocking) {
    Locked guard(lock);
    auto as_it_is = source.clone();
    auto target = to;
    auto& lane = lanes[current_stream];
    lane.arriving.emplace_back(lane.calls, [target, as_it_is]() mutable { target.copy_(as_it_is); });
  } else {
    wait_for(current_stream, "copy to the host");
    auto target = to;
    target.copy_(source);
  }
  return to;
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  {
    Locked guard(lock);
    touch(tensor, "item", false);
  }
  wait_for(current_stream, "item");
  return at::_local_scalar_dense(on_host(tensor));
}

int64_t attend(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool,
    std::optional<double>, bool) {
  return 0;  // the plain formula
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("_fused_sdp_choice", TORCH_FN(attend));
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
}

}  // namespace

PYBIND11_MODULE(device, m) {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  m.def("set_kernel_s", [](double seconds) { Locked guard(lock); kernel_s = seconds; });
  m.def("set_devices", [](int64_t count) { devices = count; });
  m.def("current_device", []() { return int(current_device); });
  m.def("set_current_device", [](int index) { current_device = c10::DeviceIndex(index); });
  m.def("seed", [](uint64_t seed) { default_generator(-1).unsafeGetGeneratorImpl()->set_current_seed(seed); });
  m.def("random_state", []() { return at::Tensor(default_generator(-1).unsafeGetGeneratorImpl()->get_state()); });
  m.def("set_random_state", [](const at::Tensor& state) {
    default_generator(-1).unsafeGetGeneratorImpl()->set_state(*state.unsafeGetTensorImpl());
  });
  m.def("waits", []() { Locked guard(lock); return waits; });
  m.def("forget_waits", []() { Locked guard(lock); waits.clear(); });
  m.def("over_host_memory", [](const at::Tensor& tensor) { return on_host(tensor); });
  m.def("wait_for_current_stream", []() { wait_for(current_stream, "transfer"); });
}
