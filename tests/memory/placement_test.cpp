#include "memory/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::memory {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kMemory = 1 << 30;

// Nodes of two CPUs each, all in the mask.
std::vector<NumaNode> machine(std::uint32_t nodes) {
  std::vector<NumaNode> made;
  for (std::uint32_t i = 0; i < nodes; ++i) made.push_back({i, {2 * i, 2 * i + 1}, kMemory});
  return made;
}

class Place : public testing::Test {
 protected:
  void on(const std::vector<NumaNode>& nodes, const std::vector<int>& drives) {
    placement_ = place_on_nodes(nodes, drives);
    text_ = describe(placement_, nodes);
  }
  void expect_nothing() const {
    EXPECT_EQ(placement_.memory, MemoryPolicy::kFirstTouch);
    EXPECT_THAT(placement_.memory_nodes, IsEmpty());
    EXPECT_THAT(placement_.io_cpus, IsEmpty());
    EXPECT_THAT(placement_.io_nodes, IsEmpty());
  }

  Placement placement_;
  std::string text_;
};

TEST_F(Place, OneNodeLeavesEverythingAsItIs) {
  for (const std::vector<int>& drives : {std::vector<int>{}, {0}, {-1}, {0, 0}, {1}}) {
    on(machine(1), drives);
    expect_nothing();
    EXPECT_EQ(text_, "1 node");
  }
}

TEST_F(Place, DrivesOnOneNodeHaveArenaAndThreadsThere) {
  for (const std::vector<int>& drives : {std::vector<int>{1}, {1, 1, 1}}) {
    on(machine(2), drives);
    EXPECT_EQ(placement_.memory, MemoryPolicy::kPreferred);
    EXPECT_THAT(placement_.memory_nodes, ElementsAre(1));
    EXPECT_THAT(placement_.io_cpus, ElementsAre(2, 3));
    EXPECT_EQ(text_, "node 1 of 2: arena and loop");
  }
}

TEST_F(Place, DrivesOnEveryNodeInterleaveTheArenaAndLeaveThreadsFree) {
  on(machine(2), {0, 1});
  EXPECT_EQ(placement_.memory, MemoryPolicy::kInterleaved);
  EXPECT_THAT(placement_.memory_nodes, ElementsAre(0, 1));
  EXPECT_THAT(placement_.io_cpus, IsEmpty());
  EXPECT_EQ(text_, "arena interleaved over nodes 0,1 of 2");
}

TEST_F(Place, DrivesOnSomeNodesHaveArenaAndThreadsThere) {
  on(machine(4), {3, 1, 3});
  EXPECT_EQ(placement_.memory, MemoryPolicy::kInterleaved);
  EXPECT_THAT(placement_.memory_nodes, ElementsAre(1, 3));
  EXPECT_THAT(placement_.io_cpus, ElementsAre(2, 3, 6, 7));
  EXPECT_EQ(text_, "arena interleaved over nodes 1,3 of 4; loop on nodes 1,3 of 4");
}

