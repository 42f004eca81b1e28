#include <sluice/sluice.hpp>

#include <cstdio>
#include <string>
#include <vector>

using namespace sluice;

// Pulls four million weights towards 1. Their state, 48 MiB, lives on the drive; memory holds half of it at most. The
// store on the drive is the checkpoint: run again, it goes on where it stopped.
static Status train(const char* directory) {
  SLUICE_ASSIGN_OR_RETURN(auto device, make_host_device());
  SLUICE_ASSIGN_OR_RETURN(auto engine, Engine::create({.directories = {directory},
                                                       .host_budget_bytes = 24 << 20,
                                                       .device_budget_bytes = 8 << 20,
                                                       .chunk_elements = 256 << 10},
                                                      device, make_single_communicator()));
  SLUICE_ASSIGN_OR_RETURN(auto group, engine->add_group({.policy = Policy::kFp32, .optimizer = AdamW{.lr = 0.1}}));
  std::vector<ParameterId> layers(4);
  for (ParameterId& layer : layers) {
    const std::string name = "layer" + std::to_string(&layer - layers.data());
    SLUICE_ASSIGN_OR_RETURN(layer, engine->add_parameter({.name = name, .shape = {1024, 1024}, .group = group}));
  }
  SLUICE_ASSIGN_OR_RETURN(auto report, engine->seal());
  std::printf("%zu KiB of state, %zu KiB of host memory\n", report.state_bytes >> 10, report.host_bytes >> 10);
  if (report.recovered) std::printf("going on after step %zu\n", report.recovered->step);

  std::vector<float> gradient(1024 * 1024);
  for (int i = 0; i < 10; ++i) {
    SLUICE_ASSIGN_OR_RETURN(auto pass, engine->begin_step());
    for (ParameterId layer : layers) {
      SLUICE_ASSIGN_OR_RETURN(auto lease, pass.fetch({&layer, 1}));  // the next layers are read meanwhile
      const auto* weights = static_cast<const float*>(lease[layer].data);
      for (std::size_t k = 0; k < gradient.size(); ++k) gradient[k] = weights[k] - 1;
      SLUICE_RETURN_IF_ERROR(pass.add_gradient(layer, Gradient::f32(gradient.data())));
    }
    SLUICE_ASSIGN_OR_RETURN(auto result, pass.step());
    std::printf("step %zu: gradient norm %.1f\n", result.step, result.norm);
  }
  SLUICE_RETURN_IF_ERROR(engine->commit({}, CommitMode::kWait).status());  // writes no state: it is there already
  return engine->close();
}

int main(int argc, char** argv) {
  const Status status = train(argc > 1 ? argv[1] : ".");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
