#include "engine/numa.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "engine/loop.hpp"

namespace sluice::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

NumaUse two_nodes() {
  NumaUse numa;
  numa.topology.cpus = {0, 1};
  numa.topology.nodes = {{0, {0}, 1 << 30}, {1, {1}, 1 << 30}};
  numa.placement = memory::place_on_nodes(numa.topology.nodes, std::vector{1});
  return numa;
}

TEST(Numa, WorkersRunNearTheDrives) {
  NumaUse numa = two_nodes();
  std::vector<int> asked;
  const auto open = [&](const io::BackendOptions& options) {
    asked = options.cpus;
    return io::open_backend({.kind = io::BackendKind::kThreads, .threads = 1});
  };
  ASSERT_TRUE(open_near(open, {}, numa).ok());
  EXPECT_THAT(asked, ElementsAre(1));
  EXPECT_TRUE(numa.refusals.empty());
  EXPECT_EQ(numa.text(), "node 1 of 2: arena and loop");
}

TEST(Numa, WorkersThatMayNotBeBoundRunAnywhereAndItIsSaid) {
  NumaUse numa = two_nodes();
  const auto open = [](const io::BackendOptions& options) -> Result<io::SelectedBackend> {
    if (!options.cpus.empty()) return Status(Code::kInvalidArgument, "cpus: not allowed");
    return io::open_backend({.kind = io::BackendKind::kThreads, .threads = 1});
  };
  ASSERT_TRUE(open_near(open, {}, numa).ok());
  EXPECT_THAT(numa.refusals, ElementsAre(HasSubstr("cpus: not allowed")));
  EXPECT_EQ(numa.text(), "node 1 of 2: arena");
}

TEST(Numa, ABackendThatFailsAnywhereFailsForItsOwnReason) {
  NumaUse numa = two_nodes();
  const auto open = [](const io::BackendOptions&) -> Result<io::SelectedBackend> {
    return Status(Code::kUnavailable, "no ring");
  };
  EXPECT_EQ(open_near(open, {}, numa).status().code(), Code::kUnavailable);
  EXPECT_TRUE(numa.refusals.empty());
}

TEST(Numa, WhatIsRefusedIsInUseNoMore) {
  NumaUse numa = two_nodes();
  numa.give_up_memory(Status(Code::kUnavailable, "no"));
  EXPECT_EQ(numa.text(), "node 1 of 2: loop");
  numa.give_up_threads(Status(Code::kUnavailable, "nor this"));
  EXPECT_EQ(numa.text(), "2 nodes, nothing bound");
  EXPECT_THAT(numa.refusals, ElementsAre("NUMA: no", "NUMA: nor this"));
}

TEST(Numa, TheLoopIsNarrowedAndNotWhoMadeIt) {
  const Result<memory::Topology> topology = memory::read_topology();
  ASSERT_TRUE(topology.ok());
  Result<io::SelectedBackend> backend = io::open_backend({.kind = io::BackendKind::kThreads, .threads = 1});
  ASSERT_TRUE(backend.ok());
  io::Queue queue(*backend->backend, {});
  const auto wake = [&] { queue.wake(); };
  Result<std::unique_ptr<Compute>> compute = make_thread_compute(1, wake);
  ASSERT_TRUE(compute.ok());
  const Result<std::shared_ptr<Device>> device = make_host_device();
  ASSERT_TRUE(device.ok());
  Result<std::unique_ptr<DeviceSession>> session =
      (*device)->open({.arena_bytes = 4096, .on_finished = wake});
  ASSERT_TRUE(session.ok());
  Loop loop(LoopMode::kThread, {&queue, compute->get(), session->get()});
  ASSERT_TRUE(loop.start([] {}).ok());
  const std::uint32_t cpu = topology->cpus.back();
  ASSERT_TRUE(loop.bind(*topology, std::vector{cpu}).ok());
  cpu_set_t of_loop, of_caller;
  ASSERT_TRUE(loop.call([&](Ticket& ticket) {
                    sched_getaffinity(0, sizeof of_loop, &of_loop);
                    loop.complete(ticket, {});
                  })
                  .ok());
  sched_getaffinity(0, sizeof of_caller, &of_caller);
  EXPECT_EQ(CPU_COUNT(&of_loop), 1);
  EXPECT_TRUE(CPU_ISSET(cpu, &of_loop));
  EXPECT_EQ(static_cast<std::size_t>(CPU_COUNT(&of_caller)), topology->cpus.size());
}

}  // namespace
}  // namespace sluice::engine