TEST_F(Place, AnUnknownNodeInterleavesOverTheMask) {
  for (const std::vector<int>& drives : {std::vector<int>{}, {-1}, {0, -1}, {7}}) {
    on(machine(4), drives);
    EXPECT_EQ(placement_.memory, MemoryPolicy::kInterleaved);
    EXPECT_THAT(placement_.memory_nodes, ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(placement_.io_cpus, IsEmpty());
  }
}

TEST_F(Place, AMaskWithoutTheDrivesNodeInterleavesOverTheRest) {
  std::vector<NumaNode> nodes = machine(4);
  nodes[2].cpus.clear();
  on(nodes, {2});
  EXPECT_THAT(placement_.memory_nodes, ElementsAre(0, 1, 3));
  EXPECT_THAT(placement_.io_cpus, IsEmpty());
  EXPECT_EQ(text_, "arena interleaved over nodes 0,1,3 of 3");
}

TEST_F(Place, AMaskOfOneOfTwoNodesLeavesEverythingAsItIs) {
  std::vector<NumaNode> nodes = machine(2);
  nodes[1].cpus.clear();
  for (const int drive : {0, 1, -1}) {
    on(nodes, {drive});
    expect_nothing();
  }
}

TEST_F(Place, AMaskThatLeavesOneCpuOfTheDrivesNodeIsEnough) {
  std::vector<NumaNode> nodes = machine(2);
  nodes[1].cpus = {3};
  on(nodes, {1});
  EXPECT_THAT(placement_.io_cpus, ElementsAre(3));
  EXPECT_THAT(placement_.memory_nodes, ElementsAre(1));
}

TEST_F(Place, ADrivesNodeWithoutMemoryHasTheThreadsAlone) {
  std::vector<NumaNode> nodes = machine(3);
  nodes[1].memory_bytes = 0;
  on(nodes, {1});
  EXPECT_THAT(placement_.io_cpus, ElementsAre(2, 3));
  EXPECT_EQ(placement_.memory, MemoryPolicy::kInterleaved);
  EXPECT_THAT(placement_.memory_nodes, ElementsAre(0, 2));
  nodes[2].memory_bytes = 0;
  on(nodes, {1});
  EXPECT_EQ(placement_.memory, MemoryPolicy::kFirstTouch);
  EXPECT_THAT(placement_.memory_nodes, IsEmpty());
  EXPECT_EQ(text_, "node 1 of 3: loop");
}

TEST_F(Place, MemoryWithoutCpusIsNeverUsed) {
  std::vector<NumaNode> nodes = machine(2);
  nodes.push_back({2, {}, kMemory});
  on(nodes, {-1});
  EXPECT_THAT(placement_.memory_nodes, ElementsAre(0, 1));
  on(nodes, {2});
  EXPECT_THAT(placement_.memory_nodes, ElementsAre(0, 1));
}

TEST_F(Place, NodesWithoutMemoryAndUnknownDrivesBindNothing) {
  std::vector<NumaNode> nodes = machine(2);
  nodes[0].memory_bytes = 0;
  on(nodes, {-1});
  expect_nothing();
  EXPECT_EQ(text_, "2 nodes, nothing bound");
}

TEST_F(Place, InvariantsHoldForEveryShape) {
  for (std::uint32_t shape = 0; shape < 1u << 8; ++shape) {
    std::vector<NumaNode> nodes = machine(4);
    for (std::uint32_t i = 0; i < 4; ++i) {
      if ((shape >> i & 1) != 0) nodes[i].cpus.clear();
      if ((shape >> (4 + i) & 1) != 0) nodes[i].memory_bytes = 0;
    }
    for (int first = -1; first < 5; ++first) {
      for (int second = -1; second < 5; ++second) {
        SCOPED_TRACE(testing::Message() << "shape " << shape << ", drives on " << first << " and " << second);
        on(nodes, {first, second});
        const std::size_t count = placement_.memory_nodes.size();
        EXPECT_EQ(placement_.memory == MemoryPolicy::kFirstTouch, count == 0);
        EXPECT_EQ(placement_.memory == MemoryPolicy::kPreferred, count == 1);
        EXPECT_EQ(placement_.io_nodes.empty(), placement_.io_cpus.empty());
        EXPECT_TRUE(std::ranges::is_sorted(placement_.memory_nodes));
        EXPECT_TRUE(std::ranges::is_sorted(placement_.io_cpus));
        for (const std::uint32_t node : placement_.memory_nodes) {
          EXPECT_FALSE(nodes[node].cpus.empty());
          EXPECT_GT(nodes[node].memory_bytes, 0u);
        }
        for (const std::uint32_t cpu : placement_.io_cpus) {
          EXPECT_TRUE(std::ranges::binary_search(nodes[cpu / 2].cpus, cpu));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::memory
