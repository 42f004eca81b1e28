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
    StoredParameter stepped{.name = "stepped", .shape = {2 * 16384 + 300}, .group = 0};
    StoredParameter frozen{.name = "frozen", .shape = {10, 100}, .group = 1, .policy = Policy::kFrozen};
    parameters_ = {stepped, frozen};
    layout_ = *ElementLayout::build(specs_of({parameters_, {}, {}, {}}), {.chunk_elements = 16384});
    for (const char* name : {"a", "b"}) {
      fs::create_directory(path(name));
      paths_.push_back(path(name));
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

  Result<std::unique_ptr<Store>> create(const StoreOptions& options) const {
    SLUICE_ASSIGN_OR_RETURN(const Drives drives, Drives::open(paths_, io::Access::kReadWrite));
    SLUICE_ASSIGN_OR_RETURN(const auto guards, drives.guard());
    return Store::create(drives, options);
  }
  /// As a run that starts: what dead scratch runs left goes first.
  Result<std::unique_ptr<Store>> replace(const StoreOptions& options) const {
    SLUICE_ASSIGN_OR_RETURN(const Drives drives, Drives::open(paths_, io::Access::kReadWrite));
    SLUICE_ASSIGN_OR_RETURN(const auto guards, drives.guard());
    SLUICE_ASSIGN_OR_RETURN(
        std::vector<ExistingRank> ranks,
        find_existing(drives.directories(), {.rank = options.rank, .world = options.world}, Owner::make()));
    for (ExistingRank& rank : ranks) SLUICE_RETURN_IF_ERROR(remove_existing(std::move(rank)));
    return Store::create(drives, options);
  }

  std::unique_ptr<Store> created(const StoreOptions& options) const {
    auto store = create(options);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(*store) : nullptr;
  }
  std::unique_ptr<Store> created() const { return created(options_); }

  Status refusal(const StoreOptions& options) const { return create(options).status(); }
  Status refusal() const { return refusal(options_); }

  std::uint64_t needed(const StoreOptions& options) const {
    return Store::needed_bytes(options, static_cast<std::uint32_t>(paths_.size()));
  }

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
  std::vector<StoredParameter> parameters_;
  ElementLayout layout_;
  std::vector<std::uint32_t> stored_ = {0, 1, 2, 3};
  std::vector<std::string> paths_;
  StoreOptions options_;
};

}  // namespace sluice::store
