#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>

#include <cerrno>

#include "memory/drive_tree.hpp"
#include "support/system_tree.hpp"
#include "tools/block_device.hpp"
#include "tools/doctor/checks.hpp"

namespace sluice::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void expect_ok(const Check& check) {
  EXPECT_EQ(check.status, CheckStatus::kOk) << check.name << ": " << check.detail << ": " << check.remedy;
  EXPECT_EQ(check.remedy, "");
}

void expect_degraded(const Check& check, const std::string& detail, const std::string& remedy) {
  EXPECT_EQ(check.status, CheckStatus::kDegraded) << check.detail;
  EXPECT_THAT(check.detail, HasSubstr(detail));
  EXPECT_THAT(check.remedy, HasSubstr(remedy));
}

// Checks of a machine that is canned text.
class Canned : public testing::Test {
 protected:
  Canned() { tree_.make_folder("/data"); }

  Check find(const std::vector<Check>& checks, const std::string& name) const {
    for (const Check& check : checks) {
      if (check.name == name) return check;
    }
    ADD_FAILURE() << "no check named " << name;
    return {};
  }
  Check memory_check(const std::string& name) const { return find(check_memory(machine()), name); }
  Check drive_check(const std::string& name, const std::vector<std::string>& directories = {"/data"}) const {
    return find(check_drives(machine(), directories), name);
  }
  Machine machine() const { return {tree_.root()}; }

  // A drive "nvme0n1" as it should be, and the file system on it.
  void add_drive(const std::string& line = "259:0 / /data rw,relatime - ext4 /dev/nvme0n1 rw") {
    tree_.add_device("259:0", "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1");
    set("device/model", "Fast SSD 2TB       ");
    set("queue/rotational", "0");
    set("queue/scheduler", "[none] mq-deadline kyber bfq");
    set("queue/nr_requests", "1023");
    set("queue/max_sectors_kb", "128");
    set("queue/max_hw_sectors_kb", "128");
    set("queue/write_cache", "write back");
    tree_.mount(line);
  }
  void set(const std::string& file, const std::string& text) const {
    tree_.put("/sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/" + file, text + "\n");
  }
  // A device over the drive, and the file system on it.
  void add_over_drive(const std::string& number, const std::string& name) {
    add_drive("0:30 / /elsewhere rw - tmpfs tmpfs rw");
    tree_.add_device(number, "virtual/block/" + name);
    tree_.link("/sys/devices/virtual/block/" + name + "/slaves/nvme0n1", "/sys/class/block/nvme0n1");
    tree_.mount(number + " / /data rw - ext4 /dev/" + name + " rw");
  }
  void set_over(const std::string& name, const std::string& file, const std::string& text) const {
    tree_.put("/sys/devices/virtual/block/" + name + "/" + file, text + "\n");
  }

  sim::SystemTree tree_;
};

TEST_F(Canned, TransparentHugePagesThatAreOffHaveTheCommandThatTurnsThemOn) {
  expect_degraded(memory_check("huge pages"), "transparent_hugepage: absent", "CONFIG_TRANSPARENT_HUGEPAGE");
  const std::string folder = "/sys/kernel/mm/transparent_hugepage";
  tree_.put(folder + "/enabled", "always madvise [never]\n");
  expect_degraded(memory_check("huge pages"), "transparent_hugepage: never",
                  "echo madvise > " + folder + "/enabled");
  tree_.put(folder + "/enabled", "always [madvise] never\n");
  EXPECT_THAT(memory_check("huge pages").detail, HasSubstr("transparent_hugepage: madvise"));
}

