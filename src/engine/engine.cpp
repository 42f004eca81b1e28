#include "sluice/engine.hpp"

#include <algorithm>
#include <utility>

#include "engine/core.hpp"
#include "engine/probe.hpp"

namespace sluice {

Lease::Lease() = default;
Lease::Lease(std::shared_ptr<engine::LeaseState> state) : state_(std::move(state)) {}
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    state_ = std::move(other.state_);
  }
  return *this;
}
Lease::~Lease() { release(); }

ConstTensor Lease::operator[](ParameterId parameter) const {
  if (!state_) return {};
  const std::optional<std::uint32_t> tensor = state_->core->find_tensor(parameter);
  if (!tensor) return {};
  const auto view = std::ranges::lower_bound(state_->views, *tensor, {}, &engine::LeaseState::View::tensor);
  return view != state_->views.end() && view->tensor == *tensor ? view->data : ConstTensor{};
}

void Lease::release(Stream stream) {
  if (!state_) return;
  state_->core->release(state_->lease, stream);
  state_.reset();
}

CommitTicket::CommitTicket() = default;
CommitTicket::CommitTicket(std::shared_ptr<engine::CommitState> state) : state_(std::move(state)) {}

std::uint64_t CommitTicket::number() const { return state_ ? state_->number : 0; }

bool CommitTicket::done() const {
  if (!state_) return true;
  const std::shared_ptr<engine::Core> core = state_->core.lock();
  return !core || core->done(*state_);
}

Status CommitTicket::wait() const {
  if (!state_) return Status(Code::kFailedPrecondition, "the ticket is empty: no commit was begun with it");
  if (const std::shared_ptr<engine::Core> core = state_->core.lock()) return core->wait(state_);
  return state_->outcome.value_or(Status(Code::kAborted, "the engine is gone"));
}

Pass::Pass() = default;
Pass::Pass(std::shared_ptr<engine::Core> core, std::uint64_t id) : core_(std::move(core)), id_(id) {}
Pass::Pass(Pass&& other) noexcept : core_(std::move(other.core_)), id_(std::exchange(other.id_, 0)) {}
Pass& Pass::operator=(Pass&& other) noexcept {
  if (this != &other) {
    if (core_) (void)core_->abort(id_, engine::Core::Hears::kNothing);
    core_ = std::move(other.core_);
    id_ = std::exchange(other.id_, 0);
  }
  return *this;
}
Pass::~Pass() {
  // Says that the pass is over when it was finished.
  if (core_) (void)core_->abort(id_, engine::Core::Hears::kNothing);
}

namespace {
Status empty_pass() {
  return Status(Code::kFailedPrecondition, "the pass is empty: it was moved from or never begun");
}
}  // namespace

void Pass::prefetch(std::span<const ParameterId> parameters) {
  if (core_) core_->prefetch(id_, parameters);
}

Result<Lease> Pass::fetch(std::span<const ParameterId> parameters, Stream stream) {
  if (!core_) return empty_pass();
  Result<std::shared_ptr<engine::LeaseState>> state = core_->fetch(id_, parameters, stream);
  if (!state.ok()) return state.status();
  return Lease(std::move(state).value());
}

Status Pass::add_gradient(ParameterId parameter, Gradient gradient, Stream stream) {
  return core_ ? core_->add_gradient(id_, parameter, gradient, stream) : empty_pass();
}
Status Pass::no_more_gradients(ParameterId parameter) {
  return core_ ? core_->no_more_gradients(id_, parameter) : empty_pass();
}
Result<double> Pass::norm() {
  if (!core_) return empty_pass();
  return core_->norm(id_);
}
Result<StepResult> Pass::step() {
  if (!core_) return empty_pass();
  return core_->step(id_, std::nullopt);
}
Result<StepResult> Pass::step(StepOptions options) {
  if (!core_) return empty_pass();
  return core_->step(id_, options);
}
Status Pass::end() { return core_ ? core_->end(id_) : empty_pass(); }
Status Pass::abort() { return core_ ? core_->abort(id_) : empty_pass(); }

Engine::Engine(std::shared_ptr<engine::Core> core) : core_(std::move(core)) {}
Engine::~Engine() { (void)core_->close(); }

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options, std::shared_ptr<Device> device,
                                               std::shared_ptr<Communicator> communicator) {
  return engine::Access::create(std::move(options), std::move(device), std::move(communicator), {});
}

Result<GroupId> Engine::add_group(GroupOptions options) { return core_->add_group(std::move(options)); }
Result<ParameterId> Engine::add_parameter(ParameterOptions options) {
  return core_->add_parameter(std::move(options));
}
Result<ParameterId> Engine::add_alias(std::string name, ParameterId parameter) {
  return core_->add_alias(std::move(name), parameter);
}
Result<SealReport> Engine::seal() { return core_->seal(); }

Result<Pass> Engine::begin_step(StepOptions options) {
  const Result<std::uint64_t> id = core_->begin_step(options);
  if (!id.ok()) return id.status();
  return Pass(core_, *id);
}
Result<Pass> Engine::begin_pass(std::string_view phase) {
  const Result<std::uint64_t> id = core_->begin_pass(phase);
  if (!id.ok()) return id.status();
  return Pass(core_, *id);
}

Status Engine::read(ParameterId parameter, View view, Range range, void* target, DType dtype) const {
  return core_->read(parameter, view, range, target, dtype);
}
Status Engine::write(ParameterId parameter, View view, Range range, const void* source, DType dtype) {
  return core_->write(parameter, view, range, source, dtype);
}
Status Engine::update_group(GroupId group, Optimizer optimizer) {
  return core_->update_group(group, optimizer);
}
Result<CommitTicket> Engine::commit(std::span<const std::byte> user_bytes, CommitMode mode) {
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<engine::CommitState> state, core_->commit(user_bytes, mode));
  return CommitTicket(std::move(state));
}
Stats Engine::stats() const { return core_->stats(); }
Status Engine::close() { return core_->close(); }

namespace engine {

Result<std::unique_ptr<Engine>> Access::create(EngineOptions options, std::shared_ptr<Device> device,
                                               std::shared_ptr<Communicator> communicator, Parts parts) {
  Result<std::shared_ptr<Core>> core =
      Core::create(std::move(options), std::move(device), std::move(communicator), std::move(parts));
  if (!core.ok()) return core.status();
  return std::unique_ptr<Engine>(new Engine(std::move(core).value()));
}

Core& Access::core(Engine& engine) { return *engine.core_; }

Result<double> replay_step_io(Engine& engine, Replayed chunks) {
  return Access::core(engine).replay_step(StepMode::kIoOnly, chunks);
}
Result<double> replay_step_compute(Engine& engine, Replayed chunks) {
  return Access::core(engine).replay_step(StepMode::kComputeOnly, chunks);
}
Result<double> bare_flushes(Engine& engine) { return Access::core(engine).flush_twice(); }

}  // namespace engine
}  // namespace sluice
