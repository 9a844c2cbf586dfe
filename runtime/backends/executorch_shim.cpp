// See executorch_shim.h. Links against the ExecuTorch runtime alone: no torch.

#include "executorch_shim.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/extension/threadpool/threadpool_guard.h>
#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/core/event_tracer_hooks.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>

// The threadpool library exports these, but its header is not installed with it.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

#if defined(__x86_64__) && defined(__linux__)
#define PIXDRAFT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PIXDRAFT_CLONES
#endif

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::Module;
using executorch::extension::threadpool::NoThreadPoolGuard;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Kernel;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::Span;
using executorch::runtime::internal::EventTracerProfileOpScope;

thread_local std::string last_error;

int failed(const std::string& doing, Error error) {
  last_error = doing + ": " + executorch::runtime::to_string(error);
  return -1;
}

// exp(x) for x <= 0, in a form that compilers turn into vector code; relative error below 2e-7.
inline float exp_negative(float x) {
  x = x < -87.0f ? -87.0f : x;
  const float turns = x * 1.44269504f;
  const float whole = (turns + 12582912.0f) - 12582912.0f;  // rounds to the nearest whole number
  const float rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float series = 1.9875691500e-4f;
  series = series * rest + 1.3981999507e-3f;
  series = series * rest + 8.3334519073e-3f;
  series = series * rest + 4.1665795894e-2f;
  series = series * rest + 1.6666665459e-1f;
  series = series * rest + 5.0000001201e-1f;
  series = series * rest * rest + rest + 1.0f;
  const int32_t bits = (static_cast<int32_t>(whole) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return series * power;
}

// One query over the first `count` slots. Layouts: query, out [heads, width]; keys, values [slots, heads, width];
// scores [heads, count]. Slots are the outer loop: the cache is read once, from front to back.
PIXDRAFT_CLONES void attend(
    const float* query, const float* keys, const float* values, float* scores, float* out,
    int64_t count, int64_t heads, int64_t width, float scale) {
  const int64_t row = heads * width;
  for (int64_t slot = 0; slot < count; ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      const float* a = query + head * width;
      const float* b = keys + slot * row + head * width;
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < width; ++i) sum += a[i] * b[i];
      scores[head * count + slot] = sum * scale;
    }
  }
  for (int64_t head = 0; head < heads; ++head) {
    float* s = scores + head * count;
    float top = s[0], total = 0.0f;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < count; ++i) top = s[i] > top ? s[i] : top;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; ++i) {
      s[i] = exp_negative(s[i] - top);
      total += s[i];
    }
    const float share = 1.0f / total;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) s[i] *= share;
  }
  std::memset(out, 0, row * sizeof(float));
  for (int64_t slot = 0; slot < count; ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      const float weight = scores[head * count + slot];
      const float* b = values + slot * row + head * width;
      float* o = out + head * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) o[i] += weight * b[i];
    }
  }
}

bool plain(const Tensor& t) {
  return t.scalar_type() == ScalarType::Float && t.dim() == 4 && t.size(0) == 1;
}

// llama::custom_sdpa.out(query, key, value, start, mask, dropout, causal, scale, *, out), all [1, n, heads, width].
// Phones have it from ExecuTorch's own LLM kernels; the Python wheel links those to torch, so it is here again.
void custom_sdpa(KernelRuntimeContext& context, Span<EValue*> arguments) {
  const EventTracerProfileOpScope told(context.internal_event_tracer(), "native_call_llama::custom_sdpa.out");
  const Tensor query = arguments[0]->toTensor();
  const Tensor keys = arguments[1]->toTensor(), values = arguments[2]->toTensor();
  const int64_t start = arguments[3]->toInt();
  Tensor out = arguments[8]->toTensor();
  const bool causal = arguments[4]->isNone() && arguments[6]->toBool();
  if (!causal || !plain(query) || !plain(keys) || !plain(values) || query.size(2) != keys.size(2) || start < 0 ||
      start + query.size(1) > keys.size(1)) {
    return context.fail(Error::NotSupported);
  }
  if (const Error error = executorch::runtime::resize_tensor(out, query.sizes()); error != Error::Ok) {
    return context.fail(error);
  }
  const int64_t heads = query.size(2), width = query.size(3);
  const float scale = arguments[7]->isNone() ? 1.0f / std::sqrt(static_cast<float>(width))
                                             : static_cast<float>(arguments[7]->toDouble());
  static thread_local std::vector<float> scores;
  scores.resize(heads * (start + query.size(1)));
  for (int64_t i = 0; i < query.size(1); ++i) {
    const int64_t at = i * heads * width;
    attend(
        query.const_data_ptr<float>() + at, keys.const_data_ptr<float>(), values.const_data_ptr<float>(),
        scores.data(), out.mutable_data_ptr<float>() + at, start + i + 1, heads, width, scale);
  }
}

