#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::tools {

/// Every value of a parameter that an engine gives out: "<name> <view>" to its bytes.
using StateValues = std::map<std::string, std::vector<std::byte>>;

/// An engine with a small model of every policy, a scalar, a parameter without elements, one over several chunks and an
/// alias, which makes a store in the directories or goes on with the one that is there.
class MadeStore {
 public:
  /// Of matrices; the gains are fp32, ice is frozen BF16, codes are frozen U8.
  static constexpr AdamW kOptimizer{.lr = 0.0123, .beta2 = 0.95, .weight_decay = 0.1};

  explicit MadeStore(std::vector<std::string> directories, std::uint32_t keep_commits = 1)
      : MadeStore(options(std::move(directories), keep_commits)) {}
  /// With several ranks the first one alone has gradients.
  explicit MadeStore(EngineOptions options, Policy matrices = Policy::kBf16Split,
                     std::shared_ptr<Communicator> communicator = make_single_communicator(),
                     const Optimizer& optimizer = kOptimizer);

  static EngineOptions options(std::vector<std::string> directories, std::uint32_t keep_commits = 1);

  /// With gradients that depend on the count of steps alone.
  void step();
  /// Waits. Returns: its number.
  std::uint64_t commit(const std::string& user_bytes = "");
  StateValues state() const;
  void close();

  const SealReport& seal() const { return seal_; }

 private:
  struct Parameter {
    std::string name;
    ParameterId id;
    std::uint64_t elements;
    DType weight;
    Policy policy;
    Moments moments;
  };
  void add(const std::string& name, std::vector<std::int64_t> shape, GroupId group, Policy policy,
           DType weight, Initial initial);

  Optimizer optimizer_;  // of the matrices
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Engine> engine_;
  std::vector<Parameter> parameters_;
  SealReport seal_;
  std::uint64_t steps_ = 0;
};

}  // namespace sluice::tools
