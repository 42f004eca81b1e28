#include "memory/topology.hpp"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

#include "memory/arena.hpp"
#include "memory/memory_room.hpp"
#include "memory/thread.hpp"

namespace sluice::memory {
namespace {

std::vector<std::uint32_t> affinity_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

TEST(Topology, CpusAreTheAffinityMasks) {
  const Result<Topology> topology = read_topology();
  ASSERT_TRUE(topology.ok()) << topology.status().to_string();
  EXPECT_EQ(topology->cpus, affinity_of_this_thread());
  EXPECT_GE(count_of_mask(topology->nodes), 1u);
  std::size_t cpus_of_nodes = 0;
  for (const NumaNode& node : topology->nodes) cpus_of_nodes += node.cpus.size();
  EXPECT_EQ(cpus_of_nodes, topology->cpus.size());
  EXPECT_EQ(topology->memory_bytes,
            std::min(read_memory_room().machine_bytes, read_cgroup_limits().memory_bytes));
}

TEST(Topology, NarrowerMaskIsSeenAndNoted) {
  std::thread([] {
    const Result<Topology> whole = read_topology();
    ASSERT_TRUE(whole.ok());
    if (whole->cpus.size() < 2) GTEST_SKIP() << "one CPU";
    ASSERT_TRUE(bind_thread(*whole, pthread_self(), std::vector{whole->cpus.back()}).ok());
    const Result<Topology> narrow = read_topology();
    ASSERT_TRUE(narrow.ok());
    EXPECT_EQ(narrow->cpus, std::vector{whole->cpus.back()});
    EXPECT_EQ(narrow->threads(), 1u);
    EXPECT_TRUE(std::any_of(narrow->notes.begin(), narrow->notes.end(),
                            [](const std::string& note) { return note.starts_with("affinity mask: 1 of"); }));
  }).join();
}

TEST(Topology, ReadingLeavesTheCallersMaskAlone) {
  const auto before = affinity_of_this_thread();
  ASSERT_TRUE(read_topology().ok());
  EXPECT_EQ(affinity_of_this_thread(), before);
}

TEST(Topology, ThreadsAreBoundedByTheQuotaRoundedUp) {
  Topology topology;
  topology.cpus = {0, 1, 2, 3};
  EXPECT_EQ(topology.threads(), 4u);
  topology.cpu_quota = 1.5;
  EXPECT_EQ(topology.threads(), 2u);
  topology.cpu_quota = 0.1;
  EXPECT_EQ(topology.threads(), 1u);
  topology.cpu_quota = 64;
  EXPECT_EQ(topology.threads(), 4u);
}

TEST(Topology, BindsOnlyTheThreadThatIsNamed) {
  const Result<Topology> topology = read_topology();
  ASSERT_TRUE(topology.ok());
  const auto before = affinity_of_this_thread();
  std::thread([&] {
    ASSERT_TRUE(bind_thread(*topology, pthread_self(), std::vector{topology->cpus.back()}).ok());
    EXPECT_EQ(affinity_of_this_thread(), std::vector{topology->cpus.back()});
  }).join();
  EXPECT_EQ(affinity_of_this_thread(), before);
}

TEST(Topology, RefusesToBindOutsideTheAffinityMask) {
  const Result<Topology> topology = read_topology();
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(bind_thread(*topology, pthread_self(), {}).code(), Code::kInvalidArgument);
  const Status status = bind_thread(*topology, pthread_self(), std::vector{topology->cpus.back() + 1});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find(std::to_string(topology->cpus.back() + 1)), std::string::npos);
}

// A machine of hwloc's making; the first `cpus` of it are in the mask.
std::vector<NumaNode> nodes_of(const char* description, std::uint32_t cpus) {
  hwloc_topology* machine = nullptr;
  EXPECT_EQ(hwloc_topology_init(&machine), 0);
  EXPECT_EQ(hwloc_topology_set_synthetic(machine, description), 0) << description;
  EXPECT_EQ(hwloc_topology_load(machine), 0) << description;
  std::vector<std::uint32_t> mask(cpus);
  std::iota(mask.begin(), mask.end(), 0u);
  std::vector<NumaNode> nodes = read_nodes(machine, mask);
  hwloc_topology_destroy(machine);
  return nodes;
}

TEST(Nodes, HaveTheCpusOfTheMaskThatAreTheirs) {
  const auto nodes = nodes_of("NUMANode:4 Core:2 PU:1", 5);
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].cpus, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(nodes[2].cpus, (std::vector<std::uint32_t>{4}));
  EXPECT_TRUE(nodes[3].cpus.empty());
  EXPECT_EQ(count_of_mask(nodes), 3u);
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(nodes[i].number, i);
    EXPECT_GT(nodes[i].memory_bytes, 0u);
  }
}

