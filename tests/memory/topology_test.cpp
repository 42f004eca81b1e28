#include "memory/topology.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <thread>

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
  EXPECT_GE(topology->numa_nodes, 1u);
  EXPECT_EQ(topology->memory_bytes,
            std::min(read_memory_room().machine_bytes, read_cgroup_limits().memory_bytes));
}

TEST(Topology, NarrowerMaskIsSeenAndNoted) {
  std::thread([] {
    const Result<Topology> whole = read_topology();
    ASSERT_TRUE(whole.ok());
    if (whole->cpus.size() < 2) GTEST_SKIP() << "one CPU";
    ASSERT_TRUE(bind_this_thread(*whole, std::vector{whole->cpus.back()}).ok());
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

TEST(Topology, BindsOnlyTheCallingThread) {
  const Result<Topology> topology = read_topology();
  ASSERT_TRUE(topology.ok());
  const auto before = affinity_of_this_thread();
  std::thread([&] {
    ASSERT_TRUE(bind_this_thread(*topology, std::vector{topology->cpus.back()}).ok());
    EXPECT_EQ(affinity_of_this_thread(), std::vector{topology->cpus.back()});
  }).join();
  EXPECT_EQ(affinity_of_this_thread(), before);
}

TEST(Topology, RefusesToBindOutsideTheAffinityMask) {
  const Result<Topology> topology = read_topology();
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(bind_this_thread(*topology, {}).code(), Code::kInvalidArgument);
  const Status status = bind_this_thread(*topology, std::vector{topology->cpus.back() + 1});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find(std::to_string(topology->cpus.back() + 1)), std::string::npos);
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
