#include <sluice/sluice.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using namespace sluice;

// Pulls four million weights towards 1. Their state, 48 MiB, lives on the drive; memory holds half of it at most.
static Status train(const char* directory) {
  EngineOptions options;
  options.directories = {directory};
  options.host_budget_bytes = 24 << 20;
  options.device_budget_bytes = 4 << 20;
  options.chunk_elements = 256 << 10;
  auto device = make_host_device();
  if (!device.ok()) return device.status();
  auto created = Engine::create(options, *device, make_single_communicator());
  if (!created.ok()) return created.status();
  Engine& engine = **created;

  GroupOptions rule;
  rule.name = "all";
  rule.optimizer = AdamW{.lr = 0.1, .weight_decay = 0};
  rule.gradient = GradientStorage::kBf16Once;
  auto group = engine.add_group(rule);
  if (!group.ok()) return group.status();
  std::vector<ParameterId> layers;
  for (int i = 0; i < 4; ++i) {
    auto layer = engine.add_parameter({"layer" + std::to_string(i), {1024, 1024}, *group, Normal{0, 0.02F}});
    if (!layer.ok()) return layer.status();
    layers.push_back(*layer);
  }
  if (auto sealed = engine.seal(); !sealed.ok()) return sealed.status();

  std::vector<float> gradient(1024 * 1024);
  for (int step = 1; step <= 10; ++step) {
    auto pass = engine.begin_step();
    if (!pass.ok()) return pass.status();
    double loss = 0;
    for (ParameterId layer : layers) {
      auto lease = pass->fetch({&layer, 1});  // weights in device memory until the lease is dropped
      if (!lease.ok()) return lease.status();
      const auto* bf16 = static_cast<const std::uint16_t*>((*lease)[layer].data);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = std::bit_cast<float>(std::uint32_t{bf16[i]} << 16) - 1;
        loss += 0.5 * gradient[i] * gradient[i];
      }
      lease->release();
      SLUICE_RETURN_IF_ERROR(pass->add_gradient(layer, Gradient::f32(gradient.data())));
    }
    if (auto result = pass->step(); !result.ok()) return result.status();
    std::printf("step %d: loss %.4f\n", step, loss / (4.0 * 1024 * 1024));
  }
  return engine.close();
}

int main(int argc, char** argv) {
  const Status status = train(argc > 1 ? argv[1] : ".");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