TEST_F(Canned, HugetlbPoolsAreCountedBySizeAndDegradedWhenTheyTakeMuch) {
  EXPECT_THAT(memory_check("hugetlb pools").detail, HasSubstr("none"));
  const std::string folder = "/sys/kernel/mm/hugepages/hugepages-";
  tree_.put(folder + "2048kB/nr_hugepages", "512\n");
  tree_.put(folder + "2048kB/free_hugepages", "12\n");
  tree_.put(folder + "1048576kB/nr_hugepages", "0\n");
  tree_.put(folder + "1048576kB/free_hugepages", "0\n");
  const Check used = memory_check("hugetlb pools");
  expect_ok(used);
  EXPECT_THAT(used.detail, AllOf(HasSubstr("512 of 2.00 MiB, 12 free"), HasSubstr("0 of 1.00 GiB, 0 free")));
  tree_.put(folder + "1048576kB/nr_hugepages", "4\n");
  tree_.put(folder + "1048576kB/free_hugepages", "3\n");
  expect_degraded(memory_check("hugetlb pools"), "3.02 GiB are reserved", "nr_hugepages");
}

TEST_F(Canned, AControlGroupOfLittleMemoryNamesItsFile) {
  expect_ok(memory_check("control group"));
  tree_.mount("0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  tree_.put("/proc/self/cgroup", "0::/job\n");
  tree_.put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  tree_.put("/sys/fs/cgroup/job/memory.max", "536870912\n");
  tree_.put("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  const Check check = memory_check("control group");
  expect_degraded(check, "v2; memory limit 512 MiB", "raise /sys/fs/cgroup/job/memory.max");
  EXPECT_THAT(check.detail, HasSubstr("1.50 CPUs' time"));
  EXPECT_EQ(memory_check("memory").status, CheckStatus::kDegraded);
}

TEST_F(Canned, BothVersionsOfControlGroupsAreNamed) {
  tree_.mount("0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory");
  EXPECT_THAT(memory_check("control group").detail, HasSubstr("v1;"));
  tree_.mount("0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw");
  EXPECT_THAT(memory_check("control group").detail, HasSubstr("v1 and v2;"));
}

TEST_F(Canned, ADriveAsItShouldBeIsOkWithItsModelAndItsQueue) {
  add_drive();
  const Check check = drive_check("drive of /data");
  expect_ok(check);
  EXPECT_THAT(check.detail,
              AllOf(HasSubstr("nvme0n1 (Fast SSD 2TB, not rotational)"),
                    HasSubstr("scheduler none, nr_requests 1023, max_sectors_kb 128, write cache "
                              "write back")));
  expect_ok(drive_check("file system of /data"));
  expect_ok(drive_check("I/O limits on /data"));
}

TEST_F(Canned, AQueueThatCostsHasTheCommandForEachSetting) {
  add_drive();
  set("queue/scheduler", "none mq-deadline kyber [bfq]");
  set("queue/nr_requests", "32");
  set("queue/max_sectors_kb", "64");
  const Check check = drive_check("drive of /data");
  expect_degraded(check, "the scheduler bfq", "echo none > /sys/block/nvme0n1/queue/scheduler");
  expect_degraded(check, "only 32 requests", "echo 256 > /sys/block/nvme0n1/queue/nr_requests");
  expect_degraded(check, "cut to 64 KiB", "echo 128 > /sys/block/nvme0n1/queue/max_sectors_kb");
}

TEST_F(Canned, ADriveThatRotatesIsDegraded) {
  add_drive();
  set("queue/rotational", "1");
  expect_degraded(drive_check("drive of /data"), "nvme0n1 rotates", "solid-state");
}

TEST_F(Canned, AVolumeIsNamedWithWhatItStandsOn) {
  add_over_drive("253:0", "dm-0");
  set_over("dm-0", "dm/name", "group-data");
  set_over("dm-0", "dm/uuid", "LVM-abcdef");
  const Check check = drive_check("drive of /data");
  expect_ok(check);
  EXPECT_THAT(check.detail, HasSubstr("dm-0 (LVM volume group-data) on nvme0n1 (Fast SSD 2TB"));
}

TEST_F(Canned, AnEncryptedVolumeIsDegraded) {
  add_over_drive("253:0", "dm-0");
  set_over("dm-0", "dm/name", "secret");
  set_over("dm-0", "dm/uuid", "CRYPT-LUKS2-abcdef-secret");
  expect_degraded(drive_check("drive of /data"), "LUKS volume secret", "--perf-no_write_workqueue secret");
}

TEST_F(Canned, RaidIsNamedByLevelAndDegradedWhereItWritesMoreOrLacksDrives) {
  add_over_drive("9:0", "md0");
  set_over("md0", "md/level", "raid0");
  set_over("md0", "md/raid_disks", "4");
  set_over("md0", "md/degraded", "0");
  const Check check = drive_check("drive of /data");
  expect_ok(check);
  EXPECT_THAT(check.detail, HasSubstr("md0 (raid0 of 4) on nvme0n1"));
  set_over("md0", "md/level", "raid5");
  set_over("md0", "md/degraded", "1");
  expect_degraded(drive_check("drive of /data"), "md0 writes parity", "a directory on each drive");
  expect_degraded(drive_check("drive of /data"), "lacks 1 of its drives", "mdadm --detail /dev/md0");
  set_over("md0", "md/level", "raid1");
  expect_degraded(drive_check("drive of /data"), "everything twice", "raid0");
}

TEST_F(Canned, ALoopDeviceIsNamedWithItsFileAndDegradedWithoutDirectIo) {
  add_drive("259:0 / / rw - ext4 /dev/nvme0n1 rw");
  tree_.put("/images/disk", "");
  tree_.add_device("7:3", "virtual/block/loop3");
  set_over("loop3", "loop/backing_file", "/images/disk");
  set_over("loop3", "loop/dio", "0");
  tree_.mount("7:3 / /data rw - ext4 /dev/loop3 rw");
  const Check check = drive_check("drive of /data");
  expect_degraded(check, "loop3 (loop over /images/disk, direct I/O off) on nvme0n1",
                  "losetup --direct-io=on /dev/loop3");
  set_over("loop3", "loop/dio", "1");
  expect_ok(drive_check("drive of /data"));
}

TEST_F(Canned, TwoDirectoriesOverOneDriveShareIt) {
  add_over_drive("253:0", "dm-0");
  tree_.make_folder("/other");
  tree_.mount("259:0 / /other rw - xfs /dev/nvme0n1 rw");
  expect_degraded(drive_check("drive of /other", {"/data", "/other"}),
                  "nvme0n1 is the drive of /data as well", "each drive one directory");
}

TEST_F(Canned, LimitsOfTheControlGroupOnADriveAreNamedInBothVersions) {
  add_drive();
  tree_.put("/proc/self/cgroup", "3:blkio:/job\n0::/job\n");
  tree_.mount("0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw");
  tree_.put("/sys/fs/cgroup/unified/job/io.max", "8:0 rbps=1 wbps=1 riops=1 wiops=1\n");
  expect_ok(drive_check("I/O limits on /data"));
  tree_.put("/sys/fs/cgroup/unified/job/io.max",
            "8:0 rbps=1 wbps=1 riops=1 wiops=1\n259:0 rbps=2097152 wbps=max riops=max wiops=120\n");
  const Check v2 = drive_check("I/O limits on /data");
  expect_degraded(v2, "reads 2.00 MiB/s; write requests 120/s", "raise /sys/fs/cgroup/unified/job/io.max (");
  EXPECT_THAT(v2.detail, Not(HasSubstr("writes")));

  tree_.mount("0:27 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio");
  tree_.put("/sys/fs/cgroup/blkio/job/blkio.throttle.write_bps_device", "259:0 1048576\n");
  tree_.put("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device", "259:0 1048576\n");
  expect_degraded(drive_check("I/O limits on /data"), "reads 1.00 MiB/s; writes 1.00 MiB/s; write requests",
                  "raise /sys/fs/cgroup/blkio/blkio.throttle.read_bps_device; raise "
                  "/sys/fs/cgroup/blkio/job/blkio.throttle.write_bps_device; raise "
                  "/sys/fs/cgroup/unified/job/io.max");
}

TEST(FileSystem, OptionsThatHurtAreNamedWithTheCommand) {
  const auto judge = [](const char* type, const char* options, const char* super_options,
                        CopyOnWrite copying = CopyOnWrite::kUnknown) {
    return judge_file_system("/data",
                             memory::Mount{.device = "259:0",
                                           .top = "/",
                                           .point = "/mnt",
                                           .options = options,
                                           .type = type,
                                           .source = "/dev/nvme0n1",
                                           .super_options = super_options},
                             copying);
  };
  expect_ok(judge("ext4", "rw,relatime", "rw,discard,data=ordered"));
  expect_ok(judge("xfs", "rw,noatime", "rw,attr2,inode64,noquota"));
  expect_degraded(judge("ext4", "rw,sync", "rw"), "every write waits", "mount -o remount,async /mnt");
  expect_degraded(judge("ext4", "rw", "rw,data=journal"), "written twice", "data=ordered");
  expect_degraded(judge("ext4", "rw", "rw,nobarrier"), "power cut", "mount -o remount,barrier=1 /mnt");
  expect_degraded(judge("ext4", "ro", "rw"), "read-only", "mount -o remount,rw /mnt");
  expect_degraded(judge("btrfs", "rw", "rw,compress=zstd:3"), "compresses", "compress=none");
  expect_degraded(judge("btrfs", "rw", "rw,space_cache=v2"), "copies on write", "chattr +C");
  expect_ok(judge("btrfs", "rw", "rw,nodatacow"));
  expect_ok(judge("btrfs", "rw", "rw,compress=zstd:3", CopyOnWrite::kOff));
  expect_degraded(judge("zfs", "rw", "rw,xattr"), "copies on write", "zfs set compression=off");
  expect_degraded(judge("tmpfs", "rw", "rw,size=1g"), "memory", "on a drive");
  expect_degraded(judge("nfs4", "rw", "rw,vers=4.2"), "not this machine's own", "local drive");
  expect_degraded(judge("fuse.sshfs", "rw", "rw"), "not this machine's own", "local drive");
  expect_degraded(judge("overlay", "rw", "rw,lowerdir=/a"), "container", "docker run -v");
  expect_degraded(judge_file_system("/data", std::nullopt, CopyOnWrite::kUnknown), "not known",
                  "mount /proc");
}

TEST(Ring, ARefusalHasTheRemedyOfWhatRefused) {
  const auto remedy = [](const RingFacts& facts) {
    const Check check = judge_refused_ring(facts);
    EXPECT_EQ(check.status, CheckStatus::kMissing);
    EXPECT_THAT(check.detail, HasSubstr("threads are used"));
    return check.remedy;
  };
  EXPECT_THAT(remedy({.error = EPERM, .disabled = "2", .seccomp = "2"}),
              HasSubstr("sysctl -w kernel.io_uring_disabled=0"));
  EXPECT_THAT(remedy({.error = EPERM, .disabled = "1", .seccomp = "0"}), HasSubstr("io_uring_group"));
  EXPECT_THAT(remedy({.error = EPERM, .disabled = "0", .seccomp = "2"}), HasSubstr("seccomp profile"));
  EXPECT_THAT(remedy({.error = ENOSYS, .disabled = "", .seccomp = "2"}), HasSubstr("seccomp profile"));
  EXPECT_THAT(remedy({.error = ENOSYS, .disabled = "", .seccomp = "0"}), HasSubstr("Linux 5.11"));
  EXPECT_THAT(remedy({.error = ENOMEM, .disabled = "0", .seccomp = "0"}), HasSubstr("ulimit -l"));
  EXPECT_THAT(remedy({.error = EMFILE, .disabled = "0", .seccomp = "0"}), HasSubstr("ulimit -n"));
}

TEST(Ring, FlagsThatTheKernelLacksAreNamedWithTheKernelThatHasThem) {
  constexpr std::uint32_t kOf61 = IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN | 1U << 12 | 1U << 13;
  const Check whole = judge_ring_flags({.flags = kOf61 | 1U << 16});
  expect_ok(whole);
  EXPECT_THAT(whole.detail, Not(HasSubstr("not offered")));
  const Check without_array = judge_ring_flags({.flags = kOf61});
  expect_ok(without_array);
  EXPECT_THAT(without_array.detail, HasSubstr("not offered: no_sqarray (Linux 6.6)"));
  expect_degraded(judge_ring_flags({.flags = IORING_SETUP_CQSIZE}), "defer_taskrun (Linux 6.1)",
                  "Linux 6.1 or later");
}

TEST(NumaCheck, ADriveOutsideTheMaskHasTheCommandThatMovesTheProcess) {
  std::vector<memory::NumaNode> nodes = {{0, {0, 1}, 1 << 30}, {1, {2, 3}, 1 << 30}};
  expect_ok(judge_numa(nodes, {"/a", "/b"}, {{1}, {memory::kUnknownNode}}));
  const Check near = judge_numa(nodes, {"/a"}, {{1}});
  expect_ok(near);
  EXPECT_THAT(near.detail,
              AllOf(HasSubstr("node 1 of 2: arena and loop"), HasSubstr("/a: its drive is at node 1")));
  nodes[1].cpus.clear();
  expect_degraded(judge_numa(nodes, {"/a"}, {{1}}), "/a: its drive is at node 1, outside the affinity mask",
                  "numactl --cpunodebind=1");
  nodes.pop_back();
  const Check one = judge_numa(nodes, {"/a"}, {{memory::kUnknownNode}});
  expect_ok(one);
  EXPECT_EQ(one.detail, "1 node");
  expect_degraded(judge_numa(nodes, {"/a"}, {{1}}), "1 node; /a: its drive is at node 1, outside",
                  "numactl --cpunodebind=1");
}

TEST(Gpu, NoDeviceAndAnOldDriverBothMeanNone) {
  for (const int error : {35, 100}) {
    const Check check = judge_gpu({.library = true, .error = error});
    EXPECT_EQ(check.status, CheckStatus::kMissing);
    EXPECT_THAT(check.detail, HasSubstr("no GPU;"));
  }
  EXPECT_EQ(judge_gpu({}).status, CheckStatus::kMissing);
  EXPECT_EQ(judge_gpu({.library = true}).status, CheckStatus::kMissing);
}

TEST(Gpu, ADriverWithoutDeviceNodesIsAContainersFault) {
  EXPECT_THAT(judge_gpu({.library = true, .error = 100, .driver = "NVRM version: 550"}).remedy,
              HasSubstr("--gpus all"));
  EXPECT_THAT(
      judge_gpu({.library = true, .error = 100, .driver = "NVRM version: 550", .nodes = {"nvidia0"}}).remedy,
      HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_THAT(judge_gpu({.library = true, .error = 999, .driver = "NVRM", .nodes = {"nvidia0"}}).detail,
              HasSubstr("999"));
}

TEST(Gpu, OneThatIsThereIsNamedWithItsDriver) {
  const Check check = judge_gpu(
      {.library = true, .devices = {"H200 (139 GiB)"}, .driver = "NVRM version: 550", .nodes = {"nvidia0"}});
  expect_ok(check);
  EXPECT_THAT(check.detail, AllOf(HasSubstr("H200 (139 GiB)"), HasSubstr("550"), HasSubstr("nvidia0")));
}

TEST(Nccl, VersionsOfBothCodingsAreRead) {
  EXPECT_EQ(nccl_version_text(21805), "2.18.5");
  EXPECT_EQ(nccl_version_text(22304), "2.23.4");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

}  // namespace
}  // namespace sluice::tools
