#include <gtest/gtest.h>

#include <cstddef>
#include <thread>
#include <vector>

#include "formats/model_reader.hpp"
#include "made_store.hpp"
#include "run_command.hpp"

namespace sluice::tools {
namespace {

using formats::ModelReader;

TEST(ExportBounds, MemoryDoesNotGrowWithTheState) {
  constexpr std::int64_t kElements = 16 << 20;  // 192 MiB of state
  const ScratchDirectory directory;
  {
    EngineOptions options = MadeStore::options({directory.path()});
    options.chunk_elements = 1 << 20;
    options.host_budget_bytes = 256 << 20;
    auto device = make_host_device();
    ASSERT_TRUE(device.ok());
    auto engine = Engine::create(std::move(options), std::move(device).value(), make_single_communicator());
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    const auto group = (*engine)->add_group({.name = "all"});
    ASSERT_TRUE(group.ok());
    ASSERT_TRUE(
        (*engine)
            ->add_parameter({.name = "large", .shape = {kElements}, .group = *group, .initial = Constant{3}})
            .ok());
    const auto sealed = (*engine)->seal();
    ASSERT_TRUE(sealed.ok()) << sealed.status().to_string();
    ASSERT_TRUE((*engine)->commit({}, CommitMode::kWait).ok());
    ASSERT_TRUE((*engine)->close().ok());
  }
  const CommandResult looked = run_command({"inspect", "--dir", directory.path()});
  ASSERT_EQ(looked.exit_code, 0) << looked.errors;
  const CommandResult exported =
      run_command({"export", "--dir", directory.path(), "--to", directory.path() + "/m", "--optimizer"});
  ASSERT_EQ(exported.exit_code, 0) << exported.errors;
  // The reader's and the conversion's 8 MiB each, 1 MiB a writer, tables.
  EXPECT_LT(exported.peak_rss_bytes, looked.peak_rss_bytes + (24 << 20));
  const CommandResult verified = run_command({"verify", "--dir", directory.path()});
  ASSERT_EQ(verified.exit_code, 0) << verified.errors;
  EXPECT_LT(verified.peak_rss_bytes, looked.peak_rss_bytes + (14 << 20));
}

TEST(ExportBounds, SeveralRanksAreOneModel) {
  const ScratchDirectory one, two, files;
  MadeStore single({one.path()});
  single.step();
  single.commit();
  const StateValues state = single.state();
  single.close();

  auto communicators = make_in_process_communicators(3);
  ASSERT_TRUE(communicators.ok());
  std::vector<std::thread> ranks;
  for (const auto& communicator : *communicators) {
    ranks.emplace_back([&two, communicator] {
      MadeStore rank(MadeStore::options({two.path()}), Policy::kBf16Split, communicator);
      rank.step();
      rank.commit("rank " + std::to_string(communicator->rank()));
      rank.close();
    });
  }
  for (std::thread& rank : ranks) rank.join();

  const CommandResult looked = run_command({"inspect", "--json", "--dir", two.path()});
  EXPECT_EQ(looked.json().at("stores")[0].at("world"), 3);
  EXPECT_EQ(looked.json().at("stores")[0].at("commits").back().at("ranks"), nlohmann::json({0, 1, 2}));
  EXPECT_EQ(run_command({"verify", "--dir", two.path()}).exit_code, 0);
  const std::string model = files.path() + "/w.safetensors";
  const CommandResult exported =
      run_command({"export", "--dir", two.path(), "--to", model, "--dtype", "fp32", "--optimizer"});
  ASSERT_EQ(exported.exit_code, 0) << exported.errors;

  const auto read = [&](const std::string& path, const std::string& name) {
    const auto reader = ModelReader::open(path);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    const ModelReader::Tensor* tensor = reader->find(name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<std::byte> bytes(tensor->info->bytes);
    EXPECT_TRUE(ModelReader::read(*tensor, {0, tensor->info->elements()}, bytes).ok());
    return bytes;
  };
  const std::string optimizer = files.path() + "/w.optimizer.safetensors";
  for (const std::string name : {"embedding", "deep", "gain", "scale"}) {
    EXPECT_EQ(read(model, name), state.at(name + " master")) << name;
    EXPECT_EQ(read(optimizer, name + ".moment1"), state.at(name + " moment1")) << name;
    EXPECT_EQ(read(optimizer, name + ".moment2"), state.at(name + " moment2")) << name;
    EXPECT_EQ(read(optimizer, name + ".step"), state.at(name + " count")) << name;
  }
  EXPECT_EQ(read(model, "ice"), state.at("ice weight"));
  const std::vector<std::byte> last = read(optimizer, "sluice.user_bytes.2");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(last.data()), last.size()), "rank 2");
}

}  // namespace
}  // namespace sluice::tools