// llama::update_cache.out(value, cache, start, *, out): rows of value into the cache's slots from `start` on.
void update_cache(KernelRuntimeContext& context, Span<EValue*> arguments) {
  const EventTracerProfileOpScope told(context.internal_event_tracer(), "native_call_llama::update_cache.out");
  const Tensor value = arguments[0]->toTensor();
  Tensor cache = arguments[1]->toTensor();
  const int64_t start = arguments[2]->toInt();
  if (!plain(value) || !plain(cache) || value.size(2) * value.size(3) != cache.size(2) * cache.size(3) || start < 0 ||
      start + value.size(1) > cache.size(1)) {
    return context.fail(Error::NotSupported);
  }
  const int64_t row = value.size(2) * value.size(3);
  std::memcpy(
      cache.mutable_data_ptr<float>() + start * row, value.const_data_ptr<float>(),
      value.size(1) * row * sizeof(float));
}

std::vector<Kernel> kernels() {
  std::vector<Kernel> all{
      Kernel("llama::custom_sdpa.out", custom_sdpa), Kernel("llama::update_cache.out", update_cache)};
  const size_t own = all.size();
  for (const Kernel& other : executorch::runtime::get_registered_kernels()) {
    // Where torch is loaded, the wheel's own of that name may be registered too, and the last of a name is taken.
    const auto same = [&](const Kernel& kernel) { return std::strcmp(kernel.name_, other.name_) == 0; };
    if (std::none_of(all.begin(), all.begin() + own, same)) all.push_back(other);
  }
  return all;
}

// The time of operators by name, of each run. The runtime announces each instruction, a call of an operator or of a
// delegate, and within the former the kernel announces its name.
class OperatorClock final : public executorch::runtime::EventTracer {
 public:
  using Index = executorch::runtime::DelegateDebugIntId;
  using Ticks = et_timestamp_t;

  struct Spent {
    std::string name;
    std::vector<int64_t> nanoseconds;  // by run
  };

  std::vector<Spent> spent;

  void begin_run() {
    ++runs_;
    for (Spent& one : spent) one.nanoseconds.push_back(0);
  }

  void clear() {
    runs_ = 0;
    spent.clear();
  }

  // A run is stopped now and then by whatever else the machine does, hence no mean.
  double median_seconds(size_t place) const {
    std::vector<int64_t> sorted = spent[place].nanoseconds;
    if (sorted.empty()) return 0.0;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return (sorted[half] + sorted[(sorted.size() - 1) / 2]) * 0.5e-9;
  }

  executorch::runtime::EventTracerEntry start_profiling(
      const char* name, executorch::runtime::ChainID, executorch::runtime::DebugHandle) override {
    executorch::runtime::EventTracerEntry entry{};
    entry.event_id = kOther;
    if (std::strncmp(name, "native_call_", 12) == 0) {
      kernel_ = at(name);
    } else if (std::strcmp(name, "OPERATOR_CALL") == 0 || std::strcmp(name, "DELEGATE_CALL") == 0) {
      entry.event_id = at(name);
      kernel_ = kOther;
      telling_ = told_ = 0;
    }
    entry.start_time = now();
    return entry;
  }

  void end_profiling(executorch::runtime::EventTracerEntry entry) override {
    const int64_t end = now();
    if (entry.event_id == kOther || !runs_) return;
    // What a kernel did not name, such as a view or arithmetic on sizes, stays under OPERATOR_CALL.
    const int64_t place = kernel_ == kOther ? entry.event_id : kernel_;
    spent[place].nanoseconds.back() += end - static_cast<int64_t>(entry.start_time) - telling_;
  }

  // A delegate that is timed tells of each of its operators when it is done, in whole microseconds: too coarse to be of
  // use, and that it takes time to tell is not the model's fault.
  void log_profiling_delegate(const char*, Index, Ticks, Ticks, const void*, size_t) override {
    const int64_t time = now();
    if (told_) telling_ += time - told_;
    told_ = time;
  }

  // Nothing else is wanted.
  using Logged = executorch::runtime::Result<bool>;
  void create_event_block(const char*) override {}
  executorch::runtime::EventTracerEntry start_profiling_delegate(const char*, Index) override { return {}; }
  void end_profiling_delegate(executorch::runtime::EventTracerEntry, const void*, size_t) override {}
  void track_allocation(executorch::runtime::AllocatorID, size_t) override {}
  executorch::runtime::AllocatorID track_allocator(const char*) override { return 0; }
  Logged log_evalue(const EValue&, executorch::runtime::LoggedEValueType) override { return false; }
  Logged log_intermediate_output_delegate(const char*, Index, const Tensor&) override { return false; }
  Logged log_intermediate_output_delegate(
      const char*, Index, const executorch::runtime::ArrayRef<Tensor>) override {
    return false;
  }
  Logged log_intermediate_output_delegate(const char*, Index, const int&) override { return false; }
  Logged log_intermediate_output_delegate(const char*, Index, const bool&) override { return false; }
  Logged log_intermediate_output_delegate(const char*, Index, const double&) override { return false; }
  void set_delegation_intermediate_output_filter(executorch::runtime::EventTracerFilterBase*) override {}

