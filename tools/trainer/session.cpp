#include "trainer/session.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "trainer/progress.hpp"

namespace sluice::trainer {
namespace {

std::uint64_t device_bytes(const TrainOptions& options) {
  if (options.device_memory_bytes) return *options.device_memory_bytes;
  const std::uint64_t weight_bytes = options.policy == Policy::kFp32 ? 4 : 2;
  constexpr std::uint64_t kAlignmentRoom = 64 << 10;
  return 4 * (weight_bytes * largest_part_elements(options.shape) + kAlignmentRoom);
}

Result<Session> open_with(const TrainOptions& options, const Acceptance& accept, std::uint64_t host_bytes) {
  auto device = make_host_device();
  if (!device.ok()) return device.status();
  Session session;
  session.host_memory_bytes = host_bytes;
  session.device_memory_bytes = device_bytes(options);
  EngineOptions engine_options;
  engine_options.directories = options.directories;
  engine_options.host_budget_bytes = host_bytes;
  engine_options.device_budget_bytes = session.device_memory_bytes;
  engine_options.chunk_elements = options.chunk_elements;
  engine_options.threads = options.threads;
  engine_options.undo = options.undo;
  engine_options.seed = options.seed;
  engine_options.io.backend = options.backend;
  engine_options.existing =
      options.start == Start::kResume ? OnExisting::kRecover : OnExisting::kReplaceScratch;
  engine_options.keep_commits = options.commit_every > 0 ? options.keep_commits : 0;
  // Places for commits are made and host memory for them is reserved by this: no more than the run can need.
  engine_options.max_user_bytes = options.commit_every > 0 ? Progress::room_bytes(options.steps) : 0;
  engine_options.recover_commit = options.resume_from;
  engine_options.accept = accept;
  engine_options.recover_directories = options.recover_directories;
  auto engine = Engine::create(std::move(engine_options), *device, make_single_communicator());
  if (!engine.ok()) return engine.status();
  session.engine = std::move(*engine);

  auto registry = Registry::add(*session.engine, options.shape, {options.policy, options.optimizer});
  if (!registry.ok()) return registry.status();
  session.registry = std::move(*registry);
  const auto layout = session.engine->seal();
  if (!layout.ok()) return layout.status();
  session.layout = *layout;
  return session;
}

// All whole numbers in a sentence.
std::set<std::uint64_t> numbers_in(std::string_view text) {
  std::set<std::uint64_t> numbers;
  while (!text.empty()) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{}) numbers.insert(number);
    text.remove_prefix(std::max<std::size_t>(1, static_cast<std::size_t>(end - text.data())));
  }
  return numbers;
}

// seal() refuses a budget of one byte before any work, and its refusal names the smallest that would do among
// other numbers: it is the first of them, from the smallest up, that seal() accepts.
Result<Session> open_with_least(const TrainOptions& options, const Acceptance& accept) {
  Result<Session> session = open_with(options, accept, 1);
  for (const std::uint64_t bytes : numbers_in(session.status().message())) {
    if (session.ok() || session.status().code() != Code::kResourceExhausted) break;
    if (bytes > 1) session = open_with(options, accept, bytes);
  }
  return session;
}

}  // namespace

Result<Session> open_session(const TrainOptions& options, const Acceptance& accept) {
  return options.host_memory_bytes ? open_with(options, accept, *options.host_memory_bytes)
                                   : open_with_least(options, accept);
}

}  // namespace sluice::trainer