TEST(Nodes, OneNodeHasTheWholeMask) {
  const auto nodes = nodes_of("Core:4 PU:1", 4);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].cpus.size(), 4u);
}

TEST(Nodes, MemoryOfAnotherKindBesideANodeHasNoCpus) {
  const auto nodes = nodes_of("Package:2 [NUMANode] [NUMANode(memory=1GB)] Core:2 PU:1", 4);
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(count_of_mask(nodes), 2u);
}

TEST(Topology, MemoryIsBoundToTheNodesOfThisMachineAlone) {
  const Result<Topology> topology = read_topology();
  ASSERT_TRUE(topology.ok());
  const auto with_memory =
      std::ranges::find_if(topology->nodes, [](const NumaNode& node) { return node.memory_bytes > 0; });
  ASSERT_NE(with_memory, topology->nodes.end());
  const Result<Arena> arena = Arena::create({.bytes = 4 << 20,
                                             .purpose = "test",
                                             .policy = MemoryPolicy::kPreferred,
                                             .nodes = {with_memory->number},
                                             .topology = &*topology});
  ASSERT_TRUE(arena.ok());
  if (!arena->binding().ok()) GTEST_SKIP() << arena->binding().message();
  int policy = -1;
  std::array<unsigned long, 64> nodes = {};
  ASSERT_EQ(syscall(SYS_get_mempolicy, &policy, nodes.data(), nodes.size() * 64, arena->span().data(), 2), 0);
  EXPECT_NE(policy, 0);  // not the default
  EXPECT_EQ(nodes[with_memory->number / 64], 1ul << with_memory->number % 64);
}

TEST(Topology, NodesThatAreRefusedLeaveAnArenaThatSaysWhy) {
  const Result<Topology> topology = read_topology();
  ASSERT_TRUE(topology.ok());
  const std::uint32_t absent = topology->nodes.back().number + 1;
  const Result<Arena> arena = Arena::create({.bytes = 4 << 20,
                                             .purpose = "test",
                                             .policy = MemoryPolicy::kInterleaved,
                                             .nodes = {0, absent},
                                             .topology = &*topology});
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->span().size(), 4u << 20);
  EXPECT_EQ(arena->binding().code(), Code::kInvalidArgument);
  EXPECT_NE(arena->binding().message().find(std::to_string(absent)), std::string::npos);
}

TEST(Thread, RunsWithEverySignalBlockedAndLeavesTheCallersMask) {
  sigset_t before, inside, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  sigemptyset(&inside);
  char name[16] = "";
  Result<std::thread> thread = start_thread("a name that is too long", [&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &inside);
    pthread_getname_np(pthread_self(), name, sizeof name);
  });
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_STREQ(name, "a name that is ");
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPROF}) {
    EXPECT_EQ(sigismember(&inside, signal), 1) << signal;
    EXPECT_EQ(sigismember(&after, signal), sigismember(&before, signal)) << signal;
  }
}

}  // namespace
}  // namespace sluice::memory