 private:
  static constexpr int64_t kOther = -1;
  size_t runs_ = 0;
  int64_t kernel_ = kOther;
  int64_t told_ = 0, telling_ = 0;

  static int64_t now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  }

  int64_t at(const char* name) {
    for (size_t i = 0; i < spent.size(); ++i) {
      if (spent[i].name == name) return static_cast<int64_t>(i);
    }
    spent.push_back({name, std::vector<int64_t>(runs_)});
    return static_cast<int64_t>(spent.size()) - 1;
  }
};

// Options of a program whose methods share their packed weights.
executorch::runtime::LoadBackendOptionsMap& pool() {
  static executorch::runtime::BackendOptions<1> xnnpack;
  static executorch::runtime::LoadBackendOptionsMap all;
  static const Error made = [] {
    const Error set = xnnpack.set_option("weight_cache_enabled", true);
    return set == Error::Ok ? all.set_options("XnnpackBackend", xnnpack.view()) : set;
  }();
  (void)made;
  return all;
}

}  // namespace

struct pixdraft_program {
  struct LoadedMethod {
    std::string name;
    std::vector<EValue> outputs;
  };
  std::unique_ptr<OperatorClock> clock;  // it must outlive the methods; none, and nothing is timed
  std::unique_ptr<Module> module;
  std::vector<LoadedMethod> methods;
  bool alone;  // one thread: no pool is made, and none is asked

  // XNNPACK takes the pool that it finds while it loads and while it runs.
  template <typename Call>
  auto run(Call call) {
    if (!alone) return call();
    NoThreadPoolGuard guard;
    return call();
  }
};

extern "C" {

pixdraft_program* pixdraft_open(const char* path, int threads, int pooled, int timed) {
  auto program = std::make_unique<pixdraft_program>();
  if (timed) program->clock = std::make_unique<OperatorClock>();
  program->alone = threads <= 1;
  if (!program->alone) {
    executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(threads);
  }
  // Shared arenas are what makes the methods' state one.
  program->module = std::make_unique<Module>(path, Module::LoadMode::Mmap, nullptr, nullptr, nullptr, true);
  const Error error = pooled ? program->module->load(pool()) : program->module->load();
  if (error != Error::Ok) {
    failed("loading the program", error);
    return nullptr;
  }
  return program.release();
}

void pixdraft_close(pixdraft_program* program) { delete program; }

int pixdraft_method(pixdraft_program* program, const char* name) {
  const Error error = program->run(
      [&] { return program->module->load_method(name, nullptr, program->clock.get(), nullptr, kernels()); });
  if (error != Error::Ok) return failed(std::string("loading the method ") + name, error);
  program->methods.push_back({name, {}});
  return static_cast<int>(program->methods.size()) - 1;
}

int pixdraft_bind(pixdraft_program* program, int method, int input, void* data, const int32_t* sizes, int rank) {
  const std::string& name = program->methods[method].name;
  const auto meta = program->module->method_meta(name);
  if (!meta.ok()) return failed("reading the method " + name, meta.error());
  const auto wanted = meta->input_tensor_meta(input);
  if (!wanted.ok()) return failed("reading an input of " + name, wanted.error());
  const auto tensor = executorch::extension::from_blob(
      data, std::vector<executorch::aten::SizesType>(sizes, sizes + rank), wanted->scalar_type());
  const Error error = program->module->set_input(name, EValue(*tensor), input);
  return error == Error::Ok ? 0 : failed("setting an input of " + name, error);
}

int pixdraft_execute(pixdraft_program* program, int method) {
  auto& chosen = program->methods[method];
  if (program->clock) program->clock->begin_run();
  auto made = program->run([&] { return program->module->execute(chosen.name); });
  if (!made.ok()) return failed("running " + chosen.name, made.error());
  chosen.outputs = std::move(*made);
  return 0;
}

int64_t pixdraft_output(pixdraft_program* program, int method, int output, const void** data) {
  const auto& chosen = program->methods[method];
  if (output < 0 || output >= static_cast<int>(chosen.outputs.size())) {
    return failed("reading an output of " + chosen.name, Error::InvalidArgument);
  }
  const Tensor tensor = chosen.outputs[output].toTensor();
  *data = tensor.const_data_ptr();
  return tensor.numel();
}

double pixdraft_seconds(pixdraft_program* program, int place, const char** name) {
  if (!program->clock || place < 0 || place >= static_cast<int>(program->clock->spent.size())) return -1.0;
  *name = program->clock->spent[place].name.c_str();
  return program->clock->median_seconds(place);
}

void pixdraft_clear(pixdraft_program* program) {
  if (program->clock) program->clock->clear();
}

const char* pixdraft_error(void) { return last_error.c_str(); }

}  // extern "C"
