#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "store/layout.hpp"
#include "store/store.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::store {

namespace fs = std::filesystem;

/// Two drives and a small model: chunks 0 to 2 stepped (the last short), 3 frozen.
class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    ParameterSpec stepped, frozen;
    stepped.elements = 2 * 16384 + 300;
    frozen.elements = 1000;
    frozen.policy = Policy::kFrozen;
    const std::vector<ParameterSpec> specs = {stepped, frozen};
    layout_ = *ElementLayout::build(specs, {.chunk_elements = 16384});
    for (const char* name : {"a", "b"}) {
      fs::create_directory(path(name));
      options_.directories.push_back(path(name));
    }
    options_.store_id = 0xabc;
    options_.chunk_elements = 16384;
    options_.chunks = layout_.chunks();
    options_.stored_chunks = stored_;
    options_.spilled_gradient_slots = 3;
    options_.spilled_gradient_bytes = 65536;
  }

  std::string path(const std::string& name) const { return temporary_.path() + "/" + name; }
  std::string rank_path(const std::string& drive, const std::string& store = "store-0000000000000abc",
                        const std::string& rank = "rank-00000") const {
    return path(drive) + "/" + store + "/" + rank;
  }

  std::unique_ptr<Store> created(const StoreOptions& options) {
    auto store = Store::create(options);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(*store) : nullptr;
  }
  std::unique_ptr<Store> created() { return created(options_); }

  Status refusal(const StoreOptions& options) { return Store::create(options).status(); }
  Status refusal() { return refusal(options_); }

  /// Everything under both drives, relative to the temporary directory.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const char* drive : {"a", "b"}) {
      for (const auto& entry : fs::recursive_directory_iterator(path(drive))) {
        found.push_back(entry.path().string().substr(temporary_.path().size() + 1));
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  sim::TemporaryDirectory temporary_;
  ElementLayout layout_;
  std::vector<std::uint32_t> stored_ = {0, 1, 2, 3};
  StoreOptions options_;
};

}  // namespace sluice::store
