#include "memory/cgroup.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "memory/memory_room.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::memory {
namespace {

// A file system root with a /proc and the control groups that it names.
class CgroupTree : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void mount_v2(const std::string& top = "/", const std::string& point = "/sys/fs/cgroup") {
    mounts_ += "30 23 0:26 " + top + " " + point + " rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    put("/proc/self/mountinfo", mounts_);
  }
  void mount_v1(const std::string& controllers, const std::string& point, const std::string& top = "/") {
    mounts_ += "33 31 0:30 " + top + " " + point + " rw,relatime - cgroup cgroup rw," + controllers + "\n";
    put("/proc/self/mountinfo", mounts_);
  }
  void member(const std::string& lines) { put("/proc/self/cgroup", lines); }
  CgroupLimits limits() const { return read_cgroup_limits(root_); }

  const sim::TemporaryDirectory directory_;
  const std::string& root_ = directory_.path();

 private:
  std::string mounts_ = "23 1 254:0 / / rw,relatime - ext4 /dev/root rw\n";
};

TEST_F(CgroupTree, WithoutProcNothingIsLimited) {
  EXPECT_EQ(limits().memory_bytes, kNoLimit);
  EXPECT_EQ(limits().memory_room_bytes, kNoLimit);
  EXPECT_EQ(limits().cpu_quota, kNoQuota);
  EXPECT_EQ(limits().memory_file, "");
}

TEST_F(CgroupTree, V2MaxIsNoLimit) {
  mount_v2();
  member("0::/job\n");
  put("/sys/fs/cgroup/job/memory.max", "max\n");
  put("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(limits().memory_bytes, kNoLimit);
  EXPECT_EQ(limits().cpu_quota, kNoQuota);
}

TEST_F(CgroupTree, V2TakesTheTightestOfTheGroupAndItsAncestors) {
  mount_v2();
  member("0::/slice/job\n");
  put("/sys/fs/cgroup/slice/job/memory.max", "3000000\n");
  put("/sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/slice/memory.max", "2000000\n");
  put("/sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/other/memory.max", "1000\n");
  EXPECT_EQ(limits().memory_bytes, 2000000u);
  EXPECT_EQ(limits().memory_file, "/sys/fs/cgroup/slice/memory.max");
  EXPECT_DOUBLE_EQ(limits().cpu_quota, 1.5);
}

TEST_F(CgroupTree, RoomIsTheLeastOfLimitMinusUseAtAnyLevel) {
  mount_v2();
  member("0::/slice/job\n");
  put("/sys/fs/cgroup/slice/job/memory.max", "1000\n");
  put("/sys/fs/cgroup/slice/job/memory.current", "100\n");
  put("/sys/fs/cgroup/slice/memory.max", "2000\n");
  put("/sys/fs/cgroup/slice/memory.current", "1800\n");
  EXPECT_EQ(limits().memory_bytes, 1000u);
  EXPECT_EQ(limits().memory_room_bytes, 200u);
}

TEST_F(CgroupTree, PageCacheIsNotCountedAsUse) {
  mount_v2();
  member("0::/job\n");
  put("/sys/fs/cgroup/job/memory.max", "1000\n");
  put("/sys/fs/cgroup/job/memory.current", "900\n");
  put("/sys/fs/cgroup/job/memory.stat", "anon 500\nfile 400\ninactive_file 300\nactive_file 100\n");
  EXPECT_EQ(limits().memory_room_bytes, 500u);
}

TEST_F(CgroupTree, UseAboveTheLimitLeavesNoRoom) {
  mount_v2();
  member("0::/job\n");
  put("/sys/fs/cgroup/job/memory.max", "1000\n");
  put("/sys/fs/cgroup/job/memory.current", "1001\n");
  EXPECT_EQ(limits().memory_room_bytes, 0u);
}

TEST_F(CgroupTree, V1LimitsComeFromEachControllersOwnHierarchy) {
  mount_v1("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct");
  mount_v1("memory", "/sys/fs/cgroup/memory");
  member("5:memory:/batch/job\n4:cpu,cpuacct:/cpus\n1:name=systemd:/elsewhere\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "5000000\n");
  put("/sys/fs/cgroup/memory/batch/memory.usage_in_bytes", "2000000\n");
  put("/sys/fs/cgroup/memory/batch/memory.stat",
      "inactive_file 7\ntotal_inactive_file 400000\ntotal_active_file 100000\n");
  put("/sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpus/cpu.cfs_quota_us", "250000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpus/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().memory_bytes, 5000000u);
  EXPECT_EQ(limits().memory_room_bytes, 3500000u);
  EXPECT_EQ(limits().memory_file, "/sys/fs/cgroup/memory/batch/memory.limit_in_bytes");
  EXPECT_DOUBLE_EQ(limits().cpu_quota, 2.5);
}

TEST_F(CgroupTree, V1ControllerIsMatchedByItsWholeName) {
  mount_v1("cpuset", "/sys/fs/cgroup/cpuset");
  member("3:cpuset:/job\n");
  put("/sys/fs/cgroup/cpuset/job/cpu.cfs_quota_us", "100000\n");
  put("/sys/fs/cgroup/cpuset/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().cpu_quota, kNoQuota);
}

TEST_F(CgroupTree, HybridTakesMemoryFromV1AndCpuFromV2) {
  mount_v1("memory", "/sys/fs/cgroup/memory");
  mount_v2("/", "/sys/fs/cgroup/unified");
  member("4:memory:/a\n0::/b\n");
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096000\n");
  put("/sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n");
  EXPECT_EQ(limits().memory_bytes, 4096000u);
  EXPECT_DOUBLE_EQ(limits().cpu_quota, 2.0);
}

TEST_F(CgroupTree, ContainerMountShowsItsOwnGroupAtTheMountPoint) {
  mount_v1("memory", "/sys/fs/cgroup/memory", "/docker/abc");
  member("4:memory:/docker/abc/inner\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n");
  put("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "7000\n");
  EXPECT_EQ(limits().memory_bytes, 7000u);
}

TEST_F(CgroupTree, GroupOutsideTheMountOrNamespaceFallsBackToTheMountPoint) {
  mount_v2("/docker/abc");
  put("/sys/fs/cgroup/memory.max", "6000\n");
  for (const char* group : {"0::/docker/abcdef\n", "0::/../../other\n", "0::/\n"}) {
    member(group);
    EXPECT_EQ(limits().memory_bytes, 6000u) << group;
  }
}

TEST_F(CgroupTree, SecondMountIsUsedWhenOnlyItShowsTheGroup) {
  mount_v2("/elsewhere", "/mnt/part");
  mount_v2("/", "/sys/fs/cgroup");
  member("0::/job\n");
  put("/mnt/part/memory.max", "1\n");
  put("/sys/fs/cgroup/job/memory.max", "2000\n");
  EXPECT_EQ(limits().memory_bytes, 2000u);
}

TEST_F(CgroupTree, GroupNamesMayHoldColonsAndMountPointsBlanks) {
  mount_v2("/", "/sys/fs/c\\040group");
  member("0::/job:1\n");
  put("/sys/fs/c group/job:1/memory.max", "12345\n");
  EXPECT_EQ(limits().memory_bytes, 12345u);
}

TEST_F(CgroupTree, GarbledFilesLimitNothing) {
  mount_v2();
  put("/proc/self/mountinfo", "no dash here\n30 23 0:26 / /sys/fs/cgroup rw - cgroup2 c rw\n - \n");
  member("nonsense\n:\n0::/job\n");
  put("/sys/fs/cgroup/job/memory.max", "99999999999999999999999999\n");
  put("/sys/fs/cgroup/job/cpu.max", "100000 0\n");
  EXPECT_EQ(limits().memory_bytes, kNoLimit);
  EXPECT_EQ(limits().cpu_quota, kNoQuota);
}

TEST_F(CgroupTree, MemoryRoomIsTheLesserOfAvailableRamAndTheGroupsRoom) {
  mount_v2();
  member("0::/job\n");
  put("/proc/meminfo", "MemTotal:       24684084 kB\nMemFree:  1 kB\nMemAvailable:   2000 kB\n");
  EXPECT_EQ(read_memory_room(root_).bytes(), 2000u * 1024);
  EXPECT_EQ(read_memory_room(root_).machine_bytes, 24684084ull * 1024);

  put("/sys/fs/cgroup/job/memory.max", "1000000\n");
  put("/sys/fs/cgroup/job/memory.current", "400000\n");
  const MemoryRoom room = read_memory_room(root_);
  EXPECT_EQ(room.bytes(), 600000u);
  EXPECT_NE(room.to_string().find("600000 bytes left of 1000000 (/sys/fs/cgroup/job/memory.max)"),
            std::string::npos)
      << room.to_string();
}

TEST_F(CgroupTree, DriveLimitsAreTheTightestOfTheGroupAndItsAncestors) {
  mount_v2();
  member("0::/slice/job\n");
  EXPECT_EQ(read_drive_limits("259:0", root_).read_bytes.per_s, kNoLimit);
  EXPECT_EQ(read_drive_limits("259:0", root_).read_bytes.file, "");
  put("/sys/fs/cgroup/slice/job/io.max",
      "259:1 rbps=1 wbps=1 riops=1 wiops=1\n259:0 rbps=max wbps=700 riops=30 wiops=max\n");
  put("/sys/fs/cgroup/slice/io.max", "259:0 rbps=500 wbps=900 riops=max wiops=max\n");
  const DriveLimits limits = read_drive_limits("259:0", root_);
  EXPECT_EQ(limits.read_bytes.per_s, 500u);
  EXPECT_EQ(limits.read_bytes.file, "/sys/fs/cgroup/slice/io.max");
  EXPECT_EQ(limits.write_bytes.per_s, 700u);
  EXPECT_EQ(limits.write_bytes.file, "/sys/fs/cgroup/slice/job/io.max");
  EXPECT_EQ(limits.reads.per_s, 30u);
  EXPECT_EQ(limits.writes.per_s, kNoLimit);
  EXPECT_EQ(read_drive_limits("259:2", root_).read_bytes.per_s, kNoLimit);
}

TEST_F(CgroupTree, DriveLimitsOfV1HaveAFileEach) {
  mount_v1("blkio", "/sys/fs/cgroup/blkio");
  member("3:blkio:/job\n");
  put("/sys/fs/cgroup/blkio/job/blkio.throttle.read_bps_device", "8:0 1\n259:0 1000000\n");
  put("/sys/fs/cgroup/blkio/job/blkio.throttle.write_iops_device", "259:0 50\n");
  const DriveLimits limits = read_drive_limits("259:0", root_);
  EXPECT_EQ(limits.read_bytes.per_s, 1000000u);
  EXPECT_EQ(limits.writes.per_s, 50u);
  EXPECT_EQ(limits.write_bytes.per_s, kNoLimit);
}

}  // namespace
}  // namespace sluice::memory
